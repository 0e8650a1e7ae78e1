"""Several logs read as one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.merged_reader import MergedReader
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, RecordRun
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp


class FakeReader:
    """Delivers what the test puts in; an empty batch is its end."""

    def __init__(self, log: int) -> None:
        self.log = LogId(log)
        self.queue: asyncio.Queue[RecordBatch | LogDeviceError] = asyncio.Queue()
        self.closed = False
        self.reads = 0
        self.asked = asyncio.Event()
        self.next_lsn = LSN(1)

    async def __aenter__(self) -> FakeReader:
        return self

    async def close(self) -> None:
        self.closed = True

    async def read(self, max_records: int) -> RecordBatch:
        self.reads += 1
        self.asked.set()
        item = await self.queue.get()
        if isinstance(item, LogDeviceError):
            raise item
        self.next_lsn = LSN(1 + max([self.next_lsn - 1, *item.lsns]))
        return item

    def waiting_for(self) -> str:
        return f"{self.next_lsn} from N1:S0"

    def give(self, *items: int | Gap) -> None:
        """A batch: a record for each time, and gaps."""
        batch = RecordBatch(self.log)
        for item in items:
            if isinstance(item, Gap):
                batch.add_gap(item)
            else:
                batch.add_records([b"%d" % item], RecordRun(item, Timestamp(item), 0, 1))
        self.queue.put_nowait(batch)


class Tails:
    """Where logs end, as the test says; a log whose end it did not say does not answer."""

    def __init__(self, tails: dict[int, int | LogDeviceError] | None = None) -> None:
        self.tails = tails or {}
        self.asked: list[int] = []
        self.said = asyncio.Condition()

    async def say(self, log: int, tail: int | LogDeviceError) -> None:
        async with self.said:
            self.tails[log] = tail
            self.said.notify_all()

    async def asked_for(self, count: int) -> None:
        """Until so many were."""
        async with self.said:
            await self.said.wait_for(lambda: len(self.asked) >= count)

    async def __call__(self, log: LogId) -> LSN:
        async with self.said:
            self.asked.append(log)
            self.said.notify_all()
            await self.said.wait_for(lambda: log in self.tails)
        tail = self.tails[log]
        if isinstance(tail, LogDeviceError):
            del self.tails[log]
            raise tail
        return LSN(tail)


def merged(*readers: FakeReader, by_time: bool, tails: Tails | None = None) -> MergedReader:
    parts: Any = readers
    return MergedReader(parts, by_time=by_time, tail_lsn=tails or Tails())


async def everything(reader: MergedReader) -> list[tuple[int, int | str]]:
    """Log and time of each record, log and kind of each gap."""
    got: list[tuple[int, int | str]] = []
    while (batch := await reader.read()) is not None:
        got += [(batch.log, item.kind.value if isinstance(item, Gap) else item.timestamp) for item in batch]
    return got


async def test_by_time_each_record_comes_after_all_older_ones_of_all_logs() -> None:
    one, two, empty = FakeReader(1), FakeReader(2), FakeReader(3)
    one.give(10, 20)
    one.give(60)
    one.give()
    two.give(15, 30)
    two.give(40, 50, 70)
    two.give()
    empty.give()
    async with merged(one, two, empty, by_time=True) as reader:
        got = await everything(reader)
    assert got == [(1, 10), (2, 15), (1, 20), (2, 30), (2, 40), (2, 50), (1, 60), (2, 70)]
    assert one.closed
    assert two.closed
    assert empty.closed


async def test_by_time_a_gap_keeps_its_place_in_its_log() -> None:
    one, two = FakeReader(1), FakeReader(2)
    one.give(10, Gap(GapKind.HOLE, LSN(11), LSN(12)), 30)
    one.give()
    two.give(20)
    two.give()
    async with merged(one, two, by_time=True) as reader:
        assert await everything(reader) == [(1, 10), (1, "hole"), (2, 20), (1, 30)]


async def test_by_time_a_record_waits_for_a_log_that_has_not_answered() -> None:
    one, two = FakeReader(1), FakeReader(2)
    one.give(10)
    async with merged(one, two, by_time=True) as reader:
        reading = asyncio.create_task(reader.read())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
        two.give(5)
        batch = await reading
        assert batch is not None
        assert (batch.log, batch.timestamps) == (2, [5])


async def read(reader: MergedReader) -> tuple[int, list[int]]:
    """The log and the times of a batch, which comes."""
    async with asyncio.timeout(10):
        batch = await reader.read()
    assert batch is not None
    return batch.log, batch.timestamps


async def test_by_time_a_log_that_is_read_to_its_tail_is_not_waited_for() -> None:
    one, two, three = FakeReader(1), FakeReader(2), FakeReader(3)
    tails = Tails({2: 0, 3: 0})
    one.give(10)
    async with merged(one, two, three, by_time=True, tails=tails) as reader:
        assert await read(reader) == (1, [10])
        assert sorted(tails.asked) == [2, 3]
        # what came later has to be asked for anew
        one.give(20)
        two.give(15)
        tails.tails[2] = 15
        assert await read(reader) == (2, [15])
        assert await read(reader) == (1, [20])


async def test_by_time_what_a_log_has_up_to_its_tail_is_waited_for_and_its_tail_is_asked_for_once() -> None:
    one, two = FakeReader(1), FakeReader(2)
    tails = Tails({2: 5})
    one.give(10)
    async with merged(one, two, by_time=True, tails=tails) as reader:
        reading = asyncio.create_task(read(reader))
        await tails.asked_for(1)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
        assert reader.holds
        assert reader.waiting_for() == "log 2: e0n1 from N1:S0"
        two.give(5)
        assert await reading == (2, [5])
        assert tails.asked == [2]
        assert await read(reader) == (1, [10])


async def test_by_time_a_tail_that_cannot_be_had_is_asked_for_again_unless_that_is_of_no_use() -> None:
    one, two = FakeReader(1), FakeReader(2)
    tails = Tails({2: LogDeviceError(Status.AGAIN, "later")})
    one.give(10)
    async with merged(one, two, by_time=True, tails=tails) as reader:
        reading = asyncio.create_task(read(reader))
        await tails.asked_for(2)
        await tails.say(2, 0)
        assert await reading == (1, [10])
        one.give(20)
        tails.tails[2] = LogDeviceError(Status.NOTFOUND, "no such log")
        with pytest.raises(LogDeviceError, match="no such log"):
            await reader.read()


async def test_as_it_comes_nothing_waits_for_other_logs() -> None:
    silent, busy = FakeReader(1), FakeReader(2)
    busy.give(10)
    async with merged(silent, busy, by_time=False) as reader:
        batch = await reader.read()
        assert batch is not None
        assert batch.log == 2
        silent.give(5)
        silent.give()
        busy.give()
        assert await everything(reader) == [(1, 5)]


@pytest.mark.parametrize("by_time", [False, True])
async def test_a_read_that_is_cancelled_loses_nothing(by_time: bool) -> None:
    one, two = FakeReader(1), FakeReader(2)
    async with merged(one, two, by_time=by_time) as reader:
        reading = asyncio.create_task(reader.read())
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        for each in (one, two):
            each.give(each.log)
            each.give()
        assert sorted(await everything(reader)) == [(1, 1), (2, 2)]


async def test_when_one_log_cannot_be_opened_none_stays_open() -> None:
    class Unopened(FakeReader):
        async def __aenter__(self) -> FakeReader:
            raise LogDeviceError(Status.TIMEDOUT, "where it ends is not known")

    one, two = FakeReader(1), Unopened(2)
    with pytest.raises(LogDeviceError, match="where it ends"):
        async with merged(one, two, by_time=False):
            raise AssertionError("it cannot be read from")
    assert one.closed


@pytest.mark.parametrize("by_time", [False, True])
async def test_what_a_reader_raises_is_raised(by_time: bool) -> None:
    one, two = FakeReader(1), FakeReader(2)
    one.queue.put_nowait(LogDeviceError(Status.SHUTDOWN, "closed"))
    async with merged(one, two, by_time=by_time) as reader:
        if by_time:
            two.give(1)
        with pytest.raises(LogDeviceError, match="closed"):
            await reader.read()


@pytest.mark.parametrize("by_time", [False, True])
async def test_one_read_of_a_log_goes_on_at_a_time(by_time: bool) -> None:
    one, two = FakeReader(1), FakeReader(2)
    async with merged(one, two, by_time=by_time) as reader:
        for _ in range(3):
            reading = asyncio.create_task(reader.read())
            for _ in range(5):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert (one.reads, two.reads) == (1, 1)


@pytest.mark.parametrize("by_time", [False, True])
async def test_one_that_is_closed_reads_no_more_and_may_be_closed_again(by_time: bool) -> None:
    one, two = FakeReader(1), FakeReader(2)
    one.give(10)
    reader = merged(one, two, by_time=by_time, tails=Tails({1: 9, 2: 9}))
    await reader.close()
    await reader.close()
    assert (one.closed, two.closed) == (True, True)
    with pytest.raises(LogDeviceError, match="the reader was closed") as refused:
        await reader.read()
    assert refused.value.status is Status.SHUTDOWN


@pytest.mark.parametrize("by_time", [False, True])
async def test_who_waits_for_one_that_is_closed_is_told_and_not_cancelled(by_time: bool) -> None:
    one, two = FakeReader(1), FakeReader(2)
    tails = Tails()
    reader = merged(one, two, by_time=by_time, tails=tails)
    reading = asyncio.create_task(reader.read())
    await two.asked.wait()
    if by_time:
        one.give(10)  # where the other ends is asked for
        await tails.asked_for(1)
    await reader.close()
    with pytest.raises(LogDeviceError, match="the reader was closed"):
        await reading
