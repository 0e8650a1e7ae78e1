"""Segments of real processes: what they say is what is read, also when sequencers are killed while their logs roll."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from client.client import Client
from client.look_up.segments import SegmentState
from client.sync import SyncClient
from ldquery.session import LDQuery
from logdevice_py import LogDeviceError, Record
from logdevice_py.core.ids import LogId
from tests.forked import run_program
from tests.integration.process_cluster import ProcessCluster, process_cluster
from tests.simulation.segments import check

PLAIN, GUARDED, BUFFERED = LogId(1), LogId(2), LogId(3)
KILLS = 6


async def _write(client: Client, log: LogId, acknowledged: set[bytes], stop: asyncio.Event) -> None:
    async with client.buffered_writer(timeout="1min") as writer:
        for number in range(100_000):
            if stop.is_set():
                break
            payload = b"%d " % number + bytes(number % 100)
            source = writer if log == BUFFERED else client
            with suppress(LogDeviceError):
                await source.append(log, payload, txid=number + 1 if log == GUARDED else None)
                acknowledged.add(payload)
            await asyncio.sleep(0.005)


async def _check(client: Client, acknowledged: dict[int, set[bytes]]) -> int:
    rolled = 0
    for log in (PLAIN, GUARDED, BUFFERED):
        records = []
        async with client.reader(log, until=await client.tail_lsn(log)) as reader:
            async for item in reader:
                if isinstance(item, Record):
                    records.append(item)
        assert acknowledged[log] <= {record.payload for record in records}
        segments = await client.segments(log)
        check(segments, records)
        assert all(each.state is not SegmentState.UNKNOWN for each in segments)
        assert all(each.records is not None for each in segments if each.epoch > 1 or log != GUARDED)
        rolled = max(rolled, len(segments))
    return rolled


@pytest.mark.slow
async def test_sequencers_are_killed_while_their_logs_roll(tmp_path: Path) -> None:
    attributes = {"roll_every": 300_000, "roll_bytes": 8_192}
    async with process_cluster(tmp_path, attributes=attributes) as cluster, Client(cluster.file) as client:
        acknowledged: dict[int, set[bytes]] = {log: set() for log in (PLAIN, GUARDED, BUFFERED)}
        stop = asyncio.Event()
        writing = [asyncio.create_task(_write(client, log, acknowledged[log], stop)) for log in acknowledged]
        for kill in range(KILLS):
            await asyncio.sleep(0.7)
            node = (await client.sequencer((PLAIN, GUARDED, BUFFERED)[kill % 3])).node
            await cluster.kill(node)
            await asyncio.sleep(0.3)
            await cluster.start(node)
        await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*writing)
        assert await _check(client, acknowledged) > KILLS
        await asyncio.to_thread(_tools_agree, cluster)


def _tools_agree(cluster: ProcessCluster) -> None:
    """The blocking client, the command line and the table say the same."""
    with SyncClient(cluster.file) as client:
        segments = client.segments(PLAIN)
        assert client.segments(PLAIN, limit=2) == segments[:2]
        assert client.segments(PLAIN, start=segments[3].first_lsn) == segments[3:]
    printed = run_program("ldquery.ctl.main", "-c", cluster.file, "--json", "logs", "segments", "1")
    assert printed.returncode == 0, printed.stderr
    told = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [(each["epoch"], each["records"]) for each in told] == [(each.epoch, each.records) for each in segments]
    with LDQuery(cluster.file) as session:
        query = "SELECT DISTINCT epoch, records FROM recovered_epochs WHERE log_id = 1 AND records > 0 ORDER BY epoch"
        rows = session.query(query).rows
    completed = [each for each in segments if each.state is SegmentState.COMPLETED]
    assert rows == [(each.epoch, each.records) for each in completed]
