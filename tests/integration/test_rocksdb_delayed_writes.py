"""What a store writes of itself while RocksDB delays writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store.identity import PreviousEnd
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.rocksdb import RocksLogStore
from tests.integration.test_rocksdb_store import MARKER, SETTINGS, open_store
from tests.unit.storage_node.log_store.images import at, put, read_all


class DelayedDatabase:
    """A database that refuses whoever does not wait."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, group: Any, options: Any = None) -> None:
        if options is not None:
            raise Exception("Result incomplete: Write stall")
        self._database.write(group)


def write_some(store: RocksLogStore, count: int) -> None:
    for esn in range(1, count + 1):
        batch = WriteBatch()
        put(batch, at(esn), b"x" * 100)
        assert store.write([batch]) == [Status.OK]


def test_an_orderly_stop_hides_nothing_that_was_written(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write_some(store, 100)
    store._families.database = DelayedDatabase(store._families.database)
    store.close()
    store, contents = open_store(tmp_path)
    assert contents.last_stop is PreviousEnd.CLEAN
    assert [lsn for lsn, _ in read_all(store).entries] == [at(esn) for esn in range(1, 101)]
    store.close()


def test_an_incarnation_that_was_not_written_is_not_told(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    write_some(store, 1)
    assert store.marker is not None
    before = store.marker.incarnation
    # nothing merges the files, and there may be none
    family = store._families.reader(store.partitions[-1])
    family.set_options({"level0_file_num_compaction_trigger": "1000"})
    family.set_options({"level0_slowdown_writes_trigger": "1", "level0_stop_writes_trigger": "1"})
    family.flush()
    del family
    assert store.advance_incarnation() is None
    assert store.marker.incarnation == before
    store.abandon()
    again = RocksLogStore(str(tmp_path), SETTINGS)
    assert again.found is not None
    assert again.found.incarnation == before
    again.abandon()


def test_a_store_is_opened_all_the_same(tmp_path: Path) -> None:
    store = RocksLogStore(str(tmp_path), SETTINGS)
    store._families.database = DelayedDatabase(store._families.database)
    assert store.adopt(MARKER, boot="boot 1", now=Timestamp(1)) is Status.OK
    store.load()
    store.close()
