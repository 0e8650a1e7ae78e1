"""What readers of streams deliver: records with their positions, transaction ids and numbers, in batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass

from client.guards import Position
from client.read.arrow_columns import Columns
from client.read.batch import RecordBatch
from client.read.items import CorruptRecord, Gap, GapKind, Record, RecordRun
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp, utc_datetime
from streams.attributes import TransactionIds

_TXID_BYTES = 8


@dataclass(frozen=True, slots=True)
class TxId:
    """A transaction id, as a place to begin: at the first record that has it or a greater one."""

    value: int


@dataclass(slots=True)
class StreamRecord:
    """One record of a stream."""

    position: Position
    txid: int | None
    """Its transaction id; None: it was written to the stream's log without one."""
    timestamp: Timestamp
    """When it was sequenced, Unix UTC microseconds."""
    payload: bytes | None
    """None: it was written damaged, and every copy is."""
    sequence_id: int | None
    """How many records are before it in the stream; None: this reader cannot tell, as it did not begin with the first one."""

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as a datetime in UTC."""
        return utc_datetime(self.timestamp)


def txid_of(kind: TransactionIds, key: bytes | None, timestamp: int) -> int | None:
    """The transaction id of a record with that key."""
    if kind is TransactionIds.TIME:
        return timestamp
    return int.from_bytes(key, "big") if key is not None and len(key) == _TXID_BYTES else None


def txids_of(kind: TransactionIds, batch: Columns) -> list[int | None]:
    """The transaction ids of all records of a batch. One above 2^63 - 1, which no writer of streams gives, is None."""
    if kind is TransactionIds.TIME:
        return [run.timestamp for run in batch.runs for _ in range(run.count)]
    keys = (
        None if payload is None else key for payload, key in zip(batch.payloads, batch.keys, strict=True)
    )  # nothing of a corrupt record is to be believed
    found = (txid_of(kind, key, 0) for key in keys)
    return [None if txid is None or txid > NUMBER_MAX else txid for txid in found]


class StreamBatch:
    """Records of a stream, and what is lost between them. Iterate for records; the columns are as in the `RecordBatch` of the log."""

    def __init__(self, columns: RecordBatch, kind: TransactionIds, first_sequence_id: int | None) -> None:
        self.columns = columns
        """Payloads, LSNs, offsets and keys as columns, with all gaps."""
        self._kind = kind
        self._first = first_sequence_id

    def __len__(self) -> int:
        return len(self.columns)

    def __bool__(self) -> bool:
        """False: the end of what is read."""
        return bool(self.columns)

    def __repr__(self) -> str:
        lost = f", {len(self.losses)} losses" if self.losses else ""
        return f"<StreamBatch: {len(self)} records{lost}>"

    @property
    def payloads(self) -> list[bytes | None]:
        """Of each record; None: it was written damaged."""
        return self.columns.payloads

    @property
    def losses(self) -> list[Gap]:
        """Where records may have been that cannot be had any more."""
        return [gap for gap in self.columns.gaps if gap.kind is GapKind.DATALOSS]

    @property
    def last(self) -> Position | None:
        """The position of the last record; None: there is none."""
        if not self.columns.runs:
            return None
        run = self.columns.runs[-1]
        return Position(LSN(run.lsn), run.batch_offset + run.count - 1)

    def __iter__(self) -> Iterator[StreamRecord]:
        return (item for item in self.items() if isinstance(item, StreamRecord))

    def items(self) -> Iterator[StreamRecord | Gap]:
        """Records and losses, in order."""
        sequence_id = self._first
        for item in self.columns:
            if isinstance(item, Gap):
                if item.kind is GapKind.DATALOSS:
                    sequence_id = None
                    yield item
                continue
            position = Position(item.lsn, item.batch_offset)
            if isinstance(item, CorruptRecord):
                txid = txid_of(self._kind, None, item.timestamp)
                yield StreamRecord(position, txid, item.timestamp, None, sequence_id)
            else:
                assert isinstance(item, Record)
                txid = txid_of(self._kind, item.key, item.timestamp)
                yield StreamRecord(position, txid, item.timestamp, item.payload, sequence_id)
            sequence_id = None if sequence_id is None else sequence_id + 1


def within(batch: RecordBatch, first: Position, until: Position) -> RecordBatch:
    """The records from `first` on and before `until`, and all gaps."""
    runs = batch.runs
    if not runs or (_first(runs[0]) >= first and _last(runs[-1]) < until):
        return batch
    cut = RecordBatch(batch.log)
    cut.log_group = batch.log_group
    for part in batch.runs_and_gaps():
        if isinstance(part, Gap):
            cut.add_gap(part)
            continue
        payloads, run = part
        lsn = run.lsn
        start = (
            max(0, first.batch_offset - run.batch_offset) if lsn == first.lsn else (run.count if lsn < first.lsn else 0)
        )
        stop = until.batch_offset - run.batch_offset if lsn == until.lsn else (0 if lsn > until.lsn else run.count)
        start, stop = min(start, run.count), min(max(stop, 0), run.count)
        if start < stop:
            keys = None if run.keys is None else run.keys[start:stop]
            kept = RecordRun(lsn, run.timestamp, run.batch_offset + start, stop - start, keys)
            cut.add_records(payloads[start:stop], kept)
    return cut


def _first(run: RecordRun) -> Position:
    return Position(LSN(run.lsn), run.batch_offset)


def _last(run: RecordRun) -> Position:
    return Position(LSN(run.lsn), run.batch_offset + run.count - 1)
