"""Sorted tables: files of rows in the order of their keys, written once and never changed. Recorded in `tests/golden/extents.txt`.

A table::

    8s magic                                     "LDTABLE1"
    chunks of about CHUNK_BYTES:                 msgpack [key, value, key, value, ...]
    index: msgpack [facts, [[first key, offset, length, crc32c] for each chunk]]
    u64 offset of the index  u32 length  u32 crc32c of the index  u32 crc32c of the 16 bytes before  8s magic

`facts` is a map of whoever writes the table. A table counts when it is whole; it is written under another name first.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final

import msgpack
from google_crc32c import value as crc32c

from storage_node.log_store.extents.disk import File, ReadMode, StoreDisk, read_file

CHUNK_BYTES: Final = 16 << 10
_MAGIC: Final = b"LDTABLE1"
_TAIL: Final = struct.Struct(">QII")
_CRC: Final = struct.Struct(">I")
_TAIL_SIZE: Final = _TAIL.size + _CRC.size + len(_MAGIC)
_OWN_CACHE_BYTES: Final = 256 << 10
_ROW_BYTES: Final = 100
"""About what a key and a value in memory take besides their bytes."""
_WRITE_BYTES: Final = 256 << 10
NEW: Final = "new-"
"""Begin of the name of a table that is being written."""


class BadTableError(Exception):
    """A table, or a part of it, is not what was written."""


def write_table(disk: StoreDisk, name: str, facts: dict[str, Any], rows: Iterable[tuple[bytes, bytes]]) -> None:
    """Write a table, durably, in place of one of that name. In any thread.

    Args:
        rows: by ascending key.

    Raises:
        DiskError: it is not there, or not durably.
    """
    file = disk.create(NEW + name, 0)
    writer = _Writer(file)
    writer.put(_MAGIC)
    index: list[tuple[bytes, int, int, int]] = []
    chunk: list[bytes] = []
    size = 0
    for key, value in rows:
        chunk += (key, value)
        size += len(key) + len(value)
        if size >= CHUNK_BYTES:
            index.append(writer.put_chunk(chunk))
            chunk, size = [], 0
    if chunk:
        index.append(writer.put_chunk(chunk))
    packed: bytes = msgpack.packb((facts, index))
    tail = _TAIL.pack(writer.at, len(packed), crc32c(packed))
    writer.put(packed + tail + _CRC.pack(crc32c(tail)) + _MAGIC)
    writer.flush()
    file.sync(file.mark())
    disk.rename(NEW + name, name)
    disk.sync_names()


class _Writer:
    def __init__(self, file: File) -> None:
        self.at = 0
        self._file = file
        self._waiting: list[bytes] = []
        self._flushed = 0

    def put(self, data: bytes) -> None:
        self._waiting.append(data)
        self.at += len(data)
        if self.at - self._flushed >= _WRITE_BYTES:
            self.flush()

    def put_chunk(self, chunk: list[bytes]) -> tuple[bytes, int, int, int]:
        packed: bytes = msgpack.packb(chunk)
        row = chunk[0], self.at, len(packed), crc32c(packed)
        self.put(packed)
        return row

    def flush(self) -> None:
        if self._waiting:
            self._file.write(self._waiting, self._flushed)
        self._waiting, self._flushed = [], self.at


class ReadCache:
    """What was read from tables last, in memory, of all tables of a store together. Of one thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._held: dict[tuple[int, Any], tuple[Any, int]] = {}
        """By (table, what of it), what was asked for last at the end: (what was read, bytes)."""
        self._tables = count(1)

    def new_table(self) -> int:
        """A number for a table. In any thread."""
        return next(self._tables)

    def get(self, key: tuple[int, Any]) -> Any:
        """What was put under a key; None: it is not there any more."""
        found = self._held.pop(key, None)
        if found is None:
            return None
        self._held[key] = found
        return found[0]

    def put(self, key: tuple[int, Any], value: Any, size: int) -> None:
        """Keep something; what was not asked for for longest goes."""
        held = self._held
        held[key] = value, size
        self._bytes += size
        while self._bytes > self._bytes_max and len(held) > 1:
            self._bytes -= held.pop(next(iter(held)))[1]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
        self._bytes = 0


class SortedTable:
    """A table that is read. Chunks that were read last are kept in memory."""

    __slots__ = ("_file", "_first_keys", "_mode", "_places", "cache", "facts", "number", "size")

    def __init__(self, file: File, mode: ReadMode | None = None, cache: ReadCache | None = None) -> None:
        """
        Args:
            mode: whether rows may wait for the disk; None: they may.
            cache: of the store, for a table that its own thread reads; None: a small one of its own.

        Raises:
            BadTableError: it is not whole.
            DiskError: it cannot be read.
        """
        self._file = file
        self._mode = mode
        self.size = file.size()
        tail = file.read(max(0, self.size - _TAIL_SIZE), _TAIL_SIZE)
        if len(tail) < _TAIL_SIZE or tail[-len(_MAGIC) :] != _MAGIC:
            raise BadTableError(f"{file.name} does not end as a table does")
        if crc32c(tail[: _TAIL.size]) != _CRC.unpack_from(tail, _TAIL.size)[0]:
            raise BadTableError(f"the end of {file.name} does not match its checksum")
        offset, length, crc = _TAIL.unpack_from(tail)
        packed = file.read(offset, length)
        if len(packed) != length or crc32c(packed) != crc:
            raise BadTableError(f"the index of {file.name} does not match its checksum")
        self.facts, index = msgpack.unpackb(packed, strict_map_key=False)
        self._first_keys: list[bytes] = [row[0] for row in index]
        self._places: list[tuple[int, int, int]] = [(row[1], row[2], row[3]) for row in index]
        self.cache = cache or ReadCache(_OWN_CACHE_BYTES)
        self.number = self.cache.new_table()
        """Under which the cache has what was read from here."""

    def _chunk(self, at: int) -> tuple[list[bytes], list[bytes]]:
        """Keys and values of a chunk. BadTableError, DiskError."""
        found: tuple[list[bytes], list[bytes]] | None = self.cache.get((self.number, at))
        if found is None:
            offset, length, crc = self._places[at]
            packed = read_file(self._file, offset, length, self._mode)
            if len(packed) != length or crc32c(packed) != crc:
                raise BadTableError(f"{self._file.name} does not match its checksum at byte {offset}")
            flat = msgpack.unpackb(packed)
            found = flat[::2], flat[1::2]
            self.cache.put((self.number, at), found, length + _ROW_BYTES * len(found[0]))
        return found

    def get(self, key: bytes) -> bytes | None:
        """The value of a key.

        Raises:
            BadTableError: it cannot be told.
            DiskError: it cannot be read.
        """
        at = bisect_right(self._first_keys, key) - 1
        if at < 0:
            return None
        keys, values = self._chunk(at)
        place = bisect_left(keys, key)
        return values[place] if place < len(keys) and keys[place] == key else None

    def floor(self, key: bytes) -> bytes | None:
        """The greatest key that is not above one; None without any. BadTableError, DiskError as of `get`."""
        at = bisect_right(self._first_keys, key) - 1
        if at < 0:
            return None
        keys, _ = self._chunk(at)
        return keys[bisect_right(keys, key) - 1]

    def rows(self, begin: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) in [begin, end), ascending; None: to the end.

        Raises:
            BadTableError: some cannot be told.
            DiskError: some cannot be read.
        """
        for at in range(max(0, bisect_right(self._first_keys, begin) - 1), len(self._places)):
            if end is not None and self._first_keys[at] >= end:
                return
            keys, values = self._chunk(at)
            low = bisect_left(keys, begin)
            high = len(keys) if end is None else bisect_left(keys, end)
            for place in range(low, high):
                yield keys[place], values[place]

    def rows_backwards(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The same, descending."""
        for at in range(bisect_left(self._first_keys, end) - 1, -1, -1):
            keys, values = self._chunk(at)
            low, high = bisect_left(keys, begin), bisect_left(keys, end)
            for place in range(high - 1, low - 1, -1):
                yield keys[place], values[place]
            if self._first_keys[at] < begin:
                return
