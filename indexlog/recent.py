"""The newest records of one raw log, by index: what readers of a tail ask for again and again, in bounded memory."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Final

from indexlog.effects import RawRange
from indexlog.records import peek_index

RECORD_BYTES: Final = 200
"""What a record takes besides its payload, about."""


class RecentRecords:
    """Records from `first` on, up to what was read so far; the oldest ones go when there are too many."""

    def __init__(self, first: int, bytes_max: int) -> None:
        """
        Args:
            first: the LSN at which reading begins.
            bytes_max: of payloads, with `RECORD_BYTES` for each.
        """
        self.first = first
        """All records of this LSN and later ones, up to `next`, are here."""
        self.next = first
        """The first LSN that was not read yet."""
        self.size = 0
        """Bytes that are taken."""
        self._bytes_max = bytes_max
        self._order: deque[tuple[int, str, int]] = deque()
        self._of_index: defaultdict[str, deque[tuple[int, bytes]]] = defaultdict(deque)

    def add(self, lsn: int, payload: bytes | None) -> str | None:
        """The next record; of which index it is, None: it is no modification, and is passed over. `advance` makes it visible."""
        index = None if payload is None else peek_index(payload)
        if index is None or payload is None:
            return None
        size = len(payload) + RECORD_BYTES
        self._order.append((lsn, index, size))
        self._of_index[index].append((lsn, payload))
        self.size += size
        while self.size > self._bytes_max:
            self._forget_entry()
        return index

    def advance(self, following: int) -> None:
        """All before an LSN was read."""
        self.next = max(self.next, following)

    def restart(self, first: int) -> None:
        """Records before an LSN cannot be had any more: forget all, and go on there."""
        self._order.clear()
        self._of_index.clear()
        self.size = 0
        self.first = self.next = first

    def _forget_entry(self) -> None:
        """Whole entries go: who asks for an LSN gets all of its records."""
        lsn = self._order[0][0]
        while self._order and self._order[0][0] == lsn:
            _, index, size = self._order.popleft()
            self.size -= size
            of_index = self._of_index[index]
            of_index.popleft()
            if not of_index:
                del self._of_index[index]
        self.first = max(self.first, lsn + 1)  # after a restart what goes may be older than a loss

    def take(self, index: str, start: int, until: int, bytes_max: int) -> RawRange | None:
        """The records of an index in [start, until], as `ReadRange`; None: some of that range are not here."""
        if start < self.first or until >= self.next:
            return None
        newest_first: list[tuple[int, bytes]] = []
        for each in reversed(self._of_index.get(index, ())):
            if each[0] < start:
                break
            if each[0] <= until:
                newest_first.append(each)
        found: list[tuple[int, bytes | None]] = []
        size = 0
        for lsn, payload in reversed(newest_first):
            if size > bytes_max and found[-1][0] < lsn:
                return RawRange(lsn - 1, found)
            found.append((lsn, payload))
            size += len(payload)
        return RawRange(until, found)

    def has_since(self, index: str, start: int) -> bool:
        """Whether there is a record of an index at an LSN or later, as far as is known: what is not here any more may have been one."""
        of_index = self._of_index.get(index)
        return start < self.first or (of_index is not None and of_index[-1][0] >= start)
