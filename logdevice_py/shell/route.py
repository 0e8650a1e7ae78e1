"""How a node is reached: what waits for it while it is dialled, and when it may be dialled again."""

from __future__ import annotations

from collections.abc import Iterator

from logdevice_py.core.machine import Rng, backoff
from logdevice_py.core.units import Micros


class PeerRoute:
    """The way to one node while there is no connection to it."""

    __slots__ = ("_not_before", "_pauses", "waiting", "waiting_bytes")

    def __init__(self) -> None:
        self.waiting: list[list[bytes]] = []
        """Frames, each in pieces."""
        self.waiting_bytes = 0
        self._pauses: Iterator[int] | None = None
        self._not_before = 0

    def pausing(self, now: Micros) -> bool:
        """A dial failed a moment ago, and the loss was reported then: a message is dropped without being reported."""
        return now < self._not_before

    def wait(self, frame: list[bytes]) -> int:
        """Keep a frame for the connection; returns its bytes."""
        size = sum(map(len, frame))
        self.waiting.append(frame)
        self.waiting_bytes += size
        return size

    def take(self) -> list[list[bytes]]:
        """What waits, which waits no longer: it is sent or dropped."""
        waiting, self.waiting = self.waiting, []
        self.waiting_bytes = 0
        return waiting

    def failed(self, now: Micros, rng: Rng, *, pause_min: int, pause_max: int) -> None:
        """A dial failed: the next one is tried after a pause, which grows with each failure."""
        if self._pauses is None:
            self._pauses = backoff(rng, initial_us=pause_min, max_us=pause_max)
        self._not_before = now + next(self._pauses)

    def connected(self) -> None:
        """A dial succeeded: the next pause is short again."""
        self._pauses, self._not_before = None, 0
