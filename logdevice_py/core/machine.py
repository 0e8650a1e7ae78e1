"""The seams of protocol machines.

A machine is a plain class: events come in by method with ``now``, effects go out through the `Outbox` that it was given, time comes
from the `TimerQueue` that it was given, randomness from its `Rng`. Nothing in a machine waits, reads a clock or touches a socket or a
disk, so production and simulation run the very same objects.

Rules:
  - Effects are data. A machine never learns within a call whether an effect worked; the outcome is an event later.
  - Every asynchronous effect carries a token chosen by its sender; an outcome whose token is not awaited is ignored.
  - Messages to one peer leave in the order in which they were put out, and so are the effects of each other kind run. Between kinds there is no
    order: what must follow another effect waits for its outcome.
  - Sets are iterated through ``sorted()`` wherever the order can be seen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from logdevice_py.core.ids import PeerId
from logdevice_py.core.units import Micros


class Rng(Protocol):
    """The part of `random.Random` that machines use."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...

    def shuffle(self, x: list[Any], /) -> None: ...


class Machine(Protocol):
    """A pure root: the object that a process runs, in production and in simulation."""

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None: ...

    def on_peer_up(self, peer: PeerId, now: Micros) -> None: ...

    def on_peer_down(self, peer: PeerId, now: Micros, *, refused: bool) -> None: ...

    def on_turn_end(self, now: Micros) -> None: ...


@dataclass(slots=True)
class Send:
    """Deliver `message` (an instance of a class declared in `logdevice_py.protocol.messages`) to `to`.

    Messages to one peer arrive in order or not at all; loss shows as `on_peer_down`. A message to the own node is delivered at the next
    turn, without being encoded.
    """

    to: PeerId
    message: Any
    deferrable: bool = False
    """Nobody waits for it urgently: it may wait a moment for another message to the same node and leave in the same write."""


class Outbox:
    """Where machines put their effects, in order, until the shell takes them at the end of the turn."""

    __slots__ = ("effects",)

    def __init__(self) -> None:
        self.effects: list[Any] = []

    def send(self, to: PeerId, message: Any) -> None:
        """Put out a message."""
        self.effects.append(Send(to, message))

    def send_deferrable(self, to: PeerId, message: Any) -> None:
        """Put out a message that nobody waits for urgently."""
        self.effects.append(Send(to, message, True))

    def emit(self, effect: Any) -> None:
        """Put out an effect of a kind that the machine's package declares."""
        self.effects.append(effect)

    def take(self) -> list[Any]:
        """All effects since the last call, in order."""
        effects = self.effects
        self.effects = []
        return effects


class Timer:
    """A pending call of a `TimerQueue`."""

    __slots__ = ("_handler", "deadline")

    def __init__(self, deadline: Micros, handler: Callable[[Micros], None]) -> None:
        self.deadline = deadline
        self._handler: Callable[[Micros], None] | None = handler

    @property
    def pending(self) -> bool:
        """Neither fired nor cancelled."""
        return self._handler is not None

    def cancel(self) -> None:
        """Do not fire. Harmless when it has fired or was cancelled before."""
        self._handler = None

    def _fire(self, now: Micros) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            handler(now)


class TimerQueue:
    """All timers of one node or client, in one heap.

    Timers fire in order of deadline, those of the same deadline in order of creation. A handler may set further timers; one that is
    already due fires within the same `advance`.
    """

    __slots__ = ("_heap", "_serial")

    def __init__(self) -> None:
        self._heap: list[tuple[Micros, int, Timer]] = []
        self._serial = 0

    def at(self, deadline: int, handler: Callable[[Micros], None]) -> Timer:
        """Call ``handler(now)`` once, at the first `advance` with ``now >= deadline``."""
        timer = Timer(Micros(deadline), handler)
        self._serial += 1
        heapq.heappush(self._heap, (timer.deadline, self._serial, timer))
        return timer

    def next_deadline(self) -> Micros | None:
        """When `advance` should be called next; None when nothing is pending."""
        heap = self._heap
        while heap and not heap[0][2].pending:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def advance(self, now: Micros) -> None:
        """Fire everything that is due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            heapq.heappop(heap)[2]._fire(now)


def backoff(rng: Rng, *, initial_us: int, max_us: int, factor: float = 2.0, jitter: float = 0.25) -> Iterator[int]:
    """Endless delays in microseconds: capped exponential growth, each stretched by up to `jitter` at random."""
    delay = float(initial_us)
    while True:
        yield int(delay + delay * jitter * rng.random())
        delay = min(delay * factor, float(max_us))
