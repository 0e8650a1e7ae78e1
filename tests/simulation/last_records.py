"""Bursts of appends with nothing behind them, under faults, and readers that follow.

1. What is acknowledged is read in bounded time, although nobody appends anything later: by who followed all the while, and by who begins to read.
2. Who follows gets a record once, in the order of the log.
3. What storage nodes know to be readable is: a sequencer that is asked afterwards says so. Without faults they soon know of everything.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from logdevice_py import LogDeviceError, Position, Record, SimCluster

LOGS = (16, 17)
BURSTS = 6
BOUND = 45.0
"""Virtual seconds without faults."""


class Followed:
    """What was acknowledged, and what those who follow got."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[bytes, Position]] = {log: {} for log in LOGS}
        self.read: dict[int, dict[bytes, Position]] = {log: {} for log in LOGS}

    def missing(self, log: int) -> set[bytes]:
        """Acknowledged, and not there."""
        read = self.read[log]
        return {payload for payload, where in self.acknowledged[log].items() if read.get(payload) != where}


async def _write(cluster: SimCluster, told: Followed, log: int) -> None:
    async with cluster.client() as client, asyncio.TaskGroup() as group:

        async def one(payload: bytes) -> None:
            with suppress(LogDeviceError):
                told.acknowledged[log][payload] = (await client.append(log, payload, timeout=20)).position

        for burst in range(BURSTS):
            for number in range(cluster.rng.randint(1, 5)):
                group.create_task(one(b"%d.%d" % (burst, number)))
            await asyncio.sleep(cluster.rng.choice((0.01, 0.5, 8)))


async def _follow(cluster: SimCluster, told: Followed, log: int) -> None:
    last = Position(0, 0)
    async with cluster.client() as client, client.reader(log) as reader:
        async for item in reader:
            if isinstance(item, Record):
                where = Position(item.lsn, item.batch_offset)
                assert where > last, f"rule 2: {where} of log {log} is read behind {last}"
                last = told.read[log][item.payload] = where


async def _ask_storage_nodes(cluster: SimCluster, log: int) -> None:
    async with cluster.client() as client:
        while True:
            with suppress(LogDeviceError):
                known = await client.known_tail(log, source=cluster.rng.choice(("quorum", "any")), timeout=5)
                tail = await client.tail_lsn(log, timeout=20)
                assert known <= tail, f"rule 3: storage nodes say {known}, the sequencer {tail} afterwards"
            await asyncio.sleep(cluster.rng.uniform(0, 2))


async def last_records(cluster: SimCluster) -> Followed:
    """All of it, and the rules."""
    told = Followed()
    following = [asyncio.create_task(_follow(cluster, told, log)) for log in LOGS]
    following += [asyncio.create_task(_ask_storage_nodes(cluster, log)) for log in LOGS]
    try:
        async with asyncio.TaskGroup() as group:
            for log in LOGS:
                group.create_task(_write(cluster, told, log))
        await cluster.calm()
        with suppress(TimeoutError):
            async with asyncio.timeout(BOUND):
                while any(map(told.missing, LOGS)) and not any(task.done() for task in following):  # noqa: ASYNC110 - of what readers get
                    await asyncio.sleep(0.1)
        for task in following:
            if task.done():
                await task
        for log in LOGS:
            assert not told.missing(log), f"rule 1: who follows log {log} lacks {told.missing(log)} after {BOUND:.0f} s"
        told.read = {log: {} for log in LOGS}
        late = [asyncio.create_task(_follow(cluster, told, log)) for log in LOGS]
        following += late
        await asyncio.sleep(BOUND)
        for log in LOGS:
            assert not told.missing(log), f"rule 1: who begins to read log {log} lacks {told.missing(log)}"
            last = max((position.lsn for position in told.acknowledged[log].values()), default=0)
            async with cluster.client() as client:
                known = await client.known_tail(log, timeout=60)
            assert known >= last, f"rule 3: storage nodes know of {known}, {last} was acknowledged long ago"
    finally:
        for task in following:
            task.cancel()
        results = await asyncio.gather(*following, return_exceptions=True)
    for result in results:
        if isinstance(result, AssertionError):
            raise result
    return told
