"""What is small and lives long: rows of metadata, and entries of logs that are not partitioned. One sorted table, and what changed since in memory.

The table holds what blocks up to `applied` changed. It is made anew, from the old one and the changes, when the chain since then is long
enough that this costs little; extents before it are then not needed to open the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.entry import lacks_body, whole_size
from logdevice_py.core.ids import LogId
from storage_node.log_store import keys
from storage_node.log_store.extents.deletes import DeletedRanges
from storage_node.log_store.extents.disk import ReadMode, StoreDisk
from storage_node.log_store.extents.rows import CopyRow, MemoryRows, key_of, lsn_of, rank_of
from storage_node.log_store.extents.sorted_table import ReadCache, SortedTable, write_table

TABLE: Final = "table"
_DATA: Final = 0x64
_BODY: Final = 0x62
Fetch = Callable[[CopyRow], bytes | None]
"""The image of a row; None where it cannot be read."""


@dataclass(slots=True)
class TableCheckpoint:
    """A table that is being made, of what blocks up to `through` changed."""

    through: int
    changed: dict[bytes, bytes | None]
    copies: list[tuple[int, int, CopyRow]]
    deletes: dict[int, DeletedRanges]


class LongLived:
    """Calls of the thread that writes, but for `write`."""

    def __init__(self, disk: StoreDisk, mode: ReadMode, cache: ReadCache) -> None:
        """
        Args:
            mode: of reads of the store's own thread.
            cache: of what they read.

        Raises:
            BadTableError: the table is damaged.
            DiskError: it cannot be read.
        """
        self._disk = disk
        self._mode = mode
        self._cache = cache
        self._table: SortedTable | None = None
        self.applied = 0
        """The table holds what blocks up to this one changed."""
        self._changed: dict[bytes, bytes | None] = {}
        self._frozen: dict[bytes, bytes | None] = {}
        if TABLE in disk.names():
            self._open()

    def _open(self) -> None:
        self._table = SortedTable(self._disk.open(TABLE), self._mode, self._cache)
        self.applied = self._table.facts["applied"]

    @property
    def table_bytes(self) -> int:
        """Of the table."""
        return self._table.size if self._table is not None else 0

    @property
    def empty(self) -> bool:
        """Whether there is no row."""
        return self._table is None and not self._changed and not self._frozen

    # ---- rows of metadata

    def change(self, rows: list[tuple[bytes, bytes | None]]) -> None:
        """A block changed rows."""
        self._changed.update(rows)

    def get(self, key: bytes) -> bytes | None:
        """A row of metadata.

        Raises:
            BadTableError: it cannot be told.
            DiskError: it cannot be read.
        """
        for changed in (self._changed, self._frozen):
            if key in changed:
                return changed[key]
        return None if self._table is None else self._table.get(key)

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows of metadata, ascending. BadTableError, DiskError as of `get`."""
        for key, value in _merged(self._table, {**self._frozen, **self._changed}):
            if key[0] not in (_DATA, _BODY):
                assert not isinstance(value, CopyRow)
                yield key, value

    # ---- copies

    def copies(self, log: LogId, low: int, high: int) -> Iterator[tuple[int, CopyRow]]:
        """(key, row) of copies that the table holds, ascending."""
        if self._table is not None:
            for key, value in self._table.rows(_data_key(log, low), _data_key(log, high)):
                yield self._row(key, value)

    def copies_backwards(self, log: LogId, low: int, high: int) -> Iterator[tuple[int, CopyRow]]:
        """The same, descending."""
        if self._table is not None:
            for key, value in self._table.rows_backwards(_data_key(log, low), _data_key(log, high)):
                yield self._row(key, value)

    def _row(self, key: bytes, value: bytes) -> tuple[int, CopyRow]:
        lsn, rank = keys.split_data_key(key)
        # bytes are what the table has: a header, if the image lies under another key, or the image
        length = whole_size(value) if lacks_body(value) else len(value)
        return key_of(lsn, rank), CopyRow(self.applied, keys.UNPARTITIONED, 0, 0, length, value)

    def body(self, log: int, key: int) -> bytes | None:
        """The image of a copy whose row is a header."""
        if self._table is None:
            return None
        return self._table.get(keys.body_key_at(log, lsn_of(key), rank_of(key)))

    # ---- checkpoints

    def begin_checkpoint(self, through: int, copies: MemoryRows, deletes: dict[int, DeletedRanges]) -> TableCheckpoint:
        """What the next table will hold, all of it written by blocks up to `through`.

        Args:
            copies: of logs that are not partitioned.
            deletes: of such.
        """
        assert not self._frozen, "one checkpoint at a time"
        self._frozen, self._changed = self._changed, {}
        taken = [
            (log, key, row)
            for log in copies.logs()
            if not keys.is_partitioned(LogId(log))
            for key, row in copies.rows(log, 0, 1 << 97)
        ]
        return TableCheckpoint(through, self._frozen, taken, deletes)

    def write(self, checkpoint: TableCheckpoint, fetch: Fetch) -> None:
        """Write the table, durably. In any thread.

        Raises:
            DiskError: it is not written.
            BadTableError: the one before cannot be read.
        """
        # one of its own: the other is being read meanwhile
        before = None if self._table is None else SortedTable(self._disk.open(TABLE))
        rows = self._rows_of(before, checkpoint, fetch)
        write_table(self._disk, TABLE, {"applied": checkpoint.through}, rows)

    def _rows_of(
        self, before: SortedTable | None, checkpoint: TableCheckpoint, fetch: Fetch
    ) -> Iterator[tuple[bytes, bytes]]:
        changed: dict[bytes, bytes | CopyRow | None] = {**checkpoint.changed}
        for log, key, row in checkpoint.copies:
            at = _data_key(log, key)
            if row.header is None:
                changed[at] = row
                changed[keys.body_key(at)] = None
            else:
                changed[at] = row.header
                changed[keys.body_key(at)] = row
        for name, value in _merged(before, changed, checkpoint.deletes, self.applied):
            if isinstance(value, CopyRow):
                # where it cannot be read any more, what is kept does not match its checksum: reads will tell
                yield name, fetch(value) or b""
            else:
                yield name, value

    def end_checkpoint(self, *, written: bool) -> None:
        """The table was written, or could not be.

        Raises:
            BadTableError: it is not what was written.
            DiskError: it cannot be read.
        """
        frozen, self._frozen = self._frozen, {}
        if written:
            self._open()
        else:
            self._changed = {**frozen, **self._changed}


def _data_key(log: int, key: int) -> bytes:
    return keys.data_key(log, lsn_of(key), bool(rank_of(key) >> 32), rank_of(key) & 0xFFFFFFFF)


def _merged(
    table: SortedTable | None,
    changed: Mapping[bytes, bytes | CopyRow | None],
    deletes: Mapping[int, DeletedRanges] | None = None,
    applied: int = 0,
) -> Iterator[tuple[bytes, bytes | CopyRow]]:
    """The rows of a table with changes, ascending."""
    following = iter(sorted(changed))
    key = next(following, None)
    if table is not None:
        for held, value in table.rows(b"", None):
            while key is not None and key < held:
                new = changed[key]
                if new is not None:
                    yield key, new
                key = next(following, None)
            if key == held:
                continue
            if deletes and held[0] in (_DATA, _BODY):
                lsn, rank = keys.split_data_key(held)
                ranges = deletes.get(int.from_bytes(held[1:9], "big"))
                if ranges is not None and ranges.hide(key_of(lsn, rank), applied):
                    continue
            yield held, value
    while key is not None:
        new = changed[key]
        if new is not None:
            yield key, new
        key = next(following, None)
