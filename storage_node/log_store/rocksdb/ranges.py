"""Reads of ranges over RocksDB's iterators, also where something is damaged.

An iterator that meets a block or a blob which does not match its checksum looks as if it were at its end; only its status tells. Reading
goes on behind the damage, and the range between is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from storage_node.log_store import keys
from storage_node.log_store.directory import Span
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard
from storage_node.log_store.precedence import LastFinder, PrecedenceCollector
from storage_node.log_store.rocksdb.families import RocksDBError


class DamagedError(Exception):
    """RocksDB met a block or a blob that does not match its checksum."""


class RangeReader:
    """Reads the copies that count."""

    __slots__ = ("_iterator", "_spans")

    def __init__(
        self, iterator: Callable[[int, bytes, bytes], Any], spans: Callable[[LogId, Lsn, Lsn], list[Span]]
    ) -> None:
        """
        Args:
            iterator: a fresh iterator of RocksDB over a partition's column family with these bounds.
            spans: where the entries of a log in a range may be, by ascending LSN.
        """
        self._iterator = iterator
        self._spans = spans

    def rows(self, partition: int, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) in [begin, end); DamagedError where RocksDB cannot read on."""
        iterator = self._iterator(partition, begin, end)
        iterator.seek(begin)
        valid, key, value, advance = iterator.valid, iterator.key, iterator.value, iterator.next
        while valid():
            yield key(), value()
            advance()
        self.check(iterator)

    @staticmethod
    def check(iterator: Any) -> None:
        """An iterator that meets damage looks as if it were at its end. DamagedError if it did."""
        try:
            iterator.status()
        except RocksDBError as error:
            raise DamagedError(str(error)) from None

    def read(self, request: ReadShard) -> ReadResult:
        """Execute a `ReadShard`."""
        log = request.log
        collector = PrecedenceCollector(log, request.last, request.bytes_max, request.entries_max)
        for span in self._spans(log, request.first, request.last):
            if not self._read_span(collector, log, *span):
                return collector.result
        collector.finish()
        return collector.result

    def superseded(self, log: LogId, first: Lsn, last: Lsn) -> list[tuple[Lsn, bytes]]:
        """The copies that do not count, because one of higher rank follows at their LSN."""
        found: list[tuple[Lsn, bytes]] = []
        for partition, begin, end in self._spans(log, first, last):
            before: tuple[Lsn, bytes] | None = None
            try:
                for key, image in self.rows(partition, *keys.data_bounds(log, begin, end)):
                    lsn = keys.split_data_key(key)[0]
                    if before is not None and before[0] == lsn:
                        found.append(before)
                    before = lsn, image
            except DamagedError:
                continue  # `read` tells of it
        return found

    def _read_span(self, collector: PrecedenceCollector, log: LogId, partition: int, first: Lsn, last: Lsn) -> bool:
        """False: the answer is full."""
        position = first
        split = keys.split_data_key
        while position <= last:
            begin, end = keys.data_bounds(log, position, last)
            try:
                for key, image in self.rows(partition, begin, end):
                    lsn, rank = split(key)
                    if not collector.add(lsn, rank, image):
                        return False
                    position = lsn
                break
            except DamagedError:
                # what follows the last copy read may have been one of the same LSN, of higher rank
                begun = collector.drop_open()
                damaged = position if begun is None else begun
                position = self.beyond_damage(partition, log, max(damaged, first), last)
                collector.add_corrupt(damaged, Lsn(position - 1))
        return True

    def beyond_damage(self, partition: int, log: LogId, damaged: Lsn, last: Lsn) -> Lsn:
        """The first LSN above `damaged` from which on something can be read again."""
        unreadable, step = int(damaged), 1
        readable = int(last) + 1
        while unreadable + step <= last:
            if self._readable(partition, log, unreadable + step, last):
                readable = unreadable + step
                break
            unreadable += step
            step *= 2
        while readable - unreadable > 1:
            middle = (readable + unreadable) // 2
            if self._readable(partition, log, middle, last):
                readable = middle
            else:
                unreadable = middle
        return Lsn(readable)

    def _readable(self, partition: int, log: LogId, lsn: int, last: Lsn) -> bool:
        try:
            for _ in self.rows(partition, *keys.data_bounds(log, lsn, last)):
                break
        except DamagedError:
            return False
        return True

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        result = ReadResult(Status.OK, request.last)
        finder = LastFinder(request, result)
        above = request.last
        for partition, first, last in reversed(self._spans(request.log, request.first, request.last)):
            begin, end = keys.data_bounds(request.log, first, last)
            iterator = self._backwards(partition, begin, end)
            while iterator.valid():
                key = iterator.key()
                if key < begin:
                    break
                lsn, rank = keys.split_data_key(key)
                if finder.add(lsn, rank, iterator.value()):
                    return result
                above = lsn
                iterator.prev()
            try:
                if not iterator.valid():
                    self.check(iterator)
            except DamagedError:
                begun = finder.drop_open()
                result.corrupt.append((request.first, above if begun is None else begun))
                return result
        finder.finish()
        return result

    def _backwards(self, partition: int, begin: bytes, end: bytes) -> Any:
        """At the last key below `end`. It may lie below `begin`: seeking does not respect the lower bound, only stepping does."""
        iterator = self._iterator(partition, begin, end)
        iterator.seek_to_last()
        return iterator

    def find_highest(self, partition: int, log: LogId) -> Lsn | None:
        """The greatest LSN at which a partition holds anything of the log; None without any. DamagedError where that cannot be told."""
        begin, end = keys.data_bounds(log, 0, (1 << 64) - 2)
        iterator = self._backwards(partition, begin, end)
        if iterator.valid():
            key = iterator.key()
            return keys.split_data_key(key)[0] if key >= begin else None
        self.check(iterator)
        return None
