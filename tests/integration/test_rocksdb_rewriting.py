"""Files of RocksDB that are damaged: replaced, or noticed before the store is opened."""

from __future__ import annotations

import glob
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from logdevice_py.core.entry import body_of, encode_header, parse_header
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.rocksdb.families import Families
from storage_node.log_store.rocksdb.unhurried import BrokenOffError, Unhurried
from storage_node.log_store.rocksdb.wal_check import find_lasting_damage, find_log_damage, find_wal_damage
from tests.integration.test_rocksdb_store import MARKER, SETTINGS, open_store
from tests.unit.storage_node.log_store.images import LOG, at, put, read_all


def flip(path: str, share: float = 0.4) -> None:
    with open(path, "r+b") as file:
        place = int(os.path.getsize(path) * share)
        file.seek(place)
        [byte] = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 16]))


@pytest.fixture
def images(tmp_path: Path) -> dict[Lsn, bytes]:
    """A store with 500 entries in a file of which a block is damaged; what was written."""
    store, _ = open_store(tmp_path)
    batch = WriteBatch()
    written = {at(esn): put(batch, at(esn), os.urandom(300)) for esn in range(1, 501)}
    assert store.write([batch]) == [Status.OK]
    store._families.reader(store.partitions[-1]).flush()
    store.close()
    flip(max(glob.glob(str(tmp_path / "db" / "*.sst")), key=os.path.getsize))
    return written


def restore(store: RocksLogStore, images: dict[Lsn, bytes], first: Lsn, last: Lsn) -> None:
    batch = WriteBatch()
    batch.restore(LOG, first, last)
    for lsn, image in images.items():
        if first <= lsn <= last:
            batch.put_again(LOG, lsn, by_recovery=False, wave=1, image=image)
    assert store.write([batch]) == [Status.OK]


def rewrite_all(store: RocksLogStore) -> None:
    while store.rewrite_damaged(Timestamp(1_000_000), 10_000):
        pass


def test_a_damaged_file_is_replaced_when_what_it_lost_is_restored(tmp_path: Path, images: dict[Lsn, bytes]) -> None:
    store, _ = open_store(tmp_path)
    [(first, last)] = read_all(store).corrupt
    restore(store, images, first, last)
    assert store.rewriter.suspects == store.partitions
    partition = store.partitions[0]
    # what is written while it is copied is not lost
    assert store.rewrite_damaged(Timestamp(1_000_000), 10_000)
    batch = WriteBatch()
    images[at(501)] = put(batch, at(501), b"later")
    batch.delete_entries(LOG, at(1), at(3))
    assert store.write([batch]) == [Status.OK]
    for esn in (1, 2, 3):
        del images[at(esn)]
    batch = WriteBatch()
    for esn in (4, 250, 500):
        before = parse_header(images[at(esn)])
        header = encode_header(replace(before, copyset=(*before.copyset, ShardId(1))))
        batch.put_header(LOG, at(esn), by_recovery=False, wave=1, header=header)
        images[at(esn)] = header + body_of(images[at(esn)])
    assert store.write([batch]) == [Status.OK]
    rewrite_all(store)
    for _ in range(2):
        result = read_all(store)
        assert (result.entries, result.corrupt) == (list(images.items()), [])
        assert store.family_of(partition) == f"{partition}.1"
        store.close()
        store, _ = open_store(tmp_path)
    store.close()


def test_a_damaged_file_stays_as_long_as_something_of_it_is_not_restored(
    tmp_path: Path, images: dict[Lsn, bytes]
) -> None:
    store, _ = open_store(tmp_path)
    [(first, last)] = read_all(store).corrupt
    restore(store, images, first, Lsn(last - 1))
    rewrite_all(store)
    assert store.rewriter.found == [(LOG, first, last)]
    assert read_all(store).corrupt == [(first, last)]
    restore(store, images, first, last)
    while store.rewrite_damaged(Timestamp(9_000_000), 10_000):
        pass
    assert read_all(store).corrupt == []
    store.close()


def test_what_is_stored_in_a_restored_range_before_its_file_is_replaced_is_copied_too(
    tmp_path: Path, images: dict[Lsn, bytes]
) -> None:
    store, _ = open_store(tmp_path)
    [(first, last)] = read_all(store).corrupt
    late, middle = Lsn(first + 2), Lsn((first + last) // 2)
    there = {lsn: image for lsn, image in images.items() if lsn != late}
    # no deletion hides the whole of the damaged block
    restore(store, there, first, middle)
    restore(store, there, Lsn(middle + 1), last)
    batch = WriteBatch()
    batch.put_entry(LOG, late, by_recovery=False, wave=1, image=images[late])
    assert store.write([batch]) == [Status.OK]
    rewrite_all(store)
    result = read_all(store)
    assert (result.entries, result.corrupt) == (list(images.items()), [])
    store.close()


def test_a_damaged_partition_that_is_dropped_holds_up_no_other(tmp_path: Path, images: dict[Lsn, bytes]) -> None:
    store, _ = open_store(tmp_path)
    [first] = store.partitions
    store.groups.begin_next(Timestamp(2))
    second = store.partitions[-1]
    batch = WriteBatch()
    put(batch, at(1), log=LogId(LOG + 1))
    assert store.write([batch]) == [Status.OK]
    store.rewriter.suspect(first)
    store.rewriter.suspect(second)
    batch = WriteBatch()
    batch.delete_entries(LOG, at(1), at(500))
    assert store.write([batch]) == [Status.OK]
    assert store.sync() is Status.OK
    while store.drop_next() is not None:
        pass
    assert store.rewriter.suspects == [second]
    store.rewriter.suspect(first)  # by a search that began before
    rewrite_all(store)
    assert store.rewriter.suspects == []
    assert store.family_of(second) == f"{second}.1"
    store.close()


def test_what_was_restored_and_is_damaged_again_is_restored_once_more(tmp_path: Path, images: dict[Lsn, bytes]) -> None:
    store, _ = open_store(tmp_path)
    before = set(glob.glob(str(tmp_path / "db" / "*.sst")))
    # so much that the file has many blocks
    restore(store, images, at(1), at(500))
    store._families.reader(store.partitions[0]).flush()
    [made] = set(glob.glob(str(tmp_path / "db" / "*.sst"))) - before
    flip(made, 0.5)
    rewrite_all(store)
    found = list(store.rewriter.found)
    assert found, "it waits"
    for _, low, high in found:
        restore(store, images, low, high)
    while store.rewrite_damaged(Timestamp(9_000_000), 10_000):
        pass
    result = read_all(store)
    assert (result.entries, result.corrupt) == (list(images.items()), [])
    store.close()


@pytest.mark.parametrize("before_the_switch", [True, False])
def test_a_crash_while_a_file_is_replaced(
    tmp_path: Path, images: dict[Lsn, bytes], before_the_switch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = open_store(tmp_path)
    [(first, last)] = read_all(store).corrupt
    restore(store, images, first, last)
    if before_the_switch:
        store.rewrite_damaged(Timestamp(1), 10_000)
    else:
        monkeypatch.setattr(Families, "replace", lambda *_: None)
        rewrite_all(store)
    store.sync()
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    shutil.copytree(tmp_path, copy)
    again, _ = open_store(copy)
    result = read_all(again)
    assert (result.entries, result.corrupt) == (list(images.items()), [])
    assert again.family_of(again.partitions[0]).endswith(".1") is not before_the_switch
    again.close()
    store.abandon()


class TestWriteAheadLog:
    @pytest.fixture
    def killed(self, tmp_path: Path) -> Path:
        """A store as a killed process leaves it, with 100 batches in its log, of which one is damaged."""
        store = RocksLogStore(str(tmp_path / "origin"), SETTINGS, boot="boot 1")
        store.adopt(MARKER, boot="boot 1", now=Timestamp(1))
        store.load()
        for esn in range(1, 101):
            batch = WriteBatch()
            put(batch, at(esn), b"x" * 1000)
            assert store.write([batch]) == [Status.OK]
        store.sync()
        assert store.find_damage_in_use() == ""
        shutil.copytree(tmp_path / "origin", tmp_path / "killed")
        store.close()
        return tmp_path / "killed"

    def test_damage_is_not_taken_for_the_end(self, killed: Path) -> None:
        wal = max(glob.glob(str(killed / "db" / "*.log")), key=os.path.getsize)
        flip(wal)
        with pytest.raises(LogDeviceError, match=r"write-ahead log .* is damaged: .*checksum"):
            RocksLogStore(str(killed), SETTINGS, boot="boot 1")

    def test_a_power_cut_may_have_torn_it(self, killed: Path) -> None:
        flip(max(glob.glob(str(killed / "db" / "*.log")), key=os.path.getsize))
        store = RocksLogStore(str(killed), SETTINGS, boot="boot 2")
        store.adopt(MARKER, boot="boot 2", now=Timestamp(2))
        store.load()
        count = len(read_all(store).entries)
        assert 20 < count < 60, "a prefix"
        store.close()

    @pytest.mark.parametrize("cut", [0, 1, 17, 5000])
    def test_an_incomplete_record_at_the_end_is_the_end(self, killed: Path, cut: int) -> None:
        wal = max(glob.glob(str(killed / "db" / "*.log")), key=os.path.getsize)
        os.truncate(wal, len(Path(wal).read_bytes().rstrip(b"\0")) - cut)
        assert find_wal_damage(str(killed / "db")) is None
        RocksLogStore(str(killed), SETTINGS, boot="boot 1").abandon()

    def test_every_flipped_byte_of_the_manifest_is_found(self, killed: Path) -> None:
        manifest = max(glob.glob(str(killed / "db" / "MANIFEST-*")))
        whole = Path(manifest).read_bytes()
        assert find_log_damage(manifest) is None
        missed = []
        for place in range(0, len(whole), 7):
            Path(manifest).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            if find_log_damage(manifest) is None:
                missed.append(place)
        assert len(missed) <= 2, "a length that points behind the end may pass for an incomplete record"

    def test_a_part_of_the_log_that_vanishes_meanwhile_hides_no_damage_of_another(
        self, killed: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        database = killed / "db"
        wal = max(glob.glob(str(database / "*.log")), key=os.path.getsize)
        names = ["000000.log", "MANIFEST-999999", *os.listdir(database)]
        monkeypatch.setattr(os, "listdir", lambda _: names)
        assert find_lasting_damage(str(database)) == ""
        flip(wal)
        assert "checksum" in find_lasting_damage(str(database))

    def test_the_check_of_an_open_store_pauses_between_blocks_and_can_be_broken_off(self, killed: Path) -> None:
        database = killed / "db"
        blocks = sum(-(-os.path.getsize(path) // (32 << 10)) for path in glob.glob(str(database / "*.log")))
        pauses: list[int] = []
        find_lasting_damage(str(database), lambda: pauses.append(1))
        assert len(pauses) >= min(blocks, 3)
        work = Unhurried(1)
        work.stop()
        with pytest.raises(BrokenOffError):
            find_lasting_damage(str(database), work.rest)
