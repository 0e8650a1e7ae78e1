"""Entries that came before their turn."""

from __future__ import annotations

import heapq

from client.read.metrics import ReadMetrics
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
    """Entries above the next LSN to deliver, at most one copy of each, by LSN. Copies count as held by their sender until they are let go."""

    __slots__ = ("_by_lsn", "_heap", "_metrics")

    def __init__(self, metrics: ReadMetrics) -> None:
        self._by_lsn: dict[int, Buffered] = {}
        self._heap: list[int] = []
        self._metrics = metrics

    def __len__(self) -> int:
        return len(self._by_lsn)

    @property
    def image_bytes(self) -> int:
        """Of all copies."""
        return sum(len(copy.image) for copy in self._by_lsn.values())

    def get(self, lsn: int) -> Buffered | None:
        """The copy at an LSN."""
        return self._by_lsn.get(lsn)

    def hold(self, header: EntryHeader, image: bytes, sender: Sender) -> Buffered:
        """A copy that came; it is held, here or elsewhere."""
        size = len(image)
        sender.held += size
        self._metrics.bytes_buffered += size
        return Buffered(header, image, sender)

    def let_go(self, copy: Buffered) -> None:
        """The copy is held no more."""
        size = len(copy.image)
        copy.sender.held -= size
        self._metrics.bytes_buffered -= size

    def put(self, lsn: Lsn, copy: Buffered) -> bool:
        """Keep a copy; True when it replaces another one."""
        replaced = self._by_lsn.get(lsn)
        self._by_lsn[lsn] = copy
        if replaced is None:
            heapq.heappush(self._heap, lsn)
            return False
        self.let_go(replaced)
        return True

    def pop(self, lsn: Lsn) -> Buffered | None:
        """Take the copy at an LSN out."""
        return self._by_lsn.pop(lsn, None)

    def first(self) -> Lsn | None:
        """The lowest LSN that holds a copy."""
        heap, by_lsn = self._heap, self._by_lsn
        while heap and heap[0] not in by_lsn:
            heapq.heappop(heap)
        return Lsn(heap[0]) if heap else None

    def drop_below(self, lsn: int) -> None:
        """Let every copy below an LSN go."""
        while (first := self.first()) is not None and first < lsn:
            self.let_go(self._by_lsn.pop(first))

    def clear(self) -> None:
        """Let every copy go."""
        for copy in self._by_lsn.values():
            self.let_go(copy)
        self._by_lsn.clear()
        self._heap.clear()
