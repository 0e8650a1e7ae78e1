"""The root of everything that sequences at one node: owns the machines of all logs and routes events to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from epoch_store.interface import ReadMetadata, Result
from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import (
    Generation,
    InstanceId,
    LogId,
    NodeId,
    PeerId,
    ShardId,
    data_log_of,
    is_client,
    is_metadata_log,
)
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol.messages import (
    Append,
    AppendFlags,
    GetSeqState,
    GuardedAppend,
    NodeState,
    SeqStateFlags,
    Stored,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import handlers_of, handles
from logdevice_py.shell.principal_quotas import PrincipalQuotas
from sequencer.append_path import AnyAppend, AppendPath
from sequencer.context import SequencerContext, WallClock
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.frames import NO_NODE
from sequencer.history_trim import HistoryTrims
from sequencer.idle_log_passes import IdleLogPasses
from sequencer.metadata_log_reading import MetadataLogReading
from sequencer.metrics import SequencerMetrics
from sequencer.reconfiguration import Reconfiguration
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.node_recoveries import NodeRecoveries
from sequencer.recovery.settings import RecoverySettings
from sequencer.recovery_cluster import NodeRecoveryCluster
from sequencer.redirection import NO_STANDING, Action, Route, route
from sequencer.releases import Releases
from sequencer.seq_state import SeqStateService
from sequencer.sequencer import Sequencer
from sequencer.settings import SequencerSettings
from sequencer.wait_answers import WaitAnswers

_NO_SUCH_LOG = Route(Action.REFUSE, Status.NOTFOUND)
_NOT_KNOWN_YET = Route(Action.REFUSE, Status.AGAIN)


class SequencerNode:
    """All sequencers of a node. Pure: events come in by method, effects go to the outbox."""

    def __init__(
        self,
        node: NodeId,
        instance: InstanceId,
        config: ClusterConfig,
        settings: SequencerSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        wall: WallClock,
        cluster: ClusterView,
        requests: Requests,
        recovery_settings: RecoverySettings | None = None,
        quotas: PrincipalQuotas | None = None,
    ) -> None:
        """
        Args:
            requests: of the process.
            quotas: of its clients' principals; None: they are those of the cluster file, for anonymous clients.
        """
        self.node = node
        self.instance = instance
        self.sequencers: dict[LogId, Sequencer] = {}
        """Every log that was ever asked for here, to look at."""
        context = self.context = SequencerContext(
            node, config, settings, outbox, timers, rng, wall, cluster, requests, quotas
        )
        self.recovery_cluster = NodeRecoveryCluster(context)
        """The event log tells it which shards' data is not whole."""
        self.recovery_metrics = RecoveryMetrics()
        self.recoveries = NodeRecoveries(
            node,
            outbox=outbox,
            timers=timers,
            rng=rng,
            settings=recovery_settings or RecoverySettings(),
            metrics=self.recovery_metrics,
            cluster=self.recovery_cluster,
            wall=wall,
            next_token=context.epoch_store.next_token,
            requests=requests,
        )
        context.recoveries = self.recoveries
        context.history_trims = HistoryTrims(context)
        context.releases = Releases(node, self.sequencers, settings, outbox, timers, cluster)
        self._appends = AppendPath(context)
        self._seq_states = SeqStateService(context, self.sequencers)
        self._reconfiguration = Reconfiguration(context, self.sequencers)
        self.idle_logs = IdleLogPasses(self.sequencers, self.start_recovery, context)
        self._metadata_logs = MetadataLogReading(context)
        self._wait_answers = WaitAnswers(self)
        self._asked_whose = 0
        """Questions of readers for which the epoch store is asked."""
        self.routes: Final = handlers_of(self, self.recoveries)
        """A handler for each message to the sequencers of this node."""

    @property
    def metrics(self) -> SequencerMetrics:
        """What this node's sequencers count."""
        return self.context.metrics

    def collect_metrics(self) -> SequencerMetrics:
        """With everything in it that is counted elsewhere first."""
        self.context.store_timeouts.count()
        metrics, entries, fullest = self.metrics, 0, 0.0
        for busy in self.context.busy:
            if isinstance(busy, EpochSequencer):
                attributes = busy.attributes
                entries += busy.in_flight
                fullest = max(
                    fullest,
                    busy.in_flight / attributes.max_writes_in_flight,
                    busy.window_bytes / attributes.window_bytes,
                )
        metrics.entries_in_flight, metrics.fullest_window = entries, round(100 * fullest)
        metrics.logs_leaving_departed_shards = len(self.idle_logs.waiting())
        metrics.departures_handled = int(self.idle_logs.departures_handled)
        return metrics

    @property
    def seq_states(self) -> SeqStateService:
        """Requests for the state of sequencers, to look at."""
        return self._seq_states

    @property
    def metadata_logs(self) -> MetadataLogReading:
        """The readings of metadata logs, to look at."""
        return self._metadata_logs

    @property
    def drained(self) -> bool:
        """No append is under way, and none waits here."""
        return not self.context.busy and not any(
            each.open_batch or each.buffer or each.held for each in self.sequencers.values()
        )

    # Events

    def on_turn_end(self, now: Micros) -> None:
        """All events of the turn came: cut batches, send what was gathered."""
        self._appends.on_turn_end(now)
        self.recoveries.on_turn_end(now)
        self.context.releases.on_turn_end()

    def on_epoch_store(self, token: int, result: Result, now: Micros) -> None:
        """An `EpochStoreRequest` was answered."""
        if not self.recoveries.on_epoch_store(token, result, now):
            self.context.epoch_store.on_result(token, result, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """A connection broke: what was in flight on it may be lost."""
        if is_client(peer):
            return
        node, context = NodeId(peer), self.context
        config = context.config.nodes.get(node)
        context.availability.on_peer_down(node, config.shards if config is not None else 1, now)
        context.releases.on_peer_down(node)
        for busy in list(context.busy):
            busy.on_peer_down(node, now)
        self.recoveries.on_peer_down(peer, now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node stands."""
        if is_client(peer):
            return
        node = NodeId(peer)
        self.context.availability.on_peer_up(node)
        self.context.releases.on_peer_up(node, now)
        self.recoveries.on_peer_up(peer, now)

    def on_cluster_state(self, now: Micros) -> None:
        """`ClusterView` tells something else than before."""
        self.context.placement_version += 1
        self.context.availability.on_cluster_state()
        self.recoveries.on_cluster_state(now)
        self._reconfiguration.on_cluster_state(now)
        self.idle_logs.on_change(now)
        if self.context.cluster.state(self.node) is NodeState.LEAVING:
            for sequencer in self.sequencers.values():
                self._appends.on_leaving(sequencer, now)

    def on_lost_shards(
        self,
        lost: Mapping[ShardId, Generation],
        awaited: Mapping[ShardId, Generation],
        presumed_lost: frozenset[ShardId],
        now: Micros,
    ) -> None:
        """Shards that are lost up to these generations: nobody waits for their data, or it may come back; and shards that are gone for good, it seems."""
        cluster = self.recovery_cluster
        if (lost, awaited, presumed_lost) != (cluster.lost, cluster.awaited, cluster.presumed_lost):
            cluster.lost, cluster.awaited, cluster.presumed_lost = lost, awaited, presumed_lost
            self.recoveries.on_shard_status(now)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """There is another version of the cluster file."""
        context = self.context
        context.set_config(config)
        context.availability.on_config(config)
        self._metadata_logs.on_config(now)
        self.recoveries.on_shard_status(now)
        self._reconfiguration.on_config(now)
        self.idle_logs.on_change(now)

    def on_logs_changed(self, logs: Iterable[range] | None, now: Micros) -> None:
        """The log tree says something else of these logs; None: perhaps of any."""
        if logs is None:
            self.context.placement_version += (
                1  # the sweep takes a while, and requests must not be served meanwhile as before
            )
        self._reconfiguration.on_logs_changed(logs, now)
        self.idle_logs.on_change(now)

    # Logs that are being removed

    def end_earlier_epochs(self, log: LogId, attributes: LogAttributes, now: Micros) -> Sequencer:
        """Take a log that takes no appends any more to an epoch of its own, so that those before are recovered, whoever sequenced it."""
        self.forget(log, now)  # one that was here may not have heard that the log takes nothing any more
        sequencer = self.sequencers[log] = Sequencer(log, attributes, self.context, self)
        sequencer.activate(now)
        return sequencer

    def forget(self, log: LogId, now: Micros) -> None:
        """Nothing of the log is to be done here any more."""
        sequencer = self.sequencers.pop(log, None)
        if sequencer is not None:
            sequencer.remove(now)

    # What operators want

    def start_recovery(self, log: LogId, now: Micros) -> tuple[Status, NodeId]:
        """Take a log to another epoch, if it is sequenced here. Otherwise the status says why not, and perhaps the node who does it."""
        found = self._route(log, False, True, now)
        if isinstance(found, Route):
            return found.status, found.redirect
        found.activate(now)
        return Status.OK, NO_NODE

    def deactivate(self, log: LogId, now: Micros) -> Status:
        """Stop sequencing a log until somebody asks for it: OK; AGAIN, something of it is on its way; NOSEQUENCER, it has no epoch here."""
        sequencer = self.sequencers.get(log)
        if sequencer is None or (sequencer.current is None and sequencer.activation is None):
            return Status.NOSEQUENCER
        return Status.OK if sequencer.deactivate(now) else Status.AGAIN

    # Messages

    @handles(GuardedAppend)
    def on_guarded_append(self, peer: PeerId, append: GuardedAppend, now: Micros) -> None:
        """An append that depends on the end of its log."""
        self.on_append(peer, append, now)

    @handles(Append)
    def on_append(self, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        self.context.metrics.frames_received += 1
        sequencer = self.sequencers.get(append.log)
        if sequencer is None or sequencer.home_version != self.context.placement_version:
            flags = append.flags
            found = self._route(
                append.log,
                bool(flags & AppendFlags.NO_REDIRECT),
                bool(flags & AppendFlags.REACTIVATE_IF_PREEMPTED),
                now,
            )
            if isinstance(found, Route):
                self._appends.refuse_route(peer, append, found)
                return
            sequencer = found
        self._appends.on_append(sequencer, peer, append, now)

    @handles(GetSeqState)
    def on_get_seq_state(self, peer: PeerId, message: GetSeqState, now: Micros) -> None:
        """Somebody asks how far a log is."""
        if message.flags & SeqStateFlags.EXPLAIN:
            self._wait_answers.answer(peer, message, now)
            return
        if self._would_take_over(message):
            self._ask_whose_it_is(peer, message, now)
            return
        self._serve_seq_state(peer, message, now)

    def _would_take_over(self, message: GetSeqState) -> bool:
        """Whether somebody who may not append insists on an answer here although another node has the log, or is to have it."""
        flags, log = message.flags, message.log
        if not flags & SeqStateFlags.ONLY_READS or not flags & SeqStateFlags.NO_REDIRECT:
            return False
        if is_metadata_log(log) or self.context.config.log(log) is None:
            return False
        sequencer = self.sequencers.get(log)
        if sequencer is not None and (standing := sequencer.standing()).accepts and not standing.preempted:
            return False
        context = self.context
        return locate_sequencer(log, context.config, context.cluster.may_sequence) != context.node

    def _ask_whose_it_is(self, peer: PeerId, message: GetSeqState, now: Micros) -> None:
        """Serve a question of a reader only where nobody has the log: this node, which was started again, or one that is gone had it last."""
        if self._asked_whose >= self.context.settings.sequencer_state_waiters:
            self._seq_states.refuse(peer, message, Status.AGAIN)
            return
        self._asked_whose += 1

        def answered(result: Result | None, now: Micros) -> None:
            self._asked_whose -= 1
            if result is not None and result.status is Status.EMPTY:
                # nobody ever had it: the located node may begin it
                located = replace(message, flags=int(message.flags & ~SeqStateFlags.NO_REDIRECT))
                self._serve_seq_state(peer, located, now)
                return
            if result is None or result.status is not Status.OK or not isinstance(result.value, EpochMetaData):
                self._seq_states.refuse(peer, message, Status.AGAIN)
                return
            writer = result.value.writer
            if writer == self.context.node or not self.context.cluster.may_sequence(writer):
                self._serve_seq_state(peer, message, now)
                return
            hit("reader_sent_to_who_has_the_log")
            self._seq_states.refuse(peer, message, Status.PREEMPTED, writer)

        self.context.epoch_store.submit(ReadMetadata(message.log), answered, now)

    def _serve_seq_state(self, peer: PeerId, message: GetSeqState, now: Micros) -> None:
        sequencer = self.sequencers.get(message.log)
        if sequencer is None or sequencer.home_version != self.context.placement_version:
            flags = message.flags
            found = self._route(
                message.log,
                bool(flags & SeqStateFlags.NO_REDIRECT),
                bool(flags & SeqStateFlags.REACTIVATE_IF_PREEMPTED),
                now,
            )
            if isinstance(found, Route):
                self._seq_states.refuse(peer, message, found.status, found.redirect)
                return
            sequencer = found
        self._seq_states.on_request(sequencer, peer, message, now)

    def refuse(self, peer: PeerId, message: AnyAppend | GetSeqState, status: Status) -> None:
        """Answer a message that its sender may not send."""
        if isinstance(message, GetSeqState):
            self._seq_states.refuse(peer, message, status)
        else:
            self.context.answers.refuse(peer, message.request_id, message.log, status, not_replicated=True)

    def _route(self, log: LogId, no_redirect: bool, reactivate_if_preempted: bool, now: Micros) -> Sequencer | Route:
        context = self.context
        attributes = None if is_metadata_log(log) else context.config.log(log)
        if attributes is None:
            return _NO_SUCH_LOG if is_metadata_log(log) or context.config.is_absent(log) else _NOT_KNOWN_YET
        sequencer = self.sequencers.get(log)
        decision = route(
            context,
            log,
            sequencer.standing() if sequencer is not None else NO_STANDING,
            no_redirect=no_redirect,
            reactivate_if_preempted=reactivate_if_preempted,
            now=now,
        )
        if decision.action is Action.REFUSE:
            return decision
        if sequencer is None:
            sequencer = self.sequencers[log] = Sequencer(log, attributes, context, self)
            context.metrics.sequencers = len(self.sequencers)
        elif sequencer.attributes is not attributes:
            sequencer.on_attributes(attributes, now)
        if decision.action is Action.REACTIVATE:
            sequencer.activate(now)
        elif decision.home:
            sequencer.home_version = context.placement_version
        elif no_redirect:
            sequencer.no_redirect_until = now + context.settings.no_redirect_us
        return sequencer

    @handles(Stored)
    def on_stored(self, peer: PeerId, message: Stored, now: Micros) -> None:
        """The outcome of a STORE."""
        if message.shard >> 8 != peer:
            return
        log = message.log
        sequencer = self.sequencers.get(log)
        if sequencer is not None:
            appender = sequencer.appender(message.lsn)
            if appender is not None:
                appender.on_stored(message, now)
            elif message.status is Status.OK:
                self.context.store_timeouts.answered(message.shard)
        elif is_metadata_log(log):
            sequencer = self.sequencers.get(data_log_of(log))
            if sequencer is not None:
                sequencer.on_metadata_stored(message, now)

    # What sequencers tell

    def before_new_epoch(self, sequencer: Sequencer, now: Micros) -> None:
        """The current epoch is about to end."""
        self._appends.before_new_epoch(sequencer, now)

    def on_active(self, sequencer: Sequencer, token: int, now: Micros) -> None:
        """There is a new epoch, taken by the request of that token to the epoch store."""
        self._appends.on_active(sequencer, now)
        if sequencer.watched:
            self._seq_states.on_epoch_taken(sequencer, token)

    def on_tail_known(self, sequencer: Sequencer, now: Micros) -> None:
        """The end of a guarded log is known."""
        self._appends.take_held(sequencer, now)

    def on_recovered(self, sequencer: Sequencer, now: Micros) -> None:
        """Earlier epochs are recovered."""
        self._appends.take_held(sequencer, now)

    def on_unavailable(self, sequencer: Sequencer, status: Status, now: Micros) -> None:
        """What waits for the log waits in vain."""
        self._appends.on_unavailable(sequencer, status, now)
        self._seq_states.on_unavailable(sequencer, status, now)

    def on_changed(self, sequencer: Sequencer, now: Micros) -> None:
        """Epoch or state of a log changed, or its current epoch is released from here on."""
        if sequencer.watched:
            self._seq_states.on_changed(sequencer, now)

    def on_more_released(self, sequencer: Sequencer, now: Micros) -> None:
        """The release pointer of a log that is watched went on."""
        self._seq_states.on_more_released(sequencer, now)

    def read_metadata_log(self, log: LogId, done: Callable[[bool | None, Micros], None], now: Micros) -> None:
        """Find out whether a metadata log is empty."""
        self._metadata_logs.start(log, done, now)

    def check(self) -> None:
        """Invariants; the simulator calls it."""
        for sequencer in self.sequencers.values():
            sequencer.check()
