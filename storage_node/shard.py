"""What the protocols of one shard share: its logs, its writes and reads, and whether it takes part at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logdevice_py.config.attributes import Durability
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import (
    Generation,
    LogId,
    ShardId,
    data_log_of,
    format_shard,
    is_internal_log,
    is_metadata_log,
    node_of,
)
from logdevice_py.core.lsn import ESN_MAX, LSN_INVALID, Epoch, Esn, Lsn, compose_lsn, epoch_of
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.requests import Requests
from storage_node.epochs.recovery_stores import RecoveryStores
from storage_node.log_state import LogState
from storage_node.log_store.identity import PreviousEnd
from storage_node.log_store.interface import Contents, EpochMetadataKind, LogMetadataKind
from storage_node.lsn_ranges import add_range, join_nearest
from storage_node.metrics import StorageMetrics
from storage_node.reading.shard_reads import ShardReads
from storage_node.repair.donated_copies import DonatedCopies
from storage_node.settings import StorageSettings
from storage_node.stored_metadata import (
    SoftSealValue,
    decode_epoch,
    decode_lng,
    decode_lsn,
    decode_micros,
    decode_ranges,
    decode_seal,
    encode_lsn,
    encode_ranges,
)
from storage_node.writing.append_delay import AppendDelay
from storage_node.writing.drain_mark import DrainMark
from storage_node.writing.recent_entries import RecentEntries
from storage_node.writing.shard_writes import ShardWrites

_DIRTY_RANGES_MAX: Final = 16
"""Of a log; more are joined, and so cover what lies between them."""


class Shard:
    """One shard of the node, shared by its protocol machines."""

    def __init__(
        self,
        contents: Contents,
        config: ClusterConfig,
        settings: StorageSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        tokens: Iterator[int],
        metrics: StorageMetrics,
        requests: Requests,
    ) -> None:
        self.shard: Final[ShardId] = contents.marker.shard
        self.generation: Final[Generation] = contents.marker.generation
        self.metadata_whole_for = contents.metadata_whole_for
        """What it lost of metadata logs, with copysets among these shards, it has got back."""
        self.metadata_authoritative = self.generation <= 1
        """It has what it ever was to keep of metadata logs, earlier generations included: see `MetadataResync`."""
        self.config = config
        self.settings = settings
        """Those in force; machines look here whenever they need one."""
        self.out: Final = outbox
        self.timers: Final = timers
        self.rng: Final = rng
        self.metrics: Final = metrics
        self.requests: Final = requests
        """Of the whole process."""
        self.failed = False
        """A write, sync or read has failed: for good, until the shard is opened again."""
        self.stopping = False
        self.writable = config.is_writable(self.shard)
        """The cluster file, the event log and its own mark let the shard take STOREs."""
        self.recent: Final = RecentEntries(settings.recent_entries_bytes_max, metrics)
        self.reads: Final = ShardReads(self.shard, outbox, tokens, settings.reads_in_flight_max, metrics)
        self.append_delay: Final = AppendDelay()
        self.writes: Final = ShardWrites(self.shard, outbox, tokens, metrics, self.append_delay)
        self.drain_mark: Final = DrainMark(contents.drain, self.writes)
        self.recovery_stores: Final = RecoveryStores()
        self.donated: Final = DonatedCopies()
        self.logs: Final[dict[LogId, LogState]] = {}
        self.removed: Final[dict[LogId, int]] = {}
        """Logs that the disk says are not in the cluster file, and for how many microseconds that was seen."""
        self._is_sync: dict[LogId, bool] = {}
        self._released_dirty: dict[LogId, LogState] = {}
        self._lazy_timer = False
        try:
            self._load(contents)
        except CorruptEntryError as error:
            raise LogDeviceError(
                Status.FAILED,
                f"{format_shard(contents.marker.shard)}: its store holds metadata that cannot be read: {error}. A later version wrote it: start "
                "that one, or put back a copy of the files",
            ) from None

    def find(self, log: LogId) -> LogState | None:
        """The state of a log that the shard has met."""
        return self.logs.get(log)

    def log(self, log: LogId) -> LogState:
        """The state of a log, made when it is met first."""
        state = self.logs.get(log)
        if state is None:
            state = self.logs[log] = LogState(log)
        return state

    def may_exist(self, log: LogId) -> bool:
        """Whether the log is in the cluster file or the log tree, as far as is known: what was not read yet is not absent."""
        return not self.config.is_absent(data_log_of(log))

    def is_sync(self, log: LogId) -> bool:
        """Whether STOREs of the log are answered only after a sync. Logs of which nothing is known are."""
        sync = self._is_sync.get(log)
        if sync is None:
            if is_metadata_log(log):
                return True
            attributes = self.config.log(log)
            if attributes is None:
                return True  # it may become known at any moment
            sync = self._is_sync[log] = attributes.durability is not Durability.ASYNC
        return sync

    def status(self) -> Status:
        """OK when the shard answers requests: else SHUTDOWN or FAILED."""
        if self.failed:
            return Status.FAILED
        return Status.SHUTDOWN if self.stopping else Status.OK

    def is_other_generation(self, generation: int) -> bool:
        """Whether an epoch that lists `generation` speaks of another shard than this one is. 0 is any."""
        return generation != 0 and generation != self.generation

    def on_config(self, config: ClusterConfig) -> None:
        """A newer cluster file."""
        self.config = config
        self.judge_writable()
        self._is_sync.clear()

    def on_logs_changed(self) -> None:
        """The log tree is another one."""
        self._is_sync.clear()

    def judge_writable(self) -> None:
        """The cluster file, or the mark of a drain, is another one."""
        self.writable = self.config.is_writable(self.shard) and not self.drain_mark.refuses

    def takes(self, log: LogId) -> bool:
        """Whether it takes STOREs of sequencers. Of the event log it does, as far as the cluster file lets it, until it has read that: there it may say
        that the shard is used again, and where it cannot be written without the shard nobody could read so."""
        if self.writable:
            return True
        node = self.config.nodes.get(node_of(self.shard))
        if node is None or not self.config.takes_records(node) or self.config.excluded_known:
            return False
        if not is_internal_log(log):
            return False
        hit("event_log_stored_before_it_is_read")
        return True

    def release_moved(self, state: LogState, now: Micros) -> None:
        """Write the release pointer some time soon."""
        self._released_dirty[state.log] = state
        self._start_lazy_timer(now)

    def consolidate_later(self, state: LogState, epoch: Epoch, first: int, last: int) -> None:
        """Delete lower-ranking copies in [first, last] of a clean epoch, some time soon."""
        if last < first or last - first >= self.settings.consolidate_esns_max:
            return
        group = self.writes.group(False)
        for esn in range(first, last + 1):
            group.batch.consolidate(state.log, compose_lsn(epoch, esn))

    def forget_lng(self, state: LogState) -> None:
        """Clean epochs need no LNG of their own: their recovery metadata has it."""
        if state.epochs is None:
            return
        for epoch in [epoch for epoch in state.epochs if epoch <= state.clean_epoch]:
            del state.epochs[epoch]
            self.writes.group(False).batch.delete_epoch_metadata(state.log, epoch, EpochMetadataKind.MUTABLE)
        if not state.epochs:
            state.epochs = None

    def persist_releases(self) -> None:
        """Put the release pointers that moved, and whatever else is written lazily, into the turn's batch."""
        self.writes.pay_owed()
        group = None
        for log, state in self._released_dirty.items():
            if group is None or group.batch.full:
                group = self.writes.last_group()  # a trim of this turn, which is synced, may carry an older pointer
            group.batch.put_log_metadata(log, LogMetadataKind.LAST_RELEASED, encode_lsn(state.last_released))
        self._released_dirty.clear()

    def fail(self) -> None:
        """The disk failed."""
        self.failed = True

    def check(self) -> None:
        """What must hold between any two events."""
        for state in self.logs.values():
            state.check()

    def _start_lazy_timer(self, now: Micros) -> None:
        if not self._lazy_timer:
            self._lazy_timer = True
            self.timers.at(now + self.settings.last_released_persist_interval_us, self._on_lazy_timer)

    def _on_lazy_timer(self, now: Micros) -> None:
        self._lazy_timer = False
        self.persist_releases()

    # ------------------------------------------------------------------------------------------------------------------------- loading

    def _load(self, contents: Contents) -> None:
        released: list[tuple[LogId, bytes]] = []
        unsynced_logs = self._load_log_metadata(contents, released)
        for log, epoch, kind, value in contents.epoch_metadata:
            state = self.log(log)
            if kind is EpochMetadataKind.MUTABLE:
                if state.epochs is None:
                    state.epochs = {}
                state.epochs[epoch] = decode_lng(value)
            else:
                state.note_recovered(epoch, value)
        for log, lsn in contents.highest:
            state = self.log(log)
            state.highest = lsn
            if epoch_of(lsn) > state.clean_epoch and not is_metadata_log(log):
                if state.epochs is None:
                    state.epochs = {}
                state.epochs.setdefault(epoch_of(lsn), Esn(0))
        on_disk = {log: decode_lsn(value) for log, value in released}
        for log, pointer in on_disk.items():
            self._load_release(self.log(log), pointer)
        if contents.last_stop is PreviousEnd.MACHINE_DIED:
            self._mark_dirty(unsynced_logs, on_disk)

    def _load_log_metadata(self, contents: Contents, released: list[tuple[LogId, bytes]]) -> list[LogState]:
        unsynced: list[LogState] = []
        whole_epochs: list[tuple[LogState, Lsn, Lsn]] = []
        for log, kind, value in contents.log_metadata:
            state = self.log(log)
            match kind:
                case LogMetadataKind.SEAL:
                    state.seal_epoch, state.seal_node = decode_seal(value)
                case LogMetadataKind.SOFT_SEAL:
                    soft = SoftSealValue.decode(value)
                    state.soft_epoch = state.soft_durable = soft.epoch
                    state.soft_node = soft.node
                    if soft.lossy_last:
                        first, last = compose_lsn(soft.lossy_first, 0), compose_lsn(soft.lossy_last, ESN_MAX)
                        whole_epochs.append((state, first, last))
                    state.unsynced = state.unsynced_durable = soft.answered_unsynced
                    if soft.answered_unsynced:
                        unsynced.append(state)
                case LogMetadataKind.LAST_CLEAN:
                    state.raise_clean_epoch(decode_epoch(value))
                case LogMetadataKind.TRIM_POINT:
                    state.trim_point = decode_lsn(value)
                case LogMetadataKind.TAIL:
                    parse_header(value, alone=True)  # refused now, not when a recovery asks
                    state.tail = value
                case LogMetadataKind.DIRTY:
                    state.dirty = decode_ranges(value) or None
                case LogMetadataKind.REMOVED:
                    self.removed[log] = decode_micros(value)
                case LogMetadataKind.LAST_RELEASED:
                    released.append((log, value))
        self._mark(whole_epochs)
        return unsynced

    def _load_release(self, state: LogState, lsn: Lsn) -> None:
        """A release pointer is true for ever, but it may lie in an epoch before which others are not clean here (their CLEAN was lost in the
        crash). Then it shows that those are recovered, and the next RELEASE has them purged."""
        if epoch_of(lsn) <= state.clean_epoch + 1:
            state.last_released = lsn
        else:
            hit("release_hint_beyond_clean_epochs")
            state.fence = max(state.fence, Epoch(epoch_of(lsn) - 1))

    def _mark_dirty(self, logs: list[LogState], released: dict[LogId, Lsn]) -> None:
        """The machine went down: mark what may be gone of logs that were answered before a sync.

        Nothing of clean epochs is: CLEAN is synced, and with it everything before. Nor is anything up to the release pointer that is found
        on disk: what this shard holds for it was answered before the pointer came, and so was written before, and a disk keeps a prefix of what
        was written. Nothing beyond the epoch after the soft seal is: STOREs of later epochs are answered only after their soft seal is synced.
        """
        dirty = []
        for state in logs:
            first = max(compose_lsn(Epoch(state.clean_epoch + 1), 0), Lsn(released.get(state.log, LSN_INVALID) + 1))
            last = compose_lsn(Epoch(state.soft_epoch + 1), ESN_MAX)
            if first <= last:
                hit("ranges_may_lack_entries")
                dirty.append((state, first, last))
        self._mark(dirty)
        self.writes.group(True).batch.mark_loss()
        self.writes.close()  # what else the first turn writes may say that less need be marked

    def _mark(self, dirty: list[tuple[LogState, Lsn, Lsn]]) -> None:
        """Note ranges that may lack entries. They are durable before anything is answered that depends on them, because they are written
        with sync before anything else."""
        if not dirty:
            return
        for state, first, last in dirty:
            if state.dirty is None:
                state.dirty = []
            add_range(state.dirty, first, last)
            join_nearest(state.dirty, _DIRTY_RANGES_MAX)
        group = self.writes.group(True)
        for state, _, _ in dirty:
            if group.batch.full:
                group = self.writes.group(True)
            group.batch.put_log_metadata(state.log, LogMetadataKind.DIRTY, encode_ranges(state.dirty or ()))
            group.batch.put_log_metadata(state.log, LogMetadataKind.SOFT_SEAL, state.soft_seal_value().encode())
            group.batch.must_pass = True


def begin_turn(now: Micros) -> None:
    """A timer that is due makes the shell begin another turn, which does what was left over."""
