"""Deliberate faults of storage nodes: stores, seals, identity, purging, precedence and disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import client.read.decoding
import sequencer.recovery.digest
import storage_node.epochs.clean
import storage_node.epochs.seal
import storage_node.log_store.memory
import storage_node.log_store.metadata_rows
import storage_node.log_store.precedence
import storage_node.reading.look_up
import storage_node.retention.trim
import storage_node.writing.store
from epoch_store import cells
from epoch_store.interface import RegisterShard, Result
from logdevice_py.core.lsn import EPOCH_INVALID, ESN_INVALID, LSN_INVALID, LSN_MAX, Epoch, Lsn, epoch_of
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.membership.gossip import GossipMachine
from logdevice_py.protocol.messages import GapReason, Seal, SeqStateFlags, Store, StoreFlags
from sequencer.seq_state import SeqStateService
from server.event_log import exclusion
from server.event_log.event_writer import RebuildingSupervisor
from storage_node.epochs import digest, epoch_ends
from storage_node.epochs.purge import LogPurge, PurgeState
from storage_node.epochs.seal import SealHandler
from storage_node.log_state import LogState
from storage_node.log_store.memory import MemoryLogStore
from storage_node.reading import read_stream
from storage_node.reading.read_quotas import ReadAllowance
from storage_node.reading.read_stream import ServerReadStream
from storage_node.reading.release import ReleaseHandler
from storage_node.rebuilding.context import DonorContext
from storage_node.rebuilding.donor import ShardDonor
from storage_node.rebuilding.log_rebuilding import LogRebuilding
from storage_node.repair.metadata_resync import MetadataResync
from storage_node.retention.removed_logs import RemovedLogs
from storage_node.retention.retention import Retention
from storage_node.retention.trim import TrimHandler
from storage_node.retention.trim_exchange import TrimExchange
from storage_node.shard import Shard
from storage_node.stored_metadata import RecoveredEpoch
from storage_node.writing import recent_entries
from storage_node.writing.drain_mark import DrainMark
from storage_node.writing.recent_entries import RecentEntries
from storage_node.writing.shard_writes import ShardWrites
from storage_node.writing.store import StoreHandler
from tests.simulation.deliberate_fault import deliberate
from tests.simulation.run_mode import RunMode

Change = Callable[..., Any]


@deliberate("a shard takes STOREs of epochs that it has sealed", (StoreHandler, "_is_preempted"))
def seal_check_skipped(original: Change) -> Change:
    return lambda self, peer, message, state, epoch: False


@deliberate("a shard does not refuse STOREs of an epoch below its soft seal", (StoreHandler, "_is_preempted"))
def soft_seal_ignored(original: Change) -> Change:
    def is_preempted(self: StoreHandler, peer: Any, message: Store, state: LogState, epoch: Epoch) -> Any:
        lenient = replace(message, flags=message.flags | StoreFlags.DRAINING)
        return original(self, peer, lenient, state, epoch)

    return is_preempted


@deliberate("a shard trims as far as anybody asks, beyond what is released", (storage_node.retention.trim, "judge"))
def trim_unchecked(original: Change) -> Change:
    return lambda state, lsn: Status.OK


@deliberate("a shard takes over any trim point that another one tells", (TrimExchange, "_believable"))
def told_trim_points_unchecked(original: Change) -> Change:
    return lambda self, state: Lsn(LSN_MAX - 1)


@deliberate("a SEAL is answered but seals nothing: recovery reads an epoch that goes on", (SealHandler, "on_seal"))
def seal_only_reads(original: Change) -> Change:
    def on_seal(self: SealHandler, peer: Any, message: Seal, now: Any) -> None:
        self._on_sealed(peer, message, Status.OK, now)

    return on_seal


@deliberate("a seal is answered, and is not on disk", (storage_node.epochs.seal, "encode_seal"))
def seal_not_persisted(original: Change) -> Change:
    return lambda epoch, node: original(EPOCH_INVALID, node)


@deliberate("recovery's STOREs are taken below a later seal", (StoreHandler, "_is_preempted"))
def later_recovery_ignored(original: Change) -> Change:
    def is_preempted(self: StoreHandler, peer: Any, message: Store, state: LogState, epoch: Epoch) -> Any:
        return not message.flags & StoreFlags.RECOVERY and original(self, peer, message, state, epoch)

    return is_preempted


@deliberate("everything is answered before it is synced", (ShardWrites, "group"))
def sync_skipped(original: Change) -> Change:
    return lambda self, sync: original(self, False)


@deliberate("a sync that failed is taken for one that worked", (MemoryLogStore, "finish_sync"))
def failed_sync_taken_for_success(original: Change) -> Change:
    def finish_sync(self: MemoryLogStore, token: int) -> Status:
        return Status.OK if self._disk.fail_sync else original(self, token)

    return finish_sync


@deliberate(
    "a disk that lost its data keeps its identity and votes as if nothing had been stored", (cells, "_register_shard")
)
def wiped_shard_keeps_its_identity(original: Change) -> Change:
    def register(operation: RegisterShard, payload: bytes | None, version: int, write: Any) -> Any:
        if operation.generation is None and payload is not None:
            return Result(Status.OK, cells.decode_shard_identity(operation, payload), version)
        return original(operation, payload, version, write)

    return register


@deliberate("a shard answers for epochs that list an earlier generation of it", (Shard, "is_other_generation"))
def generation_not_checked(original: Change) -> Change:
    return lambda self, generation: False


@deliberate("a shard that missed a recovery calls its epochs clean and keeps what it has", (LogPurge, "_stored_epochs"))
def purge_skipped(original: Change) -> Change:
    return lambda self: []


@deliberate(
    "purging deletes all of an epoch, also below the LNG that recovery agreed on", (LogPurge, "on_recovery_metadata")
)
def purge_from_the_start(original: Change) -> Change:
    def on_recovery_metadata(self: LogPurge, message: Any, now: Any) -> None:
        rows = [row._replace(lng=ESN_INVALID) for row in message.epochs]
        original(self, replace(message, epochs=rows), now)

    return on_recovery_metadata


@deliberate("a shard applies a RELEASE though it missed the recovery of earlier epochs", (ReleaseHandler, "release"))
def release_before_purge(original: Change) -> Change:
    def release(self: ReleaseHandler, state: LogState, lsn: Lsn, now: Any) -> None:
        if lsn > state.last_released:
            state.raise_clean_epoch(Epoch((lsn >> 32) - 1))
        original(self, state, lsn, now)

    return release


@deliberate(
    "of several copies of an LSN the one of lowest rank counts",
    (storage_node.log_store.precedence, "resolve"),
    likely="handovers",
)
def precedence_reversed(original: Change) -> Change:
    return lambda log, lsn, copies, *others, **named: original(log, lsn, copies[:1], *others, **named)


@deliberate(
    "entries in memory keep the first copy that came, whatever its rank",
    (recent_entries, "merge_copies"),
    likely="handovers",
)
def first_copy_kept(original: Change) -> Change:
    return lambda held, other: held


@deliberate(
    "neither shards nor readers nor recovery compare the bodies of copies with their checksums",
    (storage_node.log_store.precedence, "check_body"),
    (client.read.decoding, "check_body"),
    (sequencer.recovery.digest, "check_body"),
)
def checksums_skipped(original: Change) -> Change:
    return lambda image, header: None


@deliberate(
    "a shard that cannot read a range says that nothing is stored there",
    (ServerReadStream, "_tell_damage"),
    likely="rot",
)
def damage_told_as_absence(original: Change) -> Change:
    def tell_damage(self: ServerReadStream, damaged: tuple[Lsn, Lsn], last: Lsn) -> None:
        last = min(damaged[1], last)
        if last >= self.position:
            self._send_gap(self.position, last, GapReason.NO_RECORDS)

    return tell_damage


@deliberate("a read skips the last entry before the release pointer", (ServerReadStream, "deliver"))
def last_entry_not_sent(original: Change) -> Change:
    def deliver(self: ServerReadStream, entries: Any, through: Lsn, *rest: Any, **named: Any) -> int:
        return original(self, [entry for entry in entries if entry[0] != through], through, *rest, **named)

    return deliver


@deliberate(
    "a shard deletes what it holds of a log whose metadata it does not find",
    (LogPurge, "_on_history"),
    mode=RunMode.LOSS,
)
def orphans_deleted(original: Change) -> Change:
    def on_history(self: LogPurge, history: Any, complete: bool, now: Any) -> None:
        if self.reader is None or history:
            original(self, history, complete, now)
            return
        self.reader = None
        nothing = RecoveredEpoch(EPOCH_INVALID, ESN_INVALID, ESN_INVALID, LSN_INVALID, Timestamp(0), True)
        for epoch in self._stored_epochs():
            self._note(epoch, nothing)
        self._become(PurgeState.ASKING)
        self._write(now)

    return on_history


@deliberate("a shard trims one LSN more than it was asked to", (TrimHandler, "on_trim"))
def trimmed_too_far(original: Change) -> Change:
    return lambda self, peer, message, now: original(self, peer, replace(message, lsn=Lsn(message.lsn + 1)), now)


@deliberate("a search takes an entry of the very time for an older one", (storage_node.reading.look_up, "search_time"))
def found_time_exclusive(original: Change) -> Change:
    return lambda spans, timestamp, first, last: original(spans, timestamp + 1, first, last)


@deliberate(
    "a shard takes what it holds for an hour older than it is",
    (Retention, "_on_partitions"),
    likely="records that expire",
)
def expired_too_early(original: Change) -> Change:
    def on_partitions(self: Retention, result: Any, now: Any) -> None:
        result.partitions = [(number, Timestamp(youngest - 3600 * SECOND)) for number, youngest in result.partitions]
        self._closed_at, self._looked = {}, False
        original(self, result, now)

    return on_partitions


@deliberate(
    "a shard that lost unsynced entries in a power cut is authoritative for their epochs",
    (Shard, "_mark_dirty"),
    likely="power cuts",
)
def loss_not_admitted(original: Change) -> Change:
    return lambda self, logs, released: None


@deliberate("a shard sends to readers what they have no room for", (ServerReadStream, "deliver"))
def credit_ignored(original: Change) -> Change:
    def deliver(self: ServerReadStream, *rest: Any, **named: Any) -> int:
        credit, self.credit = self.credit, self.credit + (1 << 30)
        try:
            return original(self, *rest, **named)
        finally:
            self.credit = credit

    return deliver


@deliberate("what is kept in memory for tailing readers has no limit", (RecentEntries, "add"))
def recent_entries_unlimited(original: Change) -> Change:
    def add(self: RecentEntries, *rest: Any) -> None:
        limit, self._bytes_max = self._bytes_max, 1 << 40
        try:
            original(self, *rest)
        finally:
            self._bytes_max = limit

    return add


@deliberate(
    "a shard that is short of space trims twice what is missing",
    (storage_node.log_store.memory, "last_to_trim"),
    likely="disks that run full",
)
def too_much_trimmed_for_space(original: Change) -> Change:
    return lambda partitions, size_of, wanted: original(partitions, size_of, 2 * wanted)


@deliberate("a log that left the cluster file is deleted at once", (RemovedLogs, "_count"), likely="logs that leave")
def removed_log_deleted_at_once(original: Change) -> Change:
    def count(self: RemovedLogs, state: LogState, now: Micros) -> None:
        self._counted[state.log] = 1 << 60
        self._ended[state.log] = epoch_of(max(state.highest, state.last_released)), Micros(-1 << 60)
        original(self, state, now)

    return count


@deliberate(
    "a log that was deleted may be appended to in the same epoch when it comes back",
    (TrimHandler, "end_epochs"),
    likely="logs that leave",
)
def removed_log_not_sealed(original: Change) -> Change:
    return lambda self, state, last: None


@deliberate(
    "a shard in a new generation is authoritative for metadata logs before it has their records back",
    (MetadataResync, "start"),
)
def metadata_not_resynced(original: Change) -> Change:
    def start(self: MetadataResync, now: Any) -> None:
        self._shard.metadata_authoritative = True

    return start


@deliberate(
    "a drained shard takes records as soon as it has not read the event log",
    (DrainMark, "refuses"),
    (DrainMark, "clear"),
    mode=RunMode.REBUILDING,
)
def drained_shard_takes_records(original: Any) -> Any:
    return property(lambda self: False) if isinstance(original, property) else lambda self: None


@deliberate(
    "what donors of an earlier round store is taken to be looked after by somebody",
    (ShardDonor, "on_copies_taken"),
    mode=RunMode.REBUILDING,
)
def copies_of_earlier_round_overlooked(original: Change) -> Change:
    return lambda self, log, copies, now: None


@deliberate(
    "a purge waits for a lost shard whose rebuilding waits for it",
    (DonorContext, "is_taken_for_lost"),
    mode=RunMode.REBUILDING,
)
def purge_waits_for_rebuilding(original: Change) -> Change:
    return lambda self, shard, generation: False


@deliberate(
    "a node does not say that the disk of a shard failed",
    (GossipMachine, "note_failed"),
    mode=RunMode.REBUILDING,
)
def failed_disk_untold(original: Change) -> Change:
    return lambda self, shard: None


@deliberate("how a clean epoch ended stays as its first recovery said", (storage_node.epochs.clean, "ends_anew"))
def first_end_stays(original: Change) -> Change:
    return lambda state, seal_epoch, item: False


@deliberate(
    "a node that is cut off takes the others for too few, and writes to drained shards at once",
    (exclusion.Exclusion, "judge"),
    mode=RunMode.REBUILDING,
    likely="removals",
)
def cut_off_node_writes_to_drained_shards(original: Change) -> Change:
    def judge(self: exclusion.Exclusion, config: Any, state: Any, view: Any, now: Any) -> Any:
        self._few_since = Micros(-SECOND * 60)
        sees_all = SimpleNamespace(generation=view.generation, serves=view.serves, isolated=lambda: False)
        return original(self, config, state, sees_all, now)

    return judge


@deliberate(
    "a drained shard refuses records until it is started anew, and cannot tell that it took some",
    (storage_node.log_store.metadata_rows, "encode_drain"),
    (RebuildingSupervisor, "_took_records"),
    mode=RunMode.REBUILDING,
)
def drain_mark_not_written(original: Any) -> Any:
    return lambda *arguments: original(LSN_INVALID) if len(arguments) == 1 else False


@deliberate(
    "a shard tells of no end of an epoch of which it has no copy",
    (read_stream, "known_ends"),
    (digest, "known_ends"),
    mode=RunMode.LOSS,
)
def ends_untold(original: Change) -> Change:
    return lambda state, shard, first, last: ([], last)


@deliberate(
    "a shard takes the last ESN that a recovery looked at for the end of the epoch, though too many shards had lost their data",
    (epoch_ends, "_is_bridge"),
    mode=RunMode.LOSS,
)
def ends_without_proof(original: Change) -> Change:
    return lambda ended, lsn: True


@deliberate("what readers are sent is not charged to quotas", (ReadAllowance, "take"))
def readers_not_charged(original: Change) -> Change:
    return lambda self, image: None


@deliberate(
    "records without a place in their nodeset get none",
    (DonorContext, "may_widen"),
    mode=RunMode.REBUILDING,
)
def nodesets_stay_narrow(original: Change) -> Change:
    return lambda self, interval: False


@deliberate(
    "donors store on shards that joined a nodeset before that is certain to be in the metadata log, and sequencers tell them too early",
    (LogRebuilding, "_widest"),
    (SeqStateService, "_answer_if_ready"),
    mode=RunMode.REBUILDING,
)
def copies_before_wider_nodesets(original: Change) -> Change:
    if original.__name__ == "_widest":
        return lambda self: EPOCH_INVALID

    def answer_if_ready(self: SeqStateService, sequencer: Any, request: Any, now: Any) -> bool:
        if request.flags & SeqStateFlags.WIDEN and sequencer.is_released:
            original(self, sequencer, request, now)
            self._send(sequencer, request.peer, request.request_id, sequencer.log, Status.OK, request.peer)
            return True
        return bool(original(self, sequencer, request, now))

    return answer_if_ready


@deliberate(
    "shards that joined the nodeset of an epoch count when it is asked how it ended",
    (LogPurge, "_on_history"),
    mode=RunMode.REBUILDING,
)
def whoever_joined_knows_the_end(original: Change) -> Change:
    def on_history(self: LogPurge, history: Any, complete: bool, now: Any) -> None:
        forgotten = tuple(replace(interval, joined=(), widened=EPOCH_INVALID) for interval in history)
        original(self, forgotten, complete, now)

    return on_history
