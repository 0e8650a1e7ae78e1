"""The pure root of one node: owns the roles that it has and routes events to them.

It knows no protocol rule. Which role a message is for follows from its type alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from client.log_tree.view import LogTreeView, TreeChange
from client.read.open_streams import OpenStreams
from client.session import ClientSession
from epoch_store.interface import Result
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.config.packed import pack_configuration
from logdevice_py.core.declare import counter
from logdevice_py.core.ids import USER_LOG_ID_MAX, InstanceId, NodeId, PeerId, is_client
from logdevice_py.core.lsn import LSN_INVALID
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.membership.gossip import GossipMachine
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import CODEC_OF, Needs
from logdevice_py.protocol.requests import Requests, ids_of_run
from logdevice_py.protocol.routing import Handler, check_routes, handlers_of, handles, merge
from logdevice_py.shell.principal_quotas import PrincipalQuotas
from logdevice_py.shell.proof import Principals
from sequencer.context import WallClock
from sequencer.node import SequencerNode
from sequencer.recovery.node_recoveries import NodeRecoveries
from server.audit.audit_log import AuditLog
from server.event_log.node_event_log import NodeRebuilding
from server.log_tree.node_log_tree import NodeLogTree
from server.node_settings import NodeSettings
from server.permissions import FROM_CLIENTS, StreamOwners, may, refusal
from storage_node.log_store.interface import Completion, Contents, DamageFound, Written
from storage_node.node import SHARD_HANDLERS, StorageNode


class Role(Protocol):
    """What the sequencer root and the storage root have in common."""

    def on_peer_up(self, peer: PeerId, now: Micros) -> None: ...

    def on_peer_down(self, peer: PeerId, now: Micros) -> None: ...

    def on_config(self, config: ClusterConfig, now: Micros) -> None: ...

    def on_turn_end(self, now: Micros) -> None: ...


class LogFollower(Protocol):
    """A part that follows a log of commands."""

    session: ClientSession
    """Reads and appends for it."""

    def start(self, now: Micros) -> None: ...

    def on_config(self, config: ClusterConfig, now: Micros) -> None: ...

    def on_cluster_state(self, now: Micros) -> None:
        """Gossip says something else of the nodes than before."""


@dataclass(slots=True)
class NodeMetrics:
    """Counters of what a node hands to its roles."""

    misdirected: int = counter(
        "Messages dropped because their sender may not send them, or no role here takes them.", unit="messages"
    )
    access_refused: int = counter(
        "Messages of clients refused because their principal has no permission for what they ask.", unit="messages"
    )


class Node:
    """One process of the cluster."""

    def __init__(
        self,
        node: NodeId,
        instance: InstanceId,
        config: ClusterConfig,
        settings: NodeSettings,
        contents: Sequence[Contents],
        *,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        wall: WallClock,
        principals: Principals | None = None,
    ) -> None:
        """
        Args:
            contents: what the shards that serve hold; others of the node could not be opened.
            wall: the node's wall clock.
            principals: who its clients are, where permissions are looked at; None: all are anonymous.
        """
        generations = {each.marker.shard: each.marker.generation for each in contents}
        unopened = [shard for shard in config.nodes[node].shard_ids() if shard not in generations]
        view = LogTreeView()
        if config.has_log_tree:
            config = replace(config, run_time_logs=view)
        self.node = node
        self.config = config
        """The cluster file, and the log tree beside it."""
        self.metrics = NodeMetrics()
        self._outbox = outbox
        self.gossip = GossipMachine(
            node,
            instance,
            config,
            settings=settings.membership,
            outbox=outbox,
            timers=timers,
            rng=rng,
            generations=generations,
            failed=unopened,
            keeps_event_log=settings.rebuilding.enabled,
        )
        self._principals = Principals() if principals is None else principals
        self.quotas = PrincipalQuotas(config, self._principals)
        """Of the principals of clients."""
        requests = self.requests = Requests(ids_of_run(instance), timers)
        self.sequencer: SequencerNode | None = None
        if Roles.SEQUENCER in config.nodes[node].roles:
            self.sequencer = SequencerNode(
                node,
                instance,
                config,
                settings.sequencer,
                outbox,
                timers,
                rng,
                wall,
                self.gossip,
                requests,
                settings.recovery,
                self.quotas,
            )
        self.storage: StorageNode | None = None
        if contents:
            self.storage = StorageNode(
                node,
                config,
                settings.storage,
                outbox,
                timers,
                rng,
                self.gossip,
                requests,
                contents,
                wall=wall,
                quotas=self.quotas,
            )
            self.storage.on_shard_failed = self.gossip.note_failed
        self._roles: list[Role] = [role for role in (self.sequencer, self.storage) if role is not None]
        self.rebuilding: NodeRebuilding | None = None
        if settings.rebuilding.enabled:
            self.rebuilding = NodeRebuilding(
                node,
                config,
                settings.rebuilding,
                self.gossip,
                outbox,
                timers,
                rng,
                requests,
                generations,
                self.sequencer,
                self.storage,
                self._give_config,
                self._tell_shard_status,
            )
        self.log_tree: NodeLogTree | None = None
        if config.has_log_tree:
            self.log_tree = NodeLogTree(
                node,
                config,
                settings.log_tree,
                view,
                self.gossip,
                outbox,
                timers,
                rng,
                requests,
                self.sequencer,
                self._on_logs_changed,
            )
        self._followers: list[LogFollower] = [part for part in (self.rebuilding, self.log_tree) if part is not None]
        self._sessions = [follower.session for follower in self._followers]
        """That read and append as clients do; ids of requests and streams are those of the process, so each knows its own answers."""
        self._clients: set[PeerId] = set()
        self._packed_config = (0, b"")
        """The version that somebody asked for last, and its text."""
        self.audit: AuditLog | None = None
        """None: the node keeps no audit log."""
        if settings.security.audit_file:
            self.audit = AuditLog(node, settings.security, outbox, timers, self._principals, wall)
        self._checks_permissions = settings.security.permissions
        self._stream_owners = StreamOwners()
        self._unchecked = frozenset[type[Any]]() if self._checks_permissions else FROM_CLIENTS
        """What clients may send without being asked for permissions."""
        self._seen_version = self.gossip.version
        self._routes = self._make_routes()

    def _make_routes(self) -> dict[type[Any], Handler]:
        parts = [handlers_of(self, self.requests)]
        if self.sequencer is not None:
            parts.append(self.sequencer.routes)
        if self.storage is not None:
            parts.append(self.storage.make_routes())
        routes = merge(*parts)
        if self._checks_permissions and m.GetSeqState in routes:
            routes = {**routes, m.GetSeqState: self._limited(routes[m.GetSeqState])}
        return routes if self.audit is None else {**routes, **self._audited(self.audit, routes)}

    def _limited(self, route: Handler) -> Handler:
        """The handler of GET_SEQ_STATE, by which those who may not append begin no epochs that reading does not need."""

        def on_get_seq_state(peer: PeerId, message: m.GetSeqState, now: Micros) -> None:
            if peer < 0 and not may(self._principals.of(peer), Needs.APPEND, message.log, self.config):
                flags = message.flags & ~m.SeqStateFlags.REACTIVATE_IF_PREEMPTED | m.SeqStateFlags.ONLY_READS
                message = replace(message, flags=int(flags))
            route(peer, message, now)

        return on_get_seq_state

    def _audited(self, audit: AuditLog, routes: Mapping[type[Any], Handler]) -> dict[type[Any], Handler]:
        """Handlers of what is written into the audit log when it is allowed, which write it first."""

        def on_trim(peer: PeerId, message: m.Trim, now: Micros) -> None:
            if peer >= 0:
                routes[m.Trim](peer, message, now)
                return

            def done(ok: bool, now: Micros) -> None:
                if ok:
                    routes[m.Trim](peer, message, now)
                elif self.storage is not None:
                    self.storage.refuse(peer, message, Status.AGAIN)

            if not audit.allowed(peer, message, self.config, done, now):
                done(False, now)

        def on_append(peer: PeerId, message: Any, now: Micros) -> None:
            if message.log > USER_LOG_ID_MAX and peer < 0:
                audit.allowed(peer, message, self.config, None, now)
            routes[type(message)](peer, message, now)

        audited: dict[type[Any], Handler] = {m.Trim: on_trim, m.Append: on_append, m.GuardedAppend: on_append}
        return {kind: handler for kind, handler in audited.items() if kind in routes}

    def start(self, now: Micros) -> None:
        """Begin to gossip and to work."""
        self.gossip.start(now)
        for follower in self._followers:
            follower.start(now)
        for follower in self._followers:
            follower.on_cluster_state(now)

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        """Hand a message to the role that it is for."""
        kind = type(message)
        route = self._routes.get(kind)
        if route is None or (peer < 0 and kind not in self._unchecked and not self._admits(peer, message, now)):
            self.metrics.misdirected += 1
            return
        route(peer, message, now)

    def _admits(self, peer: PeerId, message: Any, now: Micros) -> bool:
        """Whether a client may send a message. A refusal is answered before any work is done."""
        if type(message) not in FROM_CLIENTS:
            self._note_refusal(peer, message, Status.ACCESS, now)
            return False
        status = self._refusal(peer, message)
        if status is Status.OK and not self._is_stream_owner(peer, message):
            # not ACCESS: whoever was first to use somebody else's number must not stop him, who takes another one then
            hit("write_stream_of_another_principal")
            status = Status.WRITE_STREAM_BROKEN
        if status is Status.OK:
            return True
        self.metrics.access_refused += status is Status.ACCESS
        self._note_refusal(peer, message, status, now)
        if isinstance(message, m.Append | m.GuardedAppend | m.GetSeqState):
            if self.sequencer is not None:
                self.sequencer.refuse(peer, message, status)
        elif self.storage is not None:
            self.storage.refuse(peer, message, status)
        return False

    def _note_refusal(self, peer: PeerId, message: Any, status: Status, now: Micros) -> None:
        if self.audit is not None:
            self.audit.refused(peer, message, status, self.config, now)

    def _refusal(self, peer: PeerId, message: Any) -> Status:
        return refusal(self._principals.of(peer), message, self.config) if self._checks_permissions else Status.OK

    def _is_stream_owner(self, peer: PeerId, message: Any) -> bool:
        if not isinstance(message, m.Append | m.GuardedAppend) or not message.flags & m.AppendFlags.WRITE_STREAM:
            return True
        return self._stream_owners.is_owner(self._principals.of(peer), message.writer)

    def _end_refused_streams(self) -> None:
        """Permissions may be others: read streams end whose readers may not read any more."""
        if self._checks_permissions and self.storage is not None:
            self.storage.end_streams(
                lambda peer, log: not is_client(peer) or may(self._principals.of(peer), Needs.READ, log, self.config)
            )

    @handles(m.Gossip)
    def on_gossip(self, peer: PeerId, message: m.Gossip, now: Micros) -> None:
        """What another node knows of all nodes."""
        if PeerId(message.node) == peer:
            self.gossip.on_gossip(message, now)
        else:
            self.metrics.misdirected += 1

    @handles(m.GetConfiguration)
    def on_get_configuration(self, peer: PeerId, message: m.GetConfiguration, now: Micros) -> None:
        """Somebody heard of a later version than theirs."""
        version = self.config.version
        if self._packed_config[0] != version:
            self._packed_config = version, pack_configuration(self.config)
        self._outbox.send(
            peer, m.ConfigurationText(request_id=message.request_id, version=version, text=self._packed_config[1])
        )

    @handles(m.Appended, m.Started, m.Records, m.ShardGap)
    def on_answer(self, peer: PeerId, message: Any, now: Micros) -> None:
        """An answer to what this node appends or reads."""
        for session in self._sessions:
            session.on_message(peer, message, now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A node was reached, or a client connected: clients are told the cluster's state."""
        if is_client(peer):
            self._clients.add(peer)
            self._outbox.send(peer, self.gossip.cluster_state())
            if self.rebuilding is not None and self.rebuilding.set.version > LSN_INVALID:
                for message in self.rebuilding.status_messages():
                    self._outbox.send(peer, message)
        else:
            for role in self._roles:
                role.on_peer_up(peer, now)
            for session in self._sessions:
                session.on_peer_up(peer, now)

    def on_peer_down(self, peer: PeerId, now: Micros, *, refused: bool) -> None:
        """A connection broke; messages under way may be lost."""
        self._clients.discard(peer)
        if refused and not is_client(peer):
            self.gossip.on_refused(NodeId(peer), now)
        # Before the roles: what they ask because of this loss is not lost with it.
        self.requests.on_peer_down(peer, now)
        for role in self._roles:
            role.on_peer_down(peer, now)
        if not is_client(peer):
            for session in self._sessions:
                session.on_peer_down(peer, now, refused=refused)

    def on_done(self, done: list[Completion], now: Micros) -> None:
        """Outcomes of the effects that were for shards."""
        storage = self.storage
        assert storage is not None
        for each in done:
            if isinstance(each, Written):
                storage.on_written(each.token, each.status, now)
            elif isinstance(each, DamageFound):
                storage.on_damage(each, now)
            else:
                storage.on_read(each.token, each.result, now)

    def on_epoch_store(self, tokens: Sequence[int], results: Sequence[Result], now: Micros) -> None:
        """Outcomes of `EpochStoreRequest` effects."""
        assert self.sequencer is not None
        for token, result in zip(tokens, results, strict=True):
            self.sequencer.on_epoch_store(token, result, now)

    def on_congestion(self, peer: PeerId, congested: bool, now: Micros) -> None:
        """A peer does not read what waits for it, or reads again: its read streams pause meanwhile."""
        if self.storage is None:
            return
        if congested:
            self.storage.on_peer_congested(peer, now)
        else:
            self.storage.on_peer_drained(peer, now)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A newer version of the cluster file; older ones are never used after it."""
        if config.version <= self.config.version:
            return
        config = replace(config, run_time_logs=self.config.run_time_logs)
        self.config = config
        self.quotas.on_config(config, now)
        self.gossip.on_config(config, now)
        for follower in self._followers:
            follower.on_config(config, now)
        self._give_config(now)
        self._end_refused_streams()
        self._tell_clients()

    def _give_config(self, now: Micros) -> None:
        """The cluster file, or what the event log leaves out of it, is another one."""
        config = self.config if self.rebuilding is None else self.rebuilding.effective(self.config)
        for role in self._roles:
            role.on_config(config, now)

    def _on_logs_changed(self, change: TreeChange, now: Micros) -> None:
        if self.sequencer is not None:
            self.sequencer.on_logs_changed(None if change.everything else change.logs, now)
        if self.storage is not None:
            self.storage.on_logs_changed()
        self._end_refused_streams()

    def _tell_shard_status(self) -> None:
        if self.rebuilding is not None and self._clients:
            for status in self.rebuilding.status_messages():
                for client in sorted(self._clients, reverse=True):
                    self._outbox.send(client, status)

    def on_turn_end(self, now: Micros) -> None:
        """Everything that was ready is handed in."""
        changed = self.gossip.version != self._seen_version
        if changed:
            self._seen_version = self.gossip.version
            if self.sequencer is not None:
                self.sequencer.on_cluster_state(now)
            self._tell_clients()
        for follower in self._followers:
            if changed:
                follower.on_cluster_state(now)
            if follower.session.turn_end.wanted:
                follower.session.on_turn_end(now)
        for role in self._roles:
            role.on_turn_end(now)

    def _tell_clients(self) -> None:
        state = self.gossip.cluster_state()
        for client in sorted(self._clients, reverse=True):
            self._outbox.send(client, state)

    def leave(self, now: Micros) -> None:
        """About to stop in order: tell everybody."""
        self.gossip.leave(now)
        for client in sorted(self._clients, reverse=True):
            self._outbox.send(client, m.Shutdown(reason=False))


_HANDLERS: Final = (Node, Requests, SequencerNode, NodeRecoveries, *SHARD_HANDLERS)
# HELLO and ACK belong to the connection; SHUTDOWN announces that it ends, which its end tells as well.
check_routes(CODEC_OF, _HANDLERS, (ClientSession, OpenStreams, Requests), elsewhere=(m.Hello, m.Ack, m.Shutdown))
