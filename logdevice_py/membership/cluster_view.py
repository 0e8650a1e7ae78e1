"""What machines may ask about the other nodes. The gossip machine implements it on nodes, the session in clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, InstanceId, NodeId, ShardId
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import NodeState

_REGIONS_COUNTED: Final = 3
"""Of two regions neither is a majority."""


class ClusterView(Protocol):
    """The state of all nodes as this process knows it at this moment. A wrong view costs time, never data."""

    config_version: int
    """The newest version of the cluster file that any node said to have."""

    def state(self, node: NodeId) -> NodeState:
        """Of a node; DEAD when it was never heard of."""

    def is_alive(self, node: NodeId) -> bool:
        """ALIVE, STARTING or LEAVING: worth sending a message to."""

    def may_sequence(self, node: NodeId) -> bool:
        """ALIVE: counted when a log's sequencer node is located."""

    def instance(self, node: NodeId) -> InstanceId:
        """The latest run of the node that was heard of; 0 if none."""

    def generation(self, shard: ShardId) -> Generation:
        """The latest generation of the shard that was heard of; 0 if none."""

    def serves(self, shard: ShardId) -> bool:
        """Its node is alive, and did not say that the shard's disk failed."""

    def isolated(self) -> bool:
        """This node cannot hear more than half of the cluster: of its regions where there are three or more, else of its nodes."""


def sees_too_few(members: Iterable[tuple[str, bool]]) -> bool:
    """Whether a node that takes so many members of its cluster for dead is rather cut off itself: it sequences nothing, and its word on others counts little.

    Where there are three regions or more, regions are counted, and one of which any node is alive counts as seen: what is cut off is most often a whole region,
    and the larger part of the nodes may be the smaller part of the regions, which the epoch store's majority is not in.

    Args:
        members: the region of each, and whether it is alive.
    """
    nodes: list[bool] = []
    regions: dict[str, bool] = {}
    for region, alive in members:
        nodes.append(alive)
        regions[region] = alive or regions.get(region, False)
    seen = nodes if len(regions) < _REGIONS_COUNTED else list(regions.values())
    return 2 * seen.count(False) > len(seen)


def metadata_logs_writable(config: ClusterConfig, view: ClusterView, without: frozenset[ShardId] = frozenset()) -> bool:
    """Whether so many of the shards that keep metadata logs serve and take records, without these, that a record can be stored there: what each epoch that
    has another nodeset begins with."""
    metadata = config.metadata_log
    left = [
        shard
        for shard in config.writable_shards()
        if shard in metadata.nodeset and shard not in without and view.serves(shard)
    ]
    return FailureDomains.by_file(left, metadata.replication, config.location).can_replicate(left)
