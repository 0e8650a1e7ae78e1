"""Reading several logs as one: what their readers deliver, as it comes or in the order of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Final, Protocol, TypeVar

from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from client.reader import Reader
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status

_Part = tuple[list[bytes | None], RecordRun] | Gap
_LOOK_SECONDS: Final = 0.02
"""How long records are held back before it is asked where the logs end that they wait for."""
_NAMED: Final = 3
T = TypeVar("T")


class FindTail(Protocol):
    """Says where a log ends: `Client.tail_lsn`."""

    async def __call__(self, log: LogId) -> LSN: ...


class MergedReader:
    """Reads logs with a reader each, until the block ends or `close` is called, and hands out batches of one log at a time; each log's own order is kept.

    By time, a batch is held back until each other log has something later, is read to its end, or has nothing more: it was asked for its tail
    after the batch came, and is read up to there. So a log to which nobody writes holds nothing up, and what comes out of order is a record
    that was on its way to its log meanwhile, or whose sequencer's clock is behind. As it comes, nothing waits for other logs.
    """

    def __init__(self, readers: Sequence[Reader], *, by_time: bool, tail_lsn: FindTail) -> None:
        self.readers = tuple(readers)
        self._by_time = by_time
        self._tail_lsn = tail_lsn
        self._open = set(range(len(self.readers)))
        self._reading: dict[int, asyncio.Task[RecordBatch]] = {}
        self._parts: list[deque[_Part]] = [deque() for _ in self.readers]
        self._groups = [""] * len(self.readers)
        """The log group of each of them, as its last batch had it."""
        self._batches = 0
        """How many came."""
        self._came = [0] * len(self.readers)
        """Which of them each log's parts are of."""
        self._nothing_before = [0] * len(self.readers)
        """Logs that had nothing more when so many had come."""
        self._tails = [LSN(0)] * len(self.readers)
        """Where each log ended when it was asked: up to there something comes."""
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        order = "by time" if self._by_time else "as they come"
        return f"<MergedReader {order}: {', '.join(map(repr, self.readers))}>"

    async def __aenter__(self) -> MergedReader:
        try:
            opened = await asyncio.gather(*(reader.__aenter__() for reader in self.readers), return_exceptions=True)
            for each in opened:
                if isinstance(each, BaseException):
                    raise each
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading all logs. Harmless when called again. A read that waits meanwhile raises SHUTDOWN, as later ones do."""
        self._closed = True
        tasks: list[asyncio.Task[RecordBatch] | asyncio.Task[None]] = [*self._reading.values()]
        if self._looking is not None:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for reader in self.readers:
            await reader.close()

    async def __aiter__(self) -> AsyncIterator[RecordBatch]:
        while (batch := await self.read()) is not None:
            yield batch

    async def read(self, max_records: int = 10_000) -> RecordBatch | None:
        """Records and gaps of one of the logs; None when all are read to their ends. Being cancelled loses nothing.

        Raises:
            LogDeviceError: as `Reader.read`.
        """
        if self._closed:
            raise _shut()
        return await (self._next_by_time(max_records) if self._by_time else self._next(max_records))

    @property
    def holds(self) -> bool:
        """Whether records are here that wait for other logs."""
        return any(self._parts)

    def waiting_for(self) -> str:
        """What holds it up at this moment, for people."""
        awaited = [self.readers[index] for index in sorted(self._open) if not self._parts[index]]
        names = [f"log {reader.log}: {reader.waiting_for()}" for reader in awaited[:_NAMED]]
        more = len(awaited) - _NAMED
        return "; ".join(names) + (f"; and {more} more logs" if more > 0 else "")

    async def _next(self, max_records: int) -> RecordBatch | None:
        while self._open:
            self._begin_reads(self._open, max_records)
            await asyncio.wait(self._reading.values(), return_when=asyncio.FIRST_COMPLETED)
            # the one that was asked first among those that answered: a busy log does not keep the others waiting
            index = next(index for index, task in self._reading.items() if task.done())
            if batch := self._take_read(index):
                return batch
        return None

    def _begin_reads(self, wanted: Iterable[int], max_records: int) -> None:
        for index in wanted:
            if index not in self._reading:
                self._reading[index] = asyncio.create_task(self.readers[index].read(max_records))

    async def _next_by_time(self, max_records: int) -> RecordBatch | None:
        while True:
            self._take_what_came()
            awaited = [index for index in self._open if not self._parts[index]]
            heads = sorted((_time(parts[0]), index) for index, parts in enumerate(self._parts) if parts)
            if heads:
                came = self._came[heads[0][1]]
                awaited = [index for index in awaited if self._nothing_before[index] < came]
            if not awaited:
                return self._oldest(heads) if heads else None
            self._begin_reads((index for index in self._open if not self._parts[index]), max_records)
            await self._wait(awaited, holds=bool(heads))

    def _take_what_came(self) -> None:
        if self._looking is not None and self._looking.done():
            looked, self._looking = self._looking, None
            _outcome(looked)
        for index in [index for index, task in self._reading.items() if task.done()]:
            if batch := self._take_read(index):
                self._batches += 1
                self._came[index] = self._batches
                self._parts[index].extend(batch.runs_and_gaps())
                self._groups[index] = batch.log_group

    async def _wait(self, awaited: list[int], *, holds: bool) -> None:
        silent = [index for index in awaited if self.readers[index].next_lsn > self._tails[index]]
        if holds and silent and self._looking is None:
            self._looking = asyncio.create_task(self._look_for_tails(silent))
        tasks: list[asyncio.Task[RecordBatch] | asyncio.Task[None]] = [self._reading[index] for index in awaited]
        if self._looking is not None:
            tasks.append(self._looking)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    async def _look_for_tails(self, silent: list[int]) -> None:
        """Find out which logs have nothing more."""
        await asyncio.sleep(_LOOK_SECONDS)  # mostly something comes; and logs are not asked all the time
        came = self._batches

        async def look(index: int) -> None:
            reader = self.readers[index]
            try:
                tail = self._tails[index] = await self._tail_lsn(reader.log)
            except LogDeviceError as error:
                if not error.retriable:
                    raise
                return
            if reader.next_lsn > tail:
                self._nothing_before[index] = came

        await asyncio.gather(*map(look, silent))

    def _oldest(self, heads: list[tuple[int, int]]) -> RecordBatch:
        """What one log has before all others."""
        _, first = heads[0]
        until = heads[1] if len(heads) > 1 else None
        batch, parts = RecordBatch(self.readers[first].log), self._parts[first]
        batch.log_group = self._groups[first]
        while parts and (until is None or (_time(parts[0]), first) <= until):
            part = parts.popleft()
            if isinstance(part, Gap):
                batch.add_gap(part)
            else:
                batch.add_records(*part)
        return batch

    def _take_read(self, index: int) -> RecordBatch | None:
        """What the finished read of a log has; None: the log is read to its end."""
        batch = _outcome(self._reading.pop(index))
        if batch:
            return batch
        self._open.discard(index)
        return None


def _outcome(task: asyncio.Task[T]) -> T:
    """What a task of the reader came to."""
    if task.cancelled():  # `close` did that, not who reads
        raise _shut()
    return task.result()


def _shut() -> LogDeviceError:
    return LogDeviceError(Status.SHUTDOWN, "the reader was closed", retriable=False)


def _time(part: _Part) -> int:
    """When it was appended; a gap has no time, and comes with what is before it."""
    return -1 if isinstance(part, Gap) else part[1].timestamp
