"""The store in memory: for the simulator and unit tests. Its disk survives the store and can crash, fail and rot."""

from __future__ import annotations

from collections.abc import Sequence

from sortedcontainers import SortedDict

from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.contents import ContentsBuilder, decode_losses, encode_durable, encode_losses
from storage_node.log_store.identity import CorruptMarkerError, PreviousEnd, ShardMarker, judge_stop
from storage_node.log_store.interface import Contents, ReadLast, ReadResult, ReadShard, WriteBatch
from storage_node.log_store.precedence import LastFinder, Missing, PrecedenceCollector, resolve

_Undo = list[tuple[bytes, bytes | None]]


class MemoryDisk:
    """What a `MemoryLogStore` writes to. It outlives the store, as a disk outlives a process.

    Crash model: writes are applied at once and become durable by a sync; a crash takes back the batches since the last sync, or a
    suffix of them. A batch is never torn.
    """

    __slots__ = (
        "_undo",
        "_written",
        "boot",
        "fail_sync",
        "fail_write",
        "failed_note",
        "free",
        "overloaded",
        "rows",
        "total",
    )

    def __init__(self) -> None:
        self.rows: SortedDict = SortedDict()
        self._undo: list[_Undo] = []
        self._written = 0
        self.boot = "boot 1"
        """Changes with `crash`."""
        self.failed_note = False
        self.fail_write = False
        """Every write fails."""
        self.fail_sync = False
        """Every sync fails."""
        self.overloaded = False
        """The disk does not keep up."""
        self.free = 1 << 40
        """Free bytes; with `total` for the free-space guard of the shell."""
        self.total = 1 << 40

    @property
    def unsynced(self) -> int:
        """How many batches a crash could take back."""
        return len(self._undo)

    def apply(self, changes: dict[bytes, bytes | None]) -> None:
        """Apply the changes of one batch (None deletes); durable with the next sync."""
        rows = self.rows
        undo = [(key, rows.get(key)) for key in changes]
        for key, value in changes.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        self._undo.append(undo)
        self._written += 1

    def begin_sync(self) -> int:
        """A token for `finish_sync`: that sync covers what was applied up to here."""
        return self._written

    def finish_sync(self, token: int) -> None:
        """The sync begun with `begin_sync` is done."""
        durable = self._written - len(self._undo)
        if token > durable:
            del self._undo[: token - durable]

    def crash(self, surviving: int = 0) -> None:
        """Power cut: of the unsynced batches only the first `surviving` remain."""
        while len(self._undo) > surviving:
            for key, value in self._undo.pop():
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
        self._written = 0
        self._undo.clear()
        self.boot += "'"

    def wipe(self) -> None:
        """The disk was replaced by an empty one."""
        self.rows.clear()
        self._undo.clear()
        self._written = 0

    def corrupt(self, log: int, lsn: int) -> None:
        """Flip a bit in the last byte of every copy at an LSN, checksums excepted."""
        begin, end = keys.data_bounds(log, lsn, lsn)
        for key in list(self.rows.irange(begin, end, inclusive=(True, False))):
            image = self.rows[key]
            self.rows[key] = image[:-1] + bytes([image[-1] ^ 1])


class MemoryLogStore:
    """A `LogStore` on a `MemoryDisk`."""

    __slots__ = ("_closed", "_disk", "_durable", "_failed", "_found", "_losses", "_marker", "_stop")

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self._failed = False
        self._closed = False
        self._durable: Timestamp | None = None
        self._found: ShardMarker | None = None
        self._marker: ShardMarker | None = None
        self._stop = PreviousEnd.CLEAN
        self._losses: list[tuple[Timestamp, Timestamp]] = []
        raw = disk.rows.get(keys.MARKER_KEY)
        if raw is not None:
            try:
                self._found = ShardMarker.decode(raw)
            except CorruptMarkerError:
                self._found = None

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
        rows = self._disk.rows
        self._stop = judge_stop(self._found, boot=boot, failed=self._disk.failed_note)
        self._losses = decode_losses(rows.get(keys.LOSSES_KEY), rows.get(keys.DURABLE_KEY), self._stop, now)
        self._marker = marker.opened(boot)
        self._disk.apply(
            {
                keys.MARKER_KEY: self._marker.encode(),
                keys.LOSSES_KEY: encode_losses(self._losses),
                keys.DURABLE_KEY: encode_durable(now),
            }
        )
        status = self.sync()
        if status is Status.OK:
            self._disk.failed_note = False
        return status

    def load(self) -> Contents:
        """One scan over everything."""
        assert self._marker is not None, "load before adopt"
        builder = ContentsBuilder(Contents(self._marker, self._stop, self._losses))
        highest: dict[int, int] = {}
        for key, value in self._disk.rows.items():
            if key[0] == 0x64:
                highest[int.from_bytes(key[1:9], "big")] = keys.split_data_key(key)[0]
            else:
                builder.add(key, value)
        builder.contents.highest = list(highest.items())  # type: ignore[arg-type]
        return builder.contents

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        """Apply batches in order."""
        return [self._write(batch) for batch in batches]

    def _write(self, batch: WriteBatch) -> Status:
        disk = self._disk
        if self._failed or disk.fail_write:
            self._fail()
            return Status.FAILED
        if disk.overloaded:
            return Status.OVERLOADED
        if batch.entries and disk.free <= 0:
            return Status.NOSPC
        rows = disk.rows
        changes: dict[bytes, bytes | None] = {}
        for log, first, last in batch.deletes:
            begin, end = keys.data_bounds(log, first, last)
            changes.update(dict.fromkeys(rows.irange(begin, end, inclusive=(True, False))))
        for log, lsn in batch.consolidations:
            begin, end = keys.data_bounds(log, lsn, lsn)
            copies = list(rows.irange(begin, end, inclusive=(True, False)))
            if len(copies) > 1:
                found = resolve(log, lsn, [(keys.split_data_key(key)[1], rows[key]) for key in copies])
                if not isinstance(found, Missing):
                    changes.update(dict.fromkeys(copies))
                    changes[copies[-1]] = found
        for log, epoch, epoch_kind in batch.epoch_deletes:
            changes[keys.epoch_metadata_key(log, epoch, epoch_kind)] = None
        for log, lsn, by_recovery, wave, image in batch.entries:
            changes[keys.data_key(log, lsn, by_recovery, wave)] = image
        for log, kind, value in batch.log_metadata:
            changes[keys.log_metadata_key(log, kind)] = value
        for log, epoch, epoch_kind, value in batch.epoch_metadata:
            changes[keys.epoch_metadata_key(log, epoch, epoch_kind)] = value
        if self._durable is not None:
            changes[keys.DURABLE_KEY] = encode_durable(self._durable)
            self._durable = None
        disk.apply(changes)
        return Status.OK

    def begin_sync(self) -> int:
        """For a runner whose syncs take time: `finish_sync` with this token covers what was written so far."""
        return self._disk.begin_sync()

    def finish_sync(self, token: int) -> Status:
        """End the sync of a `begin_sync`."""
        if self._failed or self._disk.fail_sync:
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
        collector = PrecedenceCollector(request.log, request.last, request.bytes_max, request.entries_max)
        rows = self._disk.rows
        begin, end = keys.data_bounds(request.log, request.first, request.last)
        for key in rows.irange(begin, end, inclusive=(True, False)):
            if not collector.add(*keys.split_data_key(key), rows[key]):
                return collector.result
        collector.finish()
        return collector.result

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        result = ReadResult(Status.OK, request.last)
        if self._failed:
            result.status = Status.FAILED
            return result
        rows = self._disk.rows
        begin, end = keys.data_bounds(request.log, request.first, request.last)
        finder = LastFinder(request, result)
        for key in rows.irange(begin, end, inclusive=(True, False), reverse=True):
            if finder.add(*keys.split_data_key(key), rows[key]):
                return result
        finder.finish()
        return result

    def mark_durable(self, until: Timestamp) -> None:
        """Note, with the next write, that a sync covered every write before `until`."""
        self._durable = until

    def close(self) -> None:
        """Sync and leave the clean-stop mark. A failed store closes without the mark."""
        assert not self._closed, "closed twice"
        self._closed = True
        if self._failed or self._marker is None:
            return
        self._disk.apply({keys.MARKER_KEY: self._marker.closed().encode()})
        self.sync()

    def _fail(self) -> None:
        self._failed = True
        self._disk.failed_note = True
