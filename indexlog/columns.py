"""Modifications as columns: tables that are sorted by document id and hold each document once, and how neighbours merge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexlog.records import Modification, merge, pack_contents, unpack_contents

SCHEMA: Final = pa.schema(
    [
        pa.field("docid", pa.string(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("contents", pa.binary()),
    ]
)
"""Of slices and files."""
_ROW_BYTES: Final = 24
"""What a row takes besides id and contents, about."""


class RowBuffer:
    """Collects modifications of any indexes, oldest first, and sorts and merges them all at once: many small indexes as fast as a large one."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._columns: tuple[list[int], list[str], list[bool], list[int], list[bytes | None]] = ([], [], [], [], [])

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, index: str, docid: str, deleted: bool, timestamp: int, contents: bytes | None) -> None:
        """The next modification, with its contents as `pack_contents` gives them."""
        codes, docids, are_deleted, timestamps, all_contents = self._columns
        code = self._codes.get(index)
        if code is None:
            code = self._codes[index] = len(self._codes)
        codes.append(code)
        docids.append(docid)
        are_deleted.append(deleted)
        timestamps.append(timestamp)
        all_contents.append(contents)

    def rows(self) -> IndexRows:
        """What they come to."""
        codes, *columns = self._columns
        return rows_in_order(list(self._codes), pa.table(columns, schema=SCHEMA), pa.array(codes, pa.int32()))


@dataclass(frozen=True, slots=True)
class IndexRows:
    """Modifications of several indexes side by side: in the order of indexes, then of document ids, each document once."""

    table: pa.Table
    """In one piece; contents may be in place."""
    indexes: list[str]
    """Those that have rows, in their order."""
    records: list[int]
    """How many rows each has."""

    def totals(self) -> Iterator[tuple[str, int, int, int]]:
        """Of each index: its rows, the bytes that they take, about, and the least timestamp."""
        if not self.indexes:
            return
        codes = pa.RunEndEncodedArray.from_arrays(
            pc.cumulative_sum(pa.array(self.records, pa.int32())), pa.array(range(len(self.records)), pa.int32())
        )
        flat = pa.table(
            [pc.run_end_decode(codes), _row_sizes(self.table), self.table.column("timestamp").combine_chunks()],
            names=["code", "size", "timestamp"],
        )
        found = flat.group_by("code", use_threads=False).aggregate([("size", "sum"), ("timestamp", "min")])
        sizes, timestamps = found.column("size_sum").to_pylist(), found.column("timestamp_min").to_pylist()
        yield from zip(self.indexes, self.records, sizes, timestamps, strict=True)


def table_of(rows: Iterable[tuple[str, Modification]]) -> pa.Table:
    """Modifications of one index, neighbours in the order, oldest first."""
    buffer = RowBuffer()
    for docid, change in rows:
        buffer.add("", docid, change.deleted, change.timestamp, pack_contents(change))
    return buffer.rows().table


def rows_of(table: pa.Table) -> Iterator[tuple[str, Modification]]:
    """The modifications in a table."""
    columns = [table.column(name).to_pylist() for name in SCHEMA.names]
    for docid, deleted, timestamp, contents in zip(*columns, strict=True):
        yield docid, unpack_contents(deleted, contents, timestamp)


def merged(tables: Sequence[pa.Table], *, oldest: bool) -> pa.Table:
    """Neighbours, oldest first, as one table; its contents may be in place.

    Args:
        tables: of one index, each sorted by document id and with each document once.
        oldest: nothing older is left of these documents: deletes have done their work.
    """
    table = tables[0]
    if len(tables) > 1:
        table = in_place(tables)
        table, _ = _merged(table, [("docid", _plain(table.column("docid")))], None)
    return _without_deletes(table, None) if oldest else table


def rows_in_order(indexes: Sequence[str], table: pa.Table, codes: pa.Array) -> IndexRows:
    """Modifications of several indexes, sorted and merged.

    Args:
        indexes: in any order.
        table: rows, of each document the older ones first; contents may be in place.
        codes: of each row, the place of its index in `indexes`.
    """
    names = sorted(indexes)
    ranks = {name: rank for rank, name in enumerate(names)}
    by_name = pa.array([ranks[name] for name in indexes], pa.int32())
    return merged_rows(names, table, by_name.take(codes))


def merged_rows(
    indexes: Sequence[str],
    table: pa.Table,
    codes: pa.Array,
    ranks: pa.Array | None = None,
    oldest: Sequence[bool] | None = None,
) -> IndexRows:
    """Modifications of several indexes, sorted and merged.

    Args:
        indexes: in their order.
        table: rows in any order of indexes and documents; contents may be in place.
        codes: of each row, the place of its index in `indexes`.
        ranks: of each row, how new it is among those of its document; None: older ones come first.
        oldest: of which indexes nothing older is left, so that deletes have done their work; None: of none.
    """
    keys = [("code", codes), ("docid", _plain(table.column("docid")))]
    table, codes = _merged(table.combine_chunks(), keys, ranks)
    if oldest is not None:
        flags = pa.array(oldest, pa.bool_()).take(codes)
        codes = codes.filter(_stays(table, flags))
        table = _without_deletes(table, flags)
    counts = pc.value_counts(codes)
    found = [indexes[code] for code in counts.field("values").to_pylist()]
    return IndexRows(table.combine_chunks(), found, counts.field("counts").to_pylist())


def _merged(table: pa.Table, keys: list[tuple[str, pa.Array]], ranks: pa.Array | None) -> tuple[pa.Table, pa.Array]:
    """The rows of a table in one piece in the order of keys, those of equal keys merged; and the first key of what is left."""
    chosen = keys if ranks is None else [*keys, ("rank", ranks)]
    batch = pa.RecordBatch.from_arrays([column for _, column in chosen], names=[name for name, _ in chosen])
    order = pc.sort_indices(batch, sort_keys=[(name, "ascending") for name, _ in chosen])  # a stable sort
    count = len(order)
    if count < 2:
        return table, keys[0][1]
    differs = None
    for _, column in reversed(keys):
        ordered = column.take(order)
        own = pc.not_equal(ordered.slice(1), ordered.slice(0, count - 1))
        differs = own if differs is None else pc.or_(differs, own)
    is_last = pa.concat_arrays([differs, pa.array([True])])
    newest = order.filter(is_last)
    found = table.take(newest)
    if len(newest) < count:
        found = _with_changes(found, _folded(table, order, is_last))
    return found, ordered.filter(is_last)


def _folded(table: pa.Table, order: pa.Array, is_last: pa.Array) -> dict[int, Modification]:
    """What documents come to whose newest modification does not replace the ones before: by their places among the last rows of documents."""
    count = len(order)
    is_first = pa.concat_arrays([pa.array([True]), is_last.slice(0, count - 1)])
    ends_run = pc.or_(is_first, _plain(table.column("deleted")).take(order))  # nothing before it counts
    lasts = pc.indices_nonzero(pc.and_(is_last, pc.invert(ends_run)))
    if not len(lasts):
        return {}
    counted = ends_run.to_pylist()
    places: list[int] = []
    ends: list[int] = []
    for last in lasts.to_pylist():
        begin = last
        while not counted[begin]:
            begin -= 1
        places += range(begin, last + 1)
        ends.append(len(places))
    steps = [change for _, change in rows_of(table.take(order.take(pa.array(places))))]
    kept = pc.subtract(pc.cumulative_sum(pc.cast(is_last, pa.int64())).take(lasts), 1).to_pylist()
    found: dict[int, Modification] = {}
    begin = 0
    for place, end in zip(kept, ends, strict=True):
        change = steps[begin]
        for newer in steps[begin + 1 : end]:
            change = merge(change, newer)
        found[place] = change
        begin = end
    return found


def _with_changes(table: pa.Table, changed: dict[int, Modification]) -> pa.Table:
    """A table in which other modifications are at some places, in ascending order."""
    if not changed:
        return table
    flags = [False] * len(table)
    for place in changed:
        flags[place] = True
    table = with_contents(table)
    mask, changes = pa.array(flags), changed.values()
    columns: dict[str, Any] = {name: _plain(table.column(name)) for name in SCHEMA.names}
    for name, values in (
        ("deleted", pa.array([change.deleted for change in changes], pa.bool_())),
        ("contents", pa.array(list(map(pack_contents, changes)), pa.binary())),
    ):
        columns[name] = pc.replace_with_mask(columns[name], mask, values)
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


# Contents in place: a table may have a dictionary of contents, which are where they were read. Its rows are sorted, and chosen, without a byte of them being copied.


def in_place(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables in one piece, with their contents in place."""
    views, numbers, count = [pa.array([], pa.binary_view())], [np.zeros(0, np.int32)], 0
    for chunk in (chunk for table in tables for chunk in table.column("contents").chunks):
        if pa.types.is_dictionary(chunk.type):
            views.append(chunk.dictionary)
            numbers.append(chunk.indices.to_numpy() + np.int32(count))
        else:
            views.append(chunk.cast(pa.binary_view()))
            numbers.append(np.arange(count, count + len(chunk), dtype=np.int32))
        count += len(views[-1])
    contents = pa.DictionaryArray.from_arrays(pa.array(np.concatenate(numbers)), pa.concat_arrays(views))
    table = pa.concat_tables([table.drop_columns("contents") for table in tables]).combine_chunks()
    return table.append_column("contents", contents)


def with_contents(table: pa.Table) -> pa.Table:
    """A table with the schema of files: contents that are in place are copied."""
    if table.schema.field("contents").type == pa.binary():
        return table
    contents = _plain(table.column("contents"))
    if pa.types.is_dictionary(contents.type) and pa.types.is_binary_view(contents.type.value_type):
        contents = _of_views(contents.dictionary, contents.indices)
    copied = contents.cast(pa.binary())
    return table.set_column(3, SCHEMA.field("contents"), copied)


_VIEW: Final = np.dtype([("length", np.int32), ("rest", "V12")])
"""Of a value in a column of views, as Arrow declares it."""


def _views(contents: pa.Array) -> NDArray[Any]:
    return np.frombuffer(contents.buffers()[1], _VIEW)[contents.offset :][: len(contents)]


def _of_views(contents: pa.Array, places: pa.Array) -> pa.Array:
    """As `take`, which Arrow has not for views."""
    valid = contents.is_valid().take(places).cast(pa.uint8())
    bits = np.packbits(valid.to_numpy(), bitorder="little")
    chosen = pa.py_buffer(_views(contents)[places.to_numpy()])
    return pa.Array.from_buffers(contents.type, len(places), [pa.py_buffer(bits), chosen, *contents.buffers()[2:]])


def _lengths(column: pa.Array) -> pa.Array:
    """Bytes of each value; null for none."""
    if not pa.types.is_dictionary(column.type):
        return pc.binary_length(column)
    values = column.dictionary
    if not pa.types.is_binary_view(values.type):
        return pc.binary_length(values).take(column.indices)
    return pc.if_else(values.is_valid(), pa.array(_views(values)["length"]), None).take(column.indices)


def _plain(column: Any) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)  # combining copies
    # Arrow makes no empty dictionary of views
    return column.combine_chunks() if not pa.types.is_dictionary(column.type) else pa.array([], pa.binary())


def _stays(table: pa.Table, flags: pa.Array | None) -> pa.Array:
    """Which rows are more than a delete that has done its work."""
    goes = pc.and_(_plain(table.column("deleted")), pc.is_null(_plain(table.column("contents"))))
    return pc.invert(goes if flags is None else pc.and_(goes, flags))


def _without_deletes(table: pa.Table, flags: pa.Array | None) -> pa.Table:
    """Rows without deletes: all of them, or those that have a flag."""
    stays = _stays(table, flags)
    kept = table.filter(stays)
    if flags is None:
        deleted = pa.array([False] * len(kept), pa.bool_())
    else:
        deleted = pc.and_not(_plain(kept.column("deleted")), flags.filter(stays))
    return kept.set_column(1, SCHEMA.field("deleted"), deleted)


def behind(table: pa.Table, docid: str | None) -> pa.Table:
    """The rows behind a document id."""
    if docid is None or not len(table):
        return table
    return table.slice(_count_up_to(table, docid))


def between(table: pa.Table, after: str | None, until: str | None) -> pa.Table:
    """The rows behind a document id, up to another one; None: without that bound."""
    if until is not None and len(table):
        table = table.slice(0, _count_up_to(table, until))
    return behind(table, after)


def _count_up_to(table: pa.Table, docid: str) -> int:
    return int(pc.sum(pc.cast(pc.less_equal(table.column("docid"), docid), pa.int64())).as_py() or 0)


def merged_runs(runs: Sequence[Iterator[pa.Table]], *, oldest: bool) -> Iterator[pa.Table]:
    """Runs that are sorted by document id, oldest first, as one that is. It holds one table of each run at a time."""
    heads = [_next(run) for run in runs]
    while any(head is not None for head in heads):
        cut = min(head.column("docid")[-1].as_py() for head in heads if head is not None)
        pieces = []
        for number, head in enumerate(heads):
            if head is None:
                continue
            count = _count_up_to(head, cut)
            if count:
                pieces.append(head.slice(0, count))
            heads[number] = head.slice(count) if count < len(head) else _next(runs[number])
        found = with_contents(merged(pieces, oldest=oldest))
        if len(found):
            yield found


def _next(run: Iterator[pa.Table]) -> pa.Table | None:
    return next((table for table in run if len(table)), None)


def pieces_of(tables: Iterable[pa.Table], bytes_max: int) -> Iterator[pa.Table]:
    """The rows of tables, whose contents may be in place, in pieces of at most `bytes_max`, as large as that allows; a row that is larger is one alone."""
    waiting: list[pa.Table] = []
    room = bytes_max
    for table in tables:
        begin = 0
        whole = size_of(table)
        if whole <= room:
            room -= whole
        else:
            for at, size in enumerate(_row_sizes(table).to_pylist()):
                if size > room and (waiting or at > begin):
                    waiting.append(with_contents(table.slice(begin, at - begin)))
                    yield pa.concat_tables(waiting).combine_chunks()
                    waiting, begin, room = [], at, bytes_max
                room -= size
        if begin < len(table):
            waiting.append(with_contents(table.slice(begin)))
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _row_sizes(table: pa.Table) -> pa.Array:
    """Bytes that each row takes, about."""
    lengths = pc.add(
        pc.binary_length(_plain(table.column("docid"))),
        pc.coalesce(_lengths(_plain(table.column("contents"))), 0),
    )
    return pc.add(lengths, _ROW_BYTES)


def size_of(table: pa.Table) -> int:
    """Bytes that its rows take, about."""
    return int(pc.sum(_row_sizes(table)).as_py() or 0)
