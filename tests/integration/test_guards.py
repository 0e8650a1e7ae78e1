"""Guarded appends while the processes that sequence are killed: the rules of tests/simulation/guards.py, on real disks and sockets."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from client.guards import START
from client.read.items import Record
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from server.dev.local_cluster import LocalCluster
from tests.integration.process_cluster import process_cluster
from tests.simulation.guards import CHAIN, ENDED, NUMBERS, OWNED, guarded_appends


class _Processes:
    """What the application uses of a simulated cluster, of real processes."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.rng = random.Random(7)

    def client(self) -> Client:
        """Another client."""
        return Client(self._cluster.file)

    async def calm(self) -> None:
        """Nothing is broken when the application has written: see below."""


@pytest.mark.slow
async def test_the_rules_hold_while_sequencers_are_killed(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        application = asyncio.create_task(guarded_appends(_Processes(cluster)))  # type: ignore[arg-type]
        kills = 0
        for log in (OWNED, CHAIN, NUMBERS, ENDED) * 2:
            await asyncio.sleep(0.3)
            if application.done():
                break
            node = (await client.sequencer(LogId(log))).node
            await cluster.kill(node)
            kills += 1
            await asyncio.sleep(0.5)
            await cluster.start(node)
        told = await application
        assert kills >= 3
        assert told.outcomes["OK"] > 100, told.outcomes
        assert told.fences


async def test_guarded_records_may_be_as_large_as_others() -> None:
    payloads = [bytes([number]) * 300_000 for number in range(3)]
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        first = await client.append(1, payloads[0], expect=START)
        await client.append(1, payloads[1], expect=first.position)
        await client.append(1, payloads[2], txid=7)
        async with client.reader(1, start=LSN.OLDEST, until=await client.tail_lsn(1)) as reader:
            found = [item.payload async for item in reader if isinstance(item, Record)]
        assert found == payloads
