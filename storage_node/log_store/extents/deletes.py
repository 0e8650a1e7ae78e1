"""What was deleted of the logs of a store in extents.

A delete hides rows of earlier blocks, and lasts as long as its partition. A log from which entries were taken one by one has thousands: they are found by
bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from storage_node.log_store.extents.rows import RANK_BITS


class DeletedRanges:
    """What was deleted of one log in one partition: ranges that do not overlap, each with the last block that deleted it. It never changes."""

    __slots__ = ("_blocks", "_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int, int]] = ()) -> None:
        """
        Args:
            ranges: (first lsn, last lsn, block), ascending.
        """
        kept = list(ranges)
        self._firsts = [each[0] for each in kept]
        self._lasts = [each[1] for each in kept]
        self._blocks = [each[2] for each in kept]

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(first lsn, last lsn, block), ascending."""
        return zip(self._firsts, self._lasts, self._blocks, strict=True)

    def with_range(self, first: int, last: int, block: int) -> DeletedRanges:
        """The same and one more range."""
        begin, end = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        put: list[tuple[int, int, int]] = []
        at = first
        for low, high, held in zip(
            self._firsts[begin:end], self._lasts[begin:end], self._blocks[begin:end], strict=True
        ):
            if low < first:
                put.append((low, first - 1, held))
            if held > block:
                # blocks of indexes that were made anew come late
                if at < low:
                    put.append((at, low - 1, block))
                put.append((max(low, first), min(high, last), held))
                at = min(high, last) + 1
            if high > last:
                if at <= last:
                    put.append((at, last, block))
                    at = last + 1
                put.append((last + 1, high, held))
        if at <= last:
            put.append((at, last, block))
        made = DeletedRanges()
        made._firsts = [*self._firsts[:begin], *(each[0] for each in put), *self._firsts[end:]]
        made._lasts = [*self._lasts[:begin], *(each[1] for each in put), *self._lasts[end:]]
        made._blocks = [*self._blocks[:begin], *(each[2] for each in put), *self._blocks[end:]]
        return made

    def hide(self, key: int, block: int) -> bool:
        """Whether a row of a block is deleted."""
        lsn = key >> RANK_BITS
        at = bisect_right(self._firsts, lsn) - 1
        return at >= 0 and lsn <= self._lasts[at] and block < self._blocks[at]


_NOTHING_DELETED: Final = DeletedRanges()


class Deletes:
    """What was deleted, by log and partition."""

    def __init__(self) -> None:
        self._ranges: dict[tuple[int, int], DeletedRanges] = {}

    def add(self, log: int, first: int, last: int, block: int, partition: int) -> None:
        """Hide the rows of a range that earlier blocks wrote."""
        self._ranges[log, partition] = self.of(log, partition).with_range(first, last, block)

    def of(self, log: int, partition: int) -> DeletedRanges:
        """What was deleted of a log in a partition."""
        return self._ranges.get((log, partition), _NOTHING_DELETED)

    def logs(self) -> set[int]:
        """Those of which something was deleted."""
        return {log for log, _ in self._ranges}

    def of_partition(self, partition: int) -> dict[int, DeletedRanges]:
        """What was deleted so far in a partition, by log, for another thread: ranges are replaced, never changed."""
        return {log: ranges for (log, of), ranges in self._ranges.items() if of == partition}

    def drop_partitions(self, dropped: set[int]) -> None:
        """All that these partitions hold is gone."""
        self._ranges = {at: ranges for at, ranges in self._ranges.items() if at[1] not in dropped}

    def drop_through(self, partition: int, block: int) -> None:
        """A table holds what these deletes left."""
        for log, ranges in self.of_partition(partition).items():
            kept = DeletedRanges(each for each in ranges if each[2] > block)
            if len(kept):
                self._ranges[log, partition] = kept
            else:
                del self._ranges[log, partition]
