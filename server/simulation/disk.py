"""Executes the effects of one simulated shard: the reads and syncs of `ShardService`, on a `MemoryDisk` under virtual time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.machine import Rng
from logdevice_py.core.units import MILLISECOND, Micros, Timestamp
from logdevice_py.simulation.scheduler import Scheduler
from server.node_settings import NodeSettings
from server.simulation.extent_disk import ExtentDisk, SimExtentStore
from storage_node.log_store.extents.cold_reads import ColdReads, DeferredRead
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.group_commit import GroupCommit
from storage_node.log_store.interface import (
    Completion,
    Contents,
    DirectoryRead,
    ReadDirectory,
    ReadDone,
    ReadLast,
    ReadResult,
    ReadShard,
    WriteShard,
)
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.settings import LogStoreSettings

SYNC_MAX = 2 * MILLISECOND
READ_MAX = MILLISECOND
_HANG_CHECK = 100 * MILLISECOND
_UPKEEP_INTERVAL = 1000 * MILLISECOND
_DEFAULTS = {
    "partition_duration_us": 2000 * MILLISECOND,
    "partitions_soft_max": 10,
    "partitions_max": 40,
    "blob_bytes_min": 150,
    "extent_bytes": 128 << 10,
    "extent_rows_max": 200,
    "checkpoint_bytes": 64 << 10,
}
"""Partitions come and go within a run, and of many entries header and body lie apart."""


def store_settings(config: ClusterConfig) -> LogStoreSettings:
    """As the cluster file says, and where it says nothing, as suits runs of seconds."""
    said = config.settings.get("storage", {})
    others: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in said}
    return replace(NodeSettings.of(config.settings).log_store, **others)


SimStore = MemoryLogStore | ExtentLogStore


def make_disk(kind: str, fired: Counter[str], total: int) -> MemoryDisk:
    """A disk for a kind of store (`LogStoreSettings.store`); what stands for RocksDB keeps its rows in memory."""
    return ExtentDisk(fired, total=total) if kind == "extents" else MemoryDisk(fired, total=total)


def open_store(disk: MemoryDisk, settings: LogStoreSettings) -> SimStore:
    """Open the store on a disk.

    Raises:
        LogDeviceError: FAILED: it is damaged.
    """
    return SimExtentStore(disk, settings) if isinstance(disk, ExtentDisk) else MemoryLogStore(disk, settings)


@dataclass(slots=True, kw_only=True)
class DiskSettings:
    """How fast the disks of a node are. Microseconds; shared by the node's shards, and faults change it."""

    sync_min: int = 100
    sync_max: int = SYNC_MAX
    read_max: int = READ_MAX
    hanging: bool = False
    """Neither syncs nor reads end."""

    def clear(self) -> None:
        """No faults."""
        self.sync_max, self.read_max, self.hanging = SYNC_MAX, READ_MAX, False


class SimShard:
    """Syncs and reads of one shard, for as long as its process lives."""

    def __init__(
        self,
        store: SimStore,
        disk: MemoryDisk,
        contents: Contents,
        limits: LogStoreSettings,
        settings: DiskSettings,
        scheduler: Scheduler,
        rng: Rng,
        wall: Callable[[], Timestamp],
        deliver: Callable[[list[Completion]], None],
    ) -> None:
        """
        Args:
            limits: of the store.
            settings: how fast the disk is.
            deliver: gets outcomes, never within `run`.
        """
        self.contents = contents
        self.store = store
        self.alive = True
        self._disk = disk
        self._settings = settings
        self._scheduler = scheduler
        self._rng = rng
        self._wall = wall
        self._deliver = deliver
        self._commit = GroupCommit(store, limits, LogStoreMetrics())
        self._sync_at: int | None = None
        self._reads: deque[ReadShard | ReadLast | ReadDirectory] = deque()
        self._cold_reads = ColdReads(store, 2, 0) if isinstance(store, ExtentLogStore) else None
        self._after(_UPKEEP_INTERVAL, self._maintain)

    def run(
        self,
        effects: Sequence[WriteShard | ReadShard | ReadLast | ReadDirectory],
        complete: Callable[[list[Completion]], None],
    ) -> None:
        """Execute the effects of one turn.

        Args:
            complete: takes outcomes of writes that are known at once, within this call.
        """
        writes = [effect for effect in effects if isinstance(effect, WriteShard)]
        reads = [effect for effect in effects if not isinstance(effect, WriteShard)]
        if writes:
            known: list[Completion] = [*self._commit.write(writes, self._now())]
            if known:
                complete(known)
            self._sync_when_due()
        for read in reads:
            self._reads.append(read)
            self._after(self._time(0, self._settings.read_max), self._read)

    def _time(self, least: int, most: int) -> int:
        if most > (READ_MAX if least == 0 else SYNC_MAX):
            self._disk.fired["slow_disk"] += 1
        return least + int(self._rng.random() * (most - least + 1))

    def _after(self, delay: int, action: Callable[[], None]) -> None:
        self._scheduler.post(self._scheduler.now + delay, self._run_alive, action)

    def _run_alive(self, action: Callable[[], None]) -> None:
        if self.alive:
            action()

    def _hangs(self, action: Callable[[], None]) -> bool:
        """Whether an outcome must wait, because the disk hangs."""
        if not self._settings.hanging:
            return False
        self._disk.fired["hanging_disk"] += 1
        self._after(_HANG_CHECK, action)
        return True

    def _maintain(self) -> None:
        self.store.maintain(self._wall())
        self._begin_chore()
        self._after(_UPKEEP_INTERVAL, self._maintain)

    def _begin_chore(self) -> None:
        """What another thread does in production is done a moment later here."""
        store = self.store
        if not isinstance(store, ExtentLogStore):
            return
        chore = store.next_chore()
        if chore is not None:

            def work() -> None:
                if not self._hangs(work):
                    chore()
                    self._begin_chore()

            self._after(self._time(self._settings.sync_min, self._settings.sync_max), work)

    def _now(self) -> Micros:
        return Micros(self._scheduler.now)

    def _sync_when_due(self) -> None:
        deadline = self._commit.deadline()
        if deadline is None:
            return
        wait = deadline - self._scheduler.now
        if wait <= 0:
            self._sync()
        elif self._sync_at is None or deadline < self._sync_at:
            self._sync_at = deadline
            self._after(wait, self._on_sync_timer)

    def _on_sync_timer(self) -> None:
        self._sync_at = None
        self._sync_when_due()

    def _sync(self) -> None:
        self._commit.begin(self._wall())
        store: Any = self.store
        token = store.begin_sync()

        def synced() -> None:
            if self._hangs(synced):
                return
            written: list[Completion] = [*self._commit.end(store.finish_sync(token))]
            self._sync_when_due()
            if isinstance(store, ExtentLogStore) and store.has_chores:
                self._begin_chore()
            if written:
                self._deliver(written)

        self._after(self._time(self._settings.sync_min, self._settings.sync_max), synced)

    def _read(self) -> None:
        if self._hangs(self._read):
            return
        request = self._reads.popleft()
        store = self.store
        if isinstance(request, ReadDirectory):
            self._deliver([DirectoryRead(request.token, request.shard, store.read_directory(request))])
            return
        self._execute(request)

    def _execute(self, request: ReadShard | ReadLast) -> None:
        store = self.store
        result: ReadResult | None
        if self._cold_reads is not None:
            result = self._cold_reads.execute(request)
        else:
            result = store.read(request) if isinstance(request, ReadShard) else store.read_last(request)
        if result is None:
            self._begin_fetches()
        else:
            self._deliver([ReadDone(request.token, request.shard, result)])

    def _begin_fetches(self) -> None:
        """What threads of production bring into memory is there a moment later here."""
        cold = self._cold_reads
        assert cold is not None, "what is cold is known of extents alone"
        while (read := cold.begin()) is not None:
            self._after(self._time(0, self._settings.read_max), partial(self._fetch, read))

    def _fetch(self, read: DeferredRead) -> None:
        if self._hangs(partial(self._fetch, read)):
            return
        assert self._cold_reads is not None
        read.fetch()
        request = self._cold_reads.end(read)
        self._begin_fetches()
        self._execute(request)
