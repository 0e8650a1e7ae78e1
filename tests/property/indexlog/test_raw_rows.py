"""Raw records that are read together come to the same as one by one, whoever wrote them and whatever is damaged."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexlog import raw_rows as module
from indexlog.columns import with_contents
from indexlog.raw_rows import raw_rows
from indexlog.records import LogRecord, Modification, encode_record, readable_row
from tests.property.indexlog.changes import records

TEXTS = st.text(max_size=4) | st.integers(0, 300).map(lambda size: "é" * size) | st.just("x" * 70_000)
MAPS = st.dictionaries(TEXTS, TEXTS, max_size=4) | st.integers(0, 70).map(lambda n: {str(k): "" for k in range(n)})
NUMBERS = st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 53, -1])
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.5])
VARIABLES = st.dictionaries(NUMBERS, FLOATS | st.integers(-1, 1), max_size=4)
CODES = st.sampled_from(["books", "songs", "a" * 64, "a" * 65, "", "a/b", "ü"])
OF_OTHERS = st.builds(
    lambda *values: msgpack.packb([1, *values]),
    *(CODES, TEXTS, st.booleans(), NUMBERS, st.none() | MAPS, VARIABLES, MAPS),
)
"""Entries of maps in any order, and values that are not allowed."""


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A record of which a byte is another one, or which is cut or goes on."""
    data = bytearray(draw(records().map(encode_record) | OF_OTHERS))
    place = draw(st.integers(0, min(len(data) - 1, 40)))
    match draw(st.integers(0, 2)):
        case 0:
            data[place] = draw(st.integers(0, 255))
        case 1:
            del data[draw(st.sampled_from([place, len(data) - place])) :]
        case _:
            data += data[: place + 1]
    return bytes(data)


PAYLOADS = st.none() | st.just(b"") | records().map(encode_record) | OF_OTHERS | damaged()


def told(payloads: list[bytes | None]) -> list[tuple[int, Any]]:
    data = [payload or b"" for payload in payloads]
    found = raw_rows(data, np.array(list(map(len, data)), np.int64))
    found.table.validate(full=True)
    codes = [found.indexes[code] for code in found.codes]
    table = with_contents(found.table)
    columns = [table.column(name).to_pylist() for name in ("docid", "deleted", "timestamp", "contents")]
    return list(zip(found.places.tolist(), zip(codes, *columns, strict=True), strict=True))


@given(st.lists(PAYLOADS, max_size=12))
def test_records_together_come_to_what_each_is(payloads: list[bytes | None]) -> None:
    rows = ((place, readable_row(payload)) for place, payload in enumerate(payloads))
    assert told(payloads) == [(place, row) for place, row in rows if row is not None]


@given(st.lists(records(), min_size=1, max_size=12))
def test_python_looks_at_no_record_that_this_version_writes(written: list[LogRecord]) -> None:
    data = [encode_record(record) for record in written]
    expected = list(enumerate(map(readable_row, data)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "readable_row", lambda payload: pytest.fail(f"{payload!r} was unpacked"))
        assert told(data) == expected


WRONG_TEXTS = [b"\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3", b"\xf0\x9f\x98"]


@pytest.mark.parametrize("wrong", WRONG_TEXTS)
@pytest.mark.parametrize("neighbour", [b"\xa9", b"a"])
def test_a_text_that_is_no_unicode_makes_its_record_unreadable_alone(wrong: bytes, neighbour: bytes) -> None:
    """Also where the bytes behind it, of another value or record, would complete it."""
    good = encode_record(LogRecord("books", "ü", Modification(True, {"name": "ü"})))
    docid = msgpack.packb([1, "books", "?" * len(wrong), True, 5, {"n": "1"}, {}, {}]).replace(b"?" * len(wrong), wrong)
    text = msgpack.packb([1, "books", "d", True, 5, {"n": "?" * len(wrong), "o": "!"}, {}, {}])
    text = text.replace(b"?" * len(wrong), wrong).replace(b"!", neighbour)
    payloads: list[bytes | None] = [good, docid, good, good, text, text, good]
    assert [place for place, _ in told(payloads)] == [0, 2, 3, 6]


def test_a_record_that_is_too_large_is_passed_over() -> None:
    large = msgpack.packb([1, "books", "d", True, 5, {"n": "x" * (1 << 20)}, {}, {}])
    small = encode_record(LogRecord("books", "d", Modification(True, timestamp=7)))
    assert told([large, small]) == [(1, ("books", "d", True, 7, None))]
