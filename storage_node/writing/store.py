"""STORE: keep a copy of an entry, unless a seal forbids it.

The copies of one turn are written together; STORED (or MUTATED, to recovery) follows when the disk has them as the log asks.

Seals:
  - A sequencer's STORE is refused when its epoch is at or below the normal seal, the soft seal, or the fence (epochs known to be recovered).
    A sequencer that drains its epoch passes soft seals.
  - Recovery's STORE is refused when its seal epoch is below the normal seal or the fence: a later recovery has taken over, or has ended.
  - A shard that is drained refuses STOREs of sequencers until it is used again: see `DrainMark` and `Shard.takes`.
  - The first STORE of a later epoch leaves a soft seal of the epoch before, in the same synced batch: from then on older sequencers are
    refused even if recovery has not come by. Until that batch is answered every STORE of the epoch is synced, so a soft seal is durable
    before anything of its epoch is answered.

The soft seal, the LNG and the highest LSN advance in memory when the STORE is accepted: see `LogState`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from logdevice_py.core.entry import (
    EntryFlags,
    EntryHeader,
    check_body,
    encode_entry,
    header_size,
    merged_header,
    parse_header,
)
from logdevice_py.core.ids import NodeId, PeerId, is_internal_log, is_metadata_log
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, Epoch, Lsn, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Mutated, Store, Stored, StoredFlags, StoreFlags
from logdevice_py.protocol.routing import handles
from storage_node.log_state import NO_NODE, LogState, ReleaseSubscriber
from storage_node.log_store.interface import LogMetadataKind, Purpose, ReadResult
from storage_node.repair.repair_queue import RepairQueue
from storage_node.shard import Shard
from storage_node.writing.recent_entries import RecentLogEntries
from storage_node.writing.shard_writes import WriteGroup

_RECOVERY: Final = int(StoreFlags.RECOVERY)
_DRAINING: Final = int(StoreFlags.DRAINING)
_SYNCED_ALWAYS: Final = int(StoreFlags.RECOVERY | StoreFlags.SYNC)
_SOFT_ONLY: Final = int(StoredFlags.SOFT_PREEMPTED)
_AWAITED: Final = int(StoredFlags.AWAITED)
_BY_RECOVERY: Final = int(EntryFlags.WRITTEN_BY_RECOVERY)
_AMEND: Final = int(EntryFlags.AMEND)
_NONE: Final = 0
_STREAMS_ASKED: Final = 4
"""Of a log's read streams; of more some one is taken to wait for each entry."""


class StoreHandler:
    """Takes the STOREs of one shard."""

    __slots__ = ("_release", "_repairs", "_shard")

    def __init__(self, shard: Shard, release: Callable[[LogState, Lsn, Micros], None], repairs: RepairQueue) -> None:
        """
        Args:
            shard: whose copies.
            release: what a RELEASE of a log does; a STORE may say the same.
            repairs: what cannot be read here.
        """
        self._shard = shard
        self._release = release
        self._repairs = repairs
        shard.writes.attach_stores(self._on_written)

    @handles(Store)
    def on_store(self, peer: PeerId, message: Store, now: Micros) -> None:
        """Accept the copy into the turn's batch, or refuse it at once."""
        shard = self._shard
        metrics = shard.metrics
        metrics.stores_received += 1
        log, lsn, image = message.log, message.lsn, message.image
        state = shard.logs.get(log)
        released = message.released
        if released and (state is None or released > state.last_released):
            # even if the STORE is refused: the RELEASE that says the same may have been left out for it
            state = shard.log(log)
            self._release(state, released, now)
        refusal = self._refusal(message)
        if refusal is not Status.OK:
            self._refuse(peer, message, refusal)
            return
        try:
            header = parse_header(image)
            check_body(image, header)
        except CorruptEntryError:
            hit("store_with_damaged_image")
            self._refuse(peer, message, Status.BADPAYLOAD)
            return
        epoch = Epoch(lsn >> 32)
        if (
            header.log != log
            or header.lsn != lsn
            or shard.shard not in header.copyset
            or not 0 < epoch < EPOCH_MAX
            or not lsn & 0xFFFFFFFF
        ):
            hit("store_image_contradicts_message")
            self._refuse(peer, message, Status.BADPAYLOAD)
            return
        if state is None:
            state = shard.log(log)
        if self._is_preempted(peer, message, state, epoch):
            return
        if header.flags & _AMEND:
            self._amend(peer, message, state, header)
        else:
            self._accept(peer, message, state, header, image)

    def _refusal(self, message: Store) -> Status:
        shard = self._shard
        if shard.failed:
            return Status.FAILED
        if shard.stopping:
            return Status.SHUTDOWN
        if message.generation != shard.generation and message.generation != 0:
            return Status.REBUILDING
        if not message.flags & _RECOVERY and not shard.takes(message.log):
            return Status.DISABLED  # recovery must be able to end an epoch whose whole nodeset takes nothing new
        if shard.writes.bytes_in_flight >= shard.settings.write_bytes_in_flight_max:
            return Status.OVERLOADED
        return Status.OK

    def _is_preempted(self, peer: PeerId, message: Store, state: LogState, epoch: Epoch) -> bool:
        """Apply the seals; answers the STORE when one holds."""
        sealed = state.sealed
        if message.flags & _RECOVERY:
            if message.seal_epoch >= sealed:
                return False
            self._preempt(peer, message, sealed, state.sealed_by, _NONE)
            return True
        if epoch <= sealed:
            soft = state.soft_epoch
            if soft > sealed:
                self._preempt(peer, message, soft, state.soft_node, _NONE)
            else:
                self._preempt(peer, message, sealed, state.sealed_by, _NONE)
            return True
        if epoch <= state.soft_epoch and not message.flags & _DRAINING:
            hit("store_refused_by_soft_seal")
            self._preempt(peer, message, state.soft_epoch, state.soft_node, _SOFT_ONLY)
            return True
        return False

    def _amend(self, peer: PeerId, message: Store, state: LogState, header: EntryHeader) -> None:
        """Join the header with the body that is here, and store that as a full copy.

        Stored on its own, an AMEND would replace a full copy of the same rank, as when a recovery that begins again amends what it stored in
        full before: the body would be lost. Without the body it is refused: answered with OK, it would count for a copy that is none.
        """
        if message.lsn >= state.in_memory_from:
            held = None if state.recent is None else state.recent.images.get(message.lsn)
            self._accept_amended(peer, message, state, header, held)
            return

        stores = self._shard.recovery_stores
        stores.began(message.log)

        def done(result: ReadResult, now: Micros) -> None:
            refusal = self._refusal(message)
            if refusal is not Status.OK:
                self._refuse(peer, message, refusal)
            elif not self._is_preempted(peer, message, state, epoch_of(message.lsn)):
                held = result.entries[0][1] if result.entries else None
                self._accept_amended(peer, message, state, header, held)
            stores.ended(message.log)

        self._shard.reads.read(message.log, message.lsn, message.lsn, 1, 1, done)

    def _accept_amended(
        self, peer: PeerId, message: Store, state: LogState, header: EntryHeader, held: bytes | None
    ) -> None:
        image = amended(header, held)
        if image is None:
            self._refuse(peer, message, Status.BADPAYLOAD)
        else:
            self._accept(peer, message, state, header, image)

    def _accept(self, peer: PeerId, message: Store, state: LogState, header: EntryHeader, image: bytes) -> None:
        shard = self._shard
        log, lsn = message.log, message.lsn
        epoch = epoch_of(lsn)
        if shard.drain_mark.noted and not header.is_hole:
            hit("drained_shard_stores_a_record")
            shard.drain_mark.clear()
            shard.judge_writable()
        synced = bool(message.flags & _SYNCED_ALWAYS) or shard.is_sync(log)
        soft_seal = False
        replaces_damage = (
            is_metadata_log(log) and not message.flags & _RECOVERY and self._repairs.is_unreadable(log, lsn)
        )
        if replaces_damage:
            self._repairs.store_begins(log)
            shard.writes.close()  # within a batch puts win over deletes: what came before must lie in an earlier one
        if not message.flags & _RECOVERY:
            if not synced and not state.unsynced_durable:
                state.unsynced = soft_seal = True
            if epoch > state.soft_durable + 1:
                soft_seal = True
                if epoch > state.soft_epoch + 1:
                    state.soft_epoch, state.soft_node = Epoch(epoch - 1), NodeId(peer) if peer >= 0 else NO_NODE
        if shard.writes.refused_for_space:
            # Recovery and the logs that the cluster keeps for itself end what keeps disks full: nothing is trimmed that is not released.
            essential = bool(message.flags & _RECOVERY) or is_metadata_log(log) or is_internal_log(log)
            purpose = Purpose.ESSENTIAL if essential else Purpose.USUAL
            group = shard.writes.group_where_space_is_short(synced or soft_seal, purpose)
        else:
            group = shard.writes.group(synced or soft_seal)
        if soft_seal:
            group.soft_seals[log] = state
        # Metadata logs have no recovery: nobody asks for the LNG of their epochs, which would pile up. They are seldom read, and half of all
        # logs: their entries take no memory.
        if not is_metadata_log(log):
            # Nor do those of recoveries of logs that nobody reads, most of which are bridges of logs that lie idle.
            if state.recent is None and (state.streams is not None or not message.flags & _RECOVERY):
                state.recent = RecentLogEntries(Lsn(state.highest + 1))
            epochs = state.epochs
            if epochs is None:
                epochs = state.epochs = {}
            if header.lng > epochs.get(epoch, -1):
                epochs[epoch] = header.lng
                group.epochs[log, epoch] = state
        if lsn > state.highest:
            state.highest = lsn
        by_recovery = bool(header.flags & _BY_RECOVERY)
        group.batch.put_entry(log, lsn, by_recovery=by_recovery, wave=header.wave, image=image)
        if header.extensions and not message.flags & _RECOVERY and lsn >= state.highest:
            state.tail = image[: header_size(image)]
            group.batch.put_log_metadata(log, LogMetadataKind.TAIL, state.tail)
        if replaces_damage:
            # What a metadata record says comes from the epoch store. A sequencer that stores one again may not know of a later wave, a copy of
            # which cannot be read here and would outrank the new one.
            hit("metadata_replaces_damage")
            group.batch.restore(log, lsn, lsn)
            group.done.append(
                lambda status, _: self._repairs.damage_replaced(log, lsn) if status is Status.OK else None
            )
        group.stores.append((peer, message))
        shard.writes.account(group, len(image))
        if message.flags & _RECOVERY:
            shard.recovery_stores.began(log)
            group.done.append(lambda _, __: shard.recovery_stores.ended(log))

    def _on_written(self, group: WriteGroup, status: Status, now: Micros) -> None:
        """Answer the STOREs of a batch, and let readers see them."""
        shard = self._shard
        send = shard.out.send
        if status is Status.OK:
            add, logs = shard.recent.add, shard.logs
            for log, lsn, _, _, image in group.batch.entries:
                recent = logs[log].recent
                if recent is not None:
                    add(recent, lsn, image)
            shard.metrics.stores_written += len(group.stores)
            shard.metrics.stored_bytes += group.size
            for peer, message in group.stores:
                streams = logs[message.log].streams
                flags = _AWAITED if streams is not None and is_awaited(message.image, streams) else 0
                send(peer, store_answer(message, status, flags=flags))
        else:
            hit("write_of_stores_refused")
            shard.metrics.stores_refused += len(group.stores)
            for peer, message in group.stores:
                send(peer, store_answer(message, status))

    def _preempt(self, peer: PeerId, message: Store, epoch: Epoch, node: NodeId, flags: int) -> None:
        self._shard.metrics.stores_preempted += 1
        self._shard.out.send(peer, store_answer(message, Status.PREEMPTED, epoch, node, flags))

    def _refuse(self, peer: PeerId, message: Store, status: Status) -> None:
        self._shard.metrics.stores_refused += 1
        self._shard.out.send(peer, store_answer(message, status))


def is_awaited(image: bytes, streams: Sequence[ReleaseSubscriber]) -> bool:
    """Whether some reader is to get the entry from here once it is released."""
    return len(streams) > _STREAMS_ASKED or any(stream.awaits(image) for stream in streams)


def amended(header: EntryHeader, held: bytes | None) -> bytes | None:
    """The copy held under the header of the AMEND; None when no copy with the body that it speaks for is held."""
    if held is None:
        hit("amend_without_body")
        return None
    before = parse_header(held)
    if before.is_amend or (before.body_length, before.body_crc) != (header.body_length, header.body_crc):
        hit("amend_of_another_body")
        return None
    return encode_entry(merged_header(header), held[header_size(held) :])


def store_answer(
    message: Store,
    status: Status,
    seal_epoch: Epoch = EPOCH_INVALID,
    seal_node: NodeId = NO_NODE,
    flags: int = 0,
) -> Stored | Mutated:
    """STORED, or MUTATED when recovery asked."""
    if message.flags & _RECOVERY:
        return Mutated(
            recovery_id=message.recovery_id,
            log=message.log,
            lsn=message.lsn,
            shard=message.shard,
            wave=message.wave,
            status=status,
            seal_epoch=seal_epoch,
            seal_node=seal_node,
        )
    return Stored(
        log=message.log,
        lsn=message.lsn,
        shard=message.shard,
        wave=message.wave,
        status=status,
        flags=flags,
        seal_epoch=seal_epoch,
        seal_node=seal_node,
    )
