"""The RocksDB store and its shell with real files, threads and kills."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import Generation, LogId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.identity import Judgement, PreviousEnd, ShardMarker
from storage_node.log_store.interface import (
    Completion,
    Contents,
    LogMetadataKind,
    ReadDone,
    ReadLast,
    ReadResult,
    ReadShard,
    WriteBatch,
    WriteShard,
    Written,
)
from storage_node.log_store.rocksdb import RocksLogStore, filling, shard_opening
from storage_node.log_store.rocksdb.rows import delete_copies
from storage_node.log_store.rocksdb.shard_opening import DamagedStoreError, StoreInUseError
from storage_node.log_store.rocksdb.warmer import STARTS_MAX, Warmer
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.wanted import Wants, no_body
from storage_node.service import ShardService
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at, put, read_all, read_last

CLUSTER = b"c" * 16
MARKER = ShardMarker(CLUSTER, SHARD, Generation(1))
SETTINGS = LogStoreSettings(free_space_min=0, memtable_bytes=1 << 20)
LOGS = (LogId(1), LogId(2), LogId(1 << 62 | 1))

WRITER = """
import itertools, sys
from logdevice_py.core.ids import LogId
from storage_node.log_store.interface import LogMetadataKind, WriteBatch
from tests.integration.test_rocksdb_store import LOGS, apply, open_store
from tests.unit.storage_node.log_store.images import at, put

store, _ = open_store(sys.argv[1])
for number in itertools.count(1):
    batch = WriteBatch()
    for log in LOGS:
        put(batch, at(number), bytes([number % 256]) * (200 if number % 3 else 9000), log=log)
    batch.put_log_metadata(LogId(1), LogMetadataKind.SEAL, str(number).encode())
    apply(store, batch)
    if number % 4 == 0:
        store.sync()
        print(number, flush=True)
"""


def open_store(directory: str | Path) -> tuple[RocksLogStore, Contents]:
    store = RocksLogStore(str(directory), SETTINGS)
    assert store.adopt(MARKER, boot="boot 1", now=Timestamp(1)) is Status.OK
    return store, store.load()


def apply(store: RocksLogStore, batch: WriteBatch) -> None:
    # a disk that does not keep up refuses batches, which then have no effect
    while (status := store.write([batch])) == [Status.OVERLOADED]:
        time.sleep(0.001)
    assert status == [Status.OK]


def prefix_of(store: RocksLogStore, contents: Contents) -> int:
    """How many of WRITER's batches are there; asserts that they are whole and that none is missing before the last."""
    counts = {len(read_all(store, log).entries) for log in LOGS}
    assert len(counts) == 1, counts
    [count] = counts
    for log in LOGS:
        result = read_all(store, log)
        assert [lsn for lsn, _ in result.entries] == [at(number) for number in range(1, count + 1)]
        assert not result.corrupt
    assert dict(contents.highest) == (dict.fromkeys(LOGS, at(count)) if count else {})
    assert contents.log_metadata == ([(LogId(1), LogMetadataKind.SEAL, str(count).encode())] if count else [])
    return count


class TestKill:
    @pytest.mark.parametrize("syncs", [1, 40, 300])
    def test_every_synced_batch_survives_and_none_is_torn(self, tmp_path: Path, syncs: int) -> None:
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            synced = [int(child.stdout.readline()) for _ in range(syncs)][-1]
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate()
        store, contents = open_store(tmp_path)
        assert contents.last_stop is PreviousEnd.PROCESS_DIED
        assert prefix_of(store, contents) >= synced
        store.close()

    def test_a_torn_log_opens_with_a_prefix(self, tmp_path: Path) -> None:
        origin = tmp_path / "origin"
        store, _ = open_store(origin)
        for number in range(1, 40):
            batch = WriteBatch()
            for log in LOGS:
                put(batch, at(number), log=log)
            batch.put_log_metadata(LogId(1), LogMetadataKind.SEAL, str(number).encode())
            assert store.write([batch]) == [Status.OK]
        # as a power cut would find the files
        found = set()
        for cut in (0, 1, 17, 500, 3000, 9000):
            copy = tmp_path / f"cut-{cut}"
            shutil.copytree(origin, copy)
            wal = max(glob.glob(str(copy / "db" / "*.log")), key=os.path.getsize)
            os.truncate(wal, max(0, len(Path(wal).read_bytes().rstrip(b"\0")) - cut))
            reopened, contents = open_store(copy)
            found.add(prefix_of(reopened, contents))
            reopened.close()
        store.close()
        assert max(found) == 39
        assert len(found) >= 4


class TestDamagedFiles:
    @pytest.mark.parametrize(("size", "pattern"), [(300, "*.sst"), (6000, "*.blob")])
    def test_a_flipped_byte_on_disk_is_reported_and_the_rest_is_read(
        self, tmp_path: Path, size: int, pattern: str
    ) -> None:
        store, _ = open_store(tmp_path)
        batch = WriteBatch()
        images = [(at(esn), put(batch, at(esn), os.urandom(size))) for esn in range(1, 501)]
        assert store.write([batch]) == [Status.OK]
        store._families.reader(store.partitions[-1]).flush()
        store.close()
        victim = max(glob.glob(str(tmp_path / "db" / pattern)), key=os.path.getsize)
        with open(victim, "r+b") as file:
            place = os.path.getsize(victim) // 3
            file.seek(place)
            [byte] = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        store, _ = open_store(tmp_path)
        result = read_all(store)
        assert result.status is Status.OK
        assert result.through == LAST
        assert len(result.corrupt) == 1
        first, last = result.corrupt[0]
        assert last - first < 120
        assert result.entries == [(lsn, image) for lsn, image in images if not first <= lsn <= last]
        assert read_last(store, LOG, at(1), last).corrupt
        assert read_last(store).entries == [images[-1]]
        store.close()


def test_writes_are_refused_while_rocksdb_does_not_keep_up_with_its_files(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path / "shard")

    def write(esn: int) -> Status:
        batch = WriteBatch()
        put(batch, at(esn))
        return store.write([batch])[0]

    # nothing merges the files, and there may be two of them
    family = store._families.reader(keys.PARTITION_FIRST)
    family.set_options({"level0_file_num_compaction_trigger": "1000"})
    family.set_options({"level0_slowdown_writes_trigger": "2", "level0_stop_writes_trigger": "2"})
    for esn in (1, 2):
        assert write(esn) is Status.OK
        family.flush()
    assert [write(3), write(3)] == [Status.OVERLOADED] * 2, "refused by RocksDB, then without trying"
    family.set_options({"level0_slowdown_writes_trigger": "100", "level0_stop_writes_trigger": "100"})
    assert write(3) is Status.OK
    assert [lsn for lsn, _ in read_all(store, LOG).entries] == [at(1), at(2), at(3)]
    del family
    store.close()


@pytest.mark.slow
def test_what_was_deleted_is_not_deleted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that lie within each other have RocksDB take a second for the next read, of any log, once there are some thousand."""
    deleted: list[tuple[int, int]] = []

    def delete(group: object, log: LogId, first: Lsn, last: Lsn, handle: object) -> None:
        deleted.append((first, last))
        delete_copies(group, log, first, last, handle)

    monkeypatch.setattr(filling, "delete_copies", delete)
    store, _ = open_store(tmp_path)

    def trim(last: int) -> None:
        batch = WriteBatch()
        batch.delete_entries(LOG, Lsn(1), at(last))
        apply(store, batch)

    batch = WriteBatch()
    for number in range(1, 21):
        put(batch, at(number), b"record")
    apply(store, batch)
    for number in (5, 6, 6, 9, 7):
        trim(number)
    assert deleted == [(at(1), at(5)), (at(6), at(6)), (at(7), at(9))]
    late = WriteBatch()
    put(late, at(3), b"a copy that came late")
    put(late, at(25), b"record")
    apply(store, late)
    assert [lsn for lsn, _ in read_all(store, LOG).entries] == [at(3), *map(at, range(10, 21)), at(25)]
    trim(12)
    assert deleted[-1] == (at(3), at(12))
    assert [lsn for lsn, _ in read_all(store, LOG).entries] == [*map(at, range(13, 21)), at(25)]
    store.close()


def test_a_hundred_thousand_logs_load_in_seconds(tmp_path: Path) -> None:
    rows = 100_000 * len(LogMetadataKind)
    store, _ = open_store(tmp_path)
    for base in range(0, 100_000, 2_000):
        batch = WriteBatch()
        for log in range(base + 1, base + 2_001):
            put(batch, at(3), log=LogId(log))
            for kind in LogMetadataKind:
                batch.put_log_metadata(LogId(log), kind, b"0123456789abcdef")
        apply(store, batch)
    store.close()
    began = time.process_time()
    store, contents = open_store(tmp_path)
    clean = time.process_time() - began
    assert len(contents.log_metadata) == rows
    store.abandon()
    began = time.process_time()
    store, contents = open_store(tmp_path)
    unclean = time.process_time() - began
    assert len(contents.highest) == 100_000
    store.close()
    print(
        f"100,000 logs, {rows:,} rows: {clean:.2f} s after a clean stop, {unclean:.2f} s after a kill, of processor time"
    )
    assert max(clean, unclean) < 30


class Shell:
    """Runs effects and collects their outcomes."""

    def __init__(self, service: ShardService) -> None:
        self.service = service
        self.rounds: list[list[Completion]] = []
        self._changed = asyncio.Event()

    def run(self, *effects: WriteShard | ReadShard | ReadLast) -> None:
        before = len(self.rounds)
        self.service.run(effects, self._take)
        assert len(self.rounds) == before, "delivered within the call"

    def _take(self, completions: list[Completion]) -> None:
        self.rounds.append(completions)
        self._changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while sum(map(len, self.rounds)) < count:
                self._changed.clear()
                await self._changed.wait()

    @property
    def statuses(self) -> dict[int, Status]:
        return {done.token: done.status for batch in self.rounds for done in batch if isinstance(done, Written)}

    @property
    def results(self) -> dict[int, ReadResult]:
        return {done.token: done.result for batch in self.rounds for done in batch if isinstance(done, ReadDone)}


async def keep(generation: Generation | None, birth: bytes) -> Generation:
    return generation or Generation(1)


async def open_service(
    directory: Path, settings: LogStoreSettings = SETTINGS, register: Callable[..., object] = keep, **others: object
) -> Shell:
    arguments: dict[str, object] = {"shard": SHARD, "cluster": CLUSTER} | others
    service = await ShardService.open(
        str(directory),
        settings=settings,
        register=register,  # type: ignore[arg-type]
        wall=lambda: Timestamp(time.time_ns() // 1000),
        **arguments,  # type: ignore[arg-type]
    )
    return Shell(service)


def write_of(token: int, *lsns: Lsn, sync: bool = True) -> WriteShard:
    batch = WriteBatch()
    for lsn in lsns:
        put(batch, lsn)
    return WriteShard(token, SHARD, batch, sync)


class TestService:
    async def test_writes_of_a_turn_complete_together_after_one_sync(self, tmp_path: Path) -> None:
        shell = await open_service(tmp_path / "shard")
        shell.run(*(write_of(token, at(token)) for token in range(1, 51)))
        await shell.until(50)
        assert set(shell.statuses.values()) == {Status.OK}
        assert (len(shell.rounds), shell.service.metrics.syncs) == (1, 1)
        await shell.service.close()

    async def test_a_sync_completes_only_what_was_written_before_it_began(self, tmp_path: Path) -> None:
        shell = await open_service(tmp_path / "shard", LogStoreSettings(free_space_min=0, sync_delay_us=50_000))
        shell.run(write_of(1, at(1)))
        # its sync has begun, and cannot end before this task waits
        shell.run(write_of(2, at(2)))
        shell.run(write_of(3, at(3)))
        await shell.until(3)
        assert [[done.token for done in batch] for batch in shell.rounds] == [[1], [2, 3]]
        assert shell.service.metrics.syncs == 2
        await shell.service.close()

    async def test_a_write_without_sync_does_not_wait_for_one(self, tmp_path: Path) -> None:
        settings = LogStoreSettings(free_space_min=0, sync_delay_us=100_000, async_sync_interval_us=20_000)
        shell = await open_service(tmp_path / "shard", settings)
        shell.run(write_of(1, at(1)), write_of(2, at(2), sync=False))
        await shell.until(2)
        assert [[done.token for done in batch] for batch in shell.rounds] == [[2], [1]]
        syncs = shell.service.metrics.syncs
        shell.run(write_of(3, at(3), sync=False))
        await shell.until(3)
        async with asyncio.timeout(60):
            while shell.service.metrics.syncs == syncs:  # noqa: ASYNC110 - the service has no event for it
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert shell.service.metrics.syncs == syncs + 1
        await shell.service.close()

    async def test_a_failed_sync_is_final(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        shell = await open_service(tmp_path / "shard")
        shell.run(write_of(1, at(1)))
        await shell.until(1)

        def break_(store: RocksLogStore) -> Status:
            if not store.failed:
                store.groups.fail("the disk is gone")
            return Status.FAILED

        monkeypatch.setattr(RocksLogStore, "sync", break_)
        shell.run(write_of(2, at(2)), write_of(3, at(3)))
        await shell.until(3)
        monkeypatch.undo()
        shell.run(write_of(4, at(4)), write_of(5, at(5), sync=False), ReadShard(6, SHARD, LOG, at(1), LAST, 1000))
        await shell.until(6)
        assert [shell.statuses[token] for token in (2, 3, 4, 5)] == [Status.FAILED] * 4
        assert shell.results[6].status is Status.FAILED
        assert shell.service.failed
        await shell.service.close()
        shell = await open_service(tmp_path / "shard")
        assert shell.service.contents.last_stop is PreviousEnd.MACHINE_DIED
        assert len(shell.service.contents.losses) == 1
        await shell.service.close()

    async def test_reads_see_the_writes_emitted_before_them(self, tmp_path: Path) -> None:
        shell = await open_service(tmp_path / "shard")
        shell.run(
            write_of(1, at(1), at(2)),
            ReadShard(2, SHARD, LOG, at(1), LAST, 1 << 20),
            ReadLast(3, SHARD, LOG, at(1), LAST),
        )
        await shell.until(3)
        assert [lsn for lsn, _ in shell.results[2].entries] == [at(1), at(2)]
        assert [lsn for lsn, _ in shell.results[3].entries] == [at(2)]
        await shell.service.close()

    async def test_close_completes_everything_that_was_emitted(self, tmp_path: Path) -> None:
        shell = await open_service(tmp_path / "shard", LogStoreSettings(free_space_min=0, sync_delay_us=20_000))
        shell.run(write_of(1, at(1)))
        await asyncio.sleep(0)
        shell.run(write_of(2, at(2)), write_of(3, at(3), sync=False), ReadShard(4, SHARD, LOG, at(1), LAST, 1000))
        await shell.service.close()
        assert set(shell.statuses) | set(shell.results) == {1, 2, 3, 4}
        shell = await open_service(tmp_path / "shard")
        assert shell.service.contents.last_stop is PreviousEnd.CLEAN
        await shell.service.close()

    async def test_entries_are_refused_without_space_and_markers_are_not(self, tmp_path: Path) -> None:
        full = LogStoreSettings(free_space_min=1 << 60, free_space_min_percent=90, free_space_resume_percent=1000)
        shell = await open_service(tmp_path / "shard", full)
        seal = WriteBatch()
        seal.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal")
        shell.run(write_of(1, at(1)), WriteShard(2, SHARD, seal, True))
        await shell.until(2)
        assert shell.statuses == {1: Status.NOSPC, 2: Status.OK}
        await shell.service.close()

    async def test_a_process_for_warming_that_cannot_work_is_started_a_few_times(self, tmp_path: Path) -> None:
        warmer = Warmer(str(tmp_path / "nothing"), str(tmp_path / "scratch"))
        assert await warmer.warm(keys.PARTITION_FIRST, LOG, at(1), LAST, 1000) is None
        assert warmer.starts == STARTS_MAX
        await warmer.close()

    async def test_a_process_for_warming_whose_pipe_is_closed_is_started_anew(self, tmp_path: Path) -> None:
        warmer = Warmer(str(tmp_path / "nothing"), str(tmp_path / "scratch"))
        process = warmer._process = await asyncio.create_subprocess_exec("true", stdin=-1, stdout=-1)
        assert process.stdin is not None
        await process.wait()
        process.stdin.close()
        await process.stdin.wait_closed()
        assert await warmer.warm(keys.PARTITION_FIRST, LOG, at(1), LAST, 1000) is None
        assert warmer.starts == STARTS_MAX
        await warmer.close()

    async def test_slow_reads_are_warmed_by_another_process(self, tmp_path: Path) -> None:
        settings = LogStoreSettings(
            free_space_min=0, memtable_bytes=1 << 20, disk_read_bytes_max=8192, slow_read_us=100
        )
        shell = await open_service(tmp_path / "shard", settings)
        batch = WriteBatch()
        for esn in range(1, 200):
            put(batch, at(esn), os.urandom(5000))
        shell.run(WriteShard(0, SHARD, batch, True))
        await shell.until(1)
        store = shell.service._store
        store._families.reader(store.partitions[-1]).flush()
        position, token = at(1), 1
        while position < at(199):
            shell.run(ReadShard(token, SHARD, LOG, position, at(199), 1 << 20))
            await shell.until(token + 1)
            result = shell.results[token]
            assert result.entries[0][0] == position
            position, token = Lsn(result.through + 1), token + 1
            if token == 2:
                shell.service._cold[LOG] = position
        assert shell.service.metrics.warmed >= 1
        assert shell.service._warmer.starts == 1
        await shell.service.close()

    @pytest.mark.parametrize("wants", [None, no_body])
    async def test_reads_of_small_entries_end_when_their_time_in_a_turn_is_over(
        self, tmp_path: Path, wants: Wants | None
    ) -> None:
        """They hold up the event loop: of entries of 10 bytes a read of 256 KiB would do so for 10 to 40 ms."""
        settings = LogStoreSettings(free_space_min=0, turn_read_us_max=100)
        shell = await open_service(tmp_path / "shard", settings)
        batch = WriteBatch()
        lsns = [at(esn) for esn in range(1, 3001)]
        for lsn in lsns:
            put(batch, lsn, b"0123456789")
        shell.run(WriteShard(0, SHARD, batch, True))
        await shell.until(1)
        found: list[Lsn] = []
        position, token = lsns[0], 1
        while position <= lsns[-1]:
            # of two reads the second one has its turn later, and is not forgotten
            for each in (token, token + 1):
                shell.run(ReadShard(each, SHARD, LOG, position, lsns[-1], 1 << 20, wants=wants))
            await shell.until(token + 2)
            results = [shell.results[each] for each in (token, token + 1)]
            assert results[0].entries
            assert results[1].entries[0] == results[0].entries[0]
            assert results[0].entries[-1][0] == results[0].through
            found += [lsn for lsn, _ in results[0].entries]
            position, token = Lsn(results[0].through + 1), token + 2
        assert found == lsns
        assert token > 10, "all at once"
        await shell.service.close()

    @pytest.mark.parametrize(("asked", "brought"), [(1, 2 << 20), (128 << 10, 4 << 20), (1 << 20, 16 << 20)])
    async def test_who_asks_for_little_is_brought_little_ahead(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, brought: int
    ) -> None:
        """A slow reader would come to the rest when it is gone from the page cache again."""
        shell = await open_service(tmp_path / "shard")
        shell.run(write_of(1, at(1)))
        await shell.until(1)
        sizes = []

        async def warm(family: str, log: int, first: Lsn, last: Lsn, size: int, wants: object) -> Lsn:
            sizes.append(size)
            return last

        monkeypatch.setattr(shell.service._warmer, "warm", warm)
        shell.service._cold[LOG] = at(1)
        shell.run(ReadShard(2, SHARD, LOG, at(1), at(1), asked))
        await shell.until(2)
        assert sizes == [brought]
        await shell.service.close()

    async def test_nothing_is_warmed_for_who_looks_at_a_place_and_then_elsewhere(self, tmp_path: Path) -> None:
        settings = LogStoreSettings(free_space_min=0, slow_read_us=100, disk_read_bytes_max=8192)
        shell = await open_service(tmp_path / "shard", settings)
        batch = WriteBatch()
        for esn in range(1, 200):
            put(batch, at(esn), os.urandom(5000))
        shell.run(WriteShard(0, SHARD, batch, True))
        await shell.until(1)
        shell.service._cold[LOG] = at(1)
        for token in range(1, 50):
            shell.run(ReadShard(token, SHARD, LOG, at(4 * token), at(199), 1 << 20, onward=False))
        await shell.until(50)
        assert shell.service.metrics.warmed == 0
        assert shell.service._cold == {LOG: at(1)}
        await shell.service.close()

    async def test_upkeep_goes_on_after_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[str] = []
        settings = LogStoreSettings(free_space_min=0, upkeep_interval_us=10_000)
        shell = await open_service(tmp_path / "shard", settings, report=said.append)
        store = shell.service._store
        searches = threading.Semaphore(0)

        def find_damaged() -> list[int]:
            searches.release()
            raise OSError("no such file")

        monkeypatch.setattr(store.rewriter, "find_damaged", find_damaged)
        monkeypatch.setattr(store, "background_errors", lambda: 1)
        for _ in range(3):
            assert await asyncio.to_thread(searches.acquire, timeout=20)
        assert [text for text in said if "upkeep" in text]
        await shell.service.close()


class TestIdentity:
    async def test_a_shard_keeps_its_generation(self, tmp_path: Path) -> None:
        asked: list[Generation | None] = []

        async def register(generation: Generation | None, birth: bytes) -> Generation:
            asked.append(generation)
            return generation or Generation(4)

        for _ in range(2):
            shell = await open_service(tmp_path / "shard", register=register)
            assert shell.service.contents.marker.generation == 4
            await shell.service.close()
        assert asked == [None, 4]

    async def test_an_empty_disk_says_who_it_is_until_it_has_a_generation(self, tmp_path: Path) -> None:
        asked: list[tuple[Generation | None, bytes]] = []
        failures: list[Status | None] = [Status.TIMEDOUT, None, None]

        async def register(generation: Generation | None, birth: bytes) -> Generation:
            asked.append((generation, birth))
            if (status := failures.pop(0)) is not None:
                raise LogDeviceError(status, "the process ends before it is answered")
            return Generation(1)

        with pytest.raises(LogDeviceError):
            await open_service(tmp_path / "shard", register=register)
        for _ in range(2):
            shell = await open_service(tmp_path / "shard", register=register)
            assert shell.service.contents.last_stop is PreviousEnd.CLEAN
            await shell.service.close()
        birth = asked[0][1]
        assert birth
        assert asked == [(None, birth), (None, birth), (1, b"")]

    async def test_an_older_copy_is_quarantined_and_the_shard_begins_a_new_generation(self, tmp_path: Path) -> None:
        shell = await open_service(tmp_path / "shard")
        shell.run(write_of(1, at(1)))
        await shell.service.close()
        said: list[str] = []

        async def register(generation: Generation | None, birth: bytes) -> Generation:
            assert generation == 1
            return Generation(3)

        shell = await open_service(tmp_path / "shard", register=register, report=said.append)
        assert shell.service.contents.marker.generation == 3
        assert shell.service.contents.highest == []
        await shell.service.close()
        [sentence] = said
        assert "counts no more" in sentence
        assert str(tmp_path / "shard.replaced-1") in sentence
        shell = await open_service(tmp_path / "shard.replaced-1")
        assert shell.service.contents.highest == [(LOG, at(1))]
        await shell.service.close()

    async def test_what_is_not_admitted_is_left_as_it_is(self, tmp_path: Path) -> None:
        shell = await open_service(tmp_path / "shard", cluster=b"x" * 16)
        shell.run(write_of(1, at(1)))
        await shell.service.close()

        def admit(judgement: Judgement) -> None:
            raise LogDeviceError(Status.FAILED, judgement.reason)

        with pytest.raises(LogDeviceError, match="belongs to cluster"):
            await open_service(tmp_path / "shard", admit=admit)
        assert [path.name for path in tmp_path.iterdir()] == ["shard"]
        shell = await open_service(tmp_path / "shard", cluster=b"x" * 16)
        assert shell.service.contents.highest == [(LOG, at(1))]
        await shell.service.close()

    @pytest.mark.parametrize("other", [{"cluster": b"x" * 16}, {"shard": shard_id(3, 1)}])  # type: ignore[arg-type]
    async def test_a_store_of_another_cluster_or_shard_is_quarantined(
        self, tmp_path: Path, other: dict[str, object]
    ) -> None:
        for number in (1, 2):
            shell = await open_service(tmp_path / "shard", **other)  # type: ignore[arg-type]
            shell.run(write_of(1, at(1)))
            await shell.service.close()
            said: list[str] = []
            asked: list[Generation | None] = []

            async def register(
                generation: Generation | None, birth: bytes, asked: list[Generation | None] = asked
            ) -> Generation:
                asked.append(generation)
                return Generation(9)

            shell = await open_service(tmp_path / "shard", register=register, report=said.append)
            assert asked == [None]
            assert shell.service.contents.highest == []
            await shell.service.close()
            assert any("belongs to" in sentence for sentence in said)
            assert (tmp_path / f"shard.foreign-{2 * number - 1}" / "db").is_dir()

    async def test_data_without_a_marker_is_quarantined(self, tmp_path: Path) -> None:
        store = RocksLogStore(str(tmp_path / "shard"), SETTINGS)
        batch = WriteBatch()
        put(batch, at(1))
        store.write([batch])
        store.abandon()
        shell = await open_service(tmp_path / "shard")
        assert shell.service.contents.highest == []
        await shell.service.close()
        assert (tmp_path / "shard.foreign-1" / "db").is_dir()

    async def test_data_beside_a_marker_that_cannot_be_read_is_quarantined(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        batch = WriteBatch()
        put(batch, at(1))
        store.write([batch])
        store._families.metadata.put(keys.MARKER_KEY, b"no marker")
        store.abandon()
        shell = await open_service(tmp_path / "shard")
        assert shell.service.contents.highest == []
        await shell.service.close()
        assert (tmp_path / "shard.foreign-1" / "db").is_dir()

    async def test_a_store_that_is_open_elsewhere_cannot_be_opened_nor_quarantined(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shell = await open_service(tmp_path / "shard")
        with pytest.raises(StoreInUseError, match=r"this process has the store there open\. Nothing was changed"):
            await open_service(tmp_path / "shard", replace_damaged=True)
        with monkeypatch.context() as patch:
            patch.setattr(shard_opening, "find_user", lambda directory: None)
            with pytest.raises(StoreInUseError, match="another process has the store there open"):
                await open_service(tmp_path / "shard", replace_damaged=True)
        await shell.service.close()
        assert [path.name for path in tmp_path.iterdir()] == ["shard"]

    async def test_a_store_that_can_be_opened_and_not_read_is_damaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await (await open_service(tmp_path / "shard")).service.close()

        def found(store: RocksLogStore) -> ShardMarker | None:
            if not (tmp_path / "shard.damaged-1").exists():
                raise LogDeviceError(Status.FAILED, "the store cannot be read")
            return None

        monkeypatch.setattr(RocksLogStore, "found", property(found))
        with pytest.raises(DamagedStoreError, match="cannot be read"):
            await open_service(tmp_path / "shard")
        shell = await open_service(tmp_path / "shard", replace_damaged=True)
        assert shell.service.contents.highest == []
        await shell.service.close()

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (b"\x99later", b""),
            (keys.LOSSES_KEY, b"\x01"),
            (keys.DRAIN_KEY, b"\x91\x01"),
            (keys.partition_key(keys.PARTITION_FIRST), b"\x93\x01\x02\x03"),
            (keys.directory_key(1, 1, 0), b"short"),
        ],
    )
    async def test_rows_of_a_later_version_are_damage_that_is_told(
        self, tmp_path: Path, key: bytes, value: bytes
    ) -> None:
        await (await open_service(tmp_path / "shard")).service.close()
        store = shard_opening.open_store(str(tmp_path / "shard"), SETTINGS, SHARD)
        store._families.metadata.put(key, value)
        store.abandon()
        with pytest.raises(DamagedStoreError, match="cannot be read"):
            await open_service(tmp_path / "shard")

    async def test_a_registration_that_fails_leaves_the_store_as_it_was(self, tmp_path: Path) -> None:
        async def register(generation: Generation | None, birth: bytes) -> Generation:
            raise LogDeviceError(Status.FAILED, "the epoch store is gone")

        with pytest.raises(LogDeviceError, match="gone"):
            await open_service(tmp_path / "shard", register=register)
        shell = await open_service(tmp_path / "shard")
        await shell.service.close()


class TestLooking:
    def test_copies_that_do_not_count_can_be_seen(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        batch = WriteBatch()
        first = put(batch, at(1), b"one", wave=1)
        second = put(batch, at(1), b"one", wave=2)
        put(batch, at(1), b"", wave=3, flags=int(EntryFlags.HOLE | EntryFlags.WRITTEN_BY_RECOVERY))
        put(batch, at(2), b"two", wave=7)
        assert store.write([batch]) == [Status.OK]
        assert store.view.superseded(LOG, at(1), at(9)) == [(at(1), first), (at(1), second)]
        assert store.view.superseded(LOG, at(2), at(9)) == []
        store.close()

    def test_the_database_says_what_it_holds(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        before = store.view.measure()
        batch = WriteBatch()
        for number in range(100):
            put(batch, at(number + 1), b"x" * 1000)
        assert store.write([batch]) == [Status.OK]
        after = store.view.measure()
        assert after.memtable_bytes >= before.memtable_bytes + 100_000
        assert after.estimated_keys >= before.estimated_keys + 100
        assert (after.write_stopped, after.delayed_write_rate) == (0, 0)
        assert after.families >= 3
        store.close()
