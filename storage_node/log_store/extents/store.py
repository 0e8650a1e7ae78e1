"""A shard's store in extents. Nothing here knows a clock, a thread or a file system: production and the simulator run this very object.

Opening reads and changes nothing; `adopt` begins a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.batch_groups import write_in_groups
from storage_node.log_store.contents import ContentsBuilder, encode_durable
from storage_node.log_store.counting import uncount_repeated, weigh
from storage_node.log_store.directory import Directory, DirectoryOrderError
from storage_node.log_store.directory_answers import answer_directory, last_to_trim
from storage_node.log_store.extents.block_format import BadBlockError, Changes, ExtentHeader
from storage_node.log_store.extents.chain import Chain, SyncTicket
from storage_node.log_store.extents.disk import DiskError, StoreDisk
from storage_node.log_store.extents.group import BlockGroup
from storage_node.log_store.extents.held_extents import FAILED, HeldExtents
from storage_node.log_store.extents.reading import Images
from storage_node.log_store.extents.replay import ReplayDamageError
from storage_node.log_store.extents.sorted_table import BadTableError, ReadCache
from storage_node.log_store.extents.upkeep import Chore, ExtentUpkeep
from storage_node.log_store.identity import CorruptMarkerError, PreviousEnd, ShardMarker
from storage_node.log_store.interface import (
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
from storage_node.log_store.row_values import UnknownRowError
from storage_node.log_store.settings import LogStoreSettings
from storage_node.log_store.space import SpaceGuard
from storage_node.log_store.store_run import StoreRun
from storage_node.log_store.view import StoreView

_ROWS_BYTES: Final = 4096
"""About what rows of the store itself take in a block."""
_MEASURE_BYTES_MIN: Final = 64 << 10
_UNSYNCED_MAX: Final = 64 << 20
_UNSYNCED_SOFT: Final = 8 << 20


class ExtentLogStore:
    """A `LogStore` on a `StoreDisk`. Calls of its own thread: everything but `sync`, `finish_sync` and chores."""

    def __init__(
        self,
        disk: StoreDisk,
        settings: LogStoreSettings,
        *,
        boot: str = "",
        where: str = "",
        new_salt: Callable[[], int],
        images: Images | None = None,
    ) -> None:
        """Read what is on the disk. Nothing is changed.

        Args:
            boot: boot id of the operating system; empty: unknown.
            where: names the store, for people.
            new_salt: random numbers of 64 bits.
            images: what fetches images.

        Raises:
            LogDeviceError: FAILED: what was durable cannot be read, or does not belong together.
        """
        self.directory = where
        self.bytes_written = 0
        self.trims_for_space = False
        self._disk = disk
        self._settings = settings
        self._failed = False
        self._closed = self._abandoned = False
        self._directory = Directory(settings.directory_save_bytes)
        self._partitions = Partitions(settings)
        self._guard = SpaceGuard.of(settings)
        self._unmeasured = 0
        """Bytes that may be written before free space is measured again."""
        self._run = StoreRun()
        self._durable: Timestamp | None = None
        self._chain = Chain(disk, settings.extent_bytes, settings.extent_rows_max, new_salt)
        with self._reading():
            self._extents = HeldExtents(
                disk,
                self._chain,
                images or Images(),
                self._directory.overlapping,
                boot,
                ReadCache(settings.block_cache_bytes),
            )
        self._long_lived, self._reader = self._extents.long_lived, self._extents.reader
        self._upkeep = ExtentUpkeep(
            disk,
            settings,
            self._chain,
            self._extents,
            self._directory,
            self._partitions,
            self._guard,
            commit=partial(self._write_rows, {}),
            fail=self._fail,
            runs=lambda: self._runs,
        )

    # ---- opening

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """What cannot be read is FAILED."""
        try:
            yield
        except (BadTableError, BadBlockError, DiskError, ReplayDamageError, UnknownRowError) as error:
            raise LogDeviceError(Status.FAILED, f"the store in {self.directory} cannot be read: {error}") from None

    @property
    def torn(self) -> bool:
        """Whether something lay behind the last block that counts."""
        return self._extents.torn

    @property
    def last_block(self) -> int:
        """The last block that counts."""
        return self._chain.last

    @property
    def applied(self) -> int:
        """The table of what lives long holds what blocks up to this one changed."""
        return self._long_lived.applied

    # ---- identity

    @property
    def marker(self) -> ShardMarker | None:
        """The marker of this run; None before `adopt`."""
        return self._run.marker

    @property
    def found(self) -> ShardMarker | None:
        """The marker that the last run left; None without one that can be read."""
        with self._reading():
            raw = self._long_lived.get(keys.MARKER_KEY)
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
        return self._long_lived.empty and not self._extents.held

    def adopt(self, marker: ShardMarker, *, boot: str, now: Timestamp) -> Status:
        """Begin a run: leave the marker, durably, without the mark of a clean stop. OK or FAILED."""
        disk, chain = self._disk, self._chain
        with self._reading():
            rows = self._run.begin(
                marker, found=self.found, rows=self._long_lived.get, boot=boot, failed=FAILED in disk.names(), now=now
            )
        try:
            self._extents.sync_replayed()
            template = ExtentHeader(
                cluster=marker.cluster,
                shard=marker.shard,
                generation=marker.generation,
                run=chain.run + 1,
                number=0,
                salt=0,
                taken_run=chain.last_run,
                taken_block=chain.last,
                boot=boot,
            )
            self._extents.remove_leftovers()
            chain.begin_run(template)
            self._extents.wipe_torn()
        except DiskError as error:
            self._fail(str(error))
            return Status.FAILED
        self._write_group(BlockGroup(self._directory, self._partitions, self._reader, 1 << 62), (), dict(rows))
        if self._failed or self.sync() is not Status.OK:
            return Status.FAILED
        with suppress(DiskError):
            if FAILED in disk.names():
                disk.unlink(FAILED)
                disk.sync_names()
        return Status.OK

    def advance_incarnation(self) -> int | None:
        """Write the next incarnation; durable with the next sync. It must not be told to anybody before. None: it was not written."""
        assert self._run.marker is not None, "advance_incarnation before adopt"
        marker = self._run.marker.later()
        if self._write_rows({keys.MARKER_KEY: marker.encode()}) is not Status.OK:
            return None
        self._run.marker = marker
        return marker.incarnation

    def load(self) -> Contents:
        """One scan over all metadata; after an unclean stop, a look at the end of logs that changed since the table was made.

        Raises:
            LogDeviceError: FAILED: the metadata, or the end of a log after an unclean stop, is damaged or of a version not known here.
        """
        builder = ContentsBuilder(self._run.contents())
        with self._reading():
            for key, value in self._long_lived.rows():
                builder.add(key, value)
            try:
                for log, rows in builder.directory.items():
                    self._directory.restore(log, rows)
            except DirectoryOrderError as error:
                raise LogDeviceError(Status.FAILED, f"the directory of {self.directory} is damaged: {error}") from None
            self._restore_partitions(builder)
            if self._run.stop is not PreviousEnd.CLEAN:
                # of all others the table has what the directory said when it was made
                doubtful = {*self._extents.memory.logs(), *self._extents.deletes.logs()}
                for index in self._extents.indexes.values():
                    if index.last > self._long_lived.applied:
                        doubtful.update(index.logs)
                for log, row in list(self._directory.rows()):
                    if log in doubtful:
                        counted = row.highest
                        self._directory.look_up(log, self._reader.find_highest)
                        self._directory.count_above(log, counted, self._reader.bytes_in)
            weigh(self._directory, self._partitions)
            if self._write_rows({}) is not Status.OK:
                raise LogDeviceError(Status.FAILED, f"the store in {self.directory} cannot be written")
        builder.contents.highest = [(log, row.highest) for log, row in self._directory.rows()]
        return builder.contents

    def _restore_partitions(self, builder: ContentsBuilder) -> None:
        directory, partitions = self._directory, self._partitions
        for number, value in builder.partitions:
            partitions.restore(number, value)
        for number in list(partitions.dropped):
            partitions.forget(number)
        known = {number for number in directory.logs if directory.logs[number] and number != keys.UNPARTITIONED}
        for number in sorted(known):
            if number not in partitions:
                raise LogDeviceError(Status.FAILED, f"partition {number} of the store is missing")
        if not len(partitions):
            partitions.begin(partitions.next_number, self._run.began_at)
        directory.latest = partitions.latest.number
        referring = {each for held in self._extents.held.values() for each in held.partitions} | {*self._extents.moved}
        self._extents.forget_partitions({each for each in referring - {keys.UNPARTITIONED} if each not in partitions})
        # what was trimmed before is not counted anywhere
        self._extents.trimmed.update(partition.number for partition in partitions)

    # ---- writing

    @property
    def failed(self) -> bool:
        """Whether a write or sync has failed."""
        return self._failed

    @property
    def _runs(self) -> bool:
        return not self._failed and self._run.marker is not None and not self._closed

    @property
    def refusing_for_space(self) -> bool:
        """Whether entries are answered NOSPC."""
        return self._guard.refusing

    def check_space(self) -> None:
        """Measure the free space."""
        self._guard.update(*self._disk.space())
        self._unmeasured = min(self._settings.free_space_check_bytes, max(self._guard.soon, _MEASURE_BYTES_MIN))

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """Apply batches in order, in groups, without sync."""
        if self._unmeasured <= 0:
            self.check_space()
        if len(batches) == 1 and not self._guard.refuses(batches[0]):
            return self._write(batches)
        return write_in_groups(batches, self._settings.write_group_bytes_max, self._guard.refuses, self._write)

    def _write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        if not batches:
            return []
        status = Status.FAILED
        if not self._failed:
            must_pass, entries, size = False, 0, 0
            for batch in batches:
                must_pass = must_pass or batch.must_pass
                entries += len(batch.entries)
                size += batch.size
            essential = must_pass or not entries
            # keys and headers that are read apart come on top
            size += 160 * entries
            status = self._admits(size, must_pass=must_pass, essential=essential)
            if status is Status.NOSPC:
                return self._write_without_entries(batches)
            if status is Status.OK:
                group = BlockGroup(self._directory, self._partitions, self._reader, self._settings.blob_bytes_min)
                status = self._write_group(group, batches, {})
                self.bytes_written += size
                self._unmeasured -= size
        return [status] * len(batches)

    def _write_without_entries(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """There is no room for the entries of a group: only those of its batches that have none are written."""
        written = iter(self._write([batch for batch in batches if not batch.entries]))
        return [Status.NOSPC if batch.entries else next(written) for batch in batches]

    def _admits(self, size: int, *, must_pass: bool, essential: bool) -> Status:
        if self._chain.unsynced > _UNSYNCED_MAX and not must_pass:
            hit("extents_overloaded")
            return Status.OVERLOADED
        try:
            if self._chain.make_room(size + _ROWS_BYTES, last_one=essential):
                return Status.OK
        except DiskError as error:
            self._fail(str(error))
            return Status.FAILED
        if essential:
            self._fail("there is no room left for what must be written")
            return Status.FAILED
        hit("extents_no_room")
        return Status.NOSPC

    def _write_rows(self, rows: Mapping[bytes, bytes | None]) -> Status:
        """Write rows of metadata, with what is due."""
        if self._failed:
            return Status.FAILED
        status = self._admits(sum(map(len, rows)), must_pass=True, essential=True)
        if status is not Status.OK:
            return status
        group = BlockGroup(self._directory, self._partitions, self._reader, self._settings.blob_bytes_min)
        return self._write_group(group, (), dict(rows))

    def _write_group(self, group: BlockGroup, batches: Sequence[WriteBatch], rows: dict[bytes, bytes | None]) -> Status:
        directory, partitions = self._directory, self._partitions
        for batch in batches:
            group.fill(batch)
        if directory.repeated:
            uncount_repeated(directory, batches, self._bytes_at)
        unused = directory.unused()
        if directory.changed:
            group.put_rows(directory.pending())
        if partitions.changed:
            group.put_rows(partitions.pending())
        if unused:
            group.put_rows(dict(partitions.tombstones(unused)))
        if self._extents.due or rows:
            group.put_rows({**self._extents.due, **rows})
        if self._durable is not None:
            group.put_rows({keys.DURABLE_KEY: encode_durable(self._durable)})
        changes, images = group.changes()
        try:
            written = self._chain.append(changes, images)
        except DiskError as error:
            self._fail(str(error))
            return Status.FAILED
        self._durable = None
        if self._extents.due:
            self._extents.due = {}
        directory.saved()
        partitions.saved()
        if written.closed is not None:
            self._upkeep.waits = True
        self._extents.take(written, changes, images)
        if unused:
            partitions.drop(unused)
            for number in unused:
                directory.forget(number)
            self._extents.forget_partitions(set(unused))
        self._on_written(written.number, changes, images)
        return Status.OK

    def _on_written(self, block: int, changes: Changes, images: Sequence[bytes]) -> None:
        """A block was written: for who looks on."""

    def _bytes_at(self, partition: int, log: LogId, lsn: Lsn) -> int:
        return self._reader.bytes_in(partition, log, lsn, lsn)

    # ---- syncing

    def begin_sync(self) -> SyncTicket:
        """For a runner whose syncs take time, one at a time: `finish_sync` with this ticket covers what was written so far."""
        return self._chain.begin_sync()

    def finish_sync(self, ticket: SyncTicket) -> Status:
        """End the sync of a `begin_sync`. In any thread."""
        if self._failed:
            self._chain.give_back(ticket)
            return Status.FAILED
        try:
            self._chain.finish_sync(ticket)
        except DiskError as error:
            self._fail(str(error))
        return Status.FAILED if self._failed else Status.OK

    def end_sync(self, ticket: SyncTicket, failure: str) -> Status:
        """End a sync whose files somebody else has synced.

        Args:
            failure: why not all of them are; empty: they are.
        """
        if failure:
            self._fail(failure)
        if self._failed:
            self._chain.give_back(ticket)
        else:
            self._chain.covered(ticket)
        return Status.FAILED if self._failed else Status.OK

    def abandon_sync(self, ticket: SyncTicket) -> None:
        """A sync that was begun covers nothing: the next one syncs its files as well."""
        self._chain.give_back(ticket)

    def sync(self) -> Status:
        """Make durable every batch whose `write` returned before the call."""
        return self.finish_sync(self.begin_sync())

    @property
    def wants_sync(self) -> bool:
        """As of `LogStore`."""
        return self._chain.unsynced >= _UNSYNCED_SOFT

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next write, that a sync covered every write before `until`."""
        self._durable = until

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            hit("log_store_failed")
            # where even this cannot be written, there is nothing left to do
            with suppress(DiskError):
                note = self._disk.create(FAILED, 0)
                note.write([reason.encode() + b"\n"], 0)
                note.sync(note.mark())
                self._disk.sync_names()

    # ---- reading

    def read(
        self, request: ReadShard, is_late: Callable[[], bool] | None = None, *, nowait: bool = False
    ) -> ReadResult:
        """Execute a `ReadShard`.

        Args:
            is_late: asked now and then; whether the answer shall end with what it has, one entry at least.
            nowait: it must not wait for the disk.

        Raises:
            ColdReadError: it would have to, before there is anything to answer.
        """
        return self._read(request, partial(self._reader.read, request, is_late), nowait)

    def _read(self, request: ReadShard | ReadLast, execute: Callable[[], ReadResult], nowait: bool) -> ReadResult:
        if self._failed:
            return ReadResult(Status.FAILED, request.last)
        mode = self._extents.mode
        mode.nowait = nowait
        try:
            result = execute()
            if self._extents.suspects and self._extents.make_indexes_anew():
                result = execute()
        finally:
            mode.nowait = False
        return result

    def read_last(self, request: ReadLast, *, nowait: bool = False) -> ReadResult:
        """Execute a `ReadLast`; `nowait` as of `read`."""
        return self._read(request, partial(self._reader.read_last, request), nowait)

    def read_directory(self, request: ReadDirectory) -> DirectoryResult:
        """Execute a `ReadDirectory`."""
        if self._failed:
            return DirectoryResult(Status.FAILED)
        return answer_directory(self._directory, self._partitions, request, self._space_end())

    def _space_end(self) -> int:
        self.check_space()
        wanted = self._guard.missing(self._settings.space_retention_percent)
        wanted -= self.bytes_to_drop if wanted > 0 else 0
        self.trims_for_space = wanted > 0
        return last_to_trim(self._partitions, self.size_of, wanted)

    def size_of(self, partition: int) -> int:
        """About how many bytes a partition takes."""
        return self._partitions[partition].size if partition in self._partitions else 0

    @property
    def bytes_to_drop(self) -> int:
        """About how much space is taken by what nothing refers to."""
        return sum(held.extent.size for held in self._extents.held.values() if self._extents.is_free(held))

    # ---- upkeep

    def maintain(self, now: Timestamp) -> None:
        """To be called about every second, on the thread that writes: begin the next partition when it is due.

        Args:
            now: the node's wall clock.
        """
        self._upkeep.take_up()
        if not self._runs:
            return
        self._upkeep.begin_round()
        self.check_space()
        partitions = self._partitions
        for number in list(partitions.dropped):
            partitions.forget(number)
        if not self._guard.refusing and partitions.is_due(now):
            self._directory.latest = partitions.begin(partitions.next_number, now).number
        if partitions.changed or self._extents.due:
            self._write_rows({})

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions in use, ascending."""
        return [partition.number for partition in self._partitions]

    @property
    def view(self) -> StoreView:
        """What it holds, to look at."""
        return StoreView(
            self._directory,
            self._partitions,
            self.size_of,
            self._reader.superseded,
            lambda: None,
            lambda: self._guard.spare,
            self._extents.extents,
        )

    def drop_next(self) -> float | None:
        """There is nothing to do for a dropped partition but what chores do."""
        return None

    def report(self, metrics: LogStoreMetrics) -> None:
        """Set the gauges."""
        self._guard.report(metrics)
        metrics.trimming_for_space = int(self.trims_for_space)
        metrics.partitions = len(self._partitions)
        metrics.partitions_to_drop = sum(map(self._extents.is_free, self._extents.held.values()))
        metrics.directory_rows = self._directory.rows_count
        metrics.files_rewritten = self._upkeep.control_check.found

    def next_chore(self) -> Chore | None:
        """Work that takes long, to be done in another thread, one at a time; None: there is none."""
        return self._upkeep.next_chore()

    @property
    def has_chores(self) -> bool:
        """Whether it pays to ask for a chore soon: an extent was closed, or none follows."""
        return self._upkeep.waits and self._runs and not self._upkeep.under_way

    # ---- closing

    def close(self) -> None:
        """Sync, leave the clean-stop mark, and close. A failed store closes without the mark."""
        assert not self._closed, "closed twice"
        self._upkeep.take_up()
        if self._runs:
            self._leave_clean()
        self._closed = True
        self.abandon()

    def _leave_clean(self) -> None:
        """The mark says that the rows of the directory are exact: it is written with them or not at all."""
        for log, row in list(self._directory.rows()):
            if row.doubtful:
                with suppress(BadTableError, DiskError):
                    self._directory.look_up(log, self._reader.find_highest)
        if not self._upkeep.under_way and self.sync() is Status.OK:
            self._upkeep.finish(self.sync)
        if self._failed:
            return
        marker = self._run.marker
        assert marker is not None
        closed = marker.closed()
        if self._write_rows({keys.MARKER_KEY: closed.encode()}) is Status.OK and self.sync() is Status.OK:
            self._run.marker = closed

    def abandon(self) -> None:
        """Close as it is, without sync or mark. Harmless when it is closed."""
        if not self._abandoned:
            self._closed = self._abandoned = True
            self._extents.images.files.clear()
            self._disk.close()
