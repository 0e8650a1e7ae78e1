"""The client's write path against real nodes, sockets and disks in this process, with connections that break."""

from __future__ import annotations

import asyncio
import random

import pytest

from client.client import Client
from client.sync import SyncClient
from logdevice_py.core.ids import PeerId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import Durability
from server.dev.local_cluster import LocalCluster

LOG = 1


async def read_all(client: Client, log: int) -> list[tuple[bytes | None, int, int]]:
    """(payload, LSN, batch offset) of everything up to the tail."""
    rows: list[tuple[bytes | None, int, int]] = []
    async with client.reader(log, until=await client.tail_lsn(log)) as reader:
        while batch := await reader.read():
            rows += zip(batch.payloads, batch.lsns, batch.batch_offsets, strict=True)
    return rows


async def test_a_buffered_writer_keeps_every_record_once_and_in_order_while_connections_break() -> None:
    rng = random.Random(5)
    async with LocalCluster(nodes=3) as cluster, Client(cluster.config_file, seed=5) as client:
        written, calls = 0, []
        async with client.buffered_writer(size_trigger=2000) as writer:
            for round_ in range(250):
                await writer.ready()
                count = rng.randrange(1, 500)
                payloads = [number.to_bytes(8, "big") for number in range(written, written + count)]
                calls.append((written, count, writer.append_many(LOG, payloads)))
                written += count
                await asyncio.sleep(rng.random() * 0.01)
                if round_ % 20 == 10:
                    transport = client._network._transport
                    for node in list(client.config.nodes):
                        transport.disconnect(PeerId(node))
        rows = await read_all(client, LOG)
        assert [row[0] for row in rows] == [number.to_bytes(8, "big") for number in range(written)]
        assert len(calls) == 250
        for first, count, outcome in calls:
            receipts = await outcome
            positions = list(zip(receipts.lsns(), receipts.batch_offsets(), strict=True))
            assert positions == [row[1:] for row in rows[first : first + count]]


async def test_what_is_appended_directly_is_at_the_position_of_its_receipt_and_trimming_needs_a_tail_above() -> None:
    async with LocalCluster(nodes=3) as cluster, Client(cluster.config_file) as client:
        receipts = await asyncio.gather(*(client.append(LOG, b"%d" % number) for number in range(100)))
        rows = await read_all(client, LOG)
        assert [(receipt.lsn, receipt.batch_offset) for receipt in receipts] == [row[1:] for row in rows]
        tail = await client.tail_lsn(LOG)
        with pytest.raises(LogDeviceError) as caught:
            await client.trim(LOG, tail + 1)
        assert caught.value.status is Status.TOOBIG
        await client.trim(LOG, tail)


async def test_records_of_a_log_that_does_not_sync_are_synced_where_their_writer_asks_for_it() -> None:
    async with LocalCluster(nodes=3, durability="async") as cluster, cluster.client() as client:
        for synced in (False, True):
            expected = Durability.SYNC if synced else Durability.ASYNC
            receipt = await client.append(LOG, b"direct", synced=synced)
            assert receipt.durability is expected
            async with client.buffered_writer() as writer:
                one = await writer.append(LOG, b"one", synced=synced)
                many = await writer.append_many(LOG, [b"two", b"three"], synced=synced)
                keyed = await writer.append_many(LOG, [b"four"], keys=[b"key"], synced=synced)
            assert {each.durability for each in (one, *many, *keyed)} == {expected}
        together = await asyncio.gather(*(client.append(LOG, b"x", synced=number == 5) for number in range(10)))
        assert {receipt.durability for receipt in together} == {Durability.SYNC}

        def script() -> set[Durability]:
            with SyncClient(cluster.config_file) as blocking, blocking.buffered_writer() as writer:
                direct = blocking.append(LOG, b"x", synced=True)
                one, many = writer.append(LOG, b"y", synced=True), writer.append_many(LOG, [b"z"], synced=True)
                return {each.durability for each in (direct, one.result(), *many.result())}

        assert await asyncio.to_thread(script) == {Durability.SYNC}


async def test_the_blocking_twin_writes_and_reads_from_another_thread() -> None:
    async with LocalCluster(nodes=3) as cluster:
        outcome: list[object] = []

        def script() -> None:
            with SyncClient(cluster.config_file) as client:
                receipt = client.append(LOG, b"first")
                with client.buffered_writer() as writer:
                    many = writer.append_many(LOG, [b"second", b"third"])
                    last = writer.append(LOG, b"fourth")
                assert len(many.result()) == 2
                assert last.result().lsn >= many.result()[0].lsn > receipt.lsn
                with client.reader(LOG, until=client.tail_lsn(LOG)) as reader:
                    outcome.extend(getattr(item, "payload", None) for item in reader)

        await asyncio.to_thread(script)
        assert [payload for payload in outcome if payload is not None] == [b"first", b"second", b"third", b"fourth"]


async def test_several_logs_are_read_as_one_in_the_order_of_time() -> None:
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        for number in range(4):
            await client.append(1 + number % 2, b"%d" % number)
        until = max(await client.tail_lsn(1), await client.tail_lsn(2))
        async with client.merged_reader("/logs/1", 2, until=until, by_time=True) as reader:
            got = [(batch.log, batch.log_group, payload) async for batch in reader for payload in batch.payloads]
        assert got == [(1 + n % 2, "/logs", b"%d" % n) for n in range(4)]

        def script() -> list[bytes]:
            with SyncClient(cluster.config_file) as blocking, blocking.merged_reader(1, 2, until=until) as reader:
                return [payload for batch in reader for payload in batch.payloads]

        assert sorted(await asyncio.to_thread(script)) == [b"0", b"1", b"2", b"3"]
