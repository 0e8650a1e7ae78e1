"""A shard's group commit: gathers the writes of turns, covers all that wait by one sync, and answers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, Micros, Timestamp
from storage_node.log_store.interface import LogStore, WriteShard, Written
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.settings import LogStoreSettings

DEFERRABLE_US: Final = 20 * MILLISECOND
"""How long a deferrable write waits for a sync that others want."""


class GroupCommit:
    """Which writes wait for which sync. Whoever runs it calls `begin` when `deadline` says so, syncs the store, and calls `end`.

    There is one sync at a time. It covers what was written before it began; what comes meanwhile waits for the next one.
    """

    def __init__(self, store: LogStore, settings: LogStoreSettings, metrics: LogStoreMetrics) -> None:
        self.syncing = False
        """A sync is under way."""
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._waiting: list[WriteShard] = []
        """For the next sync."""
        self._covered: list[WriteShard] = []
        """By the sync that is under way."""
        self._asking: list[Callable[[Status], None]] = []
        """Who wrote past this object, and waits for the next sync."""
        self._told: list[Callable[[Status], None]] = []
        """Of these, who waits for the sync that is under way."""
        self._unsynced = False
        """Something was written without sync since the last one began."""
        self._unsynced_covered = False
        self._began = Timestamp(0)
        self._due: Micros | None = None

    def write(self, writes: Sequence[WriteShard], now: Micros) -> list[Written]:
        """Apply writes in order; returns the outcomes that are known at once, `end` the others."""
        statuses = self._store.write([write.batch for write in writes])
        metrics = self._metrics
        known: list[Written] = []
        for write, status in zip(writes, statuses, strict=True):
            if status is Status.OK:
                batch = write.batch
                metrics.batches += 1
                metrics.entries += len(batch.entries)
                metrics.bytes_written += batch.size
                if write.sync:
                    self._waiting.append(write)
                    self._want(now + DEFERRABLE_US if write.deferrable else now)
                    continue
                self._unsynced = True
                self._want(now if self._store.wants_sync else now + self._settings.async_sync_interval_us)
            else:
                self._count_refusal(status)
            known.append(Written(write.token, write.shard, status))
        return known

    def want(self, now: Micros, told: Callable[[Status], None]) -> None:
        """Have a sync begin soon, for what was written past this object.

        Args:
            told: called by `end` with the outcome of the first sync that begins after this call.
        """
        self._asking.append(told)
        self._want(now)

    def _want(self, at: int) -> None:
        if self._due is None or at < self._due:
            self._due = Micros(at)

    def _count_refusal(self, status: Status) -> None:
        if status is Status.OVERLOADED:
            self._metrics.refused_overloaded += 1
        elif status is Status.NOSPC:
            self._metrics.refused_no_space += 1
            self._metrics.no_space_for_rebuilding = 1
        else:
            self._metrics.failed_batches += 1
            self._metrics.failed = 1

    def deadline(self) -> Micros | None:
        """When the next sync should begin; None: nothing is to be synced, or a sync is under way, after whose end to ask again."""
        return None if self.syncing else self._due

    def hurry(self, now: Micros) -> None:
        """Let nobody who waits wait for others."""
        if self._waiting:
            self._want(now)

    def begin(self, wall: Timestamp) -> None:
        """A sync begins, of everything that is written by now.

        Args:
            wall: the node's wall clock.
        """
        assert not self.syncing, "one sync at a time"
        self.syncing = True
        self._covered, self._waiting = self._waiting, self._covered
        self._told, self._asking = self._asking, self._told
        self._unsynced_covered, self._unsynced = self._unsynced, False
        self._began = wall
        self._due = None
        if len(self._covered) > self._metrics.sync_waiters_max:
            self._metrics.sync_waiters_max = len(self._covered)

    def end(self, status: Status) -> list[Written]:
        """The sync has ended; returns the outcomes of all that it covers."""
        self.syncing = False
        self._metrics.syncs += 1
        if status is not Status.OK:
            self._metrics.failed = 1
        elif self._unsynced_covered:
            self._store.mark_durable(self._began)
        written = [Written(write.token, write.shard, status) for write in self._covered]
        self._covered.clear()
        for tell in self._told:
            tell(status)
        self._told.clear()
        return written
