"""The storage part of a node: routes messages, completions and timers to the machines of its shards."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, is_metadata_log, node_of
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_INVALID
from logdevice_py.core.machine import Outbox, Rng, TimerWheel
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.history import MetadataHistoryReader
from logdevice_py.protocol.messages import (
    CheckSeal,
    Clean,
    Compare,
    Compared,
    DataSize,
    Digest,
    Digested,
    EpochRecoveryMetadata,
    Fetch,
    Fetched,
    FetchMetadata,
    FindKey,
    GetEpochRecoveryMetadata,
    MetadataFetched,
    RebuildStore,
    RebuildStored,
    Release,
    Seal,
    SeqState,
    Start,
    Started,
    Stop,
    Store,
    Trim,
    Trimmed,
    TrimPoints,
    Window,
)
from storage_node.epochs.clean import CleanHandler
from storage_node.epochs.digest import DigestHandler
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
from storage_node.reading.look_up import LookUpHandler, find_answer, size_answer
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
REQUEST_ID_BIT: Final = 1 << 63
"""Set in every request id of the storage part: the sequencers of the same node ask some of the same questions (DIGEST), with ids of their own,
and every answer is shown to both."""


class ShardMachines:
    """The machines of one shard."""

    __slots__ = (
        "catchup",
        "clean",
        "copies",
        "digest",
        "donor",
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
        request_ids: Iterator[int],
        cluster: ClusterView,
        wall: Callable[[], Timestamp] | None,
    ) -> None:
        self.shard = shard
        self.purges = PurgeQueue(shard, start_reader, request_ids, self._clean_moved)
        self.release = ReleaseHandler(shard, self.purges)
        self.clean = CleanHandler(shard, self.purges, self._clean_moved)
        self.seal = SealHandler(shard)
        self.repairs = RepairQueue(shard, cluster, start_reader, request_ids)
        self.store = StoreHandler(shard, self.release.release, self.repairs)
        self.scrubber = Scrubber(shard, self.repairs, start_reader, request_ids, wall)
        self.copies = CopiesHandler(shard, self.repairs.found_damage)
        self.metadata_copies = MetadataCopiesHandler(shard, self.repairs.found_damage)
        self.metadata_resync = MetadataResync(shard, request_ids, cluster, self.repairs.store_begins)
        self.digest = DigestHandler(shard, self.repairs.found_damage)
        self.catchup = CatchupQueue(shard, self.repairs.found_damage)
        self.trim = TrimHandler(shard)
        self.look_up = LookUpHandler(shard)
        clock = AgreedClock(wall or _no_clock, partial(_other_storage_nodes, shard))
        self.trim_exchange = TrimExchange(shard, self.trim, clock)
        self.removed = RemovedLogs(shard, self.trim, cluster)
        self.retention = None if wall is None else Retention(shard, self.trim, clock)
        self.rebuild_store: RebuildStoreHandler | None = None
        self.donor: ShardDonor | None = None

    def enable_rebuilding(self, context: DonorContext) -> None:
        """Take copies from donors, and be one."""
        self.rebuild_store = RebuildStoreHandler(self.shard, self.purges, context.metrics)
        self.shard.drain_mark.is_obeyed = True
        self.shard.judge_writable()
        self.donor = ShardDonor(self.shard, self.purges, self.rebuild_store, context, self.repairs.found_damage)
        self.repairs.is_re_replicated = context.is_re_replicated
        self.purges.is_given_up = context.is_given_up

    def end_turn(self, now: Micros) -> None:
        """Give writes to the disk, then reads: a read sees every write of its turn."""
        shard = self.shard
        if self.retention is not None:
            self.retention.start(now)
        self.trim_exchange.start(now)
        self.removed.start(now)
        self.scrubber.start(now)
        self.metadata_resync.start(now)
        self.purges.on_turn_end(now)
        self.repairs.on_turn_end(now)
        shard.writes.flush(now)
        self.digest.run(now)
        self.catchup.run(now)
        shard.reads.flush()

    def fail(self, now: Micros) -> None:
        """The disk failed: the shard answers nothing but FAILED from here on."""
        if self.shard.failed:
            return
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


class StorageNode:
    """Root of the storage part of one node.

    Args:
        shards: what each shard of the node holds, as its store was loaded.
        cluster: consulted by donors, and by who gives up removed logs; purges ask every shard that may know, alive or not.
        start_reader: begins to read a log's metadata history; None: from the metadata nodeset.
        request_ids: for the questions of purges, below 2^63; different in every run of the node, so that a late answer to an
            earlier run is not taken for one to this.
        wall: the node's wall clock; None: records are kept for ever.
    """

    def __init__(
        self,
        node: NodeId,
        config: ClusterConfig,
        settings: StorageSettings,
        outbox: Outbox,
        timers: TimerWheel,
        rng: Rng,
        cluster: ClusterView,
        shards: Sequence[Contents],
        *,
        start_reader: StartHistoryReader | None = None,
        request_ids: Iterator[int] | None = None,
        wall: Callable[[], Timestamp] | None = None,
    ) -> None:
        self.node = node
        self.metrics = StorageMetrics()
        self._out = outbox
        self._config = config
        self._timers = timers
        self._rng = rng
        self._cluster = cluster
        self.rebuilding: DonorContext | None = None
        tokens = itertools.count(1)
        ids = itertools.count(1) if request_ids is None else request_ids
        self._request_ids = (number | REQUEST_ID_BIT for number in ids)
        reader = self._read_history = self._start_reader if start_reader is None else start_reader
        self._readers: list[MetadataHistoryReader] = []
        self.shards: dict[ShardId, ShardMachines] = {}
        for contents in shards:
            shard = Shard(contents, config, settings, outbox, timers, rng, tokens, self.metrics)
            assert contents.marker.node == node, (contents.marker.shard, node)
            self.shards[shard.shard] = ShardMachines(shard, reader, self._request_ids, cluster, wall)
        self._handlers: dict[type[Any], Callable[[ShardMachines, PeerId, Any, Micros], None]] = {
            Store: lambda m, peer, message, now: m.store.on_store(peer, message, now),
            Release: lambda m, peer, message, now: m.release.on_release(message, now),
            Seal: lambda m, peer, message, now: m.seal.on_seal(peer, message, now),
            Digest: lambda m, peer, message, now: m.digest.on_digest(peer, message, now),
            Clean: lambda m, peer, message, now: m.clean.on_clean(peer, message, now),
            Start: lambda m, peer, message, now: m.catchup.on_start(peer, message, now),
            Window: lambda m, peer, message, now: m.catchup.on_window(peer, message),
            Stop: lambda m, peer, message, now: m.catchup.on_stop(peer, message),
            Compare: lambda m, peer, message, now: m.copies.on_compare(peer, message, now),
            Fetch: lambda m, peer, message, now: m.copies.on_fetch(peer, message, now),
            FetchMetadata: lambda m, peer, message, now: m.metadata_copies.on_fetch_metadata(peer, message, now),
            Trim: lambda m, peer, message, now: m.trim.on_trim(peer, message, now),
            FindKey: lambda m, peer, message, now: m.look_up.on_find(peer, message, now),
            DataSize: lambda m, peer, message, now: m.look_up.on_data_size(peer, message, now),
            TrimPoints: lambda m, peer, message, now: m.trim_exchange.on_trim_points(message, now),
            CheckSeal: lambda m, peer, message, now: check_seals(m.shard, peer, message),
            GetEpochRecoveryMetadata: lambda m, peer, message, now: answer_epoch_recovery_metadata(
                m.shard, peer, message
            ),
        }

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
            self._request_ids,
            self._read_history,
            ask_sequencer,
        )
        for machines in self.shards.values():
            machines.enable_rebuilding(self.rebuilding)
        self._handlers[RebuildStore] = self._on_rebuild_store

    def _on_rebuild_store(self, machines: ShardMachines, peer: PeerId, message: RebuildStore, now: Micros) -> None:
        assert machines.rebuild_store is not None
        machines.rebuild_store.on_rebuild_store(peer, message, now)

    def on_rebuilding_set(self, state: RebuildingSet, now: Micros) -> None:
        """The event log says something else than before."""
        if self.rebuilding is not None:
            self.rebuilding.set = state
            for machines in self.shards.values():
                if machines.donor is not None:
                    machines.donor.on_set(state, now)

    @property
    def message_types(self) -> frozenset[type[Any]]:
        """The messages that `on_message` takes."""
        return frozenset(
            (
                *self._handlers,
                Digested,
                EpochRecoveryMetadata,
                Compared,
                Fetched,
                MetadataFetched,
                SeqState,
                RebuildStore,
                RebuildStored,
            )
        )

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        """A message for one of the shards, or an answer to one of them."""
        handler = self._handlers.get(type(message))
        if handler is not None:
            machines = self.shards.get(message.shard)
            if machines is None:
                self._not_storage(peer, message)
            else:
                handler(machines, peer, message, now)
        elif type(message) is Digested:
            for machines in self.shards.values():
                machines.purges.on_digested(message, now)
                machines.repairs.on_digested(message, now)
                machines.scrubber.on_digested(message, now)
                if machines.donor is not None:
                    machines.donor.on_digested(message, now)
        elif type(message) is Compared:
            for machines in self.shards.values():
                machines.scrubber.on_compared(message, now)
        elif type(message) is Fetched:
            for machines in self.shards.values():
                machines.repairs.on_fetched(message, now)
        elif type(message) is MetadataFetched:
            for machines in self.shards.values():
                machines.metadata_resync.on_metadata_fetched(message, now)
        elif type(message) is SeqState:
            for machines in self.shards.values():
                machines.repairs.on_seq_state(message, now)
        elif type(message) is EpochRecoveryMetadata:
            for machines in self.shards.values():
                machines.purges.on_recovery_metadata(message, now)
        elif type(message) is RebuildStored:
            if self.rebuilding is not None:
                self.rebuilding.requests.on_rebuild_stored(message, now)
        elif type(message) is not RebuildStore:
            raise AssertionError(f"{type(message).__name__} is not for storage nodes")

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
            machines.purges.on_peer_down(peer, now)
            machines.repairs.on_peer_down(peer, now)
            machines.scrubber.on_peer_down(peer, now)
            machines.metadata_resync.on_peer_down(peer, now)
            if machines.donor is not None:
                machines.donor.on_peer_down(peer, now)
        if self.rebuilding is not None:
            self.rebuilding.requests.on_peer_down(peer, now)

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
                    machines.fail(now)
                machines.shard.writes.on_written(token, status, now)
                return

    def on_read(self, token: int, result: ReadResult | DirectoryResult, now: Micros) -> None:
        """Outcome of a `ReadShard`, `ReadLast` or `ReadDirectory`."""
        for machines in self.shards.values():
            if machines.shard.reads.awaits(token):
                if result.status is not Status.OK:
                    machines.fail(now)
                machines.shard.reads.on_read(token, result, now)
                return

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
        if self.rebuilding is not None:
            self.rebuilding.config = config
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
            self._request_ids,
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
        elif type(message) is Start:
            self._out.send(
                peer,
                Started(
                    log=message.log,
                    stream=message.stream,
                    shard=message.shard,
                    status=Status.NOTSTORAGE,
                    filter_version=message.filter_version,
                    last_released=LSN_INVALID,
                ),
            )
        elif type(message) is FindKey:
            self._out.send(peer, find_answer(message, Status.NOTSTORAGE))
        elif type(message) is DataSize:
            self._out.send(peer, size_answer(message, Status.NOTSTORAGE))
        elif type(message) is Trim:
            self._out.send(
                peer,
                Trimmed(request_id=message.request_id, log=message.log, shard=message.shard, status=Status.NOTSTORAGE),
            )
