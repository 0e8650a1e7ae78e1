"""Janitor, copier and owners of streams that are killed at each of their steps: nothing is lost, doubled or brought back, and nothing is left for good."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from server.dev.local_cluster import LocalCluster
from streams.attributes import Roll
from streams.cold.restoring import read_catalogue, verify_copies
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from streams.upkeep.janitor import Janitor
from tests.forked import run_program_async
from tests.integration.test_stream_upkeep import read_all, write_segments
from tests.slow import quick

STRIDE = 6
"""Each variant kills at every so many-th step."""
STEPS_MAX = 90


async def run_worker(cluster: str, role: str, step: int, first: int = 0) -> tuple[int, list[str]]:
    """The exit status of a process that kills itself at a step, and what it printed."""
    worker = "tests.integration.stream_step_worker"
    status, out, _ = await run_program_async(worker, cluster, role, step, first, timeout=120)
    return status, out.splitlines()


async def finish(namespace: Namespace) -> None:
    """What is left to do, by a janitor that lives."""
    async with Janitor(namespace, lease="300ms") as janitor:
        while await janitor.round():
            pass
        assert janitor.failures == {}


@pytest.mark.parametrize("begin", quick(range(STRIDE), 0))
async def test_a_janitor_is_killed_at_each_of_its_steps(tmp_path: Path, begin: int) -> None:
    url = f"file://{tmp_path}/cold"
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders", txid="writer", roll=Roll(bytes="2KiB"), cold=url, ttl="1ms")
        written: list[bytes | None] = []
        step, kills, status = begin, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            written += await write_segments(stream, 1, first=len(written) + 1)
            status, _ = await run_worker(cluster.config_file, "janitor", step)
            assert await read_all(stream) == written, f"after a kill at step {step}"
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
            await finish(namespace)
            assert await read_all(stream) == written, "its successor ends what it began"
        assert status == 0
        assert kills >= 3
        entry = namespace.stream_entry(stream.number).upkeep
        assert entry.copying is None
        assert entry.trimming_to == entry.copied_to > 0
        store = ColdStore(url)
        held = (await asyncio.to_thread(read_catalogue, store)).log("orders").copies
        assert held == [each.copy for each in entry.copies], "what killed attempts left is gone"
        assert await verify_copies(store, held) == []


@pytest.mark.parametrize("begin", quick(range(STRIDE), 1))
async def test_an_owner_is_killed_at_each_of_its_steps(begin: int) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("ledger", writers="exclusive")
        begun: list[bytes] = []
        stored: list[bytes] = []
        step, kills, status = begin, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            status, lines = await run_worker(cluster.config_file, "owner", step, len(begun))
            for line in lines:
                word, number = line.split()
                (begun if word == "begun" else stored).append(number.encode())
            found = await read_all(stream)
            assert len(set(found)) == len(found), "none is doubled"
            assert set(stored) <= set(found) <= set(begun), f"after a kill at step {step}"
            assert found == sorted(found, key=lambda payload: int(payload or b"")), "none is late"
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
        assert status == 0
        assert kills >= 2
