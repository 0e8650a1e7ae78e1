"""Recent entries of a shard, in memory: what tailing readers and the digests of unclean epochs are served from.

A log's part holds *every* entry stored at or above its `complete_from`, so an LSN from there on that is not in it is not stored. Entries
enter when their write is answered, never before: a digest must not show a copy that the disk may refuse. Memory is bounded per shard; the
entry that came first goes first and takes all lower ones of its log with it.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from typing import Final

from logdevice_py.core.entry import EntryFlags, encode_entry, header_size, merged_header, parse_header
from logdevice_py.core.lsn import Lsn
from storage_node.metrics import StorageMetrics

_FLAGS_AND_WAVE: Final = struct.Struct(">HI")
_FLAGS_AT: Final = 2
_AMEND: Final = int(EntryFlags.AMEND)
_BY_RECOVERY: Final = int(EntryFlags.WRITTEN_BY_RECOVERY)
ENTRY_OVERHEAD: Final = 200
"""Bytes of memory that an entry takes beside its image, roughly."""


class RecentLogEntries:
    """The part of one log."""

    __slots__ = ("_head", "complete_from", "images", "lsns")

    def __init__(self, complete_from: Lsn) -> None:
        self.complete_from = complete_from
        self.lsns: list[Lsn] = []
        """Ascending from `_head`; what is before it is garbage, removed now and then."""
        self.images: dict[Lsn, bytes] = {}
        self._head = 0

    def between(self, first: Lsn, last: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        """The entries of [first, last] in order. `first` must not be below `complete_from`; entries must not change meanwhile."""
        assert first >= self.complete_from, (first, self.complete_from)
        lsns, images = self.lsns, self.images
        for at in range(bisect_left(lsns, first, self._head), len(lsns)):
            lsn = lsns[at]
            if lsn > last:
                return
            yield lsn, images[lsn]

    def last_in(self, first: Lsn, last: Lsn) -> bytes | None:
        """The entry at the greatest LSN of [first, last]; `first` must not be below `complete_from`."""
        assert first >= self.complete_from, (first, self.complete_from)
        at = bisect_right(self.lsns, last, self._head) - 1
        if at < self._head or self.lsns[at] < first:
            return None
        return self.images[self.lsns[at]]

    def insert(self, lsn: Lsn, image: bytes) -> None:
        """Add an LSN that is not in yet."""
        lsns = self.lsns
        if not lsns or lsn > lsns[-1]:
            lsns.append(lsn)
        else:
            insort(lsns, lsn, self._head)
        self.images[lsn] = image

    def drop_until(self, last: Lsn) -> int:
        """Forget everything up to and including `last`; returns the bytes that are free then."""
        self.complete_from = max(self.complete_from, Lsn(last + 1))
        lsns, head, freed = self.lsns, self._head, 0
        while head < len(lsns) and lsns[head] <= last:
            freed += len(self.images.pop(lsns[head])) + ENTRY_OVERHEAD
            head += 1
        if head > 64 and head * 2 > len(lsns):
            del lsns[:head]
            head = 0
        self._head = head
        if head == len(lsns):
            lsns.clear()
            self._head = 0
        return freed

    def remove(self, first: Lsn, last: Lsn) -> int:
        """Take out the entries of [first, last], which were deleted from the disk; returns the bytes that are free then."""
        lsns = self.lsns
        lo, hi = bisect_left(lsns, first, self._head), bisect_right(lsns, last, self._head)
        freed = sum(len(self.images.pop(lsn)) + ENTRY_OVERHEAD for lsn in lsns[lo:hi])
        del lsns[lo:hi]
        return freed


class RecentEntries:
    """The parts of all logs of a shard, under one limit."""

    __slots__ = ("_bytes", "_bytes_max", "_metrics", "_order")

    def __init__(self, bytes_max: int, metrics: StorageMetrics) -> None:
        self._bytes_max = bytes_max
        self._metrics = metrics
        self._bytes = 0
        self._order: deque[tuple[RecentLogEntries, Lsn]] = deque()

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._bytes

    def add(self, log: RecentLogEntries, lsn: Lsn, image: bytes) -> None:
        """Take in a copy that was written. A copy of lower rank than the one held changes nothing."""
        if lsn < log.complete_from:
            return
        held = log.images.get(lsn)
        if held is None:
            if image[_FLAGS_AT + 1] & _AMEND:
                # Without the body that it speaks for, the entry cannot be served from here.
                self._account(-log.drop_until(lsn))
                return
            log.insert(lsn, image)
            self._order.append((log, lsn))
            self._account(len(image) + ENTRY_OVERHEAD)
        else:
            merged = merge_copies(held, image)
            log.images[lsn] = merged
            self._account(len(merged) - len(held))
        while self._bytes > self._bytes_max and self._order:
            oldest, at = self._order.popleft()
            if at in oldest.images:
                self._account(-oldest.drop_until(at))

    def drop_until(self, log: RecentLogEntries, last: Lsn) -> None:
        """Forget what is trimmed."""
        self._account(-log.drop_until(last))

    def remove(self, log: RecentLogEntries, first: Lsn, last: Lsn) -> None:
        """Take out what was purged."""
        self._account(-log.remove(first, last))

    def _account(self, change: int) -> None:
        self._bytes += change
        self._metrics.recent_entries_bytes += change


def merge_copies(held: bytes, other: bytes) -> bytes:
    """The copy that counts of two of the same LSN, of which the first has its body."""
    flags, wave = _FLAGS_AND_WAVE.unpack_from(held, _FLAGS_AT)
    other_flags, other_wave = _FLAGS_AND_WAVE.unpack_from(other, _FLAGS_AT)
    if (other_flags & _BY_RECOVERY, other_wave) < (flags & _BY_RECOVERY, wave):
        return held
    if not other_flags & _AMEND:
        return other
    header = parse_header(other)
    return encode_entry(merged_header(header), held[header_size(held) :])
