"""What a reader delivers: records, gaps, and batches of both that build them on demand."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat

from logdevice_py.core.ids import LogId, ShardId, format_shard
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp


class GapKind(enum.Enum):
    """Why a range of LSNs holds no records."""

    BRIDGE = "bridge"  # between the end of an epoch and the first entry of the next one; nothing was ever there
    HOLE = "hole"  # an append that failed left its number unused; nothing was ever acknowledged there
    TRIM = "trim"  # given up by trimming
    DATALOSS = "dataloss"  # records may have been there and cannot be had any more


@dataclass(frozen=True, slots=True)
class DataLoss:
    """What speaks for a loss."""

    authoritative: bool
    """Enough shards that lost nothing say that they hold no copy, so there are fewer than there should be, or none. False: too many shards
    cannot tell what they held."""
    shards: tuple[ShardId, ...]
    """Shards that lost data, were removed from the cluster, or cannot read their copies: they may have held what is missing. Ascending."""

    def __str__(self) -> str:
        why = "no copy is left" if self.authoritative else "too many shards cannot tell what they held"
        return why + (f" ({', '.join(map(format_shard, self.shards))})" if self.shards else "")

    def joined(self, other: DataLoss) -> DataLoss:
        """What speaks for both of two neighbouring losses."""
        shards = tuple(sorted({*self.shards, *other.shards}))
        return DataLoss(self.authoritative and other.authoritative, shards)


@dataclass(frozen=True, slots=True)
class Gap:
    """No records in [lo, hi], both inclusive."""

    kind: GapKind
    lo: LSN
    hi: LSN
    loss: DataLoss | None = field(default=None, compare=False)
    """Of a DATALOSS: what this reader found. Another one may find the same loss for other reasons, so gaps are equal without it."""

    def joined(self, following: Gap) -> Gap | None:
        """Both as one gap; None unless they touch and are of one kind."""
        if self.kind is not following.kind or self.hi + 1 != following.lo:
            return None
        loss = self.loss if following.loss is None or self.loss is None else self.loss.joined(following.loss)
        return Gap(self.kind, self.lo, following.hi, loss or following.loss)


@dataclass(slots=True)
class Record:
    """One record. (lsn, batch_offset) is its position, unique in the log."""

    log: LogId
    lsn: LSN
    batch_offset: int
    timestamp: Timestamp
    """Given by the sequencer, Unix UTC microseconds."""
    payload: bytes
    key: bytes | None = None
    """As it was appended with."""


@dataclass(slots=True)
class CorruptRecord:
    """A record that was appended damaged: its position is known, its bytes are not.

    The client that appended it sent a payload that does not match its own checksum or its declared number of records. Every copy says the
    same, so no other copy helps; the records around it keep their positions.
    """

    log: LogId
    lsn: LSN
    batch_offset: int
    timestamp: Timestamp


Item = Record | CorruptRecord | Gap


@dataclass(slots=True)
class RecordRun:
    """Neighbouring records of one entry: `count` batch offsets from `batch_offset` on."""

    lsn: int
    timestamp: Timestamp
    batch_offset: int
    count: int
    keys: list[bytes | None] | None = None
    """One for each record; None: none has a key."""


class RecordBatch:
    """Records and gaps in log order, kept as columns; a `Record` is built only when it is asked for.

    ``len`` is the number of records, corrupt ones included. A batch is true when it holds anything, be it only a gap.
    """

    __slots__ = ("_gaps", "_starts", "log", "payloads", "runs")

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.payloads: list[bytes | None] = []
        """One for each record; None: the record is corrupt."""
        self.runs: list[RecordRun] = []
        """Which records lie where, in order."""
        self._gaps: list[tuple[int, Gap]] = []
        self._starts: list[int] = []

    def add_records(self, payloads: list[bytes | None], run: RecordRun) -> None:
        """Append the records of one run."""
        assert len(payloads) == run.count, (len(payloads), run.count)
        self._starts.append(len(self.payloads))
        self.payloads += payloads
        self.runs.append(run)

    def add_gap(self, gap: Gap) -> None:
        """Append a gap; it joins the one before it when they touch and are of one kind."""
        if self._gaps:
            at, last = self._gaps[-1]
            if at == len(self.payloads) and (joined := last.joined(gap)) is not None:
                gap = joined
                self._gaps.pop()
        self._gaps.append((len(self.payloads), gap))

    def __len__(self) -> int:
        return len(self.payloads)

    def __bool__(self) -> bool:
        return bool(self.payloads or self._gaps)

    @property
    def gaps(self) -> list[Gap]:
        """The gaps, in order."""
        return [gap for _, gap in self._gaps]

    @property
    def lsns(self) -> list[int]:
        """The LSN of each record."""
        column: list[int] = []
        for run in self.runs:
            column.extend(repeat(run.lsn, run.count))
        return column

    @property
    def batch_offsets(self) -> list[int]:
        """The batch offset of each record."""
        column: list[int] = []
        for run in self.runs:
            column.extend(range(run.batch_offset, run.batch_offset + run.count))
        return column

    @property
    def timestamps(self) -> list[int]:
        """The timestamp of each record."""
        column: list[int] = []
        for run in self.runs:
            column.extend(repeat(run.timestamp, run.count))
        return column

    @property
    def keys(self) -> list[bytes | None]:
        """The key of each record."""
        column: list[bytes | None] = []
        for run in self.runs:
            column.extend(repeat(None, run.count) if run.keys is None else run.keys)
        return column

    def __iter__(self) -> Iterator[Item]:
        """Records and gaps in log order."""
        gaps = iter(self._gaps)
        at, gap = next(gaps, (-1, None))
        for start, run in zip(self._starts, self.runs, strict=True):
            while gap is not None and at <= start:
                yield gap
                at, gap = next(gaps, (-1, None))
            lsn, timestamp, offset = LSN(run.lsn), run.timestamp, run.batch_offset
            for payload in self.payloads[start : start + run.count]:
                if payload is None:
                    yield CorruptRecord(self.log, lsn, offset, timestamp)
                elif run.keys is not None:
                    yield Record(self.log, lsn, offset, timestamp, payload, run.keys[offset - run.batch_offset])
                else:
                    yield Record(self.log, lsn, offset, timestamp, payload)
                offset += 1
        while gap is not None:
            yield gap
            at, gap = next(gaps, (-1, None))

    def records(self) -> Iterator[Record]:
        """The records that are not corrupt."""
        return (item for item in self if type(item) is Record)
