"""Failure detection by gossip.

Every interval a node adds one to its counter of each other node ("intervals since anyone heard of it"), sets its own to zero and sends
all counters to others, who keep the smaller ones. A node whose counter exceeds the threshold is dead. A tick that comes late adds one,
not the missed ones: a paused process must not find everybody else dead when it wakes up. A refused connection counts as death at once,
until gossip that the node itself sent clears it. Runs of a node's process are told apart by instance ids, never by wall clocks.

A wrong view costs time, never data: epochs and seals decide who may write.

States of another node:

    DEAD --gossip of it is heard--> STARTING --it says that it is ready--> ALIVE --it says that it leaves--> LEAVING
    any state --counter over the threshold, or connection refused--> DEAD
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, InstanceId, NodeId, PeerId, ShardId, node_of, shard_index_of
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import sees_too_few
from logdevice_py.membership.settings import MembershipMetrics, MembershipSettings
from logdevice_py.protocol.messages import ClusterNode, ClusterState, Gossip, GossipNode, NodeState

_LEAVING = 1
_STARTING = 2
_KEEPS_EVENT_LOG = 4
"""Holds for as long as a run lasts. Nodes that do not know of it do not pass it on."""
_COUNTER_MAX = 1 << 20
"""Dead for that long is dead for good. What is told must stay in the range that others take, whatever was told here."""


@dataclass(slots=True)
class _Known:
    """What is known of one node."""

    instance: InstanceId
    counter: int = 0
    flags: int = _STARTING
    generations: tuple[Generation, ...] = ()
    failed: frozenset[int] = frozenset()
    """Indexes of shards that serve nobody as long as this run of the node lasts."""
    refused: bool = False
    heard: bool = False
    sequence: int = field(default=0)


class GossipMachine:
    """This node's view of the cluster; implements `ClusterView`."""

    def __init__(
        self,
        node: NodeId,
        instance: InstanceId,
        config: ClusterConfig,
        *,
        settings: MembershipSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        generations: Mapping[ShardId, Generation],
        failed: Iterable[ShardId] = (),
        keeps_event_log: bool = False,
    ) -> None:
        """
        Args:
            generations: of the own shards that are open.
            failed: own shards that could not be opened.
            keeps_event_log: this node takes part in rebuilding.
        """
        self.node = node
        self.metrics = MembershipMetrics()
        self.version = 1
        """Grows whenever `state`, `generation`, `serves` or `keeps_event_log` would answer differently."""
        self.config_version = config.version
        """The newest version of the cluster file that any node said to have."""
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._rng = rng
        self._config = config
        self._ticks = 0
        self._me = _Known(
            instance=instance,
            heard=True,
            flags=_STARTING | (_KEEPS_EVENT_LOG if keeps_event_log else 0),
            generations=_as_list(generations),
            failed=frozenset(map(shard_index_of, failed)),
        )
        self._known: dict[NodeId, _Known] = {node: self._me}
        self._members = sorted(config.nodes)
        self._states: dict[NodeId, NodeState] = {}
        self._isolated = False
        self._refresh()

    def use_settings(self, settings: MembershipSettings) -> None:
        """Go on with other settings; what was begun keeps its times."""
        self._settings = settings

    # ClusterView

    def state(self, node: NodeId) -> NodeState:
        return self._states.get(node, NodeState.DEAD)

    def is_alive(self, node: NodeId) -> bool:
        return self._states.get(node, NodeState.DEAD) is not NodeState.DEAD

    def may_sequence(self, node: NodeId) -> bool:
        return self._states.get(node) is NodeState.ALIVE

    def instance(self, node: NodeId) -> InstanceId:
        known = self._known.get(node)
        return known.instance if known is not None else InstanceId(0)

    def generation(self, shard: ShardId) -> Generation:
        known = self._known.get(node_of(shard))
        index = shard_index_of(shard)
        if known is None or index >= len(known.generations):
            return Generation(0)
        return Generation(known.generations[index])

    def serves(self, shard: ShardId) -> bool:
        node = node_of(shard)
        return self.is_alive(node) and shard_index_of(shard) not in self._known[node].failed

    def keeps_event_log(self, node: NodeId) -> bool:
        """Whether the run of the node that was heard of last said that it takes part in rebuilding. Earlier versions do not say so."""
        known = self._known.get(node)
        return known is not None and bool(known.flags & _KEEPS_EVENT_LOG)

    def isolated(self) -> bool:
        return self._isolated

    # Events

    def note_failed(self, shard: ShardId) -> None:
        """The disk of an own shard failed: everybody is told, until this run ends."""
        self._me.failed |= {shard_index_of(shard)}
        self.version += 1

    def start(self, now: Micros) -> None:
        """Begin to gossip."""
        self._tick(now)

    def on_gossip(self, message: Gossip, now: Micros) -> None:
        """What another node knows."""
        self.config_version = max(self.config_version, message.config_version)
        sender = message.node
        if sender == self.node or sender not in self._config.nodes:
            return
        known = self._find(sender)
        if message.instance < known.instance or (
            message.instance == known.instance and message.sequence <= known.sequence
        ):
            self.metrics.gossips_stale += 1
            return
        self.metrics.gossips_received += 1
        members = self._config.nodes
        for each in message.nodes:
            if each.node != self.node and each.node in members:
                # more shards than the node has would pile up in every gossip from here on
                count = members[each.node].shards
                shards = tuple(each.generations[:count])
                failed = frozenset(index for index in each.failed if index < count)
                self._merge(each.node, each.instance, each.intervals, each.flags, shards, failed)
        known.sequence = message.sequence
        known.refused = False  # its process was there to send this
        self._refresh()

    def _merge(
        self,
        node: NodeId,
        instance: InstanceId,
        counter: int,
        flags: int,
        generations: tuple[Generation, ...],
        failed: frozenset[int],
    ) -> None:
        known = self._find(node)
        if instance < known.instance or instance == 0:
            return
        kept = known.flags & _KEEPS_EVENT_LOG
        if instance > known.instance:
            known.instance, known.counter, known.flags = instance, counter, flags
            known.sequence, known.refused, known.heard = 0, False, True
        else:
            known.counter = min(known.counter, counter)
            known.heard = True
            known.flags = (known.flags & flags & _STARTING) | ((known.flags | flags) & (_LEAVING | _KEEPS_EVENT_LOG))
            failed |= known.failed
        if known.failed != failed or known.flags & _KEEPS_EVENT_LOG != kept:
            known.failed = failed
            self.version += 1
        if known.generations == generations:
            return
        latest = tuple(
            max(ours, theirs)
            for ours, theirs in zip(
                known.generations + (Generation(0),) * (len(generations) - len(known.generations)),
                generations + (Generation(0),) * (len(known.generations) - len(generations)),
                strict=True,
            )
        )
        if latest != known.generations:
            # also where states are as before: a run with another disk may be heard of first when it is alive, as the one before was
            known.generations = latest
            self.version += 1

    def _find(self, node: NodeId) -> _Known:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = _Known(InstanceId(0))
        return known

    def on_refused(self, node: NodeId, now: Micros) -> None:
        """Nobody listens at the node's address."""
        known = self._known.get(node)
        if known is not None and node != self.node and known.heard and not known.refused:
            known.refused = True
            self._refresh()

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A newer cluster file."""
        self._config = config
        self._members = sorted(config.nodes)
        for node in sorted(self._known):
            if node not in config.nodes and node != self.node:
                del self._known[node]
        self._refresh()
        self._count()

    def leave(self, now: Micros) -> None:
        """Tell everybody that this node is about to stop."""
        self._me.flags |= _LEAVING
        self._refresh()
        self._send(self._others())

    def cluster_state(self) -> ClusterState:
        """What clients are told."""
        return ClusterState(
            version=self.version,
            config_version=self._config.version,
            nodes=[ClusterNode(node, self.state(node), self.instance(node)) for node in sorted(self._config.nodes)],
        )

    # Ticks

    def _tick(self, now: Micros) -> None:
        self._ticks += 1
        for node in sorted(self._known):
            if node != self.node:
                self._known[node].counter = min(self._known[node].counter + 1, _COUNTER_MAX)
        if self._me.flags & _STARTING and self._knows_the_others():
            self._me.flags &= ~_STARTING
        self._refresh()
        others = self._others()
        if len(others) + 1 > self._settings.gossip_all_nodes_max:
            self._rng.shuffle(others)
            others = others[: self._settings.gossip_fanout]
        self._send(others)
        self._timers.at(now + self._settings.gossip_interval_us, self._tick)

    def _knows_the_others(self) -> bool:
        """Whoever is unheard of counts as dead. A node that nobody has dialled again since it was restarted knows nothing of the sort."""
        if len(self._config.nodes) == 1:
            return True
        heard = any(known.heard for node, known in self._known.items() if node != self.node)
        settings = self._settings
        return self._ticks > (
            settings.starting_intervals if heard else max(settings.starting_intervals, settings.gossip_threshold)
        )

    def _others(self) -> list[NodeId]:
        return [node for node in self._members if node != self.node]

    def _send(self, others: Iterable[NodeId]) -> None:
        self._me.sequence += 1
        message = Gossip(
            node=self.node,
            instance=self._me.instance,
            sequence=self._me.sequence,
            config_version=self._config.version,
            nodes=[
                GossipNode(
                    node, known.instance, known.counter, known.flags, list(known.generations), sorted(known.failed)
                )
                for node, known in sorted(self._known.items())
                if known.instance
            ],
        )
        for node in others:
            self.metrics.gossips_sent += 1
            self._outbox.send(PeerId(node), message)

    def _refresh(self) -> None:
        judge = self._judge
        states = {node: judge(node) for node in self._members}
        if states == self._states:
            return
        for node, state in states.items():
            if state is NodeState.DEAD and self._states.get(node, NodeState.DEAD) is not NodeState.DEAD:
                self.metrics.deaths += 1
        self._states = states
        self.version += 1
        self._count()

    def _count(self) -> None:
        members = self._config.nodes.items()
        self._isolated = sees_too_few((member.location.region, self.is_alive(node)) for node, member in members)

    def _judge(self, node: NodeId) -> NodeState:
        known = self._known.get(node)
        if known is None or not known.heard or known.refused:
            return NodeState.DEAD
        if node != self.node and known.counter > self._settings.gossip_threshold:
            return NodeState.DEAD
        if known.flags & _LEAVING:
            return NodeState.LEAVING
        return NodeState.STARTING if known.flags & _STARTING else NodeState.ALIVE


def _as_list(generations: Mapping[ShardId, Generation]) -> tuple[Generation, ...]:
    """Generations in order of shard index; 0 for one that is not open."""
    by_index = {shard_index_of(shard): generation for shard, generation in generations.items()}
    return tuple(by_index.get(index, Generation(0)) for index in range(max(by_index, default=-1) + 1))
