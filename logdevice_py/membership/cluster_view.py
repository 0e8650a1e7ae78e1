"""What machines may ask about the other nodes. The gossip machine implements it on nodes, the session in clients."""

from __future__ import annotations

from typing import Protocol

from logdevice_py.core.ids import Generation, InstanceId, NodeId, ShardId
from logdevice_py.protocol.messages import NodeState


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

    def isolated(self) -> bool:
        """This node cannot hear more than half of the cluster."""


def sees_too_few(dead: int, members: int) -> bool:
    """Whether a node that takes so many members of its cluster for dead is rather cut off itself: it sequences nothing, and its word on others counts little."""
    return 2 * dead > members
