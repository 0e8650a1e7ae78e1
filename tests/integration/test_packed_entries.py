"""Entries that sequencers pack are read, looked up, looked at and stored again like all others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from client.client import Client
from client.read.items import Record
from ldquery.session import LDQuery
from logdevice_py.core.compression import Compression
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from tests.integration.process_cluster import process_cluster

LOG = LogId(1)
PAYLOADS = [f"order {number} of somebody who orders again and again".encode() * 8 for number in range(400)]


async def read(client: Client, until: LSN) -> list[bytes]:
    found = []
    async with client.reader(LOG, start=LSN.OLDEST, until=until) as reader:
        async for item in reader:
            if isinstance(item, Record):
                found.append(item.payload)
    return found


@pytest.mark.slow
async def test_packed_entries_are_like_others(tmp_path: Path) -> None:
    async with process_cluster(
        tmp_path,
        nodes=3,
        logs=2,
        replicate="node:2",
        racks=1,
        attributes={"batching_compression": Compression.ZSTD},
    ) as cluster:
        async with Client(cluster.file) as client:
            async with client.buffered_writer() as writer:
                await writer.append_many(LOG, PAYLOADS)
            await client.append(LOG, PAYLOADS[0], key=b"k")
            tail = await client.tail_lsn(LOG)
            assert await read(client, tail) == [*PAYLOADS, PAYLOADS[0]]
            assert await client.find_key(LOG, b"k") == tail, "keys are found in packed entries"
        with LDQuery(cluster.file, deadline=60) as session:
            sql = "SELECT sum(records), sum(body_bytes) FROM record WHERE log_id = :log AND lsn BETWEEN 'e1n1' AND :tail AND is_current"
            copies = await asyncio.to_thread(session.query, sql, {"log": LOG, "tail": int(tail)})
            payload = await asyncio.to_thread(
                session.query,
                "SELECT DISTINCT payload FROM record WHERE log_id = :log AND lsn = :tail",
                {"log": LOG, "tail": int(tail)},
            )
        records, stored = copies.rows[0]
        assert records == 2 * (len(PAYLOADS) + 1)
        assert stored * 4 < 2 * sum(map(len, PAYLOADS))
        assert [PAYLOADS[0].decode() in row[0] for row in payload.rows] == [True]
        await cluster.kill(0, 1, 2)
        await cluster.start(0, 1, 2)
        async with Client(cluster.file) as client:
            receipt = await client.append(LOG, b"after recovery")
            assert await read(client, receipt.lsn) == [*PAYLOADS, PAYLOADS[0], b"after recovery"]
