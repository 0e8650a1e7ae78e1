"""How long recovery waits for shards that it could do without."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.machine import Timer
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FMajority
from sequencer.recovery.context import RecoveryContext


class Grace:
    """Gives stragglers their time, once for each degree of what is known. Where entries may be lost for ever they get more of it.

    `on_over` is called when a time is over.
    """

    def __init__(self, context: RecoveryContext, on_over: Callable[[Micros], None]) -> None:
        self._context = context
        self._on_over = on_over
        self._timers: dict[FMajority, Timer] = {}

    def is_over(self, result: FMajority, now: Micros) -> bool:
        """Whether they had it. The first call begins it."""
        timer = self._timers.get(result)
        if timer is None:
            settings = self._context.settings
            lossy = result is FMajority.NON_AUTHORITATIVE
            delay = settings.phase_timeout_us if lossy else settings.grace_period_us
            self._timers[result] = self._context.timers.at(now + delay, self._on_over)
            return False
        return not timer.pending

    @property
    def runs(self) -> bool:
        """Somebody is being waited for, and not for ever."""
        return any(timer.pending for timer in self._timers.values())

    def cancel(self) -> None:
        """Begin anew next time."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers = {}
