"""Which partitions exist, how old what they hold is, and when the next one is begun. The same for all stores; the stores make and drop
what holds the entries.

A partition takes entries from when it is begun until the next one is; later it takes only what belongs, by its LSN, among what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgpack

from logdevice_py.core.marks import hit
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store import keys
from storage_node.log_store.interface import NO_RECORD
from storage_node.log_store.row_values import UnknownRowError, unpack_integers
from storage_node.log_store.settings import LogStoreSettings

NEWEST_AHEAD: Final = SECOND
"""The bound of the newest timestamp on disk lies up to this much above the truth, so that it need not be written with each entry."""
NEVER: Final = Timestamp((1 << 63) - 1)
_STRETCH: Final = 3
DROPPED: Final = b"dropped"


class Partition:
    """One partition."""

    __slots__ = ("closed", "created", "greatest", "least", "newest", "number", "oldest", "size")

    def __init__(
        self, number: int, created: Timestamp, oldest: Timestamp = NEVER, newest: Timestamp = NO_RECORD
    ) -> None:
        self.number = number
        self.created = created
        """The node's wall clock when it was begun."""
        self.oldest = oldest
        """No record's timestamp is below."""
        self.newest = newest
        """No record's timestamp is above; up to `NEWEST_AHEAD` greater than the newest."""
        self.size = 0
        """About how many bytes of entries were written."""
        self.closed = NEVER
        """The node's wall clock when the next one was begun; `NEVER`: this is the latest."""

        self.least = self.greatest = b""
        """`oldest` and `newest` as they stand in entries' headers; of one without records, such that nothing lies between."""
        self.put_bounds()

    def put_bounds(self) -> None:
        """Make `least` and `greatest` agree."""
        self.least = keys.encode_timestamp(self.oldest)
        self.greatest = keys.encode_timestamp(self.newest) if self.newest >= 0 else b""

    def encode(self) -> bytes:
        """Value of its row."""
        packed: bytes = msgpack.packb((self.created, self.closed, self.oldest, self.newest))
        return packed

    @classmethod
    def decode(cls, number: int, value: bytes) -> Partition | None:
        """From its row; None: it is dropped, and what is left of it goes.

        Raises:
            UnknownRowError: the row cannot be read.
        """
        if value == DROPPED:
            return None
        created, closed, oldest, newest = unpack_integers(value, f"the row of partition {number}", 4)
        if not -(1 << 63) <= min(oldest, newest) <= max(oldest, newest) < 1 << 63:
            raise UnknownRowError(f"the row of partition {number}: timestamps of 64 bits expected")
        partition = cls(number, Timestamp(created), Timestamp(oldest), Timestamp(newest))
        partition.closed = Timestamp(closed)
        return partition


class Partitions:
    """All partitions of one shard, by ascending number, which is the order in which they were begun."""

    __slots__ = ("_by_number", "_settings", "_to_save", "dropped", "latest")

    def __init__(self, settings: LogStoreSettings) -> None:
        self._settings = settings
        self._by_number: dict[int, Partition] = {}
        self._to_save: dict[bytes, bytes | None] = {}
        self.latest = Partition(keys.UNPARTITIONED, Timestamp(0))
        """The one that takes what follows; of number `UNPARTITIONED` until there is one."""
        self.dropped: set[int] = set()
        """Numbers whose rows say that they are dropped; what holds their entries may be there still."""

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_number.values())

    def __contains__(self, number: int) -> bool:
        return number in self._by_number

    def __getitem__(self, number: int) -> Partition:
        return self._by_number[number]

    @property
    def next_number(self) -> int:
        """Of the partition to be begun next."""
        return max(keys.PARTITION_FIRST - 1, self.latest.number, *self.dropped) + 1

    def restore(self, number: int, value: bytes) -> None:
        """Take a row from disk; rows come by ascending number."""
        partition = Partition.decode(number, value)
        if partition is None:
            self.dropped.add(number)
            return
        assert number > self.latest.number, (number, self.latest.number)
        self._by_number[number] = self.latest = partition

    def begin(self, number: int, now: Timestamp) -> Partition:
        """The partition takes what follows from here on; its row is pending."""
        assert number > self.latest.number, (number, self.latest.number)
        if self.latest.number != keys.UNPARTITIONED:
            self.latest.closed = now
            self._save(self.latest)
        partition = self._by_number[number] = self.latest = Partition(number, now)
        self._save(partition)
        hit("log_store_partition_begun")
        return partition

    def adopt(self, number: int, now: Timestamp) -> None:
        """Take a partition of which nothing is known but that it holds entries: as if they were all of this moment."""
        assert number not in self._by_number, number
        adopted = self._by_number[number] = Partition(number, now, Timestamp(0), now)
        adopted.closed = now
        self._by_number = dict(sorted(self._by_number.items()))
        self.latest = next(reversed(self._by_number.values()))
        self._save(adopted)

    def note(self, number: int, timestamp: int, size: int) -> None:
        """An entry is about to be written to a partition."""
        partition = self._by_number[number]
        partition.size += size
        if timestamp > partition.newest:
            ahead = NEWEST_AHEAD if partition is self.latest else 0
            partition.newest = Timestamp(min(timestamp + ahead, NEVER))
        elif timestamp >= partition.oldest:
            return
        if timestamp < partition.oldest:
            partition.oldest = Timestamp(timestamp)
        partition.put_bounds()
        self._save(partition)

    def is_due(self, now: Timestamp) -> bool:
        """Whether the next partition is to be begun.

        One to which nothing was written is never closed. Where there are many partitions, each lasts longer. There is no number at which none is
        begun: what lies in the latest does not grow old, and one log that needs all others would end the retention of all.
        """
        settings, count, size = self._settings, len(self._by_number), self.latest.size
        if not size:
            return False
        stretch = _STRETCH if count >= settings.partitions_soft_max else 1
        if count >= settings.partitions_max:
            stretch = _STRETCH * (2 + count - settings.partitions_max)
        return (
            now - self.latest.created >= settings.partition_duration_us * stretch
            or size >= settings.partition_bytes * stretch
        )

    def expiry(self) -> list[tuple[int, Timestamp]]:
        """Per partition that is closed, by ascending number: when the last of what it holds was written, at the latest.

        That is the greatest timestamp of a record, by sequencers' clocks, and not before the partition was closed, by this node's clock:
        neither a sequencer's clock that is slow nor this node's own makes records look older than they are.
        """
        return [
            (partition.number, max(partition.newest, partition.closed))
            for partition in self._by_number.values()
            if partition is not self.latest
        ]

    def newest_record(self) -> Timestamp:
        """A timestamp that is not above the newest record's; `NO_RECORD` without any."""
        newest = max([partition.newest for partition in self._by_number.values()], default=NO_RECORD)
        return Timestamp(max(newest - NEWEST_AHEAD, NO_RECORD))

    # ---- dropping

    def tombstones(self, numbers: list[int]) -> dict[bytes, bytes]:
        """Rows that say that partitions are dropped, to be written together with what makes them superfluous."""
        return {keys.partition_key(number): DROPPED for number in numbers}

    def drop(self, numbers: list[int]) -> None:
        """The rows of `tombstones` are written."""
        for number in numbers:
            assert number != self.latest.number, number
            del self._by_number[number]
            self._to_save.pop(keys.partition_key(number), None)
            self.dropped.add(number)
            hit("log_store_partition_dropped")

    def forget(self, number: int) -> None:
        """Nothing is left of a dropped partition; the removal of its row is pending."""
        self.dropped.discard(number)
        self._to_save[keys.partition_key(number)] = None

    # ---- rows

    @property
    def changed(self) -> bool:
        """Whether rows are to be written."""
        return bool(self._to_save)

    def pending(self) -> dict[bytes, bytes | None]:
        """Rows to write (None: delete) with the next group; call `saved` when that is done."""
        return self._to_save

    def saved(self) -> None:
        """What was `pending` is written."""
        self._to_save.clear()

    def _save(self, partition: Partition) -> None:
        self._to_save[keys.partition_key(partition.number)] = partition.encode()
