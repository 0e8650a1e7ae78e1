"""How long a wave of STOREs may take, and who wakes appenders whose wave took longer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from logdevice_py.core.ids import ShardId
from logdevice_py.core.machine import TimerWheel
from logdevice_py.core.units import Micros
from sequencer.settings import SequencerSettings

_BUCKETS: Final = 160
"""Four to each power of two: a timeout is at most a quarter longer than the latency that it follows says."""
_REFRESH_US: Final = 1_000_000
_REFRESHES_PER_WINDOW: Final = 10
_TICK_SHIFT: Final = 12
"""Timers of appenders are rounded up to ticks of 4,096 microseconds: one list append an entry, one timer a tick."""


class StoreTimeouts:
    """Recent latency of STOREs by shard, over the last 10 to 20 seconds."""

    __slots__ = ("_current", "_previous", "_refreshes", "_settings", "_timeouts", "_timers", "_waiting")

    def __init__(self, settings: SequencerSettings, timers: TimerWheel) -> None:
        self._settings = settings
        self._timers = timers
        self._current: dict[ShardId, list[int]] = {}
        self._previous: dict[ShardId, list[int]] = {}
        self._timeouts: dict[ShardId, int] = {}
        self._refreshes = 0
        self._waiting = False

    def note(self, shard: ShardId, latency_us: int, now: Micros) -> None:
        """A STORE was answered, or had not been after this long."""
        counts = self._current.get(shard)
        if counts is None:
            counts = self._current[shard] = [0] * _BUCKETS
            if not self._waiting:
                self._waiting = True
                self._timers.at(now + _REFRESH_US, self._refresh)
        shift = max(0, latency_us.bit_length() - 3)
        counts[4 * shift + (latency_us >> shift)] += 1

    def timeout(self, copyset: Sequence[ShardId], wave: int) -> int:
        """Microseconds that wave number `wave`, from 1, may take."""
        initial = self._settings.store_timeout_initial_us
        known = self._timeouts
        base = 0
        for shard in copyset:
            timeout = known.get(shard, initial)
            if timeout > base:
                base = timeout
        return min((base or initial) << min(wave - 1, 20), self._settings.store_timeout_max_us)

    def _refresh(self, now: Micros) -> None:
        settings = self._settings
        for shard in sorted(self._current.keys() | self._previous.keys()):
            counts = _sum(self._current.get(shard), self._previous.get(shard))
            if any(counts):
                timeout = min(
                    _latency(counts, 0.01) * settings.store_timeout_factor,
                    _latency(counts, 0.5) * settings.store_timeout_medians,
                )
                self._timeouts[shard] = min(max(timeout, settings.store_timeout_min_us), settings.store_timeout_max_us)
        self._refreshes += 1
        if self._refreshes % _REFRESHES_PER_WINDOW == 0:
            self._previous, self._current = self._current, {}
        self._waiting = bool(self._current)
        if self._waiting:
            self._timers.at(now + _REFRESH_US, self._refresh)


def _sum(current: list[int] | None, previous: list[int] | None) -> list[int]:
    return [a + b for a, b in zip(current or [0] * _BUCKETS, previous or [0] * _BUCKETS, strict=True)]


def _latency(counts: list[int], share: float) -> int:
    """Microseconds that this share of the samples took longer than; rounded up by a quarter at most."""
    beyond = int(sum(counts) * share)
    for bucket in range(_BUCKETS - 1, -1, -1):
        if counts[bucket] > beyond:
            return bucket + 1 if bucket < 8 else (bucket % 4 + 5) << (bucket // 4 - 1)
        beyond -= counts[bucket]
    raise AssertionError("a histogram with samples has a latency")


class Waiting(Protocol):
    """What `StoreTimers` wakes."""

    deadline: int
    """When to wake it; 0: not at all."""

    def on_timeout(self, now: Micros) -> None:
        """The deadline has passed."""


class StoreTimers:
    """Deadlines of all appenders of a node. Nothing is cancelled: an appender whose deadline moved or went is passed over."""

    __slots__ = ("_ticks", "_timers")

    def __init__(self, timers: TimerWheel) -> None:
        self._timers = timers
        self._ticks: dict[int, list[Waiting]] = {}

    def add(self, waiting: Waiting) -> None:
        """Wake it at its `deadline`, or up to 4 ms later."""
        number = (waiting.deadline >> _TICK_SHIFT) + 1
        tick = self._ticks.get(number)
        if tick is None:
            tick = self._ticks[number] = []
            self._timers.at(number << _TICK_SHIFT, partial(self._on_tick, number))
        tick.append(waiting)

    def _on_tick(self, number: int, now: Micros) -> None:
        for waiting in self._ticks.pop(number):
            if 0 < waiting.deadline <= now:
                waiting.on_timeout(now)
