"""Virtual time: a heap of things to do."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from sys import maxsize
from typing import Any


class Scheduled:
    """Something that will be done; it can be called off."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not do it. Harmless when it was done or called off before."""
        self.action = None


def _fire(scheduled: Scheduled) -> None:
    action, scheduled.action = scheduled.action, None
    if action is not None:
        action()


class Scheduler:
    """Runs actions in order of time, those of the same time in the order in which they were scheduled."""

    __slots__ = ("_heap", "_serial", "events", "fingerprint", "now")

    def __init__(self) -> None:
        self.now = 0
        """Microseconds since the run began."""
        self.events = 0
        """How many actions were run."""
        self.fingerprint = 0
        """Of the times of all actions so far and of the order in which they were scheduled."""
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._serial = 0

    def post(self, when: int, action: Callable[[Any], None], argument: Any) -> None:
        """Run ``action(argument)`` at a time; at once, but after this action, when that has passed. It cannot be called off."""
        serial = self._serial = self._serial + 1
        heappush(self._heap, (when if when > self.now else self.now, serial, action, argument))

    def at(self, when: int, action: Callable[[], None]) -> Scheduled:
        """Run an action at a time; at once, but after this action, when that has passed."""
        scheduled = Scheduled(action)
        self.post(when, _fire, scheduled)
        return scheduled

    def after(self, delay: int, action: Callable[[], None]) -> Scheduled:
        """Run an action some microseconds from this moment."""
        return self.at(self.now + delay, action)

    def run_until(self, until: int, stop: Callable[[], bool] | None = None, *, events_max: int = maxsize) -> bool:
        """Run what is due up to a time, inclusive; True when something ended it before.

        Args:
            stop: asked after each action.
            events_max: when more actions than this were run since the beginning, that ends it, too.
        """
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, serial, action, argument = heappop(heap)
            self.now = when
            events = self.events = self.events + 1
            # hashes of integers do not depend on the process
            self.fingerprint = hash((self.fingerprint, when, serial))
            action(argument)
            if events > events_max or (stop is not None and stop()):
                return True
        if until > self.now:
            self.now = until
        return False
