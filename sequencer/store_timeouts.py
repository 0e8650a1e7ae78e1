"""How long a wave of STOREs may take, and who wakes appenders whose wave took longer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from logdevice_py.core.histogram import BUCKETS, Histogram, longer_than
from logdevice_py.core.ids import ShardId
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import Micros
from sequencer.settings import SequencerSettings

_REFRESH_US: Final = 1_000_000
_REFRESHES_PER_WINDOW: Final = 10
_TICK_SHIFT: Final = 12
"""Timers of appenders are rounded up to ticks of 4,096 microseconds: one list append an entry, one timer a tick."""


class StoreTimeouts:
    """Recent latency of STOREs by shard, over the last 10 to 20 seconds."""

    __slots__ = (
        "_all",
        "_counted",
        "_current",
        "_previous",
        "_refreshes",
        "_settings",
        "_silent",
        "_timeouts",
        "_timers",
        "_usual",
        "_waiting",
    )

    def __init__(self, settings: SequencerSettings, timers: TimerQueue, everything: Histogram | None = None) -> None:
        """
        Args:
            everything: `count` adds to it what was noted.
        """
        self._settings = settings
        self._all = Histogram() if everything is None else everything
        self._counted: dict[ShardId, list[int]] = {}
        """What of `_current` is counted in it."""
        self._timers = timers
        self._current: dict[ShardId, list[int]] = {}
        self._previous: dict[ShardId, list[int]] = {}
        self._timeouts: dict[ShardId, int] = {}
        self._usual: dict[ShardId, int] = {}
        """The p99 of STOREs."""
        self._silent: dict[ShardId, tuple[Micros, Micros]] = {}
        """Shards that are late with STOREs that need not wait for them: since when they answered nothing, and when that was last seen."""
        self._refreshes = 0
        self._waiting = False

    def use_settings(self, settings: SequencerSettings) -> None:
        """Go on with other settings; what was begun keeps its times."""
        self._settings = settings

    def note(self, shard: ShardId, latency_us: int, now: Micros) -> None:
        """A STORE was answered, or had not been after this long."""
        counts = self._current.get(shard)
        if counts is None:
            counts = self._current[shard] = [0] * BUCKETS
            if not self._waiting:
                self._waiting = True
                self._timers.at(now + _REFRESH_US, self._refresh)
        shift = max(0, latency_us.bit_length() - 3)  # as `bucket_of`, without the call
        bucket = 4 * shift + (latency_us >> shift)
        counts[bucket if bucket < BUCKETS else BUCKETS - 1] += 1

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

    def usual(self, shards: Sequence[ShardId]) -> int:
        """Microseconds that 99 of 100 STOREs of each of the shards took at most; of one that is not known, a part of the timeout that it has."""
        settings = self._settings
        unknown = settings.store_timeout_initial_us // settings.store_timeout_factor
        return max(self._usual.get(shard, unknown) for shard in shards)

    def is_silent(self, shard: ShardId, sent_at: Micros, now: Micros) -> bool:
        """Note that a STORE has no answer yet; whether the shard has answered nothing for `silent_shard_us`, as far as was noted."""
        allowed = self._settings.silent_shard_us
        since, last = self._silent.get(shard, (sent_at, sent_at))
        if sent_at > last + allowed:
            since = sent_at
        self._silent[shard] = since, now
        return now - since >= allowed

    def answered(self, shard: ShardId) -> None:
        """The shard answered some STORE."""
        if self._silent:
            self._silent.pop(shard, None)

    def count(self) -> None:
        """Bring the histogram of everything up to date."""
        for shard, counts in self._current.items():
            counted = self._counted.get(shard)
            self._all.take(counts if counted is None else [a - b for a, b in zip(counts, counted, strict=True)])
            self._counted[shard] = list(counts)

    def recent(self) -> dict[ShardId, list[int]]:
        """What was counted lately, by shard, to look at."""
        return {
            shard: _sum(self._current.get(shard), self._previous.get(shard))
            for shard in sorted(self._current.keys() | self._previous.keys())
        }

    def _refresh(self, now: Micros) -> None:
        settings = self._settings
        for shard in sorted(self._current.keys() | self._previous.keys()):
            counts = _sum(self._current.get(shard), self._previous.get(shard))
            if any(counts):
                usual = self._usual[shard] = longer_than(counts, 0.01)
                timeout = min(
                    usual * settings.store_timeout_factor,
                    longer_than(counts, 0.5) * settings.store_timeout_medians,
                )
                self._timeouts[shard] = min(max(timeout, settings.store_timeout_min_us), settings.store_timeout_max_us)
        self._refreshes += 1
        if self._refreshes % _REFRESHES_PER_WINDOW == 0:
            self.count()
            self._counted = {}
            self._previous, self._current = self._current, {}
        self._waiting = bool(self._current)
        if self._waiting:
            self._timers.at(now + _REFRESH_US, self._refresh)


def _sum(current: list[int] | None, previous: list[int] | None) -> list[int]:
    return [a + b for a, b in zip(current or [0] * BUCKETS, previous or [0] * BUCKETS, strict=True)]


class Waiting(Protocol):
    """What `StoreTimers` wakes."""

    deadline: int
    """When to wake it; 0: not at all."""

    def on_timeout(self, now: Micros) -> None:
        """The deadline has passed."""


class StoreTimers:
    """Deadlines of all appenders of a node. Nothing is cancelled: an appender whose deadline moved or went is passed over."""

    __slots__ = ("_ticks", "_timers")

    def __init__(self, timers: TimerQueue) -> None:
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
