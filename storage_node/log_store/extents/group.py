"""What batches become in a block: results, worked out from what is stored."""

from __future__ import annotations

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.extents.block_format import Changes
from storage_node.log_store.extents.disk import DiskError
from storage_node.log_store.extents.reading import ExtentReader
from storage_node.log_store.extents.rows import RANK_BITS, CopyRow, bounds_of, key_of, lsn_of, rank_of
from storage_node.log_store.extents.sorted_table import BadTableError
from storage_node.log_store.interface import PER_ENTRY_BYTES, WriteBatch
from storage_node.log_store.metadata_rows import metadata_rows
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.precedence import Missing, header_apart, with_header


class BlockGroup:
    """Batches that are written as one block, in their order. One that looks at what is stored (`WriteBatch.looks`) must be the first."""

    def __init__(
        self, directory: Directory, partitions: Partitions, reader: ExtentReader, apart_bytes_min: int
    ) -> None:
        """
        Args:
            apart_bytes_min: of images of this size or more, header and body are read apart.
        """
        self._directory = directory
        self._partitions = partitions
        self._reader = reader
        self._apart_bytes_min = apart_bytes_min
        self._copies: dict[tuple[int, int], tuple[tuple[int, int, int, int, int, bytes | None], bytes]] = {}
        """(log, key) -> (as in `Changes.copies`, image)"""
        self._points: dict[tuple[int, int], CopyRow] = {}
        self._deletes: list[tuple[int, int, int, int]] = []
        self._rows: dict[bytes, bytes | None] = {}

    def changes(self) -> tuple[Changes, list[bytes]]:
        """What the block changes, and the images of its copies."""
        copies: list[tuple[int, int, int, int, int, bytes | None]] = []
        images: list[bytes] = []
        for copy, image in self._copies.values():
            copies.append(copy)
            images.append(image)
        made = Changes(copies, [], self._deletes, [*self._rows.items()])
        for (log, key), row in self._points.items():
            made.points.append(
                (log, lsn_of(key), rank_of(key), row.partition, row.length, row.header, row.extent, row.offset)
            )
        return made, images

    def put_rows(self, rows: dict[bytes, bytes | None]) -> None:
        """Change rows of metadata."""
        self._rows.update(rows)

    def fill(self, batch: WriteBatch) -> None:
        """Put a batch into the group, and note in the directory and with the partitions what it holds."""
        if batch.deletes or batch.restored:
            for log, first, last in (*batch.deletes, *batch.restored):
                for partition, low, high in self._directory.delete(log, first, last):
                    self.delete(log, low, high, partition)
        for log, lsn in batch.consolidations:
            if not batch.takes_away(log, lsn):
                self._consolidate(log, lsn)
        if batch.entries:
            self._fill_entries(batch)
        for log, lsn, by_recovery, wave, header in batch.headers:
            if not batch.takes_away(log, lsn):
                self._put_header(log, lsn, by_recovery << 32 | wave, header)
        self._rows.update(metadata_rows(batch))

    def _fill_entries(self, batch: WriteBatch) -> None:
        note, copies, points, stamp = self._directory.note, self._copies, self._points, keys.TIMESTAMP
        latest, apart = self._partitions.latest, self._apart_bytes_min
        number, total = latest.number, 0
        for log, lsn, by_recovery, wave, image in batch.entries:
            length = len(image)
            partition = note(log, lsn, length + PER_ENTRY_BYTES)
            rank = by_recovery << 32 | wave
            at = log, lsn << RANK_BITS | rank
            header = header_apart(image) if length >= apart else None
            copies[at] = (log, lsn, rank, partition, length, header), image
            if points:
                points.pop(at, None)
            if partition == number and latest.least <= image[stamp] <= latest.greatest:
                total += length + PER_ENTRY_BYTES
            elif partition != keys.UNPARTITIONED:
                self._partitions.note(partition, keys.timestamp_of(image), length + PER_ENTRY_BYTES)
        latest.size += total

    def _put_copy(self, at: tuple[int, int], partition: int, image: bytes) -> None:
        log, key = at
        header = header_apart(image) if len(image) >= self._apart_bytes_min else None
        self._copies[at] = (log, lsn_of(key), rank_of(key), partition, len(image), header), image

    def delete(self, log: int, first: int, last: int, partition: int) -> None:
        """Delete what lies in a range of one partition."""
        self._deletes.append((log, first, last, partition))
        low, high = bounds_of(first, last)
        for at in [at for at in self._copies if at[0] == log and low <= at[1] < high]:
            del self._copies[at]
        for at in [at for at in self._points if at[0] == log and low <= at[1] < high]:
            del self._points[at]

    def _put_header(self, log: LogId, lsn: Lsn, rank: int, header: bytes) -> None:
        at = log, key_of(lsn, rank)
        if at in self._copies:
            return
        try:
            before = self._reader.row_at(log, lsn, rank)
            if before is None:
                return
            image = self._reader.image_of(before)
        except (BadTableError, DiskError):
            return  # whoever reads it finds the damage
        row = with_header(header, image)
        if row is None:
            return
        if before.header is not None and before.extent:
            self._points[at] = before._replace(header=row)
        elif lacks_body(row):
            # the body is in the table of what lives long
            body = self._reader.body_of(log, lsn, rank)
            if body is not None:
                self._put_copy(at, before.partition, row + body[len(body) - (before.length - len(row)) :])
        else:
            self._put_copy(at, before.partition, row)

    def _consolidate(self, log: LogId, lsn: Lsn) -> None:
        for partition, _, _ in self._directory.overlapping(log, lsn, lsn):
            try:
                rows = list(self._reader.rows(partition, log, lsn, lsn))
            except (BadTableError, DiskError):
                return
            if len(rows) < 2:
                return
            images = [self._reader.image_of(row) for _, row in rows]
            if images[-1] is None:
                return
            found = self._reader.resolve(
                log, lsn, [(rank_of(key), image or b"") for (key, _), image in zip(rows, images, strict=True)]
            )
            if isinstance(found, Missing):
                return
            key, top = rows[-1]
            self.delete(log, lsn, lsn, partition)
            if top.extent and (found == images[-1] or lacks_body(images[-1])):
                # the image stays where it is
                self._points[log, key] = top
            else:
                self._put_copy((log, key), partition, found)
