"""Tables that have something to tell only while something is wrong, or under way: each has rows then, in a cluster of real processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from client.sync import SyncClient
from client.takeover import recovered
from ldquery.ctl.event_log import generation_of, start_rebuilding
from ldquery.session import LDQuery
from logdevice_py.core.ids import LogId, NodeId, shard_id
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import RebuildMode
from server.admin import sampler
from server.dev.local_cluster import LocalCluster
from tests.integration.process_cluster import ProcessCluster, process_cluster

LOG = LogId(1)
# what is drained are 40 kB: slowly enough to be looked at on a machine that is busy
SETTINGS = {"rebuilding": {"enabled": True, "rate_limit_bytes": "1KiB"}}
Rows = list[dict[str, Any]]


async def rows(session: LDQuery, sql: str) -> Rows:
    """What a statement finds; nodes that are paused are not waited for."""
    return (await asyncio.to_thread(session.query, sql)).to_dicts()


async def some(session: LDQuery, sql: str) -> Rows:
    """The rows, once there are any."""
    async with asyncio.timeout(60):  # nodes and tests share two cores
        while not (found := await rows(session, sql)):  # noqa: ASYNC110 - another process changes
            await asyncio.sleep(0.02)
    return found


def send(cluster: ProcessCluster, number: signal.Signals, nodes: Sequence[int]) -> None:
    for node in nodes:
        cluster.supervisor.children[NodeId(node)].process.send_signal(number)


@asynccontextmanager
async def paused(cluster: ProcessCluster, *nodes: int) -> AsyncIterator[None]:
    """The processes are stopped within the block."""
    send(cluster, signal.SIGSTOP, nodes)
    try:
        yield
    finally:
        send(cluster, signal.SIGCONT, nodes)


async def next_epoch(client: Client) -> int:
    """Take the log to another epoch and have all earlier ones recovered."""
    state = await client.sequencer(LOG)
    return (await recovered(client, LOG, min_epoch=state.epoch + 1, timeout_us=Micros(120 * SECOND))).epoch


async def while_appending(client: Client, found: Coroutine[Any, Any, Rows]) -> Rows:
    """Rows that come up because of appends."""

    async def append() -> None:
        while True:
            with contextlib.suppress(LogDeviceError):
                await client.append(LOG, b"x", timeout=5)

    appending = [asyncio.create_task(append()) for _ in range(4)]
    try:
        return await found
    finally:
        for task in appending:
            task.cancel()
        await asyncio.gather(*appending, return_exceptions=True)


async def a_reader_is_seen_from_both_sides(session: LDQuery, tail: int) -> None:
    def is_there(where: str) -> str:
        return f"SELECT * FROM {where} ORDER BY 1"

    served = await some(session, is_there(f"readers WHERE log_id = {LOG} AND read_pointer > {tail}"))
    assert {row["until_lsn"] for row in served} == {LSN_MAX}
    # the reader needed none of the shards that hold copies of what others ship: their streams may be on their way still
    waits = f"SELECT log_id FROM waits WHERE log_id = {LOG} AND kind = 'READ' GROUP BY log_id"
    await some(session, f"{waits} HAVING min(cause) = 'TAIL' AND max(cause) = 'TAIL'")
    mine = await some(session, is_there("client_read_streams WHERE node_id IS NULL"))
    assert [(row["client"], row["log_id"], row["state"], row["next_lsn"]) for row in mine] == [
        ("a reader", LOG, "READING", tail + 1)
    ]
    assert "to be written and released" in mine[0]["waits_for"]
    assert all(f"N{row['node_id']}:S0 READING to" in mine[0]["shards"] for row in served)
    assert {row["stream"] for row in served} == {row["stream"] for row in mine}
    nodes = await some(session, is_there("client_read_streams WHERE node_id IS NOT NULL"))
    assert {row["client"] for row in nodes} == {"event log"}
    # the streams of a node are opened at shards when it knows the nodesets of the event log
    of_nodes = (
        "SELECT 1 FROM client_read_streams AS c JOIN readers AS r ON r.stream = c.stream WHERE c.node_id IS NOT NULL"
    )
    await some(session, of_nodes)


@pytest.mark.slow
async def test_every_table_of_trouble_has_rows_while_there_is_trouble(tmp_path: Path) -> None:
    async with (
        process_cluster(
            tmp_path, logs=1, replicate="node:2", racks=1, settings=SETTINGS, attributes={"sticky_copysets": False}
        ) as cluster,
        Client(cluster.file, name="a reader") as client,
    ):
        last = int([await client.append(LOG, b"x" * 1000) for _ in range(100)][-1].lsn)
        home = (await client.sequencer(LOG)).node
        absent, second, third, drained = (node for node in range(5) if node != home)
        async with asyncio.timeout(60):
            # the event log begins with the nodes that are known to run, and takes the others in
            while not await generation_of(client, shard_id(NodeId(drained))):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)
        with LDQuery(cluster.file, deadline=2, clients=[client]) as session:
            async with client.reader(LOG) as reader:
                while reader.next_lsn <= last:
                    await reader.read()
                await a_reader_is_seen_from_both_sides(session, last)
            await cluster.kill(absent)
            avoided = f"SELECT * FROM graylist WHERE graylisted_node_id = {absent}"
            assert await while_appending(client, some(session, avoided))
            await next_epoch(client)
            await start_rebuilding(client, shard_id(NodeId(drained)), RebuildMode.RELOCATE)
            drain = await some(session, f"SELECT * FROM shard_rebuildings WHERE node_id = {home}")
            assert [(row["rebuilding_shard"], row["mode"]) for row in drain] == [(f"N{drained}:S0", "RELOCATE")]
            donors = await some(session, "SELECT * FROM log_rebuildings")
            assert all(row["logs_left"] > 0 and row["status"] for row in donors)
            async with paused(cluster, second, third):
                await cluster.start(absent)
                (purge,) = await some(session, f"SELECT * FROM purges WHERE log_id = {LOG} AND node_id = {absent}")
                assert purge["state"] in ("READING_HISTORY", "ASKING")
                moving = asyncio.create_task(next_epoch(client))
                where = f"log_id = {LOG} AND node_id = {home}"
                await some(session, f"SELECT * FROM recoveries WHERE {where} AND state = 'RECOVERING'")
                missing = f"N{min(second, third)}:S0, N{max(second, third)}:S0"
                (cause,) = await some(
                    session, f"SELECT * FROM waits WHERE {where} AND kind = 'RECOVERY' AND shards = '{missing}'"
                )
                assert cause["cause"] == "F_MAJORITY"
            assert await moving > purge["purge_to"]


async def test_throughput_is_told_once_sequencers_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_LAGS_PER_LOOK", 2)
    async with LocalCluster(nodes=1, logs=1) as cluster, cluster.client() as client:
        with LDQuery(cluster.config_file) as session:
            asked = some(session, f"SELECT * FROM append_throughput WHERE log_id = {LOG} AND entries_1min > 0")
            (row,) = await while_appending(client, asked)
            assert row["bytes_1min"] > 0


async def test_a_client_that_blocks_its_loop_or_is_closed_is_told_and_one_without_a_loop_answers() -> None:
    async with LocalCluster(nodes=1, logs=1) as cluster:
        client = cluster.client()
        with LDQuery(cluster.config_file, clients=[client], deadline=60) as session, ThreadPoolExecutor() as pool:
            sql = "SELECT client, log_id FROM client_read_streams"
            with pytest.raises(LogDeviceError, match="is not open"):
                await rows(session, sql)
            async with client, client.reader(LOG):
                assert [row["log_id"] for row in await rows(session, sql)] == [LOG]
                session.deadline = 1
                with pytest.raises(LogDeviceError, match="did not come to answer"):
                    pool.submit(session.query, sql).result(60)  # the application does not give its loop back until then

        def look() -> list[tuple[Any, ...]]:
            with (
                SyncClient(cluster.config_file, name="sync") as blocking,
                blocking.reader(LOG),
                LDQuery(cluster.config_file, clients=[blocking], deadline=60) as session,
            ):
                return session.query(f"{sql} WHERE log_id = {LOG}").rows

        assert await asyncio.to_thread(look) == [("sync", LOG)]
