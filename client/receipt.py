"""What an acknowledged append came to."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

from client.guards import Position
from logdevice_py.core.ids import ShardId, format_shard
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp, utc_datetime
from logdevice_py.protocol.messages import Durability


class Receipt(NamedTuple):
    """Where a record is and how safe it is. (lsn, batch_offset) is its position: readers find it there."""

    lsn: LSN
    batch_offset: int
    timestamp: Timestamp
    """Given by the sequencer, Unix UTC microseconds; 0 when only the position is known: the append was completed by recovery, or one answer
    was too small for all that thousands of records with an LSN each came to."""
    copyset: tuple[int, ...]
    """The shards that hold a copy of this record's entry (node << 8 | shard index); empty when only the position is known."""
    durability: Durability
    """SYNC: every copy was synced to disk before the acknowledgement; ASYNC: that is not promised."""

    @property
    def position(self) -> Position:
        """Where the record is: `Client.append` may expect it to be the last."""
        return Position(self.lsn, self.batch_offset)

    @property
    def shards(self) -> tuple[str, ...]:
        """The copyset as people write it: ``("N2:S0", "N0:S0")``."""
        return tuple(format_shard(ShardId(shard)) for shard in self.copyset)

    @property
    def datetime(self) -> dt.datetime | None:
        """The timestamp as a datetime in UTC; None when only the position is known."""
        return utc_datetime(self.timestamp) if self.timestamp else None

    def __repr__(self) -> str:
        return f"<Receipt: {self}{f', {self.datetime}' if self.timestamp else ''}>"

    def __str__(self) -> str:
        shards = ", ".join(self.shards)
        return f"{self.lsn}+{self.batch_offset} on {shards or 'shards not told'}, {self.durability.name.lower()}"


_as_receipt = partial(tuple.__new__, Receipt)


def receipts(
    count: int, lsn: LSN, batch_offset: int, timestamp: Timestamp, copyset: tuple[int, ...], durability: Durability
) -> Iterator[Receipt]:
    """Of neighbouring records: `count` batch offsets of one LSN from `batch_offset` on."""
    offsets = range(batch_offset, batch_offset + count)
    return map(
        _as_receipt, zip(repeat(lsn), offsets, repeat(timestamp), repeat(copyset), repeat(durability), strict=False)
    )


@dataclass(slots=True)
class ReceiptRun:
    """Receipts of neighbouring records: `count` batch offsets of one LSN from `batch_offset` on."""

    count: int
    lsn: LSN
    batch_offset: int
    timestamp: Timestamp
    copyset: tuple[int, ...]
    durability: Durability

    def receipt(self, index: int) -> Receipt:
        """Of one record of the run."""
        return Receipt(self.lsn, self.batch_offset + index, self.timestamp, self.copyset, self.durability)


class Receipts:
    """The receipts of many records, kept as runs; a `Receipt` is built when it is asked for."""

    __slots__ = ("_starts", "runs")

    def __init__(self, runs: list[ReceiptRun]) -> None:
        self.runs = runs
        """In the order of the records."""
        self._starts: list[int] = []
        total = 0
        for run in runs:
            self._starts.append(total)
            total += run.count
        self._starts.append(total)

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        if not self:
            return "<Receipts: none>"
        first, last = self[0], self[-1]
        where = f"{first.lsn}+{first.batch_offset} to {last.lsn}+{last.batch_offset}"
        return f"<Receipts: {len(self):,} records, {where}>"

    def __getitem__(self, index: int) -> Receipt:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        run = bisect_right(self._starts, index) - 1
        return self.runs[run].receipt(index - self._starts[run])

    def __iter__(self) -> Iterator[Receipt]:
        for run in self.runs:
            yield from receipts(run.count, run.lsn, run.batch_offset, run.timestamp, run.copyset, run.durability)

    def lsns(self) -> list[int]:
        """The LSN of each record."""
        return [lsn for run in self.runs for lsn in [int(run.lsn)] * run.count]

    def batch_offsets(self) -> list[int]:
        """The batch offset of each record."""
        return [offset for run in self.runs for offset in range(run.batch_offset, run.batch_offset + run.count)]
