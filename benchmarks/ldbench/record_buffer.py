"""Records between a client library that delivers them one way or another and a harness that takes them in batches."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from benchmarks.ldbench.engine import EngineError


class RecordBuffer:
    """Records in the order in which they were put. All calls are made on the loop's thread."""

    def __init__(self) -> None:
        self._batches: deque[Sequence[bytes]] = deque()
        self._taken = 0
        self._failure: str | None = None
        self._arrived = asyncio.Event()

    def put(self, records: Sequence[bytes]) -> None:
        """A batch more; not empty, and kept as it is."""
        self._batches.append(records)
        self._arrived.set()

    def fail(self, why: str) -> None:
        """Nothing follows: `take` raises when the buffer is empty."""
        self._failure = self._failure or why
        self._arrived.set()

    async def take(self, count: int) -> tuple[Sequence[bytes], int]:
        """The next records, at least one, at most `count`, and how many batches are used up by it. A cancelled call takes none.

        Raises:
            EngineError: there are none and `fail` was called.
        """
        while not self._batches:
            if self._failure is not None:
                raise EngineError(self._failure)
            self._arrived.clear()
            await self._arrived.wait()
        if self._taken == 0 and len(self._batches) == 1 and len(self._batches[0]) <= count:
            return self._batches.popleft(), 1
        taken: list[bytes] = []
        used = 0
        while self._batches and len(taken) < count:
            batch = self._batches[0]
            end = self._taken + count - len(taken)
            taken += batch[self._taken : end]
            if end < len(batch):
                self._taken = end
                break
            self._batches.popleft()
            self._taken = 0
            used += 1
        return taken, used
