"""A cluster whose epoch store is a real ZooKeeper server, which is killed while the cluster works."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn, epoch_of
from server.dev.zookeeper_server import ZooKeeperServer, why_no_zookeeper
from tests.integration.process_cluster import StreamWorkload, compare, process_cluster, read_all, tail_of

LOGS = (1, 2, 3, 4, 5, 6)
AWAY_SECONDS = 10.0
"""Longer than ZooKeeper's sessions (20 ticks of 200 ms) and than every deadline of the epoch store's operations."""


@pytest.fixture
async def zookeeper(tmp_path: Path) -> AsyncIterator[ZooKeeperServer]:
    reason = why_no_zookeeper()
    if reason is not None:
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path / "zookeeper")
    await server.start_async()
    yield server
    server.kill()


async def settled(client: Client, stream: StreamWorkload) -> None:
    """Until the log is recovered where it is sequenced, and what the writer has under way is all of its epoch there."""
    async with asyncio.timeout(60):
        while True:
            await tail_of(client, stream.log)  # answered when all earlier epochs are recovered
            epoch = (await client.sequencer(stream.log)).epoch
            await stream.more(1)
            lsn, _ = stream.journal.order[-1]
            if epoch_of(Lsn(lsn)) == epoch:
                break


@pytest.mark.slow
async def test_open_epochs_need_no_zookeeper_and_activations_wait_for_it(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    async with (
        process_cluster(tmp_path, logs=len(LOGS), epoch_store=zookeeper.url) as cluster,
        Client(cluster.file) as client,
    ):
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in LOGS}
        await asyncio.gather(*(stream.more(100) for stream in streams.values()))

        # with ZooKeeper there, a killed node costs a moment
        first = (await client.sequencer(LogId(1))).node
        await cluster.kill(first)
        await asyncio.gather(*(stream.more(100) for stream in streams.values()))
        await cluster.start(first)
        await cluster.acquainted()  # it takes logs back, and their earlier epochs are recovered with ZooKeeper's help
        await asyncio.gather(*(settled(client, stream) for stream in streams.values()))
        sequencers = {log: await client.sequencer(LogId(log)) for log in LOGS}
        second = sequencers[1].node
        orphans = [log for log in LOGS if sequencers[log].node == second]
        others = [log for log in LOGS if sequencers[log].node != second]
        assert others, "every log has the same sequencer"

        zookeeper.kill()
        gone = time.monotonic()
        await asyncio.gather(*(stream.more(300) for stream in streams.values()))
        await cluster.kill(second)
        # what it answered may still come in until the client has read to the end of the connection; then its logs stall
        async with asyncio.timeout(60):
            while second in client.connectivity().connected:  # noqa: ASYNC110 - it has no event for it
                await asyncio.sleep(0.02)
        for _ in range(100):  # turns of the loop, until writers have taken all of it
            await asyncio.sleep(0)
        stood_at = {log: streams[log].acknowledged for log in orphans}
        while time.monotonic() - gone < AWAY_SECONDS / 2:
            await asyncio.gather(*(streams[log].more(100) for log in others))
        await cluster.start(second)  # it cannot register its shard yet, so it comes up when ZooKeeper is back
        while time.monotonic() - gone < AWAY_SECONDS:
            await asyncio.gather(*(streams[log].more(100) for log in others))
        assert {log: streams[log].acknowledged for log in orphans} == stood_at

        await zookeeper.start_async()
        back = time.monotonic()
        await asyncio.gather(*(streams[log].more(100) for log in orphans))
        print(f"{len(orphans)} logs writable {time.monotonic() - back:.1f} s after ZooKeeper came back")
        await asyncio.gather(*(stream.more(100) for stream in streams.values()))
        for log, stream in streams.items():
            journal = await stream.finish()
            compare(await read_all(client, log), journal)
        for log in orphans:
            assert (await client.sequencer(LogId(log))).epoch > sequencers[log].epoch


async def test_zookeeper_and_all_nodes_killed_at_once_lose_nothing_and_give_no_epoch_twice(
    tmp_path: Path, zookeeper: ZooKeeperServer
) -> None:
    async with process_cluster(tmp_path, logs=2, epoch_store=zookeeper.url) as cluster, Client(cluster.file) as client:
        streams = {log: StreamWorkload(client, log, name=f"s{log}") for log in (1, 2)}
        await asyncio.gather(*(stream.more(200) for stream in streams.values()))
        before = {log: (await client.sequencer(LogId(log))).epoch for log in streams}
        zookeeper.kill()
        await cluster.kill(*range(5))
        await cluster.start(*range(5))
        await asyncio.sleep(1)
        await zookeeper.start_async()
        await asyncio.gather(*(stream.more(200) for stream in streams.values()))
        for log, stream in streams.items():
            assert (await client.sequencer(LogId(log))).epoch > before[log]
            journal = await stream.finish()
            compare(await read_all(client, log), journal)
