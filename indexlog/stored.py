"""Containers and files of one index: how they are written, and read from any document on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from indexlog.columns import SCHEMA, between, pieces_of, row_sizes
from indexlog.manifest.commands import OutputFile, SliceEntry
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.stores import FileStore

PAGE_BYTES_MAX: Final = 5_000_000
"""Of a row group, and of a page."""
_WRITE_OPTIONS: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "write_statistics": ["docid"],
    "use_dictionary": False,
    "column_encoding": {"docid": "DELTA_BYTE_ARRAY"},
}


def write_container(store: FileStore, path: str, tables: Mapping[str, pa.Table]) -> list[SliceEntry]:
    """Write what was dealt, a batch for each index; all tables have rows."""
    indexes = sorted(tables)
    # once for all of them: there may be thousands with a few rows each
    whole = pa.concat_tables([tables[index] for index in indexes])
    sizes, timestamps = row_sizes(whole), whole.column("timestamp").to_pylist()
    slices, begin = [], 0
    with (
        store.create(path) as file,
        pa.ipc.new_file(file, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)) as writer,
    ):
        for index in indexes:
            table = tables[index]
            batches = table.to_batches()
            (batch,) = batches if len(batches) == 1 else table.combine_chunks().to_batches()
            writer.write_batch(batch)
            end = begin + len(table)
            slices.append(SliceEntry(index, len(table), sum(sizes[begin:end]), min(timestamps[begin:end])))
            begin = end
    return slices


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
    """The rows of a part behind a document id and up to another one, in tables of a page at most for files, in one table for a slice.

    Raises:
        FileNotFoundError: it was collected.
    """
    with store.open(part.path) as file:
        if part.place != WHOLE_FILE:
            batch = pa.ipc.open_file(file).get_batch(part.place)
            yield between(pa.Table.from_batches([batch], SCHEMA), after, until)
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
        batch = pa.ipc.open_file(file).get_batch(part.place)
        pieces = pieces_of([pa.Table.from_batches([batch], SCHEMA)], PAGE_BYTES_MAX)
        return [piece.column("docid")[-1].as_py() for piece in pieces]


def _last_docid(file: pq.ParquetFile, number: int) -> str:
    greatest: str = file.metadata.row_group(number).column(0).statistics.max
    return greatest
