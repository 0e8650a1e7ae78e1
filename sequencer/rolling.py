"""Rolling: ending an epoch of a log because of its age or size, so that the log is cut into segments.

Three rules:

1. An epoch is rolled only when an entry of it is released: no epoch is empty, and a log whose recovery cannot end keeps the epoch that it has.
2. Appends go on in the old epoch until there is the next one.
3. Few logs of a node roll at the same time, and one that cannot go on holds up the others for `roll_turn_us` at most.
"""

from __future__ import annotations

import enum
from typing import Final, Protocol

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core.machine import Rng, Timer, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.units import SECOND, Micros
from sequencer.metrics import SequencerMetrics
from sequencer.settings import SequencerSettings

_JITTER: Final = 0.1
"""The part of `roll_every` by which an epoch may end earlier."""
_REFUSED_US: Final = 10 * SECOND
"""After this a roll is tried again that the epoch store refused."""


class RollState(MachineState):
    """How far the current epoch is from being rolled."""

    EMPTY = enum.auto()  # nothing was appended to it
    FILLING = enum.auto()  # it is not old and not large enough
    DUE = enum.auto()  # it is; it waits until something of it is released
    QUEUED = enum.auto()  # it waits for others of the node
    ROLLING = enum.auto()  # the epoch store was asked for the next one


_S = RollState
ROLL_TRANSITIONS: Final = transitions(
    {
        _S.EMPTY: (_S.EMPTY, _S.FILLING),
        _S.FILLING: (_S.EMPTY, _S.DUE),
        _S.DUE: (_S.EMPTY, _S.QUEUED),
        _S.QUEUED: (_S.EMPTY, _S.DUE, _S.ROLLING),
        _S.ROLLING: (_S.EMPTY, _S.DUE),
    }
)


class RollOwner(Protocol):
    """The sequencer of the log."""

    attributes: LogAttributes

    @property
    def may_roll(self) -> bool:
        """Something of the current epoch is released, and no other epoch is being got."""

    def activate(self, now: Micros) -> None:
        """Get another epoch."""


class Rolling:
    """The rolling of one log."""

    __slots__ = ("_began", "_earlier", "_owner", "_timer", "_turns", "state")

    def __init__(self, owner: RollOwner, turns: RollTurns) -> None:
        self._owner = owner
        self._turns = turns
        self._began = Micros(0)
        """When the current epoch got its first entry."""
        self._earlier = 0.0
        """The part of `roll_every` by which it ends earlier."""
        self._timer: Timer | None = None
        self.state = RollState.EMPTY

    def _become(self, state: RollState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    def on_epoch(self, now: Micros) -> None:
        """There is another current epoch, still empty. A turn is given back only when it is released."""
        self._end()
        self._turns.leave_queue(self)

    def on_entry(self, size: int, now: Micros) -> None:
        """The current epoch got an entry, and has `size` bytes in all."""
        if self.state is RollState.EMPTY:
            self._become(RollState.FILLING)
            self._began, self._earlier = now, _JITTER * self._turns.rng.random()
            self._arm(now)
        if self.state is RollState.FILLING and 0 < self._owner.attributes.roll_bytes <= size:
            hit("epoch_rolls_by_size")
            self._on_due(now)

    def on_attributes(self, size: int, now: Micros) -> None:
        """The log rolls at another age or size; the current epoch has entries of `size` bytes. What is due already stays due."""
        if self.state is RollState.FILLING:
            self._stop_timer()
            self._arm(now)
        self.on_entry(size, now)

    def _arm(self, now: Micros) -> None:
        every = self._owner.attributes.roll_every
        if every:
            self._timer = self._turns.timers.at(max(now, self._began + int(every * (1 - self._earlier))), self._on_age)

    def _on_age(self, now: Micros) -> None:
        hit("epoch_rolls_by_age")
        self._on_due(now)

    def _on_due(self, now: Micros) -> None:
        self._stop_timer()
        self._become(RollState.DUE)
        self._try(now)

    def _try(self, now: Micros) -> None:
        if self.state is RollState.DUE and self._owner.may_roll:
            self._become(RollState.QUEUED)
            self._turns.queue(self, now)

    def on_released(self, now: Micros) -> None:
        """More of the current epoch is released, perhaps the first of it: the epoch before is recovered."""
        self._turns.give_back(self, now)
        self._try(now)

    def on_turn(self, now: Micros) -> bool:
        """No other log has to be waited for. False: it has not rolled."""
        if not self._owner.may_roll:
            hit("roll_is_late")
            self._become(RollState.DUE)
            return False
        self._become(RollState.ROLLING)
        self._turns.metrics.epochs_rolled += 1
        self._owner.activate(now)
        return True

    def on_refused(self, now: Micros) -> None:
        """The epoch store gives no other epoch, and the current one goes on."""
        self._turns.give_back(self, now)
        if self.state is RollState.ROLLING:
            self._stop_timer()
            self._timer = self._turns.timers.at(now + _REFUSED_US, self._on_refusal_over)

    def _on_refusal_over(self, now: Micros) -> None:
        if self.state is RollState.ROLLING:
            self._become(RollState.DUE)
            self._try(now)

    def stop(self, now: Micros) -> None:
        """There is no current epoch any more, or the log does not roll."""
        self._end()
        self._turns.leave_queue(self)
        self._turns.give_back(self, now)

    def _end(self) -> None:
        self._stop_timer()
        self._become(RollState.EMPTY)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RollTurns:
    """Whose turn it is to roll, of the logs of a node. A turn lasts until the epoch that ended is recovered."""

    __slots__ = ("_queued", "_rolling", "metrics", "rng", "settings", "timers")

    def __init__(self, settings: SequencerSettings, timers: TimerQueue, rng: Rng, metrics: SequencerMetrics) -> None:
        self.settings = settings
        """Those in force."""
        self.timers = timers
        self.rng = rng
        self.metrics = metrics
        self._queued: dict[Rolling, None] = {}
        self._rolling: dict[Rolling, Timer] = {}

    def queue(self, rolling: Rolling, now: Micros) -> None:
        """The log wants to roll."""
        self._queued[rolling] = None
        self._go_on(now)

    def leave_queue(self, rolling: Rolling) -> None:
        """It does not want to any more; harmless when it did not."""
        if rolling in self._queued:
            del self._queued[rolling]
            self._count()

    def give_back(self, rolling: Rolling, now: Micros) -> None:
        """Its roll is over; harmless when there was none."""
        timer = self._rolling.pop(rolling, None)
        if timer is not None:
            timer.cancel()
            self._go_on(now)

    def _go_on(self, now: Micros) -> None:
        while self._queued and len(self._rolling) < self.settings.concurrent_rolls:
            rolling = next(iter(self._queued))
            del self._queued[rolling]

            def over(now: Micros, rolling: Rolling = rolling) -> None:
                hit("roll_turn_is_over")
                self.give_back(rolling, now)

            self._rolling[rolling] = self.timers.at(now + self.settings.roll_turn_us, over)
            if not rolling.on_turn(now):
                self._rolling.pop(rolling).cancel()
        self._count()

    def _count(self) -> None:
        self.metrics.rolls_queued, self.metrics.rolls_under_way = len(self._queued), len(self._rolling)
