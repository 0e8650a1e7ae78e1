"""What an index of copysets beside the entries would cost writers, and save shards that pass over what others send.

An entry's key leads to its header and body; the index has the same keys, and headers only. Shards of three that send a third of what they hold each
read either every entry and drop two thirds, or the index, and the entries that they send.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import rocksdict

from benchmarks.storage_figures.processes import load, say
from storage_node.log_store import keys
from storage_node.log_store.rocksdb.families import FamilyOptions, database_options
from storage_node.log_store.settings import LogStoreSettings

_HEADER: Final = 64
_BATCH: Final = 100
_SHARE: Final = 3
_BLOCK: Final = 20
"""Entries in a row of which the same shard sends all: blocks of sticky copysets are longer."""
_LOG: Final = 1


@dataclass(slots=True)
class Cost:
    """Of an entry. Processor time counts all threads of the process."""

    cpu_us: float
    disk_bytes: float


class _Meter:
    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._cpu, self._read, self._written = time.process_time(), *_disk_bytes()

    def read(self) -> Cost:
        return Cost(self._cpu_us(), (_disk_bytes()[0] - self._read) / self._entries)

    def written(self) -> Cost:
        return Cost(self._cpu_us(), (_disk_bytes()[1] - self._written) / self._entries)

    def _cpu_us(self) -> float:
        return (time.process_time() - self._cpu) * 1e6 / self._entries


def _disk_bytes() -> tuple[int, int]:
    """Read from disks and written to them by this process."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())
    return int(lines["read_bytes"]), int(lines["write_bytes"])


def _open(directory: str) -> tuple[Any, Any, Any]:
    settings = LogStoreSettings()
    families = {name: FamilyOptions(settings).of(name) for name in ("1", "index")}
    database = rocksdict.Rdict(directory, options=database_options(settings), column_families=families)
    return database, database.get_column_family("1"), database.get_column_family("index")


def _write(directory: str, size: int, count: int, *, index: bool) -> Cost:
    database, entries, headers = _open(directory)
    handle, index_handle = (database.get_column_family_handle(name) for name in ("1", "index"))
    noise = os.urandom(size)
    meter = _Meter(count)
    for first in range(1, count + 1, _BATCH):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for lsn in range(first, first + _BATCH):
            key, image = keys.data_key(_LOG, lsn, False, 1), lsn.to_bytes(8, "big") + noise[8:]
            batch.put(key, image, handle)
            if index:
                batch.put(key, image[:_HEADER], index_handle)
        database.write(batch)
        database.flush_wal(True)
    entries.flush()
    headers.flush()
    cost = meter.written()
    _close(database, entries, headers)
    return cost


def _close(*parts: Any) -> None:
    for part in reversed(parts):
        part.close()


def _forget(directory: str) -> None:
    for path in Path(directory).iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _sends(lsn: int) -> bool:
    return lsn // _BLOCK % _SHARE == 0


def _scan(directory: str, count: int, *, index: bool) -> Cost:
    """Read what the shard sends."""
    _forget(directory)
    database, entries, headers = _open(directory)
    meter, sent = _Meter(count), 0
    iterator = (headers if index else entries).iter()
    iterator.seek(keys.log_begin(_LOG))
    while iterator.valid():
        key, value = iterator.key(), iterator.value()
        if _sends(keys.split_data_key(key)[0]):
            sent += len(entries.get(key) if index else value)
        iterator.next()
    assert sent
    cost = meter.read()
    del iterator
    _close(database, entries, headers)
    return cost


def measure_copyset_index() -> None:
    """Report for several sizes of entries."""
    say(f"an entry's share, of writing all and of reading a third; {load()}")
    for size, count in ((100, 200_000), (1_000, 60_000), (4_000, 20_000), (64 << 10, 2_000)):
        written, read = {}, {}
        for index in (False, True):
            directory = tempfile.mkdtemp(prefix="copyset-index-")
            try:
                written[index] = _write(directory, size, count, index=index)
                read[index] = _scan(directory, count, index=index)
            finally:
                shutil.rmtree(directory)
        say(f"{size} bytes: written {_both(written[False], written[True])}; read {_both(read[False], read[True])}")


def _both(without: Cost, with_index: Cost) -> str:
    return (
        f"{without.cpu_us:.1f} us and {without.disk_bytes:.0f} bytes without, {with_index.cpu_us:.1f} us and "
        f"{with_index.disk_bytes:.0f} bytes with the index"
    )
