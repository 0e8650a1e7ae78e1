"""Whom of a copyset a stream wants to send: near shards before distant ones, those that are well before those that were slow lately."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location, Scope
from logdevice_py.core.ids import NodeId, ShardId, node_of
from logdevice_py.core.units import Micros
from logdevice_py.placement.reading_order import ReadHealth, reading_tiers

Order = list[tuple[int, int]]
"""Shards and their tiers, as START has them; empty: by the places in the header."""
NO_ORDER: Final[Order] = []
"""Shared, and never changed."""
_TOGETHER: Final = 64
"""Tiers that a shard comes later which may have failed together with one that is slow."""
_SOMEBODY: Final = NodeId(0)


class ReadingOrder:
    """The order of one stream.

    Args:
        at: where the reader stands; None: all shards are equally far.
        is_well: whether a shard was not slow lately; None: nobody knows of any.
    """

    __slots__ = ("_at", "_config", "_is_well")

    def __init__(self, at: Location | None = None, is_well: Callable[[ShardId, Micros], bool] | None = None) -> None:
        self._at = at
        self._is_well = is_well
        self._config: ClusterConfig | None = None

    def set_config(self, config: ClusterConfig) -> None:
        """The cluster file that tells where nodes stand, and which of them take records."""
        self._config = config

    def of(self, shards: Iterable[ShardId], now: Micros) -> Order:
        """The shards with their tiers."""
        return _told(self._tiers(shards, now))

    def apart_from(self, shards: Iterable[ShardId], slow: Collection[ShardId], scope: Scope, now: Micros) -> Order:
        """As `of`, but shards that share a domain at `scope` with one that is slow come behind all others: what holds up one may hold up the other."""
        tiers = self._tiers(shards, now)
        domains = {self._domain(shard, scope) for shard in slow} - {""}
        for shard in tiers:
            if self._domain(shard, scope) in domains:
                tiers[shard] += _TOGETHER
        return _told(tiers)

    def _tiers(self, shards: Iterable[ShardId], now: Micros) -> dict[ShardId, int]:
        def health(shard: ShardId) -> ReadHealth:
            if self._is_well is not None and not self._is_well(shard, now):
                return ReadHealth.FAILED
            if self._at is None or config is None or config.is_writable(shard):
                return ReadHealth.WELL
            return ReadHealth.VANISHED if config.location(shard) is None else ReadHealth.READ_ONLY

        config = self._config
        return reading_tiers(shards, self._at, self._place, health)

    def _place(self, shard: ShardId) -> Location | None:
        return None if self._config is None else self._config.location(shard)

    def _domain(self, shard: ShardId, scope: Scope) -> str:
        """Of a shard's node; empty: nothing is known of it at that scope."""
        place = self._place(shard)
        domain = "" if place is None else place.domain(scope, node_of(shard))
        return domain if domain.strip(".") else ""


def _told(tiers: Mapping[ShardId, int]) -> Order:
    """What START tells: nothing where all are equal."""
    return NO_ORDER if len(set(tiers.values())) < 2 else list(tiers.items())
