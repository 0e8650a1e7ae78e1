"""Looking into a log, against a real cluster inside this process."""

from __future__ import annotations

import asyncio

import pytest

from client.read.items import Gap, GapKind, Record
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster

PAST, FUTURE = 0, 1 << 60


async def test_times_and_keys_are_found_while_nodes_move_and_records_are_trimmed() -> None:
    async with LocalCluster(nodes=4, replicate="node:2") as cluster, cluster.client() as client:
        receipts = []
        for n in range(40):
            receipts.append(await client.append(1, b"%d" % n, key=b"k%03d" % n if n % 3 == 0 else None))
            if n == 20:
                await cluster.stop_node(3)
                await cluster.start_node(3)
        # the node that came back may take the log back: its end moves
        last = receipts[-1].lsn
        for receipt in receipts:
            assert await client.find_time(1, receipt.timestamp) == receipt.lsn
            assert await client.find_time(1, receipt.timestamp, approximate=True) <= receipt.lsn
        assert await client.find_time(1, PAST) == receipts[0].lsn
        assert last < await client.find_time(1, FUTURE) <= await client.tail_lsn(1) + 1
        assert await client.find_key(1, b"k010") == receipts[12].lsn
        assert await client.find_key(1, b"k012") == receipts[12].lsn
        assert await client.find_key(1, b"") == receipts[0].lsn
        assert await client.find_key(1, b"z") > last
        head = await client.head(1)
        assert (head.trim_point, head.lsn, head.timestamp) == (LSN(0), receipts[0].lsn, receipts[0].timestamp)
        await client.trim(1, receipts[9].lsn)
        head = await client.head(1)
        assert (head.trim_point, head.lsn) == (receipts[9].lsn, receipts[10].lsn)
        assert await client.find_time(1, PAST) == receipts[10].lsn
        assert await client.find_key(1, b"k003") == receipts[12].lsn
        end = await client.tail(1)
        assert (end.record_lsn, end.timestamp) == (last, receipts[-1].timestamp)
        assert not await client.is_empty(1)
        await client.trim(1, await client.tail_lsn(1))
        assert await client.is_empty(1)
        assert (await client.head(1)).lsn is None
        assert await client.find_time(1, PAST) > last


async def test_a_log_that_was_never_written_is_empty_and_has_no_size() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        assert await client.is_empty(1)
        assert await client.find_time(1, PAST) == await client.tail_lsn(1) + 1
        assert await client.data_size(1) == 0
        end = await client.tail(1)
        assert (end.record_lsn, end.timestamp) == (None, None)


async def test_the_size_of_a_log_counts_each_entry_once() -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        for _ in range(50):
            receipt = await client.append(1, b"x" * 2000)
        size = await client.data_size(1)
        assert 50 * 2000 <= size <= 50 * 2300
        assert await client.data_size(1, receipt.timestamp + 60_000_000) == 0
        assert 0 < await client.data_size(1, PAST, FUTURE) == size
        await cluster.stop_node(2)
        # The mean of the others stands for the one that is down. Copysets stick, so it may hold a copy of every entry or none.
        assert 0.75 * 50 * 2000 <= await client.data_size(1) <= 1.5 * 50 * 2300


async def test_a_look_up_says_who_does_not_answer() -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        receipt = await client.append(1, b"x")
        assert await client.find_time(1, PAST) == receipt.lsn
        for node in (1, 2):
            await cluster.stop_node(node)
        with pytest.raises(LogDeviceError) as error:
            await client.find_time(1, PAST, timeout=4)  # N0 answers within it, also where the machine is busy
        assert error.value.retriable
        assert "N1, N2" in str(error.value)


async def test_a_reader_from_before_the_trim_point_gets_one_trim_gap_and_goes_on() -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        receipts = [await client.append(1, b"%d" % n) for n in range(30)]
        await client.trim(1, receipts[14].lsn)
        tail = await client.tail_lsn(1)
        for single_copy in (True, False):
            async with client.reader(1, 1, tail, single_copy=single_copy) as reader:
                items = [item async for item in reader]
            gaps = [item for item in items if isinstance(item, Gap)]
            trimmed = [(gap.lo, gap.hi) for gap in gaps if gap.kind is GapKind.TRIM]
            assert trimmed == [(receipts[0].lsn, receipts[14].lsn)]
            assert {gap.kind for gap in gaps} <= {GapKind.TRIM, GapKind.BRIDGE}
            assert [item.payload for item in items if isinstance(item, Record)] == [b"%d" % n for n in range(15, 30)]


async def test_a_shard_that_missed_a_trim_learns_of_it_from_the_others() -> None:
    cluster = LocalCluster(nodes=3, replicate="node:2")
    with open(cluster.config_file, "a", encoding="utf-8") as file:
        file.write('[settings.storage]\ntrim_exchange_interval_us = "50ms"\n')
    async with cluster, cluster.client() as client:
        receipts = [await client.append(1, b"%d" % n) for n in range(30)]
        await cluster.stop_node(2)
        with pytest.raises(LogDeviceError) as error:
            await client.trim(1, receipts[14].lsn, timeout=4)  # as above
        assert error.value.status is Status.PARTIAL
        await cluster.start_node(2)
        async with asyncio.timeout(60):  # shards tell each other every 50 ms, where the machine lets them
            while True:
                points = [
                    machines.shard.logs[1].trim_point if 1 in machines.shard.logs else 0
                    for host in cluster.hosts.values()
                    for machines in host.node.storage.shards.values()
                ]
                if points == [receipts[14].lsn] * 3:
                    break
                await asyncio.sleep(0.05)


async def test_keys_travel_with_buffered_writers_too() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        async with client.buffered_writer(compression="zstd") as writer:
            one = writer.append(1, b"one", key=b"a")
            many = writer.append_many(1, [b"two", b"three"], keys=[b"b", None])
            plain = writer.append(1, b"four")
        tail = await client.tail_lsn(1)
        async with client.reader(1, until=tail) as reader:
            records = [item async for item in reader if isinstance(item, Record)]
        assert [(record.payload, record.key) for record in records] == [
            (b"one", b"a"),
            (b"two", b"b"),
            (b"three", None),
            (b"four", None),
        ]
        assert (await one).lsn == (await plain).lsn == (await many)[0].lsn
        assert await client.find_key(1, b"b") == (await one).lsn
