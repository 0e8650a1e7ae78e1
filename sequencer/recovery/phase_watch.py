"""Notices that an attempt to recover an epoch gets stuck."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.machine import Timer
from logdevice_py.core.units import Micros
from sequencer.recovery.context import RecoveryContext


class PhaseWatch:
    """Calls `on_stuck` when no progress was made for the time that the settings say.

    Each attempt that got stuck doubles the time that the next ones have. With a constant one an epoch would never be recovered over a network on
    which an entry takes longer to be stored than that: each attempt would time out before its last answer.
    """

    def __init__(self, context: RecoveryContext, on_stuck: Callable[[Micros], None]) -> None:
        self._context = context
        self._on_stuck = on_stuck
        self._timeout_us = context.settings.phase_timeout_us
        self._progress_at = Micros(0)
        self._timer: Timer | None = None

    def begin(self, now: Micros) -> None:
        """An attempt begins."""
        self._progress_at = now
        self._timer = self._context.timers.at(now + self._timeout_us, self._on_timer)

    def progress(self, now: Micros) -> None:
        """It got further."""
        self._progress_at = now

    def stop(self) -> None:
        """It is over. Harmless when there is none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self, now: Micros) -> None:
        deadline = self._progress_at + self._timeout_us
        if now < deadline:
            self._timer = self._context.timers.at(deadline, self._on_timer)
        else:
            settings = self._context.settings
            self._timeout_us = max(self._timeout_us, min(2 * self._timeout_us, settings.phase_timeout_max_us))
            self._on_stuck(now)
