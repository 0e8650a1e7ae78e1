"""Everything of a node that has to do with the log tree: follows it, tells the other parts what changed, and does what nodes do for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from client.log_tree.commands import Retired, encode
from client.log_tree.settings import LogTreeSettings
from client.log_tree.state import LOG_TREE, LogTreeState
from client.log_tree.view import LogTreeView, TreeChange
from client.replica.command_replica import CommandReplica
from client.session import ClientSession
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS, LogId, NodeId, PeerId
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.membership.gossip import GossipMachine
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol.requests import Requests
from sequencer.node import SequencerNode
from server.event_log.links import NodeLinks
from server.log_tree.retirement import Retirement

_TICK_US: Final = SECOND
_PROPOSAL_US: Final = 10 * SECOND
_GROUPS_PER_COMMAND: Final = 10
"""A snapshot costs what the tree is large: in a tree of so many groups for each command since the last one, another is due."""


class _Ignored:
    """A promise of which the outcome is seen in the tree."""

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:
        """The tree shows it."""

    def set_exception(self, exception: BaseException, /) -> None:
        """It is proposed again."""

    def exception(self) -> BaseException | None:
        return None


class NodeLogTree:
    """The log tree's part of one node.

    Args:
        view: what the other parts of the node look things up in.
        on_change: called when the tree is another one.
    """

    def __init__(
        self,
        node: NodeId,
        config: ClusterConfig,
        settings: LogTreeSettings,
        view: LogTreeView,
        gossip: GossipMachine,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        sequencer: SequencerNode | None,
        on_change: Callable[[TreeChange, Micros], None],
    ) -> None:
        self.view = view
        self._node = node
        self._settings = settings
        self._gossip = gossip
        self._timers = timers
        self._on_change = on_change
        self._snapshot_at = 0
        """How many commands there were when a snapshot was written here, or the node began."""
        self.session = ClientSession(config, timers, rng, links=NodeLinks(outbox), requests=requests)
        self.replica: CommandReplica[LogTreeState] = CommandReplica(
            self.session, LOG_TREE, LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS, self._on_replica, snapshot_every=0
        )
        self._retirement = None if sequencer is None else Retirement(sequencer, view, self._propose_retired)

    def start(self, now: Micros) -> None:
        """Begin to read the tree."""
        self.replica.start(now)
        self._timers.at(Micros(now + _TICK_US), self._tick)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """Another version of the cluster file."""
        self.session.set_config(config, now)

    def on_cluster_state(self, now: Micros) -> None:
        """Gossip says something else of the nodes than before."""
        self.session.on_message(PeerId(self._node), self._gossip.cluster_state(), now)
        if self._retirement is not None:
            self._retirement.on_change(now)

    def _on_replica(self, now: Micros) -> None:
        replica = self.replica
        self.view.confirmed_at = replica.confirmed_at
        change = self.view.take(replica.state.value, is_known=replica.caught_up)
        if change.everything or change.logs:
            self._on_change(change, now)
        if self._retirement is not None:
            self._retirement.on_change(now)

    def _propose_retired(self, lo: LogId, now: Micros) -> None:
        try:
            self.replica.propose(encode(Retired(lo)), _Ignored(), now, _PROPOSAL_US)
        except LogDeviceError:
            hit("log_tree_does_not_take_retired")

    def _tick(self, now: Micros) -> None:
        self._timers.at(Micros(now + _TICK_US), self._tick)
        replica = self.replica
        self.view.confirmed_at = replica.confirmed_at
        since = replica.state.commands - self._snapshot_at
        due = max(self._settings.snapshot_commands, len(replica.state.value) // _GROUPS_PER_COMMAND)
        if since >= due and self._leads() and replica.write_snapshot(now):
            self._snapshot_at = replica.state.commands

    def _leads(self) -> bool:
        """Whether this node is the one that writes snapshots. When two think so, there is one snapshot more."""
        gossip = self._gossip
        if not self.replica.caught_up or gossip.isolated() or not gossip.may_sequence(self._node):
            return False
        return locate_sequencer(LOG_TREE_DELTAS, self.session.config, gossip.may_sequence) == self._node
