"""How a simulated process opens its disks, as `ShardService.open` does, for an operator who accepts what is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from epoch_store.interface import EpochStore, NoteIncarnation, RegisterShard, Result, ShardIdentity
from logdevice_py.core.ids import Generation, ShardId, format_shard, shard_index_of
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND
from server.simulation.disk import store_settings
from storage_node.log_store.identity import NO_GENERATION, IdentityVerdict, ShardMarker, judge
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore

if TYPE_CHECKING:
    from server.simulation.machines import SimMachines
    from server.simulation.node import SimNode

REGISTER_RETRY = 200 * MILLISECOND


class SimOpening:
    """Opens the shards of one run of a node, one after the other, until the run ends or all are open."""

    def __init__(
        self,
        cluster: SimMachines,
        node: SimNode,
        epoch_store: EpochStore,
        rng: Rng,
        serve: Callable[[dict[ShardId, MemoryLogStore]], None],
    ) -> None:
        """
        Args:
            serve: called once, with all stores, if the run gets that far.
        """
        self._cluster = cluster
        self._node = node
        self._epoch_store = epoch_store
        self._rng = rng
        self._serve = serve
        self._run = node.starts
        self._settings = store_settings(cluster.config)
        self._stores: dict[ShardId, MemoryLogStore] = {}

    def open_next(self) -> None:
        """Go on with the first shard that is not open."""
        node = self._node
        if not node.is_starting(self._run) or node.retired:
            return
        for shard in node.disks:
            if shard not in self._stores:
                self._open(shard)
                return
        self._serve(self._stores)

    def _open(self, shard: ShardId) -> None:
        cluster, node = self._cluster, self._node
        disk = node.disks[shard]
        if disk.failed_note:
            disk.drop_failed(self._rng)
        store = MemoryLogStore(disk, self._settings)
        judgement = judge(store.found, empty=store.empty, cluster=cluster.config.uuid, shard=shard)
        if judgement.verdict is IdentityVerdict.QUARANTINE:
            self._quarantine(disk, judgement.reason, own=False)
            store = MemoryLogStore(disk, self._settings)
        kept = judgement.kept
        index = shard_index_of(shard)
        birth = b"" if kept is not None else judgement.birth or f"{node.name} {node.starts}".encode()
        if birth != judgement.birth and not self._begin(
            store, ShardMarker(cluster.config.uuid, shard, NO_GENERATION, birth=birth)
        ):
            return
        operation = RegisterShard(cluster.config.uuid, node.id, index, kept, judgement.incarnation, birth)

        def done(results: list[Result]) -> None:
            if not node.is_starting(self._run):
                return
            result = results[0]
            if result.status is not Status.OK:
                assert result.status in (Status.AGAIN, Status.TIMEDOUT), result
                cluster.scheduler.after(REGISTER_RETRY, self.open_next)
                return
            assert isinstance(result.value, ShardIdentity)
            self._adopt(shard, result.value.generation, kept, store)

        self._epoch_store.submit([operation], done)

    def _adopt(self, shard: ShardId, generation: Generation, kept: Generation | None, store: MemoryLogStore) -> None:
        node = self._node
        disk = node.disks[shard]
        if kept is not None and generation != kept:
            self._quarantine(disk, f"{format_shard(shard)} had generation {kept} and has {generation} from here on")
            store = MemoryLogStore(disk, self._settings)
        if self._begin(store, ShardMarker(self._cluster.config.uuid, shard, generation)):
            assert store.marker is not None
            index, incarnation = shard_index_of(shard), store.marker.incarnation
            self._note(NoteIncarnation(node.id, index, generation, incarnation), store)

    def _begin(self, store: MemoryLogStore, marker: ShardMarker) -> bool:
        """Leave a marker; the start is given up where that fails."""
        node = self._node
        if store.adopt(marker, boot=node.disks[marker.shard].boot, now=node.clock.wall()) is Status.OK:
            return True
        node.give_up_start("cannot open", format_shard(marker.shard))
        return False

    def _note(self, operation: NoteIncarnation, store: MemoryLogStore) -> None:
        """Tell the epoch store how far the disk is; the shard is open when it knows."""

        def done(results: list[Result]) -> None:
            if not self._node.is_starting(self._run):
                return
            if results[0].status in (Status.OK, Status.STALE):
                self._stores[operation.shard] = store
                self.open_next()
            else:
                self._cluster.scheduler.after(REGISTER_RETRY, lambda: self._note(operation, store))

        if self._node.is_starting(self._run):
            self._epoch_store.submit([operation], done)

    def _quarantine(self, disk: MemoryDisk, reason: str, *, own: bool = True) -> None:
        """What lies on the disk counts no more; the shard begins empty."""
        self._cluster.note(self._node.name, "quarantines", reason)
        self._cluster.fault_effects["identity_noticed"] += 1
        self._node.lost_data = True
        disk.replace({}, own=own)
