"""Merging of modifications, and their bytes."""

from __future__ import annotations

import math
from functools import reduce

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexlog.records import (
    LogRecord,
    Modification,
    check_record,
    decode_record,
    document,
    encode_record,
    fold,
    merge,
    pack_contents,
    unpack_contents,
)
from logdevice_py.core.status import CorruptEntryError, LogDeviceError
from tests.property.indexlog.changes import modifications, records


def _applied(history: list[Modification]) -> Modification | None:
    """What the rules of merging come to, told in another way: a document that is changed step by step."""
    there: dict[str, object] | None = None
    for step in history:
        if step.deleted:
            there = None
        if step.deleted and step.is_empty:
            continue
        there = there or {"fields": None, "variables": {}, "categories": {}}
        if step.fields is not None:
            there["fields"] = step.fields
        there["variables"] = {**there["variables"], **step.variables}  # type: ignore[dict-item]
        there["categories"] = {**there["categories"], **step.categories}  # type: ignore[dict-item]
        there["timestamp"] = step.timestamp
    return None if there is None else Modification(False, **there)  # type: ignore[arg-type]


@given(modifications(), modifications(), modifications())
def test_merging_is_associative(a: Modification, b: Modification, c: Modification) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(st.lists(modifications(), min_size=1, max_size=12), st.data())
def test_any_grouping_of_neighbours_folds_to_the_fold_of_the_whole(
    history: list[Modification], data: st.DataObject
) -> None:
    groups = list(history)
    while len(groups) > 1 and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(groups) - 2))
        groups[at : at + 2] = [merge(groups[at], groups[at + 1])]
    assert fold(groups) == fold(history) == document(merge(Modification(True), reduce(merge, groups)))
    assert fold(history) == _applied(history)


@given(st.lists(modifications(), min_size=3, max_size=3))
def test_a_step_that_comes_twice_in_a_row_counts_once(history: list[Modification]) -> None:
    a, b, c = history
    assert fold([a, b, b, c]) == fold(history)


@given(records())
def test_a_record_is_read_as_it_was_written(record: LogRecord) -> None:
    assert decode_record(encode_record(check_record(record))) == record
    change = record.change
    assert unpack_contents(change.deleted, pack_contents(change), change.timestamp) == change


@given(st.binary(max_size=40))
def test_other_bytes_are_no_record(data: bytes) -> None:
    with pytest.raises(CorruptEntryError):
        decode_record(data)


WRONG = [
    (LogRecord("a", "d", Modification()), "neither deletes nor sets"),
    (LogRecord("", "d", Modification(True)), "index code"),
    (LogRecord("a/b", "d", Modification(True)), "index code"),
    (LogRecord("a" * 65, "d", Modification(True)), "index code"),
    (LogRecord("a", "", Modification(True)), "document id"),
    (LogRecord("a", "é" * 513, Modification(True)), "document id"),
    (LogRecord("a", "\ud800", Modification(True)), "surrogate"),
    (LogRecord("a", 5, Modification(True)), "document id is a text"),
    (LogRecord("a", "d", Modification(deleted=1)), "deleted"),
    (LogRecord("a", "d", Modification(fields={"x": 1})), "x in fields"),
    (LogRecord("a", "d", Modification(fields=["x"])), "fields are texts"),
    (LogRecord("a", "d", Modification(variables={"x": 1.0})), "number of a variable"),
    (LogRecord("a", "d", Modification(variables={-1: 1.0})), "number of a variable"),
    (LogRecord("a", "d", Modification(variables={1: math.nan})), "finite"),
    (LogRecord("a", "d", Modification(variables={1: 10**400})), "finite"),
    (LogRecord("a", "d", Modification(True, categories=None)), "categories"),
    (LogRecord("a", "d", Modification(True, timestamp=-1)), "timestamp"),
]


@pytest.mark.parametrize(("record", "text"), WRONG)
def test_what_is_wrong_with_a_record_is_said(record: LogRecord, text: str) -> None:
    with pytest.raises(LogDeviceError, match=text):
        check_record(record)


_VALUES = st.one_of(
    *(st.none(), st.booleans(), st.integers(-2, 2), st.floats(), st.text(max_size=3), st.binary(max_size=3)),
    st.dictionaries(st.one_of(st.text(max_size=2), st.integers(-1, 9)), st.one_of(st.text(max_size=2), st.floats())),
)


def _unpacked_as_checked(record: LogRecord) -> bool:
    """Bytes that hold any values are a record if, and only if, these pass the check; whether they do."""
    change = record.change
    values = [record.index, record.docid, change.deleted, change.timestamp, change.fields, change.variables]
    try:
        packed = msgpack.packb([1, *values, change.categories])
    except (UnicodeEncodeError, OverflowError):
        return False
    try:
        expected = check_record(record)
    except LogDeviceError:
        with pytest.raises(CorruptEntryError):
            decode_record(packed)
        return False
    assert decode_record(packed) == expected
    return True


@given(records(), st.lists(st.tuples(st.integers(0, 6), _VALUES), max_size=2))
def test_a_record_is_checked_whoever_wrote_it(record: LogRecord, odd: list[tuple[int, object]]) -> None:
    change = record.change
    values: list[object] = [record.index, record.docid, change.deleted, change.fields, change.variables]
    values += [change.categories, change.timestamp]
    for place, value in odd:
        values[place] = value
    index, docid, *rest = values
    assert _unpacked_as_checked(LogRecord(index, docid, Modification(*rest))) or odd


@pytest.mark.parametrize("record", [record for record, _ in WRONG])
def test_a_wrong_record_is_wrong_as_bytes_too(record: LogRecord) -> None:
    assert not _unpacked_as_checked(record)


def test_a_record_that_is_too_large_is_refused() -> None:
    with pytest.raises(LogDeviceError, match="1048576 are allowed"):
        encode_record(LogRecord("a", "d", Modification(fields={"body": "x" * (1 << 20)})))
