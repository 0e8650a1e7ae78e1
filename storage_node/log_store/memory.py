"""The store in memory: for the simulator and unit tests.

Entries lie on its disk by log and LSN alone. The directory and the rows on partitions are kept as the store on RocksDB keeps them, and decide
the same; what a partition holds goes at once when it is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.contents import ContentsBuilder, encode_durable
from storage_node.log_store.counting import bytes_of, uncount_repeated
from storage_node.log_store.directory import Directory
from storage_node.log_store.directory_answers import answer_directory, last_to_trim
from storage_node.log_store.identity import CorruptMarkerError, ShardMarker
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
from storage_node.log_store.memory_disk import MemoryDisk as MemoryDisk
from storage_node.log_store.metadata_rows import metadata_rows
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.precedence import (
    LastFinder,
    Missing,
    PrecedenceCollector,
    header_apart,
    resolve,
    with_header,
)
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.space import SpaceGuard
from storage_node.log_store.store_run import StoreRun

_DATA: Final = 0x64
_BODY: Final = 0x62
_SETTINGS: Final = LogStoreSettings()


class MemoryLogStore:
    """A `LogStore` on a `MemoryDisk`."""

    __slots__ = (
        "_closed",
        "_directory",
        "_disk",
        "_durable",
        "_failed",
        "_found",
        "_guard",
        "_partitions",
        "_run",
        "_settings",
    )

    def __init__(self, disk: MemoryDisk, settings: LogStoreSettings = _SETTINGS) -> None:
        self._disk = disk
        self._directory = Directory(settings.directory_save_bytes)
        self._settings = settings
        self._guard = SpaceGuard.of(settings)
        self._partitions = Partitions(settings)
        self._failed = False
        self._closed = False
        self._durable: Timestamp | None = None
        self._found: ShardMarker | None = None
        self._run = StoreRun()
        raw = disk.rows.get(keys.MARKER_KEY)
        if raw is not None:
            try:
                self._found = ShardMarker.decode(raw)
            except CorruptMarkerError:
                self._found = None

    @property
    def marker(self) -> ShardMarker | None:
        """The marker of this run; None before `adopt`."""
        return self._run.marker

    @property
    def found(self) -> ShardMarker | None:
        """The marker that the last run left; None without one."""
        return self._found

    @property
    def empty(self) -> bool:
        """Whether the store holds nothing."""
        return not self._disk.rows

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed."""
        return self._failed

    def adopt(self, marker: ShardMarker, *, boot: str, now: Timestamp) -> Status:
        """Begin a run: leave the marker, durably, without the mark of a clean stop."""
        disk = self._disk
        rows = self._run.begin(
            marker, found=self._found, rows=disk.rows.get, boot=boot, failed=disk.failed_note, now=now
        )
        disk.apply({**rows})
        status = self.sync()
        if status is Status.OK:
            disk.failed_note = False
        return status

    def load(self) -> Contents:
        """One scan over everything."""
        builder = ContentsBuilder(self._run.contents())
        highest: dict[int, int] = {}
        for key, value in self._disk.rows.items():
            if key[0] == _DATA:
                highest[int.from_bytes(key[1:9], "big")] = keys.split_data_key(key)[0]
            elif key[0] != _BODY:
                builder.add(key, value)
        builder.contents.highest = list(highest.items())  # type: ignore[arg-type]
        self._restore(builder, highest)
        return builder.contents

    def _restore(self, builder: ContentsBuilder, highest: dict[int, int]) -> None:
        directory, partitions = self._directory, self._partitions
        for log, rows in builder.directory.items():
            directory.restore(log, rows)
        for number, row in builder.partitions:
            partitions.restore(number, row)
        for number in list(partitions.dropped):
            partitions.forget(number)
        if not len(partitions):
            partitions.begin(partitions.next_number, self._run.began_at)
        directory.latest = partitions.latest.number
        for log, found in list(directory.rows()):
            end, again = highest.get(log, -1), True
            partition, counted = found.partition, found.highest
            while again:
                again = directory.correct(log, Lsn(end) if end >= found.first else None)
                found = directory.find(log) or found
            if found.partition == partition and counted < found.highest:
                directory.count(log, partition, self._bytes_in(log, Lsn(counted + 1), found.highest))
        for _, found in directory.rows():
            for partition, size in found.sizes():
                if partition != keys.UNPARTITIONED:
                    partitions[partition].size += size
        for each in partitions:
            directory.expect(each.number)
        changes: dict[bytes, bytes | None] = {}
        self._settle(changes)
        if changes:
            self._disk.apply(changes)
            self.sync()

    def _bytes_in(self, log: LogId, first: Lsn, last: Lsn) -> int:
        rows = self._disk.rows
        keys_of = rows.irange(*keys.data_bounds(log, first, last), inclusive=(True, False))
        return bytes_of((keys.split_data_key(key)[0], rows[key]) for key in keys_of)

    def _settle(self, changes: dict[bytes, bytes | None]) -> None:
        """Put what is due of the directory into changes that are about to be applied."""
        directory, partitions = self._directory, self._partitions
        unused = directory.unused()
        changes.update(directory.pending())
        changes.update(partitions.pending())
        changes.update(partitions.tombstones(unused))
        directory.saved()
        partitions.saved()
        partitions.drop(unused)
        for number in unused:
            directory.forget(number)

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """Apply batches in order."""
        return [self._write(batch) for batch in batches]

    def _write(self, batch: WriteBatch) -> Status:
        disk = self._disk
        if self._failed or disk.fail_write:
            if not self._failed:
                disk.fired["failing_write"] += 1
            self._fail()
            return Status.FAILED
        if disk.overloaded and not batch.must_pass:
            disk.fired["overloaded_disk"] += 1
            return Status.OVERLOADED
        self._guard.update(disk.free, disk.total)
        if self._guard.refuses(batch):
            if disk.taken:
                disk.fired["disk_full"] += 1
            return Status.NOSPC
        rows = disk.rows
        changes: dict[bytes, bytes | None] = {}
        for log, first, last in (*batch.deletes, *batch.restored):
            for begin, end in keys.copy_bounds(log, first, last):
                changes.update(dict.fromkeys(rows.irange(begin, end, inclusive=(True, False))))
            self._directory.delete(log, first, last)
        for log, lsn in batch.consolidations:
            begin, end = keys.data_bounds(log, lsn, lsn)
            copies = list(rows.irange(begin, end, inclusive=(True, False)))
            if len(copies) > 1:
                ranked = [(keys.split_data_key(key)[1], rows[key]) for key in copies]
                found = resolve(log, lsn, ranked, disk.bodies(log))
                if not isinstance(found, Missing):
                    *lower, top = copies
                    changes.update(dict.fromkeys(lower))
                    if any(lacks_body(rows[key]) for key in lower):
                        bounds = keys.body_key(begin), keys.body_key(top)
                        changes.update(dict.fromkeys(rows.irange(*bounds, inclusive=(True, False))))
                    if found != rows[top] and not lacks_body(rows[top]):
                        self._put_copy(changes, top, found)
        for log, lsn, by_recovery, wave, image in batch.entries:
            self._put_copy(changes, keys.data_key(log, lsn, by_recovery, wave), image)
            size = len(image) + PER_ENTRY_BYTES
            partition = self._directory.note(log, lsn, size)
            if partition != keys.UNPARTITIONED:
                self._partitions.note(partition, keys.timestamp_of(image), size)
        uncount_repeated(self._directory, (batch,), lambda _, log, lsn: self._bytes_in(log, lsn, lsn))
        for log, lsn, by_recovery, wave, header in batch.headers:
            key = keys.data_key(log, lsn, by_recovery, wave)
            row = None if key in changes else with_header(header, rows.get(key))
            if row is not None:
                changes[key] = row
        changes.update(metadata_rows(batch))
        if self._durable is not None:
            changes[keys.DURABLE_KEY] = encode_durable(self._durable)
            self._durable = None
        self._settle(changes)
        disk.apply(changes)
        return Status.OK

    def _put_copy(self, changes: dict[bytes, bytes | None], key: bytes, image: bytes) -> None:
        header = header_apart(image) if len(image) >= self._settings.blob_bytes_min else None
        if header is not None:
            changes[keys.body_key(key)] = image
        changes[key] = header or image

    def begin_sync(self) -> int:
        """For a runner whose syncs take time: `finish_sync` with this token covers what was written so far."""
        return self._disk.begin_sync()

    def finish_sync(self, token: int) -> Status:
        """End the sync of a `begin_sync`."""
        if self._failed or self._disk.fail_sync:
            if not self._failed:
                self._disk.fired["failing_sync"] += 1
            self._fail()
            return Status.FAILED
        self._disk.finish_sync(token)
        return Status.OK

    def sync(self) -> Status:
        """Make everything written so far durable."""
        return self.finish_sync(self.begin_sync())

    def read(self, request: ReadShard) -> ReadResult:
        """Execute a `ReadShard`."""
        if self._failed:
            return ReadResult(Status.FAILED, request.last)
        collector = PrecedenceCollector(request, self._disk.bodies(request.log))
        rows, unreadable = self._disk.rows, self._disk.unreadable
        begin, end = keys.data_bounds(request.log, request.first, request.last)
        damaged = Lsn(-1)
        for key in rows.irange(begin, end, inclusive=(True, False)):
            lsn, rank = keys.split_data_key(key)
            if unreadable and key in unreadable:
                # what cannot be read may have been a copy of higher rank of the entry before it
                begun = collector.drop_open()
                collector.add_corrupt(lsn if begun is None else begun, lsn)
                self._disk.fired["read_error"] += 1
                damaged = lsn
            elif lsn != damaged and not collector.add(lsn, rank, rows[key]):
                return self._answer(collector.result)
        collector.finish()
        return self._answer(collector.result)

    def _answer(self, result: ReadResult) -> ReadResult:
        if result.corrupt and self._disk.flipped:
            self._disk.fired["bit_flip"] += 1
        return result

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        result = ReadResult(Status.OK, request.last)
        if self._failed:
            result.status = Status.FAILED
            return result
        rows, unreadable = self._disk.rows, self._disk.unreadable
        begin, end = keys.data_bounds(request.log, request.first, request.last)
        finder = LastFinder(request, result, self._disk.bodies(request.log))
        above = request.last
        for key in rows.irange(begin, end, inclusive=(True, False), reverse=True):
            lsn, rank = keys.split_data_key(key)
            if unreadable and key in unreadable:
                begun = finder.drop_open()
                result.corrupt.append((request.first, above if begun is None else begun))
                self._disk.fired["read_error"] += 1
                return result
            if finder.add(lsn, rank, rows[key]):
                return self._answer(result)
            above = lsn
        finder.finish()
        return self._answer(result)

    def read_directory(self, request: ReadDirectory) -> DirectoryResult:
        """Execute a `ReadDirectory`."""
        if self._failed:
            return DirectoryResult(Status.FAILED)
        return answer_directory(self._directory, self._partitions, request, self._space_end())

    def _space_end(self) -> int:
        disk, guard = self._disk, self._guard
        guard.update(disk.free, disk.total)
        wanted = guard.missing(self._settings.space_retention_percent)
        end = last_to_trim(self._partitions, self._size_of, wanted)
        if end and disk.taken:
            disk.fired["crowded_disk"] += 1
        return end

    def _size_of(self, partition: int) -> int:
        """Bytes of the entries that lie in a partition."""
        rows, size = self._disk.rows, 0
        for log, _ in self._directory.rows():
            for (number, first, last), _ in self._directory.sized(log, LSN_OLDEST, Lsn(LSN_MAX - 1)):
                if number == partition:
                    for begin, end in keys.copy_bounds(log, first, last):
                        size += sum([len(key) + len(rows[key]) for key in rows.irange(begin, end, (True, False))])
        return size

    def maintain(self, now: Timestamp) -> None:
        """Begin the next partition when it is due; what is left of dropped ones goes with the next write."""
        if self._failed or self._run.marker is None:
            return
        partitions = self._partitions
        if partitions.is_due(now):
            self._directory.latest = partitions.begin(partitions.next_number, now).number
        for number in list(partitions.dropped):
            partitions.forget(number)

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions in use, ascending."""
        return [partition.number for partition in self._partitions]

    @property
    def wants_sync(self) -> bool:
        """As of `LogStore`: never."""
        return False

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next write, that a sync covered every write before `until`."""
        self._durable = until

    def close(self) -> None:
        """Sync and leave the clean-stop mark. A failed store closes without the mark."""
        assert not self._closed, "closed twice"
        self._closed = True
        if self._failed or self._run.marker is None:
            return
        self._directory.save_all()
        changes: dict[bytes, bytes | None] = {keys.MARKER_KEY: self._run.marker.closed().encode()}
        self._settle(changes)
        self._disk.apply(changes)
        self.sync()

    def _fail(self) -> None:
        self._failed = True
        self._disk.failed_note = True
