"""Reading several logs as one: what their readers deliver, as it comes or in the order of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType

from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from client.reader import Reader

_Part = tuple[list[bytes | None], RecordRun] | Gap


class MergedReader:
    """Reads logs with a reader each, and hands out batches of one log at a time; each log's own order is kept.

    By time, a batch is held back until every log that is not read to its end has something later: use that for ranges that end. As it
    comes, nothing waits for other logs.
    """

    def __init__(self, readers: Sequence[Reader], *, by_time: bool) -> None:
        self.readers = tuple(readers)
        self._by_time = by_time
        self._open = set(range(len(self.readers)))
        self._reading: dict[int, asyncio.Task[RecordBatch]] = {}
        self._parts: list[deque[_Part]] = [deque() for _ in self.readers]
        self._groups = [""] * len(self.readers)
        """The log group of each of them, as its last batch had it."""

    def __repr__(self) -> str:
        order = "by time" if self._by_time else "as they come"
        return f"<MergedReader {order}: {', '.join(map(repr, self.readers))}>"

    async def __aenter__(self) -> MergedReader:
        for reader in self.readers:
            await reader.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
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
        return await (self._next_by_time(max_records) if self._by_time else self._next(max_records))

    async def _next(self, max_records: int) -> RecordBatch | None:
        while self._open:
            self._begin_reads(self._open, max_records)
            await asyncio.wait(self._reading.values(), return_when=asyncio.FIRST_COMPLETED)
            # the one that was asked first among those that answered: a busy log does not keep the others waiting
            index = next(index for index, task in self._reading.items() if task.done())
            if batch := self._take_read(index):
                return batch
        return None

    async def _next_by_time(self, max_records: int) -> RecordBatch | None:
        await self._fill(max_records)
        heads = sorted((_time(parts[0]), index) for index, parts in enumerate(self._parts) if parts)
        if not heads:
            return None
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

    async def _fill(self, max_records: int) -> None:
        """Have something of every log that is not read to its end."""
        while wanted := [index for index in self._open if not self._parts[index]]:
            self._begin_reads(wanted, max_records)
            await asyncio.wait([self._reading[index] for index in wanted])
            for index in wanted:
                if batch := self._take_read(index):
                    self._parts[index].extend(batch.runs_and_gaps())
                    self._groups[index] = batch.log_group

    def _begin_reads(self, logs: Iterable[int], max_records: int) -> None:
        """Begin a read of each of these logs that has none. One that a cancelled call has left is used."""
        for index in logs:
            if index not in self._reading:
                self._reading[index] = asyncio.create_task(self.readers[index].read(max_records))

    def _take_read(self, index: int) -> RecordBatch | None:
        """What the finished read of a log has; None: the log is read to its end."""
        batch = self._reading.pop(index).result()
        if batch:
            return batch
        self._open.discard(index)
        return None


def _time(part: _Part) -> int:
    """When it was appended; a gap has no time, and comes with what is before it."""
    return -1 if isinstance(part, Gap) else part[1].timestamp
