"""A process that reads ranges of logs for no other purpose than to have them in the page cache afterwards.

Reading from disk holds the interpreter of the process that asks, in threads too. ``python -m storage_node.log_store.rocksdb.warming <database>
<empty directory>`` takes requests from standard input (``family log first last bytes bodies``, one a line) and answers each with the last LSN
that it read. `bodies`: of which entries the body is wanted, see `encode_wants`.

It opens the database anew for each request, for reading only, with the one column family that it needs. What it does not do, and why:
  - It is no secondary of RocksDB, which can be kept open while the database changes: a secondary that reads a value from a blob file
    uses memory that is not its own any more, and dies sooner or later.
  - It does not read the write-ahead log: what lies there is in the memory of the node. An empty directory is given out as the place of
    the log.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final, TextIO

import rocksdict

from logdevice_py.core.entry import lacks_body
from storage_node.log_store import keys
from storage_node.log_store.rocksdb.families import RocksDBError
from storage_node.log_store.wanted import Wants, decode_wants

_NICENESS: Final = 10
"""Where processors are short, nodes go first: who reads from the disk can wait, appends should not."""


def warm(database: str, empty: str, requests: TextIO, answers: TextIO) -> None:
    """Serve until the requests end. Files that go while they are read end an answer early, they do no harm.

    RocksDBError where there is no database.
    """
    rocksdict.Rdict.list_cf(database)
    for line in requests:
        name, *numbers, word = line.split()
        log, first, last, size = map(int, numbers)
        try:
            through = _read(database, empty, name, log, first, last, size, decode_wants(word))
        except RocksDBError:
            through = last
        answers.write(f"{through}\n")
        answers.flush()


def _read(database: str, empty: str, name: str, log: int, first: int, last: int, size: int, wants: Wants | None) -> int:
    """Read about `size` bytes of values; returns the LSN reached."""
    options = rocksdict.Options(raw_mode=True)
    options.set_wal_dir(empty)
    options.set_max_open_files(64)
    opened: Any = rocksdict.Rdict(
        database,
        options=options,
        column_families={name: rocksdict.Options(raw_mode=True)},
        access_type=rocksdict.AccessType.read_only(),
    )
    begin, end = keys.data_bounds(log, first, last)
    bounds = rocksdict.ReadOptions()
    bounds.set_iterate_upper_bound(end)
    bounds.set_readahead_size(1 << 20)
    family = opened.get_column_family(name)
    iterator = family.iter(bounds)
    iterator.seek(begin)
    while iterator.valid():
        key, image = iterator.key(), iterator.value()
        size -= len(image)
        if lacks_body(image) and (wants is None or wants(image)):
            size -= len(family.get(keys.body_key(key)) or b"")
        if size <= 0:
            return int(keys.split_data_key(key)[0])
        iterator.next()
    return last


def main() -> None:
    """The program, with the arguments ``DATABASE EMPTY``."""
    os.nice(_NICENESS)
    warm(sys.argv[1], sys.argv[2], sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
