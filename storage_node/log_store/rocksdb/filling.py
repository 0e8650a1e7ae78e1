"""What a batch becomes in a group that RocksDB writes at once."""

from __future__ import annotations

from typing import Any

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import PER_ENTRY_BYTES, WriteBatch
from storage_node.log_store.metadata_rows import metadata_rows
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.precedence import Missing, with_header
from storage_node.log_store.rocksdb.families import Families, RocksDBError
from storage_node.log_store.rocksdb.ranges import DamagedError, RangeReader
from storage_node.log_store.rocksdb.rewriting import PartitionRewriter
from storage_node.log_store.rocksdb.rows import delete_copies, put_copy


class GroupFiller:
    """Puts batches into groups, and notes in the directory and with the partitions what they hold."""

    def __init__(
        self,
        families: Families,
        directory: Directory,
        partitions: Partitions,
        ranges: RangeReader,
        rewriter: PartitionRewriter,
        apart_bytes_min: int,
    ) -> None:
        """
        Args:
            apart_bytes_min: of images of this size or more, header and body lie apart.
        """
        self._apart_bytes_min = apart_bytes_min
        self._families = families
        self._directory = directory
        self._partitions = partitions
        self._ranges = ranges
        self._rewriter = rewriter

    def fill(self, group: Any, batch: WriteBatch) -> None:
        """Put a batch into a group. Within a group later puts win over earlier deletes.

        One that looks at what is stored (`WriteBatch.looks`) must be the first of its group.
        """
        metadata = self._families.metadata_handle
        handles = self._families.handles
        for log, first, last in batch.deletes:
            # What was deleted before is not deleted again: thousands of ranges within each other, as of a log that is trimmed record by record, would have
            # RocksDB take a second for the next read of any log.
            begins = self._directory.begins(log)
            for partition, low, high in self._directory.delete(log, first, last):
                if begins <= high:
                    delete_copies(group, log, max(low, begins), high, handles[partition])
        if batch.restored:
            self._rewriter.fill(group, batch)
        for log, lsn in batch.consolidations:
            self._consolidate(group, log, lsn)
        put = group.put
        note, data_key, stamp = self._directory.note, keys.data_key, keys.TIMESTAMP
        apart_bytes_min = self._apart_bytes_min
        latest = self._partitions.latest
        number, total = latest.number, 0
        for log, lsn, by_recovery, wave, image in batch.entries:
            size = len(image) + PER_ENTRY_BYTES
            partition = note(log, lsn, size)
            if len(image) < apart_bytes_min:
                put(data_key(log, lsn, by_recovery, wave), image, handles[partition])
            else:
                put_copy(group, data_key(log, lsn, by_recovery, wave), image, handles[partition], apart_bytes_min)
            if partition == number and latest.least <= image[stamp] <= latest.greatest:
                total += size
            elif partition != keys.UNPARTITIONED:
                self._partitions.note(partition, keys.timestamp_of(image), size)
        latest.size += total
        for log, lsn, by_recovery, wave, header in batch.headers:
            if not batch.takes_away(log, lsn):
                self._put_header(group, log, lsn, data_key(log, lsn, by_recovery, wave), header)
        for key, value in metadata_rows(batch):
            if value is None:
                group.delete(key, metadata)
            else:
                put(key, value, metadata)

    def _put_header(self, group: Any, log: LogId, lsn: Lsn, key: bytes, header: bytes) -> None:
        for partition, _, _ in self._directory.overlapping(log, lsn, lsn):
            try:
                row = with_header(header, self._families.get(partition, key))
            except RocksDBError:
                return  # whoever reads it finds the damage
            if row is not None:
                group.put(key, row, self._families.handles[partition])
                self._rewriter.mirror_row(group, partition, key, row)

    def _consolidate(self, group: Any, log: LogId, lsn: Lsn) -> None:
        spans = self._directory.overlapping(log, lsn, lsn)
        if not spans:
            return
        begin, end = keys.data_bounds(log, lsn, lsn)
        [(partition, _, _)] = spans
        try:
            rows = list(self._ranges.rows(partition, begin, end))
        except DamagedError:
            return
        if len(rows) < 2:
            return
        found = self._ranges.resolve(log, lsn, [(keys.split_data_key(key)[1], image) for key, image in rows])
        if isinstance(found, Missing):
            return
        top, image = rows[-1]
        handle = self._families.handles[partition]
        group.delete_range(begin, top, handle)
        if any(lacks_body(row) for _, row in rows[:-1]):
            group.delete_range(keys.body_key(begin), keys.body_key(top), handle)
        if found != image and not lacks_body(image):
            put_copy(group, top, found, handle, self._apart_bytes_min)
