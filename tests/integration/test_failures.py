"""What the cluster survives: each test breaks something in mid-write and then reads everything back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from client.client import Client
from logdevice_py.core.ids import LogId
from tests.integration.process_cluster import (
    DirectWorkload,
    StreamWorkload,
    compare,
    process_cluster,
    read_all,
    tail_of,
)
from tests.slow import quick


async def test_a_killed_sequencer_node_costs_a_moment_and_no_record(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        stream, direct = StreamWorkload(client, 1), DirectWorkload(client, 1, tasks=4)
        await stream.more(500)
        node = (await client.sequencer(LogId(1))).node
        await cluster.kill(node)
        await stream.more(500)
        await cluster.start(node)
        await stream.more(500)
        journals = await stream.finish(), await direct.finish()
        compare(await read_all(client, 1), *journals)


@pytest.mark.slow
@pytest.mark.slow
async def test_any_one_node_may_die_and_come_back(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        streams = [StreamWorkload(client, log, name=f"s{log}") for log in (1, 2, 3, 4)]
        for node in range(5):
            await cluster.kill(node)
            for stream in streams:
                await stream.more(100)
            await cluster.start(node)
            for stream in streams:
                await stream.more(100)
        for log, stream in zip((1, 2, 3, 4), streams, strict=True):
            journal = await stream.finish()
            compare(await read_all(client, log), journal)


@pytest.mark.slow
async def test_a_paused_sequencer_that_wakes_up_is_fenced(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        stream, direct = StreamWorkload(client, 1), DirectWorkload(client, 1, tasks=8)
        await stream.more(300)
        node = (await client.sequencer(LogId(1))).node
        await cluster.supervisor.pause(node)
        await stream.more(500)
        await asyncio.sleep(4)  # longer than every failure detector: the log has moved, its epoch is sealed
        await cluster.supervisor.resume(node)
        await stream.more(500)
        journals = await stream.finish(), await direct.finish()
        compare(await read_all(client, 1), *journals)


@pytest.mark.slow
@pytest.mark.slow
async def test_a_wiped_shard_does_not_vote_for_what_it_lost(tmp_path: Path) -> None:
    """A shard loses its data, then the sequencer dies at once while two further nodes are slow."""
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        stream = StreamWorkload(client, 1)
        await stream.more(500)
        sequencer = (await client.sequencer(LogId(1))).node
        others = [node for node in range(5) if node != sequencer]
        wiped, slow = others[0], others[1:3]
        await cluster.kill(wiped)
        await cluster.wipe(wiped)
        await cluster.start(wiped)
        await cluster.kill(sequencer)
        for node in slow:
            await cluster.supervisor.pause(node)
        await asyncio.sleep(3)
        for node in slow:
            await cluster.supervisor.resume(node)
        await stream.more(300)
        await cluster.start(sequencer)
        journal = await stream.finish()
        compare(await read_all(client, 1), journal)


async def test_a_whole_rack_may_be_down_from_begin_to_end_of_a_recovery(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        stream = StreamWorkload(client, 1)
        await stream.more(300)
        sequencer = (await client.sequencer(LogId(1))).node
        rack = cluster.rack(sequencer)
        await cluster.kill(*rack)
        await stream.more(500)
        reading = await read_all(client, 1)
        assert len(reading.records) >= 800
        await cluster.start(*rack)
        await stream.more(300)
        journal = await stream.finish()
        compare(await read_all(client, 1), journal)


@pytest.mark.slow
async def test_all_nodes_killed_at_once_lose_nothing_acknowledged(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        streams = [StreamWorkload(client, log, name=f"s{log}") for log in (1, 2, 3, 4)]
        direct = DirectWorkload(client, 1, tasks=4)
        for stream in streams:
            await stream.more(300)
        await cluster.kill(*range(5))
        await cluster.start(*range(5))
        for stream in streams:
            await stream.more(100)
        journals = [await stream.finish() for stream in streams]
        appended = await direct.finish()
        compare(await read_all(client, 1), journals[0], appended)
        for log in (2, 3, 4):
            compare(await read_all(client, log), journals[log - 1])


@pytest.mark.slow
async def test_readers_that_start_at_different_times_prove_the_same(tmp_path: Path) -> None:
    async with process_cluster(tmp_path) as cluster, Client(cluster.file) as client:
        stream = StreamWorkload(client, 1)
        for _ in range(5):
            await stream.more(100)
            node = (await client.sequencer(LogId(1))).node
            await cluster.kill(node)
            await stream.more(100)
            await cluster.start(node)
        journal = await stream.finish()
        tail = await tail_of(client, 1)
        readings = [await read_all(client, 1, until=tail), await read_all(client, 1, until=tail)]
        compare(readings[0], journal)
        assert len(readings[0].epochs) >= 5
        assert readings[0].records == readings[1].records
        assert readings[0].gaps == readings[1].gaps
        assert readings[0].proof == readings[1].proof


@pytest.mark.slow
async def test_a_hundred_writers_to_one_log(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, logs=1) as cluster, Client(cluster.file) as client:
        streams = [StreamWorkload(client, 1, name=f"s{n}", batch=5) for n in range(50)]
        direct = DirectWorkload(client, 1, tasks=50)
        await asyncio.gather(*(stream.more(20) for stream in streams))
        node = (await client.sequencer(LogId(1))).node
        await cluster.kill(node)
        await asyncio.gather(*(stream.more(20) for stream in streams))
        journals = [await stream.finish() for stream in streams]
        journals.append(await direct.finish())
        compare(await read_all(client, 1), *journals)


@pytest.mark.slow
async def test_one_writer_to_a_thousand_logs(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, logs=1000) as cluster, Client(cluster.file) as client:
        positions: dict[int, list[tuple[int, int]]] = {}
        async with client.buffered_writer() as writer:
            for number in range(5):
                futures = {log: writer.append(LogId(log), f"{log}-{number}".encode()) for log in range(1, 1001)}
                if number == 2:
                    await cluster.kill(2)
                for log, future in futures.items():
                    receipt = await future
                    positions.setdefault(log, []).append((int(receipt.lsn), receipt.batch_offset))
        limit = asyncio.Semaphore(20)

        async def check(log: int) -> None:
            async with limit:
                reading = await read_all(client, log, timeout=120)
            expected = {position: f"{log}-{number}".encode() for number, position in enumerate(positions[log])}
            assert reading.records == expected
            assert positions[log] == sorted(positions[log])

        await asyncio.gather(*(check(log) for log in range(1, 1001)))


@pytest.mark.slow
async def test_nodes_added_and_removed_during_writing(tmp_path: Path) -> None:
    """Nodeset and replication change ten times; a reader that starts afterwards knows only the metadata log."""
    async with process_cluster(tmp_path, logs=1) as cluster, Client(cluster.file) as client:
        stream = StreamWorkload(client, 1)
        await stream.more(100)
        for change in range(10):
            before = (await client.sequencer(LogId(1))).epoch
            if change % 2 == 0:
                await cluster.supervisor.add(None)
            else:
                await cluster.supervisor.set_replication("rack:3,node:3" if change % 4 == 1 else "rack:2,node:3")
            async with asyncio.timeout(60):
                while (await client.sequencer(LogId(1))).epoch == before:  # noqa: ASYNC110 - another process moves it
                    await asyncio.sleep(0.05)
            await stream.more(100)
        journal = await stream.finish()
        async with Client(cluster.file) as fresh:
            compare(await read_all(fresh, 1), journal)


@pytest.mark.parametrize("durability", quick(["SYNC", "ASYNC"], 1))
async def test_stopped_in_order_and_started_again(tmp_path: Path, durability: str) -> None:
    from logdevice_py.config.logs import Durability

    async with (
        process_cluster(tmp_path, nodes=3, racks=3, replicate="node:2", durability=Durability[durability]) as cluster,
        Client(cluster.file) as client,
    ):
        stream = StreamWorkload(client, 1)
        await stream.more(200)
        journal = await stream.finish()
        await asyncio.gather(*(cluster.supervisor.stop(node) for node in range(3)))
        await cluster.start(0, 1, 2)
        compare(await read_all(client, 1), journal)


@pytest.mark.slow
async def test_the_node_that_sequences_a_log_may_be_taken_out_of_the_cluster(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, logs=2) as cluster, Client(cluster.file) as client:
        streams = [StreamWorkload(client, log, name=f"s{log}") for log in (1, 2)]
        direct = DirectWorkload(client, 1, tasks=3)
        for stream in streams:
            await stream.more(100)
        await cluster.supervisor.add(None)
        for log in (1, 2):
            await cluster.supervisor.remove((await client.sequencer(LogId(log))).node)
            for stream in streams:
                await stream.more(100)
        journals = [await stream.finish() for stream in streams]
        appended = await direct.finish()
        async with Client(cluster.file) as fresh:
            compare(await read_all(fresh, 1), journals[0], appended)
            compare(await read_all(fresh, 2), journals[1])
