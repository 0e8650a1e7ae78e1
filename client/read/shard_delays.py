"""How long shards let readers wait: what a client knows of each, from all of its hedged streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from client.read.settings import ReadSettings
from logdevice_py.core.ids import ShardId
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros

_REMEMBERED: Final = 100
"""Delays of a shard, and its last answers of which it is known whether a hedge overtook them."""
_SAMPLES_MIN: Final = 20
"""Fewer delays do not tell how long a shard takes."""
_LOST_MIN: Final = 3
"""A shard is slow when hedges overtook so many of its last hundred answers, and so many times more than of those of others: delays that are rare and the
same for all shards make each lose some."""


class ShardDelays:
    """Of one shard."""

    __slots__ = ("_delays", "_lost_at", "_overtaken", "_p95", "round_trip_us", "slow_until")

    def __init__(self) -> None:
        self._delays: deque[int] = deque(maxlen=_REMEMBERED)
        self._overtaken: deque[bool] = deque(maxlen=_REMEMBERED)
        self._p95: int | None = None
        self._lost_at = Micros(0)
        self.round_trip_us = 0
        """From a START to its answer; 0: not known."""
        self.slow_until = Micros(0)
        """It comes last in the order until then."""

    @property
    def samples(self) -> int:
        """How many delays are remembered."""
        return len(self._delays)

    @property
    def lost(self) -> int:
        """How many of its last answers hedges overtook."""
        return sum(self._overtaken)

    @property
    def p95_us(self) -> int:
        """Of 20 delays 19 are no longer; 0 while there are none."""
        if self._p95 is None:
            ordered = sorted(self._delays)
            self._p95 = ordered[len(ordered) * 95 // 100] if ordered else 0
        return self._p95

    def note_answer(self, delay_us: int) -> None:
        """It answered so long after a reader had come to what it owed."""
        self._delays.append(delay_us)
        self._overtaken.append(False)
        self._p95 = None

    def note_round_trip(self, micros: int) -> None:
        """From a question to its answer. Shorter ones count at once, longer ones little by little: they may have waited at the shard."""
        known = self.round_trip_us
        self.round_trip_us = micros if not known or micros < known else known + (micros - known) // 8

    @property
    def answers(self) -> int:
        """How many answers are remembered."""
        return len(self._overtaken)

    def note_lost(self, now: Micros, delay_us: int) -> None:
        """A hedge overtook it, that was sent after so long. What happens within twice that time has one cause."""
        if now >= self._lost_at + 2 * delay_us or not self._lost_at:
            self._lost_at = now
            self._overtaken.append(True)

    def forgive(self) -> None:
        """What it lost does not count any more."""
        self._overtaken.clear()

    def hedge_delay_us(self, settings: ReadSettings) -> int:
        """How long to wait for it before others are asked: longer than it usually takes, and than the way there and back."""
        usual = 3 * self.p95_us // 2 if self.samples >= _SAMPLES_MIN else settings.hedge_delay_us_initial
        return min(settings.hedge_delay_us_max, max(settings.hedge_delay_us_min, self.round_trip_us, usual))


class KnownDelays:
    """Of all shards that hedged streams of a client read from."""

    __slots__ = ("_by_shard", "settings")

    def __init__(self, settings: ReadSettings) -> None:
        self.settings = settings
        self._by_shard: dict[ShardId, ShardDelays] = {}

    def of(self, shard: ShardId) -> ShardDelays:
        """What is known of a shard."""
        known = self._by_shard.get(shard)
        if known is None:
            known = self._by_shard[shard] = ShardDelays()
        return known

    def shards(self) -> list[tuple[ShardId, ShardDelays]]:
        """All of them, ascending."""
        return sorted(self._by_shard.items())

    def is_well(self, shard: ShardId, now: Micros) -> bool:
        """It is not left to the end of the order."""
        known = self._by_shard.get(shard)
        return known is None or now >= known.slow_until

    def is_slow(self, shard: ShardId, among: Iterable[ShardId], now: Micros) -> bool:
        """Whether hedges overtake the shard much more often than others of a set that have their places."""
        others = [self.of(other) for other in among if other != shard and self.is_well(other, now)]
        # one more each: of few answers it is not known yet how often others lose
        lost, known = sum(other.lost + 1 for other in others), sum(other.answers for other in others)
        usual = max(1.0, _REMEMBERED * lost / known) if known else float(_REMEMBERED)
        return self.of(shard).lost >= _LOST_MIN * usual

    def leave_to_the_end(self, shard: ShardId, now: Micros) -> None:
        """For a while the shard sends what no other one can."""
        hit("read_shard_left_to_the_end")
        known = self.of(shard)
        known.slow_until = Micros(now + self.settings.hedge_penalty_us)
        known.forgive()
