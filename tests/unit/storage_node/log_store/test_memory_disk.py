"""What crashes, failures and refusals do to the store in memory."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logdevice_py.core.ids import Generation, LogId
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.identity import PreviousEnd, ShardMarker
from storage_node.log_store.interface import Contents, LogMetadataKind, WriteBatch
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from tests.unit.storage_node.log_store.images import LOG, SHARD, at, put, read_all

MARKER = ShardMarker(b"c" * 16, SHARD, Generation(1))


def open_on(disk: MemoryDisk, now: int = 1) -> tuple[MemoryLogStore, Contents]:
    store = MemoryLogStore(disk)
    assert store.adopt(MARKER, boot=disk.boot, now=Timestamp(now)) is Status.OK
    return store, store.load()


def write(store: MemoryLogStore, esn: int) -> list[Status]:
    batch = WriteBatch()
    put(batch, at(esn))
    put(batch, at(esn), log=LogId(8))
    return store.write([batch])


class TestCrash:
    def test_writes_since_the_last_sync_are_lost(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        assert store.sync() is Status.OK
        write(store, 2)
        disk.crash()
        store, contents = open_on(disk, 50)
        assert [lsn for lsn, _ in read_all(store).entries] == [at(1)]
        assert (contents.last_stop, contents.losses) == (PreviousEnd.MACHINE_DIED, [(1, 50)])

    @pytest.mark.parametrize("surviving", [0, 1, 2, 3])
    def test_a_prefix_of_the_unsynced_batches_may_survive_and_each_is_whole(self, surviving: int) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        for esn in (1, 2, 3):
            write(store, esn)
        assert disk.unsynced == 3
        disk.crash(surviving)
        store, _ = open_on(disk)
        for log in (LOG, LogId(8)):
            assert [lsn for lsn, _ in read_all(store, log).entries] == [at(esn) for esn in range(1, surviving + 1)]

    def test_overwritten_and_deleted_values_come_back(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        first = WriteBatch()
        first.put_log_metadata(LOG, LogMetadataKind.SEAL, b"old")
        store.write([first])
        store.sync()
        second = WriteBatch()
        second.put_log_metadata(LOG, LogMetadataKind.SEAL, b"new")
        second.delete_entries(LOG, at(1), at(1))
        store.write([second])
        assert read_all(store).entries == []
        disk.crash()
        store, contents = open_on(disk)
        assert contents.log_metadata == [(LOG, LogMetadataKind.SEAL, b"old")]
        assert len(read_all(store).entries) == 1

    def test_a_sync_covers_only_what_was_written_before_it_began(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        token = store.begin_sync()
        write(store, 2)
        assert store.finish_sync(token) is Status.OK
        assert disk.unsynced == 1
        disk.crash()
        store, _ = open_on(disk)
        assert [lsn for lsn, _ in read_all(store).entries] == [at(1)]

    def test_it_knows_what_a_power_cut_would_take(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        assert not disk.may_forget(LOG, at(1)), "nothing is there"
        write(store, 1)
        assert disk.may_forget(LOG, at(1))
        store.sync()
        assert not disk.may_forget(LOG, at(1))
        write(store, 1)
        assert not disk.may_forget(LOG, at(1)), "what was there before stays"
        disk.lying = True
        write(store, 2)
        store.sync()
        assert not disk.may_forget(LOG, at(2)), "that it may is the disk's lie"


class TestFailure:
    def test_a_failed_sync_is_final_until_the_store_is_opened_again(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        disk.fail_sync = True
        assert store.sync() is Status.FAILED
        disk.fail_sync = False
        assert store.sync() is Status.FAILED
        assert write(store, 2) == [Status.FAILED]
        assert read_all(store).status is Status.FAILED
        store.close()
        disk.crash()
        store, contents = open_on(disk)
        assert contents.last_stop is PreviousEnd.MACHINE_DIED
        assert write(store, 2) == [Status.OK]

    def test_a_failure_counts_as_a_loss_even_when_the_machine_goes_on(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        disk.fail_write = True
        assert write(store, 1) == [Status.FAILED]
        disk.fail_write = False
        store.close()
        _, contents = open_on(disk, 9)
        assert contents.losses == [(1, 9)]

    def test_a_disk_that_does_not_keep_up_refuses_and_recovers(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        disk.overloaded = True
        assert write(store, 1) == [Status.OVERLOADED]
        disk.overloaded = False
        assert write(store, 2) == [Status.OK]
        assert [lsn for lsn, _ in read_all(store).entries] == [at(2)]

    def test_a_full_disk_refuses_entries_only(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        disk.free = 0
        seal = WriteBatch()
        seal.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal")
        assert [*write(store, 1), *store.write([seal])] == [Status.NOSPC, Status.OK]

    def test_it_runs_full_of_what_it_holds_and_trimming_makes_room(self) -> None:
        disk = MemoryDisk(total=100_000)
        store, _ = open_on(disk)
        written = 0
        while write(store, written + 1) == [Status.OK]:
            written += 1
        assert written > 100
        assert disk.free < disk.total * 15 // 100, "the rest is for trims and seals"
        trim = WriteBatch()
        trim.delete_entries(LOG, at(1), at(written))
        assert store.write([trim]) == [Status.OK]
        assert write(store, written + 1) == [Status.OK]

    @pytest.mark.parametrize("surviving", [0, 1, 2])
    def test_what_it_holds_is_counted_also_when_a_power_cut_takes_some_of_it_back(self, surviving: int) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        for esn in range(1, 5):
            write(store, esn)
        store.sync()
        trim = WriteBatch()
        trim.delete_entries(LOG, at(1), at(2))
        store.write([trim])
        write(store, 4)
        disk.crash(surviving)
        assert disk.used == sum(len(key) + len(value) for key, value in disk.rows.items())
        disk.replace(disk.snapshot())
        assert disk.used == sum(len(key) + len(value) for key, value in disk.rows.items())
        disk.wipe()
        assert disk.used == 0

    def test_rot_is_found(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        write(store, 2)
        disk.corrupt(LOG, at(1))
        result = read_all(store)
        assert (len(result.entries), result.corrupt) == (1, [(at(1), at(1))])

    def test_a_wiped_disk_has_no_marker(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        store.close()
        disk.wipe()
        store = MemoryLogStore(disk)
        assert store.found is None
        assert store.empty


def esns(store: MemoryLogStore) -> list[int]:
    return [lsn & 0xFFFFFFFF for lsn, _ in read_all(store).entries]


class TestPowerCut:
    def test_what_is_left_is_a_prefix_of_whole_batches_and_all_that_was_synced(self) -> None:
        fired: Counter[str] = Counter()
        left: set[int] = set()
        for seed in range(200):
            disk = MemoryDisk(fired)
            store, _ = open_on(disk)
            write(store, 1)
            store.sync()
            for esn in range(2, 7):
                write(store, esn)
            disk.power_cut(random.Random(seed))
            store, _ = open_on(disk)
            kept = esns(store)
            assert kept == list(range(1, len(kept) + 1))
            assert [lsn for lsn, _ in read_all(store, LogId(8)).entries] == [at(esn) for esn in kept]
            left.add(len(kept))
        assert left == {1, 2, 3, 4, 5, 6}
        assert 0 < fired["torn_write"] <= fired["unsynced_lost"] < 200

    def test_a_machine_that_had_nothing_unsynced_loses_nothing(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        store.sync()
        disk.power_cut(random.Random(1))
        assert esns(open_on(disk)[0]) == [1]
        assert not disk.fired


class TestLies:
    def test_a_lying_sync_answers_ok_and_a_power_cut_shows_what_it_was_worth(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        store.sync()
        disk.lying = True
        write(store, 2)
        assert store.sync() is Status.OK
        write(store, 3)
        disk.crash()
        assert esns(open_on(disk)[0]) == [1]
        assert disk.destroyed == {(LOG, at(2)), (8, at(2))}
        assert disk.fired["lying_sync"] == 1

    def test_an_honest_sync_persists_what_lies_left_open(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        disk.lying = True
        write(store, 1)
        store.sync()
        disk.lying = False
        write(store, 2)
        store.sync()
        disk.crash()
        assert esns(open_on(disk)[0]) == [1, 2]
        assert not disk.destroyed

    def test_what_a_failed_sync_left_behind_may_be_gone_when_the_store_is_opened_again(self) -> None:
        kept: set[int] = set()
        for seed in range(30):
            disk = MemoryDisk()
            store, _ = open_on(disk)
            write(store, 1)
            disk.fail_sync = True
            assert store.sync() is Status.FAILED
            disk.fail_sync = False
            disk.drop_failed(random.Random(seed))
            kept.add(len(esns(open_on(disk)[0])))
            assert not disk.destroyed
        assert kept == {0, 1}


class TestDamage:
    def test_any_flipped_bit_is_found_and_never_read(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        store.sync()
        (key, _) = disk.copies()
        image = disk.rows[key]
        for bit in range(8 * len(image)):
            disk.flip(key, bit)
            result = read_all(store)
            assert (result.entries, result.corrupt) == ([], [(at(1), at(1))])
            assert not disk.holds(LOG, at(1))
            disk.rows[key] = image
        assert disk.holds(LOG, at(1))
        assert disk.fired["bit_flip"] == 8 * len(image)

    def test_a_copy_that_cannot_be_read_is_reported_and_comes_back(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        for esn in (1, 2, 3):
            write(store, esn)
        key = disk.copies()[1]
        disk.unreadable.add(key)
        result = read_all(store)
        assert at(2) not in [lsn for lsn, _ in result.entries]
        assert any(first <= at(2) <= last for first, last in result.corrupt)
        disk.unreadable.clear()
        assert esns(store) == [1, 2, 3]
        assert disk.fired["read_error"] == 1

    def test_a_disk_set_back_to_a_backup_knows_what_it_lost(self) -> None:
        disk = MemoryDisk()
        store, _ = open_on(disk)
        write(store, 1)
        store.sync()
        backup = disk.snapshot()
        write(store, 2)
        store.sync()
        disk.replace(backup)
        assert esns(open_on(disk)[0]) == [1]
        assert disk.destroyed == {(LOG, at(2)), (8, at(2))}
