"""Carries out the steps of `open_shard` for a simulated process, for an operator who accepts what is lost."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from epoch_store.interface import EpochStore, NoteIncarnation, RegisterShard, Result, ShardIdentity
from logdevice_py.core.ids import NodeId, ShardId, format_shard, shard_index_of
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND
from logdevice_py.simulation.clock import SimClock
from logdevice_py.tables.storage import QuarantineReason
from server.simulation.disk import SimStore, open_store, store_settings
from server.simulation.world import SimWorld
from storage_node.log_store.interface import Contents
from storage_node.log_store.memory import MemoryDisk
from storage_node.log_store.opening import Adopt, LoadContents, Look, Note, Quarantine, Register, Step, open_shard

REGISTER_RETRY = 200 * MILLISECOND


class Starting(Protocol):
    """The machine on which a process starts."""

    id: NodeId
    name: str
    clock: SimClock
    disks: dict[ShardId, MemoryDisk]
    starts: int
    retired: bool
    lost_data: bool

    def is_starting(self, run: int) -> bool:
        """Whether the start of that number goes on."""

    def fail_start(self, reason: str, detail: str) -> None:
        """The process ends before it serves."""


class SimOpening:
    """Opens the shards of one run of a node, one after the other, until the run ends or all are open."""

    def __init__(
        self,
        cluster: SimWorld,
        node: Starting,
        epoch_store: EpochStore,
        rng: Rng,
        serve: Callable[[dict[ShardId, tuple[SimStore, Contents]]], None],
    ) -> None:
        """
        Args:
            serve: called once, with all stores and what they hold, if the run gets that far.
        """
        self._cluster = cluster
        self._node = node
        self._epoch_store = epoch_store
        self._rng = rng
        self._serve = serve
        self._run = node.starts
        self._settings = store_settings(cluster.config)
        self._opened: dict[ShardId, tuple[SimStore, Contents]] = {}
        self._steps: Generator[Step, Any, None]
        """Of the shard that is being opened."""
        self._store: SimStore
        self._contents: Contents

    def open_next(self) -> None:
        """Go on with the first shard that is not open."""
        node = self._node
        if not node.is_starting(self._run) or node.retired:
            return
        for shard in node.disks:
            if shard not in self._opened:
                self._open(shard)
                return
        self._serve(self._opened)

    def _open(self, shard: ShardId) -> None:
        cluster, node = self._cluster, self._node
        disk = node.disks[shard]
        if disk.failed_note:
            disk.drop_failed(self._rng)
        try:
            self._store = open_store(disk, self._settings)
        except LogDeviceError as error:
            # an operator looks, and accepts that it is lost
            self._quarantine(disk, Quarantine(QuarantineReason.DAMAGED, error.detail))
        name = f"{node.name} {node.starts}".encode()
        self._steps = open_shard(
            shard,
            cluster.config.uuid,
            admit=lambda judgement: None,
            new_birth=lambda: name,
            report=lambda text: cluster.note(node.name, "opens", text),
        )
        self._go_on(shard, None)

    def _go_on(self, shard: ShardId, outcome: Any) -> None:
        """Carry out steps until one has to wait."""
        node = self._node
        disk, index = node.disks[shard], shard_index_of(shard)
        while True:
            try:
                step = self._steps.send(outcome)
            except StopIteration:
                self._opened[shard] = self._store, self._contents
                self.open_next()
                return
            outcome, store = None, self._store
            match step:
                case Look():
                    outcome = store.found, store.empty
                case Quarantine():
                    self._quarantine(disk, step)
                case Adopt():
                    if store.adopt(step.marker, boot=disk.boot, now=node.clock.wall()) is not Status.OK:
                        node.fail_start("cannot open", format_shard(shard))
                        return
                case Register():
                    uuid = self._cluster.config.uuid
                    self._ask(shard, RegisterShard(uuid, node.id, index, step.found, step.incarnation, step.birth))
                    return
                case LoadContents():
                    try:
                        self._contents = store.load()
                    except LogDeviceError as error:
                        node.fail_start("cannot load", error.detail)
                        return
                case Note():
                    assert store.marker is not None
                    generation, incarnation = store.marker.generation, store.marker.incarnation
                    self._ask(shard, NoteIncarnation(node.id, index, generation, incarnation))
                    return

    def _ask(self, shard: ShardId, operation: RegisterShard | NoteIncarnation) -> None:
        """Go on with what the epoch store says; it is asked for as long as it does not answer."""

        def done(results: list[Result]) -> None:
            if not self._node.is_starting(self._run):
                return
            result = results[0]
            if result.status in (Status.AGAIN, Status.TIMEDOUT):
                self._cluster.scheduler.after(REGISTER_RETRY, lambda: self._ask(shard, operation))
            elif isinstance(operation, NoteIncarnation):
                assert result.status in (Status.OK, Status.STALE), result
                self._go_on(shard, None)
            else:
                assert result.status is Status.OK, result
                assert isinstance(result.value, ShardIdentity)
                self._go_on(shard, result.value.generation)

        if self._node.is_starting(self._run):
            self._epoch_store.submit([operation], done)

    def _quarantine(self, disk: MemoryDisk, step: Quarantine) -> None:
        """What lies on the disk counts no more; the shard begins empty."""
        self._cluster.note(self._node.name, "quarantines", step.why)
        self._cluster.fault_effects["identity_noticed"] += 1
        self._node.lost_data = True
        disk.replace({}, own=step.reason in (QuarantineReason.REPLACED, QuarantineReason.DAMAGED))
        self._store = open_store(disk, self._settings)
