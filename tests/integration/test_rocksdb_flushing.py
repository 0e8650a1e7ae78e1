"""Memtables are written to files also when a bit flips in a file while it is written."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from logdevice_py.core import marks
from storage_node.log_store.rocksdb.families import Families
from storage_node.log_store.rocksdb.flushing import flush_to_files
from storage_node.log_store.settings import LogStoreSettings

PARTITION = 1_000_000
SETTINGS = LogStoreSettings(direct_io=False)
ROUNDS_MAX = 300
"""RocksDB looks at a file right after it was synced: within some rounds the bit is flipped before that."""


@contextmanager
def flipped_when_written(directory: Path) -> Iterator[None]:
    """Flip a bit in the next table file as soon as it has content."""
    before, stop = set(directory.glob("*.sst")), threading.Event()

    def run() -> None:
        while not stop.is_set():
            for path in set(directory.glob("*.sst")) - before:
                try:
                    size = path.stat().st_size
                    if size < 1000:
                        continue
                    with path.open("r+b") as file:
                        file.seek(size - 200)
                        [byte] = file.read(1)
                        file.seek(size - 200)
                        file.write(bytes([byte ^ 1]))
                except FileNotFoundError:
                    continue  # it was found to be damaged, and is gone
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_file_that_is_damaged_as_it_is_written_is_written_again(tmp_path: Path) -> None:
    families = Families(str(tmp_path / "db"), SETTINGS)
    families.create(PARTITION)
    family = families.reader(PARTITION)
    before = marks.HITS["flush_repeated"]
    rows: dict[bytes, bytes] = {}
    for number in range(ROUNDS_MAX):
        rows |= {b"%d-%d" % (number, row): os.urandom(100) for row in range(100)}
        for key, value in rows.items():
            family[key] = value
        with flipped_when_written(tmp_path / "db"):
            assert flush_to_files(family)
        assert not family.property_int_value("rocksdb.num-immutable-mem-table")
        if marks.HITS["flush_repeated"] > before:
            break
        # what was damaged after RocksDB had looked is not what this is about
        families.drop(PARTITION)
        families.create(PARTITION)
        family = families.reader(PARTITION)
        rows.clear()
    else:
        raise AssertionError(f"RocksDB found nothing damaged in {ROUNDS_MAX} rounds")
    assert {key: family.get(key) for key in rows} == rows
    del family
    families.close(flush=True)
    families = Families(str(tmp_path / "db"), SETTINGS)
    assert {key: families.get(PARTITION, key) for key in rows} == rows
    families.close(flush=False)
