"""How long recovery waits for shards that it could do without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdevice_py.core.machine import Timer
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FMajority
from sequencer.recovery.context import RecoveryContext

_LONGEST: Final = 5
"""Times `grace_period_us`, where answers take long because much is asked for."""


class Grace:
    """Gives stragglers their time, once for each degree of what is known. Where entries may be lost for ever they get more of it.

    They get as long again as the others took, for that is how far away shards are, or how busy; at least `grace_period_us`, and at most five times that.
    `on_over` is called when a time is over.
    """

    def __init__(self, context: RecoveryContext, on_over: Callable[[Micros], None]) -> None:
        self._context = context
        self._on_over = on_over
        self._timers: dict[FMajority, Timer] = {}
        self._asked_at = Micros(0)

    def start(self, now: Micros) -> None:
        """All are asked from now on."""
        self._asked_at = now

    def is_over(self, result: FMajority, now: Micros) -> bool:
        """Whether they had it. The first call begins it."""
        timer = self._timers.get(result)
        if timer is None:
            settings = self._context.settings
            lossy = result is FMajority.NON_AUTHORITATIVE
            least = settings.grace_period_us
            delay = settings.phase_timeout_us if lossy else min(max(least, now - self._asked_at), _LONGEST * least)
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
