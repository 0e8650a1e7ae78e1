"""The client's view of the cluster: what nodes push, and what its own dials tell."""

from __future__ import annotations

from client.settings import ClientSettings
from logdevice_py.core.ids import Generation, InstanceId, NodeId, PeerId, ShardId
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import ClusterState, NodeState


class KnownCluster:
    """A `ClusterView` made of CLUSTER_STATE pushes.

    Until the first push, and while no node is connected, every node counts as alive. Each node numbers its own pushes; an older one of the same node is ignored, and the
    latest that arrived from anybody holds. A refused dial marks the node dead at once, until a push or an established connection
    says otherwise, or `refusal_us` later: when nothing changes, nobody pushes.
    """

    __slots__ = ("_refused", "_settings", "_states", "_versions", "changes", "config_version")

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._states: dict[NodeId, tuple[NodeState, InstanceId]] = {}
        self._versions: dict[PeerId, int] = {}
        self._refused: dict[NodeId, Micros] = {}
        self.changes = 0
        """Grows whenever an answer of this view may have changed."""
        self.config_version = 0
        """The newest version of the cluster file that any node said to have."""

    def state(self, node: NodeId) -> NodeState:
        if node in self._refused:
            return NodeState.DEAD
        if not self._states:
            return NodeState.ALIVE
        known = self._states.get(node)
        return NodeState.DEAD if known is None else known[0]

    def is_alive(self, node: NodeId) -> bool:
        return self.state(node) is not NodeState.DEAD

    def may_sequence(self, node: NodeId) -> bool:
        return self.state(node) is NodeState.ALIVE

    def instance(self, node: NodeId) -> InstanceId:
        known = self._states.get(node)
        return InstanceId(0) if known is None else known[1]

    def generation(self, shard: ShardId) -> Generation:
        return Generation(0)

    def isolated(self) -> bool:
        return False

    def on_cluster_state(self, peer: PeerId, message: ClusterState) -> list[NodeId]:
        """Take a push; the nodes that it newly declares dead."""
        if message.version <= self._versions.get(peer, -1):
            return []
        self._versions[peer] = message.version
        self.config_version = max(self.config_version, message.config_version)
        before = self._states
        self._states = {
            NodeId(node): (NodeState(state) if state in _STATES else NodeState.DEAD, InstanceId(instance))
            for node, state, instance in message.nodes
        }
        if self._refused or self._states != before:
            self._refused.clear()
            self.changes += 1
        return [
            node
            for node, (state, _) in sorted(self._states.items())
            if state is NodeState.DEAD and before.get(node, (NodeState.ALIVE,))[0] is not NodeState.DEAD
        ]

    def on_peer_up(self, peer: PeerId) -> None:
        """The node answered; its pushes are numbered anew when it was restarted."""
        self._versions.pop(peer, None)
        if self._refused.pop(NodeId(peer), None) is not None:
            self.changes += 1

    def on_refused(self, peer: PeerId, now: Micros) -> None:
        """The node could not be dialled."""
        self._refused[NodeId(peer)] = Micros(now + self._settings.refusal_us)
        self.changes += 1

    def on_alone(self) -> None:
        """No node is connected any more: nobody would push what changes, so what was pushed tells nothing."""
        if self._states:
            self._states = {}
            self._versions.clear()
            self.changes += 1

    def expire(self, now: Micros) -> None:
        """Forget refusals that are long past."""
        for node in [node for node, until in self._refused.items() if until <= now]:
            del self._refused[node]
            self.changes += 1


_STATES = frozenset(int(state) for state in NodeState)
