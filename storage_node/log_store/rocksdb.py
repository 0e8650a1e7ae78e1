"""The store on RocksDB: one database a shard.

Column families: ``metadata``; ``unpartitioned`` for metadata logs and internal logs; ``1000000`` (the first partition) for data logs.
Entries of `blob_bytes_min` and more lie in blob files. All writes go to the write-ahead log, which recovers to a point in time: after a
crash the store holds a prefix of what was written.

A shard's directory holds ``db`` (the database) and, after a failed write or sync, ``failed``: the operating system may have dropped what
it could not write, so the run that ended so counts as a machine that died.

Reading from disk holds the interpreter of the process that asks, in threads too. ``python -m storage_node.log_store.rocksdb <database>
<scratch>`` is a process that reads ranges for no other purpose than to have them in the page cache afterwards. It takes requests from
standard input (``log first last bytes``, one a line) and answers each with the last LSN that it read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

import rocksdict

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.contents import ContentsBuilder, decode_losses, encode_durable, encode_losses
from storage_node.log_store.directory import Directory
from storage_node.log_store.identity import CorruptMarkerError, PreviousEnd, ShardMarker, judge_stop
from storage_node.log_store.interface import PER_ENTRY_BYTES, Contents, ReadLast, ReadResult, ReadShard, WriteBatch
from storage_node.log_store.precedence import Missing, resolve
from storage_node.log_store.ranges import DamagedError, RangeReader, RocksDBError
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.space import SpaceGuard

_METADATA: Final = "metadata"
_UNPARTITIONED: Final = "unpartitioned"
_DATABASE: Final = "db"
_FAILED: Final = "failed"
_REFUSED: Final = "Result incomplete"
_ASK_BYTES: Final = 64 << 10
_SIZES: Final = ("rocksdb.total-sst-files-size", "rocksdb.total-blob-file-size", "rocksdb.cur-size-all-mem-tables")


def fsync_directory(path: str) -> None:
    """Make the creation or renaming of files in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def family_options(settings: LogStoreSettings) -> dict[str, Any]:
    """Options per column family."""
    return {
        _METADATA: _family_options(settings, 16 << 20),
        _UNPARTITIONED: _family_options(settings, 16 << 20),
        str(keys.PARTITION_FIRST): _family_options(settings, settings.memtable_bytes),
    }


def _family_options(settings: LogStoreSettings, memtable_bytes: int) -> Any:
    options = rocksdict.Options(raw_mode=True)
    options.set_write_buffer_size(memtable_bytes)
    options.set_max_write_buffer_number(settings.memtables_max)
    options.set_enable_blob_files(True)
    options.set_min_blob_size(settings.blob_bytes_min)
    options.set_enable_blob_gc(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_level_zero_file_num_compaction_trigger(8)
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(60)
    options.set_soft_pending_compaction_bytes_limit(64 << 30)
    options.set_hard_pending_compaction_bytes_limit(256 << 30)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(settings.block_cache_bytes))
    table.set_block_size(16 << 10)
    options.set_block_based_table_factory(table)
    return options


def database_options(settings: LogStoreSettings) -> Any:
    """Options of the database as a whole."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
    options.set_max_total_wal_size(settings.wal_bytes_max)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(8 << 20)
    options.set_bytes_per_sync(1 << 20)
    return options


class RocksLogStore:
    """A `LogStore` on RocksDB. Calls of its own thread: everything but `sync`, `read` and `read_last`."""

    def __init__(self, directory: str, settings: LogStoreSettings) -> None:
        """Open the store, creating it where there is none.

        Raises:
            LogDeviceError: FAILED, with what RocksDB says: it is damaged, or another process has it open.
        """
        self.directory = directory
        self.bytes_written = 0
        """Bytes of batches since it was opened."""
        self._settings = settings
        self._failed = False
        self._closed = False
        os.makedirs(os.path.join(directory, _DATABASE), exist_ok=True)
        fsync_directory(directory)
        fsync_directory(os.path.dirname(os.path.abspath(directory)))
        try:
            self._db: Any = rocksdict.Rdict(
                os.path.join(directory, _DATABASE),
                options=database_options(settings),
                column_families=family_options(settings),
            )
            self._metadata: Any = self._db.get_column_family(_METADATA)
            self._unpartitioned: Any = self._db.get_column_family(_UNPARTITIONED)
            self._data: Any = self._db.get_column_family(str(keys.PARTITION_FIRST))
            self._metadata_handle = self._db.get_column_family_handle(_METADATA)
            self._unpartitioned_handle = self._db.get_column_family_handle(_UNPARTITIONED)
            self._data_handle = self._db.get_column_family_handle(str(keys.PARTITION_FIRST))
        except RocksDBError as error:
            raise LogDeviceError(Status.FAILED, f"the store in {directory} cannot be opened: {error}") from None
        self._write_options = rocksdict.WriteOptions()
        self._write_options.no_slowdown = True
        self._ranges = RangeReader(self._iterator)
        self._directory = Directory(settings.directory_save_bytes)
        self._durable: Timestamp | None = None
        self._space = SpaceGuard(
            free_min=settings.free_space_min,
            free_min_percent=settings.free_space_min_percent,
            resume_percent=settings.free_space_resume_percent,
        )
        self._unmeasured = 0
        self._unasked = 0
        """Bytes that may be written before RocksDB is asked again whether it delays writes."""
        self.check_space()
        self._marker: ShardMarker | None = None
        self._stop = PreviousEnd.CLEAN
        self._losses: list[tuple[Timestamp, Timestamp]] = []

    # ---- identity

    @property
    def found(self) -> ShardMarker | None:
        """The marker that the last run left; None without one that can be read."""
        with self._opening():
            raw = self._metadata.get(keys.MARKER_KEY)
        if raw is None:
            return None
        try:
            return ShardMarker.decode(raw)
        except CorruptMarkerError:
            hit("log_store_corrupt_marker")
            return None

    @property
    def empty(self) -> bool:
        """Whether the store holds nothing."""
        with self._opening():
            for family in (self._metadata, self._unpartitioned, self._data):
                iterator = family.iter()
                iterator.seek_to_first()
                if iterator.valid():
                    return False
                iterator.status()
        return True

    @contextmanager
    def _opening(self) -> Iterator[None]:
        try:
            yield
        except RocksDBError as error:
            raise LogDeviceError(Status.FAILED, f"the store in {self.directory} cannot be read: {error}") from None

    def adopt(self, marker: ShardMarker, *, boot: str, now: Timestamp) -> Status:
        """Begin a run: leave the marker, durably, without the mark of a clean stop. OK or FAILED."""
        note = os.path.join(self.directory, _FAILED)
        self._stop = judge_stop(self.found, boot=boot, failed=os.path.exists(note))
        with self._opening():
            losses, durable = self._metadata.get(keys.LOSSES_KEY), self._metadata.get(keys.DURABLE_KEY)
        self._losses = decode_losses(losses, durable, self._stop, now)
        self._marker = marker.opened(boot)
        rows = {
            keys.MARKER_KEY: self._marker.encode(),
            keys.LOSSES_KEY: encode_losses(self._losses),
            keys.DURABLE_KEY: encode_durable(now),
        }
        status = self._write_rows(rows)
        if status is Status.OK:
            with suppress(FileNotFoundError):
                os.unlink(note)
        return status

    def load(self) -> Contents:
        """One scan over all metadata; after an unclean stop, a look at the end of every log.

        Raises:
            LogDeviceError: FAILED: the metadata, or the end of a log after an unclean stop, is damaged or of a version not known here.
        """
        assert self._marker is not None, "load before adopt"
        builder = ContentsBuilder(Contents(self._marker, self._stop, self._losses))
        with self._opening():
            iterator = self._metadata.iter()
            iterator.seek_to_first()
            while iterator.valid():
                builder.add(iterator.key(), iterator.value())
                iterator.next()
            iterator.status()
            for log, rows in builder.directory.items():
                first, _, highest, size = rows[-1]
                self._directory.restore(log, min(first, rows[0][0]), highest, size)
            if self._stop is not PreviousEnd.CLEAN:
                # a guess that is too low could take acknowledged entries for never written: damage here is an error
                for log, _ in list(self._directory.rows()):
                    self._directory.correct(log, self._ranges.find_highest(log))
        builder.contents.highest = [(log, row.highest) for log, row in self._directory.rows()]
        return builder.contents

    # ---- writing

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed."""
        return self._failed

    @property
    def refusing_for_space(self) -> bool:
        """Whether entries are answered NOSPC."""
        return self._space.refusing

    @property
    def stored_bytes(self) -> int:
        """About how much data entries take on disk and in memtables."""
        return sum(self._data.property_int_value(name) or 0 for name in _SIZES)

    def check_space(self) -> None:
        """Measure the free space."""
        self._unmeasured = 0
        measured = os.statvfs(self.directory)
        self._space.update(measured.f_bavail * measured.f_frsize, measured.f_blocks * measured.f_frsize)

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """Apply batches in order, in groups, without sync."""
        if len(batches) == 1 and not self._space.refusing:
            return self._write_group(batches)
        statuses: list[Status] = []
        group: list[WriteBatch] = []
        group_size = 0
        limit = self._settings.write_group_bytes_max
        for batch in batches:
            if batch.entries and self._space.refusing:
                statuses += self._write_group(group)
                group, group_size = [], 0
                statuses.append(Status.NOSPC)
                continue
            # a batch that looks at what is stored must find what stands before it
            if group and (group_size + batch.size > limit or batch.consolidations):
                statuses += self._write_group(group)
                group, group_size = [], 0
            group.append(batch)
            group_size += batch.size
        statuses += self._write_group(group)
        return statuses

    def _write_group(self, batches: Sequence[WriteBatch]) -> list[Status]:
        if not batches:
            return []
        if self._failed:
            return [Status.FAILED] * len(batches)
        if self._unasked <= 0 and self._is_delayed():
            hit("log_store_write_delayed")
            return [Status.OVERLOADED] * len(batches)
        group = rocksdict.WriteBatch(raw_mode=True)
        size = 0
        for batch in batches:
            self._fill(group, batch)
            size += batch.size
        status = self._commit(group)
        if status is Status.OK:
            self.bytes_written += size
            self._unasked -= size
            self._unmeasured += size
            if self._unmeasured >= self._settings.free_space_check_bytes:
                self.check_space()
        else:
            for batch in batches:
                for log, *_ in batch.entries:
                    self._directory.doubt(log)
        return [status] * len(batches)

    def _is_delayed(self) -> bool:
        """Ask RocksDB whether it delays writes. Only writing makes it begin to, so it is not asked for each small group; a write that it would
        delay all the same is refused by it (`no_slowdown`)."""
        if self._data.property_int_value("rocksdb.is-write-stopped") or self._data.property_int_value(
            "rocksdb.actual-delayed-write-rate"
        ):
            return True
        self._unasked = _ASK_BYTES
        return False

    def _commit(self, group: Any) -> Status:
        """Write a group together with what is due of the directory and the marks."""
        metadata = self._metadata_handle
        pending = self._directory.pending()
        for key, value in pending.items():
            if value is None:
                group.delete(key, metadata)
            else:
                group.put(key, value, metadata)
        if self._durable is not None:
            group.put(keys.DURABLE_KEY, encode_durable(self._durable), metadata)
        try:
            self._db.write(group, self._write_options)
        except RocksDBError as error:
            if str(error).startswith(_REFUSED):
                hit("log_store_write_stalled")
                self._unasked = 0
                return Status.OVERLOADED
            self._fail(str(error))
            return Status.FAILED
        if pending:
            self._directory.saved()
        self._durable = None
        return Status.OK

    def _fill(self, group: Any, batch: WriteBatch) -> None:
        metadata = self._metadata_handle
        for log, first, last in batch.deletes:
            begin, end = keys.data_bounds(log, first, last)
            group.delete_range(begin, end, self._handle(log))
            self._directory.doubt(log)
        for log, lsn in batch.consolidations:
            self._consolidate(group, log, lsn)
        for log, epoch, epoch_kind in batch.epoch_deletes:
            group.delete(keys.epoch_metadata_key(log, epoch, epoch_kind), metadata)
        put = group.put
        note = self._directory.note
        data_key = keys.data_key
        for log, lsn, by_recovery, wave, image in batch.entries:
            put(data_key(log, lsn, by_recovery, wave), image, self._handle(log))
            note(log, lsn, len(image) + PER_ENTRY_BYTES)
        for log, kind, value in batch.log_metadata:
            put(keys.log_metadata_key(log, kind), value, metadata)
        for log, epoch, epoch_kind, value in batch.epoch_metadata:
            put(keys.epoch_metadata_key(log, epoch, epoch_kind), value, metadata)

    def _consolidate(self, group: Any, log: LogId, lsn: Lsn) -> None:
        begin, end = keys.data_bounds(log, lsn, lsn)
        try:
            rows = list(self._ranges.rows(log, begin, end))
        except DamagedError:
            return
        if len(rows) < 2:
            return
        found = resolve(log, lsn, [(keys.split_data_key(key)[1], image) for key, image in rows])
        if isinstance(found, Missing):
            return
        top, image = rows[-1]
        group.delete_range(begin, top, self._handle(log))
        if found != image:
            group.put(top, found, self._handle(log))

    def _write_rows(self, rows: dict[bytes, bytes]) -> Status:
        """Write rows of the store itself, and sync."""
        if self._failed:
            return Status.FAILED
        group = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows.items():
            group.put(key, value, self._metadata_handle)
        try:
            self._db.write(group)
        except RocksDBError as error:
            self._fail(str(error))
            return Status.FAILED
        return self.sync()

    def sync(self) -> Status:
        """Make durable every batch whose `write` returned before the call."""
        if self._failed:
            return Status.FAILED
        try:
            self._db.flush_wal(True)
        except RocksDBError as error:
            self._fail(str(error))
        return Status.FAILED if self._failed else Status.OK

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next write, that a sync covered every write before `until`."""
        self._durable = until

    def _fail(self, reason: str) -> None:
        self._failed = True
        hit("log_store_failed")
        # where even this cannot be written, there is nothing left to do
        with suppress(OSError), open(os.path.join(self.directory, _FAILED), "w", encoding="utf-8") as note:
            note.write(reason + "\n")

    # ---- reading

    def _handle(self, log: int) -> Any:
        return self._data_handle if keys.is_partitioned(log) else self._unpartitioned_handle

    def _iterator(self, log: int, begin: bytes, end: bytes) -> Any:
        options = rocksdict.ReadOptions()
        options.set_iterate_lower_bound(begin)
        options.set_iterate_upper_bound(end)
        return (self._data if keys.is_partitioned(log) else self._unpartitioned).iter(options)

    def read(self, request: ReadShard) -> ReadResult:
        """Execute a `ReadShard`."""
        return ReadResult(Status.FAILED, request.last) if self._failed else self._ranges.read(request)

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        return ReadResult(Status.FAILED, request.last) if self._failed else self._ranges.read_last(request)

    # ---- closing

    def close(self) -> None:
        """Sync, leave the clean-stop mark, and close. A failed store closes without the mark."""
        assert not self._closed, "closed twice"
        self._closed = True
        if not self._failed and self._marker is not None:
            self._save_directory()
            self._write_rows({keys.MARKER_KEY: self._marker.closed().encode()})
        self.abandon()

    def abandon(self) -> None:
        """Close the database as it is, without sync or mark. Harmless when it is closed."""
        self._closed = True
        if "_data" not in self.__dict__:
            return
        # the database is closed, and its lock given up, when the last reference to a column family goes
        for name in ("_metadata", "_unpartitioned", "_data"):
            family = self.__dict__.pop(name, None)
            if family is not None:
                family.close()
        self.__dict__.pop("_metadata_handle", None)
        self.__dict__.pop("_unpartitioned_handle", None)
        self.__dict__.pop("_data_handle", None)
        self._db.close()

    def _save_directory(self) -> None:
        for log, row in list(self._directory.rows()):
            if row.doubtful:
                try:
                    self._directory.correct(log, self._ranges.find_highest(log))
                except DamagedError:
                    continue
        self._directory.save_all()
        if self._directory.pending():
            self._commit(rocksdict.WriteBatch(raw_mode=True))


def warm(database: str, scratch: str, requests: TextIO, answers: TextIO) -> None:
    """Read ranges of the database as its secondary, until the requests end."""
    settings = LogStoreSettings(block_cache_bytes=1 << 20)
    secondary: Any = rocksdict.Rdict(
        database,
        options=database_options(settings),
        column_families=family_options(settings),
        access_type=rocksdict.AccessType.secondary(scratch),
    )
    partitioned = secondary.get_column_family(str(keys.PARTITION_FIRST))
    unpartitioned = secondary.get_column_family(_UNPARTITIONED)
    for line in requests:
        log, first, last, size = map(int, line.split())
        secondary.try_catch_up_with_primary()
        begin, end = keys.data_bounds(log, first, last)
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(end)
        options.set_readahead_size(1 << 20)
        iterator = (partitioned if keys.is_partitioned(log) else unpartitioned).iter(options)
        iterator.seek(begin)
        through = last
        while iterator.valid():
            size -= len(iterator.value())
            if size <= 0:
                through = keys.split_data_key(iterator.key())[0]
                break
            iterator.next()
        answers.write(f"{through}\n")
        answers.flush()


if __name__ == "__main__":
    warm(sys.argv[1], sys.argv[2], sys.stdin, sys.stdout)
