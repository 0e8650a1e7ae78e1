"""Reads of what memory lacks: fetched elsewhere, a few at a time, and executed again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import pytest

from logdevice_py.core.ids import LogId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store.extents import cold_reads
from storage_node.log_store.extents.cold_reads import ATTEMPTS_MAX, ColdReads
from storage_node.log_store.extents.disk import DiskError
from storage_node.log_store.extents.simulated_disk import SimulatedFile
from storage_node.log_store.interface import Completion, Contents, ReadDone, ReadLast, ReadResult, ReadShard
from storage_node.service import ShardService
from tests.unit.storage_node.log_store.extent_stores import do_chores
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at
from tests.unit.storage_node.log_store.test_extent_store import SETTINGS, Held

OTHER = LogId(8)


def request(log: LogId = LOG, first: Lsn = Lsn(0), *, token: int = 1, bytes_max: int = 1 << 20) -> ReadShard:
    return ReadShard(token, SHARD, log, first, LAST, bytes_max, 1000, False)


@pytest.fixture
def it() -> Held:
    """Two logs in some extents with indexes, of which memory has nothing."""
    held = Held()
    held.open()
    for _ in range(12):
        held.write(2)
        held.write(1, log=OTHER)
        held.write(1, log=metadata_log_of(LOG), body=b"small")
    held.store.close()
    held.disk.forgets = True
    for name in held.disk.names():
        held.disk.drop_cache(name)
    return held


@pytest.fixture
def contents(it: Held) -> Contents:
    return it.open()


@pytest.fixture(autouse=True)
def little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_reads, "_AHEAD_MIN", 4096)


def to_the_end(reads: ColdReads, asked: ReadShard | ReadLast) -> tuple[ReadResult, int]:
    """What a read answers, and how many fetches that took."""
    count = 0
    while (result := reads.execute(asked)) is None:
        read = reads.begin()
        assert read is not None
        assert read.request is asked
        read.fetch()
        count += 1
        assert reads.end(read) is asked
    assert reads.pending == 0
    return result, count


def test_what_is_cold_is_fetched_and_read_in_pieces(it: Held, contents: Contents) -> None:
    reads = ColdReads(it.store, 2, 0)
    whole = it.store.read(request())
    found, first, fetches = [], Lsn(0), 0
    while first <= LAST:
        result, count = to_the_end(reads, request(first=first))
        assert (result.status, result.corrupt) == (Status.OK, [])
        assert result.entries or result.through == LAST
        found += result.entries
        fetches += count
        first = Lsn(result.through + 1)
    assert found == whole.entries
    assert fetches > 3
    # nothing is cold any more
    assert to_the_end(reads, request()) == (whole, 0)


def test_the_last_entry_and_metadata_logs_are_fetched_too(it: Held, contents: Contents) -> None:
    reads = ColdReads(it.store, 2, 0)
    for log in (LOG, metadata_log_of(LOG)):
        asked = ReadLast(1, SHARD, log, Lsn(0), LAST)
        result, count = to_the_end(reads, asked)
        assert result.entries == it.store.read_last(asked).entries
        assert count or log != LOG


def test_so_many_fetches_are_under_way_and_the_first_comes_first(it: Held, contents: Contents) -> None:
    reads = ColdReads(it.store, 2, 0)
    asked = [request(LOG, token=1), request(OTHER, token=2), request(LOG, at(9), token=3)]
    assert [reads.execute(each) for each in asked] == [None] * 3
    first, second = reads.begin(), reads.begin()
    assert first is not None
    assert second is not None
    assert (first.request.token, second.request.token, reads.begin()) == (1, 2, None)
    second.fetch()
    assert reads.end(second) is asked[1]
    third = reads.begin()
    assert third is not None
    assert third.request.token == 3
    assert reads.pending == 2


def test_a_read_that_is_cold_again_and_again_waits_where_it_is(
    it: Held, contents: Contents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedFile, "fetch", lambda self, offset, length: None)
    result, count = to_the_end(ColdReads(it.store, 1, 0), request())
    assert (len(result.entries), count) == (24, ATTEMPTS_MAX)


def test_what_cannot_be_fetched_is_damage_of_that_copy(it: Held, contents: Contents) -> None:
    name, offset, _ = it.row(1)
    it.disk.spoil(name, offset // 512 + 1)
    for other in it.disk.names():
        it.disk.drop_cache(other)
    result, _ = to_the_end(ColdReads(it.store, 1, 0), request())
    assert result.corrupt == [(at(1), at(1))]


def test_without_threads_reads_wait_where_they_are(it: Held, contents: Contents) -> None:
    reads = ColdReads(it.store, 0, 0)
    result = reads.execute(request())
    assert result is not None
    assert len(result.entries) == 24


class TestService:
    """With threads."""

    @pytest.fixture
    def gate(self, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """Fetches wait for it."""
        gate, original = threading.Event(), SimulatedFile.fetch

        def fetch(file: SimulatedFile, offset: int, length: int) -> None:
            assert gate.wait(10)
            original(file, offset, length)

        monkeypatch.setattr(SimulatedFile, "fetch", fetch)
        return gate

    def test_others_go_on_while_a_fetch_is_under_way(self, it: Held, contents: Contents, gate: threading.Event) -> None:
        it.write(1, log=LogId(9))

        async def run() -> tuple[list[int], list[int]]:
            service = ShardService(it.store, contents, SETTINGS, lambda: Timestamp(it.now))
            told: asyncio.Queue[Completion] = asyncio.Queue()

            def deliver(done: list[Completion]) -> None:
                for each in done:
                    told.put_nowait(each)

            asked = [request(LOG, token=1), request(OTHER, token=2), request(LogId(9), token=3)]
            service.run(asked, deliver)
            first = await told.get()
            assert isinstance(first, ReadDone)
            closing = asyncio.get_running_loop().create_task(service.close())
            await asyncio.sleep(0)
            gate.set()
            await closing
            rest = [told.get_nowait() for _ in range(told.qsize())]
            assert all(isinstance(each, ReadDone) and each.result.entries for each in rest)
            return [first.token], sorted(each.token for each in rest if isinstance(each, ReadDone))

        assert asyncio.run(run()) == ([3], [1, 2])

    def test_a_fetch_that_fails_is_answered(
        self, it: Held, contents: Contents, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fetch(file: SimulatedFile, offset: int, length: int) -> None:
            raise DiskError("no")

        monkeypatch.setattr(SimulatedFile, "fetch", fetch)

        async def run() -> ReadResult:
            service = ShardService(it.store, contents, SETTINGS, lambda: Timestamp(it.now))
            told: asyncio.Queue[Completion] = asyncio.Queue()

            def tell(done: Iterable[Completion]) -> None:
                for each in done:
                    told.put_nowait(each)

            service.run([request()], tell)
            done = await told.get()
            assert isinstance(done, ReadDone)
            await service.close()
            return done.result

        assert asyncio.run(run()).entries


def test_a_file_that_is_used_again_is_read_as_if_nothing_had_been_fetched(it: Held, contents: Contents) -> None:
    reads = ColdReads(it.store, 1, 0)
    asked = request()
    assert reads.execute(asked) is None
    read = reads.begin()
    assert read is not None
    batch_end = it.esn
    it.now += 200 * SECOND
    it.store.maintain(Timestamp(it.now))
    it.write(2)
    it.trim(batch_end)
    for _ in range(3):
        it.store.sync()
        do_chores(it.store)
    read.fetch()
    result, _ = to_the_end(reads, reads.end(read))  # type: ignore[arg-type]
    assert (result.corrupt, [lsn for lsn, _ in result.entries]) == ([], [at(it.esn - 1), at(it.esn)])
