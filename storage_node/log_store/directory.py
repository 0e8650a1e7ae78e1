"""Which LSNs of a log each partition holds. Kept in memory, written with the entries when a log comes to a partition, and now and then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store import keys


@dataclass(slots=True)
class DirectoryRow:
    """What a partition holds of a log."""

    first: Lsn
    """The smallest LSN stored; the row's key on disk is made of it."""
    highest: Lsn
    """The greatest LSN stored, or a greater one if `doubtful`."""
    size: int
    """About how many bytes were written."""
    saved_size: int = 0
    """`size` as it is on disk."""
    doubtful: bool = False
    """Something was deleted or refused: `highest` has to be looked up before it is relied upon."""


class Directory:
    """All rows of one shard."""

    __slots__ = ("_rows", "_save_bytes", "_to_save")

    def __init__(self, save_bytes: int) -> None:
        self._rows: dict[LogId, DirectoryRow] = {}
        self._save_bytes = save_bytes
        self._to_save: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[tuple[LogId, DirectoryRow]]:
        """Every log with its row."""
        return iter(self._rows.items())

    def restore(self, log: LogId, first: Lsn, highest: Lsn, size: int) -> None:
        """Take a row from disk."""
        self._rows[log] = DirectoryRow(first, highest, size, size)

    def note(self, log: LogId, lsn: Lsn, size: int) -> None:
        """An entry is about to be written."""
        row = self._rows.get(log)
        if row is None:
            row = self._rows[log] = DirectoryRow(lsn, lsn, size)
            self._save(log, row)
            return
        row.size += size
        if lsn > row.highest:
            row.highest = lsn
        elif lsn < row.first:
            self._to_save[self._key(log, row)] = None
            row.first = lsn
            self._save(log, row)
            return
        if row.size - row.saved_size >= self._save_bytes:
            self._save(log, row)

    def doubt(self, log: LogId) -> None:
        """`highest` of the log may be too great."""
        row = self._rows.get(log)
        if row is not None:
            row.doubtful = True

    def correct(self, log: LogId, highest: Lsn | None) -> None:
        """`highest` of the log was looked up; None: the log has nothing."""
        row = self._rows[log]
        if highest is None:
            self._to_save[self._key(log, row)] = None
            del self._rows[log]
            return
        row.highest = highest
        row.doubtful = False
        self._save(log, row)

    def pending(self) -> dict[bytes, bytes | None]:
        """Rows to write (None: delete) with the next group; call `saved` when that is done."""
        return self._to_save

    def saved(self) -> None:
        """What was `pending` is written."""
        self._to_save.clear()

    def save_all(self) -> None:
        """Make every row pending that differs from the disk."""
        for log, row in self._rows.items():
            if row.size != row.saved_size:
                self._save(log, row)

    def _save(self, log: LogId, row: DirectoryRow) -> None:
        row.saved_size = row.size
        self._to_save[self._key(log, row)] = keys.directory_value(row.highest, 0, row.size)

    @staticmethod
    def _key(log: LogId, row: DirectoryRow) -> bytes:
        return keys.directory_key(
            log, row.first, keys.PARTITION_FIRST if keys.is_partitioned(log) else keys.UNPARTITIONED
        )
