"""Large entries on RocksDB: what is read of them from files, and what becomes of their bodies."""

from __future__ import annotations

import glob
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard, WriteBatch
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.rocksdb.warmer import Warmer
from storage_node.log_store.wanted import SingleCopy, Wants, no_body
from tests.integration.test_rocksdb_rewriting import flip, restore, rewrite_all
from tests.integration.test_rocksdb_store import apply, open_store
from tests.unit.storage_node.log_store.images import LAST, LOG, SHARD, at, image_of, read_all

OTHERS = (ShardId(2 << 8), ShardId(1 << 8))
COUNT = 300
BLOCK = 20
"""Entries in a row that the same shard sends."""
SIZE = 32 << 10
TOTAL = COUNT * SIZE
SINGLE_COPY = SingleCopy(SHARD, frozenset(), 3)


def is_sent(esn: int) -> bool:
    return esn // BLOCK % 3 == 0


def copyset_of(esn: int) -> tuple[int, ...]:
    return (SHARD, *OTHERS) if is_sent(esn) else (*OTHERS, SHARD)


def fill(store: RocksLogStore, count: int = COUNT, size: int = SIZE, first: int = 1) -> dict[Lsn, bytes]:
    """Write entries to files; a third of them this shard is to send."""
    images = {}
    for esn in range(first, first + count):
        batch = WriteBatch()
        images[at(esn)] = image_of(at(esn), os.urandom(size), copyset=copyset_of(esn))
        batch.put_entry(LOG, at(esn), by_recovery=False, wave=1, image=images[at(esn)])
        apply(store, batch)
    family(store).flush()
    return images


def family(store: RocksLogStore) -> Any:
    return store._families.reader(store.partitions[-1])


def bytes_read(pid: int | str = "thread-self") -> int:
    """What a process, or this thread alone, has read from files, in the page cache or not."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def read(store: RocksLogStore, wants: Wants | None, first: Lsn = Lsn(1), last: Lsn = LAST) -> ReadResult:
    return store.read(ReadShard(1, SHARD, LOG, first, last, 1 << 30, 1 << 20, wants=wants))


class TestWhatIsRead:
    @pytest.fixture
    def images(self, tmp_path: Path) -> dict[Lsn, bytes]:
        store, _ = open_store(tmp_path)
        images = fill(store)
        store.close()
        return images

    @pytest.mark.parametrize(("wants", "share"), [(None, 1.0), (SINGLE_COPY, 1 / 3), (no_body, 0.0)])
    def test_bodies_that_others_send_are_not_read(
        self, tmp_path: Path, images: dict[Lsn, bytes], wants: Wants | None, share: float
    ) -> None:
        store, _ = open_store(tmp_path)
        before = bytes_read()
        result = read(store, wants)
        took = bytes_read() - before
        assert [lsn for lsn, _ in result.entries] == list(images)
        for lsn, image in result.entries:
            wanted = wants is None or wants(image)
            assert images[lsn] == image if wanted else lacks_body(image) and images[lsn].startswith(image)
        assert share * TOTAL <= took + TOTAL / 50 <= share * TOTAL + TOTAL / 10
        store.close()

    def test_the_last_header_is_read_alone(self, tmp_path: Path, images: dict[Lsn, bytes]) -> None:
        store, _ = open_store(tmp_path)
        read(store, no_body)
        before = bytes_read()
        result = store.read_last(ReadLast(1, SHARD, LOG, Lsn(1), LAST, True, no_body))
        assert [lsn for lsn, _ in result.entries] == [at(COUNT)]
        assert bytes_read() - before < SIZE
        store.close()

    @pytest.mark.parametrize(("wants", "share"), [(None, 1.0), (SINGLE_COPY, 1 / 3), (no_body, 0.0)])
    async def test_only_what_is_wanted_is_read_ahead(
        self, tmp_path: Path, images: dict[Lsn, bytes], wants: Wants | None, share: float
    ) -> None:
        store, _ = open_store(tmp_path)
        name = store.family_of(store.partitions[-1])
        warmer = Warmer(str(tmp_path / "db"), str(tmp_path / "empty"))
        assert await warmer.warm(name, LOG, at(COUNT), LAST, 1, no_body) is not None
        assert warmer._process is not None
        before = bytes_read(warmer._process.pid)
        assert await warmer.warm(name, LOG, at(1), at(COUNT), 1 << 30, wants) == at(COUNT)
        took = bytes_read(warmer._process.pid) - before
        assert share * TOTAL <= took + TOTAL / 50
        assert took <= share * TOTAL + TOTAL / 2, "tables are read ahead in large pieces"
        await warmer.close()
        store.close()


class TestFormat:
    def test_a_store_of_an_earlier_version_is_read(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        images = fill(store, 50, 6000)
        # as it was written before: header and body in one value
        group = rocksdict.WriteBatch(raw_mode=True)
        handle = store._families.handles[store.partitions[-1]]
        for lsn, image in images.items():
            key = keys.data_key(LOG, lsn, False, 1)
            group.put(key, image, handle)
            group.delete(keys.body_key(key), handle)
        store._families.database.write(group)
        family(store).flush()
        del group, handle
        store.close()
        store, contents = open_store(tmp_path)
        assert contents.highest == [(LOG, at(50))]
        for wants in (None, SINGLE_COPY, no_body):
            assert read(store, wants).entries == list(images.items())
        store.close()

    def test_no_body_is_in_a_table_file(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        fill(store)
        measured = store.view.measure()
        assert measured.table_file_bytes < TOTAL / 50
        assert measured.blob_file_bytes >= TOTAL
        store.close()


def test_compaction_of_an_open_partition_leaves_bodies_where_they_are(tmp_path: Path) -> None:
    """To take along those of the oldest quarter of the files writes that much of the partition anew, each time: appends wait for the disk meanwhile."""
    store, _ = open_store(tmp_path)
    for number in range(8):
        fill(store, 20, 6000, first=1 + 20 * number)
    bodies = set(glob.glob(str(tmp_path / "db" / "*.blob")))
    assert len(bodies) >= 8
    family(store).compact_range(None, None)
    assert set(glob.glob(str(tmp_path / "db" / "*.blob"))) == bodies
    store.close()


class TestDamagedFiles:
    @pytest.fixture
    def images(self, tmp_path: Path) -> dict[Lsn, bytes]:
        store, _ = open_store(tmp_path)
        images = fill(store, 1000, 4200)
        family(store).compact_range(None, None)
        store.close()
        return images

    def test_a_damaged_body_is_told_for_itself_and_restored(self, tmp_path: Path, images: dict[Lsn, bytes]) -> None:
        flip(max(glob.glob(str(tmp_path / "db" / "*.blob")), key=os.path.getsize))
        store, _ = open_store(tmp_path)
        assert read(store, no_body).corrupt == []
        [(lsn, last)] = read(store, None).corrupt
        assert lsn == last
        assert len(read(store, None).entries) == len(images) - 1
        restore(store, images, lsn, lsn)
        assert store.rewriter.suspects == [], "it is hidden for good"
        assert read(store, None).entries == list(images.items())
        store.close()

    def test_a_file_in_which_the_places_of_bodies_are_damaged_is_replaced(
        self, tmp_path: Path, images: dict[Lsn, bytes]
    ) -> None:
        # bodies come before headers
        flip(max(glob.glob(str(tmp_path / "db" / "*.sst")), key=os.path.getsize), 0.1)
        store, _ = open_store(tmp_path)
        headers = read(store, no_body)
        assert (len(headers.entries), headers.corrupt) == (len(images), [])
        [(first, last)] = read(store, None).corrupt
        assert 50 < last - first < 900, "a block"
        store.rewriter.suspect(store.partitions[0])
        rewrite_all(store)
        [(_, low, high)] = store.rewriter.found
        assert (low, high - last) in [(first, 0), (first, 1)], "it waits"
        restore(store, images, low, high)
        partition = store.partitions[0]
        assert store.rewriter.suspects == [partition]
        while store.rewrite_damaged(Timestamp(9_000_000), 100_000):
            pass
        assert store.family_of(partition) == f"{partition}.1"
        result = read(store, None)
        assert (result.entries, result.corrupt) == (list(images.items()), [])
        assert not store.rewriter.find_damaged()
        store.close()

    def test_what_is_written_while_a_file_is_replaced_takes_its_body_along(
        self, tmp_path: Path, images: dict[Lsn, bytes]
    ) -> None:
        flip(max(glob.glob(str(tmp_path / "db" / "*.sst")), key=os.path.getsize), 0.8)
        store, _ = open_store(tmp_path)
        [(first, last)] = read_all(store).corrupt
        restore(store, images, first, last)
        partition = store.partitions[0]
        assert store.rewrite_damaged(Timestamp(1_000_000), 10_000)
        batch = WriteBatch()
        images[at(1)] = image_of(at(1), os.urandom(5000), wave=2)
        batch.put_entry(LOG, at(1), by_recovery=False, wave=2, image=images[at(1)])
        batch.delete_entries(LOG, at(2), at(9))
        assert store.write([batch]) == [Status.OK]
        for esn in range(2, 10):
            del images[at(esn)]
        while store.rewrite_damaged(Timestamp(1_000_000), 10_000):
            pass
        assert store.family_of(partition) == f"{partition}.1"
        assert read(store, None).entries == list(images.items())
        deleted = keys.body_key(keys.data_key(LOG, at(2), False, 1))
        assert store._families.get(partition, deleted) is None
        store.close()

    def test_bodies_without_headers_and_headers_without_bodies_when_a_file_is_replaced(
        self, tmp_path: Path, images: dict[Lsn, bytes]
    ) -> None:
        store, _ = open_store(tmp_path)
        partition = store.partitions[0]
        family(store).delete(keys.data_key(LOG, at(3), False, 1))
        family(store).delete(keys.body_key(keys.data_key(LOG, at(4), False, 1)))
        store.rewriter.suspect(partition)
        rewrite_all(store)
        assert store.family_of(partition) == f"{partition}.1"
        garbage = keys.body_key(keys.data_key(LOG, at(3), False, 1))
        assert store._families.get(partition, garbage) is None, "nothing leads to it"
        result = read(store, None)
        assert result.corrupt == [(at(4), at(4))]
        assert len(result.entries) == len(images) - 2
        store.close()


def test_the_bodies_of_a_trimmed_log_go_when_a_partition_is_rewritten(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    fill(store, 100)
    partition = store.partitions[0]
    # a body that nothing leads to, of a log that the partition has nothing of
    garbage = b"b" + struct.pack(">QQBI", 1 << 40, 5, 0, 1)
    family(store).put(garbage, b"garbage" * 1000)
    batch = WriteBatch()
    other = image_of(at(1), b"other" * 1000, log=LOG + 1)  # type: ignore[arg-type]
    batch.put_entry(LOG + 1, at(1), by_recovery=False, wave=1, image=other)  # type: ignore[arg-type]
    assert store.write([batch]) == [Status.OK]
    store.groups.settle(partition, Timestamp(2_000_000))
    chore = store.next_chore()
    assert chore is not None
    chore()
    batch = WriteBatch()
    batch.delete_entries(LOG, Lsn(0), at(100))
    assert store.write([batch]) == [Status.OK]
    chore = store.next_chore()
    assert chore is not None
    chore()
    assert store._families.get(partition, garbage) is None
    assert store._families.size_of(partition) < 100_000
    assert read_all(store, LOG + 1).entries == [(at(1), other)]  # type: ignore[arg-type]
    store.close()
