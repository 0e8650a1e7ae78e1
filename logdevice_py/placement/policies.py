"""The placement policies that are built in."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.location import Location, Scope
from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.machine import Rng
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.nodeset import Spread, select_nodeset
from logdevice_py.placement.policy import CopysetSource
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.topology import Topology

_SOMEBODY = NodeId(0)
"""Which node it is does not matter for the domains of a location above NODE."""


class Weighted:
    """Spreads nodesets and copies by capacity over the scopes that the replication property names, and over no others.

    Copies beyond what other domains must hold stay in the sequencer's domain of the largest scope.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self.settings = settings
        self.topology = Topology((), frozenset())

    def on_cluster_changed(self, topology: Topology) -> frozenset[ShardId]:
        """See `PlacementPolicy`."""
        lost = self.topology.eligible - topology.eligible
        self.topology = topology
        return lost

    def select_nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        """See `PlacementPolicy`."""
        replication = attributes.replication
        return select_nodeset(log, self.topology, replication, Spread.of(replication, attributes.nodeset_size))

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSource:
        """See `PlacementPolicy`."""
        is_near = self._nearness(domains.replication.factors[0][0], at)
        return CopysetSelector(domains, weight=self.topology.capacity, is_near=is_near, rng=rng)

    def close(self) -> None:
        """See `PlacementPolicy`."""

    def _nearness(self, scope: Scope, at: Location | None) -> Callable[[ShardId], bool] | None:
        """Which shards stand in the domain of a location at a scope above NODE, by the cluster file: a wish, not a promise."""
        if at is None or scope is Scope.NODE:
            return None
        location, domain = self.topology.location, at.domain(scope, _SOMEBODY)
        return lambda shard: (place := location(shard)) is not None and place.domain(scope, _SOMEBODY) == domain
