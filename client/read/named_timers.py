"""The timers of one stream, by name: at most one of each."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.machine import Timer, TimerQueue
from logdevice_py.core.units import Micros


class NamedTimers:
    """Every timer that fires makes its stream look again at what can be delivered."""

    __slots__ = ("_by_name", "_on_fire", "_timers")

    def __init__(self, timers: TimerQueue, on_fire: Callable[[], None]) -> None:
        self._timers = timers
        self._on_fire = on_fire
        self._by_name: dict[str, Timer] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def set(self, name: str, deadline: int, handler: Callable[[Micros], None] | None = None) -> None:
        """Call the handler, if any, at the deadline; replaces the timer of the same name."""
        self.cancel(name)

        def fire(now: Micros) -> None:
            self._by_name.pop(name, None)
            self._on_fire()
            if handler is not None:
                handler(now)

        self._by_name[name] = self._timers.at(deadline, fire)

    def cancel(self, name: str) -> None:
        """Harmless when there is none."""
        timer = self._by_name.pop(name, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """Nothing fires any more."""
        for name in sorted(self._by_name):
            self.cancel(name)
