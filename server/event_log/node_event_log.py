"""Everything of a node that has to do with the event log: reads it, acts by it, and tells the other parts what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from client.append.seq_state_request import NoAnswer
from epoch_store.interface import ReadShardIdentity, Result, ShardIdentity
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_of, shard_index_of
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.changes import ToldShards, changes, summary
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.membership.gossip import GossipMachine
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.requests import Requests
from sequencer.node import SequencerNode
from server.event_log.event_writer import RebuildingSupervisor
from server.event_log.exclusion import Exclusion
from server.event_log.notices import EventLogNotice
from server.event_log.participation import absentees
from server.event_log.replica import EventLogReplica
from storage_node.node import StorageNode
from storage_node.rebuilding.context import SequencerAnswered
from storage_node.rebuilding.pace import DonorPace

_QUESTION_US: Final = 10 * SECOND


class NodeRebuilding:
    """The event log's part of one node.

    Args:
        on_exclusion: called when other shards than before are to be left out of new nodesets.
        on_status: called when clients are to be told something else.
    """

    def __init__(
        self,
        node: NodeId,
        config: ClusterConfig,
        settings: RebuildingSettings,
        gossip: GossipMachine,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        generations: Mapping[ShardId, Generation],
        sequencer: SequencerNode | None,
        storage: StorageNode | None,
        on_exclusion: Callable[[Micros], None],
        on_status: Callable[[], None],
    ) -> None:
        self.metrics = RebuildingMetrics()
        self.excluded: frozenset[ShardId] = frozenset()
        self._told_known = False
        self._exclusion = Exclusion()
        self._node = node
        self._config = config
        self._settings = settings
        self._gossip = gossip
        self._outbox = outbox
        self._timers = timers
        self._sequencer = sequencer
        self._storage = storage
        self._on_exclusion = on_exclusion
        self._on_status = on_status
        self._told: ToldShards | None = None
        """What the node's log says of the event log."""
        self.replica = EventLogReplica(
            config, settings, self.metrics, outbox, timers, rng, requests, lambda now: self.on_state(now)
        )
        self.session = self.replica.session
        self.supervisor = RebuildingSupervisor(
            node, settings, gossip, generations, self._look_up, self.replica.append_event
        )
        if storage is not None:
            storage.enable_rebuilding(settings, self.metrics, self._ask_sequencer)

    @property
    def set(self) -> RebuildingSet:
        """What the event log amounts to."""
        return self.replica.set

    @property
    def is_kept(self) -> bool:
        """All living nodes keep the event log. As long as some are of a version that does so only where the file asks for it, the log may not be readable."""
        return not absentees(self._config, self._gossip)

    @property
    def is_known(self) -> bool:
        """Which shards are lost or drained is known: the event log is read; or not all keep it yet, and so nothing was lost or drained."""
        return self.replica.caught_up or not self.is_kept

    def explain(self, now: Micros) -> list[str]:
        """What losses that this node is to declare wait for, a sentence each."""
        return self.supervisor.explain(self._config, self.set, now)

    def paces(self) -> list[DonorPace]:
        """Of the donors of this node that have work."""
        machines = () if self._storage is None else self._storage.shards.values()
        return [each.donor.pace for each in machines if each.donor is not None and each.donor.logs_left]

    def effective(self, config: ClusterConfig) -> ClusterConfig:
        """The cluster file, without the shards that the event log leaves out."""
        return replace(config, excluded=self.excluded, excluded_known=self._told_known)

    # Events

    def start(self, now: Micros) -> None:
        """Begin to read the event log."""
        self._on_exclusion(now)
        self.replica.start(now)
        self._timers.at(now + self._settings.supervision_us, self._tick)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """Another version of the cluster file."""
        self._config = config
        self.replica.on_config(config, now)

    def on_cluster_state(self, now: Micros) -> None:
        """Gossip says something else of the nodes than before."""
        self.session.on_message(PeerId(self._node), self._gossip.cluster_state(), now)
        self._exclude(now)

    def status_messages(self) -> list[m.ShardStatus]:
        """What clients are told."""
        version = self.set.version
        rows = [
            m.ShardStatusRow(shard, generation, entry.authority_of(generation).value)
            for shard, entry in sorted(self.set.shards.items())
            if (generation := entry.silent_up_to)
        ]
        starts = range(0, max(len(rows), 1), m.SHARD_STATUS_ROWS_MAX)
        return [
            m.ShardStatus(
                version=version, shards=rows[start : start + m.SHARD_STATUS_ROWS_MAX], part=part, parts=len(starts)
            )
            for part, start in enumerate(starts)
        ]

    # What follows from the state

    def on_state(self, now: Micros) -> None:
        """The event log may amount to something else now."""
        state = self.set
        self.metrics.shards_rebuilding = len(state.open_shards)
        self._exclude(now)
        self._tell_recovery(now)
        if self._storage is not None:
            self._storage.on_rebuilding_set(state, now)
        for message in self.status_messages():
            self.session.on_message(PeerId(self._node), message, now)
        self._on_status()
        self._tell()

    def _tell(self) -> None:
        """Of what happened before it is caught up only what has come of it: each start would say it again."""
        if not self.replica.caught_up:
            return
        if self._told is None:
            first = summary(self.set)
            lines = [] if first is None else [first]
        else:
            lines = changes(self._told, self.set)
        self._told = ToldShards.of(self.set)
        for line in lines:
            self._outbox.emit(EventLogNotice(line.text, line.alarm))

    def _tell_recovery(self, now: Micros) -> None:
        if self._sequencer is None:
            return
        lost: dict[ShardId, Generation] = {}
        awaited: dict[ShardId, Generation] = {}
        for shard, entry in self.set.shards.items():
            if generation := entry.silent_up_to:
                lost[shard] = generation
            if entry.lost > entry.silent_up_to:
                awaited[shard] = entry.lost
        self._sequencer.on_lost_shards(lost, awaited, self.supervisor.presumed_lost(now), now)

    def _exclude(self, now: Micros) -> None:
        excluded = self._exclusion.judge(self._config, self.set, self._gossip, now)
        is_known = self.is_known
        if excluded != self.excluded or is_known is not self._told_known:
            self.excluded, self._told_known = excluded, is_known
            self._on_exclusion(now)

    def _tick(self, now: Micros) -> None:
        self._timers.at(now + self._settings.supervision_us, self._tick)
        machines = () if self._storage is None else tuple(self._storage.shards.values())
        self.metrics.logs_to_rebuild = sum(each.donor.logs_left for each in machines if each.donor is not None)
        self.metrics.rate_bytes = sum(pace.rate for pace in self.paces())
        self.metrics.append_percent = max((each.shard.append_delay.percent(now) for each in machines), default=0)
        self._exclude(now)
        self.supervisor.note_gone(self._config, now)
        self._tell_recovery(now)
        if not self.replica.caught_up:
            return
        results = {
            each.shard.shard: (int(each.donor.round), result)
            for each in machines
            if each.donor is not None and (result := each.donor.outcome(now)) is not None
        }
        if self._awaits_idle_logs():
            hit("drain_awaits_idle_logs")
            results = {}
        failed = frozenset(each.shard.shard for each in machines if each.shard.failed)
        drains = {each.shard.shard: each.shard.drain_mark.durable for each in machines}
        self.supervisor.tick(self._config, self.set, results, failed, drains, self._exclusion.needed, now)
        if self.supervisor.is_leader(self._config):
            self.replica.write_snapshot_if_due(now)

    def _awaits_idle_logs(self) -> bool:
        """Whether shards that are being drained may still be needed to prove what the open epochs of logs hold that are located here. No donor meets a
        log of which nothing was stored."""
        is_draining = any(entry.mode is RebuildMode.RELOCATE for entry in self.set.open_shards)
        return is_draining and self._sequencer is not None and not self._sequencer.idle_logs.departures_handled

    def _look_up(self, shard: ShardId, now: Micros) -> None:
        if self._sequencer is None:
            return

        def answered(result: Result | None, now: Micros) -> None:
            if result is not None and result.status is Status.OK and isinstance(result.value, ShardIdentity):
                self.supervisor.note_generation(shard, result.value.generation)
            elif result is not None and result.status is Status.EMPTY:
                self.supervisor.note_generation(shard, Generation(0))

        operation = ReadShardIdentity(node_of(shard), shard_index_of(shard))
        self._sequencer.context.epoch_store.submit(operation, answered, now)

    def _ask_sequencer(
        self, log: LogId, min_epoch: Epoch, flags: m.SeqStateFlags, done: SequencerAnswered, now: Micros
    ) -> None:
        session = self.session

        def answered(answer: m.SeqState | NoAnswer, now: Micros) -> None:
            done(answer.status if isinstance(answer, NoAnswer) else Status.OK, now)

        if self._config.is_absent(log):
            self._timers.at(now, lambda at: done(Status.NOTFOUND, at))
            return
        session.questions.ask(
            log,
            now,
            answered,
            flags=int(flags),
            min_epoch=Epoch(max(min_epoch, session.routes.epoch(log))),
            deadline=now + _QUESTION_US,
        )
