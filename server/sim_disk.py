"""Executes the effects of one simulated shard: what `ShardService` does on a real disk, on a `MemoryDisk` under virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from logdevice_py.core.machine import Rng
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Timestamp
from logdevice_py.simulation.scheduler import Scheduler
from storage_node.log_store.interface import (
    Completion,
    Contents,
    ReadDone,
    ReadLast,
    ReadShard,
    WriteShard,
    Written,
)
from storage_node.log_store.memory import MemoryLogStore

ASYNC_SYNC_INTERVAL = 1000 * MILLISECOND


@dataclass(slots=True, kw_only=True)
class DiskSettings:
    """How fast the disks of a node are. Microseconds; shared by the node's shards, and faults change it."""

    sync_min: int = 100
    sync_max: int = 2 * MILLISECOND
    read_max: int = MILLISECOND


class SimShard:
    """Group commit and reads of one shard, for as long as its process lives."""

    def __init__(
        self,
        store: MemoryLogStore,
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
        self._settings = settings
        self._scheduler = scheduler
        self._rng = rng
        self._wall = wall
        self._deliver = deliver
        self._waiting: list[WriteShard] = []
        self._syncing = False
        self._async_writes = False
        self._async_armed = False
        self._reads: deque[ReadShard | ReadLast] = deque()
        self._done: list[Completion] = []

    def run(self, effects: Sequence[WriteShard | ReadShard | ReadLast]) -> None:
        """Execute the effects of one turn."""
        writes = [effect for effect in effects if isinstance(effect, WriteShard)]
        reads = [effect for effect in effects if not isinstance(effect, WriteShard)]
        if writes:
            self._write(writes)
        for read in reads:
            self._reads.append(read)
            self._after(self._rng.randrange(self._settings.read_max + 1), self._read)

    def _after(self, delay: int, action: Callable[[], None]) -> None:
        def run() -> None:
            if self.alive:
                action()

        self._scheduler.after(delay, run)

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
        took = settings.sync_min + self._rng.randrange(settings.sync_max - settings.sync_min + 1)

        def synced() -> None:
            status = self.store.finish_sync(token)
            self._syncing = False
            if covers_async and status is Status.OK:
                self.store.mark_durable(began)
            if self._waiting:
                self._start_sync()
            if covered:
                self._deliver([Written(write.token, write.shard, status) for write in covered])

        self._after(took, synced)

    def _sync_async_writes(self) -> None:
        self._async_armed = False
        if self._async_writes and not self.store.failed:
            self._start_sync()

    def _read(self) -> None:
        request = self._reads.popleft()
        store = self.store
        result = store.read(request) if isinstance(request, ReadShard) else store.read_last(request)
        self._deliver([ReadDone(request.token, request.shard, result)])
