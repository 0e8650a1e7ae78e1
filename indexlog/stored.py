"""Containers, which hold rows of many indexes, and files of one index: how they are written, and read from any document on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from google_crc32c import extend
from google_crc32c import value as crc32c

from indexlog.columns import SCHEMA, IndexRows, between, in_place, pieces_of, size_of, with_contents
from indexlog.manifest.commands import OutputFile, SliceEntry
from indexlog.manifest.parts import WHOLE_FILE, Part, PartKind
from indexlog.stores import FileStore, StoreUnavailable
from logdevice_py.core.status import LogDeviceError, Status

PAGE_BYTES_MAX: Final = 5_000_000
"""Of a row group, and of a page."""
BATCH_BYTES: Final = 256_000
"""Of a batch of a container, about: what is unpacked for one row."""
_WRITE_OPTIONS: Final[Mapping[str, Any]] = {
    "write_page_checksum": True,
    "write_statistics": ["docid"],
    "use_dictionary": False,
    "column_encoding": {"docid": "DELTA_BYTE_ARRAY"},
}
_COMPRESSION: Final = {PartKind.UNSORTED: None, PartKind.SORTED: "lz4", PartKind.OPTIMIZED: "zstd"}
"""What is soon written again is compressed less: that takes more of the time than all else."""
_ROWS: Final = "rows"
"""In the metadata of a container: how many rows each of its batches has, besides the last one."""
_CHECKSUM: Final = "crc32c"
"""In the metadata of a container: its batches have checksums. In that of each batch: its own. In that of a file of one index: those of its row groups, and that of
the document ids at which they end. Files of earlier versions have none."""


def write_container(store: FileStore, path: str, rows: IndexRows) -> list[SliceEntry]:
    """Write what was dealt; there are rows."""
    _write_rows(store, path, rows.table, PartKind.UNSORTED)
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
    _write_rows(store, path, rows.table, max(kind for kind, _ in kinds.values()))
    found: dict[str, OutputFile] = {}
    place = 0
    for index, records, size, _ in rows.totals():
        kind, timestamp = kinds[index]
        found[index] = OutputFile(path, kind, records, size, timestamp, place)
        place += records
    return found


def _write_rows(store: FileStore, path: str, table: pa.Table, kind: PartKind) -> None:
    """A container. Contents in place are copied batch by batch: each stays in the processor's cache until it is written."""
    step = max(1, len(table) * BATCH_BYTES // max(BATCH_BYTES, size_of(table)))
    schema = SCHEMA.with_metadata({_ROWS: str(step), _CHECKSUM: ""})
    options = pa.ipc.IpcWriteOptions(compression=_COMPRESSION[kind], use_threads=False)
    with store.create(path) as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for number, begin in enumerate(range(0, len(table), step)):
            batch = _in_one_piece(with_contents(table.slice(begin, step)).replace_schema_metadata(schema.metadata))
            writer.write_batch(batch, {_CHECKSUM: str(_checksum(batch, number, step))})


def _in_one_piece(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _checksum(rows: pa.RecordBatch, *place: int) -> int:
    """Of rows, and of their place in a file: of what they are, not of how they are stored, which is another thing for each version of pyarrow.

    Raises:
        ValueError: they lack something.
    """
    docids, deleted, timestamps, contents = rows.columns
    if docids.null_count or deleted.null_count or timestamps.null_count:
        raise ValueError("a row without document id, or without time")
    found = crc32c(repr(place).encode())
    for column in (docids, contents):
        found = extend(found, _plain_bytes(pc.fill_null(pc.binary_length(column), -1)))
        found = extend(found, _text_bytes(column))
    found = extend(found, _plain_bytes(deleted.cast(pa.int8())))
    return int(extend(found, _plain_bytes(timestamps)))


def _plain_bytes(column: pa.Array) -> pa.Buffer | bytes:
    """Of numbers."""
    width = column.type.bit_width // 8
    return _slice_bytes(column.buffers()[1], column.offset * width, (column.offset + len(column)) * width)


def _text_bytes(column: pa.Array) -> pa.Buffer | bytes:
    """Of texts, one behind the other."""
    _, offsets, values = column.buffers()
    places = memoryview(offsets).cast("i")
    return _slice_bytes(values, places[column.offset], places[column.offset + len(column)])


def _slice_bytes(buffer: pa.Buffer | None, begin: int, end: int) -> pa.Buffer | bytes:
    return b"" if buffer is None else buffer.slice(begin, end - begin)


@contextmanager
def _opened(store: FileStore, path: str) -> Iterator[Any]:
    """A file to be read. What its reader meets, besides a store that does not answer, is damage.

    Raises:
        FileNotFoundError: it was collected.
        OSError: the store does not answer, or it cannot be opened.
        LogDeviceError: DATALOSS: it is damaged.
    """
    try:
        with store.open(path) as file:
            yield file
    except (FileNotFoundError, StoreUnavailable):
        raise
    except Exception as error:  # damage may lead anywhere
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the operating system
        text = f"file {path} of the store is damaged: {str(error)[:200]}"
        raise LogDeviceError(Status.DATALOSS, text, retriable=False, maybe_applied=False) from None


class Container:
    """Reads rows of a container by their places. Errors of any kind: it is damaged."""

    def __init__(self, file: Any) -> None:
        self._reader = pa.ipc.open_file(file)
        schema = self._reader.schema
        if (schema.names, schema.types) != (SCHEMA.names, SCHEMA.types):
            raise ValueError("it has other columns")
        told = schema.metadata
        self._step = int(told[_ROWS.encode()])
        self._has_checksums = _CHECKSUM.encode() in told
        self._last: tuple[int, pa.RecordBatch | None] = (-1, None)

    def _batch(self, number: int) -> pa.RecordBatch:
        if self._last[0] != number:
            batch, told = self._reader.get_batch_with_custom_metadata(number)
            batch.validate(full=True)  # offsets that are damaged lead out of memory
            checksum = (told or {}).get(_CHECKSUM.encode())
            if checksum is None and self._has_checksums:
                raise ValueError(f"the checksum of batch {number} is missing")
            if checksum is not None and int(checksum) != _checksum(batch, number, self._step):
                raise ValueError(f"batch {number} has another checksum")
            self._last = number, batch
        return self._last[1]

    def rows(self, first: int, count: int) -> pa.Table:
        """`count` rows from the place `first` on."""
        begin, end = first // self._step, (first + count - 1) // self._step
        table = pa.Table.from_batches([self._batch(number) for number in range(begin, end + 1)])
        found = table.replace_schema_metadata(None).slice(first - begin * self._step, count)
        if len(found) != count:
            raise ValueError(f"rows {first} to {first + count - 1} are not all in it")
        return found

    def chosen(self, places: Sequence[tuple[int, int]]) -> pa.Table:
        """Rows of many ranges, each with its first row and its length, with their contents in place."""
        firsts, counts = np.array(places, np.int64).T
        rows = np.arange(counts.sum()) + np.repeat(firsts - np.cumsum(counts) + counts, counts)
        numbers, ranks = np.unique(rows // self._step, return_inverse=True)
        batches = [self._batch(number) for number in numbers.tolist()]
        if any(len(batch) != self._step for batch in batches[:-1]):
            raise ValueError("batches have other lengths")
        table = in_place([pa.Table.from_batches(batches).replace_schema_metadata(None)])
        return table.take(pa.array(ranks * self._step + rows % self._step))

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


class _RunFile:
    """Reads a file of one index by its row groups. Errors of any kind: it is damaged."""

    def __init__(self, file: Any) -> None:
        self._file = pq.ParquetFile(file, page_checksum_verification=True)
        about = self._file.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        self.lasts: list[str] = [group.column(0).statistics.max for group in groups]
        """The last document id of each row group."""
        told = (about.metadata or {}).get(_CHECKSUM.encode())
        self._checksums: list[int] | None = None
        if told is not None:
            *self._checksums, of_lasts = map(int, told.split())
            if len(self._checksums) != len(groups) or of_lasts != _checksum_of_lasts(self.lasts):
                raise ValueError("its row groups have another checksum")

    def rows(self, number: int) -> pa.Table:
        """Those of a row group."""
        table = self._file.read_row_group(number, use_threads=False).cast(SCHEMA).combine_chunks()
        table.validate(full=True)
        if self._checksums is not None and self._checksums[number] != _checksum(_in_one_piece(table), number):
            raise ValueError(f"row group {number} has another checksum")
        return table


def _checksum_of_lasts(docids: Sequence[str]) -> int:
    return int(crc32c(repr(docids).encode()))


def read_rows(store: FileStore, path: str, places: Sequence[tuple[int, int]]) -> list[pa.Table]:
    """Ranges of rows of a file, each with its first row (or `WHOLE_FILE`) and its length, in ascending order; contents may be in place.

    Raises:
        FileNotFoundError: it was collected.
        LogDeviceError: DATALOSS: it is damaged.
    """
    with _opened(store, path) as file:
        if places[0][0] == WHOLE_FILE:
            found = _RunFile(file)
            return [found.rows(number) for number in range(len(found.lasts))]
        return [Container(file).chosen(places)]


def write_run(
    store: FileStore, path: str, kind: PartKind, timestamp: int, tables: Iterable[pa.Table]
) -> OutputFile | None:
    """Write a file of one index, from tables that are sorted and hold each document once. None: they are empty, and nothing was written."""
    pieces = pieces_of(tables, PAGE_BYTES_MAX)
    first = next(pieces, None)
    if first is None:
        return None
    records, size, checksums, lasts = 0, 0, list[int](), list[str]()
    with store.create(path) as file, _run_writer(file, kind) as writer:
        for number, piece in enumerate(chain([first], pieces)):
            writer.write_table(piece, row_group_size=len(piece))
            records += len(piece)
            size += size_of(piece)
            checksums.append(_checksum(_in_one_piece(piece), number))
            lasts.append(piece.column("docid")[-1].as_py())
        told = " ".join(map(str, [*checksums, _checksum_of_lasts(lasts)]))
        writer.add_key_value_metadata({_CHECKSUM: told})
    return OutputFile(path, kind, records, size, timestamp)


def _run_writer(file: BinaryIO, kind: PartKind) -> pq.ParquetWriter:
    return pq.ParquetWriter(file, SCHEMA, compression=_COMPRESSION[kind], **_WRITE_OPTIONS)


def read_run(store: FileStore, part: Part, after: str | None = None, until: str | None = None) -> Iterator[pa.Table]:
    """The rows of a part behind a document id and up to another one, in tables of a page at most for files, in one table for rows of a container.

    Raises:
        FileNotFoundError: it was collected.
        LogDeviceError: DATALOSS: it is damaged.
    """
    with _opened(store, part.path) as file:
        if part.place != WHOLE_FILE:
            yield Container(file).within(part.place, part.records, after, until)
            return
        found = _RunFile(file)
        begin = 0 if after is None else bisect_right(found.lasts, after)
        for number in range(begin, len(found.lasts)):
            if until is not None and number > begin and found.lasts[number - 1] >= until:
                return
            yield between(found.rows(number), after, until)


def last_docids(store: FileStore, part: Part) -> list[str]:
    """Document ids that cut a part into pieces of a page at most: the last one of each, in order.

    Raises:
        FileNotFoundError: it was collected.
        LogDeviceError: DATALOSS: it is damaged.
    """
    with _opened(store, part.path) as file:
        if part.place == WHOLE_FILE:
            return _RunFile(file).lasts
        pieces = pieces_of([Container(file).rows(part.place, part.records)], PAGE_BYTES_MAX)
        return [piece.column("docid")[-1].as_py() for piece in pieces]


def document_cuts(store: FileStore, parts: Sequence[Part], count: int) -> list[str]:
    """Document ids that cut an index into `count` ranges of about the same size, or into fewer: where row groups of its largest run of files end, or at rows of its
    largest slice.

    Raises:
        FileNotFoundError: a part was collected.
        LogDeviceError: DATALOSS: a part is damaged.
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
    with _opened(store, part.path) as file:
        container = Container(file)
        samples = min(part.records, 4 * count)
        return [container.docid(part.place + part.records * number // samples - 1) for number in range(1, samples + 1)]
