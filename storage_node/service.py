"""The asyncio shell of a shard: opens its store and executes the effects of its machines.

Group commit (`log_store/group_commit.py`): the writes of a turn are applied on the loop without sync; one thread per shard syncs, and all that
waited for a sync complete in one callback. Reads are executed on the loop, a bounded amount per
turn: whatever RocksDB does holds the interpreter, in a thread as well. What is not in memory is therefore brought into the page cache first: by
another process (`docs/decisions/0003-reads-of-cold-data.md`), or of a store in extents by a few threads (`log_store/extents/cold_reads.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final, TypeGuard

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.runtime.append_trace import AppendTrace
from logdevice_py.runtime.clock import monotonic_us
from storage_node.log_store.extents.cold_reads import ColdReads, DeferredRead
from storage_node.log_store.extents.kernel_sync import KernelQueue, KernelSync, KernelSyncUnavailableError
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.group_commit import GroupCommit
from storage_node.log_store.identity import Judgement, ShardMarker
from storage_node.log_store.interface import (
    Completion,
    Contents,
    DamageFound,
    DirectoryRead,
    ReadDirectory,
    ReadDone,
    ReadLast,
    ReadResult,
    ReadShard,
    WriteShard,
    Written,
)
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.rocksdb.file_checker import FileChecker
from storage_node.log_store.rocksdb.shard_opening import Register, ShardOpening, ShardStore
from storage_node.log_store.rocksdb.sync_thread import SyncThread
from storage_node.log_store.rocksdb.warmer import Warmer
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.view import StoreView

_PIECES_AHEAD: Final = 32
"""What is brought into the page cache ahead of a reader, in pieces of the size that it asks for: a donor that asks for little takes its time."""
_AHEAD_MIN: Final = 2 << 20
"""Readers ask for as much as they have room for, which may be a few bytes, however fast they are."""
Deliver = Callable[[list[Completion]], None]
Read = ReadShard | ReadLast | ReadDirectory
Effect = WriteShard | Read


async def _note_nothing(marker: ShardMarker) -> None: ...


class ShardService:
    """Executes the effects of one shard. All methods belong to the loop's thread."""

    def __init__(
        self,
        store: ShardStore,
        contents: Contents,
        settings: LogStoreSettings,
        wall: Callable[[], Timestamp],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Use `open`."""
        self.contents: Contents = contents
        """What the shard held when it was opened; the machines take it over."""
        self.metrics = LogStoreMetrics()
        self.trace: AppendTrace | None = None
        """Records when copies are written and synced; None: nobody asked for it."""
        self._shard = contents.marker.shard
        self._store = store
        self._settings = settings
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._deliver: Deliver | None = None
        self._done: list[Completion] = []
        self._reads: deque[Read] = deque()
        self._cold: dict[LogId, Lsn] = {}
        self._warming: set[asyncio.Task[None]] = set()
        self._warmer: Warmer | None = None
        self._turn_scheduled = False
        self._cold_reads: ColdReads | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._fetches: set[asyncio.Future[None]] = set()
        self._commit = GroupCommit(store, settings, self.metrics)
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sync_at = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._report = report
        self._was_refusing = False
        self._trouble = ""
        """What upkeep failed with when it was last tried."""
        self._damage: FileChecker | None = None
        if isinstance(store, RocksLogStore):
            self._warmer = Warmer(os.path.join(store.directory, "db"), store.directory + ".warmer")
            self._damage = FileChecker(
                store, contents.marker.shard, settings, self.metrics, wall, report, self._tell_damage
            )
        if isinstance(store, ExtentLogStore):
            self._cold_reads = ColdReads(store, settings.cold_readers_max, settings.warm_bytes)
            self._readers = ThreadPoolExecutor(max(1, settings.cold_readers_max), "log-store-reader")
        self._syncs = self._make_syncs()
        self._ticker = self._loop.call_later(settings.upkeep_interval_us / SECOND, self._tick)
        self._dropper: asyncio.TimerHandle | None = None
        self._chore: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls,
        directory: str,
        shard: ShardId,
        cluster: bytes,
        settings: LogStoreSettings,
        register: Register,
        note: Callable[[ShardMarker], Awaitable[None]] = _note_nothing,
        *,
        wall: Callable[[], Timestamp],
        report: Callable[[str], None] = lambda _: None,
        admit: Callable[[Judgement], None] = lambda _: None,
        replace_damaged: bool = False,
    ) -> ShardService:
        """Open a shard's store, whoever's it is, and make sure that it is the shard's own.

        A store that belongs to another shard or cluster, or to nobody, is quarantined as ``<directory>.foreign-<n>``, one of an earlier
        generation to ``<directory>.replaced-<n>``; never is one deleted. The marker with the generation that `register` returns is
        durable before this returns.

        Args:
            directory: holds the store; it is made when it is missing.
            cluster: UUID of the cluster, 16 bytes.
            note: tells the epoch store of the marker when it is durable; it raises when the shard must not serve.
            wall: the node's wall clock.
            report: gets sentences for the operator.
            admit: raises when what was found must not be used nor replaced; the store is then left as it is.
            replace_damaged: a store that cannot be opened is quarantined as ``<directory>.damaged-<n>``, and the shard starts a new generation.

        Raises:
            LogDeviceError: `DamagedStoreError`: the store cannot be opened; `StoreInUseError`: it is open already; or what `admit`,
                `register` or `note` raised.
        """
        opening = ShardOpening(directory, shard, cluster, settings, register, note, wall, report, admit)
        store, contents = await opening.open(replace_damaged=replace_damaged)
        return cls(store, contents, settings, wall, report)

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed: the shard answers FAILED until it is opened again."""
        return self._store.failed

    # ---- effects

    def run(self, effects: Sequence[Effect], deliver: Deliver, complete: Deliver | None = None) -> None:
        """Execute the effects of one turn. `deliver` gets their outcomes later, several at a time, never within this call.

        Args:
            effects: all of this shard.
            deliver: takes outcomes.
            complete: takes outcomes of writes that are known at once, within this call; it must pass them on when the turn's effects have
                been run. None: `deliver` gets those too.
        """
        assert not self._closed, "run after close"
        self._deliver = deliver
        writes: list[WriteShard]
        if len(effects) == 1 and type(effects[0]) is WriteShard:
            writes = [effects[0]]
        else:
            writes = [effect for effect in effects if type(effect) is WriteShard]
        if writes:
            self._write(writes)
            if self._done:
                if complete is None:
                    self._schedule_turn()
                else:
                    done, self._done = self._done, []
                    if self.trace is not None:
                        self._trace_outcomes(self.trace, done)
                    complete(done)
        if len(writes) < len(effects):
            self._reads.extend(effect for effect in effects if not isinstance(effect, WriteShard))
            self._schedule_turn()

    def _write(self, writes: list[WriteShard]) -> None:
        began = time.monotonic_ns()
        self._done += self._commit.write(writes, Micros(began // 1000))
        took = (time.monotonic_ns() - began) // 1000
        metrics = self.metrics
        metrics.write_time += took
        if took > metrics.write_time_max:
            metrics.write_time_max = took
        if self.trace is not None:
            for write in writes:
                self.trace.written(write.shard, write.token, write.batch.entries, took * 1000)
        if self._done and self._store.refusing_for_space:
            metrics.no_space = 1
        self._sync_when_due()

    # ---- group commit

    def _make_syncs(self) -> KernelSync | SyncThread:
        store, settings = self._store, self._settings
        if isinstance(store, ExtentLogStore) and settings.kernel_sync and not settings.sync_delay_us:
            with contextlib.suppress(KernelSyncUnavailableError):
                return KernelSync(store, KernelQueue(), self._loop, self._on_synced, self._sync_by_thread)
        return SyncThread(store, settings.sync_delay_us, self._on_synced)

    def _sync_by_thread(self) -> None:
        """The kernel does not sync by itself."""
        self._syncs = SyncThread(self._store, 0, self._on_synced)
        self._syncs.request()

    def _sync_when_due(self) -> None:
        """Begin the next sync if it is due, or set the timer for it."""
        deadline = self._commit.deadline()
        if deadline is None:
            return
        wait = deadline - monotonic_us()
        if wait <= 0:
            self._commit.begin(self._wall())
            self._idle.clear()
            self._syncs.request()
        elif self._sync_timer is None or deadline < self._sync_at:
            if self._sync_timer is not None:
                self._sync_timer.cancel()
            self._sync_at = deadline
            self._sync_timer = self._loop.call_later(wait / SECOND, self._on_sync_timer)

    def _on_sync_timer(self) -> None:
        self._sync_timer = None
        self._sync_when_due()

    def _on_synced(self, status: Status, took: int) -> None:
        metrics = self.metrics
        metrics.sync_time += took
        metrics.sync_time_max = max(metrics.sync_time_max, took)
        written: list[Completion] = [*self._commit.end(status)]
        if self.trace is not None:
            self.trace.synced(self._shard, self._syncs.ended_ns, took * 1000)
            self._trace_outcomes(self.trace, written)
        self._sync_when_due()
        if isinstance(self._store, ExtentLogStore) and self._store.has_chores:
            self._begin_chore()
        if not self._commit.syncing:
            self._idle.set()
        if written:
            assert self._deliver is not None, "a write waited that nobody emitted"
            self._deliver(written)

    @staticmethod
    def _trace_outcomes(trace: AppendTrace, done: Sequence[Completion]) -> None:
        for each in done:
            if isinstance(each, Written):
                trace.durable(each.shard, each.token, each.status)

    # ---- reads and completions of the next turn

    def _schedule_turn(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_scheduled = False
        if self._closed and self._deliver is None:
            return
        budget, until = self._settings.turn_read_bytes_max, self._turn_end()
        while self._reads and budget > 0 and time.monotonic_ns() < until:
            request = self._reads.popleft()
            if isinstance(request, ReadDirectory):
                self._done.append(DirectoryRead(request.token, request.shard, self._store.read_directory(request)))
                budget -= 1024 + 16 * len(request.logs)
            elif self._is_cold(request):
                self._warm(request)
            else:
                budget -= self._read(request, until)
        if self._reads:
            self._schedule_turn()
        done, self._done = self._done, []
        if done:
            if self.trace is not None:
                self._trace_outcomes(self.trace, done)
            assert self._deliver is not None, "an effect was executed that nobody emitted"
            self._deliver(done)

    def _turn_end(self) -> int:
        """When the reads of a turn that begins here have had their time."""
        return time.monotonic_ns() + self._settings.turn_read_us_max * 1000

    def _read(self, request: ReadShard | ReadLast, until: int) -> int:
        """Execute a read, which ends early when its time is over; returns what it cost of the turn's budget, in bytes."""
        began = time.monotonic_ns()
        limit = self._settings.disk_read_bytes_max
        if isinstance(request, ReadShard) and request.bytes_max > limit:
            request = replace(request, bytes_max=limit)
        result = self._execute(request, lambda: time.monotonic_ns() > until)
        if result is None:
            self._begin_fetches()
            return 1024
        took = (time.monotonic_ns() - began) // 1000
        size = sum([len(image) for _, image in result.entries])
        metrics = self.metrics
        metrics.reads += 1
        metrics.bytes_read += size
        metrics.read_time += took
        metrics.read_time_max = max(metrics.read_time_max, took)
        metrics.corrupt_ranges += len(result.corrupt)
        if took > self._settings.slow_read_us:
            metrics.slow_reads += 1
            self._note_slow(request, result)
        self._done.append(ReadDone(request.token, request.shard, result))
        return size + 1024

    def _execute(self, request: ReadShard | ReadLast, is_late: Callable[[], bool]) -> ReadResult | None:
        """None: what it needs is fetched first."""
        if self._cold_reads is not None:
            return self._cold_reads.execute(request, is_late)
        if isinstance(request, ReadShard):
            return self._store.read(request, is_late)
        return self._store.read_last(request)

    # ---- cold data

    def _begin_fetches(self) -> None:
        cold = self._cold_reads
        assert cold is not None, "what is cold is known of extents alone"
        while (read := cold.begin()) is not None:
            fetch = self._loop.run_in_executor(self._readers, read.fetch)
            self._fetches.add(fetch)
            fetch.add_done_callback(partial(self._on_fetched, read))

    def _on_fetched(self, read: DeferredRead, fetch: asyncio.Future[None]) -> None:
        self._fetches.discard(fetch)
        assert self._cold_reads is not None
        self.metrics.warmed += 1
        self._reads.appendleft(self._cold_reads.end(read))
        self._begin_fetches()
        self._schedule_turn()

    def _note_slow(self, request: ReadShard | ReadLast, result: ReadResult) -> None:
        """What follows a read that waited for the disk is taken for cold until it was warmed."""
        if (
            isinstance(request, ReadShard)
            and request.onward
            and self._warmer is not None
            and result.through < request.last
            and self._settings.warm_bytes
        ):
            self._cold[request.log] = Lsn(result.through + 1)

    def _is_cold(self, request: ReadShard | ReadLast) -> TypeGuard[ReadShard]:
        if not self._cold or not isinstance(request, ReadShard) or not request.onward:
            return False
        cold_from = self._cold.get(request.log)
        return cold_from is not None and request.first >= cold_from

    def _warm(self, request: ReadShard) -> None:
        task = self._loop.create_task(self._warm_and_read(request))
        self._warming.add(task)
        task.add_done_callback(self._warming.discard)

    async def _warm_and_read(self, request: ReadShard) -> None:
        store, warmer = self._store, self._warmer
        assert isinstance(store, RocksLogStore), "what is cold is known of RocksDB alone"
        assert warmer is not None
        partition, first, last = store.locate(request.log, request.first, request.last)
        family = store.family_of(partition)
        # what lies far ahead of a slow reader may be gone from the page cache when its turn comes, and is read once more
        size = min(self._settings.warm_bytes, max(_AHEAD_MIN, _PIECES_AHEAD * request.bytes_max))
        through = await warmer.warm(family, request.log, first, last, size, request.wants)
        self.metrics.warmed += 1
        cold_from = self._cold.get(request.log)
        if cold_from is not None and (through is None or through >= request.last):
            del self._cold[request.log]
        elif cold_from is not None and through is not None:
            self._cold[request.log] = max(cold_from, Lsn(through + 1))
        self._read(request, self._turn_end())
        self._schedule_turn()

    # ---- looking

    def inspect(self, request: ReadShard) -> ReadResult:
        """Read outside of the machines, at once, to look at what is stored: ask for little."""
        assert not self._closed, "inspect after close"
        return self._store.read(request)

    @property
    def view(self) -> StoreView:
        """What is stored, to look at."""
        return self._store.view

    async def advance_incarnation(self) -> int | None:
        """Give the shard's marker the next incarnation, durably; returns it, None when that failed."""
        if self._closed or self._store.failed:
            return None
        incarnation = self._store.advance_incarnation()
        if incarnation is None:
            return None
        synced: asyncio.Future[Status] = self._loop.create_future()

        def told(status: Status) -> None:
            if not synced.done():  # nobody waits any more
                synced.set_result(status)

        # a sync of its own, beside that of the group commit, would take the files from it that writes wait for
        self._commit.want(monotonic_us(), told)
        self._sync_when_due()
        return incarnation if await synced is Status.OK else None

    @property
    def marker(self) -> ShardMarker:
        """The marker as it is on disk; after `close`, as it was left."""
        marker = self._store.marker
        assert marker is not None, "a shard that was opened has a marker"
        return marker

    # ---- upkeep and closing

    def _tick(self) -> None:
        try:
            self._look_after()
            self._trouble = ""
        except Exception as error:  # noqa: BLE001 - the next try must not end with it
            # most often a file that cannot be read or written just now
            if self._trouble != repr(error):
                self._trouble = repr(error)
                self._report(
                    f"upkeep of the store in {self._store.directory} is not done, and is tried again: {error!r}"
                )
        finally:
            self._ticker = self._loop.call_later(self._settings.upkeep_interval_us / SECOND, self._tick)

    def _look_after(self) -> None:
        self._store.check_space()
        self._report_space()
        self._store.maintain(self._wall())
        self._drop()
        if self._damage is not None:
            self._damage.look()
        self._store.report(self.metrics)
        self._begin_chore()

    def _begin_chore(self) -> None:
        """Have the next work on files done in another thread, if there is any and none is under way."""
        if self._closed or (self._chore is not None and not self._chore.done()):
            return
        work = self._store.next_chore()
        self._chore = None if work is None else self._loop.run_in_executor(None, work)
        if self._chore is not None and isinstance(self._store, ExtentLogStore):
            # extents are used up faster than upkeep comes by
            self._chore.add_done_callback(lambda _: self._begin_chore())

    def _drop(self) -> None:
        """Drop partitions one by one, with pauses."""
        if self._dropper is not None:
            self._dropper.cancel()
        again = self._store.drop_next()
        self._dropper = None if again is None else self._loop.call_later(again, self._drop)

    def _tell_damage(self, found: DamageFound) -> None:
        if self._deliver is not None:
            self._deliver([found])

    def _report_space(self) -> None:
        refusing = self._store.refusing_for_space
        if refusing != self._was_refusing:
            self._was_refusing = refusing
            if refusing:
                self._report(
                    f"the file system of {self._store.directory} is nearly full: records are refused until there is space again; reads "
                    "and trims go on"
                )
            else:
                self._report(f"there is space again in {self._store.directory}: records are taken")

    async def close(self) -> None:
        """Complete what was emitted, sync, leave the clean-stop mark, close. `run` must not be called again."""
        assert not self._closed, "closed twice"
        self._closed = True
        if self._damage is not None:
            self._damage.stop()
        self._ticker.cancel()
        if self._dropper is not None:
            self._dropper.cancel()
        self._commit.hurry(monotonic_us())
        self._sync_when_due()
        while self._commit.syncing or self._warming or self._fetches or self._reads or self._done:
            if self._warming or self._fetches:
                await asyncio.wait([*self._warming, *self._fetches])
            await self._idle.wait()
            await asyncio.sleep(0)
        if self._sync_timer is not None:
            self._sync_timer.cancel()
        if self._damage is not None:
            await self._damage.close()
        if self._warmer is not None:
            await self._warmer.close()
        if self._readers is not None:
            self._readers.shutdown(wait=False)
        if isinstance(self._syncs, SyncThread):
            await asyncio.to_thread(self._syncs.stop)
        else:
            self._syncs.close()
        if self._chore is not None and isinstance(self._store, ExtentLogStore):
            await self._chore
        await asyncio.to_thread(self._store.close)
        if self._chore is not None:
            await self._chore
