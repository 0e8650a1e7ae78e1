"""Whom to ask about a log: where its sequencer should be, and redirects followed without running in circles."""

from __future__ import annotations

from client.known_cluster import KnownCluster
from client.links import Links
from client.metrics import ClientMetrics
from client.refused_access import access_text
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, PeerId, data_log_of
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.principal import Permission
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol.messages import AppendFlags
from logdevice_py.shell.proof import Principals


class _KnownLog:
    """What the client remembers of a log."""

    __slots__ = ("changes", "epoch", "node")

    def __init__(self) -> None:
        self.epoch = Epoch(0)
        self.node: NodeId | None = None
        self.changes = -1
        """The state of the view for which `node` holds."""


class Routes:
    """Where each log's sequencer is, as far as the client knows; and the highest epoch of each log that it heard of."""

    __slots__ = ("_known", "config", "metrics", "principals", "view")

    def __init__(self, config: ClusterConfig, view: KnownCluster, metrics: ClientMetrics) -> None:
        self.config = config
        self.view = view
        self.metrics = metrics
        self.principals = Principals()
        """Whom nodes take this client for."""
        self._known: dict[LogId, _KnownLog] = {}

    def _log(self, log: LogId) -> _KnownLog:
        known = self._known.get(log)
        if known is None:
            known = self._known[log] = _KnownLog()
        return known

    def refused(self, log: LogId, permission: Permission | None) -> LogDeviceError:
        """What a refusal with ACCESS means. permission: that is lacking; None: any would do."""
        return LogDeviceError(Status.ACCESS, access_text(self.principals, self.config, log, permission))

    def epoch(self, log: LogId) -> Epoch:
        """The highest epoch of the log heard of; 0 if none."""
        known = self._known.get(log)
        return Epoch(0) if known is None else known.epoch

    def saw_epoch(self, log: LogId, epoch: Epoch) -> None:
        """Some answer named this epoch."""
        known = self._log(log)
        if epoch > known.epoch:
            known.epoch = epoch

    def target(self, log: LogId) -> NodeId | None:
        """The node to ask first: one that a redirect taught us while the cluster's state stays the same, else the located one."""
        known = self._log(log)
        if known.changes != self.view.changes:
            known.node = locate_sequencer(data_log_of(log), self.config, self.view.may_sequence)
            known.changes = self.view.changes
        return known.node

    def was_at(self, log: LogId, dead: NodeId) -> bool:
        """Whether a node that died sequenced the log, as far as is known: by what a redirect taught us, or because it would be located if it lived."""
        known = self._known.get(log)
        if known is not None and known.node == dead:
            return True
        return dead in self.config.nodes and dead == locate_sequencer(
            data_log_of(log), self.config, lambda node: node == dead or self.view.may_sequence(node)
        )

    def learned(self, log: LogId, node: NodeId) -> None:
        """A node other than the located one serves the log."""
        known = self._log(log)
        known.node, known.changes = node, self.view.changes

    def forget(self, log: LogId, node: NodeId) -> None:
        """The node does not serve the log: locate it anew."""
        known = self._known.get(log)
        if known is not None and known.node == node:
            known.changes = -1

    def set_config(self, config: ClusterConfig) -> None:
        """A newer cluster file."""
        self.config = config
        self.view.changes += 1

    def other_node(self, log: LogId, than: NodeId, round_: int) -> NodeId | None:
        """Someone else to ask: the node that would be located without `than`, then the other living ones in turn."""
        located = locate_sequencer(
            data_log_of(log), self.config, lambda node: node != than and self.view.may_sequence(node)
        )
        if round_ == 0 or located is None:
            return located
        others = [node for node in sorted(self.config.nodes) if node != than and self.view.is_alive(node)]
        return others[round_ % len(others)] if others else None

    def look_further(self, log: LogId, links: Links) -> None:
        """A request for the log does not get on: if nobody who is connected sees most of the cluster, dial another node.

        Cut off from the other nodes, those that are connected refuse whatever they are asked, and take all for dead who could serve the log. Any other
        node tells what it sees as soon as it is connected. The first choice is the one that takes the log over from them.
        """
        view = self.view
        if not view.hears_no_witness():
            return

        def unheard(node: NodeId) -> bool:
            peer = PeerId(node)
            return not (links.is_up(peer) or links.is_dialled(peer) or view.was_refused(node))

        node = locate_sequencer(data_log_of(log), self.config, unheard)
        if node is not None:
            marks.hit("client_looks_for_a_witness")
            links.connect(node)


class Router:
    """Follows the redirects of one request.

    A node met twice closes a cycle: two nodes think that the other one sequences the log. The one of the highest index in the cycle is
    told to do it itself (NO_REDIRECT), and to take the log back if it had been preempted.
    """

    __slots__ = ("_asked", "_hops", "_log", "_preempted", "_routes", "flags")

    def __init__(self, routes: Routes, log: LogId) -> None:
        self._routes = routes
        self._log = log
        self._asked: list[NodeId] = []
        self._preempted: set[NodeId] = set()
        self._hops = 0
        self.flags = 0
        """NO_REDIRECT and REACTIVATE_IF_PREEMPTED of `AppendFlags` for the next message."""

    def first(self) -> NodeId | None:
        """Start over at the located node; None: nobody could sequence the log."""
        self._asked.clear()
        self._preempted.clear()
        self._hops = 0
        self.flags = 0
        return self._routes.target(self._log)

    def redirected(self, sender: NodeId, to: NodeId, *, preempted: bool) -> NodeId | None:
        """Where to go after `sender` named `to`. None: end this round, pause and start over."""
        routes = self._routes
        routes.metrics.redirects_followed += 1
        self._hops += 1
        self._asked.append(sender)
        if preempted:
            self._preempted.add(sender)
        limit = max(10, 3 * len(routes.config.sequencer_nodes()))
        if self._hops > limit:
            marks.hit("client_too_many_redirects")
            return None
        if to < 0 or to not in routes.config.nodes:
            return None
        if to == sender or not routes.view.is_alive(to):
            return self._insist(sender)
        if to in self._asked:
            marks.hit("client_redirect_cycle")
            routes.metrics.redirect_cycles += 1
            return self._insist(max(self._asked[self._asked.index(to) :]))
        self.flags = 0
        routes.learned(self._log, to)
        return to

    def _insist(self, node: NodeId) -> NodeId:
        """Ask a node to sequence the log itself."""
        self.flags = int(AppendFlags.NO_REDIRECT)
        if node in self._preempted:
            self.flags |= int(AppendFlags.REACTIVATE_IF_PREEMPTED)
        self._asked.clear()
        self._routes.learned(self._log, node)
        return node


REFUSALS = frozenset(
    {
        Status.NOSEQUENCER,
        Status.CONNFAILED,
        Status.PREEMPTED,
        Status.REDIRECTED,
        Status.SEQNOBUFS,
        Status.NOTREADY,
        Status.ISOLATED,
        Status.STALE,
        Status.REBUILDING,
        Status.SHUTDOWN,
        Status.AGAIN,
        Status.OVERLOADED,
        Status.UNROUTABLE,
    }
)
"""Statuses after which a direct append is tried again until its time is up, provided that it certainly was not applied."""
