"""What a shard writes: the changes of one turn of the event loop, gathered into one batch per durability, answered when it is written.

Order is kept: a group that is closed before another is begun reaches the disk before it. `close` is the barrier that seals, recoveries
and purges use: everything accepted before lies in an earlier batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from logdevice_py.core.ids import LogId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Outbox
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Store
from storage_node.log_state import LogState
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind, Purpose, WriteBatch, WriteShard
from storage_node.metrics import StorageMetrics
from storage_node.stored_metadata import SoftSealValue, encode_lng
from storage_node.writing.append_delay import AppendDelay

_UNSYNCED: Final = 0
_REBUILDING: Final = 2
"""Kinds of groups, in the order in which those of a turn are written; between them: synced."""
_NO_GROUPS: Final = [None, None, None]
Done = Callable[[Status, Micros], None]


class WriteGroup:
    """Changes that are written together, and who waits for them."""

    __slots__ = (
        "batch",
        "deferrable",
        "done",
        "epochs",
        "given_at",
        "size",
        "soft_seals",
        "stores",
        "sync",
        "written_seals",
    )

    def __init__(self, sync: bool, deferrable: bool) -> None:
        self.sync = sync
        self.deferrable = deferrable
        self.batch = WriteBatch()
        self.stores: list[tuple[PeerId, Store]] = []
        """STOREs in the order of the batch's entries."""
        self.done: list[Done] = []
        self.soft_seals: dict[LogId, LogState] = {}
        """Logs whose soft seal is to be written with the group."""
        self.written_seals: list[tuple[LogState, SoftSealValue]] = []
        """The soft seals that the closed group carries."""
        self.epochs: dict[tuple[LogId, Epoch], LogState] = {}
        """Epochs whose LNG is to be written with the group, which it also marks as having something stored."""
        self.size = 0
        self.given_at = Micros(0)
        """When it was given to the disk."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write or answer."""
        return self.batch.empty and not self.soft_seals and not self.epochs and not self.done


class ShardWrites:
    """The groups of one shard: open ones of this turn, closed ones, and those given to the disk."""

    __slots__ = (
        "_closed",
        "_delay",
        "_groups",
        "_in_flight",
        "_metrics",
        "_on_stores",
        "_out",
        "_owed",
        "_shard",
        "_tokens",
        "bytes_in_flight",
        "refused_for_space",
    )

    def __init__(
        self,
        shard: ShardId,
        out: Outbox,
        tokens: Iterator[int],
        metrics: StorageMetrics,
        delay: AppendDelay,
    ) -> None:
        self._shard = shard
        self._out = out
        self._tokens = tokens
        self._metrics = metrics
        self._delay = delay
        self._on_stores: Callable[[WriteGroup, Status, Micros], None] | None = None
        self._groups: list[WriteGroup | None] = [None, None, None]
        self._closed: list[WriteGroup] = []
        self._in_flight: dict[int, WriteGroup] = {}
        self._owed: dict[tuple[LogId, Epoch], LogState] = {}
        self.refused_for_space = False
        """The last usual entries were: those that are essential lie in groups of their own."""
        self.bytes_in_flight = 0
        """Images accepted and not yet answered by the disk."""

    def attach_stores(self, on_written: Callable[[WriteGroup, Status, Micros], None]) -> None:
        """Who answers the STOREs of a group that was written; called once, before the first."""
        self._on_stores = on_written

    def group(self, sync: bool) -> WriteGroup:
        """The open group of a durability."""
        return self._group(int(sync))

    def group_where_space_is_short(self, sync: bool, purpose: Purpose) -> WriteGroup:
        """The open group of a durability, for entries of one purpose."""
        group = self.group(sync)
        if group.batch.entries and group.batch.purpose is not purpose:
            self.close()
            group = self.group(sync)
        group.batch.purpose = purpose
        if purpose is Purpose.ESSENTIAL:
            hit("essential_store_where_space_is_short")
        return group

    def group_for_donors(self, purpose: Purpose, *, deferrable: bool) -> WriteGroup:
        """The open group for what donors bring, of one purpose: it is refused without anything else, or taken. It is synced.

        Args:
            deferrable: with what others want synced, or a moment later.
        """
        group = self._group(_REBUILDING)
        if group.batch.purpose is not purpose:
            if not group.empty:
                self.close()
                group = self._group(_REBUILDING)
            group.batch.purpose = purpose
        group.deferrable = group.deferrable and deferrable
        return group

    def _group(self, kind: int) -> WriteGroup:
        group = self._groups[kind]
        if group is not None and not group.batch.full:
            return group
        if group is not None:
            self._close(group)
        group = self._groups[kind] = WriteGroup(kind != _UNSYNCED, kind == _REBUILDING)
        return group

    def last_group(self) -> WriteGroup:
        """The open group that is written last, but for what donors bring."""
        own = self._groups[:_REBUILDING]
        return self._group(max((kind for kind, group in enumerate(own) if group is not None), default=_UNSYNCED))

    def close(self) -> None:
        """Barrier: whatever is put into a group from here on is written after all that was put in before."""
        for kind, group in enumerate(self._groups):
            if group is not None and not group.empty:
                self._close(group)
            self._groups[kind] = None

    def flush(self, now: Micros) -> None:
        """Give the groups of the turn to the disk, in order."""
        if self._groups != _NO_GROUPS:
            self.close()
        if not self._closed:
            return
        for group in self._closed:
            token = next(self._tokens)
            self._in_flight[token] = group
            group.given_at = now
            self._metrics.write_batches += 1
            self._out.emit(WriteShard(token, self._shard, group.batch, group.sync, group.deferrable))
        self._closed.clear()

    def awaits(self, token: int) -> bool:
        """Whether the token is that of a batch given to the disk."""
        return token in self._in_flight

    def on_written(self, token: int, status: Status, now: Micros) -> None:
        """Answer everybody who waits for the batch."""
        group = self._in_flight.pop(token, None)
        if group is None:
            return
        self.bytes_in_flight -= group.size
        self._metrics.write_bytes_in_flight -= group.size
        if status is Status.OK:
            for state, value in group.written_seals:
                state.soft_durable = max(state.soft_durable, value.epoch)
                state.unsynced_durable = state.unsynced_durable or value.answered_unsynced
        elif status is not Status.FAILED:
            # A later batch tries again; without it, a crash would hide that the epochs have something stored.
            self._owed.update(group.epochs)
        if group.stores and group.batch.purpose is Purpose.USUAL and status in (Status.OK, Status.NOSPC):
            self.refused_for_space = status is Status.NOSPC
        if group.stores and self._on_stores is not None:
            self._delay.note(now - group.given_at, now)
            self._on_stores(group, status, now)
        for done in group.done:
            done(status, now)

    def pay_owed(self) -> None:
        """Put what refused batches should have written of epochs into the turn's batch."""
        if self._owed:
            self.group(False).epochs.update(self._owed)
            self._owed.clear()

    def account(self, group: WriteGroup, size: int) -> None:
        """Note that an image was put into the group."""
        group.size += size
        self.bytes_in_flight += size
        self._metrics.write_bytes_in_flight += size

    def _close(self, group: WriteGroup) -> None:
        batch = group.batch
        if self._owed and group.stores:
            group.epochs.update(self._owed)
            self._owed.clear()
        for log, state in group.soft_seals.items():
            value = state.soft_seal_value()
            batch.put_log_metadata(log, LogMetadataKind.SOFT_SEAL, value.encode())
            group.written_seals.append((state, value))
        self._metrics.soft_seals_written += len(group.soft_seals)
        for (log, epoch), state in group.epochs.items():
            lng = None if state.epochs is None else state.epochs.get(epoch)
            if lng is not None:
                batch.put_epoch_metadata(log, epoch, EpochMetadataKind.MUTABLE, encode_lng(lng))
        assert not batch.empty or not (group.stores or group.done), "somebody waits for a batch that is never written"
        if not batch.empty:
            self._closed.append(group)
