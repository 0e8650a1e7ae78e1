"""How far readers read ahead: one that is slow holds as much as its buffer, one that is fast gets records as they are acknowledged."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from client.read.settings import ReadSettings
from logdevice_py import Client, Reader, SimCluster

LOG = 1
BUFFER = 256 << 10
PAYLOAD = 8 << 10
RECORDS = 300


@dataclass
class PacedReader:
    """What a reader held, and how long records were under way."""

    held: list[int] = field(default_factory=list)
    """Bytes that were received and not taken, each time that something was taken."""
    latencies: list[float] = field(default_factory=list)
    """Virtual seconds from the acknowledgement to the consumer."""

    async def follow(self, client: Client, pace: float, acknowledged: dict[int, float]) -> None:
        """Take a record at a time, and do something with it for a while."""
        loop, taken = asyncio.get_running_loop(), 0
        reader = Reader(client, LOG, settings=ReadSettings(buffer_bytes=BUFFER, shard_buffer_bytes_min=PAYLOAD))
        async with reader:
            while taken < RECORDS:
                batch = await reader.read(1)
                look = reader._stream.look()
                self.held.append(look.ready_bytes + look.waiting_entries * PAYLOAD)
                for record in batch.records():
                    taken += 1
                    self.latencies.append(loop.time() - acknowledged.get(record.lsn, loop.time()))
                await asyncio.sleep(pace)


def test_a_slow_consumer_holds_its_buffer_and_a_fast_one_waits_for_nothing(simulate: Callable[..., Any]) -> None:
    async def application(cluster: SimCluster) -> None:
        slow, fast, acknowledged = PacedReader(), PacedReader(), dict[int, float]()
        loop = asyncio.get_running_loop()
        async with (
            cluster.client() as client,
            cluster.client() as one,
            cluster.client() as other,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(slow.follow(one, 0.05, acknowledged))
            group.create_task(fast.follow(other, 0, acknowledged))
            for _ in range(RECORDS):
                acknowledged[(await client.append(LOG, bytes(PAYLOAD))).lsn] = loop.time()
                await asyncio.sleep(0.002)
        # the buffer is split over the three shards, and records that follow each other come from one of them
        assert max(slow.held) > BUFFER // 4, "it reads ahead of its consumer"
        assert max(slow.held) <= BUFFER + 4 * PAYLOAD, "and no farther than its buffer"
        assert slow.latencies[-1] > 5, "which is far behind in the end"
        assert max(fast.held) <= 8 * PAYLOAD, "what comes is taken at once"
        assert statistics.median(fast.latencies) < 0.01
        assert max(fast.latencies) < 0.5, "however slow another consumer is"

    simulate(application, nodes=3, replicate="node:2")
