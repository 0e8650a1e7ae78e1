"""Partitions of the RocksDB store with real files: crashes at every step of their coming and going, space that is given back, kills."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import rocksdict

from logdevice_py.core.ids import Generation, LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import HITS
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store import keys
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import Contents, LogMetadataKind, WriteBatch
from storage_node.log_store.keys import PARTITION_FIRST
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.rocksdb.families import BLOBS_MOVED, Families
from storage_node.log_store.settings import LogStoreSettings
from tests.integration.test_rocksdb_store import apply
from tests.unit.storage_node.log_store.images import LOG, SHARD, at, put, read_all

MARKER = ShardMarker(b"c" * 16, SHARD, Generation(1))
SETTINGS = LogStoreSettings(
    free_space_min=0,
    memtable_bytes=1 << 20,
    partition_duration_us=10 * SECOND,
    partition_drop_share_percent=100,
    directory_save_bytes=20_000,
)
FIRST = PARTITION_FIRST
START = 1_000 * SECOND
OTHER = LogId(8)


def open_store(directory: Path | str) -> tuple[RocksLogStore, Contents]:
    store = RocksLogStore(str(directory), SETTINGS)
    try:
        assert store.adopt(MARKER, boot="boot 1", now=Timestamp(START)) is Status.OK
        return store, store.load()
    except LogDeviceError:
        store.abandon()
        raise


def write(store: RocksLogStore, *lsns: Lsn, log: LogId = LOG, size: int = 100) -> None:
    batch = WriteBatch()
    for lsn in lsns:
        put(batch, lsn, os.urandom(size), log=log, timestamp=START)
    apply(store, batch)


def trim(store: RocksLogStore, last: Lsn, log: LogId = LOG) -> None:
    batch = WriteBatch()
    batch.delete_entries(log, Lsn(1), last)
    batch.put_log_metadata(log, LogMetadataKind.TRIM_POINT, str(last).encode())
    apply(store, batch)


def roll(store: RocksLogStore, times: int = 1) -> None:
    store.maintain(Timestamp(store._partitions.latest.created + times * 10 * SECOND))


def lsns(store: RocksLogStore, log: LogId = LOG) -> list[Lsn]:
    result = read_all(store, log)
    assert not result.corrupt
    return [lsn for lsn, _ in result.entries]


def copy_of(directory: Path, name: str) -> Path:
    """The files as a process that is killed at this moment leaves them."""
    copy = directory.parent / name

    def copy_file(source: str, target: str) -> None:
        # the files of dropped families go in the background
        with suppress(FileNotFoundError):
            shutil.copy2(source, target)

    shutil.copytree(directory, copy, copy_function=copy_file)
    return copy


def families_of(directory: Path) -> list[str]:
    return sorted(name for name in rocksdict.Rdict.list_cf(str(directory / "db")) if name.isdigit())


class TestCrash:
    """Each test copies the files at one moment and opens the copy."""

    def test_between_the_family_and_its_row(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        store._families.create(FIRST + 1)
        copy = copy_of(tmp_path / "shard", "killed")
        store.close()
        store, contents = open_store(copy)
        assert (store.partitions, families_of(copy)) == ([FIRST], [str(FIRST)])
        assert contents.highest == [(LOG, at(1))]
        roll(store)
        write(store, at(2))
        assert (store.partitions, lsns(store)) == ([FIRST, FIRST + 1], [at(1), at(2)])
        store.close()

    def test_between_the_row_that_drops_and_the_drop(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        roll(store)
        write(store, at(2))
        trim(store, at(1))
        copy = copy_of(tmp_path / "shard", "killed")
        assert families_of(tmp_path / "shard") == [str(FIRST), str(FIRST + 1)]
        store.close()
        store, contents = open_store(copy)
        assert families_of(copy) == [str(FIRST + 1)]
        assert (LOG, LogMetadataKind.TRIM_POINT, str(at(1)).encode()) in contents.log_metadata
        assert lsns(store) == [at(2)]
        store.close()

    def test_between_the_drop_and_the_removal_of_the_row(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        roll(store)
        write(store, at(2))
        trim(store, at(1))
        assert store.sync() is Status.OK
        store.maintain(Timestamp(START))
        assert families_of(tmp_path / "shard") == [str(FIRST + 1)]
        copy = copy_of(tmp_path / "shard", "killed")
        store.close()
        for _ in range(2):
            store, _ = open_store(copy)
            assert (store.partitions, lsns(store)) == ([FIRST + 1], [at(2)])
            assert store._families.metadata.get(keys.partition_key(FIRST)) is None
            store.close()

    def test_nothing_is_dropped_before_it_is_durable_that_it_may_go(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        roll(store)
        write(store, at(2))
        assert store.sync() is Status.OK
        covered = store._upkeep.sync_begins()
        trim(store, at(1))
        # a sync that began before the trim says nothing of it
        store._upkeep.synced(covered)
        store.maintain(Timestamp(START))
        assert families_of(tmp_path / "shard") == [str(FIRST), str(FIRST + 1)]
        assert store.sync() is Status.OK
        store.maintain(Timestamp(START))
        assert families_of(tmp_path / "shard") == [str(FIRST + 1)]
        store.close()

    @pytest.mark.parametrize("lost", [1, 2, 3, 4])
    def test_a_power_cut_takes_back_a_suffix_over_all_families(self, tmp_path: Path, lost: int) -> None:
        """The write-ahead log loses its last records: what is there must be what was written before them."""
        store, _ = open_store(tmp_path / "shard")
        sizes = []
        steps = [
            lambda: write(store, at(1)),
            lambda: roll(store),
            lambda: write(store, at(2)),
            lambda: trim(store, at(1)),
            lambda: write(store, at(3)),
        ]
        states = [[at(1)], [at(1)], [at(1), at(2)], [at(2)], [at(2), at(3)]]
        for step in steps:
            step()
            sizes.append(self._log_size(tmp_path / "shard"))
        copy = copy_of(tmp_path / "shard", "cut")
        store.close()
        os.truncate(self._log(copy), sizes[-1 - lost])
        store, contents = open_store(copy)
        assert lsns(store) == states[-1 - lost]
        trimmed = any(kind is LogMetadataKind.TRIM_POINT for _, kind, _ in contents.log_metadata)
        assert trimmed == (states[-1 - lost][0] != at(1))
        write(store, at(9))
        store.close()

    def _log(self, directory: Path) -> Path:
        return max((directory / "db").glob("*.log"))

    def _log_size(self, directory: Path) -> int:
        """With a few bytes of what follows: a record may end in zeros, and less than a head of one is no record."""
        return len(self._log(directory).read_bytes().rstrip(b"\0")) + 6


class TestDamage:
    def test_a_family_of_which_the_metadata_knows_nothing_is_not_touched(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        store._families.create(FIRST + 1)
        store._families.reader(FIRST + 1).put(keys.data_key(LOG, at(2), False, 1), b"x")
        store.close()
        for _ in range(2):
            with pytest.raises(LogDeviceError, match="of which the metadata knows nothing"):
                open_store(tmp_path / "shard")
        assert families_of(tmp_path / "shard") == [str(FIRST), str(FIRST + 1)]

    def test_a_family_that_is_missing_is_not_taken_for_empty(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        roll(store)
        write(store, at(2))
        store.close()
        self._drop(tmp_path / "shard", FIRST)
        with pytest.raises(LogDeviceError, match=f"partition {FIRST} of the store is missing"):
            open_store(tmp_path / "shard")

    def test_rows_that_overlap_are_damage(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1), at(5))
        roll(store)
        write(store, at(9))
        store._families.metadata[keys.directory_key(LOG, at(3), FIRST + 1)] = keys.directory_value(at(9), 0, 100)
        store.close()
        with pytest.raises(LogDeviceError, match=r"the directory of .* is damaged"):
            open_store(tmp_path / "shard")

    def test_a_store_without_rows_on_partitions_is_kept_as_if_written_now(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path / "shard")
        write(store, at(1))
        store.close()
        self._forget_row(tmp_path / "shard", FIRST)
        store, _ = open_store(tmp_path / "shard")
        assert (store.partitions, lsns(store)) == ([FIRST], [at(1)])
        assert store._partitions[FIRST].newest == START
        store.close()

    def _open_raw(self, directory: Path) -> rocksdict.Rdict:
        path = str(directory / "db")
        names = [name for name in rocksdict.Rdict.list_cf(path) if name != "default"]
        families = {name: rocksdict.Options(raw_mode=True) for name in names}
        return rocksdict.Rdict(path, options=rocksdict.Options(raw_mode=True), column_families=families)

    def _drop(self, directory: Path, number: int) -> None:
        database = self._open_raw(directory)
        database.drop_column_family(str(number))
        database.close()

    def _forget_row(self, directory: Path, number: int) -> None:
        database = self._open_raw(directory)
        family = database.get_column_family("metadata")
        del family[keys.partition_key(number)]
        family.close()
        database.close()


def used_bytes(directory: Path) -> int:
    used = 0
    for file in (directory / "db").iterdir():
        if file.suffix in (".sst", ".blob"):
            with contextlib.suppress(FileNotFoundError):  # files of dropped partitions go in the background
                used += file.stat().st_size
    return used


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what RocksDB's threads bring about."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def chore_of_rewriting(store: RocksLogStore, size: int) -> Callable[[], None]:
    """What rewrites a closed partition of which one log of two needs nothing any more."""
    for esn in range(1, 400):
        write(store, at(esn), size=size)
    write(store, at(1), log=OTHER)
    roll(store)
    write(store, at(1_000))
    trim(store, at(399))
    flush, rewrite = store.next_chore(), store.next_chore()
    assert flush is not None
    assert rewrite is not None
    flush()
    return rewrite


class TestSpace:
    @pytest.mark.parametrize("size", [1_000, 6_000])
    def test_a_drop_gives_the_space_back(self, tmp_path: Path, size: int) -> None:
        store, _ = open_store(tmp_path)
        for part in range(3):
            write(store, *(at(part * 1_000 + esn) for esn in range(1, 300)), size=size)
            roll(store)
            chore = store.next_chore()
            assert chore is not None
            chore()
        before = used_bytes(tmp_path)
        trim(store, at(1_999))
        assert store.sync() is Status.OK
        assert store._upkeep.to_drop == 2
        while store._upkeep.to_drop:
            store.maintain(Timestamp(START))
        wait_until(lambda: used_bytes(tmp_path) < before / 2)
        assert len(lsns(store)) == 299
        store.close()

    @pytest.mark.parametrize("size", [1_000, 6_000])
    def test_a_partition_that_one_log_needs_is_rewritten_without_the_others(self, tmp_path: Path, size: int) -> None:
        store, _ = open_store(tmp_path)
        for esn in range(1, 400):
            write(store, at(esn), size=size)
            if esn % 10 == 0:
                write(store, at(esn), log=OTHER, size=size)
        roll(store)
        write(store, at(1_000))
        flush = store.next_chore()
        assert flush is not None
        flush()
        before = used_bytes(tmp_path)
        kept = read_all(store, OTHER).entries
        trim(store, at(399))
        chore = store.next_chore()
        assert (chore is not None) == (size * 399 > 1 << 20)
        if chore is not None:
            chore()
            wait_until(lambda: used_bytes(tmp_path) < before / 4)
        assert store.next_chore() is None
        assert read_all(store, OTHER).entries == kept
        assert len(kept) == 39
        assert lsns(store) == [at(1_000)]
        store.close()

    def test_blobs_move_only_while_a_partition_is_rewritten(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Recovery and rebuilding still write to it, and what they write is merged beside appends."""
        store, _ = open_store(tmp_path)
        rewrite = chore_of_rewriting(store, size=6_000)
        given = []
        set_options = Families.set_options

        def note(self: Families, partition: int, options: dict[str, str]) -> None:
            given.append(options)
            set_options(self, partition, options)

        monkeypatch.setattr(Families, "set_options", note)
        rewrite()
        assert given == [{BLOBS_MOVED: "1.0"}, {BLOBS_MOVED: "0.0"}]
        store.close()

    def test_a_log_that_comes_to_the_next_partition_meanwhile_keeps_what_it_has(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        rewrite = chore_of_rewriting(store, size=9_000)

        class Emptied(set[int]):
            def discard(self, partition: int) -> None:
                """In the midst of making a row, where the other thread may have its turn."""
                super().discard(partition)
                rewrite()

        store._directory._emptied = Emptied(store._directory._emptied)
        write(store, at(2), log=OTHER)
        assert lsns(store, OTHER) == [at(1), at(2)]
        store.close()

    def test_chores_that_come_too_late_leave_everything_as_it_is(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        write(store, at(1))
        roll(store)
        write(store, at(2))
        roll(store)
        interrupted, closed = store.next_chore(), store.next_chore()
        assert interrupted is not None
        assert closed is not None
        before = HITS["log_store_chore_failed"]
        store._upkeep._families.interrupt()
        interrupted()
        assert HITS["log_store_chore_failed"] == before + 1
        store._upkeep._families.close(flush=False)
        closed()

    def test_a_store_is_closed_while_a_partition_is_rewritten(self, tmp_path: Path) -> None:
        store, _ = open_store(tmp_path)
        for base in range(0, 20_000, 1_000):
            write(store, *(at(base + esn) for esn in range(1, 1_001)), size=2_000)
        write(store, at(1), log=OTHER)
        roll(store)
        write(store, at(50_000))
        for _ in range(2):
            chore = store.next_chore()
            assert chore is not None
            if _ == 0:
                chore()
                trim(store, at(20_000))
        thread = threading.Thread(target=chore)
        thread.start()
        store.close()
        thread.join()
        store, _ = open_store(tmp_path)
        assert (lsns(store), lsns(store, OTHER)) == ([at(50_000)], [at(1)])
        store.close()


def test_no_number_of_partitions_takes_more_than_the_bound_of_files_and_memtables(tmp_path: Path) -> None:
    settings = LogStoreSettings(
        free_space_min=0,
        partition_duration_us=SECOND,
        memtables_bytes_max=4 << 20,
        open_files_max=40,
        partitions_max=60,
    )
    store = RocksLogStore(str(tmp_path), settings)
    assert store.adopt(MARKER, boot="boot 1", now=Timestamp(START)) is Status.OK
    store.load()
    for part in range(59):
        write(store, *(at(part * 1_000 + esn) for esn in range(1, 300)), size=1_000)
        store.maintain(Timestamp(START + (part + 1) * SECOND))
        # nothing but the bound has a thread of RocksDB's write them out
        wait_until(lambda: memtables_bytes(store) < 8 << 20)
    assert len(lsns(store)) == 59 * 299
    opened = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if _is_open(number)]
    assert sum(name.endswith((".sst", ".blob")) and str(tmp_path) in name for name in opened) <= 60
    store.close()


def memtables_bytes(store: RocksLogStore) -> int:
    return sum(
        store._families.reader(number).property_int_value("rocksdb.cur-size-all-mem-tables")
        for number in store.partitions
    )


def _is_open(number: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


CHURN = """
import itertools, sys
from storage_node.log_store.interface import LogMetadataKind
from tests.integration.test_rocksdb_partitions import *

store, _ = open_store(sys.argv[1])
for number in itertools.count(1):
    write(store, at(number), size=50 if number % 3 else 5000)
    write(store, at(number), log=OTHER)
    if number % 5 == 0:
        roll(store)
    if number % 7 == 0 and number > 40:
        trim(store, at(number - 40))
        trim(store, at(number - 20), log=OTHER)
    if number % 4 == 0:
        store.sync()
        store.maintain(Timestamp(0))
        print(number, flush=True)
"""


class TestKill:
    @pytest.mark.parametrize("lines", [3, 20, 61, 100])
    def test_partitions_that_come_and_go_lose_nothing_above_the_trim_point(self, tmp_path: Path, lines: int) -> None:
        child = subprocess.Popen([sys.executable, "-c", CHURN, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            synced = [int(child.stdout.readline()) for _ in range(lines)][-1]
        finally:
            child.send_signal(signal.SIGKILL)
            child.communicate()
        store, contents = open_store(tmp_path)
        trimmed = {log: int(value) for log, kind, value in contents.log_metadata if kind is LogMetadataKind.TRIM_POINT}
        ends = dict(contents.highest)
        for log in (LOG, OTHER):
            found = lsns(store, log)
            assert found[-1] == ends[log] >= at(synced)
            assert found == [Lsn(lsn) for lsn in range(max(at(1), trimmed.get(log, 0) + 1), ends[log] + 1)]
        store.close()
