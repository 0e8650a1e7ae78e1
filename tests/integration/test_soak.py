"""Longer variants of the failure tests, for ``make soak``: outages that outlast every timeout, and the same disaster again and again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
from storage_node.log_store.settings import STORE_KINDS
from tests.integration.process_cluster import (
    DirectWorkload,
    ProcessCluster,
    StreamWorkload,
    compare,
    process_cluster,
    read_all,
)

pytestmark = pytest.mark.slow

OUTAGE_SECONDS = 30.0
"""Longer than failure detection, graylists, store timeouts, recovery phases and TCP's user timeout."""
LOGS = (1, 2, 3, 4)


async def _write_for(seconds: float, *streams: StreamWorkload) -> None:
    """All streams go on for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.gather(*(stream.more(100, timeout=30) for stream in streams))
        await asyncio.sleep(0.05)


async def _compare_all(client: Client, streams: dict[int, StreamWorkload], direct: DirectWorkload) -> None:
    journals = {log: await stream.finish() for log, stream in streams.items()}
    appended = await direct.finish()
    for log, journal in journals.items():
        compare(await read_all(client, log), journal, *([appended] if log == direct.log else []))


@pytest.mark.parametrize("which", ["sequencer", "storage"])
async def test_a_node_paused_for_long_and_resumed(tmp_path: Path, which: str) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in LOGS}
        direct = DirectWorkload(client, 1, tasks=4)
        await asyncio.gather(*(stream.more(300) for stream in streams.values()))
        sequencers = [(await client.sequencer(LogId(log))).node for log in LOGS]
        paused = sequencers[0] if which == "sequencer" else min({*range(5)} - {*sequencers}, default=sequencers[-1])
        await cluster.supervisor.pause(paused)
        await _write_for(OUTAGE_SECONDS, *streams.values())
        await cluster.supervisor.resume(paused)
        await _write_for(5, *streams.values())
        # what the sleeper missed, it is asked for: another node dies
        other = next(node for node in range(5) if cluster.rack_of(node) != cluster.rack_of(paused))
        await cluster.kill(other)
        await asyncio.gather(*(stream.more(300) for stream in streams.values()))
        await cluster.start(other)
        await _compare_all(client, streams, direct)


async def test_a_whole_rack_down_for_long(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in LOGS}
        direct = DirectWorkload(client, 1, tasks=4)
        await asyncio.gather(*(stream.more(300) for stream in streams.values()))
        rack = cluster.rack((await client.sequencer(LogId(1))).node)
        await cluster.kill(*rack)
        await _write_for(OUTAGE_SECONDS, *streams.values())
        await cluster.start(*rack)
        await _write_for(5, *streams.values())
        await _compare_all(client, streams, direct)


def _stored_in(kind: str) -> dict[str, dict[str, str]] | None:
    """Settings; extents so small that they are closed, get indexes and become free meanwhile."""
    small = {"extent_bytes": "256KiB", "checkpoint_bytes": "64KiB"}
    return {"storage": {"store": kind, **small}} if kind == "extents" else None


@pytest.mark.parametrize("store", STORE_KINDS)
async def test_all_nodes_killed_ten_times_in_a_row(tmp_path: Path, store: str) -> None:
    async with process_cluster(tmp_path, settings=_stored_in(store)) as cluster, Client(cluster.file) as client:
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in LOGS}
        direct = DirectWorkload(client, 1, tasks=4)
        for round_ in range(10):
            await asyncio.gather(*(stream.more(100, timeout=60) for stream in streams.values()))
            await cluster.kill(*range(5))
            if round_ % 2:  # some begin to recover before the others are there
                await cluster.start(0, 1, 2)
                await asyncio.sleep(0.3 * (round_ % 5))
                await cluster.start(3, 4)
            else:
                await cluster.start(*range(5))
        await asyncio.gather(*(stream.more(100, timeout=60) for stream in streams.values()))
        await _compare_all(client, streams, direct)


@pytest.mark.parametrize("store", STORE_KINDS)
async def test_all_nodes_killed_again_while_they_recover(tmp_path: Path, store: str) -> None:
    """No time to become writable in between."""
    async with process_cluster(tmp_path, settings=_stored_in(store)) as cluster, Client(cluster.file) as client:
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in LOGS}
        direct = DirectWorkload(client, 1, tasks=4)
        await asyncio.gather(*(stream.more(300) for stream in streams.values()))
        for round_ in range(10):
            await cluster.kill(*range(5))
            await cluster.start(*range(5))
            await asyncio.sleep(0.4 + 0.15 * round_)
        await asyncio.gather(*(stream.more(100, timeout=60) for stream in streams.values()))
        await _compare_all(client, streams, direct)


async def _lose_a_disk(cluster: ProcessCluster, node: int) -> None:
    await cluster.kill(node)
    await cluster.wipe(node)
    await cluster.start(node)


async def test_one_shard_after_the_other_is_wiped_while_records_are_only_read_back_in_between(tmp_path: Path) -> None:
    """There is no rebuilding: what was written before a wipe has one copy less. With three copies in two racks, every record survives the loss
    of any two disks; here two disks are lost, with sequencers killed and records written in between."""
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in LOGS}
        direct = DirectWorkload(client, 1, tasks=4)
        for wiped in (1, 3):
            await asyncio.gather(*(stream.more(300) for stream in streams.values()))
            await _lose_a_disk(cluster, wiped)
            await asyncio.gather(*(stream.more(300, timeout=60) for stream in streams.values()))
            sequencer = (await client.sequencer(LogId(1))).node
            await cluster.kill(sequencer)
            await asyncio.gather(*(stream.more(300, timeout=60) for stream in streams.values()))
            await cluster.start(sequencer)
        await asyncio.gather(*(stream.more(300, timeout=60) for stream in streams.values()))
        await _compare_all(client, streams, direct)
