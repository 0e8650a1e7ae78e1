"""The first release refuses rows with more places than it knows: a connection of an earlier version carries none."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.protocol.declare import CODECS, FieldKind, ListKind, TupleKind
from logdevice_py.protocol.first_rows import with_first_rows
from logdevice_py.protocol.framing import decode_frame
from logdevice_py.protocol.versions import later_messages
from logdevice_py.shell.introduction import spoken
from tests.golden.frames import RECORDED, fields_of

GROWN = {"SEALED": "epochs", "CLEAN": "logs"}


def longest_rows(kind: FieldKind, value: Any) -> list[tuple[TupleKind, int]]:
    """Each row in a value, with how many places it has."""
    if isinstance(kind, ListKind):
        return [found for each in value for found in longest_rows(kind.element, each)]
    if isinstance(kind, TupleKind):
        inner = [
            found for element, each in zip(kind.elements, value, strict=False) for found in longest_rows(element, each)
        ]
        return [(kind, len(value)), *inner]
    return []


def first_places(kind: TupleKind) -> int:
    return len(kind.places) - len(getattr(kind.row, "_field_defaults", ()))


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_rows_of_every_message_have_the_places_of_the_first_release(name: str) -> None:
    whole = RECORDED[name]
    cut = b"".join(with_first_rows([whole]))
    codec = CODECS[whole[6]]
    rows = [
        found
        for (_, kind), value in zip(codec.fields, fields_of(cut), strict=False)
        for found in longest_rows(kind, value)
    ]
    assert [(kind.name, count) for kind, count in rows if count != first_places(kind)] == []
    assert type(decode_frame(cut)) is codec.cls, "what is left out takes its default"
    assert cut == whole or any(first_places(kind) < len(kind.places) for kind, _ in rows)


@pytest.mark.parametrize("name", ["SEALED", "CLEAN", "CLEANED"])
def test_rows_that_grew_are_cut_and_others_are_not(name: str) -> None:
    assert (b"".join(with_first_rows([RECORDED[name]])) != RECORDED[name]) == (name in GROWN)


def test_a_payload_stays_behind_the_fields_as_it_is() -> None:
    frames = {name: frame for name, frame in RECORDED.items() if CODECS[frame[6]].payload is not None}
    assert frames
    for name, frame in frames.items():
        size = 12 + int.from_bytes(frame[4:6], "big")
        pieces = with_first_rows([frame[:size], frame[size:]])
        assert getattr(decode_frame(b"".join(pieces)), CODECS[frame[6]].payload or "") == frame[size:], name


def test_only_a_connection_of_an_earlier_version_carries_them_so() -> None:
    whole = [RECORDED["SEALED"]]
    assert spoken([whole], frozenset()) == [whole]
    assert spoken([whole], later_messages(1)) == [with_first_rows(whole)]
