"""Guarded appends while the processes that sequence are killed: the rules of tests/simulation/guards.py, on real disks and sockets."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
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
