"""The clocks of one simulated machine."""

from __future__ import annotations

from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.simulation.scheduler import Scheduler

WALL_AT_START = 1_767_225_600_000_000
"""The true time when a run begins, Unix UTC microseconds."""


class SimClock:
    """A monotonic clock that may run fast or slow, and a wall clock that may be wrong and jump."""

    __slots__ = ("_offset", "_rate_ppm", "_scheduler", "skew")

    def __init__(self, scheduler: Scheduler, *, offset: int = 0, rate_ppm: int = 0, skew: int = 0) -> None:
        """
        Args:
            scheduler: true time.
            offset: what the monotonic clock shows when the run begins.
            rate_ppm: by how many millionths the monotonic clock is fast.
            skew: by how much the wall clock is ahead, in microseconds.
        """
        self._scheduler = scheduler
        self._offset = offset
        self._rate_ppm = rate_ppm
        self.skew = skew

    def monotonic(self) -> Micros:
        """The monotonic clock."""
        now = self._scheduler.now
        return Micros(self._offset + now + now * self._rate_ppm // 1_000_000)

    def true_time(self, deadline: int) -> int:
        """About when the monotonic clock shows `deadline`; never too late by more than a microsecond."""
        return (deadline - self._offset) * 1_000_000 // (1_000_000 + self._rate_ppm) + 1

    def wall(self) -> Timestamp:
        """The wall clock."""
        return Timestamp(WALL_AT_START + self._scheduler.now + self.skew)
