"""Entries of which header and body lie apart, in each implementation of `LogStore`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logdevice_py.core.entry import EntryFlags, body_of, header_size, lacks_body, parse_header
from logdevice_py.core.ids import Generation, LogId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.extents.rows import lsn_of, rank_of
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard, WriteBatch
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.wanted import Wants, no_body
from tests.unit.storage_node.log_store.extent_stores import open_extents
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at, image_of, put, read_all, read_last

AMEND = int(EntryFlags.AMEND)
BY_RECOVERY = int(EntryFlags.WRITTEN_BY_RECOVERY)
MARKER = ShardMarker(b"c" * 16, SHARD, Generation(2))
SETTINGS = LogStoreSettings(free_space_min=0, memtable_bytes=1 << 20, partition_drop_share_percent=100)
LARGE = b"large " * 1000
OTHER = b"other " * 1000
DATA, BODY = ord("d"), ord("b")


class Harness:
    """One implementation, and the rows that it keeps entries in."""

    def __init__(self, directory: Path | None, kind: str = "rocksdb") -> None:
        self._directory = directory
        self._kind = kind
        self.disk = MemoryDisk()
        self.store: Any = None
        self.open()

    def open(self) -> None:
        if self._directory is None:
            self.store = MemoryLogStore(self.disk, SETTINGS)
        elif self._kind == "extents":
            self.store = open_extents(self._directory / "shard", SETTINGS)
        else:
            self.store = RocksLogStore(str(self._directory / "shard"), SETTINGS)
        assert self.store.adopt(MARKER, boot="boot 1", now=Timestamp(1_000)) is Status.OK
        self.store.load()

    def reopen(self) -> None:
        self.store.close()
        self.open()

    def write(self, *batches: WriteBatch) -> None:
        assert self.store.write(batches) == [Status.OK] * len(batches)

    def _family(self) -> Any:
        return self.store._families.reader(self.store.partitions[-1])

    def rows(self) -> dict[bytes, bytes]:
        """Of entries, in the order of keys."""
        if self._directory is None:
            return {key: value for key, value in self.disk.rows.items() if key[0] in (DATA, BODY)}
        found = {}
        if self._kind == "extents":
            return self._rows_of_extents()
        for family in self.store._families.readers():
            iterator = family.iter()
            iterator.seek_to_first()
            while iterator.valid():
                if iterator.key()[0] in (DATA, BODY):
                    found[iterator.key()] = iterator.value()
                iterator.next()
        return dict(sorted(found.items()))

    def _rows_of_extents(self) -> dict[bytes, bytes]:
        """As the other stores would keep them."""
        found = {}
        for log, held in self.store.view.directory.rows():
            for partition, first, last in held.spans():
                for key, row in self.store._reader.rows(partition, log, first, last):
                    at = keys.data_key(log, lsn_of(key), bool(rank_of(key) >> 32), rank_of(key) & 0xFFFFFFFF)
                    image = self.store._extents.images.fetch(row)
                    found[at] = row.header or image
                    if row.header:
                        found[keys.body_key(at)] = image
        return dict(sorted(found.items()))

    def keys(self, kind: int) -> list[bytes]:
        return [key for key in self.rows() if key[0] == kind]

    def put_row(self, key: bytes, value: bytes) -> None:
        """Behind the store's back."""
        if self._directory is None:
            self.disk.rows[key] = value
        elif self._kind == "extents":
            pytest.skip("an extent holds no rows that could be replaced")
        else:
            self._family().put(key, value)

    def delete_row(self, key: bytes) -> None:
        if self._directory is None:
            del self.disk.rows[key]
        elif self._kind == "extents":
            pytest.skip("an extent holds no rows that could be removed")
        else:
            self._family().delete(key)

    def read(self, wants: Wants | None, *, bytes_max: int = 1 << 30) -> ReadResult:
        result = self.store.read(ReadShard(1, SHARD, LOG, Lsn(1), LAST, bytes_max, wants=wants))
        assert isinstance(result, ReadResult)
        return result


@pytest.fixture(params=["memory", "rocksdb", "extents"])
def it(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """A store that was just opened for the first time."""
    harness = Harness(None if request.param == "memory" else tmp_path, request.param)
    yield harness
    harness.store.close()


def key_of(lsn: Lsn, wave: int = 1, *, log: LogId = LOG, by_recovery: bool = False) -> bytes:
    return keys.data_key(log, lsn, by_recovery, wave)


class TestRows:
    def test_the_header_lies_under_the_key_and_the_image_where_bodies_lie(self, it: Harness) -> None:
        batch = WriteBatch()
        small, large = put(batch, at(1)), put(batch, at(2), LARGE)
        it.write(batch)
        assert it.rows() == {
            keys.body_key(key_of(at(2))): large,
            key_of(at(1)): small,
            key_of(at(2)): large[: header_size(large)],
        }

    def test_what_is_damaged_is_kept_as_it_is(self, it: Harness) -> None:
        batch = WriteBatch()
        image = image_of(at(1), LARGE)[:-1]
        batch.put_entry(LOG, at(1), by_recovery=False, wave=1, image=image)
        it.write(batch)
        assert it.rows() == {key_of(at(1)): image}
        assert it.read(None).corrupt == it.read(no_body).corrupt == [(at(1), at(1))]

    def test_rows_of_earlier_versions_are_read_deleted_and_consolidated(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(9))
        it.write(batch)
        images = {esn: image_of(at(esn), LARGE) for esn in (1, 2, 3)}
        batch = WriteBatch()
        for esn, image in images.items():
            batch.put_entry(LOG, at(esn), by_recovery=False, wave=1, image=image)
        it.write(batch)
        for esn, image in images.items():
            it.delete_row(keys.body_key(key_of(at(esn))))
            it.put_row(key_of(at(esn)), image)
        it.reopen()
        for wants in (None, no_body):
            assert it.read(wants).entries[:3] == [(at(esn), image) for esn, image in images.items()]
        batch = WriteBatch()
        put(batch, at(2), LARGE, wave=4, flags=AMEND | BY_RECOVERY)
        batch.delete_entries(LOG, at(1), at(1))
        it.write(batch)
        batch = WriteBatch()
        batch.consolidate(LOG, at(2))
        it.write(batch)
        amended = image_of(at(2), LARGE, wave=4, flags=BY_RECOVERY)
        assert it.read(None).entries[:2] == [(at(2), amended), (at(3), images[3])]
        top = key_of(at(2), 4, by_recovery=True)
        assert it.rows()[keys.body_key(top)] == amended
        assert sorted(it.keys(DATA)) == [top, key_of(at(3)), key_of(at(9))]


class TestReading:
    def test_bodies_come_for_those_that_want_them(self, it: Harness) -> None:
        batch = WriteBatch()
        images = {at(esn): put(batch, at(esn), LARGE if esn % 2 else b"small") for esn in range(1, 9)}
        it.write(batch)
        third = at(3)

        def wants(header: bytes) -> bool:
            return parse_header(header, alone=True).lsn == third

        result = it.read(wants)
        assert [lsn for lsn, _ in result.entries] == list(images)
        for lsn, image in result.entries:
            if lsn in (at(1), at(5), at(7)):
                assert lacks_body(image)
                assert images[lsn].startswith(image)
            else:
                assert image == images[lsn]

    def test_the_last_entry_may_come_without_its_body(self, it: Harness) -> None:
        batch = WriteBatch()
        image = put(batch, at(1), LARGE)
        it.write(batch)
        assert read_last(it.store).entries == [(at(1), image)]
        result = it.store.read_last(ReadLast(1, SHARD, LOG, Lsn(1), LAST, True, no_body))
        assert result.entries == [(at(1), image[: header_size(image)])]

    def test_limits_count_what_is_returned(self, it: Harness) -> None:
        batch = WriteBatch()
        images = [put(batch, at(esn), LARGE) for esn in (1, 2, 5)]
        it.write(batch)
        result = it.read(None, bytes_max=2 * len(images[0]))
        assert ([lsn for lsn, _ in result.entries], result.through) == ([at(1), at(2)], at(5) - 1)
        result = it.read(None, bytes_max=2 * len(images[0]) - 1)
        assert ([lsn for lsn, _ in result.entries], result.through) == ([at(1)], at(2) - 1)
        assert len(it.read(no_body, bytes_max=len(images[0])).entries) == 3

    def test_an_amend_takes_a_body_that_lies_apart_and_says_what_it_would_take(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE, wave=1)
        put(batch, at(1), OTHER, wave=2)
        put(batch, at(1), LARGE, wave=9, flags=AMEND | BY_RECOVERY)
        it.write(batch)
        [(_, image)] = it.read(None).entries
        assert image == image_of(at(1), LARGE, wave=9, flags=BY_RECOVERY)
        [(_, header)] = it.read(no_body).entries
        assert header == image[: header_size(image)]


class TestOtherWaves:
    def test_each_wave_has_a_body_of_its_own(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE, wave=1)
        image = put(batch, at(1), OTHER, wave=2)
        it.write(batch)
        assert it.read(None).entries == [(at(1), image)]

    def test_the_same_rank_is_replaced_with_its_body(self, it: Harness) -> None:
        for body in (LARGE, OTHER, b"small", OTHER):
            batch = WriteBatch()
            image = put(batch, at(1), body)
            it.write(batch)
            assert it.read(None).entries == [(at(1), image)]
        assert it.rows()[keys.body_key(key_of(at(1)))] == image

    def test_consolidation_takes_the_bodies_of_lower_waves_along(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE, wave=1)
        put(batch, at(1), LARGE, wave=2)
        image = put(batch, at(1), LARGE, wave=3)
        put(batch, at(2), LARGE, wave=1)
        put(batch, at(2), LARGE, wave=5, flags=AMEND | BY_RECOVERY)
        last = image_of(at(2), LARGE, wave=5, flags=BY_RECOVERY)
        it.write(batch)
        batch = WriteBatch()
        batch.consolidate(LOG, at(1))
        batch.consolidate(LOG, at(2))
        it.write(batch)
        tops = [key_of(at(1), 3), key_of(at(2), 5, by_recovery=True)]
        assert it.rows() == {
            keys.body_key(tops[0]): image,
            keys.body_key(tops[1]): last,
            tops[0]: image[: header_size(image)],
            tops[1]: last[: header_size(last)],
        }

    def test_one_whose_body_is_missing_is_left_alone(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE, wave=1)
        put(batch, at(1), LARGE, wave=2)
        it.write(batch)
        it.delete_row(keys.body_key(key_of(at(1), 2)))
        batch = WriteBatch()
        batch.consolidate(LOG, at(1))
        it.write(batch)
        assert len(it.keys(DATA)) == 2
        assert it.read(None).corrupt == [(at(1), at(1))]


class TestDamage:
    @pytest.fixture
    def images(self, it: Harness) -> dict[Lsn, bytes]:
        batch = WriteBatch()
        images = {at(esn): put(batch, at(esn), LARGE) for esn in (1, 2, 3)}
        it.write(batch)
        return images

    def lose(self, it: Harness, images: dict[Lsn, bytes], how: str) -> None:
        """What lies at the second LSN cannot be sent any more."""
        body, image = keys.body_key(key_of(at(2))), images[at(2)]
        if how == "missing":
            it.delete_row(body)
        elif how == "rotten":
            it.put_row(body, image[:-1] + b"?")
        elif how == "cut":
            it.put_row(body, image[:-1])
        elif how == "of another entry":
            it.put_row(body, images[at(3)])
        elif how == "of another wave":
            it.put_row(body, image_of(at(2), LARGE, wave=2))
        else:
            it.put_row(key_of(at(2)), b"\xff" + image[1 : header_size(image)])

    @pytest.mark.parametrize(
        "how", ["missing", "rotten", "cut", "of another entry", "of another wave", "of a damaged header"]
    )
    def test_a_body_that_is_lost_is_damage_until_it_is_restored(
        self, it: Harness, images: dict[Lsn, bytes], how: str
    ) -> None:
        self.lose(it, images, how)
        result = it.read(None)
        assert result.corrupt == [(at(2), at(2))]
        assert result.entries == [(lsn, images[lsn]) for lsn in (at(1), at(3))]
        assert read_last(it.store, LOG, at(1), at(2)).corrupt == [(at(2), at(2))]
        batch = WriteBatch()
        batch.restore(LOG, at(2), at(2))
        batch.put_again(LOG, at(2), by_recovery=False, wave=1, image=images[at(2)])
        it.write(batch)
        result = it.read(None)
        assert (result.entries, result.corrupt) == (list(images.items()), [])

    def test_a_header_tells_of_an_entry_whose_body_is_lost(self, it: Harness, images: dict[Lsn, bytes]) -> None:
        self.lose(it, images, "missing")
        result = it.read(no_body)
        assert [lsn for lsn, _ in result.entries] == list(images)

    def test_an_amend_over_a_body_that_is_lost_is_damage(self, it: Harness, images: dict[Lsn, bytes]) -> None:
        self.lose(it, images, "missing")
        batch = WriteBatch()
        put(batch, at(2), LARGE, wave=9, flags=AMEND | BY_RECOVERY)
        it.write(batch)
        result = it.read(None)
        assert (result.corrupt, result.bodiless) == ([(at(2), at(2))], [])

    def test_a_body_without_a_header_is_nothing_and_goes_with_what_lies_around_it(
        self, it: Harness, images: dict[Lsn, bytes]
    ) -> None:
        it.delete_row(key_of(at(2)))
        for wants in (None, no_body):
            result = it.read(wants)
            assert [lsn for lsn, _ in result.entries] == [at(1), at(3)]
            assert not result.corrupt
        batch = WriteBatch()
        batch.delete_entries(LOG, Lsn(0), at(2))
        it.write(batch)
        assert it.keys(BODY) == [keys.body_key(key_of(at(3)))]


class TestHeaders:
    """Copies get other headers: their bodies stay."""

    COPYSET = (768, 5, 9)

    def give(self, it: Harness, lsn: Lsn, body: bytes, *, wave: int = 1, flags: int = 0) -> bytes:
        batch = WriteBatch()
        image = self.put_header(batch, lsn, body, wave=wave, flags=flags)
        it.write(batch)
        return image

    def put_header(self, batch: WriteBatch, lsn: Lsn, body: bytes, *, wave: int = 1, flags: int = 0) -> bytes:
        image = image_of(lsn, body, wave=wave, flags=flags, copyset=self.COPYSET)
        batch.put_header(LOG, lsn, by_recovery=bool(flags & BY_RECOVERY), wave=wave, header=image[: header_size(image)])
        return image

    @pytest.mark.parametrize("body", [b"small", LARGE])
    def test_the_copy_has_the_other_header_and_the_same_body(self, it: Harness, body: bytes) -> None:
        batch = WriteBatch()
        put(batch, at(1), body)
        other = put(batch, at(2), body)
        it.write(batch)
        first = self.give(it, at(1), body)
        it.reopen()
        assert it.read(None).entries == [(at(1), first), (at(2), other)]
        headers = [parse_header(image, alone=True).copyset for _, image in it.read(no_body).entries]
        assert headers == [self.COPYSET, (768,)]
        assert read_last(it.store, LOG, at(1), at(1)).entries == [(at(1), first)]
        again = self.give(it, at(1), body)
        assert it.read(None).entries[0] == (at(1), again)

    def test_of_a_large_entry_the_header_alone_is_written(self, it: Harness) -> None:
        batch = WriteBatch()
        before = put(batch, at(1), LARGE)
        it.write(batch)
        image = self.give(it, at(1), LARGE)
        assert it.rows() == {keys.body_key(key_of(at(1))): before, key_of(at(1)): image[: header_size(image)]}

    def test_a_body_of_another_entry_is_not_taken_for_that_of_the_header(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE)
        it.write(batch)
        it.put_row(keys.body_key(key_of(at(1))), image_of(at(1), OTHER))
        self.give(it, at(1), LARGE)
        assert it.read(None).corrupt == [(at(1), at(1))]

    @pytest.mark.parametrize("damaged_at", [0, 20, -1])
    def test_damage_of_what_lies_with_the_body_is_found(self, it: Harness, damaged_at: int) -> None:
        batch = WriteBatch()
        image = bytearray(put(batch, at(1), LARGE))
        it.write(batch)
        self.give(it, at(1), LARGE)
        image[damaged_at] ^= 1
        it.put_row(keys.body_key(key_of(at(1))), bytes(image))
        assert it.read(None).corrupt == [(at(1), at(1))]

    @pytest.mark.parametrize("body", [b"small", LARGE])
    def test_nothing_happens_where_there_is_no_such_copy(self, it: Harness, body: bytes) -> None:
        batch = WriteBatch()
        put(batch, at(1), body)
        put(batch, at(2), body, wave=2)
        put(batch, at(3), OTHER)
        put(batch, at(4), body, flags=AMEND)
        it.write(batch)
        before = it.rows()
        for esn in (2, 3, 4, 5):
            self.give(it, at(esn), body)
        self.give(it, at(1), body, flags=BY_RECOVERY)
        assert it.rows() == before

    def test_what_the_batches_before_it_did_counts(self, it: Harness) -> None:
        first, deletion, header = WriteBatch(), WriteBatch(), WriteBatch()
        put(first, at(1), LARGE)
        deletion.delete_entries(LOG, at(1), at(1))
        image = self.put_header(header, at(1), LARGE)
        it.write(first, header)
        assert it.read(None).entries == [(at(1), image)]
        it.write(deletion, header)
        assert it.rows() == {}

    @pytest.mark.parametrize("body", [b"small", LARGE])
    def test_what_its_batch_trims_stays_trimmed(self, it: Harness, body: bytes) -> None:
        batch = WriteBatch()
        put(batch, at(1), body)
        it.write(batch)
        batch = WriteBatch()
        self.put_header(batch, at(1), body)
        batch.delete_entries(LOG, Lsn(0), at(1))
        it.write(batch)
        assert it.rows() == {}

    @pytest.mark.parametrize("body", [b"small", LARGE])
    def test_so_it_does_where_the_log_keeps_what_lies_above(self, it: Harness, body: bytes) -> None:
        batch = WriteBatch()
        put(batch, at(1), body)
        it.write(batch)
        batch = WriteBatch()
        kept = put(batch, at(2), body)
        it.write(batch)
        batch = WriteBatch()
        self.put_header(batch, at(1), body)
        batch.delete_entries(LOG, Lsn(0), at(1))
        it.write(batch)
        assert it.read(None).entries == [(at(2), kept)]
        assert key_of(at(1)) not in it.rows()

    def test_the_body_goes_with_the_header(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE)
        put(batch, at(2), LARGE)
        it.write(batch)
        self.give(it, at(1), LARGE)
        batch = WriteBatch()
        batch.delete_entries(LOG, Lsn(0), at(1))
        it.write(batch)
        assert it.keys(BODY) == [keys.body_key(key_of(at(2)))]

    def test_consolidation_keeps_the_copy_that_counts(self, it: Harness) -> None:
        batch = WriteBatch()
        put(batch, at(1), LARGE)
        put(batch, at(1), LARGE, wave=2)
        it.write(batch)
        image = self.give(it, at(1), LARGE, wave=2)
        batch = WriteBatch()
        batch.consolidate(LOG, at(1))
        it.write(batch)
        assert it.read(None).entries == [(at(1), image)]


class TestDeleting:
    def test_bodies_go_with_their_headers(self, it: Harness) -> None:
        batch = WriteBatch()
        for esn in range(1, 7):
            for log in (LOG, LogId(8), metadata_log_of(LOG)):
                put(batch, at(esn), LARGE, log=log, wave=1)
                put(batch, at(esn), LARGE, log=log, wave=2)
        it.write(batch)
        batch = WriteBatch()
        batch.delete_entries(LOG, at(2), at(3))
        batch.delete_entries(metadata_log_of(LOG), Lsn(0), at(5))
        it.write(batch)
        assert it.keys(BODY) == [keys.body_key(key) for key in it.keys(DATA)]
        assert len(it.keys(BODY)) == 2 * (4 + 6 + 1)
        for log, count in ((LOG, 4), (LogId(8), 6), (metadata_log_of(LOG), 1)):
            result = read_all(it.store, log)
            assert (len(result.entries), result.corrupt) == (count, [])
            assert all(body_of(image) == LARGE for _, image in result.entries)

    def test_puts_of_a_batch_outlive_its_deletes(self, it: Harness) -> None:
        first, second = WriteBatch(), WriteBatch()
        put(first, at(2), LARGE, wave=3)
        image = put(second, at(2), OTHER, wave=3)
        second.delete_entries(LOG, at(1), at(9))
        it.write(first, second)
        assert it.read(None).entries == [(at(2), image)]
        assert len(it.rows()) == 2

    def test_everything_is_there_after_reopening(self, it: Harness) -> None:
        batch = WriteBatch()
        images = [(at(esn), put(batch, at(esn), LARGE)) for esn in (1, 2)]
        it.write(batch)
        rows = it.rows()
        it.reopen()
        assert it.read(None).entries == images
        assert it.rows() == rows


def test_both_implementations_keep_the_same_rows(tmp_path: Path) -> None:
    kept = []
    for harness in (Harness(None), Harness(tmp_path)):
        for bodies in ([b"small", LARGE, OTHER, b""], [OTHER, b"x" * 4096, b"x" * 4032, LARGE]):
            batch = WriteBatch()
            for esn, body in enumerate(bodies, 1):
                put(batch, at(esn), body, wave=esn % 2)
                put(batch, at(esn), body, wave=3, flags=AMEND | BY_RECOVERY)
            batch.consolidate(LOG, at(1))
            harness.write(batch)
        batch = WriteBatch()
        batch.consolidate(LOG, at(3))
        batch.delete_entries(LOG, at(4), at(4))
        harness.write(batch)
        kept.append(harness.rows())
        harness.store.close()
    assert kept[0] == kept[1]
    assert {key[0] for key in kept[0]} == {DATA, BODY}
