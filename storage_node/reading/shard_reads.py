"""What a shard reads from disk: a bounded number of reads at a time, in order of request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox
from logdevice_py.core.units import Micros
from storage_node.log_store.interface import DirectoryResult, ReadDirectory, ReadLast, ReadResult, ReadShard
from storage_node.log_store.wanted import Wants, no_body
from storage_node.metrics import StorageMetrics

ReadHandler = Callable[[ReadResult, Micros], None]
DirectoryHandler = Callable[[DirectoryResult, Micros], None]
Handler = ReadHandler | DirectoryHandler


class ShardReads:
    """Queue of the reads of one shard. Each is given to the disk after the writes of the turn in which it was asked for."""

    __slots__ = ("_in_flight", "_in_flight_max", "_metrics", "_out", "_shard", "_tokens", "_waiting")

    def __init__(
        self, shard: ShardId, out: Outbox, tokens: Iterator[int], in_flight_max: int, metrics: StorageMetrics
    ) -> None:
        self._shard = shard
        self._out = out
        self._tokens = tokens
        self._in_flight_max = in_flight_max
        self._metrics = metrics
        self._waiting: deque[tuple[ReadShard | ReadLast | ReadDirectory, Handler]] = deque()
        self._in_flight: dict[int, Handler] = {}

    def read(
        self,
        log: LogId,
        first: Lsn,
        last: Lsn,
        bytes_max: int,
        entries_max: int,
        done: ReadHandler,
        wants: Wants | None = None,
    ) -> None:
        """Read a range; `done` is called in a later turn. `wants`: of which entries the body is wanted; None: of all."""
        assert 0 < first <= last, (log, first, last)
        request = ReadShard(
            next(self._tokens), self._shard, log, first, last, max(1, bytes_max), entries_max, wants=wants
        )
        self._waiting.append((request, done))

    def probe(
        self, log: LogId, first: Lsn, last: Lsn, bytes_max: int, entries_max: int, done: ReadHandler, wants: Wants
    ) -> None:
        """`read` for somebody who looks at a place and then elsewhere."""
        self._waiting.append(
            (ReadShard(next(self._tokens), self._shard, log, first, last, bytes_max, entries_max, False, wants), done)
        )

    def read_last(self, log: LogId, first: Lsn, last: Lsn, done: ReadHandler) -> None:
        """Read the last entry of a range; `done` is called in a later turn."""
        assert 0 < first <= last, (log, first, last)
        self._waiting.append((ReadLast(next(self._tokens), self._shard, log, first, last), done))

    def read_last_header(self, log: LogId, first: Lsn, last: Lsn, done: ReadHandler) -> None:
        """Read the last entry of a range, perhaps without its body; `done` is called in a later turn."""
        assert 0 < first <= last, (log, first, last)
        request = ReadLast(next(self._tokens), self._shard, log, first, last, wants=no_body)
        self._waiting.append((request, done))

    def read_directory(self, logs: list[tuple[LogId, int]], done: DirectoryHandler) -> None:
        """Ask how old partitions are, and what logs have in those up to some; `done` is called in a later turn."""
        self._waiting.append((ReadDirectory(next(self._tokens), self._shard, logs), done))

    def read_spans(self, log: LogId, first: Lsn, last: Lsn, done: DirectoryHandler) -> None:
        """Ask in which partitions a range lies; `done` is called in a later turn."""
        self._waiting.append((ReadDirectory(next(self._tokens), self._shard, [], (log, first, last)), done))

    def flush(self) -> None:
        """Give waiting reads to the disk as far as the limit allows."""
        while self._waiting and len(self._in_flight) < self._in_flight_max:
            request, done = self._waiting.popleft()
            self._in_flight[request.token] = done
            self._metrics.reads_started += 1
            self._out.emit(request)

    def awaits(self, token: int) -> bool:
        """Whether the token is that of a read given to the disk."""
        return token in self._in_flight

    def on_read(self, token: int, result: Any, now: Micros) -> None:
        """Hand over a result."""
        done = self._in_flight.pop(token, None)
        if done is not None:
            done(result, now)
