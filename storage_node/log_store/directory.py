"""Which partition holds which LSNs of a log. Kept in memory, written with the entries when a log comes to a partition, and now and then.

The partitions of a log are in the order of its LSNs: what one holds of the log lies wholly below what the next one holds of it. An entry
therefore goes to the latest partition only if it lies above all that is stored of its log; else to the partition in whose range it lies
or, between two of them, to the lower one. The order of arrival does not matter.

Once a log's row on an older partition is removed, nothing of the log is read from that partition any more, nor ever written to it: what
it still holds of the log needs no deletion, and goes when the partition does.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from storage_node.log_store import keys

Span = tuple[int, Lsn, Lsn]
"""(partition, first lsn, last lsn), inclusive."""
_FIRST, _HIGHEST, _SIZE, _PARTITION, _WIDTH = 0, 1, 2, 3, 4
_UNKNOWN: Final = -1


class DirectoryOrderError(Exception):
    """The rows of a log contradict each other: the metadata is damaged."""


class LogRows:
    """Where a log is: what the last partition holds of it, and what those before it hold."""

    __slots__ = ("begins", "doubtful", "first", "highest", "older", "partition", "saved_size", "size")

    def __init__(self, partition: int, first: Lsn, highest: Lsn, size: int) -> None:
        self.partition = partition
        self.first = first
        """The smallest LSN in the last partition, or a smaller one; the row's key on disk is made of it."""
        self.begins = first
        """The smallest LSN of the log, or a smaller one: what was deleted below since the shard was opened, of which the disk knows, is not deleted again."""
        self.highest = highest
        """The greatest LSN in the last partition, or a greater one if `doubtful`."""
        self.size = size
        """About how many bytes of the log the last partition holds: see `counting`."""
        self.saved_size = _UNKNOWN
        """`size` as it is on disk."""
        self.doubtful = False
        """Something was deleted or refused: `highest` has to be looked up before it is relied upon."""
        self.older: array[int] | None = None
        """(first, greatest or a greater, bytes, partition) of each partition before the last, by ascending LSN: four numbers each, because there may
        be many. They are on disk as they are here."""

    def is_on(self, partition: int) -> bool:
        """Whether the partition holds anything of the log."""
        older = self.older
        return partition == self.partition or (
            older is not None
            and older[_PARTITION] <= partition < self.partition
            and partition in older[_PARTITION::_WIDTH]
        )

    def copy(self) -> LogRows:
        """With rows of its own."""
        made = LogRows(self.partition, self.first, self.highest, self.size)
        made.saved_size, made.doubtful, made.begins = self.saved_size, self.doubtful, self.begins
        made.older = None if self.older is None else self.older[:]
        return made

    def spans(self) -> Iterator[Span]:
        """What each partition holds, by ascending LSN."""
        older = self.older
        if older is not None:
            for at in range(0, len(older), _WIDTH):
                yield older[at + _PARTITION], Lsn(older[at]), Lsn(older[at + _HIGHEST])
        yield self.partition, self.first, self.highest

    def spans_in(self, first: Lsn, last: Lsn) -> Iterator[Span]:
        """Those of `spans` that lie neither wholly below a range nor wholly above it, and at most the last one more."""
        older = self.older
        if older is not None:
            low, high = 0, len(older) // _WIDTH
            while low < high:
                middle = (low + high) // 2
                if older[middle * _WIDTH + _HIGHEST] < first:
                    low = middle + 1
                else:
                    high = middle
            for at in range(low * _WIDTH, len(older), _WIDTH):
                if older[at] > last:
                    return
                yield older[at + _PARTITION], Lsn(older[at]), Lsn(older[at + _HIGHEST])
        yield self.partition, self.first, self.highest

    def sizes(self) -> Iterator[tuple[int, int]]:
        """(partition, bytes), by ascending LSN."""
        older = self.older
        if older is not None:
            for at in range(0, len(older), _WIDTH):
                yield older[at + _PARTITION], older[at + _SIZE]
        yield self.partition, self.size

    @property
    def first_partition(self) -> int:
        """The oldest that holds anything of the log."""
        return self.partition if self.older is None else self.older[_PARTITION]


class Directory:
    """All rows of one shard.

    Changes come in groups: they are `pending` until the group that carries them is written (`saved`) or refused (`refused`).
    """

    __slots__ = (
        "_changed",
        "_emptied",
        "_rows",
        "_save_bytes",
        "_to_save",
        "_uncounted",
        "dead",
        "latest",
        "logs",
        "repeated",
    )

    def __init__(self, save_bytes: int) -> None:
        """
        Args:
            save_bytes: a row is also saved after this much was written for its log.
        """
        self._rows: dict[LogId, LogRows] = {}
        self._save_bytes = save_bytes
        self._to_save: dict[bytes, bytes | None] = {}
        self._changed: dict[LogId, LogRows | None] = {}
        """Logs whose rows came or went in the group, as they were before it."""
        self._emptied: set[int] = set()
        self._uncounted: Counter[LogId] = Counter()
        """Bytes by which the group changed what was counted when its entries were noted."""
        self.repeated: dict[tuple[LogId, Lsn], int] = {}
        """Where the group may store another copy of an LSN that has one, with the partition: see `uncount_repeated`."""
        self.latest = keys.UNPARTITIONED
        """The partition that takes what lies above all that is stored of its log."""
        self.logs: Counter[int] = Counter()
        """How many logs have a row on each partition."""
        self.dead: Counter[int] = Counter()
        """Bytes, since the shard was opened, of rows that were removed from each partition."""

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[tuple[LogId, LogRows]]:
        """Every log with its rows."""
        return iter(self._rows.items())

    @property
    def rows_count(self) -> int:
        """How many rows there are."""
        return self.logs.total()

    def find(self, log: LogId) -> LogRows | None:
        """A log's rows; None: nothing of it is stored."""
        return self._rows.get(log)

    def restore(self, log: LogId, rows: list[tuple[Lsn, int, Lsn, int]]) -> None:
        """Take a log's rows from disk: (first, partition, highest, bytes), by ascending LSN.

        Raises:
            DirectoryOrderError: they overlap, or are not in the order of partitions.
        """
        for (_, partition, highest, _), (first, following, _, _) in itertools.pairwise(rows):
            if highest >= first or partition >= following:
                raise DirectoryOrderError(f"log {log} in partitions {partition} and {following}")
        first, partition, highest, size = rows[-1]
        last = self._rows[log] = LogRows(partition, first, highest, size)
        last.saved_size = size
        last.begins = rows[0][0]
        if len(rows) > 1:
            last.older = array("Q")
            for first, partition, highest, size in rows[:-1]:
                last.older.extend((first, highest, size, partition))
        self.logs.update(partition for partition, _, _ in last.spans())

    # ---- writing

    def note(self, log: LogId, lsn: Lsn, size: int) -> int:
        """An entry is about to be written; returns the partition to which it belongs."""
        row = self._rows.get(log)
        if row is None or lsn < row.first:
            return self._place(log, row, lsn, size)
        partition = row.partition
        if lsn > row.highest:
            if partition != self.latest and partition != keys.UNPARTITIONED:
                return self._place(log, row, lsn, size)
            row.highest = lsn
        else:
            self.repeated[log, lsn] = partition
            row.begins = min(row.begins, lsn)
        row.size += size
        if row.size - row.saved_size >= self._save_bytes:
            self._save(log, row)
        return partition

    def _place(self, log: LogId, row: LogRows | None, lsn: Lsn, size: int) -> int:
        """Of an entry for which a row has to be made or moved, or which belongs to an older partition."""
        self._remember(log, row)
        if row is None or lsn > row.highest:
            partition = self.latest if keys.is_partitioned(log) else keys.UNPARTITIONED
            begun = self._rows[log] = LogRows(partition, lsn, lsn, size)
            self.logs[partition] += 1
            self._emptied.discard(partition)
            if row is not None:
                begun.begins = row.begins
                begun.older = array("Q") if row.older is None else row.older
                begun.older.extend((row.first, row.highest, row.size, row.partition))
                # what is lower in the order is not looked up again after a crash: its end has to be on disk
                self._save(log, row)
            self._save(log, begun)
            return partition
        row.begins = min(row.begins, lsn)
        older = row.older
        if older is None:
            self._to_save[self._key(log, row.first, row.partition)] = None
            row.first = lsn
            row.size += size
            self._save(log, row)
            return row.partition
        hit("log_store_entry_of_older_partition")
        at = len(older) - _WIDTH
        while at and older[at] > lsn:
            at -= _WIDTH
        partition = older[at + _PARTITION]
        if lsn < older[at]:
            self._to_save[self._key(log, older[at], partition)] = None
            older[at] = lsn
        else:
            self.repeated[log, lsn] = partition
        older[at + _HIGHEST] = max(older[at + _HIGHEST], lsn)
        older[at + _SIZE] += size
        self._save_older(log, older, at)
        return partition

    def count(self, log: LogId, partition: int, size: int) -> None:
        """A partition holds so many bytes more of the log than was noted; negative: less."""
        row = self._rows.get(log)
        if row is None or not size or not row.is_on(partition):
            return
        self._uncounted[log] += size
        if partition == row.partition:
            row.size = max(0, row.size + size)
            self._save(log, row)
            return
        older = row.older
        assert older is not None, (log, partition)
        at = self._place_of(older, partition)
        older[at + _SIZE] = max(0, older[at + _SIZE] + size)
        self._save_older(log, older, at)

    def delete(self, log: LogId, first: Lsn, last: Lsn) -> list[Span]:
        """The entries in a range are about to be deleted; returns what has to be deleted where.

        Rows of which nothing is left are removed.
        """
        row = self._rows.get(log)
        if row is None:
            return []
        spans = [span for span in row.spans() if span[1] <= last and span[2] >= first]
        if not spans:
            return []
        kept, begins = [], row.begins
        for partition, low, high in spans:
            if first <= low and high <= last:
                self._remove(log, partition)
                # an older partition gets nothing of the log again
                if partition == self.latest or partition == keys.UNPARTITIONED:
                    kept.append((partition, low, high))
            else:
                self._cut(log, partition, first, last)
                kept.append((partition, max(first, low), min(last, high)))
        left = self._rows.get(log)
        if left is not None and first <= begins:
            left.begins = Lsn(max(begins, last + 1))
        return kept

    def begins(self, log: LogId) -> Lsn:
        """No entry of a log lies below, as far as was noted or deleted since the shard was opened."""
        row = self._rows.get(log)
        return Lsn(0) if row is None else row.begins

    def _cut(self, log: LogId, partition: int, first: Lsn, last: Lsn) -> None:
        """Of a row of which a part is deleted."""
        row = self._rows[log]
        self._remember(log, row)
        if partition == row.partition:
            row.doubtful = True
            if row.highest <= last:
                row.highest = Lsn(first - 1)
            row.saved_size = _UNKNOWN
            return
        older = row.older
        assert older is not None, (log, partition)
        at = self._place_of(older, partition)
        if older[at + _HIGHEST] <= last:
            # this may still be too much: it is looked up when the row becomes the last
            older[at + _HIGHEST] = first - 1
            self._save_older(log, older, at)

    @staticmethod
    def _place_of(older: array[int], partition: int) -> int:
        return next(at for at in range(0, len(older), _WIDTH) if older[at + _PARTITION] == partition)

    def _remove(self, log: LogId, partition: int) -> None:
        row = self._rows[log]
        self._remember(log, row)
        self.logs[partition] -= 1
        if not self.logs[partition]:
            self._emptied.add(partition)
        older = row.older
        if partition != row.partition:
            assert older is not None, (log, partition)
            at = self._place_of(older, partition)
            self.dead[partition] += older[at + _SIZE]
            self._to_save[self._key(log, older[at], partition)] = None
            del older[at : at + _WIDTH]
            if not older:
                row.older = None
            return
        self._to_save[self._key(log, row.first, partition)] = None
        self.dead[partition] += row.size
        if older is None:
            del self._rows[log]
            return
        last = self._rows[log] = LogRows(
            older[-_WIDTH + _PARTITION], Lsn(older[-_WIDTH]), Lsn(older[-_WIDTH + _HIGHEST]), older[-_WIDTH + _SIZE]
        )
        last.doubtful = True
        last.begins = row.begins
        del older[-_WIDTH:]
        last.older = older if older else None

    def unused(self) -> list[int]:
        """Partitions, ascending, that hold nothing of any log and get nothing again."""
        if not self._emptied:
            return []
        kept = (self.latest, keys.UNPARTITIONED)
        return sorted(number for number in self._emptied if number not in kept and not self.logs[number])

    def forget(self, partition: int) -> None:
        """A partition of which no log has anything is dropped."""
        self._emptied.discard(partition)
        del self.logs[partition], self.dead[partition]

    def expect(self, partition: int) -> None:
        """There is such a partition, whether or not a log has a row on it; called when all rows are restored."""
        if not self.logs[partition]:
            self._emptied.add(partition)

    def of(self, partition: int) -> list[LogId]:
        """The logs that have a row on a partition. Looks at every log, so do not ask often."""
        return [log for log, row in self._rows.items() if row.is_on(partition)]

    # ---- looking up

    def overlapping(self, log: LogId, first: Lsn, last: Lsn) -> list[Span]:
        """Where the entries of a range may be, by ascending LSN."""
        row = self._rows.get(log)
        if row is None or (last < row.first and row.older is None):
            return []
        if first >= row.first:
            return [(row.partition, first, last)] if first <= row.highest else []
        return [
            (partition, max(first, low), min(last, high))
            for partition, low, high in row.spans_in(first, last)
            if low <= last and high >= first
        ]

    def sized(self, log: LogId, first: Lsn, last: Lsn) -> list[tuple[Span, int]]:
        """`overlapping`, with the bytes of the whole rows."""
        row = self._rows.get(log)
        if row is None:
            return []
        return [
            ((partition, max(first, low), min(last, high)), size)
            for (partition, low, high), (_, size) in zip(row.spans(), row.sizes(), strict=True)
            if low <= last and high >= first
        ]

    def highest_through(self, log: LogId, through: int) -> Lsn:
        """The end of what a log has in the partitions up to `through`: nothing of it in a later one lies below. 0: it has nothing there."""
        row = self._rows.get(log)
        highest = Lsn(0)
        if row is not None and row.first_partition <= through:
            for partition, _, end in row.spans():
                if partition > through:
                    break
                highest = end
        return highest

    # ---- correcting

    def doubt(self, log: LogId) -> None:
        """`highest` of the log may be too great."""
        row = self._rows.get(log)
        if row is not None:
            row.doubtful = True

    def correct(self, log: LogId, highest: Lsn | None) -> bool:
        """`highest` in the last partition was looked up; None: nothing is there.

        Returns:
            whether the log has a last partition that is to be looked at again, because the one looked at had nothing.
        """
        row = self._rows[log]
        if highest is None:
            self._remove(log, row.partition)
            return log in self._rows
        row.highest = highest
        row.doubtful = False
        self._save(log, row)
        return False

    def look_up(self, log: LogId, find_highest: Callable[[int, LogId], Lsn | None]) -> None:
        """Put right the greatest LSN of a log.

        Args:
            find_highest: of a log in a partition; None: nothing is there. What it raises is raised: the rest of the log stays doubtful.
        """
        row = self.find(log)
        while row is not None and self.correct(log, find_highest(row.partition, log)):
            row = self.find(log)

    def count_above(self, log: LogId, counted: Lsn, bytes_in: Callable[[int, LogId, Lsn, Lsn], int]) -> None:
        """Count what was written since the row of a log was last saved.

        Args:
            counted: up to where the row counted then.
            bytes_in: the bytes that count of a range of a log in a partition.
        """
        row = self.find(log)
        if row is not None and row.first <= counted < row.highest:
            self.count(log, row.partition, bytes_in(row.partition, log, Lsn(counted + 1), row.highest))

    # ---- saving

    @property
    def changed(self) -> bool:
        """Whether there is anything to be told of the outcome of the group."""
        return bool(self._to_save or self._changed or self._emptied)

    def pending(self) -> dict[bytes, bytes | None]:
        """Rows to write (None: delete) with the group; call `saved` or `refused` when its outcome is known."""
        return self._to_save

    def saved(self) -> None:
        """What was `pending` is written."""
        if self._to_save or self._changed or self._uncounted:
            self._to_save.clear()
            self._changed.clear()
            self._uncounted.clear()

    def refused(self, entries: Iterable[tuple[LogId, int]]) -> None:
        """The group, which was to write these entries (log, bytes), had no effect."""
        for log, size in entries:
            self._uncounted[log] += size
        for log, size in self._uncounted.items():
            row = self._rows.get(log)
            if row is not None:
                row.size = max(0, row.size - size)
                row.doubtful = True
                row.saved_size = _UNKNOWN
        for log, before in self._changed.items():
            now = self._rows.pop(log, None)
            if now is not None:
                self.logs.subtract(partition for partition, _, _ in now.spans())
            if before is not None:
                self._rows[log] = before
                self.logs.update(partition for partition, _, _ in before.spans())
                # it may count entries of the group, and what else the group was to save of it is not on disk
                before.doubtful = True
                before.saved_size = _UNKNOWN
        self.saved()

    def save_all(self) -> None:
        """Make every row pending that differs from the disk."""
        for log, row in self._rows.items():
            if row.size != row.saved_size:
                self._save(log, row)

    def _remember(self, log: LogId, row: LogRows | None) -> None:
        if log not in self._changed:
            self._changed[log] = None if row is None else row.copy()

    def _save(self, log: LogId, row: LogRows) -> None:
        row.saved_size = row.size
        self._to_save[self._key(log, row.first, row.partition)] = keys.directory_value(row.highest, 0, row.size)

    def _save_older(self, log: LogId, older: array[int], at: int) -> None:
        key = self._key(log, older[at], older[at + _PARTITION])
        self._to_save[key] = keys.directory_value(older[at + _HIGHEST], 0, older[at + _SIZE])

    @staticmethod
    def _key(log: LogId, first: int, partition: int) -> bytes:
        return keys.directory_key(log, first, partition)
