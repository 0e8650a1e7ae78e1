"""The placement policies that are built in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.location import Location, Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of
from logdevice_py.core.machine import Rng
from logdevice_py.placement.balance import copyset_weights
from logdevice_py.placement.copyset import CopysetSelector, Level, property_levels
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.nodeset import NodesetSpread, select_nodeset
from logdevice_py.placement.policy import CopysetSource
from logdevice_py.placement.reading_order import ReadHealth, local_first, nearest_first
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.topology import Topology

_WEIGHTS_MAX: Final = 1_000
_SOMEBODY = NodeId(0)
"""Which node it is does not matter for the domains of a location above NODE."""


class Weighted:
    """Spreads nodesets and copies by capacity over the scopes that the replication property names, and over no others.

    Copies beyond what other domains must hold stay in the sequencer's domain of the largest scope.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self.settings = settings
        self.topology = Topology((), frozenset())
        self._weights: dict[tuple[ReplicationProperty, int], Mapping[NodeId, float]] = {}
        """Of nodes in copysets, by what nodesets are spread over and how large they are."""

    def on_cluster_changed(self, topology: Topology) -> frozenset[ShardId]:
        """See `PlacementPolicy`."""
        lost = self.topology.eligible - topology.eligible
        self.topology = topology
        self._weights.clear()
        return lost

    def select_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        """See `PlacementPolicy`."""
        replication = attributes.replication
        return select_nodeset(log, self.topology, replication, self._spread(replication, attributes.nodeset_size))

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSource:
        """See `PlacementPolicy`."""
        is_near = self._nearness(domains.replication.factors[0][0], at)
        return CopysetSelector(domains, weight=self._weight(domains), is_near=is_near, rng=rng)

    def reading_order(
        self, shards: Sequence[ShardId], at: Location | None, health: Callable[[ShardId], ReadHealth], rng: Rng
    ) -> Sequence[ShardId]:
        """See `PlacementPolicy`: the nearest, then another rack, then another region."""
        return nearest_first(shards, at, self.topology.location, health, rng)

    def close(self) -> None:
        """See `PlacementPolicy`."""

    def _spread(self, replication: ReplicationProperty, nodeset_size: int) -> NodesetSpread:
        """How nodesets of logs with this property are spread."""
        return NodesetSpread.of(replication, nodeset_size)

    def _weight(self, domains: FailureDomains) -> Callable[[ShardId], float]:
        """Of shards in copysets: more for those that are in fewer nodesets, so that load follows capacity."""
        key = domains.replication, len(domains.shards)
        weights = self._weights.get(key)
        if weights is None:
            if len(self._weights) >= _WEIGHTS_MAX:
                self._weights.clear()
            spread = replace(self._spread(*key), size=len(domains.shards))
            weights = self._weights[key] = copyset_weights(self.topology, spread)
        known, capacity = weights, self.topology.capacity
        return lambda shard: known.get(node_of(shard)) or capacity(shard)

    def _nearness(self, scope: Scope, at: Location | None) -> Callable[[ShardId], bool] | None:
        """Which shards stand in the domain of a location at a scope above NODE, by the cluster file: a wish, not a promise."""
        if at is None or scope is Scope.NODE:
            return None
        location, domain = self.topology.location, at.domain(scope, _SOMEBODY)
        return lambda shard: (place := location(shard)) is not None and place.domain(scope, _SOMEBODY) == domain


class RackAware(Weighted):
    """As `weighted`, and copies lie in `min_racks` racks or more, although the replication property does not ask for it; where fewer are available, in
    as many as there are."""

    def select_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        """See `PlacementPolicy`."""
        for replication in (*self.wishes(attributes.replication), attributes.replication):
            nodeset = self._nodeset(log, replication, attributes)
            if nodeset is not None:
                return nodeset
        return None

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSource:
        """See `PlacementPolicy`."""
        plain = self._selector(domains, at, rng)
        wishes = self.wishes(domains.replication)
        if not wishes:
            return plain
        stricter = [FailureDomains.by_file(domains.shards, wished, self.topology.location) for wished in wishes]
        return _Preferred([self._selector(strict, at, rng) for strict in stricter], plain)

    def wishes(self, replication: ReplicationProperty) -> list[ReplicationProperty]:
        """The replication property with more racks than it asks for, those with the most first; empty: it asks for as many as copies should be in."""
        racks = min(self.settings.min_racks, replication.copies)
        asked = max((factor for scope, factor in replication.factors if scope >= Scope.RACK), default=1)
        factors = dict(replication.factors)
        return [ReplicationProperty.of({**factors, Scope.RACK: count}) for count in range(racks, asked, -1)]

    def _nodeset(
        self, log: LogId, replication: ReplicationProperty, attributes: LogAttributes
    ) -> tuple[ShardId, ...] | None:
        return select_nodeset(log, self.topology, replication, self._spread(replication, attributes.nodeset_size))

    def _selector(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSelector:
        is_near = self._nearness(domains.replication.factors[0][0], at)
        return CopysetSelector(domains, weight=self._weight(domains), is_near=is_near, rng=rng)


class RegionAware(RackAware):
    """Nodesets and copies are spread equally over regions, whatever their sizes, and within each region as by `rack-aware`.

    Regions get as many copies each, or one more or less, as long as each has that many shards; where the sequencer stands does not matter.
    """

    def reading_order(
        self, shards: Sequence[ShardId], at: Location | None, health: Callable[[ShardId], ReadHealth], rng: Rng
    ) -> Sequence[ShardId]:
        """See `PlacementPolicy`: two of the reader's region, then one of another, and so on."""
        return local_first(shards, at, self.topology.location, health, rng)

    def _spread(self, replication: ReplicationProperty, nodeset_size: int) -> NodesetSpread:
        topology = self.topology
        regions = {node.location.region for node in topology.nodes if topology.writable.intersection(node.shards)}
        copies, factors = replication.copies, dict(replication.factors)
        # what a region has to take when another one is lost
        per_region = min(-(-copies // max(1, len(regions) - 1)), copies - factors.get(Scope.REGION, 1) + 1)
        scopes = sorted({*factors, Scope.REGION, Scope.RACK} - {Scope.NODE}, reverse=True)
        return NodesetSpread(tuple(scopes), per_region, NodesetSpread.of(replication, nodeset_size).size)

    def _selector(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSelector:
        of_property = dict(
            zip([scope for scope, _ in domains.replication.factors], property_levels(domains), strict=True)
        )
        levels = []
        for scope in sorted({*of_property, Scope.REGION, Scope.RACK}, reverse=True):
            level = of_property.get(scope) or Level({shard: self._domain(shard, scope) for shard in domains.shards})
            levels.append(replace(level, equal=scope is Scope.REGION))
        return CopysetSelector(domains, weight=self._weight(domains), levels=levels, rng=rng)

    def _domain(self, shard: ShardId, scope: Scope) -> str:
        location = self.topology.location(shard)
        return "?" if location is None else location.domain(scope, _SOMEBODY)


class _Preferred:
    """Copysets that satisfy more than the replication property where they can, and only that where they cannot.

    Args:
        stricter: what copysets should satisfy, the best first.
        plain: what they must satisfy.
    """

    __slots__ = ("_plain", "_stricter")

    def __init__(self, stricter: Sequence[CopysetSelector], plain: CopysetSelector) -> None:
        self._stricter = stricter
        self._plain = plain

    @property
    def nodeset(self) -> tuple[ShardId, ...]:
        """As `CopysetSource`."""
        return self._plain.nodeset

    def pick(self, available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """As `CopysetSource`."""
        for strict in self._stricter:
            chosen = strict.pick(available)
            # wishes go by where nodes stand today, the property by where they stood when the epoch began
            if chosen is not None and self._plain.satisfied_by(chosen):
                return chosen
        return self._plain.pick(available)

    def replace(self, kept: Sequence[ShardId], available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """As `CopysetSource`."""
        plain = self._plain.replace(kept, available)
        if plain is None or len(plain) == len(kept):
            return plain
        for strict in self._stricter:
            chosen = strict.replace(kept, available)
            if chosen is not None and len(chosen) == len(plain) and self._plain.satisfied_by(chosen):
                return chosen
        return plain
