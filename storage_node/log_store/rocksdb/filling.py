"""What a batch becomes in a group that RocksDB writes at once."""

from __future__ import annotations

from typing import Any

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store import keys
from storage_node.log_store.contents import encode_drain, encode_whole_for
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import PER_ENTRY_BYTES, WriteBatch
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
            for partition, low, high in self._directory.delete(log, first, last):
                delete_copies(group, log, low, high, handles[partition])
        if batch.restored:
            self._rewriter.fill(group, batch)
        for log, lsn in batch.consolidations:
            self._consolidate(group, log, lsn)
        for log, epoch, epoch_kind in batch.epoch_deletes:
            group.delete(keys.epoch_metadata_key(log, epoch, epoch_kind), metadata)
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
            if not _takes_away(batch, log, lsn):
                self._put_header(group, log, lsn, data_key(log, lsn, by_recovery, wave), header)
        for log, kind, value in batch.log_metadata:
            put(keys.log_metadata_key(log, kind), value, metadata)
        for log, epoch, epoch_kind, value in batch.epoch_metadata:
            put(keys.epoch_metadata_key(log, epoch, epoch_kind), value, metadata)
        if batch.marks_loss:
            group.delete(keys.UNMARKED_KEY, metadata)
        if batch.metadata_whole_for is not None:
            put(keys.WHOLE_FOR_KEY, encode_whole_for(batch.metadata_whole_for), metadata)
        if batch.drain is not None:
            put(keys.DRAIN_KEY, encode_drain(batch.drain), metadata)

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


def _takes_away(batch: WriteBatch, log: LogId, lsn: Lsn) -> bool:
    """Whether the copies of an LSN that were stored before the batch are gone with it."""
    return any(log == each and first <= lsn <= last for each, first, last in (*batch.deletes, *batch.restored))
