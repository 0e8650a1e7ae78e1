"""The storage of a cluster as placement policies see it: which shards there are, where they stand, and which of them take records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.core.ids import NodeId, ShardId, node_of


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node whose shards new nodesets may have."""

    node: NodeId
    location: Location
    capacity: float
    """Share of the records that each of its shards should store, relative to the others."""
    shards: tuple[ShardId, ...]
    """All of them, those included that are lost or drained."""


@dataclass(frozen=True, slots=True)
class Topology:
    """One version of a cluster's storage. Immutable."""

    nodes: tuple[PlacedNode, ...]
    """Those that may be in new nodesets, ascending: read-write and read-only ones, outside of disabled regions."""
    writable: frozenset[ShardId]
    """The shards that take new records."""
    excluded: frozenset[ShardId] = frozenset()
    """Shards of `nodes` that are lost or drained: in no new nodeset."""
    locations: Mapping[NodeId, Location] = field(default_factory=dict)
    """Of all nodes of the cluster, also those that are in no new nodeset."""
    capacities: Mapping[NodeId, float] = field(default_factory=dict)
    """Of all nodes, as `PlacedNode.capacity`."""

    @classmethod
    def of(cls, config: ClusterConfig) -> Topology:
        """The topology that a version of the cluster's configuration describes."""
        return cls(
            nodes=tuple(
                PlacedNode(node.node, node.location, node.storage_capacity, node.shard_ids())
                for node in config.enabled_storage_nodes
            ),
            writable=frozenset(config.writable_shards()),
            excluded=config.excluded,
            locations={node.node: node.location for node in config.nodes.values()},
            capacities={node.node: node.storage_capacity for node in config.nodes.values()},
        )

    @property
    def read_only(self) -> frozenset[ShardId]:
        """The shards that keep and serve what they have, and may be in new nodesets; they take no new records."""
        return frozenset(shard for node in self.nodes for shard in node.shards) - self.writable - self.excluded

    @property
    def eligible(self) -> frozenset[ShardId]:
        """The shards that new nodesets may have."""
        return frozenset(shard for node in self.nodes for shard in node.shards) - self.excluded

    def location(self, shard: ShardId) -> Location | None:
        """Where the shard's node stands; None: there is no such node."""
        return self.locations.get(node_of(shard))

    def capacity(self, shard: ShardId) -> float:
        """Weight of the shard when copysets are chosen; 0: there is no such node."""
        return self.capacities.get(node_of(shard), 0.0)
