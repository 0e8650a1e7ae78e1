"""What crashes, failures and refusals do to the store in memory."""

from __future__ import annotations

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
