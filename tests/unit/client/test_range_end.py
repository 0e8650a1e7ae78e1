"""Ranges that end at the tail or at a time, alone and of several logs together."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from client.client import Client
from client.range_end import RangeEnd
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from server.simulation.cluster import SimCluster, simulate


class Ends:
    """A client whose log has an entry at each second, from e1n1 at 1 s on, and ends where the test says."""

    def __init__(self, tail: LSN) -> None:
        self.tail = tail

    async def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        return self.tail

    async def find_time(self, log: int | str, when: Any, *, approximate: bool = False, timeout: Any = None) -> LSN:
        if not self.tail:
            return LSN.OLDEST
        return min(LSN(1 << 32 | max(1, -(-when // 1_000_000))), LSN(self.tail + 1))


def at(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


@pytest.mark.parametrize(
    ("until", "tail", "last"),
    [
        ("tail", "e1n5", "e1n5"),
        ("tail", "e0n0", "e0n0"),
        (at(3.5), "e1n5", "e1n3"),
        (at(4), "e1n5", "e1n3"),
        (at(60), "e1n5", "e1n5"),
        (at(0.5), "e1n5", "e1n0"),
        (at(60), "e0n0", "e0n0"),
        (LSN.parse("e9n9"), "e1n5", "e9n9"),
    ],
)
async def test_an_end_is_found_for_each_log_and_never_lies_behind_its_tail_unless_it_was_named(
    until: Any, tail: str, last: str
) -> None:
    assert str(await RangeEnd.of(until).find(Ends(LSN.parse(tail)), LogId(1), None)) == last


@pytest.mark.parametrize("until", ["head", "e1n5", datetime.datetime(2026, 1, 1), True, 1.5, -1, None])
def test_anything_else_is_refused(until: Any) -> None:
    with pytest.raises(LogDeviceError) as caught:
        RangeEnd.of(until)
    assert caught.value.status is Status.INVALID_PARAM


async def payloads(reading: Any) -> list[tuple[int, bytes | None]]:
    """Of a reader, by log, up to its end."""
    got: list[tuple[int, bytes | None]] = []
    async with reading as reader:
        while batch := await reader.read():
            got += [(batch.log, payload) for payload in batch.payloads]
    return got


async def fill(client: Client) -> datetime.datetime:
    """Logs 1 and 2 get four records in turn, log 3 none; the time after the second."""
    middle = None
    for number in range(4):
        receipt = await client.append(1 + number % 2, b"%d" % number)
        if number == 1:
            middle = at(receipt.timestamp / 1e6) + datetime.timedelta(milliseconds=1)
        await asyncio.sleep(1)
    assert middle is not None
    return middle


def test_a_reader_ends_at_the_tail_that_the_log_has_when_reading_begins() -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            middle = await fill(client)
            async with client.reader(1, until="tail") as reader:
                await client.append(1, b"later")
                assert repr(reader).startswith("<Reader of log 1: reading, until e1n2")
                got = []
                while batch := await reader.read():
                    got += batch.payloads
            assert got == [b"0", b"2"]
            assert await payloads(client.reader(1, until=middle)) == [(1, b"0")]
            assert await payloads(client.reader(1, until=middle + datetime.timedelta(days=1))) == [
                (1, b"0"),
                (1, b"2"),
                (1, b"later"),
            ]
            assert await payloads(client.reader(3, until="tail")) == []
            unopened = client.reader(1, until="tail")
            assert len(await unopened.read()) + len(await unopened.read()) == 3
            await unopened.close()

    simulate(application)


@pytest.mark.parametrize("by_time", [False, True])
def test_each_of_several_logs_ends_at_its_own_place(by_time: bool) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            middle = await fill(client)
            every = [(1 + number % 2, b"%d" % number) for number in range(4)]
            got = await payloads(client.merged_reader(1, 2, 3, until="tail", by_time=by_time))
            assert got == every if by_time else sorted(got) == sorted(every)
            got = await payloads(client.merged_reader(1, 2, 3, until=middle, by_time=by_time))
            assert sorted(got) == sorted(every[:2])

    simulate(application)


def test_a_log_to_which_nobody_writes_holds_up_nothing_that_is_read_by_time() -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            await fill(client)
            async with client.merged_reader(1, 2, 3, by_time=True) as reader:
                got: list[bytes | None] = []
                async with asyncio.timeout(5):
                    while len(got) < 4:
                        batch = await reader.read()
                        assert batch is not None
                        got += batch.payloads
                    assert got == [b"0", b"1", b"2", b"3"]
                    await client.append(3, b"the first of its log")
                    await client.append(1, b"another")
                    while len(got) < 6:
                        batch = await reader.read()
                        assert batch is not None
                        got += batch.payloads
                assert sorted(filter(None, got[4:])) == [b"another", b"the first of its log"]

    simulate(application)
