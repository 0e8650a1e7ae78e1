"""Reads of ranges over RocksDB's iterators, also where something is damaged.

An iterator that meets a block or a blob which does not match its checksum looks as if it were at its end; only its status tells. Reading
goes on behind the damage, and the range between is reported.

Iterators read the value of every key that they come to, from blob files too. Bodies of large entries lie under keys of their own, where no scan over
entries comes to them; each that is wanted is read for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from logdevice_py.core.entry import lacks_body
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from storage_node.log_store import keys
from storage_node.log_store.counting import bytes_of
from storage_node.log_store.directory import Span
from storage_node.log_store.interface import ReadLast, ReadResult, ReadShard
from storage_node.log_store.precedence import LastFinder, Missing, PrecedenceCollector, joined, resolve
from storage_node.log_store.rocksdb.families import RocksDBError
from storage_node.log_store.wanted import Wants

Bounds = Callable[[int, int, int], tuple[bytes, bytes]]
"""The keys of (log, first, last): `keys.data_bounds` or `keys.body_bounds`."""


class DamagedError(Exception):
    """RocksDB met a block or a blob that does not match its checksum."""


class RangeReader:
    """Reads the copies that count."""

    __slots__ = ("_get", "_iterator", "_spans")

    def __init__(
        self,
        iterator: Callable[[int, bytes, bytes], Any],
        get: Callable[[int, bytes], bytes | None],
        spans: Callable[[LogId, Lsn, Lsn], list[Span]],
    ) -> None:
        """
        Args:
            iterator: a fresh iterator of RocksDB over a partition's column family with these bounds.
            get: what a key of a partition's column family leads to.
            spans: where the entries of a log in a range may be, by ascending LSN.
        """
        self._iterator = iterator
        self._get = get
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

    def body(self, partition: int, key: bytes) -> bytes | None:
        """What is stored as a body. DamagedError where RocksDB cannot read it."""
        try:
            return self._get(partition, key)
        except RocksDBError as error:
            raise DamagedError(str(error)) from None

    def _body_of(self, log: LogId, lsn: Lsn, rank: int) -> bytes | None:
        try:
            for partition, _, _ in self._spans(log, lsn, lsn):
                return self.body(partition, keys.body_key_at(log, lsn, rank))
        except DamagedError:
            hit("log_store_body_damaged")
        return None

    def resolve(self, log: LogId, lsn: Lsn, copies: Sequence[tuple[int, bytes]]) -> bytes | Missing:
        """The image that counts among copies (rank, row) of one LSN, with its body."""
        return resolve(log, lsn, copies, partial(self._body_of, log))

    def read(self, request: ReadShard, is_late: Callable[[], bool] | None = None) -> ReadResult:
        """Execute a `ReadShard`; the answer ends with what it has, one entry at least, when it is late."""
        log = request.log
        collector = PrecedenceCollector(request, partial(self._body_of, log), is_late)
        for span in self._spans(log, request.first, request.last):
            if not self._read_span(collector, log, *span):
                return collector.result
        collector.finish()
        return collector.result

    def superseded(self, log: LogId, first: Lsn, last: Lsn, wants: Wants | None = None) -> list[tuple[Lsn, bytes]]:
        """The copies that do not count, because one of higher rank follows at their LSN; with their body if it can be read and is wanted."""
        found: list[tuple[Lsn, bytes]] = []
        for partition, begin, end in self._spans(log, first, last):
            before: tuple[Lsn, int, bytes] | None = None
            try:
                for key, image in self.rows(partition, *keys.data_bounds(log, begin, end)):
                    lsn, rank = keys.split_data_key(key)
                    if before is not None and before[0] == lsn:
                        found.append((lsn, self._completed(log, *before, wants)))
                    before = lsn, rank, image
            except DamagedError:
                continue  # `read` tells of it
        return found

    def _completed(self, log: LogId, lsn: Lsn, rank: int, image: bytes, wants: Wants | None) -> bytes:
        if not lacks_body(image) or (wants is not None and not wants(image)):
            return image
        return joined(image, self._body_of(log, lsn, rank))

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

    def beyond_damage(
        self, partition: int, log: LogId, damaged: Lsn, last: Lsn, bounds: Bounds = keys.data_bounds
    ) -> Lsn:
        """The first LSN above `damaged` from which on something can be read again of the rows that `bounds` bounds."""
        unreadable, step = int(damaged), 1
        readable = int(last) + 1
        while unreadable + step <= last:
            if self._readable(partition, bounds(log, unreadable + step, last)):
                readable = unreadable + step
                break
            unreadable += step
            step *= 2
        while readable - unreadable > 1:
            middle = (readable + unreadable) // 2
            if self._readable(partition, bounds(log, middle, last)):
                readable = middle
            else:
                unreadable = middle
        return Lsn(readable)

    def bytes_in(self, partition: int, log: LogId, first: Lsn, last: Lsn) -> int:
        """The bytes that count of a range in a partition, as far as it can be read."""
        return bytes_of(self._copies(partition, log, first, last))

    def _copies(self, partition: int, log: LogId, first: Lsn, last: Lsn) -> Iterator[tuple[Lsn, bytes]]:
        with suppress(DamagedError):  # reads tell of it
            for key, row in self.rows(partition, *keys.data_bounds(log, first, last)):
                yield keys.split_data_key(key)[0], row

    def _readable(self, partition: int, bounds: tuple[bytes, bytes]) -> bool:
        try:
            for _ in self.rows(partition, *bounds):
                break
        except DamagedError:
            return False
        return True

    def read_last(self, request: ReadLast) -> ReadResult:
        """Execute a `ReadLast`."""
        result = ReadResult(Status.OK, request.last)
        finder = LastFinder(request, result, partial(self._body_of, request.log))
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
