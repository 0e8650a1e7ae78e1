"""The store in extents where its disk does not do what it is asked: what fails, what rots, what is full, and what becomes free again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from logdevice_py.core.ids import Generation, LogId, ShardId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store.extents import store as store_module
from storage_node.log_store.extents.block_format import DATA_START, HEAD_SIZE
from storage_node.log_store.extents.chain import PAGE
from storage_node.log_store.extents.control_check import ControlCheck
from storage_node.log_store.extents.disk import SECTOR, DiskError
from storage_node.log_store.extents.held_extents import FAILED, HeldExtents
from storage_node.log_store.extents.reading import ExtentReader
from storage_node.log_store.extents.real_disk import RealDisk, RealFile
from storage_node.log_store.extents.simulated_disk import PowerCutError, SimulatedDisk, SimulatedFile
from storage_node.log_store.extents.sorted_table import ReadCache
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.identity import PreviousEnd, ShardMarker
from storage_node.log_store.interface import Contents, LogMetadataKind, Purpose, WriteBatch
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.precedence import header_apart
from storage_node.log_store.settings import LogStoreSettings
from tests.unit.storage_node.log_store.extent_stores import do_chores, open_extents
from tests.unit.storage_node.log_store.images import LOG, SHARD, at, image_of, put, read_all, read_last

MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
SETTINGS = LogStoreSettings(
    free_space_min=0,
    extent_bytes=64 << 10,
    checkpoint_bytes=30_000,
    partition_duration_us=100 * SECOND,
    partition_bytes=50_000,
)
BODY = b"a body of some length " * 300


class Held:
    """A store on a simulated disk."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store: ExtentLogStore
        self.esn = 0
        self.now = 1_000 * SECOND

    def open(self, boot: str = "boot 1", settings: LogStoreSettings = SETTINGS) -> Contents:
        self.store = open_extents(self.disk, settings, boot=boot)
        assert self.store.adopt(MARKER, boot=boot, now=Timestamp(self.now)) is Status.OK
        return self.store.load()

    def write(
        self, count: int = 1, *, log: LogId = LOG, body: bytes = BODY, purpose: Purpose = Purpose.USUAL
    ) -> Status:
        for _ in range(count):
            batch = WriteBatch()
            batch.purpose = purpose
            self.esn += 1
            put(batch, at(self.esn), body, log=log)
            [status] = self.store.write([batch])
            if status is not Status.OK:
                return status
        return Status.OK

    def trim(self, upto: int) -> None:
        batch = WriteBatch()
        batch.delete_entries(LOG, Lsn(0), at(upto))
        assert self.store.write([batch]) == [Status.OK]

    def lsns(self) -> list[Lsn]:
        return [lsn for lsn, _ in read_all(self.store).entries]

    def row(self, esn: int) -> tuple[str, int, int]:
        """The file, offset and length of an image."""
        row = self.store._reader.row_at(LOG, at(esn), 1)
        assert row is not None
        return f"extent-{row.extent:016x}", row.offset, row.length

    def forget_recent(self) -> None:
        """Have reads go to the disk."""
        self.store._extents.images._recent.clear()
        self.store._extents.images._bytes = 0


@pytest.fixture
def it() -> Held:
    held = Held()
    held.open()
    return held


class TestFailing:
    @pytest.mark.parametrize("what", ["fail_sync", "fail_write"])
    def test_what_fails_once_fails_for_good_and_counts_as_a_machine_that_died(self, it: Held, what: str) -> None:
        assert it.write() is Status.OK
        assert it.store.sync() is Status.OK
        setattr(it.disk, what, True)
        if what == "fail_sync":
            assert it.write() is Status.OK
            assert it.store.sync() is Status.FAILED
        else:
            assert it.write() is Status.FAILED
        setattr(it.disk, what, False)
        assert it.store.failed
        assert it.write() is Status.FAILED
        assert it.store.sync() is Status.FAILED
        assert read_all(it.store).status is Status.FAILED
        # the disk took the note when it worked again
        note = it.disk.create(FAILED, 0)
        note.write([b"the disk failed\n"], 0)
        note.sync(note.mark())
        it.disk.sync_names()
        it.store.abandon()
        assert it.open().last_stop is PreviousEnd.MACHINE_DIED
        assert FAILED not in it.disk.names()
        assert it.lsns()[0] == at(1)

    def test_no_sync_begins_beside_another_one(self, it: Held) -> None:
        """It would find nothing to sync, and what the other one is to make durable would be acknowledged."""
        it.write()
        ticket = it.store.begin_sync()
        with pytest.raises(AssertionError, match="one sync at a time"):
            it.store.sync()
        assert it.store._chain.synced < it.store._chain.last
        assert it.store.finish_sync(ticket) is Status.OK
        assert it.store._chain.synced == it.store._chain.last
        assert it.store.sync() is Status.OK

    def test_a_sync_that_is_under_way_when_a_write_fails_covers_nothing(self, it: Held) -> None:
        it.write()
        ticket, synced = it.store.begin_sync(), it.store._chain.synced
        it.disk.fail_write = True
        assert it.write() is Status.FAILED
        assert it.store.finish_sync(ticket) is Status.FAILED
        assert it.store.sync() is Status.FAILED
        assert it.store._chain.synced == synced

    def test_writes_are_refused_while_too_much_waits_for_a_sync(
        self, it: Held, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(store_module, "_UNSYNCED_MAX", 20_000)
        assert it.write(8) is Status.OVERLOADED
        batch = WriteBatch()
        batch.mark_loss()
        assert it.store.write([batch]) == [Status.OK]
        assert it.store.sync() is Status.OK
        assert it.write() is Status.OK

    def test_much_that_waits_for_a_sync_is_told(self, it: Held, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "_UNSYNCED_SOFT", 20_000)
        it.write(2)
        assert not it.store.wants_sync
        it.write(2)
        assert it.store.wants_sync
        assert it.store.sync() is Status.OK
        assert not it.store.wants_sync


class TestSpace:
    def test_the_last_extent_is_kept_for_what_must_be_written(self, it: Held) -> None:
        do_chores(it.store)
        it.disk.taken = it.disk.total - it.disk.used
        assert it.write(100) is Status.NOSPC
        taken = it.lsns()
        assert len(taken) > 8
        seal = WriteBatch()
        seal.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal")
        assert it.store.write([seal]) == [Status.OK]
        it.trim(2)
        assert it.store.sync() is Status.OK
        it.disk.taken = 0
        assert it.write() is Status.OK
        assert it.lsns() == [*taken[2:], at(it.esn)]

    def test_entries_alone_are_refused_of_what_is_written_together(self, it: Held) -> None:
        do_chores(it.store)
        it.disk.taken = it.disk.total - it.disk.used
        assert it.write(100) is Status.NOSPC
        taken = it.lsns()
        batches = [WriteBatch() for _ in range(4)]
        for number, batch in enumerate(batches):
            if number % 2:
                batch.put_log_metadata(LogId(number), LogMetadataKind.SEAL, b"seal")
            else:
                put(batch, at(it.esn + 1 + number), BODY)
        assert it.store.write(batches) == [Status.NOSPC, Status.OK, Status.NOSPC, Status.OK]
        assert it.lsns() == taken
        assert it.store.sync() is Status.OK
        it.store.abandon()
        it.disk.taken = 0
        kept = it.open().log_metadata
        assert kept == [(LogId(number), LogMetadataKind.SEAL, b"seal") for number in (1, 3)]

    def test_no_chore_fails_the_store_for_lack_of_space(self, it: Held) -> None:
        it.write(30)
        assert it.store.sync() is Status.OK
        it.disk.taken = it.disk.total - it.disk.used
        for _ in range(5):
            chore = it.store.next_chore()
            if chore is not None:
                chore()
        assert not it.store.failed
        it.disk.taken = 0
        it.store.maintain(Timestamp(it.now))
        for _ in range(2):
            do_chores(it.store)
            assert it.store.sync() is Status.OK
        assert it.store._long_lived.applied
        assert any(name.startswith("index-") for name in it.disk.names())

    def test_extents_that_nothing_refers_to_are_used_again_or_go(self, it: Held) -> None:
        for _ in range(12):
            it.write(10)
            assert it.store.sync() is Status.OK
            it.now += 200 * SECOND
            it.store.maintain(Timestamp(it.now))
            it.trim(it.esn - 2)
            assert it.store.sync() is Status.OK
            do_chores(it.store)
        names = it.disk.names()
        assert sum(name.startswith("extent-") for name in names) <= 7
        assert sum(name.startswith("spare-") for name in names) <= 2
        assert sum(name.startswith("index-") for name in names) <= 5
        assert it.lsns() == [at(it.esn - 1), at(it.esn)]
        it.store.close()
        it.open()
        assert it.lsns() == [at(it.esn - 1), at(it.esn)]


class TestDamage:
    def test_a_flipped_bit_is_found_and_replaced(self, it: Held) -> None:
        it.write(3)
        name, offset, _ = it.row(2)
        it.disk.flip(name, offset + 100)
        it.forget_recent()
        assert read_all(it.store).corrupt == [(at(2), at(2))]
        assert it.lsns() == [at(1), at(3)]
        batch = WriteBatch()
        batch.restore(LOG, at(2), at(2))
        batch.put_again(LOG, at(2), by_recovery=False, wave=1, image=image_of(at(2), BODY))
        assert it.store.write([batch]) == [Status.OK]
        assert it.lsns() == [at(1), at(2), at(3)]

    def test_a_copy_that_cannot_be_read_is_damaged_and_no_other(self, it: Held) -> None:
        it.write(3)
        name, offset, length = it.row(2)
        sector = (offset + length // 2) // 512
        it.disk.spoil(name, sector)
        it.forget_recent()
        result = read_all(it.store)
        assert (result.corrupt, [lsn for lsn, _ in result.entries]) == ([(at(2), at(2))], [at(1), at(3)])
        assert read_last(it.store, LOG, at(1), at(2)).corrupt == [(at(2), at(2))]
        it.disk.spoil(name, sector, readable=True)
        assert it.lsns() == [at(1), at(2), at(3)]

    def close_some(self, it: Held) -> str:
        """Name of the index of an extent that is closed."""
        it.write(30)
        assert it.store.sync() is Status.OK
        do_chores(it.store)
        return next(name for name in it.disk.names() if name.startswith("index-") and it.disk.open(name).size() > 700)

    def test_an_index_that_rots_is_made_anew_from_the_blocks(self, it: Held) -> None:
        name = self.close_some(it)
        before = read_all(it.store).entries
        it.store._extents._cache.clear()
        it.disk.flip(name, 20)
        assert read_all(it.store).entries == before
        do_chores(it.store)
        it.store._extents._cache.clear()
        assert read_all(it.store).entries == before

    @pytest.mark.parametrize("how", ["gone", "rotten"])
    def test_one_that_is_lost_while_the_store_is_closed_is_made_anew(self, it: Held, how: str) -> None:
        name = self.close_some(it)
        before = read_all(it.store).entries
        it.store.close()
        if how == "gone":
            it.disk.unlink(name)
        else:
            it.disk.flip(name, it.disk.open(name).size() - 4)
        it.open()
        assert read_all(it.store).entries == before
        do_chores(it.store)
        assert name in it.disk.names()

    def test_a_table_of_what_lives_long_that_rots_is_not_used(self, it: Held) -> None:
        self.close_some(it)
        it.store.close()
        it.disk.flip("table", it.disk.open("table").size() - 4)
        with pytest.raises(LogDeviceError, match="table"):
            it.open()

    def test_an_extent_that_is_missing_is_noticed(self, it: Held) -> None:
        name = self.close_some(it).replace("index", "extent")
        it.store.close()
        files = it.disk.snapshot()
        it.disk.unlink(name)
        with pytest.raises(LogDeviceError, match="missing"):
            it.open()
        it.disk.replace(files)
        it.open()

    def test_extents_of_two_shards_are_no_store(self, it: Held) -> None:
        it.write(30)
        it.store.close()
        other = Held()
        other.store = open_extents(other.disk, SETTINGS)
        marker = replace(MARKER, shard=ShardId(SHARD + 1))
        assert other.store.adopt(marker, boot="boot 1", now=Timestamp(1)) is Status.OK
        other.store.close()
        files = it.disk.snapshot()
        strange = other.disk.snapshot()
        it.disk.replace({**files, "extent-0000000000000001": strange["extent-0000000000000001"]})
        with pytest.raises(LogDeviceError, match="several shards"):
            it.open()

    def test_what_was_synced_is_there_though_a_body_of_it_rots_and_what_follows_is_torn(self, it: Held) -> None:
        it.write(3)
        batch = WriteBatch()
        it.esn = 4
        put(batch, at(4), BODY)
        batch.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal")
        assert it.store.write([batch]) == [Status.OK]
        assert it.store.sync() is Status.OK
        # of what was written since, the last block alone reaches the disk, and calls the fourth record synced
        it.write(2)
        name, offset, _ = it.row(6)
        inode = it.disk._files[name]
        for sector in [each for each in inode.pending if each >= (offset - SECTOR) // SECTOR]:
            del inode.pending[sector]
        rotten, place, _ = it.row(4)
        it.disk.flip(rotten, place + 100)
        it.store.abandon()
        it.disk.power_cut(lambda: False)
        contents = it.open("boot 2")
        assert it.store.torn
        assert contents.log_metadata == [(LOG, LogMetadataKind.SEAL, b"seal")]
        result = read_all(it.store)
        assert (result.corrupt, [lsn for lsn, _ in result.entries]) == ([(at(4), at(4))], [at(1), at(2), at(3)])

    def test_a_sync_that_lied_is_found_out_where_something_later_is_there(self, it: Held) -> None:
        it.write()
        it.disk.lying = True
        assert it.store.sync() is Status.OK
        lost = it.row(1)
        it.write()
        it.disk.lying = False
        name, offset, _ = it.row(2)
        assert name == lost[0]
        # of all that was written since, the last block alone reaches the disk
        inode = it.disk._files[name]
        for sector in list(inode.pending):
            if sector < lost[1] // 512 or sector * 512 >= offset - 512:
                del inode.pending[sector]
        it.store.abandon()
        it.disk.power_cut(lambda: False)
        with pytest.raises(LogDeviceError, match="was durable"):
            it.open("boot 2")


class TestControlParts:
    """Of blocks that the next opening reads."""

    SETTINGS = replace(SETTINGS, checkpoint_bytes=1 << 30, file_check_interval_us=1_000_000)

    def damage(self, it: Held, where: str) -> None:
        it.open(settings=self.SETTINGS)
        it.write(3, log=metadata_log_of(LOG))
        it.write(30)
        assert it.store.sync() is Status.OK
        head = it.store._chain.head
        assert head is not None
        closed = next(held.extent for held in it.store._extents.held.values() if held.extent is not head)
        extent = head if where == "head" else closed
        it.disk.flip(extent.file.name, DATA_START + HEAD_SIZE + 3)

    def upkeep(self, it: Held) -> None:
        for _ in range(3):
            it.store.maintain(Timestamp(it.now))
            do_chores(it.store)
            assert it.store.sync() is Status.OK
            do_chores(it.store)

    def power_cut(self, it: Held) -> None:
        it.store.abandon()
        it.disk.power_cut(lambda: False)

    @pytest.mark.parametrize("where", ["head", "closed"])
    def test_one_that_is_damaged_while_the_store_is_open_is_not_needed_any_more(self, where: str) -> None:
        it = Held()
        self.damage(it, where)
        before = it.lsns()
        self.upkeep(it)
        metrics = LogStoreMetrics()
        it.store.report(metrics)
        assert metrics.files_rewritten == 1
        it.write()
        assert it.store.sync() is Status.OK
        self.power_cut(it)
        it.open("boot 2", settings=self.SETTINGS)
        assert it.lsns() == [*before, at(it.esn)]
        assert len(read_all(it.store, metadata_log_of(LOG)).entries) == 3

    def test_without_a_look_the_store_does_not_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ControlCheck, "begin_round", lambda self: None)
        it = Held()
        self.damage(it, "head")
        self.upkeep(it)
        self.power_cut(it)
        with pytest.raises(LogDeviceError, match="cannot be read"):
            it.open("boot 2")


class TestOpening:
    def test_to_look_at_a_store_changes_nothing(self, it: Held) -> None:
        it.write(20)
        it.store.abandon()
        it.disk.power_cut(lambda: True)
        before, steps = it.disk.snapshot(), it.disk.steps
        looked = open_extents(it.disk, SETTINGS, boot="boot 9")
        found = looked.found
        assert found is not None
        assert (found.generation, looked.empty) == (2, False)
        assert (it.disk.snapshot(), it.disk.steps) == (before, steps)

    def test_after_an_orderly_close_nothing_is_replayed_but_the_last_block(self, it: Held) -> None:
        it.write(30)
        it.write(3, log=metadata_log_of(LOG))
        it.store.close()
        assert it.disk.names().count("table") == 1
        it.store = open_extents(it.disk, SETTINGS)
        assert not it.store._extents.memory.logs()
        assert it.store._chain.last == it.store._long_lived.applied + 1
        assert it.open().last_stop is PreviousEnd.CLEAN
        assert len(it.lsns()) == 30
        assert len(read_all(it.store, metadata_log_of(LOG)).entries) == 3

    def test_a_generation_that_begins_while_it_is_opened_is_a_run_of_its_own(self) -> None:
        held = Held()
        held.store = open_extents(held.disk, SETTINGS)
        for generation in (0, 1):
            marker = replace(MARKER, generation=Generation(generation))
            assert held.store.adopt(marker, boot="boot 1", now=Timestamp(1)) is Status.OK
        held.store.load()
        assert held.write(3) is Status.OK
        held.store.close()
        held.store = open_extents(held.disk, SETTINGS)
        assert held.store.found is not None
        assert held.store.found.generation == 1


class TestTornBlocks:
    """Of an earlier run: a repair that was under way when the power went, of which the bodies did not reach the disk."""

    SETTINGS = replace(SETTINGS, partition_bytes=1 << 30)

    def torn(self) -> Held:
        it = Held()
        it.open(settings=self.SETTINGS)
        it.write(5)
        assert it.store.sync() is Status.OK
        head = it.store._chain.head
        assert head is not None
        begins = head.end
        batch = WriteBatch()
        batch.restore(LOG, at(2), at(4))
        for esn in (2, 3, 4):
            batch.put_again(LOG, at(esn), by_recovery=False, wave=1, image=image_of(at(esn), BODY))
        assert it.store.write([batch]) == [Status.OK]
        _, offset, _ = it.row(2)
        assert begins < offset < head.end
        inode = it.disk._files[head.file.name]
        for sector in [each for each in inode.pending if each <= offset // SECTOR]:
            del inode.pending[sector]
        it.store.abandon()
        it.disk.power_cut(lambda: False)
        return it

    def free_what_can_be(self, it: Held) -> None:
        it.store._extents.since_checkpoint = 1 << 60  # the table of what lives long is due
        for _ in range(4):
            it.store.maintain(Timestamp(it.now))
            do_chores(it.store)
            assert it.store.sync() is Status.OK

    def check(self, it: Held) -> None:
        it.forget_recent()
        result = read_all(it.store)
        assert (result.corrupt, [lsn for lsn, _ in result.entries]) == ([], [at(esn) for esn in range(1, 6)])

    @pytest.mark.parametrize("wiped_by", [2, 3])
    def test_one_does_not_count_again_when_the_extents_of_the_run_that_rejected_it_are_gone(
        self, monkeypatch: pytest.MonkeyPatch, wiped_by: int
    ) -> None:
        it = self.torn()
        if wiped_by == 3:
            # as a version did that left it where it was
            monkeypatch.setattr(HeldExtents, "wipe_torn", lambda _: None)
        it.open("boot 2", settings=self.SETTINGS)
        monkeypatch.undo()
        assert it.store.torn
        self.check(it)
        head = it.store._chain.head
        assert head is not None
        it.store.close()
        it.open("boot 2", settings=self.SETTINGS)
        self.check(it)
        self.free_what_can_be(it)
        assert head.file.name not in it.disk.names(), "it has nothing but metadata"
        it.store.close()
        it.open("boot 2", settings=self.SETTINGS)
        assert not it.store.torn
        self.check(it)

    def test_opening_alone_leaves_it_where_it_is(self) -> None:
        it = self.torn()
        before = it.disk.snapshot()
        assert open_extents(it.disk, self.SETTINGS, boot="boot 2").torn
        assert it.disk.snapshot() == before

    @pytest.mark.parametrize("survive", [False, True])
    def test_it_may_be_all_that_calls_the_block_before_it_synced(self, survive: bool) -> None:
        """Wherever the next opening is cut off, that block stays, though its body rots."""
        cut = True
        step = 0
        while cut:
            it = self.torn()
            name, offset, _ = it.row(5)
            it.disk.flip(name, offset + 100)
            it.disk.dies_at, cut = it.disk.steps + step, False
            try:
                it.open("boot 2", settings=self.SETTINGS)
            except PowerCutError:
                cut = True
            it.disk.dies_at = None
            it.disk.power_cut(lambda: survive)
            it.open("boot 3", settings=self.SETTINGS)
            it.forget_recent()
            result = read_all(it.store)
            assert (result.corrupt, [lsn for lsn, _ in result.entries]) == (
                [(at(5), at(5))],
                [at(esn) for esn in range(1, 5)],
            )
            step += 1
        assert step > 8


class TestWhatLivesLong:
    """Copies of an internal log that change while their table is being made."""

    LONG = metadata_log_of(LOG)
    SETTINGS = replace(SETTINGS, checkpoint_bytes=1 << 30)

    def change(self, it: Held, how: str) -> None:
        batch = WriteBatch()
        if how == "header":
            header = header_apart(image_of(at(1), BODY, log=self.LONG, copyset=(768, 1024)))
            assert header is not None
            batch.put_header(self.LONG, at(1), by_recovery=False, wave=1, header=header)
        else:
            batch.consolidate(self.LONG, at(1))
        assert it.store.write([batch]) == [Status.OK]

    @pytest.mark.parametrize("dies", [False, True])
    @pytest.mark.parametrize("how", ["header", "consolidate"])
    def test_their_images_stay_as_long_as_they_are_needed(self, how: str, dies: bool) -> None:
        it = Held()
        it.open(settings=self.SETTINGS)
        batch = WriteBatch()
        put(batch, at(1), BODY, log=self.LONG, wave=1)
        if how == "consolidate":
            put(batch, at(1), BODY, log=self.LONG, wave=2)
        assert it.store.write([batch]) == [Status.OK]
        it.write(30)
        assert it.store.sync() is Status.OK
        do_chores(it.store)
        it.store._extents.since_checkpoint = 1 << 60  # a table is due
        assert it.store.next_chore() is None, "it waits for a sync"
        self.change(it, how)
        assert it.store.sync() is Status.OK
        do_chores(it.store)
        assert it.store.applied
        before = read_all(it.store, self.LONG)
        assert (len(before.entries), before.corrupt) == (1, [])
        if dies:
            it.store.abandon()
            it.open(settings=self.SETTINGS)
        names = it.disk.names()
        it.now += 200 * SECOND
        it.store.maintain(Timestamp(it.now))
        it.write()
        it.trim(it.esn - 1)
        for _ in range(3):
            assert it.store.sync() is Status.OK
            do_chores(it.store)
        gone = {*names} - {*it.disk.names()}
        assert any(name.startswith("extent-") for name in gone), "nothing became free"
        it.forget_recent()
        after = read_all(it.store, self.LONG)
        assert (after.corrupt, after.entries) == ([], before.entries)


def open_in(directory: Path) -> int:
    """How many files of a directory the process has open."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{number}").startswith(str(directory))
    return found


class TestRealFiles:
    def test_a_write_that_the_system_cuts_short_is_completed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = RealDisk(str(tmp_path / "d")).create("f", 4096)
        parts = [bytes([number]) * 100 for number in range(5)]
        original = os.pwritev
        monkeypatch.setattr(os, "pwritev", lambda fd, given, offset: original(fd, [given[0][:70]], offset))
        file.write(parts, 512)
        assert file.read(512, 500) == b"".join(parts)

    def test_more_parts_than_the_system_takes_are_written(self, tmp_path: Path) -> None:
        file = RealDisk(str(tmp_path / "d")).create("f", 0)
        file.write([b"x"] * 3000, 0)
        assert (file.read(0, 9999), file.size()) == (b"x" * 3000, 3000)

    def test_no_more_files_are_open_than_may_be(self, tmp_path: Path) -> None:
        disk = RealDisk(str(tmp_path / "d"), open_files_max=8)
        files = [disk.create(f"new-{number}", 0) for number in range(40)]
        for number, file in enumerate(files):
            file.write([bytes([number]) * 600], 0)
        assert open_in(tmp_path) >= 40, "what is not synced stays open"
        for number, file in enumerate(files):
            file.sync(file.mark())
            disk.rename(f"new-{number}", f"file-{number}")
        others = [disk.open(f"file-{number}") for number in range(40)]
        assert open_in(tmp_path) <= 10
        for number, file in enumerate([*files, *others]):
            assert file.read(500, 200) == bytes([number % 40]) * 100
            assert file.read_cached(0, 10) == bytes([number % 40]) * 10
            assert file.size() == 600
        assert open_in(tmp_path) <= 10
        files[3].write([b"more"], 600)
        assert files[3].read(600, 4) == b"more"

    def test_a_file_that_is_closed_while_it_is_read_is_read_to_the_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Numbers of descriptors are used again: the file that gets one must not be read instead."""
        disk = RealDisk(str(tmp_path / "d"), open_files_max=2)
        for name in "abcdef":
            file = disk.create(name, 0)
            file.write([name.encode() * 100], 0)
            file.sync(0)
        read = disk.open("a")
        original = os.pread

        def pread(number: int, length: int, offset: int) -> bytes:
            monkeypatch.setattr(os, "pread", original)
            others.extend(disk.open(name) for name in "bcdef" * 3)
            assert read._open is None
            return original(number, length, offset)

        others: list[RealFile] = []
        monkeypatch.setattr(os, "pread", pread)
        assert read.read(0, 100) == b"a" * 100
        assert read.read(0, 100) == b"a" * 100

    def test_a_file_whose_name_another_one_gets_stays_itself(self, tmp_path: Path) -> None:
        disk = RealDisk(str(tmp_path / "d"), open_files_max=2)
        for name in ("table", "new-table", "a", "b", "c", "d"):
            file = disk.create(name, 0)
            file.write([name.encode()], 0)
            file.sync(0)
        before = disk.open("table")
        disk.rename("new-table", "table")
        others = [disk.open(name) for name in "abcdabcd"]
        assert before.read(0, 20) == b"table"
        assert disk.open("table").read(0, 20) == b"new-table"
        gone = disk.open("a")
        disk.unlink("a")
        assert [each.read(0, 1) for each in (*others[1:4], gone)] == [b"b", b"c", b"d", b"a"]

    @pytest.mark.parametrize("how", ["rename", "unlink"])
    def test_so_does_one_that_was_closed_before(self, tmp_path: Path, how: str) -> None:
        disk = RealDisk(str(tmp_path / "d"), open_files_max=2)
        for name in ("table", "new-table", "a", "b"):
            file = disk.create(name, 0)
            file.write([name.encode()], 0)
            file.sync(0)
        before = disk.open("table")
        others = [disk.open(name) for name in "abab"]
        assert before._open is None
        if how == "rename":
            disk.rename("new-table", "table")
        else:
            disk.unlink("table")
            disk.rename("new-table", "table")
        others += [disk.open(name) for name in "abab"]
        assert before.read(0, 20) == b"table"
        assert disk.open("table").read(0, 20) == b"new-table"
        assert {other.read(0, 1) for other in others} == {b"a", b"b"}

    def test_one_that_cannot_be_opened_then_is_not_taken_for_the_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = RealDisk(str(tmp_path / "d"), open_files_max=2)
        for name in ("table", "new-table", "a", "b"):
            disk.create(name, 0).write([name.encode()], 0)
        before = disk.open("table")
        others = [disk.open(name) for name in "abab"]
        assert (before._open, len(others)) == (None, 4)

        def no_number(name: str) -> int:
            raise DiskError("too many open files")

        monkeypatch.setattr(disk, "open_number", no_number)
        disk.rename("new-table", "table")
        monkeypatch.undo()
        with pytest.raises(DiskError, match="another file"):
            before.read(0, 20)
        assert disk.open("table").read(0, 20) == b"new-table"

    def test_a_table_is_replaced_while_reads_have_the_one_before_that_was_closed(self, tmp_path: Path) -> None:
        settings = replace(SETTINGS, open_files_max=16, checkpoint_bytes=1 << 30, block_cache_bytes=0)
        store, log = open_extents(tmp_path / "store", settings), metadata_log_of(LOG)
        assert store.adopt(MARKER, boot="boot 1", now=Timestamp(1)) is Status.OK
        store.load()

        def write(first: int, last: int, log: LogId) -> None:
            for esn in range(first, last + 1):
                batch = WriteBatch()
                put(batch, at(esn), BODY, log=log)
                assert store.write([batch]) == [Status.OK]
            assert store.sync() is Status.OK

        def begin_table() -> None:
            store._extents.since_checkpoint = 1 << 60
            do_chores(store)
            assert store.sync() is Status.OK

        write(1, 3, log)
        begin_table()
        do_chores(store)
        before = read_all(store, log).entries
        assert len(before) == 3
        table = store._long_lived._table
        assert table is not None
        file = table._file
        assert isinstance(file, RealFile)
        for first in range(1, 1_000, 10):
            if file._open is None:
                break
            write(first, first + 9, LOG)
            do_chores(store)
        assert file._open is None
        write(4, 43, log)
        begin_table()
        while store._long_lived._frozen:
            chore = store.next_chore()
            assert chore is not None
            chore()
            # the table may be there, and nobody has taken that up
            result = read_all(store, log)
            assert (result.corrupt, result.entries[:3]) == ([], before)
            store._upkeep.take_up()
        assert len(read_all(store, log).entries) == 43
        store.close()

    def test_a_store_of_many_extents_needs_few_open_files(self, tmp_path: Path) -> None:
        settings = replace(SETTINGS, open_files_max=16, checkpoint_bytes=1 << 30)
        store = open_extents(tmp_path / "store", settings)
        assert store.adopt(MARKER, boot="boot 1", now=Timestamp(1)) is Status.OK
        store.load()
        for number in range(40):
            batch = WriteBatch()
            for each in range(9):
                put(batch, at(1 + number * 9 + each), BODY)
            assert store.write([batch]) == [Status.OK]
            assert store.sync() is Status.OK
            do_chores(store)
        assert len(store.view.extents()) >= 40
        assert open_in(tmp_path) <= 20
        assert len(read_all(store).entries) == 360
        assert open_in(tmp_path) <= 20
        store.close()

    def test_a_directory_belongs_to_one_process(self, tmp_path: Path) -> None:
        disk = RealDisk(str(tmp_path / "d"))
        child = os.fork()
        if child == 0:
            try:
                RealDisk(str(tmp_path / "d"))
            except LogDeviceError:
                os._exit(3)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        disk.close()


class TestReadCache:
    def test_all_tables_together_keep_no_more_than_the_setting_says(self, it: Held) -> None:
        it.open(settings=replace(SETTINGS, block_cache_bytes=30_000))
        it.write(60, body=b"short")
        for _ in range(8):
            it.write(30, body=BODY)
            assert it.store.sync() is Status.OK
            do_chores(it.store)
            it.lsns()
        cache = it.store._extents._cache
        assert len([*it.store._extents.indexes]) > 8
        assert 0 < cache._bytes <= 30_000
        assert cache._bytes == sum(size for _, size in cache._held.values())

    def test_what_was_asked_for_last_stays(self) -> None:
        cache = ReadCache(100)
        table = cache.new_table()
        cache.put((table, 1), "one", 50)
        cache.put((table, 2), "two", 50)
        assert cache.get((table, 1)) == "one"
        cache.put((table, 3), "three", 50)
        assert [cache.get((table, at)) for at in (1, 2, 3)] == ["one", None, "three"]


class TestIndexesOfAPartition:
    def test_a_read_looks_at_the_extents_of_its_partition_alone(self, it: Held) -> None:
        it.open(settings=replace(SETTINGS, partition_bytes=1_000))
        for _ in range(4):
            it.write(12)
            it.now += 101 * SECOND
            it.store.maintain(Timestamp(it.now))
            assert it.store.sync() is Status.OK
            do_chores(it.store)
        indexes = it.store._extents.indexes
        partitions = sorted({each for index in indexes.values() for each in index.partitions})
        assert len(partitions) > 2
        for partition in partitions:
            of = [number for number in indexes if partition in indexes[number].partitions]
            assert [number for number, _ in indexes.of(partition)] == of
            assert len(of) < len([*indexes])
        it.trim(it.esn)
        assert it.store.sync() is Status.OK
        do_chores(it.store)
        assert not any(indexes.of(partition) for partition in partitions[:-1])

    def test_bodies_apart_are_found_without_another_look_for_their_row(
        self, it: Held, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        it.open(settings=replace(SETTINGS, blob_bytes_min=4096))
        it.write(10)
        it.forget_recent()
        monkeypatch.setattr(ExtentReader, "row_at", lambda *_: pytest.fail("the row was read a moment ago"))
        assert len(it.lsns()) == 10


def test_what_is_written_ends_where_a_page_does(it: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file that is used again the kernel would read the rest of a page from the disk first, while the event loop waits."""
    ends: list[tuple[int, int]] = []
    original = SimulatedFile.write

    def write(self: SimulatedFile, parts: Sequence[bytes], offset: int) -> None:
        original(self, parts, offset)
        if self.name.startswith("extent-"):
            ends.append((offset + sum(map(len, parts)), self.size()))

    monkeypatch.setattr(SimulatedFile, "write", write)
    for size in range(1, 9_000, 1_500):
        it.write(3, body=b"x" * size)
    assert len(ends) > 15
    assert all(end % PAGE == 0 or end == size for end, size in ends)
    assert all(end <= size for end, size in ends)
    assert len(it.lsns()) == 18
    it.open()
    assert len(it.lsns()) == 18
