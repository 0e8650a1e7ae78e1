"""The storage part of a node: routes messages, completions and timers to the machines of its shards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, is_metadata_log, node_of
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_INVALID
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.history import MetadataHistoryReader
from logdevice_py.protocol.messages import (
    CheckSeal,
    DataSize,
    Digest,
    FindKey,
    GetEpochRecoveryMetadata,
    ListEpochs,
    Start,
    Started,
    Store,
    Trim,
    Trimmed,
    Window,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import Handler, handlers_of, handles
from logdevice_py.shell.principal_quotas import PrincipalQuotas
from storage_node.epochs.clean import CleanHandler
from storage_node.epochs.digest import DigestHandler, digest_refusal
from storage_node.epochs.purge import (
    HistoryReader,
    HistoryResult,
    PurgeQueue,
    StartHistoryReader,
    answer_epoch_recovery_metadata,
)
from storage_node.epochs.seal import SealHandler
from storage_node.log_state import NO_NODE, LogState
from storage_node.log_store.interface import Contents, DamageFound, DirectoryResult, ReadResult
from storage_node.metrics import StorageMetrics
from storage_node.reading.catchup import CatchupQueue
from storage_node.reading.epoch_list import EpochListHandler, epochs_answer
from storage_node.reading.look_up import LookUpHandler, find_answer, size_answer
from storage_node.reading.read_quotas import ReadQuotas
from storage_node.reading.release import ReleaseHandler
from storage_node.rebuilding.context import AskSequencer, DonorContext
from storage_node.rebuilding.donor import ShardDonor
from storage_node.rebuilding.receiver import RebuildStoreHandler
from storage_node.repair.copies import CopiesHandler
from storage_node.repair.metadata_copies import MetadataCopiesHandler
from storage_node.repair.metadata_resync import MetadataResync
from storage_node.repair.repair_queue import RepairQueue
from storage_node.repair.scrub import Scrubber
from storage_node.retention.removed_logs import RemovedLogs
from storage_node.retention.retention import AgreedClock, Retention
from storage_node.retention.trim import TrimHandler, check_seals
from storage_node.retention.trim_exchange import TrimExchange
from storage_node.settings import StorageSettings
from storage_node.shard import Shard
from storage_node.writing.store import StoreHandler, store_answer

_LOGS_AT_A_TIME: Final = 256


class ShardMachines:
    """The machines of one shard."""

    __slots__ = (
        "_started",
        "catchup",
        "clean",
        "copies",
        "digest",
        "donor",
        "epoch_list",
        "look_up",
        "metadata_copies",
        "metadata_resync",
        "purges",
        "rebuild_store",
        "release",
        "removed",
        "repairs",
        "retention",
        "scrubber",
        "seal",
        "shard",
        "store",
        "trim",
        "trim_exchange",
    )

    def __init__(
        self,
        shard: Shard,
        start_reader: StartHistoryReader,
        cluster: ClusterView,
        wall: Callable[[], Timestamp] | None,
        quotas: ReadQuotas,
    ) -> None:
        self.shard = shard
        self.purges = PurgeQueue(shard, start_reader, self._clean_moved)
        self.release = ReleaseHandler(shard, self.purges)
        self.clean = CleanHandler(shard, self.purges, self._clean_moved)
        self.seal = SealHandler(shard)
        self.repairs = RepairQueue(shard, cluster, start_reader)
        self.store = StoreHandler(shard, self.release.release, self.repairs)
        self.scrubber = Scrubber(shard, self.repairs, start_reader, wall)
        self.copies = CopiesHandler(shard, self.repairs.found_damage)
        self.metadata_copies = MetadataCopiesHandler(shard, self.repairs.found_damage)
        self.metadata_resync = MetadataResync(shard, cluster, self.repairs.store_begins)
        self.catchup = CatchupQueue(shard, self.repairs.found_damage, quotas)
        self.digest = DigestHandler(shard, self.repairs.found_damage, quotas, self.catchup.is_awaited)
        self.trim = TrimHandler(shard)
        self.look_up = LookUpHandler(shard, self.repairs.found_damage, quotas)
        self.epoch_list = EpochListHandler(shard, quotas)
        clock = AgreedClock(wall or _no_clock, partial(_other_storage_nodes, shard))
        self.trim_exchange = TrimExchange(shard, self.trim, clock)
        self.removed = RemovedLogs(shard, self.trim, cluster)
        self.retention = None if wall is None else Retention(shard, self.trim, clock)
        self.rebuild_store: RebuildStoreHandler | None = None
        self.donor: ShardDonor | None = None
        self._started = False

    def routes(self) -> dict[type[Any], Handler]:
        """A handler for each message to the shard."""
        return handlers_of(self, *(getattr(self, name) for name in self.__slots__))

    @handles(CheckSeal)
    def on_check_seal(self, peer: PeerId, message: CheckSeal, now: Micros) -> None:
        """A sequencer asks who sealed logs here."""
        check_seals(self.shard, peer, message)

    @handles(GetEpochRecoveryMetadata)
    def on_get_epoch_recovery_metadata(self, peer: PeerId, message: GetEpochRecoveryMetadata, now: Micros) -> None:
        """A shard asks how epochs ended."""
        answer_epoch_recovery_metadata(self.shard, peer, message)

    def enable_rebuilding(self, context: DonorContext) -> None:
        """Take copies from donors, and be one."""
        self.rebuild_store = RebuildStoreHandler(self.shard, self.purges, context.metrics)
        self.shard.drain_mark.is_obeyed = True
        self.shard.judge_writable()
        self.donor = ShardDonor(self.shard, self.purges, self.rebuild_store, context, self.repairs.found_damage)
        self.rebuild_store.on_taken = self.donor.on_copies_taken
        self.repairs.re_replicated_by_now = context.re_replicated_by_now
        self.purges.lost = context

    def end_turn(self, now: Micros) -> None:
        """Give writes to the disk, then reads: a read sees every write of its turn."""
        shard = self.shard
        if not self._started:
            self._started = True
            if self.retention is not None:
                self.retention.start(now)
            self.trim_exchange.start(now)
            self.removed.start(now)
        if not self.scrubber.started:
            self.scrubber.start(now)
        if shard.generation > 1:
            self.metadata_resync.start(now)
        self.purges.on_turn_end(now)
        self.repairs.on_turn_end(now)
        shard.writes.flush(now)
        self.digest.run(now)
        self.catchup.run(now)
        shard.reads.flush()

    def fail(self, now: Micros) -> None:
        """The disk failed: the shard answers nothing but FAILED from here on."""
        self.shard.fail()
        if self.donor is not None:
            self.donor.stop()
        self.purges.stop_all()
        self.repairs.stop_all()
        self.metadata_resync.stop()
        self.scrubber.stop()
        self.catchup.fail_all()
        for state in self.shard.logs.values():
            if state.held_cleans is not None:
                self.clean.retry(state, now)

    def _clean_moved(self, state: LogState, now: Micros) -> None:
        self.clean.retry(state, now)
        self.release.retry(state, now)


def _no_clock() -> Timestamp:
    """Nothing is kept for a time."""
    return Timestamp(0)


def _other_storage_nodes(shard: Shard) -> set[NodeId]:
    return {node_of(each) for each in shard.config.storage_shards()} - {node_of(shard.shard)}


SHARD_HANDLERS: Final = (
    ShardMachines,
    StoreHandler,
    ReleaseHandler,
    SealHandler,
    DigestHandler,
    CleanHandler,
    CatchupQueue,
    CopiesHandler,
    MetadataCopiesHandler,
    TrimHandler,
    EpochListHandler,
    LookUpHandler,
    TrimExchange,
    RebuildStoreHandler,
)
"""The machines of a shard that handle messages."""


class StorageNode:
    """Root of the storage part of one node.

    Args:
        shards: what each shard of the node holds, as its store was loaded.
        cluster: consulted by donors, and by who deletes removed logs; purges ask every shard that may know, alive or not.
        start_reader: begins to read a log's metadata history; None: from the metadata nodeset.
        requests: of the process.
        wall: the node's wall clock; None: records are kept for ever.
        quotas: of the principals of clients; None: they are those of the cluster file, for anonymous clients.
    """

    def __init__(
        self,
        node: NodeId,
        config: ClusterConfig,
        settings: StorageSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        cluster: ClusterView,
        requests: Requests,
        shards: Sequence[Contents],
        *,
        start_reader: StartHistoryReader | None = None,
        wall: Callable[[], Timestamp] | None = None,
        quotas: PrincipalQuotas | None = None,
    ) -> None:
        self.node = node
        self.read_quotas = ReadQuotas(config, quotas)
        self.metrics = StorageMetrics()
        self._out = outbox
        self._config = config
        self._timers = timers
        self._rng = rng
        self._cluster = cluster
        self.rebuilding: DonorContext | None = None
        tokens = itertools.count(1)
        self._requests = requests
        reader = self._read_history = self._start_reader if start_reader is None else start_reader
        self._readers: list[MetadataHistoryReader] = []
        self.on_shard_failed: Callable[[ShardId], None] = lambda shard: None
        """Called once for each shard whose disk failed."""
        self.shards: dict[ShardId, ShardMachines] = {}
        for contents in shards:
            shard = Shard(contents, config, settings, outbox, timers, rng, tokens, self.metrics, requests)
            assert contents.marker.node == node, (contents.marker.shard, node)
            self.shards[shard.shard] = ShardMachines(shard, reader, cluster, wall, self.read_quotas)

    def use_settings(self, settings: StorageSettings) -> None:
        """Other settings hold; what was sized when a shard was opened stays as it is."""
        for machines in self.shards.values():
            machines.shard.settings = settings

    def enable_rebuilding(
        self, settings: RebuildingSettings, metrics: RebuildingMetrics, ask_sequencer: AskSequencer
    ) -> None:
        """Take part in rebuilding; to be called before the first event."""
        self.rebuilding = DonorContext(
            self._config,
            settings,
            metrics,
            self._out,
            self._timers,
            self._rng,
            self._cluster,
            self._requests,
            self._read_history,
            ask_sequencer,
        )
        for machines in self.shards.values():
            machines.enable_rebuilding(self.rebuilding)

    def on_rebuilding_set(self, state: RebuildingSet, now: Micros) -> None:
        """The event log says something else than before."""
        if self.rebuilding is not None:
            self.rebuilding.set = state
            for machines in self.shards.values():
                if machines.donor is not None:
                    machines.donor.on_set(state, now)

    def make_routes(self) -> dict[type[Any], Handler]:
        """A handler for each message that is for a shard of this node."""
        routes: dict[type[Any], dict[ShardId, Handler]] = {}
        for shard, machines in self.shards.items():
            for kind, handler in machines.routes().items():
                routes.setdefault(kind, {})[shard] = handler
        return {kind: self._to_shard(handlers) for kind, handlers in routes.items()}

    def _to_shard(self, handlers: dict[ShardId, Handler]) -> Handler:
        def hand(peer: PeerId, message: Any, now: Micros) -> None:
            handler = handlers.get(message.shard)
            if handler is None:
                self._not_storage(peer, message)
            else:
                handler(peer, message, now)

        return hand

    def on_turn_end(self, now: Micros) -> None:
        """Everything of the turn has been handed in."""
        for machines in self.shards.values():
            machines.end_turn(now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection is gone: read streams over it end, answers to it are lost."""
        for machines in self.shards.values():
            machines.catchup.on_peer_down(peer)
            machines.digest.on_peer_down(peer)
            machines.look_up.on_peer_down(peer)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A node can be reached again."""
        for machines in self.shards.values():
            machines.purges.on_peer_up(peer, now)
            machines.repairs.on_peer_up(now)
            machines.metadata_resync.on_peer_up(peer, now)

    def on_peer_congested(self, peer: PeerId, now: Micros) -> None:
        """The connection's send buffer is full: read streams pause until `on_peer_drained`."""
        for machines in self.shards.values():
            machines.catchup.on_peer_congested(peer)
            machines.digest.on_peer_congested(peer)

    def on_peer_drained(self, peer: PeerId, now: Micros) -> None:
        """The connection takes more."""
        for machines in self.shards.values():
            machines.catchup.on_peer_drained(peer)
            machines.digest.on_peer_drained(peer)

    def on_written(self, token: int, status: Status, now: Micros) -> None:
        """Outcome of a `WriteShard`."""
        for machines in self.shards.values():
            if machines.shard.writes.awaits(token):
                if status is Status.FAILED:
                    self._fail(machines, now)
                machines.shard.writes.on_written(token, status, now)
                return

    def on_read(self, token: int, result: ReadResult | DirectoryResult, now: Micros) -> None:
        """Outcome of a `ReadShard`, `ReadLast` or `ReadDirectory`."""
        for machines in self.shards.values():
            if machines.shard.reads.awaits(token):
                if result.status is not Status.OK:
                    self._fail(machines, now)
                machines.shard.reads.on_read(token, result, now)
                return

    def _fail(self, machines: ShardMachines, now: Micros) -> None:
        if not machines.shard.failed:
            machines.fail(now)
            self.on_shard_failed(machines.shard.shard)

    def on_damage(self, found: DamageFound, now: Micros) -> None:
        """Files of a shard are damaged."""
        machines = self.shards[found.shard]
        if machines.shard.failed:
            return
        for log, first, last in found.ranges:
            machines.repairs.found_in_files(machines.shard.log(log), first, last)
        if not found.ranges:
            machines.scrubber.hurry(now)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A newer cluster file."""
        self._config = config
        self.read_quotas.on_config(config)
        if self.rebuilding is not None:
            self.rebuilding.set_config(config)
        for machines in self.shards.values():
            machines.shard.on_config(config)
            if machines.donor is not None:
                machines.donor.judge_mark()
            machines.metadata_resync.start(now)  # what has come before proves nothing by this file
            machines.removed.on_config()
            if machines.retention is not None:
                machines.retention.on_config()
        for reader in list(self._readers):
            reader.on_config(config, now)

    def on_logs_changed(self) -> None:
        """The log tree is another one."""
        self.read_quotas.on_logs_changed()
        for machines in self.shards.values():
            machines.shard.on_logs_changed()
            if machines.retention is not None:
                machines.retention.on_config()

    def shut_down(self, now: Micros) -> None:
        """Refuse requests from here on and write what is written lazily; the shell closes the stores when the last write is answered."""
        for machines in self.shards.values():
            machines.shard.stopping = True
            machines.shard.persist_releases()

    def check(self) -> None:
        """What must hold between any two events."""
        for machines in self.shards.values():
            machines.shard.check()
            machines.catchup.check()

    def look(self) -> Iterator[None]:
        """Count the logs that are behind, some at each step."""
        behind = 0
        for machines in list(self.shards.values()):
            logs = machines.shard.logs
            for number, log in enumerate(list(logs)):
                state = logs.get(log)
                if state is not None and state.highest > state.last_released and not is_metadata_log(log):
                    behind += 1
                if number % _LOGS_AT_A_TIME == 0:
                    yield
        self.metrics.logs_behind = behind

    def _start_reader(self, log: LogId, done: HistoryResult, now: Micros) -> HistoryReader:
        """Read a log's metadata history from the metadata nodeset of the cluster file."""
        reader = MetadataHistoryReader(
            log,
            self._config,
            self._out,
            self._timers,
            self._rng,
            self._requests,
            lambda reader, now: done(reader.history, reader.authoritative, now),
        )
        self._readers = [each for each in self._readers if each.is_reading]
        self._readers.append(reader)
        reader.start(now)
        return reader

    def _not_storage(self, peer: PeerId, message: Any) -> None:
        """Answer a request for a shard that is not here, where the asker would wait for long otherwise."""
        if type(message) is Store:
            self._out.send(peer, store_answer(message, Status.NOTSTORAGE, EPOCH_INVALID, NO_NODE))
        elif type(message) not in (Digest, Window):
            self.refuse(peer, message, Status.NOTSTORAGE)

    def end_streams(self, may_read: Callable[[PeerId, LogId], bool]) -> None:
        """End the read streams of those who may not read their logs (any more)."""
        for machines in self.shards.values():
            machines.catchup.end_refused(may_read)

    def refuse(self, peer: PeerId, message: Any, status: Status) -> None:
        """Answer a request of a client with a status other than OK. One that opened a stream ends it."""
        if type(message) in (Start, Window):
            self._out.send(
                peer,
                Started(
                    log=message.log,
                    stream=message.stream,
                    shard=message.shard,
                    status=status,
                    filter_version=message.filter_version,
                    last_released=LSN_INVALID,
                ),
            )
        elif type(message) is FindKey:
            self._out.send(peer, find_answer(message, status))
        elif type(message) is DataSize:
            self._out.send(peer, size_answer(message, status))
        elif type(message) is ListEpochs:
            self._out.send(peer, epochs_answer(message, status))
        elif type(message) is Trim:
            self._out.send(
                peer,
                Trimmed(request_id=message.request_id, log=message.log, shard=message.shard, status=status),
            )
        elif type(message) is Digest:
            self._out.send(peer, digest_refusal(message, status))
