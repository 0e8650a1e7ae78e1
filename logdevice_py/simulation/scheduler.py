"""Virtual time: a heap of things to do."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Scheduled:
    """Something that will be done; it can be called off."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Do not do it. Harmless when it was done or called off before."""
        self.action = None


class Scheduler:
    """Runs actions in order of time, those of the same time in the order in which they were scheduled."""

    __slots__ = ("_heap", "_serial", "events", "now")

    def __init__(self) -> None:
        self.now = 0
        """Microseconds since the run began."""
        self.events = 0
        """How many actions were run."""
        self._heap: list[tuple[int, int, Scheduled]] = []
        self._serial = 0

    def at(self, when: int, action: Callable[[], None]) -> Scheduled:
        """Run an action at a time; at once, but after this action, when that has passed."""
        scheduled = Scheduled(action)
        self._serial += 1
        heapq.heappush(self._heap, (max(when, self.now), self._serial, scheduled))
        return scheduled

    def after(self, delay: int, action: Callable[[], None]) -> Scheduled:
        """Run an action some microseconds from this moment."""
        return self.at(self.now + delay, action)

    def run_until(self, until: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run what is due up to a time, inclusive; True when `stop`, asked after each action, ended it before."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, scheduled = heapq.heappop(heap)
            action, scheduled.action = scheduled.action, None
            if action is None:
                continue
            self.now = when
            self.events += 1
            action()
            if stop is not None and stop():
                return True
        self.now = max(self.now, until)
        return False
