"""The store on RocksDB: one database a shard, arranged as `docs/storage.md` describes.

All writes go to the write-ahead log, which recovers to a point in time: after a crash the store holds a prefix of what was written.

A shard's directory holds ``db`` (the database) and, after a failed write or sync, ``failed``: the operating system may have dropped what
it could not write, so the run that ended so counts as a machine that died.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import rocksdict

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.batch_groups import write_in_groups
from storage_node.log_store.counting import uncount_repeated
from storage_node.log_store.directory import Directory, Span
from storage_node.log_store.directory_answers import answer_directory, last_to_trim
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import (
    PER_ENTRY_BYTES,
    Contents,
    DirectoryResult,
    ReadDirectory,
    ReadLast,
    ReadResult,
    ReadShard,
    WriteBatch,
)
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.rocksdb.families import DATABASE, RocksDBError
from storage_node.log_store.rocksdb.filling import GroupFiller
from storage_node.log_store.rocksdb.group_writer import GroupWriter
from storage_node.log_store.rocksdb.opening import StoreNotes, open_database
from storage_node.log_store.rocksdb.ranges import RangeReader
from storage_node.log_store.rocksdb.rewriting import PartitionRewriter
from storage_node.log_store.rocksdb.space_meter import SpaceMeter
from storage_node.log_store.rocksdb.store_contents import StoreContents
from storage_node.log_store.rocksdb.upkeep import Upkeep
from storage_node.log_store.rocksdb.wal_check import find_lasting_damage
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.store_run import StoreRun
from storage_node.log_store.view import StoreView


class RocksLogStore:
    """A `LogStore` on RocksDB. Calls of its own thread: everything but `sync`."""

    def __init__(self, directory: str, settings: LogStoreSettings, *, boot: str = "") -> None:
        """Open the store, creating it where there is none.

        Args:
            boot: boot id of the operating system; empty: unknown.

        Raises:
            LogDeviceError: FAILED, with what RocksDB says: it is damaged, or another process has it open.
        """
        self.directory = directory
        self.bytes_written = 0
        """Bytes of batches since it was opened."""
        self._settings = settings
        self._closed = False
        self._abandoned = False
        self._boot = boot
        self._notes = StoreNotes(directory)
        self._families = open_database(directory, settings, self._notes, boot)
        self._directory = Directory(settings.directory_save_bytes)
        self._partitions = Partitions(settings)
        self._ranges = RangeReader(self._iterator, self._families.get, self._directory.overlapping)
        self.rewriter = PartitionRewriter(self._families, self._directory, self._ranges, settings.blob_bytes_min)
        self._upkeep = Upkeep(self._families, self._partitions, self._directory, settings, self.rewriter.forget)
        self._filler = GroupFiller(
            self._families, self._directory, self._partitions, self._ranges, self.rewriter, settings.blob_bytes_min
        )
        self.groups = GroupWriter(self._families, self._directory, self._partitions, self._upkeep, self._notes)
        self._errors = 0
        self._meter = SpaceMeter(directory, settings)
        self._space = self._meter.guard
        self.trims_for_space = False
        self._run = StoreRun()
        self._contents = StoreContents(
            directory,
            self._families,
            self._directory,
            self._partitions,
            self._ranges,
            self._upkeep,
            self.groups,
            self._run,
        )

    # ---- identity

    @property
    def marker(self) -> ShardMarker | None:
        """The marker of this run; None before `adopt`."""
        return self._run.marker

    @property
    def found(self) -> ShardMarker | None:
        """The marker that the last run left; None without one that can be read."""
        return self._contents.marker()

    @property
    def empty(self) -> bool:
        """Whether the store holds nothing."""
        return self._contents.is_empty()

    def adopt(self, marker: ShardMarker, *, boot: str, now: Timestamp) -> Status:
        """Begin a run: leave the marker, durably, without the mark of a clean stop. OK or FAILED."""
        with self._contents.reading():
            rows = self._run.begin(
                marker,
                found=self.found,
                rows=self._families.metadata.get,
                boot=boot,
                failed=self._notes.failed,
                now=now,
            )
        status = self.groups.write_rows(rows)
        if status is Status.OK:
            self._notes.note_opened(self._boot)
        return status

    def advance_incarnation(self) -> int | None:
        """Write the next incarnation; durable with the next sync. It must not be told to anybody before. None: it was not written."""
        assert self._run.marker is not None, "advance_incarnation before adopt"
        marker = self._run.marker.later()
        if self.groups.commit_row(keys.MARKER_KEY, marker.encode()) is not Status.OK:
            return None
        self._run.marker = marker
        return marker.incarnation

    def load(self) -> Contents:
        """One scan over all metadata; after an unclean stop, a look at the end of every log.

        Raises:
            LogDeviceError: FAILED: the metadata, or the end of a log after an unclean stop, is damaged or of a version not known here.
        """
        return self._contents.load()

    # ---- writing

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed."""
        return self.groups.failed

    @property
    def _runs(self) -> bool:
        """A run has begun, and nothing has failed."""
        return not self.groups.failed and self._run.marker is not None

    @property
    def refusing_for_space(self) -> bool:
        """Whether entries are answered NOSPC."""
        return self._space.refusing

    @property
    def view(self) -> StoreView:
        """What it holds, to look at."""
        families = self._families
        return StoreView(
            self._directory,
            self._partitions,
            families.size_of,
            self._ranges.superseded,
            families.measure,
            lambda: self._space.spare,
        )

    def check_space(self) -> None:
        """Measure the free space."""
        self._meter.measure()

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """Apply batches in order, in groups, without sync."""
        if len(batches) == 1 and not self._space.scarce:
            return self._write_group(batches)
        return write_in_groups(batches, self._settings.write_group_bytes_max, self._space.refuses, self._write_group)

    def _write_group(self, batches: Sequence[WriteBatch]) -> list[Status]:
        if not batches:
            return []
        groups = self.groups
        if groups.failed:
            return [Status.FAILED] * len(batches)
        must_pass = any(batch.must_pass for batch in batches)
        if groups.unasked <= 0 and not must_pass and groups.is_delayed:
            hit("log_store_write_delayed")
            return [Status.OVERLOADED] * len(batches)
        group = rocksdict.WriteBatch(raw_mode=True)
        size = 0
        fill, rewriter, restores = self._filler.fill, self.rewriter, False
        for batch in batches:
            fill(group, batch)
            size += batch.size
            if rewriter.busy:
                rewriter.mirror(group, batch)
            restores = restores or bool(batch.restored)
        if self._directory.repeated:
            uncount_repeated(self._directory, batches, self._bytes_at)
        status = groups.commit(group, size=size, must_pass=must_pass)
        if status is Status.OK:
            if restores or rewriter.watching:
                for batch in batches:
                    rewriter.written(batch)
            self.bytes_written += size
            self._meter.wrote(size)
        else:
            self._directory.refused(
                (log, len(image) + PER_ENTRY_BYTES) for batch in batches for log, *_, image in batch.entries
            )
        return [status] * len(batches)

    def _bytes_at(self, partition: int, log: LogId, lsn: Lsn) -> int:
        return self._ranges.bytes_in(partition, log, lsn, lsn)

    def sync(self) -> Status:
        """Make durable every batch whose `write` returned before the call."""
        return self.groups.sync()

    @property
    def wants_sync(self) -> bool:
        """As of `LogStore`: RocksDB flushes as it goes."""
        return False

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next write, that a sync covered every write before `until`."""
        self.groups.mark_durable(until)

    # ---- reading

    def _iterator(self, partition: int, begin: bytes, end: bytes) -> Any:
        options = rocksdict.ReadOptions()
        options.set_iterate_lower_bound(begin)
        options.set_iterate_upper_bound(end)
        return self._families.reader(partition).iter(options)

    def read(self, request: ReadShard, is_late: Callable[[], bool] | None = None) -> ReadResult:
        """Execute a `ReadShard`.

        Args:
            is_late: asked now and then; whether the answer shall end with what it has, one entry at least.
        """
        return ReadResult(Status.FAILED, request.last) if self.failed else self._ranges.read(request, is_late)

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        return ReadResult(Status.FAILED, request.last) if self.failed else self._ranges.read_last(request)

    def read_directory(self, request: ReadDirectory) -> DirectoryResult:
        """Execute a `ReadDirectory`."""
        if self.failed:
            return DirectoryResult(Status.FAILED)
        return answer_directory(self._directory, self._partitions, request, self._space_end())

    def _space_end(self) -> int:
        """As in `DirectoryResult`. What is about to be dropped counts as free."""
        wanted = self._space.missing(self._settings.space_retention_percent)
        wanted -= self._upkeep.bytes_to_drop if wanted > 0 else 0
        self.trims_for_space = wanted > 0
        return last_to_trim(self._partitions, self._families.size_of, wanted)

    def locate(self, log: LogId, first: Lsn, last: Lsn) -> Span:
        """The lowest part of a range that lies in one partition; the whole range where nothing of it is stored."""
        spans = self._directory.overlapping(log, first, last)
        return spans[0] if spans else (keys.UNPARTITIONED, first, last)

    # ---- upkeep

    def maintain(self, now: Timestamp) -> None:
        """To be called about every second, on the thread that writes: begin the next partition when it is due, drop what is not needed.

        Args:
            now: the node's wall clock.
        """
        if not self._runs:
            return
        try:
            if not self._space.refusing and self._upkeep.begin_due(now):
                self.groups.commit_pending()
            self._upkeep.drop_next()
        except RocksDBError as error:
            self.groups.fail(str(error))

    def drop_next(self) -> float | None:
        """Drop one partition if one is due; returns in how many seconds there is another to drop, None if none waits."""
        if self._runs:
            try:
                return self._upkeep.drop_next()
            except RocksDBError as error:
                self.groups.fail(str(error))
        return None

    def family_of(self, partition: int) -> str:
        """The name of a partition's column family."""
        return self._families.names[partition]

    def background_errors(self) -> int:
        """How often since it was last asked RocksDB failed at compaction, or at writing memtables to files."""
        before, self._errors = (
            self._errors,
            self._families.database.property_int_value("rocksdb.background-errors") or 0,
        )
        return self._errors - before

    def find_damage_in_use(self, pause: Callable[[], None] = lambda: None) -> str:
        """What is damaged of the files that are only read when the store is opened; empty: nothing. May be called from another thread.

        Args:
            pause: called between small pieces of the work.
        """
        return find_lasting_damage(os.path.join(self.directory, DATABASE), pause)

    def write_from_memory(self, now: Timestamp) -> Callable[[], None]:
        """Begin to replace the manifest and the write-ahead log by what memory has; the rest is to be done in another thread."""
        self.groups.begin_next(now)
        return self._families.flushing()

    def rewrite_damaged(self, now: Timestamp, bytes_max: int) -> bool:
        """A piece of replacing damaged files, on the thread that writes; True: there is more to do."""
        return self._runs and self.rewriter.step(now, bytes_max, self.groups)

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions in use, ascending."""
        return [partition.number for partition in self._partitions]

    def report(self, metrics: LogStoreMetrics) -> None:
        """Set the gauges."""
        self._space.report(metrics)
        metrics.trimming_for_space = int(self.trims_for_space)
        metrics.partitions = len(self._partitions)
        metrics.partitions_to_drop = self._upkeep.to_drop
        metrics.directory_rows = self._directory.rows_count

    def next_chore(self) -> Callable[[], None] | None:
        """Work on files that takes long, to be done in another thread, one at a time; None: there is none."""
        return None if self.failed else self._upkeep.next_chore()

    # ---- closing

    def close(self) -> None:
        """Sync, leave the clean-stop mark, and close. A failed store closes without the mark."""
        assert not self._closed, "closed twice"
        self._closed = True
        if not self.failed and self._run.marker is not None:
            self._leave_clean(self._run.marker.closed())
        self.abandon()

    def abandon(self) -> None:
        """Close the database as it is, without sync or mark. Harmless when it is closed."""
        if self._abandoned:
            return
        self._closed = self._abandoned = True
        with suppress(OSError):  # the directory may be gone
            self.check_space()
        # Without space RocksDB waits for ever until it can write memtables to files; the write-ahead log has what they hold.
        self._upkeep.close(flush=not (self.failed or self._space.refusing))

    def _leave_clean(self, marker: ShardMarker) -> None:
        """The mark says that the rows of the directory are exact: it is written with them or not at all."""
        self._contents.save_directory()
        written = self.groups.commit_row(keys.MARKER_KEY, marker.encode(), must_pass=True)
        if written is Status.OK and self.sync() is Status.OK:
            self._run.marker = marker
