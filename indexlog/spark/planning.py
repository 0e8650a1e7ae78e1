"""What tasks read of an index log, as of one moment: parts of indexes, cut by document id where an index is large. Nothing here knows Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from client.spark.options import refusal
from indexlog.columns import SCHEMA, between, merged_runs, rows_of, size_of, table_of
from indexlog.effects import ConfirmView, DoWork, FindTails, RawRange, ReadRange, Steps, View
from indexlog.manifest.parts import IndexFloor, Part, RoutingGeneration
from indexlog.manifest.state import ManifestState
from indexlog.records import Modification, readable_record
from indexlog.spark.options import IndexOptions
from indexlog.stored import document_cuts, read_run
from indexlog.stores import FileStore
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status

READ_BYTES: Final = 5_000_000
"""Of a raw log at a time."""
Rows = dict[str, list[tuple[str, Modification]]]


@dataclass(frozen=True, slots=True)
class IndexPiece:
    """The documents of one index in a range of document ids."""

    index: str
    parts: tuple[Part, ...]
    after: str | None
    """Behind this document id; None: from the first one on."""
    until: str | None
    """Up to this document id; None: up to the last one."""
    tail: bytes
    """What is not dealt of them, as a stream of Arrow; empty: nothing is."""
    size: int
    """Bytes in memory, about."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What one task reads."""

    store: str
    serial: int
    pieces: tuple[IndexPiece, ...]


def plan_read(view: View, store: FileStore, options: IndexOptions) -> Steps[list[PlannedRead]]:
    """Fix the moment, and cut what there is into tasks.

    Raises:
        LogDeviceError: INVALID_PARAM: too much is not dealt; DATALOSS; STALE: files were collected meanwhile.
    """
    while True:
        yield ConfirmView()
        state = view()
        serial, url = state.serial, state.store
        live = {index: tuple(parts) for index, parts in state.indexes.items() if options.wants(index)}
        undealt = _Undealt(state.readable(), dict(state.dealt), _floors(state, options))
        if not options.live_tail:
            break
        tails: Mapping[int, int] = yield FindTails(undealt.open_logs)
        yield ConfirmView()  # what is behind a drop is of another moment than what the state before it has
        if _floors(view(), options) == undealt.floors:
            break
    rows: Rows = {}
    if options.live_tail:
        yield from _read_tail(undealt, tails, options, rows)
    found = {index: table_of(changes) for index, changes in rows.items()}
    rows.clear()
    pieces: list[IndexPiece] = []
    for index in sorted(live.keys() | found.keys()):
        parts, tail = live.get(index, ()), found.get(index, SCHEMA.empty_table())
        size = sum(part.bytes for part in parts) + size_of(tail)
        cuts: list[str] = []
        if size > options.partition_bytes and parts:
            count = -(-size // options.partition_bytes)
            try:
                cuts = yield DoWork(partial(document_cuts, store, parts, count))
            except FileNotFoundError as error:
                raise _collected(index, serial, error) from None
        pieces += cut_index(index, parts, tail, size, cuts)
    return [PlannedRead(url, serial, tuple(group)) for group in packed(pieces, options.partition_bytes)]


@dataclass(frozen=True, slots=True)
class _Undealt:
    """Where raw logs are read, as of one state of the manifest."""

    generations: Sequence[RoutingGeneration]
    dealt: Mapping[int, int]
    floors: Mapping[str, IndexFloor]
    """Of indexes that are wanted."""

    @property
    def open_logs(self) -> list[int]:
        return [log for each in self.generations if each.ends is None for log in each.logs]


def _floors(state: ManifestState, options: IndexOptions) -> dict[str, IndexFloor]:
    return {index: floor for index, floor in state.floors.items() if options.wants(index)}


def _read_tail(undealt: _Undealt, tails: Mapping[int, int], options: IndexOptions, rows: Rows) -> Steps[None]:
    """All that is not dealt, by index."""
    size = 0
    for each in undealt.generations:
        for log, end in zip(each.logs, each.ends or [tails[log] for log in each.logs], strict=True):
            start = max(undealt.dealt[log] + 1, LSN_OLDEST)
            while start <= end:
                raw: RawRange = yield ReadRange(log, start, end, READ_BYTES)
                for lsn, payload in raw.records:
                    size += len(payload or b"")
                    record = readable_record(payload)
                    if record is None or not options.wants(record.index):
                        continue
                    floor = undealt.floors.get(record.index)
                    if floor is None or not floor.leaves_out(each.number, log, lsn):
                        rows.setdefault(record.index, []).append((record.docid, record.change))
                if size > options.tail_bytes_max:
                    raise refusal(
                        f"more than {options.tail_bytes_max} bytes of raw logs are not dealt: deal first (ldindex deal), "
                        "give a greater tailBytesMax, or set liveTail to false to read only what is dealt"
                    )
                start = raw.until + 1


def cut_index(index: str, parts: tuple[Part, ...], tail: pa.Table, size: int, cuts: Sequence[str]) -> list[IndexPiece]:
    """An index in ranges of document ids."""
    bounds: list[str | None] = [None, *cuts, None]
    return [
        IndexPiece(index, parts, after, until, _as_stream(between(tail, after, until)), size // (len(cuts) + 1))
        for after, until in pairwise(bounds)
    ]


def packed(pieces: Sequence[IndexPiece], bytes_max: int) -> Iterator[list[IndexPiece]]:
    """Small indexes side by side in one task; a piece that is larger is alone."""
    group: list[IndexPiece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.size > bytes_max:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.size
    if group:
        yield group


def _as_stream(table: pa.Table) -> bytes:
    if not len(table):
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_piece(store: FileStore, serial: int, piece: IndexPiece) -> Iterator[pa.Table]:
    """The documents of a piece, in the columns of `indexlog.columns.SCHEMA`, sorted by id.

    Raises:
        LogDeviceError: STALE: files were collected since the plan was made.
    """
    runs = [read_run(store, part, piece.after, piece.until) for part in piece.parts]
    if piece.tail:
        runs.append(iter([pa.ipc.open_stream(piece.tail).read_all()]))
    try:
        yield from merged_runs(runs, oldest=True)
    except FileNotFoundError as error:
        raise _collected(piece.index, serial, error) from None


def _collected(index: str, serial: int, error: FileNotFoundError) -> LogDeviceError:
    text = f"index {index}: the files of state {serial} are not kept any more ({error}): load the table again, or collect garbage later (--grace)"
    return LogDeviceError(Status.STALE, text, retriable=False, maybe_applied=False)


def documents_of(table: pa.Table, index: str, wanted: pa.Schema) -> pa.RecordBatch:
    """Documents as the columns that are wanted, of `indexlog.spark.schema.DOCUMENTS`."""
    columns = []
    contents: list[Modification] | None = None
    for field in wanted:
        if field.name == "index":
            columns.append(pa.array([index] * len(table), field.type))
        elif field.name == "docid":
            columns.append(table.column("docid").combine_chunks().cast(field.type))
        elif field.name == "timestamp":
            micros = pc.multiply(table.column("timestamp").combine_chunks(), 1000)
            columns.append(micros.cast(pa.timestamp("us")).cast(field.type))
        else:
            if contents is None:
                contents = [change for _, change in rows_of(table)]
            columns.append(pa.array([_items(getattr(change, field.name)) for change in contents], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _items(values: Mapping[object, object] | None) -> list[tuple[object, object]] | None:
    return None if values is None else sorted(values.items())
