"""Executes the effects of one simulated shard: what `ShardService` does on a real disk, on a `MemoryDisk` under virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Timestamp
from logdevice_py.simulation.scheduler import Scheduler
from server.node_settings import NodeSettings
from storage_node.log_store.interface import (
    Completion,
    Contents,
    DirectoryRead,
    ReadDirectory,
    ReadDone,
    ReadLast,
    ReadShard,
    WriteShard,
    Written,
)
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.settings import LogStoreSettings

ASYNC_SYNC_INTERVAL = 1000 * MILLISECOND
SYNC_MAX = 2 * MILLISECOND
READ_MAX = MILLISECOND
_HANG_CHECK = 100 * MILLISECOND
_UPKEEP_INTERVAL = 1000 * MILLISECOND
_DEFAULTS = {
    "partition_duration_us": 2000 * MILLISECOND,
    "partitions_soft_max": 10,
    "partitions_max": 40,
    "blob_bytes_min": 150,
}
"""Partitions come and go within a run, and of many entries header and body lie apart."""


def store_settings(config: ClusterConfig) -> LogStoreSettings:
    """As the cluster file says, and where it says nothing, as suits runs of seconds."""
    said = config.settings.get("storage", {})
    others: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in said}
    return replace(NodeSettings.of(config.settings).log_store, **others)


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
    """Group commit and reads of one shard, for as long as its process lives."""

    def __init__(
        self,
        store: MemoryLogStore,
        disk: MemoryDisk,
        contents: Contents,
        settings: DiskSettings,
        scheduler: Scheduler,
        rng: Rng,
        wall: Callable[[], Timestamp],
        deliver: Callable[[list[Completion]], None],
    ) -> None:
        """
        Args:
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
        self._waiting: list[WriteShard] = []
        self._syncing = False
        self._async_writes = False
        self._async_armed = False
        self._reads: deque[ReadShard | ReadLast | ReadDirectory] = deque()
        self._done: list[Completion] = []
        self._after(_UPKEEP_INTERVAL, self._maintain)

    def run(self, effects: Sequence[WriteShard | ReadShard | ReadLast | ReadDirectory]) -> None:
        """Execute the effects of one turn."""
        writes = [effect for effect in effects if isinstance(effect, WriteShard)]
        reads = [effect for effect in effects if not isinstance(effect, WriteShard)]
        if writes:
            self._write(writes)
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

    def _write(self, writes: list[WriteShard]) -> None:
        statuses = self.store.write([write.batch for write in writes])
        wants_sync = False
        for write, status in zip(writes, statuses, strict=True):
            if status is Status.OK and write.sync:
                self._waiting.append(write)
                wants_sync = True
                continue
            self._async_writes |= status is Status.OK
            self._done.append(Written(write.token, write.shard, status))
        if self._done:
            self._after(0, self._hand_over)
        if wants_sync:
            self._start_sync()
        elif self._async_writes and not self._async_armed:
            self._async_armed = True
            self._after(ASYNC_SYNC_INTERVAL, self._sync_async_writes)

    def _maintain(self) -> None:
        self.store.maintain(self._wall())
        self._after(_UPKEEP_INTERVAL, self._maintain)

    def _hand_over(self) -> None:
        done, self._done = self._done, []
        if done:
            self._deliver(done)

    def _start_sync(self) -> None:
        if self._syncing:
            return
        self._syncing = True
        covered, self._waiting = self._waiting, []
        covers_async, self._async_writes = self._async_writes, False
        token, began = self.store.begin_sync(), self._wall()
        settings = self._settings

        def synced() -> None:
            if self._hangs(synced):
                return
            status = self.store.finish_sync(token)
            self._syncing = False
            if covers_async and status is Status.OK:
                self.store.mark_durable(began)
            if self._waiting:
                self._start_sync()
            if covered:
                self._deliver([Written(write.token, write.shard, status) for write in covered])

        self._after(self._time(settings.sync_min, settings.sync_max), synced)

    def _sync_async_writes(self) -> None:
        self._async_armed = False
        if self._async_writes and not self.store.failed:
            self._start_sync()

    def _read(self) -> None:
        if self._hangs(self._read):
            return
        request = self._reads.popleft()
        store = self.store
        if isinstance(request, ReadDirectory):
            self._deliver([DirectoryRead(request.token, request.shard, store.read_directory(request))])
            return
        result = store.read(request) if isinstance(request, ReadShard) else store.read_last(request)
        self._deliver([ReadDone(request.token, request.shard, result)])
