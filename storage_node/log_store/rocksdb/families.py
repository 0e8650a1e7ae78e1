"""The column families of a shard's database: their options, and how they come and go.

All share one block cache and one budget of memtables, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgpack
import rocksdict

from logdevice_py.core.status import LogDeviceError, Status
from storage_node.log_store import keys
from storage_node.log_store.metrics import RocksDBMetrics
from storage_node.log_store.rocksdb.direct_io import takes_direct_io
from storage_node.log_store.rocksdb.flushing import flush_to_files
from storage_node.log_store.rocksdb.gradual_deletion import GradualDeletion
from storage_node.log_store.rocksdb.options_hurdles import OPTIONS_REFUSED, OptionsHurdles
from storage_node.log_store.settings import LogStoreSettings

RocksDBError: Final = Exception
"""rocksdict has one exception for all that RocksDB reports: Exception itself, told apart by the beginning of its text."""
METADATA: Final = "metadata"
UNPARTITIONED: Final = "unpartitioned"
DATABASE: Final = "db"
_DELETING: Final = "deleting"
BLOBS_MOVED: Final = "blob_garbage_collection_age_cutoff"
"""Option of a family: of which share of its blob files, the oldest, values are written anew when tables are merged."""
_SMALL_MEMTABLE: Final = 16 << 20
_SIZES: Final = ("rocksdb.total-sst-files-size", "rocksdb.total-blob-file-size", "rocksdb.cur-size-all-mem-tables")


class FamilyOptions:
    """Options of every column family of one database."""

    __slots__ = ("_cache", "_settings")

    def __init__(self, settings: LogStoreSettings) -> None:
        self._settings = settings
        self._cache = rocksdict.Cache(settings.block_cache_bytes)

    def of(self, name: str) -> Any:
        """Options of a family."""
        settings = self._settings
        options = rocksdict.Options(raw_mode=True)
        is_partition = name[0].isdigit()
        options.set_write_buffer_size(settings.memtable_bytes if is_partition else _SMALL_MEMTABLE)
        options.set_max_write_buffer_number(settings.memtables_max)
        options.set_enable_blob_files(True)
        options.set_min_blob_size(settings.blob_bytes_min)
        options.set_enable_blob_gc(True)
        if is_partition:
            # Blobs move when a partition is closed, half of it dead, and rewritten (`Upkeep`), not whenever RocksDB merges tables of one that is
            # written to: there is hardly any garbage in it, and by default the oldest quarter of its blob files would be written anew each time.
            options.set_blob_gc_age_cutoff(0.0)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        options.set_level_zero_file_num_compaction_trigger(8)
        options.set_level_zero_slowdown_writes_trigger(40)
        options.set_level_zero_stop_writes_trigger(60)
        options.set_soft_pending_compaction_bytes_limit(64 << 30)
        options.set_hard_pending_compaction_bytes_limit(256 << 30)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(self._cache)
        table.set_block_size(16 << 10)
        options.set_block_based_table_factory(table)
        return options


def database_options(settings: LogStoreSettings, *, strict: bool = False, direct_io: bool = False) -> Any:
    """Options of the database as a whole.

    Args:
        direct_io: flushes and compactions go past the page cache. RocksDB does not open a database on a file system that cannot do that.
        strict: what does not match a checksum stops the database. Needed where the write-ahead log ends in a torn record, of which the
            end would be overlooked otherwise. Without, damage in one file harms no other: compaction that meets it fails, and all else
            goes on.
    """
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_paranoid_checks(strict)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    options.set_max_total_wal_size(settings.wal_bytes_max)
    # writes never wait for it: beyond the budget, memtables are written to files
    options.set_write_buffer_manager(rocksdict.WriteBufferManager(settings.memtables_bytes_max, False))
    # each change of what files there are writes a manifest from memory: one that was damaged is soon replaced
    options.set_max_manifest_file_size(1)
    # the files of a dropped family are deleted in the background
    options.set_avoid_unnecessary_blocking_io(True)
    options.set_max_open_files(settings.open_files_max)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(8 << 20)
    options.set_bytes_per_sync(1 << 20)
    options.set_use_direct_io_for_flush_and_compaction(direct_io)
    return options


def split_name(name: str) -> tuple[int, int]:
    """(partition, version) of a family."""
    base, _, version = name.partition(".")
    return keys.UNPARTITIONED if base == UNPARTITIONED else int(base), int(version or 0)


class Families:
    """The column families of an open database, each with what writes (its handle) and what reads it."""

    __slots__ = (
        "_deletion",
        "_hurdles",
        "_options",
        "_readers",
        "_versions",
        "database",
        "handles",
        "metadata",
        "metadata_handle",
        "names",
    )

    def __init__(self, path: str, settings: LogStoreSettings, *, strict: bool = False) -> None:
        """Open the database, creating it where there is none.

        Args:
            strict: see `database_options`.

        Raises:
            LogDeviceError: FAILED, with what RocksDB says.
        """
        self._options = FamilyOptions(settings)
        self._hurdles = OptionsHurdles(path)
        self.handles: dict[int, Any] = {}
        """Per partition, what a write batch names its family by."""
        self._readers: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        """The family of each partition."""
        try:
            names = {METADATA, UNPARTITIONED}
            if os.path.exists(os.path.join(path, "CURRENT")):
                names.update(name for name in rocksdict.Rdict.list_cf(path) if name != "default")
            self.database: Any = rocksdict.Rdict(
                path,
                options=database_options(
                    settings, strict=strict, direct_io=settings.direct_io and takes_direct_io(path)
                ),
                column_families={name: self._options.of(name) for name in sorted(names)},
            )
            self.metadata: Any = self.database.get_column_family(METADATA)
            self.metadata_handle: Any = self.database.get_column_family_handle(METADATA)
            row = self.metadata.get(keys.FAMILIES_KEY)
            self._versions: dict[int, int] = {} if row is None else dict(msgpack.unpackb(row, strict_map_key=False))
            for name in sorted(names - {METADATA}):
                number, version = split_name(name)
                if version == self._versions.get(number, 0):
                    self._attach(number, name)
                elif name != UNPARTITIONED or keys.UNPARTITIONED in self._versions:
                    # the old family of a partition that was copied, or a new one that was not finished
                    self.database.drop_column_family(name)
        except RocksDBError as error:
            self._let_go()
            raise LogDeviceError(Status.FAILED, f"the database in {path} cannot be opened: {error}") from None
        self._deletion = GradualDeletion(path, os.path.join(os.path.dirname(path), _DELETING))

    def _let_go(self) -> None:
        """Of a database that was opened and cannot be used: whoever handles the error keeps this object alive, and it would keep the lock."""
        self.handles.clear()
        self._readers.clear()
        for name in ("metadata", "metadata_handle", "database"):
            with suppress(AttributeError):
                delattr(self, name)

    def __contains__(self, partition: int) -> bool:
        return partition in self.handles

    def partitions(self) -> list[int]:
        """Numbers of the families of partitions, ascending."""
        return sorted(number for number in self.handles if number != keys.UNPARTITIONED)

    def readers(self) -> Iterator[Any]:
        """Every family."""
        yield self.metadata
        yield from self._readers.values()

    def flushing(self) -> Callable[[], None]:
        """Writes the memtables of every family of this moment to files; to be called in another thread."""
        readers = list(self.readers())

        def flush() -> None:
            for reader in readers:
                with suppress(RocksDBError):
                    flush_to_files(reader)
            readers.clear()

        return flush

    def reader(self, partition: int) -> Any:
        """The family of a partition, to be read."""
        return self._readers[partition]

    def get(self, partition: int, key: bytes) -> bytes | None:
        """What a key of a partition leads to. RocksDBError if it cannot be read."""
        found: bytes | None = self._readers[partition].get(key)
        return found

    def size_of(self, partition: int) -> int:
        """About how many bytes a partition takes in files and memtables; 0 when it is gone."""
        reader = self._readers.get(partition)
        return 0 if reader is None else sum(reader.property_int_value(name) or 0 for name in _SIZES)

    @property
    def bytes_being_deleted(self) -> int:
        """What files of dropped families still take."""
        return self._deletion.bytes_left

    def measure(self) -> RocksDBMetrics:
        """What RocksDB says of itself. It takes some microseconds a family."""
        readers = list(self.readers())

        def total(name: str) -> int:
            return sum(reader.property_int_value(f"rocksdb.{name}") or 0 for reader in readers)

        def of_database(name: str) -> int:
            return self.metadata.property_int_value(f"rocksdb.{name}") or 0

        return RocksDBMetrics(
            table_file_bytes=total("total-sst-files-size"),
            blob_file_bytes=total("total-blob-file-size"),
            memtable_bytes=total("cur-size-all-mem-tables"),
            block_cache_bytes=of_database("block-cache-usage"),
            estimated_keys=total("estimate-num-keys"),
            pending_compaction_bytes=total("estimate-pending-compaction-bytes"),
            running_compactions=of_database("num-running-compactions"),
            running_flushes=of_database("num-running-flushes"),
            delayed_write_rate=of_database("actual-delayed-write-rate"),
            write_stopped=of_database("is-write-stopped"),
            families=len(readers),
        )

    def create(self, partition: int) -> None:
        """Make the family of a partition; it is durable when this returns. RocksDBError if that fails."""
        name = str(partition)
        self.database.create_column_family(name, self._options.of(name))
        self._attach(partition, name)

    def drop(self, partition: int) -> None:
        """Drop a family, durably, with its files. RocksDBError if that fails. Nothing may be written to it any more: a batch that names a
        dropped family would stop the database."""
        del self.handles[partition]
        # the files go when nothing refers to the family any more; closing it would flush it first
        del self._readers[partition]
        self._drop_family(self.names.pop(partition))

    def _drop_family(self, name: str) -> None:
        with self._deletion.instead(), self._hurdles.set_up():
            try:
                self.database.drop_column_family(name)
            except RocksDBError as error:
                # the drop is in the manifest; what failed is the file that nobody reads
                if not str(error).startswith(OPTIONS_REFUSED):
                    raise

    def set_options(self, partition: int, options: dict[str, str]) -> None:
        """Change options of a family; from any thread. RocksDBError if that fails, KeyError if it was dropped."""
        reader = self._readers[partition]
        with self._hurdles.kept_down():
            reader.set_options(options)

    @staticmethod
    def name_of(partition: int, version: int) -> str:
        """Of the family of a partition."""
        name = UNPARTITIONED if partition == keys.UNPARTITIONED else str(partition)
        return f"{name}.{version}" if version else name

    def create_version(self, partition: int) -> tuple[int, Any, Any]:
        """Make another family for a partition, which does not count yet: its version, reader and handle. RocksDBError if that fails."""
        version = split_name(self.names[partition])[1] + 1
        name = self.name_of(partition, version)
        self.database.create_column_family(name, self._options.of(name))
        return version, self.database.get_column_family(name), self.database.get_column_family_handle(name)

    def versions_row(self, partition: int, version: int) -> bytes:
        """The row that says which families count, with another one for a partition."""
        live = {number: each for number, each in self._versions.items() if number in self.handles}
        packed: bytes = msgpack.packb({**live, partition: version})
        return packed

    def replace(self, partition: int, version: int, reader: Any, handle: Any) -> None:
        """That row is durable: the old family goes. RocksDBError if that fails."""
        self._versions[partition] = version
        old, self.names[partition] = self.names[partition], self.name_of(partition, version)
        self.handles[partition], self._readers[partition] = handle, reader
        self._drop_family(old)

    def _attach(self, partition: int, name: str) -> None:
        self.names[partition] = name
        self._readers[partition] = self.database.get_column_family(name)
        self.handles[partition] = self.database.get_column_family_handle(name)

    def _flushed(self) -> bool:
        try:
            return all(flush_to_files(reader) for reader in self.readers())
        except RocksDBError:
            return False

    def interrupt(self) -> None:
        """Break off what other threads have the database do with files. Nothing can be written any more."""
        self.database.cancel_all_background(False)

    def close(self, *, flush: bool) -> None:
        """Close the database. Its lock is released when the last reference to a family goes.

        Args:
            flush: write memtables to files, so that the next opening has less to do, if that can be done.
        """
        self.handles.clear()
        self._deletion.close()
        if flush and self._flushed():
            for reader in self.readers():
                reader.close()
            self.database.close()
        else:
            self.interrupt()  # letting go of a database flushes it as well, and waits for space
        self._readers.clear()
        del self.metadata, self.metadata_handle, self.database
