"""Reads of ranges: rows of memory and of tables are merged, and images fetched, neighbours together."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from storage_node.log_store import keys
from storage_node.log_store.counting import bytes_of_sizes
from storage_node.log_store.directory import Span
from storage_node.log_store.extents.deletes import Deletes
from storage_node.log_store.extents.disk import ColdReadError, DiskError, File, ReadMode, read_file
from storage_node.log_store.extents.long_lived import LongLived
from storage_node.log_store.extents.rows import (
    CopyRow,
    IndexTable,
    IndexTables,
    MemoryRows,
    bounds_of,
    key_of,
    lsn_of,
    rank_of,
)
from storage_node.log_store.extents.sorted_table import BadTableError
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard
from storage_node.log_store.precedence import LastFinder, Missing, PrecedenceCollector, joined, resolve
from storage_node.log_store.wanted import Wants

_FETCH_BYTES: Final = 256 << 10
_FETCH_GAP: Final = 4096
"""Images that lie no further apart are read together."""
_FETCH_ROWS: Final = 64
_RECENT_BYTES: Final = 16 << 20
_RECENT_BLOCK_BYTES: Final = 300
_RECENT_IMAGE_BYTES: Final = 200
"""About what a block and each of its images take in memory beside the images: more than they do where entries are small."""
_SourceRows = Callable[[], Iterator[tuple[int, CopyRow]]]


class _RecentBlock:
    """The images of a block that was written a moment ago."""

    __slots__ = ("_by_offset", "bodies_at", "extent", "images", "size")

    def __init__(self, extent: int, bodies_at: int, images: Sequence[bytes], size: int) -> None:
        self.extent = extent
        self.bodies_at = bodies_at
        self.images = images
        self.size = size
        self._by_offset: dict[int, bytes] | None = None

    def find(self, row: CopyRow) -> bytes | None:
        """The image of a row; None: it lies elsewhere."""
        if row.extent != self.extent:
            return None
        found = self._by_offset
        if found is None:
            found, at = {}, self.bodies_at
            for image in self.images:
                found[at] = image
                at += len(image)
            self._by_offset = found
        return found.get(row.offset)


class Images:
    """Fetches images from extents. Those written last are still in memory."""

    def __init__(self) -> None:
        self.files: dict[int, File] = {}
        """Of all extents."""
        self._recent: dict[int, _RecentBlock] = {}
        """By number, in the order in which they were written."""
        self._bytes = 0

    def note(self, block: int, extent: int, bodies_at: int, images: Sequence[bytes]) -> None:
        """The images of a block were written, one behind the other."""
        if not images:
            return
        recent = self._recent
        size = _RECENT_BLOCK_BYTES + _RECENT_IMAGE_BYTES * len(images) + sum(map(len, images))
        recent[block] = _RecentBlock(extent, bodies_at, images, size)
        self._bytes += size
        while self._bytes > _RECENT_BYTES:
            self._bytes -= recent.pop(next(iter(recent))).size

    def _find(self, row: CopyRow) -> bytes | None:
        block = self._recent.get(row.block)
        return None if block is None else block.find(row)

    def fetch(self, row: CopyRow, mode: ReadMode | None = None) -> bytes | None:
        """An image; None where it cannot be read. What does not match its checksum is for others to notice. In any thread.

        Args:
            mode: whether it may wait for the disk; None: it may. Otherwise ColdReadError is raised.
        """
        found = self._find(row)
        if found is not None:
            return found
        file = self.files.get(row.extent)
        if file is None:
            return None
        try:
            return read_file(file, row.offset, row.length, mode)
        except DiskError:
            return None

    def fetch_many(self, rows: Sequence[CopyRow], mode: ReadMode | None = None) -> list[bytes | None]:
        """The same of several, of which neighbours are read at once."""
        found: list[bytes | None] = [self._find(row) for row in rows]
        wanted = [at for at, image in enumerate(found) if image is None]
        begin = 0
        while begin < len(wanted):
            first = rows[wanted[begin]]
            end, low, high = begin + 1, first.offset, first.offset + first.length
            while end < len(wanted):
                row = rows[wanted[end]]
                if row.extent != first.extent or not high <= row.offset <= high + _FETCH_GAP:
                    break
                if row.offset + row.length - low > _FETCH_BYTES:
                    break
                high = row.offset + row.length
                end += 1
            if end - begin == 1:
                found[wanted[begin]] = self.fetch(first, mode)
            else:
                self._fetch_piece(rows, wanted[begin:end], found, low, high, mode)
            begin = end
        return found

    def _fetch_piece(
        self,
        rows: Sequence[CopyRow],
        wanted: list[int],
        found: list[bytes | None],
        low: int,
        high: int,
        mode: ReadMode | None,
    ) -> None:
        file = self.files.get(rows[wanted[0]].extent)
        try:
            data = b"" if file is None else read_file(file, low, high - low, mode)
        except DiskError:
            data = b""
        if len(data) != high - low:
            for at in wanted:
                found[at] = self.fetch(rows[at], mode)
            return
        for at in wanted:
            begin = rows[at].offset - low
            found[at] = data[begin : begin + rows[at].length]


class ExtentReader:
    """Reads the copies that count."""

    def __init__(
        self,
        memory: MemoryRows,
        deletes: Deletes,
        long_lived: LongLived,
        indexes: IndexTables,
        images: Images,
        spans: Callable[[LogId, Lsn, Lsn], list[Span]],
        suspect: Callable[[int], None],
        mode: ReadMode,
    ) -> None:
        """
        Args:
            indexes: of closed extents.
            spans: where the entries of a log in a range may be, by ascending LSN.
            suspect: gets the extent whose index cannot be read.
            mode: whether what is read may wait for the disk.
        """
        self._memory = memory
        self._deletes = deletes
        self._long_lived = long_lived
        self._indexes = indexes
        self._images = images
        self._spans = spans
        self._suspect = suspect
        self._mode = mode

    # ---- rows

    def rows(
        self, partition: int, log: LogId, first: int, last: int, *, backwards: bool = False
    ) -> Iterator[tuple[int, CopyRow]]:
        """The row of each copy in a range of one partition, ascending or descending; BadTableError or DiskError where they cannot be told."""
        low, high = bounds_of(first, last)
        deletes = self._deletes.of(log, partition)
        deleted = len(deletes)
        before = -1
        for key, row in self._merge(self._sources(partition, log, first, last, low, high, backwards), backwards):
            if key == before or row.partition != partition:
                continue
            before = key
            if not deleted or not deletes.hide(key, row.block):
                yield key, row

    def _sources(
        self, partition: int, log: LogId, first: int, last: int, low: int, high: int, backwards: bool
    ) -> list[tuple[int, _SourceRows]]:
        """(least key, or greatest when backwards; the rows) of all that may hold something of the range."""
        memory = self._memory
        found: list[tuple[int, _SourceRows]] = []
        span = memory.span(log)
        if span is not None and span[0] < high and span[1] >= low:
            rows = memory.rows_backwards if backwards else memory.rows
            found.append((min(span[1], high) if backwards else max(span[0], low), partial(rows, log, low, high)))
        if partition == keys.UNPARTITIONED:
            copies = self._long_lived.copies_backwards if backwards else self._long_lived.copies
            found.append((high if backwards else low, partial(copies, log, low, high)))
            return found
        for extent, index in self._indexes.of(partition):
            held = index.logs.get(log)
            if held is not None and held[0] <= last and held[1] >= first:
                begin = bounds_of(held[0], held[1])
                at = min(begin[1], high) if backwards else max(begin[0], low)
                found.append((at, partial(self._index_rows, extent, index, log, low, high, backwards)))
        return found

    def _index_rows(
        self, extent: int, index: IndexTable, log: LogId, low: int, high: int, backwards: bool
    ) -> Iterator[tuple[int, CopyRow]]:
        try:
            yield from (index.rows_backwards if backwards else index.rows)(log, low, high)
        except (BadTableError, DiskError):
            self._suspect(extent)
            raise

    @staticmethod
    def _merge(sources: list[tuple[int, _SourceRows]], backwards: bool) -> Iterator[tuple[int, CopyRow]]:
        """All rows in order, of equal keys the one of the latest block first. A source is opened when its rows are due."""
        if len(sources) == 1:
            yield from sources[0][1]()
            return
        sign = -1 if backwards else 1
        waiting = sorted(sources, key=lambda source: -sign * source[0])  # the next to open at the end
        heap: list[tuple[int, int, int, CopyRow, Iterator[tuple[int, CopyRow]]]] = []
        opened = 0

        def push(number: int, rows: Iterator[tuple[int, CopyRow]]) -> None:
            following = next(rows, None)
            if following is not None:
                key, row = following
                heapq.heappush(heap, (sign * key, -row.block, number, row, rows))

        while heap or waiting:
            while waiting and (not heap or sign * waiting[-1][0] <= heap[0][0]):
                push(opened, waiting.pop()[1]())
                opened += 1
            if heap:
                key, _, number, row, rows = heapq.heappop(heap)
                yield sign * key, row
                push(number, rows)

    def row_at(self, log: LogId, lsn: Lsn, rank: int) -> CopyRow | None:
        """The row of a copy. BadTableError or DiskError where it cannot be told."""
        for partition, _, _ in self._spans(log, lsn, lsn):
            for key, row in self.rows(partition, log, lsn, lsn):
                if rank_of(key) == rank:
                    return row
        return None

    # ---- images

    def image_of(self, row: CopyRow) -> bytes | None:
        """What stands for the copy: its header, where the body is read apart, or its image; None where it cannot be read."""
        return row.header if row.header is not None else self._images.fetch(row, self._mode)

    def body_of(self, log: LogId, lsn: Lsn, rank: int) -> bytes | None:
        """The image of a copy of which the header is known."""
        with suppress(BadTableError, DiskError):
            row = self.row_at(log, lsn, rank)
            return None if row is None else self._body_at(log, key_of(lsn, rank), row)
        return None

    def _body_at(self, log: LogId, key: int, row: CopyRow) -> bytes | None:
        return self._images.fetch(row, self._mode) if row.extent else self._long_lived.body(log, key)

    def resolve(self, log: LogId, lsn: Lsn, copies: Sequence[tuple[int, bytes]]) -> bytes | Missing:
        """The image that counts among copies (rank, header or image) of one LSN."""
        return resolve(log, lsn, copies, partial(self.body_of, log))

    # ---- reads

    def read(self, request: ReadShard, is_late: Callable[[], bool] | None = None) -> ReadResult:
        """Execute a `ReadShard`."""
        log = request.log
        found: dict[int, CopyRow] = {}
        collector = PrecedenceCollector(request, partial(self._body_of_found, log, found), is_late)
        budget = min(request.bytes_max, _FETCH_BYTES)
        most = min(request.entries_max + 1, _FETCH_ROWS)
        try:
            for partition, first, last in self._spans(log, request.first, request.last):
                if not self._read_span(collector, found, (partition, first, last), log, budget, most):
                    return collector.result
            collector.finish()
        except ColdReadError:
            # what was found is an answer
            if not collector.result.entries:
                raise
            collector.end_before_open()
        return collector.result

    def _body_of_found(self, log: LogId, found: dict[int, CopyRow], lsn: Lsn, rank: int) -> bytes | None:
        """`body_of`, of a copy whose row was read a moment ago."""
        key = key_of(lsn, rank)
        row = found.get(key)
        if row is None:
            return self.body_of(log, lsn, rank)
        with suppress(BadTableError, DiskError):
            return self._body_at(log, key, row)
        return None

    def _read_span(
        self,
        collector: PrecedenceCollector,
        found: dict[int, CopyRow],
        span: Span,
        log: LogId,
        budget: int,
        most: int,
    ) -> bool:
        """False: the answer is full. Images are fetched for up to `most` rows, or `budget` bytes, at a time.

        Args:
            found: gets the rows whose body is read apart, by key.
        """
        partition, first, last = span
        rows = self.rows(partition, log, first, last)
        position = first
        while True:
            piece: list[tuple[int, CopyRow]] = []
            size, broken = 0, False
            try:
                for each in islice(rows, most):
                    piece.append(each)
                    size += each[1].length if each[1].header is None else len(each[1].header)
                    if size >= budget:
                        break
            except (BadTableError, DiskError):
                broken = True
            found.update([each for each in piece if each[1].header is not None])
            images = iter(self._images.fetch_many([row for _, row in piece if row.header is None], self._mode))
            for key, row in piece:
                lsn = lsn_of(key)
                image = row.header if row.header is not None else next(images)
                # what cannot be read is damaged, whatever it was
                if not collector.add(lsn, rank_of(key), image or b""):
                    return False
                position = lsn
            if broken:
                begun = collector.drop_open()
                collector.add_corrupt(position if begun is None else begun, last)
                return True
            if not piece:
                return True

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        result = ReadResult(Status.OK, request.last)
        log = request.log
        finder = LastFinder(request, result, partial(self.body_of, log))
        above = request.last
        for partition, first, last in reversed(self._spans(log, request.first, request.last)):
            try:
                for key, row in self.rows(partition, log, first, last, backwards=True):
                    if finder.add(lsn_of(key), rank_of(key), self.image_of(row) or b""):
                        return result
                    above = lsn_of(key)
            except (BadTableError, DiskError):
                begun = finder.drop_open()
                result.corrupt.append((request.first, above if begun is None else begun))
                return result
        finder.finish()
        return result

    def find_highest(self, partition: int, log: LogId) -> Lsn | None:
        """The greatest LSN at which a partition holds anything of a log; None without any. BadTableError or DiskError where that cannot be told."""
        for key, _ in self.rows(partition, log, 0, (1 << 64) - 2, backwards=True):
            return lsn_of(key)
        return None

    def bytes_in(self, partition: int, log: LogId, first: int, last: int) -> int:
        """The bytes that count of a range in a partition, as far as they can be told."""
        return bytes_of_sizes(self._sizes(partition, log, first, last))

    def _sizes(self, partition: int, log: LogId, first: int, last: int) -> Iterator[tuple[Lsn, int]]:
        with suppress(BadTableError, DiskError):  # reads tell of it
            for key, row in self.rows(partition, log, first, last):
                yield lsn_of(key), row.length

    def superseded(self, log: LogId, first: Lsn, last: Lsn, wants: Wants | None = None) -> list[tuple[Lsn, bytes]]:
        """The copies that do not count, because one of higher rank follows at their LSN; with their body if it can be read and is wanted."""
        found: list[tuple[Lsn, bytes]] = []
        for partition, begin, end in self._spans(log, first, last):
            before: tuple[int, CopyRow] | None = None
            try:
                for key, row in self.rows(partition, log, begin, end):
                    if before is not None and lsn_of(before[0]) == lsn_of(key):
                        image = self._completed(log, *before, wants)
                        if image is not None:
                            found.append((lsn_of(key), image))
                    before = key, row
            except (BadTableError, DiskError):
                continue  # `read` tells of it
        return found

    def _completed(self, log: LogId, key: int, row: CopyRow, wants: Wants | None) -> bytes | None:
        image = self.image_of(row)
        if image is None or not lacks_body(image) or (wants is not None and not wants(image)):
            return image
        return joined(image, self.body_of(log, lsn_of(key), rank_of(key)))
