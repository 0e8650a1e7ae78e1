"""The pace of a donor: rebuilding takes what appends leave over.

Every shard that a donor works with, its own included, says how long appends take there beside the usual (`AppendDelay`). Where there are none the rate
soon doubles up to the limit. Where there are, it grows gently as long as they hardly notice, and is cut as soon as they do, never below the minimum:
the way of TCP Vegas and LEDBAT, which take a growing delay for the sign to step back, before anything is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from logdevice_py.core.ids import ShardId, format_shard
from logdevice_py.core.machine import Timer, TimerQueue
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.settings import RebuildingSettings

_STEP_US: Final = SECOND // 10
"""How often the rate changes."""
_GROWTH: Final = 0.02
"""In a step, where appends do not notice anything."""
_GROWTH_ALONE: Final = 0.15
"""In a step, where there are no appends: twice as much in half a second, in which shards that are asked first have time to say otherwise."""
_CUT_PAUSE_US: Final = SECOND // 2
"""What a cut did shows after this time."""
_CUT_MAX: Final = 0.5
_STALE_US: Final = 5 * SECOND
_LATE_US: Final = 10_000
"""Lateness of timers up to this is compensated."""
_PIECE_US: Final = 20_000
"""Where there are no appends, a piece of work is what the rate allows in this time."""
READ_SHARE: Final = 8
"""What is read and looked through costs this many times less than what is re-replicated."""
LOG_COST: Final = 128 << 10
"""To begin with a log costs as much as storing so many bytes again, however little it holds: its sequencer begins an epoch, the epochs before are
recovered, and every shard purges. Logs that begin together hold up appends to all of them."""

Begin = Callable[[Micros], None]


class AppendPressure:
    """What the shards that the donors of a node work with say of their appends."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard: dict[ShardId, tuple[int, Micros]] = {}

    def hear(self, shard: ShardId, percent: int, now: Micros) -> None:
        """How long appends take there, in percent of the usual; 0: there are none."""
        self._heard[shard] = percent, now

    def forget(self, now: Micros) -> None:
        """Forget what was said long ago."""
        if any(now - at > _STALE_US for _, at in self._heard.values()):
            self._heard = {shard: heard for shard, heard in self._heard.items() if now - heard[1] <= _STALE_US}

    def worst(self) -> tuple[int, ShardId | None]:
        """The greatest percentage, and whose it is."""
        percent, shard = 0, None
        for each, (said, _) in self._heard.items():
            if said > percent:
                percent, shard = said, each
        return percent, shard


class DonorPace:
    """When a donor begins its pieces of work, and how large they are."""

    def __init__(
        self,
        shard: ShardId,
        own: Callable[[Micros], int],
        pressure: AppendPressure,
        settings: RebuildingSettings,
        timers: TimerQueue,
    ) -> None:
        """
        Args:
            shard: the donor's own.
            own: how long appends take there, in percent of the usual.
        """
        self._shard = shard
        self._own = own
        self._pressure = pressure
        self._settings = settings
        self._timers = timers
        self._rate = float(self._rate_min)
        self._stepped = Micros(0)
        self._cut = Micros(-_CUT_PAUSE_US)
        self._held_up = False
        """Work had to wait since the last step: the rate is what limits it."""
        self._free_at = Micros(0)
        self._queue: deque[tuple[int, Begin]] = deque()
        self._timer: Timer | None = None

    @property
    def rate(self) -> int:
        """Bytes a second at present."""
        return int(self._rate)

    @property
    def piece_bytes(self) -> int:
        """How much is to be read, and re-replicated, at a time."""
        busy = min(self._settings.busy_chunk_bytes, self._settings.chunk_bytes)
        if self._pressure.worst()[0]:
            return busy
        return min(self._settings.chunk_bytes, max(busy, int(self._rate * _PIECE_US / SECOND)))

    def admit(self, size: int, begin: Begin, now: Micros) -> None:
        """Call `begin`, which stores so much again, when its turn has come: at once, or later from a timer."""
        self._queue.append((size, begin))
        if len(self._queue) == 1:
            self._run(now)

    def charge(self, size: int, now: Micros) -> None:
        """Something was done that costs as much as storing so much again."""
        self._free_at = Micros(max(self._free_at, now - _LATE_US) + int(size * SECOND / self._rate))

    def stop(self) -> None:
        """Forget what waits. The next work begins at the minimum."""
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rate = float(self._rate_min)

    def explain(self) -> str:
        """Why the rate is what it is, for people."""
        percent, shard = self._pressure.worst()
        if shard is None:
            return "no appends" if self.rate >= self._settings.rate_limit_bytes else "no appends, growing"
        appends = f"appends take {percent} % of the usual at {format_shard(shard)}"
        if percent > self._settings.append_tolerance_percent:
            return f"gives way: {appends}" if self.rate > self._rate_min else f"at its minimum: {appends}"
        return appends if self.rate >= self._settings.rate_limit_bytes else f"growing: {appends}"

    # Work

    def _run(self, now: Micros) -> None:
        """Begin what is due."""
        if self._timer is not None and self._timer.pending:
            return
        queue = self._queue
        while queue:
            self._step(now)
            if self._free_at > now:
                self._held_up = True
                self._timer = self._timers.at(self._free_at, self._run)
                return
            size, begin = queue[0]
            self.charge(size, now)
            begin(now)
            if queue and queue[0][1] is begin:
                queue.popleft()

    # The rate

    @property
    def _rate_min(self) -> int:
        return min(self._settings.rate_min_bytes, self._settings.rate_limit_bytes)

    def _step(self, now: Micros) -> None:
        if now - self._stepped < _STEP_US:
            return
        self._stepped = now
        self._pressure.hear(self._shard, self._own(now), now)
        self._pressure.forget(now)
        percent, tolerance = self._pressure.worst()[0], self._settings.append_tolerance_percent
        if percent > tolerance:
            if now - self._cut >= _CUT_PAUSE_US:
                self._cut = now
                self._rate = max(self._rate_min, self._rate * max(_CUT_MAX, tolerance / percent))
            return
        held_up, self._held_up = self._held_up, False
        if percent and not held_up:
            return  # a rate that is not used says nothing of what appends bear
        growth = _GROWTH * min(1.0, (tolerance - percent) / max(1, tolerance - 100)) if percent else _GROWTH_ALONE
        self._rate = min(self._settings.rate_limit_bytes, self._rate * (1 + growth))
