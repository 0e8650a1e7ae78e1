"""Damaged files of partitions are replaced: a partition whose files cannot be read everywhere is copied into a fresh column family.

Where a block of a file does not match its checksum, nothing that is written helps: whoever reads past it fails, compaction too. What can be read
is copied, and in place of what cannot be read come the entries that were restored there. The directory's row on families
says, in one write, that the new family counts; the old one and its files go when that is durable. A partition of which some part is neither
readable nor restored stays as it is.

Work is done in pieces on the thread that writes. What is written to the partition meanwhile is written to both families.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

import rocksdict

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import WriteBatch
from storage_node.log_store.rocksdb.families import Families, RocksDBError
from storage_node.log_store.rocksdb.ranges import Bounds, DamagedError, RangeReader
from storage_node.log_store.rocksdb.rows import delete_copies, put_copy

Damage = tuple[LogId, Lsn, Lsn]
_RETRY: Final = 3 * SECOND


class _Restored:
    """What was restored in a partition since the store was opened: there it need not be readable."""

    def __init__(self) -> None:
        self.ranges: dict[LogId, list[tuple[Lsn, Lsn]]] = {}
        self.keys: dict[LogId, set[bytes]] = {}

    def covers(self, log: LogId, first: Lsn, last: Lsn) -> bool:
        position = first
        for low, high in sorted(self.ranges.get(log, ())):
            if low <= position <= high:
                position = Lsn(high + 1)
        return position > last

    def holds(self, log: LogId, lsn: Lsn) -> bool:
        return any(low <= lsn <= high for low, high in self.ranges.get(log, ()))

    def in_range(self, log: LogId, first: Lsn, last: Lsn) -> list[bytes]:
        begin, end = keys.data_bounds(log, first, last)
        return sorted(key for key in self.keys.get(log, ()) if begin <= key < end)


class _Copying:
    """One partition on its way into a fresh family."""

    def __init__(self, partition: int, version: int, reader: Any, handle: Any, spans: list[Damage]) -> None:
        self.partition = partition
        self.version = version
        self.reader = reader
        self.handle = handle
        self.spans = spans
        """What is still to be copied, in reverse."""
        self.count = 0


class RewrittenStore(Protocol):
    """The store, as far as replacing its files takes it."""

    def settle(self, partition: int, now: Timestamp) -> None:
        """See to it that the partition is not the latest: it stays as it is from here on, but for what belongs among what it has."""

    def commit(self, group: Any) -> Status:
        """Write a group."""

    def sync(self) -> Status:
        """Make durable what is written."""


class PartitionRewriter:
    """What is known of damaged files of one store, and their replacement."""

    def __init__(self, families: Families, directory: Directory, ranges: RangeReader, apart_bytes_min: int) -> None:
        """
        Args:
            apart_bytes_min: as in `put_copy`.
        """
        self._apart_bytes_min = apart_bytes_min
        self._families = families
        self._directory = directory
        self._ranges = ranges
        self._restored: dict[int, _Restored] = {}
        self._suspects: dict[int, Timestamp] = {}
        """Partitions with damaged files, and when to try next."""
        self._damaged: set[int] = set()
        """Partitions in whose files the batches that are being written replace something."""
        self._copying: _Copying | None = None
        self.found: list[Damage] = []
        """Ranges that cannot be read and are not restored: to be taken by whoever can restore them."""
        self.said: list[str] = []
        """Sentences for the operator, to be taken."""
        self.stopping = False
        """The store is about to be closed: `find_damaged` ends early."""

    @property
    def suspects(self) -> list[int]:
        """Partitions whose files are known to be damaged."""
        return sorted(self._suspects)

    @property
    def busy(self) -> bool:
        """Whether a partition is being copied."""
        return self._copying is not None

    @property
    def watching(self) -> bool:
        """Whether `written` is to be called for every batch, also of those that restore nothing."""
        return bool(self._restored)

    # ---- what is written

    def fill(self, group: Any, batch: WriteBatch) -> None:
        """Delete what is to be replaced; called before the batch's entries are put."""
        for log, first, last in batch.restored:
            for partition, low, high in self._directory.overlapping(log, first, last):
                for bounds in keys.copy_bounds(log, low, high):
                    try:
                        for _ in self._ranges.rows(partition, *bounds):
                            pass
                    except DamagedError as error:
                        # the deletion hides the damage from readers, not from compaction; a damaged blob is hidden for good
                        if "Blob" not in str(error):
                            self._damaged.add(partition)
                delete_copies(group, log, low, high, self._families.handles[partition])

    def mirror(self, group: Any, batch: WriteBatch) -> None:
        """Of a batch of which everything is in the group already: what concerns the family that is being filled."""
        copying = self._copying
        if copying is None:
            return
        for log, first, last in (*batch.deletes, *batch.restored):
            delete_copies(group, log, first, last, copying.handle)
        for log, lsn, by_recovery, wave, image in batch.entries:
            if self._partition_of(log, lsn) == copying.partition:
                key = keys.data_key(log, lsn, by_recovery, wave)
                put_copy(group, key, image, copying.handle, self._apart_bytes_min)

    def mirror_row(self, group: Any, partition: int, key: bytes, row: bytes) -> None:
        """A row of the partition is changed: also in the family that is being filled, if it is there already."""
        copying = self._copying
        if copying is not None and partition == copying.partition:
            group.put(key, row, copying.handle)

    def written(self, batch: WriteBatch) -> None:
        """A batch was applied: it restores something, or may lie where something was restored."""
        for log, first, last in batch.restored:
            for partition, low, high in self._spans(log, first, last):
                restored = self._restored.setdefault(partition, _Restored())
                restored.ranges.setdefault(log, []).append((low, high))
        for log, lsn, by_recovery, wave, _ in batch.entries:
            there = self._restored.get(self._partition_of(log, lsn))
            if there is not None and there.holds(log, lsn):
                there.keys.setdefault(log, set()).add(keys.data_key(log, lsn, by_recovery, wave))
        damaged, self._damaged = self._damaged, set()
        for partition in sorted(damaged):
            self.suspect(partition)

    def _partition_of(self, log: LogId, lsn: Lsn) -> int:
        spans = self._directory.overlapping(log, lsn, lsn)
        return spans[0][0] if spans else -1

    def _spans(self, log: LogId, first: Lsn, last: Lsn) -> list[tuple[int, Lsn, Lsn]]:
        return self._directory.overlapping(log, first, last)

    # ---- replacing

    def suspect(self, partition: int) -> None:
        """Files of the partition are damaged; harmless when it was dropped meanwhile."""
        if partition in self._suspects or partition not in self._families:
            return
        hit("log_store_files_damaged")
        self._suspects[partition] = Timestamp(0)
        # compaction would meet the damage again and again
        self._families.reader(partition).set_options({"disable_auto_compactions": "true"})
        self.said.append(
            f"files of partition {partition} ({self._families.names[partition]}) do not match their checksums; what can be read of them "
            "is written to fresh files, the rest comes from other shards"
        )

    def step(self, now: Timestamp, bytes_max: int, store: RewrittenStore) -> bool:
        """A piece of the work; True: there is more to do."""
        try:
            if not self.busy:
                partition = self._next_due(now)
                if partition is None:
                    return False
                store.settle(partition, now)
                self._begin(partition)
            group = rocksdict.WriteBatch(raw_mode=True)
            more = self._copy(group, bytes_max, now)
            if self.busy:
                if self.finished:
                    self._switch(group)
                if store.commit(group) is not Status.OK:
                    self._postpone(now)
                elif self.finished and store.sync() is Status.OK:
                    self._switched()
            return more
        except RocksDBError as error:
            # nothing was taken away: the partition stays as it is
            self.said.append(f"damaged files could not be replaced yet: {error}")
            if self.busy:
                self._postpone(now)
            return False

    def _next_due(self, now: Timestamp) -> int | None:
        """A partition that should be replaced now."""
        due = [number for number, at in self._suspects.items() if at <= now]
        return min(due) if due and self._copying is None else None

    def _begin(self, partition: int) -> None:
        """Begin to copy a partition, which is not the latest."""
        version, reader, handle = self._families.create_version(partition)
        spans = [
            (log, low, high)
            for log in sorted(self._directory.of(partition), reverse=True)
            for number, low, high in self._all_spans(log)
            if number == partition
        ]
        self._copying = _Copying(partition, version, reader, handle, spans)

    def _all_spans(self, log: LogId) -> Iterator[tuple[int, Lsn, Lsn]]:
        rows = self._directory.find(log)
        return iter(()) if rows is None else rows.spans()

    def _copy(self, group: Any, bytes_max: int, now: Timestamp) -> bool:
        """Put the next piece into a group. False: the copying ended, see `finished`, or was postponed."""
        copying = self._copying
        assert copying is not None, "nothing is being copied"
        partition = copying.partition
        if partition not in self._families:
            self._postpone(now)
            return False
        restored = self._restored.get(partition) or _Restored()
        while copying.spans and bytes_max > 0:
            log, position, last = copying.spans.pop()
            unread: Bounds = keys.data_bounds
            try:
                for key, value in self._ranges.rows(partition, *keys.data_bounds(log, position, last)):
                    lsn = keys.split_data_key(key)[0]
                    if bytes_max <= 0 and lsn > position:
                        copying.spans.append((log, lsn, last))
                        break
                    position, unread = lsn, keys.body_bounds
                    bytes_max -= self._copy_row(group, copying, key, value)
                    unread = keys.data_bounds
            except DamagedError:
                beyond = self._ranges.beyond_damage(partition, log, position, last, unread)
                if not restored.covers(log, position, Lsn(beyond - 1)):
                    hit("log_store_rewriting_waits")
                    self.found.append((log, position, Lsn(beyond - 1)))
                    self._postpone(now)
                    return False
                if not self._copy_restored(group, copying, restored, log, position, Lsn(beyond - 1)):
                    self._postpone(now)
                    return False
                if beyond <= last:
                    copying.spans.append((log, beyond, last))
        return bool(copying.spans)

    def _copy_row(self, group: Any, copying: _Copying, key: bytes, value: bytes) -> int:
        """Copy a row with the body that lies apart, if one does; how many bytes that is. A body that no row belongs to is left behind, and so is one
        that is missing: readers tell of it. DamagedError where it cannot be read."""
        size = len(value) + len(key)
        if lacks_body(value):
            body_key = keys.body_key(key)
            body = self._ranges.body(copying.partition, body_key)
            if body is not None:
                group.put(body_key, body, copying.handle)
                size += len(body)
        group.put(key, value, copying.handle)
        copying.count += 1
        return size

    def _copy_restored(
        self, group: Any, copying: _Copying, restored: _Restored, log: LogId, first: Lsn, last: Lsn
    ) -> bool:
        """What was restored in a damaged range; False: that is damaged as well."""
        for key in restored.in_range(log, first, last):
            try:
                value = self._families.reader(copying.partition).get(key)
                if value is not None:
                    self._copy_row(group, copying, key, value)
            except (RocksDBError, DamagedError):
                hit("log_store_restored_is_damaged")
                del restored.ranges[log]
                self.found.append((log, first, last))
                return False
        return True

    @property
    def finished(self) -> bool:
        """Everything was copied."""
        return self._copying is not None and not self._copying.spans

    def _switch(self, group: Any) -> None:
        """Put into the group that the new family counts."""
        assert self._copying is not None
        row = self._families.versions_row(self._copying.partition, self._copying.version)
        group.put(keys.FAMILIES_KEY, row, self._families.metadata_handle)

    def _switched(self) -> None:
        """That is durable: the old family goes, with its files."""
        copying = self._copying
        assert copying is not None
        self._copying = None
        self._families.replace(copying.partition, copying.version, copying.reader, copying.handle)
        del self._suspects[copying.partition]
        self._restored.pop(copying.partition, None)
        hit("log_store_damage_rewritten")
        self.said.append(f"partition {copying.partition} is whole again: {copying.count} copies in fresh files")

    def _postpone(self, now: Timestamp) -> None:
        """Leave the partition as it is, and try again later."""
        copying = self._copying
        assert copying is not None
        self._copying = None
        if copying.partition in self._families:
            self._suspects[copying.partition] = Timestamp(now + _RETRY)
        else:
            self._suspects.pop(copying.partition, None)
        name = self._families.name_of(copying.partition, copying.version)
        del copying.reader, copying.handle
        self._families.database.drop_column_family(name)

    def forget(self, partition: int) -> None:
        """The partition was dropped."""
        self._suspects.pop(partition, None)
        self._restored.pop(partition, None)

    def find_damaged(self) -> list[int]:
        """Read all partitions through, for when files are damaged and nobody knows which. Takes long; may be called from another thread."""
        damaged = []
        for number in [*self._families.partitions(), keys.UNPARTITIONED]:
            try:
                iterator = self._families.reader(number).iter()
                iterator.seek_to_first()
                while iterator.valid() and not self.stopping:
                    iterator.next()
                self._ranges.check(iterator)
            except DamagedError:
                damaged.append(number)
            except KeyError:
                continue
        return damaged
