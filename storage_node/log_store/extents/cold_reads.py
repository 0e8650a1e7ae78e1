"""Reads that wait for the disk do not hold up who executes them: what memory lacks is fetched elsewhere first, and the read is executed again.

Production has threads for that, the simulator its scheduler; both run this very object. Rules:
  1. *No waiting*: a read is executed as far as memory has what it needs. With an entry at least, that is the answer.
  2. *Fetches* bring into memory what the read came upon first and some of what follows there; so many are under way at a time, and the others are
     queued, first come, first served.
  3. *Progress*: a read that came upon something cold `ATTEMPTS_MAX` times, or whose fetch failed, waits for the disk where it is.
  4. *Nothing is lost*: each read is answered, whatever is closed meanwhile. Fetches answer nothing; that files are gone or used again does not matter to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.marks import hit
from storage_node.log_store.extents.disk import ColdReadError, DiskError, File
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard

ATTEMPTS_MAX: Final = 8
_AHEAD_MIN: Final = 2 << 20
_PIECES_AHEAD: Final = 32
"""Of what a reader asks for at a time, in pieces of that size: a donor that asks for little takes its time."""
Read = ReadShard | ReadLast


@dataclass(slots=True)
class DeferredRead:
    """A read that waits for its fetch."""

    request: Read
    file: File
    offset: int
    length: int
    attempts: int
    failed: bool = False

    def fetch(self) -> None:
        """Bring it into memory. In any thread."""
        try:
            self.file.fetch(self.offset, self.length)
        except DiskError:
            self.failed = True


class ColdReads:
    """Of one store. Calls of the store's thread, but for `DeferredRead.fetch`."""

    def __init__(self, store: ExtentLogStore, fetches_max: int, ahead_max: int) -> None:
        """
        Args:
            fetches_max: so many are under way at a time; 0: reads wait for the disk where they are.
            ahead_max: bytes that are fetched at once at most.
        """
        self._store = store
        self._fetches_max = fetches_max
        self._ahead_max = ahead_max
        self._attempts: dict[int, int] = {}
        """By identity of a request that is to be executed again."""
        self._waiting: deque[DeferredRead] = deque()
        self._under_way = 0

    @property
    def pending(self) -> int:
        """Reads that wait for a fetch."""
        return len(self._waiting) + self._under_way

    def execute(self, request: Read, is_late: Callable[[], bool] | None = None) -> ReadResult | None:
        """Execute a read; None: it waits, and comes back from `end`."""
        attempts = self._attempts.pop(id(request), 0)
        nowait = bool(self._fetches_max) and attempts < ATTEMPTS_MAX
        try:
            if isinstance(request, ReadShard):
                return self._store.read(request, is_late, nowait=nowait)
            return self._store.read_last(request, nowait=nowait)
        except ColdReadError as error:
            hit("extents_cold_read")
            length = max(error.length, self._ahead(request))
            self._waiting.append(DeferredRead(request, error.file, error.offset, length, attempts + 1))
            return None

    def _ahead(self, request: Read) -> int:
        if not isinstance(request, ReadShard) or not request.onward:
            return 0
        return min(self._ahead_max, max(_AHEAD_MIN, _PIECES_AHEAD * request.bytes_max))

    def begin(self) -> DeferredRead | None:
        """The next fetch to do; None: there is none, or enough are under way."""
        if not self._waiting or self._under_way >= self._fetches_max:
            return None
        self._under_way += 1
        return self._waiting.popleft()

    def end(self, fetched: DeferredRead) -> Read:
        """A fetch has ended; returns the read, to be executed again."""
        self._under_way -= 1
        self._attempts[id(fetched.request)] = ATTEMPTS_MAX if fetched.failed else fetched.attempts
        return fetched.request
