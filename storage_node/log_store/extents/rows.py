"""Rows on copies of entries: where each lies, in memory and in the tables of closed extents.

Of two rows of one copy (log, LSN, rank) the one of the later block counts. A delete hides rows of earlier blocks, and lasts as long as its partition.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgpack

from logdevice_py.core.lsn import Lsn
from storage_node.log_store.extents.block_format import Changes
from storage_node.log_store.extents.sorted_table import SortedTable

RANK_BITS: Final = 33
_KEY: Final = struct.Struct(">QQBI")
PIECE_ROWS: Final = 64
_PIECE_ROW_BYTES: Final = 250
"""About what a row of a piece takes in memory."""


_ROW_OF: Final = tuple.__new__
"""A row from what was unpacked, at a third of the cost of its constructor."""


class CopyRow(NamedTuple):
    """One copy, as a block wrote it."""

    block: int
    partition: int
    extent: int
    """Where its image lies; of an entry that is not partitioned 0: in the table of what lives long."""
    offset: int
    length: int
    header: bytes | None
    """Where header and body are read apart."""


KeyedRow = tuple[int, int, CopyRow]
"""(log, key, row)"""


def rows_of(changes: Changes, block: int, extent: int, bodies_at: int) -> list[KeyedRow]:
    """The rows on copies that a block wrote.

    Args:
        bodies_at: where the images begin in the extent.
    """
    found: list[KeyedRow] = []
    put, at = found.append, bodies_at
    for log, lsn, rank, partition, length, header in changes.copies:
        put((log, lsn << RANK_BITS | rank, _ROW_OF(CopyRow, (block, partition, extent, at, length, header))))
        at += length
    for log, lsn, rank, partition, length, header, elsewhere, offset in changes.points:
        put((log, lsn << RANK_BITS | rank, CopyRow(block, partition, elsewhere, offset, length, header)))
    return found


def key_of(lsn: int, rank: int) -> int:
    """One number that orders the copies of a log."""
    return lsn << RANK_BITS | rank


def lsn_of(key: int) -> Lsn:
    """The LSN of a `key_of`."""
    return Lsn(key >> RANK_BITS)


def rank_of(key: int) -> int:
    """The rank of a `key_of`."""
    return key & ((1 << RANK_BITS) - 1)


def bounds_of(first: int, last: int) -> tuple[int, int]:
    """(least key, key behind the greatest) of the copies in [first, last]."""
    return first << RANK_BITS, (last + 1) << RANK_BITS


_Row = tuple[int, int, int, int, int, bytes | None]
"""What a `CopyRow` is made of: the garbage collector need not look at it."""


class MemoryRows:
    """Rows that are in no table yet."""

    def __init__(self) -> None:
        self._logs: dict[int, tuple[list[int], list[_Row]]] = {}

    def put(self, log: int, key: int, row: _Row) -> None:
        """Take a row in place of one of an earlier block."""
        found = self._logs.get(log)
        if found is None:
            self._logs[log] = [key], [row]
            return
        keys, rows = found
        if key > keys[-1]:
            keys.append(key)
            rows.append(row)
            return
        at = bisect_left(keys, key)
        if keys[at] == key:
            rows[at] = row
        else:
            insort(keys, key)
            rows.insert(at, row)

    def put_block(
        self,
        block: int,
        extent: int,
        bodies_at: int,
        changes: Changes,
        *,
        skip: int | None = None,
        only: int | None = None,
    ) -> None:
        """Take the rows that a block wrote, in place of those of earlier blocks: of one partition `only`, or all but of one.

        Args:
            bodies_at: where the images begin in the extent.
        """
        logs, at, before = self._logs, bodies_at, -1
        keys: list[int] = []
        rows: list[_Row] = []
        for log, lsn, rank, partition, length, header in changes.copies:
            if partition == skip or (only is not None and partition != only):
                at += length
                continue
            key, row = lsn << RANK_BITS | rank, (block, partition, extent, at, length, header)
            at += length
            if log != before:
                found = logs.get(log)
                if found is None:
                    found = logs[log] = [], []
                keys, rows = found
                before = log
            if not keys or key > keys[-1]:
                keys.append(key)
                rows.append(row)
            else:
                self.put(log, key, row)
        for log, lsn, rank, partition, length, header, elsewhere, offset in changes.points:
            if partition != skip and (only is None or partition == only):
                self.put(log, lsn << RANK_BITS | rank, (block, partition, elsewhere, offset, length, header))

    def delete(self, log: int, first: int, last: int) -> None:
        """Forget what lies in a range."""
        found = self._logs.get(log)
        if found is None:
            return
        keys, rows = found
        low, high = bounds_of(first, last)
        begin, end = bisect_left(keys, low), bisect_left(keys, high)
        del keys[begin:end], rows[begin:end]
        if not keys:
            del self._logs[log]

    def forget_through(self, log: int, block: int) -> None:
        """Forget the rows of a log that blocks up to this one wrote: a table has them."""
        found = self._logs.get(log)
        if found is None:
            return
        kept = [(key, row) for key, row in zip(*found, strict=True) if row[0] > block]
        if kept:
            self._logs[log] = [key for key, _ in kept], [row for _, row in kept]
        else:
            del self._logs[log]

    def forget_partition(self, log: int, partition: int, block: int) -> None:
        """Forget the rows of a log in one partition that blocks up to this one wrote."""
        found = self._logs.get(log)
        if found is None:
            return
        kept = [each for each in zip(*found, strict=True) if each[1][1] != partition or each[1][0] > block]
        if not kept:
            del self._logs[log]
        elif len(kept) < len(found[0]):
            self._logs[log] = [key for key, _ in kept], [row for _, row in kept]

    def rows(self, log: int, low: int, high: int) -> Iterator[tuple[int, CopyRow]]:
        """(key, row) in [low, high), ascending."""
        found = self._logs.get(log)
        if found is not None:
            keys, rows = found
            for at in range(bisect_left(keys, low), bisect_left(keys, high)):
                yield keys[at], _ROW_OF(CopyRow, rows[at])

    def rows_backwards(self, log: int, low: int, high: int) -> Iterator[tuple[int, CopyRow]]:
        """The same, descending."""
        found = self._logs.get(log)
        if found is not None:
            keys, rows = found
            for at in range(bisect_left(keys, high) - 1, bisect_left(keys, low) - 1, -1):
                yield keys[at], _ROW_OF(CopyRow, rows[at])

    def span(self, log: int) -> tuple[int, int] | None:
        """(least, greatest key) of a log; None without any."""
        found = self._logs.get(log)
        return None if found is None else (found[0][0], found[0][-1])

    def logs(self) -> list[int]:
        """Those that have rows."""
        return list(self._logs)


class LogSize(NamedTuple):
    """What the rows of an index say of one log in one partition."""

    log: int
    partition: int
    least: int
    """LSN."""
    greatest: int
    size: int
    """Bytes of the images."""


class IndexTable:
    """The rows of a closed extent, on disk: pieces of up to `PIECE_ROWS` rows of one log, each under the key of its first row.

    Its facts: ``salt`` of the extent, ``first`` and ``last`` block, ``end`` (where the last one ends), ``copies``, ``logs`` (log, least LSN, greatest
    LSN), ``partitions``, ``deletes`` (log, first, last, block, partition), ``sizes`` (packed: see `LogSize`), ``points`` (partition, extent): who has rows
    here on images of other extents.
    """

    __slots__ = ("last", "logs", "partitions", "table")

    def __init__(self, table: SortedTable) -> None:
        self.table = table
        self.last: int = table.facts["last"]
        self.logs: dict[int, tuple[int, int]] = {log: (first, last) for log, first, last in table.facts["logs"]}
        self.partitions: set[int] = set(table.facts["partitions"])

    def rows(self, log: int, low: int, high: int) -> Iterator[tuple[int, CopyRow]]:
        """(key, row) in [low, high), ascending; BadTableError or DiskError where it cannot be read."""
        for first, piece in self.table.rows(self._begin(log, low), _packed(log, high)):
            keys, rows = self._piece(first, piece)
            end = bisect_left(keys, high)
            for at in range(bisect_left(keys, low), end):
                yield keys[at], _ROW_OF(CopyRow, rows[at])
            if end < len(keys):
                return

    def rows_backwards(self, log: int, low: int, high: int) -> Iterator[tuple[int, CopyRow]]:
        """The same, descending."""
        for first, piece in self.table.rows_backwards(self._begin(log, low), _packed(log, high)):
            keys, rows = self._piece(first, piece)
            begin = bisect_left(keys, low)
            for at in range(bisect_left(keys, high) - 1, begin - 1, -1):
                yield keys[at], _ROW_OF(CopyRow, rows[at])
            if begin:
                return

    def _piece(self, first: bytes, piece: bytes) -> tuple[list[int], list[_Row]]:
        """Keys and rows of a piece."""
        cache, at = self.table.cache, (self.table.number, first)
        found: tuple[list[int], list[_Row]] | None = cache.get(at)
        if found is None:
            unpacked = msgpack.unpackb(piece, use_list=False)
            found = [each[0] << RANK_BITS | each[1] for each in unpacked], [each[2:] for each in unpacked]
            cache.put(at, found, _PIECE_ROW_BYTES * len(unpacked))
        return found

    def _begin(self, log: int, low: int) -> bytes:
        """The key of the piece in which a row may lie."""
        key = _packed(log, low)
        before = self.table.floor(key)
        return key if before is None or before[:8] != key[:8] else before

    def sizes(self) -> list[LogSize]:
        """How much each log has here, by log and LSN; nothing of an index that an earlier version wrote."""
        packed = self.table.facts.get("sizes")
        flat = msgpack.unpackb(packed) if packed else []
        return [LogSize(*flat[at : at + len(LogSize._fields)]) for at in range(0, len(flat), len(LogSize._fields))]

    def all_rows(self) -> Iterator[KeyedRow]:
        """All, by log and key; BadTableError or DiskError where they cannot be read."""
        for first, piece in self.table.rows(b"", None):
            log = int.from_bytes(first[:8], "big")
            for each in msgpack.unpackb(piece, use_list=False):
                yield log, each[0] << RANK_BITS | each[1], _ROW_OF(CopyRow, each[2:])


class IndexTables:
    """The indexes of all extents that have one, by the extent's number and by partition."""

    def __init__(self) -> None:
        self._tables: dict[int, IndexTable] = {}
        self._of: dict[int, dict[int, IndexTable]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._tables)

    def __getitem__(self, extent: int) -> IndexTable:
        return self._tables[extent]

    def get(self, extent: int) -> IndexTable | None:
        """The index of an extent; None where it has none."""
        return self._tables.get(extent)

    def values(self) -> Iterable[IndexTable]:
        """All of them."""
        return self._tables.values()

    def of(self, partition: int) -> list[tuple[int, IndexTable]]:
        """(extent, index) of those that have something of a partition."""
        found = self._of.get(partition)
        return [] if found is None else [*found.items()]

    def put(self, extent: int, index: IndexTable) -> None:
        """Take an index in place of one of that extent."""
        self.remove(extent)
        self._tables[extent] = index
        for partition in index.partitions:
            self._of.setdefault(partition, {})[extent] = index

    def leave(self, extent: int, partition: int) -> None:
        """What an extent has of a partition does not count any more."""
        index = self._tables.get(extent)
        if index is not None and partition in index.partitions:
            index.partitions.remove(partition)
            self._forget(extent, partition)

    def drop_partitions(self, dropped: set[int]) -> None:
        """Nothing of these partitions counts any more."""
        for partition in dropped:
            for extent, _ in self.of(partition):
                self.leave(extent, partition)

    def remove(self, extent: int) -> None:
        """An extent has none any more."""
        index = self._tables.pop(extent, None)
        if index is not None:
            for partition in index.partitions:
                self._forget(extent, partition)

    def _forget(self, extent: int, partition: int) -> None:
        held = self._of[partition]
        del held[extent]
        if not held:
            del self._of[partition]


def _packed(log: int, key: int) -> bytes:
    rank = key & ((1 << RANK_BITS) - 1)
    return _KEY.pack(log, key >> RANK_BITS, rank >> 32, rank & 0xFFFFFFFF)


class IndexBuilder:
    """Makes the facts and pieces of an `IndexTable` from rows that come in order."""

    def __init__(self, extent: int) -> None:
        self.pieces: list[tuple[bytes, bytes]] = []
        self.copies = 0
        self.points: set[tuple[int, int]] = set()
        self._extent = extent
        self._logs: list[tuple[int, int, int]] = []
        self._sizes: list[LogSize] = []
        self._partitions: set[int] = set()
        self._pack = msgpack.Packer().pack

    def add(self, log: int, rows: list[tuple[int, CopyRow]]) -> None:
        """(key, row) of one log, ascending, behind what came before."""
        mask, pack, extent = (1 << RANK_BITS) - 1, self._pack, self._extent
        self.copies += len(rows)
        least, greatest = rows[0][0] >> RANK_BITS, rows[-1][0] >> RANK_BITS
        if self._logs and self._logs[-1][0] == log:
            least = self._logs.pop()[1]
        self._logs.append((log, least, greatest))
        for at in range(0, len(rows), PIECE_ROWS):
            piece = rows[at : at + PIECE_ROWS]
            self.pieces.append(
                (_packed(log, piece[0][0]), pack([(key >> RANK_BITS, key & mask, *row) for key, row in piece]))
            )
            for partition, elsewhere in {(row.partition, row.extent) for _, row in piece}:
                self._partitions.add(partition)
                if elsewhere != extent:
                    self.points.add((partition, elsewhere))
            self._weigh(log, piece)

    def _weigh(self, log: int, piece: list[tuple[int, CopyRow]]) -> None:
        for partition, group in groupby(piece, key=_partition_of):
            rows = list(group)
            size = sum([row.length for _, row in rows])
            first, last = rows[0][0] >> RANK_BITS, rows[-1][0] >> RANK_BITS
            before = self._sizes[-1] if self._sizes else None
            if before is not None and before.log == log and before.partition == partition:
                self._sizes[-1] = before._replace(greatest=last, size=before.size + size)
            else:
                self._sizes.append(LogSize(log, partition, first, last, size))

    def facts(
        self, deletes: Iterable[tuple[int, int, int, int, int]], *, salt: int, first: int, last: int, end: int
    ) -> dict[str, Any]:
        """Of all that was added.

        Args:
            deletes: (log, first, last, block, partition), by ascending block.
        """
        kept = list(deletes)
        return {
            "salt": salt,
            "first": first,
            "last": last,
            "end": end,
            "copies": self.copies,
            "logs": self._logs,
            "partitions": sorted({*self._partitions, *(partition for *_, partition in kept)}),
            "deletes": kept,
            "sizes": msgpack.packb([number for each in self._sizes for number in each]),
            "points": sorted(self.points),
        }


def _partition_of(each: tuple[int, CopyRow]) -> int:
    return each[1].partition


def encode_index(
    rows: Iterable[KeyedRow],
    deletes: Iterable[tuple[int, int, int, int, int]],
    *,
    extent: int,
    salt: int,
    first: int,
    last: int,
    end: int,
) -> tuple[dict[str, Any], list[tuple[bytes, bytes]]]:
    """Facts and pieces of an `IndexTable`.

    Args:
        rows: of equal keys the last one counts.
        deletes: (log, first, last, block, partition), by ascending block.
        extent: number of the extent that is indexed.
    """
    by_log: dict[int, list[tuple[int, CopyRow]]] = {}
    for log, key, row in rows:
        by_log.setdefault(log, []).append((key, row))
    builder = IndexBuilder(extent)
    for log in sorted(by_log):
        held = by_log[log]
        held.sort(key=itemgetter(0))
        builder.add(log, list(dict(held).items()))
    return builder.facts(deletes, salt=salt, first=first, last=last, end=end), builder.pieces
