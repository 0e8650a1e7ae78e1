"""The store in extents at the level of the store: what indexes its closed extents, and how it writes beside the store in RocksDB.

``python -m benchmarks.extent_store index DIRECTORY``: rows on copies in sorted tables of our own, as the store has them, and in RocksDB without a
write-ahead log. ``python -m benchmarks.extent_store writes DIRECTORY [--processes N]``: both stores, each turn's batch written beside a sync in a thread.
``python -m benchmarks.extent_store reads DIRECTORY``: readers of cold data of a store in extents, with threads that fetch and without, and how long the event
loop was held up meanwhile.

Figures are processor time of the process unless they are rates; a rate says what the disk did at that time, beside whatever else ran.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import rocksdict
from google_crc32c import value as crc32c

from benchmarks.percentiles import percentile
from logdevice_py.core.entry import EntryHeader, body_of, encode_entry, parse_header
from logdevice_py.core.ids import Generation, LogId, NodeId, shard_id
from logdevice_py.core.lsn import Esn, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.extents.opening import EXTENTS, open_extents
from storage_node.log_store.extents.real_disk import RealDisk
from storage_node.log_store.extents.rows import CopyRow, IndexTable, MemoryRows, encode_index, key_of
from storage_node.log_store.extents.sorted_table import SortedTable, write_table
from storage_node.log_store.extents.store import ExtentLogStore
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import Completion, ReadDone, ReadResult, ReadShard, WriteBatch
from storage_node.log_store.keys import data_bounds, data_key
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings
from storage_node.service import ShardService

ROWS: Final = 100_000
LOGS: Final = 100
READS: Final = 500
RANGE: Final = 64
SIZES: Final = ((1_000, 8), (10_000, 4), (100_000, 1), (900_000, 1))
"""(bytes of an entry, entries a turn)"""


def _made() -> list[tuple[int, int, CopyRow]]:
    """(log, lsn, row) in the order in which they are written."""
    return [
        (1 + number % LOGS, compose_lsn(1, 1 + number // LOGS), CopyRow(number, 1_000_000, 5, number * 600, 500, None))
        for number in range(ROWS)
    ]


def _measure_tables(directory: Path) -> dict[str, float]:
    made, disk = _made(), RealDisk(str(directory / "tables"))
    began = time.process_time()
    memory, rows = MemoryRows(), []
    for log, lsn, row in made:
        key = key_of(lsn, 1)
        memory.put(log, key, row)
        rows.append((log, key, row))
    noted = time.process_time()
    facts, packed = encode_index(rows, [], extent=5, salt=1, first=1, last=2, end=3)
    write_table(disk, "index", facts, packed)
    for log in {log for log, _, _ in rows}:
        memory.forget_through(log, ROWS)
    written = time.process_time()
    index = IndexTable(SortedTable(disk.open("index")))
    opened = time.process_time()
    for number in range(READS):
        first = compose_lsn(1, 1 + number * 7 % (ROWS // LOGS - RANGE))
        low, high = key_of(first, 0), key_of(first + RANGE, 0)
        assert sum(1 for _ in index.rows(1 + number % LOGS, low, high)) == RANGE
    read = time.process_time()
    return {
        "in memory, us a row": (noted - began) / ROWS * 1e6,
        "into files, us a row": (written - noted) / ROWS * 1e6,
        "bytes a row": disk.open("index").size() / ROWS,
        "open, ms": (opened - written) * 1e3,
        f"read of {RANGE} rows, us": (read - opened) / READS * 1e6,
    }


def _measure_rocksdb(directory: Path) -> dict[str, float]:
    made, path = _made(), directory / "rocksdb"
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    without_log = rocksdict.WriteOptions()
    setattr(without_log, "disable_wal", True)  # noqa: B010 - its stub says that it is a method
    database = rocksdict.Rdict(str(path), options=options)
    began = time.process_time()
    for at in range(0, ROWS, 100):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for log, lsn, row in made[at : at + 100]:
            place = b"%020d%020d%010d" % (row.block, row.offset, row.length)
            batch.put(data_key(log, lsn, False, 1), place)
        database.write(batch, without_log)
    noted = time.process_time()
    database.flush()
    written = time.process_time()
    database.close()
    database = rocksdict.Rdict(str(path), options=options)
    opened = time.process_time()
    for number in range(READS):
        first = compose_lsn(1, 1 + number * 7 % (ROWS // LOGS - RANGE))
        begin, end = data_bounds(1 + number % LOGS, first, first + RANGE - 1)
        reading = rocksdict.ReadOptions()
        reading.set_iterate_upper_bound(end)
        iterator, count = database.iter(reading), 0
        iterator.seek(begin)
        while iterator.valid():
            iterator.key(), iterator.value()
            count += 1
            iterator.next()
        assert count == RANGE, count
    read = time.process_time()
    size = sum(each.stat().st_size for each in path.glob("*.sst"))
    database.close()
    return {
        "in memory, us a row": (noted - began) / ROWS * 1e6,
        "into files, us a row": (written - noted) / ROWS * 1e6,
        "bytes a row": size / ROWS,
        "open, ms": (opened - written) * 1e3,
        f"read of {RANGE} rows, us": (read - opened) / READS * 1e6,
    }


def measure_index(directory: Path, rounds: int) -> None:
    """Print medians of both, taken in turns."""
    found: dict[str, list[dict[str, float]]] = {"tables": [], "rocksdb": []}
    for _ in range(rounds):
        for name, measure in (("tables", _measure_tables), ("rocksdb", _measure_rocksdb)):
            shutil.rmtree(directory / name, ignore_errors=True)
            found[name].append(measure(directory))
            shutil.rmtree(directory / name, ignore_errors=True)
    print(f"{ROWS} rows of {LOGS} logs, median of {rounds}")
    for what in found["tables"][0]:
        one, other = (statistics.median(each[what] for each in found[name]) for name in ("tables", "rocksdb"))
        print(f"{what:<28} tables {one:9.2f}   rocksdb {other:9.2f}   ratio {one / other:5.2f}")


# Writing


def _image_of(size: int) -> bytes:
    body = os.urandom(size)
    shard = shard_id(NodeId(0), 0)
    header = EntryHeader(LogId(1), Lsn(1), Timestamp(1), 1, (shard,), Esn(0), 1, 0, len(body), crc32c(body))
    return encode_entry(header, body)


def _write(kind: str, directory: str, size: int, per: int, seconds: float, queue: Any) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    settings = LogStoreSettings(free_space_min=0)
    store: Any = open_extents(directory, settings) if kind == "extents" else RocksLogStore(directory, settings)
    marker = ShardMarker(b"c" * 16, shard_id(NodeId(0), 0), Generation(1))
    assert store.adopt(marker, boot="b", now=Timestamp(1)) is Status.OK
    store.load()
    images = [_image_of(size) for _ in range(8)]
    sys.setswitchinterval(0.0002)
    syncing, chores = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    chore: Any = None
    pending: Any = None
    latencies = []
    count = 0
    began, processor = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        batch = WriteBatch()
        for _ in range(per):
            count += 1
            batch.put_entry(
                LogId(1), compose_lsn(1, count), by_recovery=False, wave=1, image=images[count % len(images)]
            )
        turn = time.perf_counter()
        while store.write([batch]) == [Status.OVERLOADED]:
            time.sleep(0.001)
        if pending is not None:
            assert pending.result() is Status.OK
        pending = syncing.submit(store.sync)
        latencies.append(time.perf_counter() - turn)
        if kind == "extents" and store.has_chores and (chore is None or chore.done()):
            work = store.next_chore()
            chore = None if work is None else chores.submit(work)
    pending.result()
    took, used = time.perf_counter() - began, time.process_time() - processor
    if chore is not None:
        chore.result()
    written = resource.getrusage(resource.RUSAGE_SELF).ru_oublock * 512
    store.abandon()
    shutil.rmtree(directory, ignore_errors=True)
    queue.put(
        (
            count * size / took / 1e6,
            used / count * 1e6,
            written / (count * size),
            percentile(latencies, 0.5) * 1e3,
            percentile(latencies, 0.99) * 1e3,
        )
    )


def measure_writes(directory: Path, processes: int, seconds: float, rounds: int) -> None:
    """Print medians of both stores, taken in turns."""
    for size, per in SIZES:
        found: dict[str, list[tuple[float, ...]]] = {"rocksdb": [], "extents": []}
        for _ in range(rounds):
            for kind, rows in found.items():
                queue: Any = multiprocessing.Queue()
                children = [
                    multiprocessing.Process(
                        target=_write, args=(kind, str(directory / f"{kind}{number}"), size, per, seconds, queue)
                    )
                    for number in range(processes)
                ]
                for child in children:
                    child.start()
                told = [queue.get() for _ in children]
                for child in children:
                    child.join()
                rates, *others = zip(*told, strict=True)
                rows.append((sum(rates), *(statistics.mean(each) for each in others)))
        for kind, rows in found.items():
            rate, used, written, middle, late = (statistics.median(each) for each in zip(*rows, strict=True))
            print(
                f"{size:>7} B, {per} a turn, {processes} processes, {kind:<8} {rate:7.1f} MB/s  {used:8.1f} us an entry  "
                f"{written:5.2f} bytes a byte  write and sync p50 {middle:6.2f} p99 {late:6.2f} ms",
                flush=True,
            )


# Reading


COLD_BYTES: Final = 192 << 20
COLD_ENTRY: Final = 10_000
COLD_LOGS: Final = 4
_MARKER: Final = ShardMarker(b"c" * 16, shard_id(NodeId(0), 0), Generation(1))


def _fill(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    store = open_extents(directory, LogStoreSettings(free_space_min=0))
    assert store.adopt(_MARKER, boot="b", now=Timestamp(1)) is Status.OK
    store.load()
    image = _image_of(COLD_ENTRY)
    for number in range(COLD_BYTES // COLD_ENTRY // 8):
        batch = WriteBatch()
        for each in range(8):
            log, lsn = LogId(1 + each % COLD_LOGS), compose_lsn(1, 1 + number * 2 + each // COLD_LOGS)
            batch.put_entry(log, lsn, by_recovery=False, wave=1, image=_of_log(image, log, lsn))
        assert store.write([batch]) == [Status.OK]
        if number % 100 == 99:
            assert store.sync() is Status.OK
            while (chore := store.next_chore()) is not None:
                chore()
    store.close()


def _of_log(image: bytes, log: LogId, lsn: Lsn) -> bytes:
    header = replace(parse_header(image), log=log, lsn=lsn)
    return encode_entry(header, body_of(image))


class _WatchedStore(ExtentLogStore):
    """Counts how often the system took the processor from a read because it had to wait. Time would say more of what else the machine does."""

    waits = 0

    def read(
        self, request: ReadShard, is_late: Callable[[], bool] | None = None, *, nowait: bool = False
    ) -> ReadResult:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        try:
            return super().read(request, is_late, nowait=nowait)
        finally:
            self.waits += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


async def _read_cold(directory: str, threads: int) -> tuple[float, ...]:
    settings = LogStoreSettings(free_space_min=0, cold_readers_max=threads)
    disk = RealDisk(str(Path(directory) / EXTENTS))
    store = _WatchedStore(disk, settings, where=directory, new_salt=partial(secrets.randbits, 64))
    assert store.adopt(_MARKER, boot="b", now=Timestamp(1)) is Status.OK
    contents = store.load()
    looking = RealDisk(str(Path(directory) / EXTENTS), locked=False)
    for name in looking.names():
        looking.drop_cache(name)
    service = ShardService(store, contents, settings, lambda: Timestamp(1))
    gaps: list[float] = []
    reading = asyncio.get_running_loop().create_task(_read_all(service))
    began = last = time.perf_counter()
    while not reading.done():
        await asyncio.sleep(0.001)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    took, count = last - began, reading.result()
    await service.close()
    return (
        count / took / 1e6,
        sum(gap > 0.01 for gap in gaps) / took,
        percentile(gaps, 0.99) * 1e3,
        max(gaps) * 1e3,
        float(service.metrics.warmed),
        float(store.waits),
    )


async def _read_all(service: ShardService) -> int:
    waiting: dict[int, asyncio.Future[ReadResult]] = {}

    def deliver(done: list[Completion]) -> None:
        for each in done:
            assert isinstance(each, ReadDone)
            waiting.pop(each.token).set_result(each.result)

    async def read(log: int) -> int:
        first, total, last = Lsn(0), 0, compose_lsn(2, 0)
        while first < last:
            asked = ReadShard(log, _MARKER.shard, LogId(log), first, last, 256 << 10)
            answer = waiting[log] = asyncio.get_running_loop().create_future()
            service.run([asked], deliver)
            result = await answer
            assert not result.corrupt
            total += sum(len(image) for _, image in result.entries)
            first = Lsn(result.through + 1)
        return total

    return sum(await asyncio.gather(*(read(1 + log) for log in range(COLD_LOGS))))


def measure_reads(directory: Path, rounds: int) -> None:
    """Print medians with threads and without, taken in turns."""
    at = str(directory / "cold")
    _fill(at)
    found: dict[int, list[tuple[float, ...]]] = {0: [], 2: []}
    for _ in range(rounds):
        for threads, rows in found.items():
            rows.append(asyncio.run(_read_cold(at, threads)))
    for threads, rows in found.items():
        rate, long, late, longest, fetches, waited = (statistics.median(each) for each in zip(*rows, strict=True))
        print(
            f"{threads} threads: {rate:6.1f} MB/s (of {min(rows)[0]:.1f} to {max(rows)[0]:.1f}), {long:5.1f} gaps of the loop over 10 ms a second, "
            f"gap p99 {late:6.2f} ms, longest {longest:6.2f}, {fetches:.0f} fetches, "
            f"{waited:.0f} times a read waited on the loop"
        )
    shutil.rmtree(at, ignore_errors=True)


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.extent_store", description=__doc__)
    parser.add_argument("what", choices=["index", "writes", "reads"])
    parser.add_argument("directory", type=Path, help="on the disk that is to be measured")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    if arguments.what == "index":
        measure_index(arguments.directory, arguments.rounds)
    elif arguments.what == "reads":
        measure_reads(arguments.directory, arguments.rounds)
    else:
        measure_writes(arguments.directory, arguments.processes, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
