"""How every `LogStore` keeps entries in time partitions, run against each implementation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logdevice_py.core.ids import USER_LOG_ID_MAX, Generation, LogId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import NO_RECORD, ReadDirectory, WriteBatch
from storage_node.log_store.keys import PARTITION_FIRST
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.partitions import NEWEST_AHEAD
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from tests.conformance.searching import find_time
from tests.unit.storage_node.log_store.extent_stores import do_chores, open_extents
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at, put, read_all, read_last

MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
AGE = 100 * SECOND
SETTINGS = LogStoreSettings(
    free_space_min=0,
    memtable_bytes=1 << 20,
    partition_duration_us=AGE,
    partition_bytes=100_000,
    partitions_soft_max=4,
    partitions_max=6,
    partition_drop_share_percent=100,
    extent_bytes=64 << 10,
    checkpoint_bytes=64 << 10,
)
OTHER = LogId(8)
FIRST = PARTITION_FIRST


class Partitioned:
    """One implementation, with a clock."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._directory = directory
        self.disk = MemoryDisk()
        self.now = 1_000 * SECOND
        self.store: Any = None

    def open(self) -> None:
        if self._kind == "memory":
            self.store = MemoryLogStore(self.disk, SETTINGS)
        elif self._kind == "rocksdb":
            self.store = RocksLogStore(str(self._directory / "shard"), SETTINGS)
        else:
            self.store = open_extents(self._directory / "shard", SETTINGS)
        assert self.store.adopt(MARKER, boot="boot 1", now=Timestamp(self.now)) is Status.OK
        self.store.load()

    def restart(self) -> None:
        self.store.close()
        self.open()

    def kill(self) -> None:
        if self._kind != "memory":
            self.store.abandon()
        self.open()

    def write(self, *lsns: Lsn, log: LogId = LOG, size: int = 7, timestamp: int | None = None) -> None:
        """Entries in one batch, stamped with the present."""
        batch = WriteBatch()
        for lsn in lsns:
            put(batch, lsn, b"x" * size, log=log, timestamp=self.now if timestamp is None else timestamp)
        assert self.store.write([batch]) == [Status.OK]

    def delete(self, last: Lsn, first: Lsn = Lsn(0), log: LogId = LOG) -> None:
        batch = WriteBatch()
        batch.delete_entries(log, first, last)
        assert self.store.write([batch]) == [Status.OK]

    def roll(self, seconds: int = 100) -> None:
        """Let time pass until the next partition is due."""
        self.now += seconds * SECOND
        self.store.maintain(Timestamp(self.now))

    def settle(self) -> None:
        """Sync, and let what was dropped go."""
        assert self.store.sync() is Status.OK
        self.store.maintain(Timestamp(self.now))
        if self._kind == "extents":
            do_chores(self.store)

    def end_in(self, partition: int, log: LogId = LOG) -> Lsn:
        """The end of what a log has in the partitions up to one."""
        [(_, highest)] = self.store.read_directory(ReadDirectory(1, SHARD, [(log, partition)])).highest
        assert isinstance(highest, int)
        return highest

    def lsns(self, log: LogId = LOG, first: Lsn = Lsn(0), last: Lsn = LAST) -> list[Lsn]:
        return [lsn for lsn, _ in read_all(self.store, log, first, last).entries]


@pytest.fixture(params=["memory", "rocksdb", "extents"])
def it(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Partitioned]:
    it = Partitioned(request.param, tmp_path)
    it.open()
    yield it
    it.store.close()


class TestBeginning:
    def test_a_partition_lasts_until_it_is_old_enough(self, it: Partitioned) -> None:
        it.write(at(1))
        it.roll(99)
        assert it.store.partitions == [FIRST]
        it.roll(1)
        assert it.store.partitions == [FIRST, FIRST + 1]

    def test_a_partition_lasts_until_it_is_large_enough(self, it: Partitioned) -> None:
        for esn in range(1, 13):
            it.write(at(esn), size=10_000)
            it.roll(0)
        assert it.store.partitions == [FIRST, FIRST + 1]
        assert it.lsns() == [at(esn) for esn in range(1, 13)]

    def test_one_that_holds_nothing_goes_on(self, it: Partitioned) -> None:
        it.roll(1_000)
        it.write(at(1), log=metadata_log_of(LOG))
        it.roll(1_000)
        assert it.store.partitions == [FIRST]

    def test_where_there_are_many_each_lasts_longer(self, it: Partitioned) -> None:
        for esn in range(1, 4):
            it.write(at(esn))
            it.roll()
        assert len(it.store.partitions) == 4
        it.write(at(4))
        it.roll()
        assert len(it.store.partitions) == 4
        counts = []
        for esn in range(5, 20):
            it.roll(300)
            it.write(at(esn))
            counts.append(len(it.store.partitions))
        # beyond the greatest number each takes 300 seconds more than the one before
        assert [counts.index(count) for count in range(5, 10)] == [0, 1, 3, 6, 10]
        assert len(it.lsns()) == 19

    def test_it_is_there_after_a_restart_and_after_a_kill(self, it: Partitioned) -> None:
        it.write(at(1))
        it.roll()
        it.write(at(2))
        for again in (it.restart, it.kill):
            again()
            assert it.store.partitions == [FIRST, FIRST + 1]
            assert it.end_in(FIRST) == at(1)
            assert it.lsns() == [at(1), at(2)]


class TestOrder:
    def test_an_entry_that_comes_late_goes_where_its_lsn_belongs(self, it: Partitioned) -> None:
        it.write(at(10))
        it.roll()
        it.write(at(30))
        it.roll()
        it.write(at(50))
        it.write(at(20), at(11), at(35), at(5))
        assert [it.end_in(FIRST + each) for each in range(3)] == [at(20), at(35), at(50)]
        for again in (lambda: None, it.restart, it.kill):
            again()
            assert it.lsns() == [at(esn) for esn in (5, 10, 11, 20, 30, 35, 50)]
            assert [it.end_in(FIRST + each) for each in range(3)] == [at(20), at(35), at(50)]

    def test_copies_of_an_lsn_lie_together_whenever_they_come(self, it: Partitioned) -> None:
        batch, later = WriteBatch(), WriteBatch()
        put(batch, at(1), wave=2)
        assert it.store.write([batch]) == [Status.OK]
        it.roll()
        it.write(at(2))
        image = put(later, at(1), wave=3)
        later.consolidate(LOG, at(1))
        assert it.store.write([later]) == [Status.OK]
        assert read_all(it.store, last=at(1)).entries == [(at(1), image)]

    def test_each_log_has_its_own_order(self, it: Partitioned) -> None:
        it.write(at(10))
        it.write(at(100), log=OTHER)
        it.roll()
        it.write(at(11))
        it.write(at(99), log=OTHER)
        assert (it.end_in(FIRST), it.end_in(FIRST, OTHER)) == (at(10), at(100))
        assert (it.lsns(), it.lsns(OTHER)) == ([at(10), at(11)], [at(99), at(100)])

    def test_metadata_and_internal_logs_have_no_partitions(self, it: Partitioned) -> None:
        for log in (metadata_log_of(LOG), LogId(USER_LOG_ID_MAX + 1)):
            it.write(at(1), log=log)
        it.write(at(1))
        it.roll()
        for log in (metadata_log_of(LOG), LogId(USER_LOG_ID_MAX + 1)):
            it.write(at(2), log=log)
            assert it.end_in(0, log) == at(2)
        it.delete(at(9))
        it.settle()
        assert it.store.partitions == [FIRST + 1]
        assert it.lsns(metadata_log_of(LOG)) == [at(1), at(2)]


class TestReading:
    def write_three(self, it: Partitioned) -> None:
        for base in (10, 20, 30):
            it.write(at(base), at(base + 1), at(base + 2))
            it.roll()

    def test_a_range_goes_over_partitions(self, it: Partitioned) -> None:
        self.write_three(it)
        assert it.lsns(first=at(11), last=at(30)) == [at(esn) for esn in (11, 12, 20, 21, 22, 30)]
        result = read_all(it.store, first=at(12), last=at(32), entries_max=2)
        assert ([lsn for lsn, _ in result.entries], result.through) == ([at(12), at(20)], at(21) - 1)

    def test_the_last_entry_is_found_in_whatever_partition(self, it: Partitioned) -> None:
        self.write_three(it)
        it.write(at(1), log=OTHER)
        for first, last, wanted in ((1, 99, 32), (1, 29, 22), (1, 20, 20), (13, 19, None), (1, 12, 12)):
            entries = read_last(it.store, LOG, at(first), at(last)).entries
            assert [lsn for lsn, _ in entries] == ([] if wanted is None else [at(wanted)])

    def test_damage_in_one_partition_leaves_the_others_readable(self, it: Partitioned) -> None:
        it.write(at(1))
        batch = WriteBatch()
        batch.put_entry(LOG, at(2), by_recovery=False, wave=1, image=b"rubbish")
        assert it.store.write([batch]) == [Status.OK]
        it.roll()
        it.write(at(3))
        result = read_all(it.store)
        assert ([lsn for lsn, _ in result.entries], result.corrupt) == ([at(1), at(3)], [(at(2), at(2))])


class TestFindTime:
    def test_it_is_found_by_partition_and_then_by_entry(self, it: Partitioned) -> None:
        stamps = {}
        for base in (10, 20, 30):
            for esn in range(base, base + 5):
                it.now += SECOND
                it.write(at(esn))
                stamps[esn] = it.now
            it.roll()
        assert len(stamps) == 15
        for esn, stamp in stamps.items():
            found = find_time(it.store, LOG, stamp, at(1), at(99))
            assert (found.status, found.reached) == (Status.OK, at(esn))
            assert found.before < at(esn)
        beyond = find_time(it.store, LOG, stamps[34] + 1, at(1), at(99))
        assert (beyond.before, beyond.reached) == (at(34), at(99) + 1)
        before = find_time(it.store, LOG, 0, at(1), at(99))
        assert (before.before, before.reached) == (at(1) - 1, at(10))

    def test_partitions_that_are_too_old_are_not_read(self, it: Partitioned, monkeypatch: pytest.MonkeyPatch) -> None:
        for esn in range(1, 5):
            it.write(at(esn))
            it.roll(300)
        seen = []
        read = type(it.store).read
        monkeypatch.setattr(type(it.store), "read", lambda store, asked: seen.append(asked) or read(store, asked))
        assert find_time(it.store, LOG, it.now - 300 * SECOND, at(1), at(99)).reached == at(4)
        assert min(asked.first for asked in seen) >= at(4)


class TestDropping:
    def test_a_partition_goes_when_the_last_log_is_trimmed_beyond_it(self, it: Partitioned) -> None:
        it.write(at(1), at(2))
        it.write(at(7), log=OTHER)
        it.roll()
        it.write(at(3))
        it.write(at(8), log=OTHER)
        it.delete(at(2))
        it.settle()
        assert it.store.partitions == [FIRST, FIRST + 1]
        assert (it.lsns(), it.lsns(OTHER)) == ([at(3)], [at(7), at(8)])
        it.delete(at(7), log=OTHER)
        it.settle()
        assert it.store.partitions == [FIRST + 1]
        for again in (lambda: None, it.kill, it.restart):
            again()
            assert (it.lsns(), it.lsns(OTHER)) == ([at(3)], [at(8)])
            assert it.store.partitions == [FIRST + 1]

    def test_one_in_the_middle_goes_before_older_ones(self, it: Partitioned) -> None:
        it.write(at(1), log=OTHER)
        it.roll()
        it.write(at(1))
        it.roll()
        it.write(at(2))
        it.delete(at(1))
        it.settle()
        assert it.store.partitions == [FIRST, FIRST + 2]
        assert it.lsns(OTHER) == [at(1)]

    def test_a_partition_that_is_trimmed_in_part_stays(self, it: Partitioned) -> None:
        it.write(at(1), at(2), at(3))
        it.roll()
        it.delete(at(2))
        it.settle()
        assert it.store.partitions == [FIRST, FIRST + 1]
        assert it.lsns() == [at(3)]

    def test_the_latest_stays_and_is_used_again(self, it: Partitioned) -> None:
        it.write(at(1))
        it.delete(at(1))
        it.settle()
        assert it.store.partitions == [FIRST]
        it.write(at(2))
        it.roll()
        it.delete(at(2))
        it.settle()
        assert it.store.partitions == [FIRST + 1]

    def test_an_entry_below_the_trimmed_ones_does_not_bring_them_back(self, it: Partitioned) -> None:
        it.write(*(at(esn) for esn in range(1, 9)))
        it.write(at(1), log=OTHER)
        it.roll()
        it.write(at(9))
        it.delete(at(8))
        it.write(at(3))
        assert it.lsns() == [at(3), at(9)]
        it.delete(at(9))
        it.write(at(2))
        it.restart()
        assert it.lsns() == [at(2)]

    def test_a_log_that_lost_its_end_goes_on_in_the_latest(self, it: Partitioned) -> None:
        it.write(at(1), at(2), at(3))
        it.roll()
        it.write(at(4))
        it.delete(LAST, first=at(3))
        assert it.lsns() == [at(1), at(2)]
        it.write(at(1, epoch=2))
        assert it.end_in(FIRST) == at(2)
        it.kill()
        assert it.lsns() == [at(1), at(2), at(1, epoch=2)]

    def test_numbers_are_not_used_twice(self, it: Partitioned) -> None:
        for esn in range(1, 4):
            it.write(at(esn))
            it.roll()
            it.delete(at(esn))
            it.settle()
        assert it.store.partitions == [FIRST + 3]
        it.restart()
        it.write(at(9))
        it.roll()
        assert it.store.partitions == [FIRST + 3, FIRST + 4]


class TestSizes:
    ENTRY = 7

    def bytes_of(self, it: Partitioned, log: LogId = LOG) -> list[int]:
        """What the directory says of each partition."""
        spans = it.store.read_directory(ReadDirectory(1, SHARD, [], spans_of=(log, at(1), LAST))).spans
        return [span.size for span in spans]

    def again(self, it: Partitioned, *copies: tuple[Lsn, int], size: int = 1_000) -> None:
        """Copies (LSN, wave) in one batch."""
        batch = WriteBatch()
        for lsn, wave in copies:
            put(batch, lsn, b"x" * size, wave=wave, timestamp=it.now)
        assert it.store.write([batch]) == [Status.OK]

    def test_a_restart_forgets_nothing_also_after_a_kill(self, it: Partitioned) -> None:
        for esn in range(1, 4):
            it.write(at(esn), size=1_000)
        it.roll()
        for esn in range(4, 40):
            it.write(at(esn), size=1_000)
            it.write(at(esn), size=9_000, log=metadata_log_of(LOG))
        before = self.bytes_of(it), self.bytes_of(it, metadata_log_of(LOG))
        assert before[0][0] > 3_000
        assert before[0][1] > 36_000
        for restart in (it.kill, it.restart, it.kill):
            restart()
            assert (self.bytes_of(it), self.bytes_of(it, metadata_log_of(LOG))) == before
        it.write(at(40), size=1_000)
        it.kill()
        assert self.bytes_of(it)[1] == before[0][1] // 36 * 37

    def test_copies_of_an_lsn_count_once(self, it: Partitioned) -> None:
        self.again(it, (at(1), 1), (at(2), 1), (at(3), 1))
        before = self.bytes_of(it)
        self.again(it, (at(2), 2))
        self.again(it, (at(2), 2), (at(1), 1))
        self.again(it, (at(3), 2), (at(3), 3))
        assert self.bytes_of(it) == before
        self.again(it, (at(4), 1), (at(4), 2), (at(4), 2))
        assert self.bytes_of(it) == [before[0] // 3 * 4]
        it.roll()
        self.again(it, (at(5), 1))
        self.again(it, (at(2), 3))
        assert self.bytes_of(it) == [before[0] // 3 * 4, before[0] // 3]
        for restart in (it.kill, it.restart):
            restart()
            assert self.bytes_of(it) == [before[0] // 3 * 4, before[0] // 3]

    def test_one_that_comes_late_counts_and_of_several_copies_the_largest(self, it: Partitioned) -> None:
        self.again(it, (at(1), 1), (at(3), 1))
        before = self.bytes_of(it)
        self.again(it, (at(2), 1))
        assert self.bytes_of(it) == [before[0] // 2 * 3]
        self.again(it, (at(2), 2), size=3_000)
        assert self.bytes_of(it) == [before[0] // 2 * 3 + 2_000]
        self.again(it, (at(2), 3), size=10)
        assert self.bytes_of(it) == [before[0] // 2 * 3 + 2_000]


class TestAge:
    def ages(self, it: Partitioned) -> dict[int, int]:
        return dict(it.store.read_directory(ReadDirectory(1, SHARD, [])).partitions)

    def test_a_partition_is_as_old_as_its_end(self, it: Partitioned) -> None:
        it.write(at(1))
        it.roll()
        assert self.ages(it) == {FIRST: it.now}
        it.write(at(2))
        assert self.ages(it) == {FIRST: it.now}

    def test_records_from_a_clock_ahead_keep_it_young(self, it: Partitioned) -> None:
        ahead = it.now + 5_000 * SECOND
        it.write(at(1), timestamp=ahead)
        it.roll()
        for again in (lambda: None, it.restart, it.kill):
            again()
            assert ahead <= self.ages(it)[FIRST] <= ahead + NEWEST_AHEAD

    def test_records_from_a_clock_behind_do_not_make_it_old(self, it: Partitioned) -> None:
        it.write(at(1), timestamp=5)
        it.roll()
        assert self.ages(it) == {FIRST: it.now}

    def test_an_entry_that_comes_late_counts(self, it: Partitioned) -> None:
        it.write(at(1))
        it.roll()
        it.write(at(3))
        it.roll()
        late = it.now + 700 * SECOND
        it.write(at(2), timestamp=late)
        it.kill()
        assert self.ages(it)[FIRST] == late

    def test_the_newest_record_is_never_put_later_than_it_is(self, it: Partitioned) -> None:
        result = it.store.read_directory(ReadDirectory(1, SHARD, []))
        assert result.newest_record == NO_RECORD
        for passed in (0, 1, 10, 100):
            it.now += passed * SECOND
            it.write(at(1))
            newest = it.store.read_directory(ReadDirectory(1, SHARD, [])).newest_record
            assert it.now - 2 * NEWEST_AHEAD < newest <= it.now
