"""What is sorted and merged as columns is what `merge` makes of modifications one by one."""

from __future__ import annotations

from random import Random

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from indexlog import stored
from indexlog.columns import (
    SCHEMA,
    IndexRows,
    RowBuffer,
    between,
    in_place,
    merged_rows,
    rows_of,
    size_of,
    table_of,
    with_contents,
)
from indexlog.records import LogRecord, Modification, decode_row, document, encode_record, merge, readable_row
from indexlog.stored import Container, write_container
from indexlog.stores import MemoryStore
from tests.property.indexlog.changes import modifications, records

HISTORIES = st.lists(records(documents=3), max_size=12)


def folded(history: list[LogRecord]) -> dict[tuple[str, str], Modification]:
    found: dict[tuple[str, str], Modification] = {}
    for record in history:
        key = record.index, record.docid
        found[key] = record.change if key not in found else merge(found[key], record.change)
    return found


def told(rows: IndexRows) -> dict[tuple[str, str], Modification]:
    """Checked for their order."""
    keys = [index for index, count in zip(rows.indexes, rows.records, strict=True) for _ in range(count)]
    found = {(index, docid): change for index, (docid, change) in zip(keys, rows_of(rows.table), strict=True)}
    assert list(found) == sorted(found)
    assert len(found) == len(keys)
    return found


def buffered(history: list[LogRecord]) -> RowBuffer:
    buffer = RowBuffer()
    for record in history:
        buffer.add(*decode_row(encode_record(record)))
    return buffer


@given(HISTORIES)
def test_what_is_buffered_comes_to_the_fold(history: list[LogRecord]) -> None:
    rows = buffered(history).rows()
    assert told(rows) == folded(history)
    at = 0
    for index, count, size, timestamp in rows.totals():
        own = rows.table.slice(at, count)
        assert (size, timestamp) == (size_of(own), min(own.column("timestamp").to_pylist())), index
        at += count
    assert at == len(rows.table)


@given(st.lists(HISTORIES, max_size=3), st.tuples(st.booleans(), st.booleans()), st.randoms(use_true_random=False))
def test_runs_of_several_indexes_come_to_the_fold_of_all(
    runs: list[list[LogRecord]], oldest: tuple[bool, bool], rng: Random
) -> None:
    """Whatever the order of the rows, ranks tell which is newer."""
    rows = [
        (code, rank, *columns)
        for rank, run in enumerate(runs)
        for code, index in enumerate(("index-0", "index-1"))
        for columns in table_of((record.docid, record.change) for record in run if record.index == index).to_pylist()
        for columns in [tuple(columns.values())]
    ]
    rng.shuffle(rows)
    codes, ranks, *columns = zip(*rows, strict=True) if rows else ((), (), (), (), (), ())
    found = merged_rows(
        ["index-0", "index-1"],
        pa.table(list(map(list, columns)), schema=SCHEMA),
        pa.array(codes, pa.int32()),
        pa.array(ranks, pa.int32()),
        oldest,
    )
    expected = {}
    for (index, docid), change in folded([record for run in runs for record in run]).items():
        left = document(change) if oldest[index == "index-1"] else change
        if left is not None:
            expected[index, docid] = left
    assert told(found) == expected


@given(modifications())
def test_a_row_that_cannot_be_read_is_none(change: Modification) -> None:
    data = encode_record(LogRecord("books", "a", change))
    assert readable_row(data) == decode_row(data)
    assert readable_row(data[:-1]) is None
    assert readable_row(None) is None


CONTENTS = st.none() | st.sampled_from([b"", b"short", b"a value that is longer than twelve bytes"])


@given(st.lists(st.lists(CONTENTS, max_size=5), min_size=1, max_size=4), st.integers(0, 2), st.data())
def test_contents_in_place_are_what_was_read(pieces: list[list[bytes | None]], cut: int, data: st.DataObject) -> None:
    tables = [
        pa.table([["x"] * len(piece), [True] * len(piece), [1] * len(piece), piece], schema=SCHEMA).slice(cut)
        for piece in pieces
    ]
    whole = pa.concat_tables(tables)
    places = pa.array(data.draw(st.permutations(range(len(whole)))), pa.int64())
    found = in_place([in_place(tables[:1]), pa.concat_tables([tables[0].slice(0, 0), *tables[1:]])]).take(places)
    assert with_contents(found).equals(whole.take(places))
    assert with_contents(found.slice(1, 3)).equals(whole.take(places).slice(1, 3))
    assert size_of(found) == size_of(whole)
    nothing = found.filter(pa.array([False] * len(found), pa.bool_()))
    assert with_contents(nothing).schema == SCHEMA
    assert len(in_place([with_contents(nothing)])) == 0
    assert size_of(nothing) == 0


DOCIDS = st.none() | st.sampled_from(["", "doc-01", "doc-07", "doc-10", "doc-1x", "zzz"])


@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 100, 10_000]), DOCIDS, DOCIDS)
def test_ranges_of_documents_in_a_container(
    count: int, others: int, batch: int, after: str | None, until: str | None
) -> None:
    def table(number: int) -> pa.Table:
        return table_of((f"doc-{each:02}", Modification(True, {})) for each in range(number))

    both = pa.concat_tables([table(others), table(count)]).combine_chunks()
    store, kept = MemoryStore(), stored.BATCH_BYTES
    stored.BATCH_BYTES = batch
    try:
        write_container(store, "1/a", IndexRows(both, ["books", "songs"], [others, count]))
    finally:
        stored.BATCH_BYTES = kept
    container = Container(store.open("1/a"))
    assert container.rows(others, count).equals(table(count))
    some = container.chosen([(0, 1), (others, count)])
    assert with_contents(some).equals(pa.concat_tables([table(others).slice(0, 1), table(count)]))
    if after is None or until is None or after <= until:
        assert container.within(others, count, after, until).equals(between(table(count), after, until))
