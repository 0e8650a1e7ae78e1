"""The client's view of the cluster: what nodes push, and what its own dials tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from client.settings import ClientSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.ids import Generation, InstanceId, NodeId, PeerId, ShardId, node_of
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import sees_too_few
from logdevice_py.protocol.messages import ClusterState, NodeState

_States = dict[NodeId, tuple[NodeState, InstanceId]]


@dataclass(slots=True)
class _Push:
    """The last push of one node."""

    version: int
    order: tuple[int, bool, int]
    """Version of the cluster file, whether its node is a witness, then the number of its arrival: the greatest holds."""
    states: _States


class NodeStateListener(Protocol):
    """Told when the view of the cluster changes."""

    def __call__(self, now: Micros) -> None: ...


class KnownCluster:
    """A `ClusterView` made of CLUSTER_STATE pushes.

    Until the first push, and while no node is connected, every node counts as alive. Each node numbers its own pushes; an older one of the same node is ignored.
    Of the pushes of nodes that are connected the latest one holds, among those that know the newest cluster file: a node that was taken out of the file hears
    nobody, and takes all others for dead. So does one that was just restarted, or that a partition keeps from most others: what such a node says
    holds only while nobody else says anything, and requests that do not get on then dial others (`Routes.look_further`). A refused dial marks the node
    dead at once, until a push or an established connection says otherwise, or `refusal_us` later: when nothing changes, nobody pushes.
    """

    __slots__ = (
        "_arrived",
        "_listeners",
        "_pushes",
        "_refused",
        "_regions",
        "_settings",
        "_states",
        "_told",
        "changes",
        "config_version",
    )

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._states: _States = {}
        self._pushes: dict[PeerId, _Push] = {}
        self._arrived = 0
        self._refused: dict[NodeId, Micros] = {}
        self.changes = 0
        """Grows whenever an answer of this view may have changed."""
        self._told = 0
        """How many of them the listeners know."""
        self._listeners: list[NodeStateListener] = []
        self.config_version = 0
        """The newest version of the cluster file that any node said to have."""
        self._regions: dict[NodeId, str] = {}

    def use_config(self, config: ClusterConfig) -> None:
        """The client's cluster file, which says where nodes stand. What counts is what is pushed from now on."""
        self._regions = {node: member.location.region for node, member in config.nodes.items()}

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

    def serves(self, shard: ShardId) -> bool:
        return self.is_alive(node_of(shard))

    def isolated(self) -> bool:
        return False

    def hears_no_witness(self) -> bool:
        """Nodes are connected, but none that sees most of the cluster: what counts as dead may well live."""
        return bool(self._pushes) and not self._latest().order[1]

    def was_refused(self, node: NodeId) -> bool:
        """It could not be dialled a short while ago."""
        return node in self._refused

    def config_version_of(self, peer: PeerId) -> int:
        """The version that a connected node said to use; 0: it said nothing yet."""
        push = self._pushes.get(peer)
        return 0 if push is None else push.order[0]

    def on_cluster_state(self, peer: PeerId, message: ClusterState) -> list[NodeId]:
        """Take a push; the nodes that it newly declares dead."""
        last = self._pushes.get(peer)
        if last is not None and message.version <= last.version:
            return []
        self.config_version = max(self.config_version, message.config_version)
        states: _States = {
            each.node: (NodeState(each.state) if each.state in _STATES else NodeState.DEAD, each.instance)
            for each in message.nodes
        }
        self._arrived += 1
        order = (message.config_version, self._is_witness(peer, states), self._arrived)
        push = self._pushes[peer] = _Push(message.version, order, states)
        latest = self._latest()
        if latest is not push:
            older = latest.order[0] > message.config_version
            marks.hit("client_push_of_older_cluster_file" if older else "client_push_of_isolated_node")
            return self._hold(latest.states)
        if self._refused:
            self._refused.clear()
            self.changes += 1
        return self._hold(states)

    def _is_witness(self, peer: PeerId, states: _States) -> bool:
        """Whether the node that says so has heard of the others lately: if not, it calls them dead because it knows nothing of them."""
        mine = states.get(NodeId(peer))
        if mine is None or mine[0] is NodeState.STARTING:
            return False
        region = self._regions.get
        return not sees_too_few((region(node, ""), state is not NodeState.DEAD) for node, (state, _) in states.items())

    def _latest(self) -> _Push:
        return max(self._pushes.values(), key=lambda push: push.order)

    def _hold(self, states: _States) -> list[NodeId]:
        before, self._states = self._states, states
        if states != before:
            self.changes += 1
        return [
            node
            for node, (state, _) in sorted(states.items())
            if state is NodeState.DEAD and before.get(node, (NodeState.ALIVE,))[0] is not NodeState.DEAD
        ]

    def on_peer_up(self, peer: PeerId) -> None:
        """The node answered; its pushes are numbered anew when it was restarted."""
        self._pushes.pop(peer, None)
        if self._refused.pop(NodeId(peer), None) is not None:
            self.changes += 1

    def on_peer_down(self, peer: PeerId) -> list[NodeId]:
        """The node is not connected any more and would not push what changes: what the others said holds. The nodes that are newly dead by that."""
        if self._pushes.pop(peer, None) is None:
            return []
        return self._hold(self._latest().states if self._pushes else {})

    def on_refused(self, peer: PeerId, now: Micros) -> None:
        """The node could not be dialled."""
        self._refused[NodeId(peer)] = Micros(now + self._settings.refusal_us)
        self.changes += 1

    def expire(self, now: Micros) -> None:
        """Forget refusals that are long past."""
        for node in [node for node, until in self._refused.items() if until <= now]:
            del self._refused[node]
            self.changes += 1

    def add_listener(self, listener: NodeStateListener) -> None:
        """Call it whenever this view or the cluster file changes."""
        self._listeners.append(listener)

    def remove_listener(self, listener: NodeStateListener) -> None:
        """Do not call it any more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def tell_changes(self, now: Micros) -> None:
        """Tell the listeners, if there is anything that they do not know."""
        if self.changes != self._told:
            self.tell(now)

    def tell(self, now: Micros) -> None:
        """Tell the listeners."""
        self._told = self.changes
        for listener in list(self._listeners):
            listener(now)


_STATES = frozenset(int(state) for state in NodeState)
