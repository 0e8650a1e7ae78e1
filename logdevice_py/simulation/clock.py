"""The clocks of one simulated machine."""

from __future__ import annotations

from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.simulation.scheduler import Scheduler

WALL_AT_START = 1_767_225_600_000_000
"""The true time when a run begins, Unix UTC microseconds."""


class SimClock:
    """A monotonic clock that may run fast or slow, and a wall clock that may be wrong and jump."""

    __slots__ = ("_base", "_base_shown", "_rate_ppm", "_scheduler", "skew")

    def __init__(self, scheduler: Scheduler, *, offset: int = 0, rate_ppm: int = 0, skew: int = 0) -> None:
        """
        Args:
            scheduler: true time.
            offset: what the monotonic clock shows when the run begins.
            rate_ppm: by how many millionths the monotonic clock is fast.
            skew: by how much the wall clock is ahead, in microseconds.
        """
        self._scheduler = scheduler
        self._base = 0
        self._base_shown = offset
        self._rate_ppm = rate_ppm
        self.skew = skew

    @property
    def rate_ppm(self) -> int:
        """By how many millionths the monotonic clock is fast."""
        return self._rate_ppm

    def set_rate(self, rate_ppm: int) -> None:
        """Let the monotonic clock run at another rate from this moment on."""
        shown = self.monotonic()
        self._base, self._base_shown, self._rate_ppm = self._scheduler.now, shown, rate_ppm

    def monotonic(self) -> Micros:
        """The monotonic clock."""
        passed = self._scheduler.now - self._base
        return self._base_shown + passed + passed * self._rate_ppm // 1_000_000  # type: ignore[return-value]

    def true_time(self, deadline: int) -> int:
        """About when the monotonic clock shows `deadline`, at its present rate; never too late by more than a microsecond."""
        return self._base + (deadline - self._base_shown) * 1_000_000 // (1_000_000 + self._rate_ppm) + 1

    def wall(self) -> Timestamp:
        """The wall clock."""
        return Timestamp(WALL_AT_START + self._scheduler.now + self.skew)
