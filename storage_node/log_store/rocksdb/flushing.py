"""Memtables written to files, without waiting for ever."""

from __future__ import annotations

import time
from typing import Any, Final

from logdevice_py.core.marks import hit

_TIMEOUT_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.002


def flush_to_files(family: Any) -> bool:
    """Write what the memtables of a family hold to files; to be called in another thread than the loop's.

    RocksDB reads a file that it has just written. When that file does not match its checksum, the memtable is kept and, since such an error
    does not stop our databases, nobody tries again before the family gets another memtable: RocksDB's own waiting for a flush then never ends.

    Returns:
        Whether all of it is in files. If not, it is still in memory and in the write-ahead log.

    Raises:
        RocksDBError: the database is closed, the disk failed, or writes are stopped because files have to be merged first.
    """
    end = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        family.flush(wait=False)
        again = time.monotonic() + _AGAIN_SECONDS
        while family.property_int_value("rocksdb.num-immutable-mem-table"):
            now = time.monotonic()
            if now >= end:
                return False
            if now >= again:
                hit("flush_repeated")
                break
            time.sleep(_LOOK_SECONDS)
        else:
            return True
