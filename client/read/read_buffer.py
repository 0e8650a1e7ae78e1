"""Entries that came before their turn."""

from __future__ import annotations

import heapq

from client.read.sender_state import Sender
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.lsn import Lsn


class Buffered:
    """A verified copy of an entry, and who sent it."""

    __slots__ = ("header", "image", "sender")

    def __init__(self, header: EntryHeader, image: bytes, sender: Sender) -> None:
        self.header = header
        self.image = image
        self.sender = sender


class ReadBuffer:
    """Entries above the next LSN to deliver, at most one copy of each, by LSN."""

    __slots__ = ("_by_lsn", "_heap")

    def __init__(self) -> None:
        self._by_lsn: dict[int, Buffered] = {}
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._by_lsn)

    def get(self, lsn: int) -> Buffered | None:
        """The copy at an LSN."""
        return self._by_lsn.get(lsn)

    def put(self, lsn: Lsn, copy: Buffered) -> Buffered | None:
        """Keep a copy; the one that it replaces."""
        replaced = self._by_lsn.get(lsn)
        self._by_lsn[lsn] = copy
        if replaced is None:
            heapq.heappush(self._heap, lsn)
        return replaced

    def pop(self, lsn: Lsn) -> Buffered | None:
        """Take the copy at an LSN out."""
        return self._by_lsn.pop(lsn, None)

    def first(self) -> Lsn | None:
        """The lowest LSN that holds a copy."""
        heap, by_lsn = self._heap, self._by_lsn
        while heap and heap[0] not in by_lsn:
            heapq.heappop(heap)
        return Lsn(heap[0]) if heap else None

    def drop_below(self, lsn: int) -> list[Buffered]:
        """Take out every copy below an LSN."""
        dropped = []
        while (first := self.first()) is not None and first < lsn:
            dropped.append(self._by_lsn.pop(first))
        return dropped

    def clear(self) -> list[Buffered]:
        """Take out every copy."""
        dropped = list(self._by_lsn.values())
        self._by_lsn.clear()
        self._heap.clear()
        return dropped
