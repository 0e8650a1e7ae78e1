"""What it costs writers, and saves shards that pass over what others send, that header and body of large entries lie apart.

Each of three shards sends a third of what it holds. It reads an entry's header, and the body only if it sends the entry; as long as both were one
value it read all of them. Stores of both kinds are written and read here by what a shard writes and reads with.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import rocksdict
from google_crc32c import value as crc32c

from benchmarks.storage_figures.processes import load, say
from logdevice_py.core.entry import EntryHeader, encode_entry
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Esn, Lsn
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.interface import ReadShard
from storage_node.log_store.rocksdb.families import FamilyOptions, database_options
from storage_node.log_store.rocksdb.ranges import RangeReader
from storage_node.log_store.rocksdb.rows import put_copy
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.wanted import SingleCopy, Wants

_SETTINGS: Final = LogStoreSettings()
_BATCH_BYTES: Final = 1 << 20
_SHARDS: Final = (ShardId(0), ShardId(256), ShardId(512))
_BLOCK: Final = 20
"""Entries in a row of which the same shard sends all: blocks of sticky copysets are longer."""
_LOG: Final = LogId(1)
_FAMILY: Final = "1"


@dataclass(slots=True)
class Cost:
    """Of an entry. Processor time counts all threads of the process."""

    cpu_us: float
    disk_bytes: float

    def __str__(self) -> str:
        return f"{self.cpu_us:.1f} us, {self.disk_bytes:.0f} B"


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


def _open(directory: str) -> tuple[Any, Any]:
    families = {_FAMILY: FamilyOptions(_SETTINGS).of(_FAMILY)}
    database = rocksdict.Rdict(directory, options=database_options(_SETTINGS), column_families=families)
    return database, database.get_column_family(_FAMILY)


def _image(lsn: int, body: bytes, crc: int) -> bytes:
    first = lsn // _BLOCK % len(_SHARDS)
    copyset = _SHARDS[first:] + _SHARDS[:first]
    header = EntryHeader(_LOG, Lsn(lsn), Timestamp(lsn), 1, copyset, Esn(0), 1, 0, len(body), crc)
    return encode_entry(header, body)


def _write(directory: str, size: int, count: int, apart_bytes_min: int) -> Cost:
    database, family = _open(directory)
    handle = database.get_column_family_handle(_FAMILY)
    body = os.urandom(size)
    crc = crc32c(body)
    a_batch = max(1, _BATCH_BYTES // size)
    meter = _Meter(count)
    for first in range(1, count + 1, a_batch):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for lsn in range(first, min(first + a_batch, count + 1)):
            put_copy(batch, keys.data_key(_LOG, lsn, False, 1), _image(lsn, body, crc), handle, apart_bytes_min)
        database.write(batch)
        database.flush_wal(True)
    family.flush()
    cost = meter.written()
    del handle
    _close(database, family)
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


def _scan(directory: str, count: int, wants: Wants | None) -> Cost:
    """Read the whole log, in pieces as a shard does, with cold files."""
    _forget(directory)
    database, family = _open(directory)

    def iterator(_: int, begin: bytes, end: bytes) -> Any:
        options = rocksdict.ReadOptions()
        options.set_iterate_lower_bound(begin)
        options.set_iterate_upper_bound(end)
        return family.iter(options)

    reader = RangeReader(iterator, lambda _, key: family.get(key), lambda _, first, last: [(1, first, last)])
    meter, position, seen, last = _Meter(count), Lsn(1), 0, Lsn(count)
    while position <= last:
        request = ReadShard(0, _SHARDS[0], _LOG, position, last, _SETTINGS.disk_read_bytes_max, wants=wants)
        result = reader.read(request)
        seen += len(result.entries)
        position = Lsn(result.through + 1)
    assert seen == count, (seen, count)
    cost = meter.read()
    _close(database, family)
    return cost


def measure_copyset_index() -> None:
    """Report for several sizes of entries."""
    say(f"an entry's share, of writing all, of reading all, and of reading a third; {load()}")
    single_copy = SingleCopy(_SHARDS[0], frozenset(), len(_SHARDS))
    for size, count in ((100, 200_000), (1_000, 60_000), (4_096, 20_000), (64 << 10, 2_000), (900_000, 200)):
        for name, apart_bytes_min in (("together", sys.maxsize), ("apart", _SETTINGS.blob_bytes_min)):
            directory = tempfile.mkdtemp(prefix="copyset-index-")
            try:
                written = _write(directory, size, count, apart_bytes_min)
                whole, third = _scan(directory, count, None), _scan(directory, count, single_copy)
            finally:
                shutil.rmtree(directory)
            say(f"{size} bytes, {name}: written {written}; all read {whole}; a third read {third}")
