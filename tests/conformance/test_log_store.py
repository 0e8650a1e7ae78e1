"""What every `LogStore` must do, run against each implementation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logdevice_py.core.entry import EntryFlags, body_of, parse_header
from logdevice_py.core.ids import USER_LOG_ID_MAX, Generation, LogId, ShardId, metadata_log_of
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.extents.simulated_disk import SimulatedDisk
from storage_node.log_store.identity import PreviousEnd, ShardMarker
from storage_node.log_store.interface import Contents, EpochMetadataKind, LogMetadataKind, Purpose, WriteBatch
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from tests.unit.storage_node.log_store.extent_stores import open_extents
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at, image_of, put, read_all, read_last

AMEND = int(EntryFlags.AMEND)
BY_RECOVERY = int(EntryFlags.WRITTEN_BY_RECOVERY)
PLUG = int(EntryFlags.HOLE | EntryFlags.WRITTEN_BY_RECOVERY)
MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
SETTINGS = LogStoreSettings(free_space_min=0, memtable_bytes=1 << 20, wal_bytes_max=16 << 20, extent_bytes=1 << 20)


class Harness:
    """One implementation: opens stores on a disk that outlives them."""

    def __init__(self, kind: str, directory: Path, settings: LogStoreSettings) -> None:
        self._kind = kind
        self._directory = directory
        self._settings = settings
        self._disk = MemoryDisk()
        self._files = SimulatedDisk()
        self.store: Any = None

    def open(self, *, boot: str = "boot 1", now: int = 1_000) -> Contents:
        """Open, adopt and load; the store is in `store`."""
        if self._kind == "memory":
            self.store = MemoryLogStore(self._disk, self._settings)
        elif self._kind == "rocksdb":
            self.store = RocksLogStore(str(self._directory / "shard"), self._settings)
        else:
            where = self._directory / "shard" if self._kind == "extents" else self._files
            self.store = open_extents(where, self._settings, boot=boot)
        assert self.store.adopt(MARKER, boot=boot, now=Timestamp(now)) is Status.OK
        contents = self.store.load()
        assert isinstance(contents, Contents)
        return contents

    def close(self) -> None:
        """Close in order."""
        self.store.close()
        self.store = None

    def die(self) -> None:
        """End the run without closing in order; the operating system goes on."""
        if self._kind != "memory":
            self.store.abandon()
        self.store = None


KINDS = ["memory", "rocksdb", "extents", "simulated extents"]


@pytest.fixture(params=[*KINDS, *[f"{kind}, bodies apart" for kind in KINDS]])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A store that was just opened for the first time."""
    kind, _, apart = request.param.partition(", ")
    settings = replace(SETTINGS, blob_bytes_min=0) if apart else SETTINGS
    harness = Harness(kind, tmp_path, settings)
    harness.open()
    yield harness
    if harness.store is not None:
        harness.close()


def write(harness: Harness, *batches: WriteBatch) -> None:
    assert harness.store.write(batches) == [Status.OK] * len(batches)


def mark_loss(harness: Harness) -> None:
    batch = WriteBatch()
    batch.mark_loss()
    write(harness, batch)
    assert harness.store.sync() is Status.OK


class TestPrecedence:
    def test_the_higher_wave_counts_whatever_the_order_of_writes(self, harness: Harness) -> None:
        late, early = WriteBatch(), WriteBatch()
        image = put(late, at(1), wave=2)
        put(early, at(1), wave=1)
        write(harness, late, early)
        assert read_all(harness.store).entries == [(at(1), image)]

    def test_recovery_beats_every_wave(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), wave=900)
        plug = put(batch, at(1), b"", wave=3, flags=PLUG)
        write(harness, batch)
        assert read_all(harness.store).entries == [(at(1), plug)]

    def test_of_two_recoveries_the_higher_seal_epoch_counts(self, harness: Harness) -> None:
        batch = WriteBatch()
        image = put(batch, at(1), b"kept", wave=5, flags=BY_RECOVERY)
        put(batch, at(1), b"", wave=4, flags=PLUG)
        write(harness, batch)
        assert read_all(harness.store).entries == [(at(1), image)]

    def test_the_same_rank_is_replaced(self, harness: Harness) -> None:
        first, second = WriteBatch(), WriteBatch()
        put(first, at(1), b"old")
        image = put(second, at(1), b"new")
        write(harness, first, second)
        assert read_all(harness.store).entries == [(at(1), image)]


class TestAmend:
    def test_an_amend_takes_the_body_of_the_best_full_copy_below(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), b"body", wave=1)
        put(batch, at(1), b"body", wave=2)
        put(batch, at(1), b"body", wave=9, flags=AMEND | BY_RECOVERY)
        write(harness, batch)
        [(lsn, image)] = read_all(harness.store).entries
        header = parse_header(image)
        assert (lsn, header.wave, header.flags, body_of(image)) == (at(1), 9, BY_RECOVERY, b"body")

    def test_an_amend_without_a_body_is_reported_and_not_an_entry(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), wave=9, flags=AMEND | BY_RECOVERY)
        image = put(batch, at(2))
        write(harness, batch)
        result = read_all(harness.store)
        assert (result.entries, result.bodiless, result.corrupt) == ([(at(2), image)], [at(1)], [])

    def test_an_amend_does_not_take_another_body(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), b"this", wave=1)
        put(batch, at(1), b"that", wave=9, flags=AMEND | BY_RECOVERY)
        write(harness, batch)
        assert read_all(harness.store).bodiless == [at(1)]

    def test_a_body_that_comes_after_its_amend_completes_it(self, harness: Harness) -> None:
        first, second = WriteBatch(), WriteBatch()
        put(first, at(1), b"body", wave=9, flags=AMEND | BY_RECOVERY)
        put(second, at(1), b"body", wave=1)
        write(harness, first, second)
        assert body_of(read_all(harness.store).entries[0][1]) == b"body"

    def test_an_amend_of_a_plug_needs_no_body(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), b"", wave=9, flags=AMEND | PLUG)
        write(harness, batch)
        [(_, image)] = read_all(harness.store).entries
        assert parse_header(image).is_hole
        assert not parse_header(image).is_amend


class TestConsolidation:
    def test_one_full_copy_of_the_highest_rank_remains(self, harness: Harness) -> None:
        first, second, third = WriteBatch(), WriteBatch(), WriteBatch()
        put(first, at(1), b"body", wave=1)
        put(first, at(1), b"body", wave=9, flags=AMEND | BY_RECOVERY)
        write(harness, first)
        before = read_all(harness.store).entries
        second.consolidate(LOG, at(1))
        write(harness, second)
        assert read_all(harness.store).entries == before
        # the lower copy is gone: without the higher one nothing is left
        third.delete_entries(LOG, at(1), at(1))
        write(harness, third)
        assert read_all(harness.store).entries == []

    def test_it_sees_the_batches_before_it_in_the_same_call(self, harness: Harness) -> None:
        first, second, third = WriteBatch(), WriteBatch(), WriteBatch()
        put(first, at(1), b"old", wave=1)
        image = put(first, at(1), b"", wave=3, flags=PLUG)
        second.consolidate(LOG, at(1))
        third.consolidate(LOG, at(1))
        write(harness, first, second, third)
        assert read_all(harness.store).entries == [(at(1), image)]

    def test_an_amend_without_its_body_is_left_alone(self, harness: Harness) -> None:
        first, second, third = WriteBatch(), WriteBatch(), WriteBatch()
        put(first, at(1), b"that", wave=2)
        put(first, at(1), b"body", wave=9, flags=AMEND | BY_RECOVERY)
        second.consolidate(LOG, at(1))
        put(third, at(1), b"body", wave=1)
        write(harness, first, second, third)
        assert body_of(read_all(harness.store).entries[0][1]) == b"body"


class TestRead:
    def test_limits_end_the_answer_before_the_entry_that_does_not_fit(self, harness: Harness) -> None:
        batch = WriteBatch()
        images = [put(batch, at(esn), b"x" * 100) for esn in (1, 2, 5)]
        write(harness, batch)
        result = read_all(harness.store, bytes_max=2 * len(images[0]))
        assert [lsn for lsn, _ in result.entries] == [at(1), at(2)]
        assert result.through == at(5) - 1
        result = read_all(harness.store, entries_max=1)
        assert ([lsn for lsn, _ in result.entries], result.through) == ([at(1)], at(2) - 1)

    def test_at_least_one_entry_comes_however_large(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), b"x" * 100_000)
        write(harness, batch)
        result = read_all(harness.store, bytes_max=1)
        assert (len(result.entries), result.through) == (1, LAST)

    def test_ranges_are_inclusive_and_logs_apart(self, harness: Harness) -> None:
        batch = WriteBatch()
        for log in (LogId(6), LOG, LogId(8), metadata_log_of(LOG), LogId(USER_LOG_ID_MAX + 1)):
            for esn in range(1, 6):
                put(batch, at(esn), log=log)
        write(harness, batch)
        for log in (LOG, metadata_log_of(LOG), LogId(USER_LOG_ID_MAX + 1)):
            result = read_all(harness.store, log, at(2), at(4))
            assert [lsn for lsn, _ in result.entries] == [at(2), at(3), at(4)]
            assert result.through == at(4)
            assert all(parse_header(image).log == log for _, image in result.entries)

    def test_an_empty_range_is_covered_to_its_end(self, harness: Harness) -> None:
        result = read_all(harness.store, LOG, at(1), at(9))
        assert (result.status, result.entries, result.through) == (Status.OK, [], at(9))

    def test_large_and_small_entries_come_back_as_they_were(self, harness: Harness) -> None:
        batch = WriteBatch()
        images = [
            (at(esn), put(batch, at(esn), os.urandom(size))) for esn, size in enumerate((1, 4095, 4096, 1 << 20), 1)
        ]
        write(harness, batch)
        assert read_all(harness.store).entries == images


class TestReadLast:
    def test_the_greatest_lsn_of_the_range_is_found(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(3))
        put(batch, at(5), wave=1)
        image = put(batch, at(5), wave=2)
        put(batch, at(1, epoch=2))
        write(harness, batch)
        assert read_last(harness.store, LOG, at(1), at(9)).entries == [(at(5), image)]
        assert read_last(harness.store, LOG, at(6), at(9)).entries == []
        assert read_last(harness.store, LogId(8)).entries == []

    def test_holes_are_passed_over_when_asked(self, harness: Harness) -> None:
        batch = WriteBatch()
        image = put(batch, at(3))
        put(batch, at(4))
        plug = put(batch, at(4), b"", wave=3, flags=PLUG)
        put(batch, at(5), wave=3, flags=AMEND | BY_RECOVERY)
        write(harness, batch)
        assert read_last(harness.store).entries == [(at(4), plug)]
        result = read_last(harness.store, skip_holes=True)
        assert (result.entries, result.bodiless) == ([(at(3), image)], [at(5)])

    def test_a_damaged_copy_ends_the_search(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1))
        batch.put_entry(LOG, at(2), by_recovery=False, wave=1, image=b"rubbish")
        write(harness, batch)
        result = read_last(harness.store)
        assert (result.entries, result.corrupt) == ([], [(at(2), at(2))])


class TestDamage:
    @pytest.mark.parametrize("place", [0, 30, -1])
    def test_a_flipped_bit_is_reported_and_the_rest_is_read(self, harness: Harness, place: int) -> None:
        batch = WriteBatch()
        first, last = put(batch, at(1)), put(batch, at(4))
        for esn in (2, 3):
            image = bytearray(image_of(at(esn)))
            image[place] ^= 64
            batch.put_entry(LOG, at(esn), by_recovery=False, wave=1, image=bytes(image))
        write(harness, batch)
        result = read_all(harness.store)
        assert result.entries == [(at(1), first), (at(4), last)]
        assert result.corrupt == [(at(2), at(3))]

    def test_a_damaged_copy_is_not_replaced_by_one_of_lower_rank(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), wave=1)
        batch.put_entry(LOG, at(1), by_recovery=True, wave=3, image=b"\xff" * 60)
        write(harness, batch)
        result = read_all(harness.store)
        assert (result.entries, result.corrupt) == ([], [(at(1), at(1))])

    def test_a_sound_image_in_the_wrong_place_is_damage(self, harness: Harness) -> None:
        batch = WriteBatch()
        batch.put_entry(LOG, at(1), by_recovery=False, wave=1, image=image_of(at(2)))
        batch.put_entry(LOG, at(3), by_recovery=False, wave=1, image=image_of(at(3), wave=2))
        batch.put_entry(LOG, at(5), by_recovery=False, wave=1, image=image_of(at(5), log=LogId(8)))
        write(harness, batch)
        assert read_all(harness.store).corrupt == [(lsn, lsn) for lsn in (at(1), at(3), at(5))]

    def test_an_amend_over_a_damaged_body_is_damage(self, harness: Harness) -> None:
        batch = WriteBatch()
        batch.put_entry(LOG, at(1), by_recovery=False, wave=1, image=image_of(at(1))[:-1] + b"?")
        put(batch, at(1), wave=9, flags=AMEND | BY_RECOVERY)
        write(harness, batch)
        result = read_all(harness.store)
        assert (result.corrupt, result.bodiless) == ([(at(1), at(1))], [])


class TestDeletes:
    def test_all_ranks_of_exactly_the_range_go(self, harness: Harness) -> None:
        first, second = WriteBatch(), WriteBatch()
        for esn in range(1, 7):
            put(first, at(esn), wave=1)
            put(first, at(esn), wave=2)
            put(first, at(esn), log=LogId(8))
        second.delete_entries(LOG, at(2), at(3))
        second.delete_entries(LOG, at(5), at(5))
        write(harness, first, second)
        assert [lsn for lsn, _ in read_all(harness.store).entries] == [at(1), at(4), at(6)]
        assert len(read_all(harness.store, LogId(8)).entries) == 6

    def test_puts_of_a_batch_outlive_its_deletes(self, harness: Harness) -> None:
        first, second = WriteBatch(), WriteBatch()
        put(first, at(2), wave=3)
        put(second, at(2), wave=1)
        second.delete_entries(LOG, at(1), at(9))
        write(harness, first, second)
        assert [parse_header(image).wave for _, image in read_all(harness.store).entries] == [1]


class TestSpace:
    @pytest.fixture(params=KINDS)
    def short(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
        """A store with room for what is appended and none for what rebuilding brings."""
        measured = os.statvfs(tmp_path)
        in_memory = request.param in ("memory", "simulated extents")
        free = MemoryDisk().free if in_memory else measured.f_bavail * measured.f_frsize
        settings = replace(
            SETTINGS, free_space_min=free * 2 // 3, free_space_min_percent=90, free_space_rebuilding_percent=200
        )
        harness = Harness(request.param, tmp_path, settings)
        harness.open()
        yield harness
        harness.close()

    def test_what_a_batch_is_for_decides_whether_it_is_refused(self, short: Harness) -> None:
        batches = {purpose: WriteBatch() for purpose in Purpose}
        for esn, (purpose, batch) in enumerate(batches.items(), 1):
            batch.purpose = purpose
            put(batch, at(esn))
        assert short.store.write(list(batches.values())) == [Status.OK, Status.OK, Status.NOSPC]
        assert [lsn for lsn, _ in read_all(short.store).entries] == [at(1), at(2)]
        assert short.store.write([batches[Purpose.REBUILDING]]) == [Status.NOSPC]
        assert short.store.write([batches[Purpose.USUAL]]) == [Status.OK]

    def test_what_holds_no_entries_is_never_refused(self, short: Harness) -> None:
        seal = WriteBatch()
        seal.purpose = Purpose.REBUILDING
        seal.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal")
        write(short, seal)


class TestReopen:
    def test_everything_is_there_after_an_orderly_close(self, harness: Harness) -> None:
        metadata_log = metadata_log_of(LOG)
        batch = WriteBatch()
        image = put(batch, at(4))
        put(batch, at(2))
        put(batch, at(1, epoch=3), log=metadata_log)
        batch.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal")
        batch.put_log_metadata(LogId(5), LogMetadataKind.TRIM_POINT, b"trim")
        batch.put_epoch_metadata(LOG, Epoch(1), EpochMetadataKind.MUTABLE, b"lng")
        batch.put_epoch_metadata(LOG, Epoch(2), EpochMetadataKind.MUTABLE, b"lng 2")
        batch.put_epoch_metadata(LOG, Epoch(1), EpochMetadataKind.RECOVERY, b"clean")
        write(harness, batch)
        later = WriteBatch()
        later.put_log_metadata(LOG, LogMetadataKind.SEAL, b"seal 2")
        later.delete_epoch_metadata(LOG, Epoch(1), EpochMetadataKind.MUTABLE)
        write(harness, later)
        harness.close()
        contents = harness.open()
        assert contents.last_stop is PreviousEnd.CLEAN
        assert contents.losses == []
        assert (contents.marker.generation, contents.marker.shard) == (2, SHARD)
        assert sorted(contents.log_metadata) == [
            (LogId(5), LogMetadataKind.TRIM_POINT, b"trim"),
            (LOG, LogMetadataKind.SEAL, b"seal 2"),
        ]
        assert contents.epoch_metadata == [
            (LOG, Epoch(1), EpochMetadataKind.RECOVERY, b"clean"),
            (LOG, Epoch(2), EpochMetadataKind.MUTABLE, b"lng 2"),
        ]
        assert sorted(contents.highest) == [(LOG, at(4)), (metadata_log, at(1, epoch=3))]
        assert read_all(harness.store).entries[-1] == (at(4), image)

    def test_a_process_that_died_leaves_all_that_it_wrote(self, harness: Harness) -> None:
        for esn in range(1, 20):
            batch = WriteBatch()
            put(batch, at(esn))
            write(harness, batch)
        harness.die()
        contents = harness.open()
        assert contents.last_stop is PreviousEnd.PROCESS_DIED
        assert contents.losses == []
        assert contents.highest == [(LOG, at(19))]

    def test_the_greatest_lsn_goes_down_when_the_end_is_deleted(self, harness: Harness) -> None:
        first, second = WriteBatch(), WriteBatch()
        for esn in range(1, 9):
            put(first, at(esn))
        put(first, at(1), log=LogId(9))
        second.delete_entries(LOG, at(5), LAST)
        second.delete_entries(LogId(9), Lsn(0), LAST)
        write(harness, first, second)
        harness.close()
        assert harness.open().highest == [(LOG, at(4))]
        harness.die()
        assert harness.open().highest == [(LOG, at(4))]

    def test_a_machine_that_died_leaves_a_span_of_doubt_for_good(self, harness: Harness) -> None:
        harness.store.mark_durable(Timestamp(5_000))
        write(harness, WriteBatch())
        harness.die()
        contents = harness.open(boot="boot 2", now=9_000)
        assert (contents.last_stop, contents.losses) == (PreviousEnd.MACHINE_DIED, [(5_000, 9_000)])
        mark_loss(harness)
        harness.close()
        contents = harness.open(boot="boot 2", now=20_000)
        assert (contents.last_stop, contents.losses) == (PreviousEnd.CLEAN, [(5_000, 9_000)])
        harness.die()
        contents = harness.open(boot="boot 3", now=30_000)
        assert contents.losses == [(5_000, 9_000), (20_000, 30_000)]

    @pytest.mark.parametrize("in_order", [False, True])
    def test_that_a_machine_died_is_told_until_what_it_took_is_marked(self, harness: Harness, in_order: bool) -> None:
        harness.die()
        for now in (20_000, 30_000):
            contents = harness.open(boot="boot 2", now=now)
            assert (contents.last_stop, contents.losses) == (PreviousEnd.MACHINE_DIED, [(1_000, 20_000)])
            if in_order:
                harness.close()
            else:
                harness.die()
        harness.open(boot="boot 2")
        mark_loss(harness)
        harness.die()
        assert harness.open(boot="boot 2").last_stop is PreviousEnd.PROCESS_DIED

    def test_who_told_of_metadata_logs_is_known_as_soon_as_it_is_written(self, harness: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1))
        write(harness, batch)
        harness.close()
        assert not harness.open().metadata_whole_for
        batch = WriteBatch()
        batch.note_metadata_whole_for([ShardId(256), ShardId(512)])
        write(harness, batch)
        assert harness.store.sync() is Status.OK
        harness.die()
        assert harness.open(boot="boot 2").metadata_whole_for == {256, 512}
        harness.close()
        contents = harness.open(boot="boot 2")
        assert (contents.metadata_whole_for, contents.highest) == ({256, 512}, [(LOG, at(1))])

    def test_the_drain_that_a_shard_has_done_its_part_of_is_known_until_it_is_taken_back(
        self, harness: Harness
    ) -> None:
        for drain in (Lsn(1 << 40), Lsn(0)):
            batch = WriteBatch()
            batch.note_drain(drain)
            write(harness, batch)
            assert harness.store.sync() is Status.OK
            harness.die()
            assert harness.open(boot=f"boot {drain}").drain == drain

    def test_an_unknown_boot_counts_as_a_machine_that_died(self, harness: Harness) -> None:
        harness.die()
        assert harness.open(boot="").last_stop is PreviousEnd.MACHINE_DIED


def test_a_batch_without_changes_is_taken(harness: Harness) -> None:
    write(harness, WriteBatch(), WriteBatch())
    assert harness.store.sync() is Status.OK
