"""Containers, which hold rows of many indexes, and files of one index: how they are written, and read from any document on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from indexlog.columns import SCHEMA, IndexRows, between, pieces_of, size_of
from indexlog.manifest.commands import OutputFile, SliceEntry
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.stores import FileStore

PAGE_BYTES_MAX: Final = 5_000_000
"""Of a row group, and of a page."""
BATCH_BYTES: Final = 256_000
"""Of a batch of a container, about: what is unpacked for one row."""
_WRITE_OPTIONS: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "write_statistics": ["docid"],
    "use_dictionary": False,
    "column_encoding": {"docid": "DELTA_BYTE_ARRAY"},
}
_ROWS: Final = "rows"
"""In the metadata of a container: how many rows each of its batches has, besides the last one."""


def write_container(store: FileStore, path: str, rows: IndexRows) -> list[SliceEntry]:
    """Write what was dealt; there are rows."""
    _write_rows(store, path, rows.table, "lz4")
    return [SliceEntry(*totals) for totals in rows.totals()]


def write_pack(
    store: FileStore, path: str, rows: IndexRows, kinds: Mapping[str, tuple[PartKind, int]]
) -> dict[str, OutputFile]:
    """Write runs of several indexes into one file. What became of each that has rows.

    Args:
        store: for the file.
        path: of the file.
        rows: of all runs; there are some.
        kinds: of the part of each index, with its timestamp.
    """
    size = _write_rows(store, path, rows.table, "zstd")
    totals = list(rows.totals())
    whole = sum(raw for _, _, raw, _ in totals)
    found: dict[str, OutputFile] = {}
    place = 0
    for index, records, raw, _ in totals:
        kind, timestamp = kinds[index]
        found[index] = OutputFile(path, kind, records, max(1, raw * size // whole), timestamp, place)
        place += records
    return found


def _write_rows(store: FileStore, path: str, table: pa.Table, compression: str) -> int:
    """A container; its size."""
    step = max(1, len(table) * BATCH_BYTES // max(BATCH_BYTES, size_of(table)))
    table = table.replace_schema_metadata({_ROWS: str(step)})
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with store.create(path) as file:
        with pa.ipc.new_file(file, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=step)
        return file.tell()


class Container:
    """Reads rows of a container by their places."""

    def __init__(self, file: Any) -> None:
        self._reader = pa.ipc.open_file(file)
        self._step = int(self._reader.schema.metadata[_ROWS.encode()])
        self._last: tuple[int, pa.RecordBatch | None] = (-1, None)

    def _batch(self, number: int) -> pa.RecordBatch:
        if self._last[0] != number:
            self._last = number, self._reader.get_batch(number)
        return self._last[1]

    def rows(self, first: int, count: int) -> pa.Table:
        """`count` rows from the place `first` on."""
        begin, end = first // self._step, (first + count - 1) // self._step
        table = pa.Table.from_batches([self._batch(number) for number in range(begin, end + 1)])
        return table.replace_schema_metadata(None).slice(first - begin * self._step, count)

    def docid(self, place: int) -> str:
        """Of the row at a place."""
        number, row = divmod(place, self._step)
        docid: str = self._batch(number).column(0)[row].as_py()
        return docid

    def within(self, first: int, count: int, after: str | None, until: str | None) -> pa.Table:
        """Those of rows that are sorted by document id which are behind one id, up to another one. It unpacks batches that have some, and few others."""
        places = range(first, first + count)
        begin = 0 if after is None else bisect_right(places, after, key=self.docid)
        end = count if until is None else bisect_right(places, until, begin, key=self.docid)
        return self.rows(first + begin, end - begin) if begin < end else SCHEMA.empty_table()


def read_rows(store: FileStore, path: str, places: Sequence[tuple[int, int]]) -> list[pa.Table]:
    """Ranges of rows of a file, each with its first row (or `WHOLE_FILE`) and its length, in ascending order.

    Raises:
        FileNotFoundError: it was collected.
    """
    with store.open(path) as file:
        if places[0][0] == WHOLE_FILE:
            return [pq.read_table(file, use_threads=False).cast(SCHEMA)]
        container = Container(file)
        return [container.rows(first, count) for first, count in _joined(places)]


def _joined(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Neighbours as one range."""
    begin, end = places[0][0], places[0][0]
    for first, count in places:
        if first != end:
            yield begin, end - begin
            begin = first
        end = first + count
    yield begin, end - begin


def write_run(
    store: FileStore, path: str, kind: PartKind, timestamp: int, tables: Iterable[pa.Table]
) -> OutputFile | None:
    """Write a file of one index, from tables that are sorted and hold each document once. None: they are empty, and nothing was written."""
    pieces = pieces_of(tables, PAGE_BYTES_MAX)
    first = next(pieces, None)
    if first is None:
        return None
    records = len(first)
    with store.create(path) as file:
        with pq.ParquetWriter(file, SCHEMA, **_WRITE_OPTIONS) as writer:
            writer.write_table(first, row_group_size=len(first))
            for piece in pieces:
                writer.write_table(piece, row_group_size=len(piece))
                records += len(piece)
        size = file.tell()
    return OutputFile(path, kind, records, size, timestamp)


def read_run(store: FileStore, part: Part, after: str | None = None, until: str | None = None) -> Iterator[pa.Table]:
    """The rows of a part behind a document id and up to another one, in tables of a page at most for files, in one table for rows of a container.

    Raises:
        FileNotFoundError: it was collected.
    """
    with store.open(part.path) as file:
        if part.place != WHOLE_FILE:
            yield Container(file).within(part.place, part.records, after, until)
            return
        found = pq.ParquetFile(file)
        last = None
        for number in range(found.num_row_groups):
            if until is not None and last is not None and last >= until:
                return
            last = _last_docid(found, number)
            if after is not None and last <= after:
                continue
            yield between(found.read_row_group(number).cast(SCHEMA), after, until)


def last_docids(store: FileStore, part: Part) -> list[str]:
    """Document ids that cut a part into pieces of a page at most: the last one of each, in order.

    Raises:
        FileNotFoundError: it was collected.
    """
    with store.open(part.path) as file:
        if part.place == WHOLE_FILE:
            found = pq.ParquetFile(file)
            return [_last_docid(found, number) for number in range(found.num_row_groups)]
        pieces = pieces_of([Container(file).rows(part.place, part.records)], PAGE_BYTES_MAX)
        return [piece.column("docid")[-1].as_py() for piece in pieces]


def document_cuts(store: FileStore, parts: Sequence[Part], count: int) -> list[str]:
    """Document ids that cut an index into `count` ranges of about the same size, or into fewer: where row groups of its largest run of files end, or at rows of its
    largest slice.

    Raises:
        FileNotFoundError: a part was collected.
    """
    runs: dict[tuple[int, int], list[Part]] = {}
    for part in parts:
        runs.setdefault(part.run, []).append(part)
    largest = max(runs.values(), key=lambda run: sum(part.bytes for part in run))
    ends = sorted(docid for part in largest for docid in _sampled_docids(store, part, count))[:-1]
    step = max(1, (len(ends) + 1) / count)
    chosen = [ends[min(len(ends) - 1, round(step * number) - 1)] for number in range(1, count)] if ends else []
    return sorted(set(chosen))


def _sampled_docids(store: FileStore, part: Part, count: int) -> list[str]:
    """Document ids of a part at about the same distances, the last one among them: of each row group, or of a few rows for each of `count` ranges."""
    if part.place == WHOLE_FILE:
        return last_docids(store, part)
    with store.open(part.path) as file:
        container = Container(file)
        samples = min(part.records, 4 * count)
        return [container.docid(part.place + part.records * number // samples - 1) for number in range(1, samples + 1)]


def _last_docid(file: pq.ParquetFile, number: int) -> str:
    greatest: str = file.metadata.row_group(number).column(0).statistics.max
    return greatest
