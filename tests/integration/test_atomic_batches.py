"""Atomic batches while the processes that sequence and store are killed: the rules of tests/simulation/atomic_batches.py."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
from tests.integration.process_cluster import process_cluster
from tests.simulation.atomic_batches import CHAIN, SHARED, ProcessesAsCluster, atomic_batches
from tests.slow import quick


@pytest.mark.slow
@pytest.mark.parametrize("batching", quick([True, False], 1))
async def test_batches_stay_whole_while_sequencers_are_killed(tmp_path: Path, batching: bool) -> None:
    attributes = {"sequencer_batching": batching}
    async with (
        process_cluster(tmp_path, logs=max(SHARED, CHAIN), attributes=attributes) as cluster,
        Client(cluster.file) as client,
    ):
        application = asyncio.create_task(atomic_batches(ProcessesAsCluster(cluster.file, random.Random(3))))  # type: ignore[arg-type]
        kills = 0
        for log in (SHARED, CHAIN) * 3:
            await asyncio.sleep(0.3)
            if application.done():
                break
            node = (await client.sequencer(LogId(log))).node
            await cluster.kill(node)
            kills += 1
            await asyncio.sleep(0.4)
            await cluster.start(node)
        told = await application
        assert kills >= 2
        assert len(told.acknowledged) > 30
        assert told.seen
