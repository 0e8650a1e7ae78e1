"""What a reader delivers: records and gaps."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass, field
from typing import Final

from logdevice_py.core.ids import LogId, ShardId, format_shard
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp, utc_datetime

_SHOWN_BYTES: Final = 60
"""Of a key or payload, in the text that stands for a record."""


def _shown(content: bytes) -> str:
    if len(content) <= _SHOWN_BYTES:
        return repr(content)
    return f"{content[:_SHOWN_BYTES]!r}... ({len(content):,} bytes)"


class GapKind(enum.Enum):
    """Why a range of LSNs holds no records."""

    BRIDGE = "bridge"  # between the end of an epoch and the first entry of the next one; nothing was ever there
    HOLE = "hole"  # an append that failed left its number unused; nothing was ever acknowledged there
    TRIM = "trim"  # it was trimmed
    DATALOSS = "dataloss"  # records may have been there and cannot be had any more


@dataclass(frozen=True, slots=True, repr=False)
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

    def __repr__(self) -> str:
        return f"DataLoss({self})"

    def joined(self, other: DataLoss) -> DataLoss:
        """What speaks for both of two neighbouring losses."""
        shards = tuple(sorted({*self.shards, *other.shards}))
        return DataLoss(self.authoritative and other.authoritative, shards)


@dataclass(frozen=True, slots=True, repr=False)
class Gap:
    """No records in [lo, hi], both inclusive."""

    kind: GapKind
    lo: LSN
    hi: LSN
    loss: DataLoss | None = field(default=None, compare=False)
    """Of a DATALOSS: what this reader found. Another one may find the same loss for other reasons, so gaps are equal without it."""

    def __repr__(self) -> str:
        return f"Gap({self.kind.name}, {self.lo} to {self.hi}{'' if self.loss is None else f': {self.loss}'})"

    def joined(self, following: Gap) -> Gap | None:
        """Both as one gap; None unless they touch and are of one kind."""
        if self.kind is not following.kind or self.hi + 1 != following.lo:
            return None
        loss = self.loss if following.loss is None or self.loss is None else self.loss.joined(following.loss)
        return Gap(self.kind, self.lo, following.hi, loss or following.loss)


@dataclass(slots=True, repr=False)
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

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as a datetime in UTC."""
        return utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        key = "" if self.key is None else f", key={_shown(self.key)}"
        return f"Record(log {self.log}, {self.lsn}+{self.batch_offset}, {self.datetime}{key}, payload={_shown(self.payload)})"


@dataclass(slots=True, repr=False)
class CorruptRecord:
    """A record that was appended damaged: its position is known, its bytes are not.

    The client that appended it sent a payload that does not match its own checksum or its declared number of records. Every copy says the
    same, so no other copy helps; the records around it keep their positions.
    """

    log: LogId
    lsn: LSN
    batch_offset: int
    timestamp: Timestamp

    @property
    def datetime(self) -> dt.datetime:
        """The timestamp as a datetime in UTC."""
        return utc_datetime(self.timestamp)

    def __repr__(self) -> str:
        return f"CorruptRecord(log {self.log}, {self.lsn}+{self.batch_offset}, {self.datetime})"


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
