"""Streams while processes are killed and paused: nothing lost, nothing doubled, and one owner at a time whatever a paused one does later."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from client.client import Client
from streams.namespace import Namespace
from streams.reading import IdleReader, StreamReaderState
from streams.stream import Stream
from tests.integration.process_cluster import ProcessCluster, process_cluster

SETTINGS = {"log_tree": {"enabled": True}}
OWNER = """
import asyncio, sys
from logdevice_py import Client, LogDeviceError, Namespace, Status

async def main():
    async with Client(sys.argv[1]) as client, Namespace(client) as namespace:
        stream = await namespace.open("ledger")
        writer = await stream.exclusive_writer(owner="paused", lease="1s").__aenter__()
        print("token", writer.token, flush=True)
        number = 0
        refused = 0
        while refused < 20:
            payload = b"one %d" % number
            number += 1
            try:
                await writer.write(payload)
                print("stored", payload.decode(), flush=True)
            except LogDeviceError as error:
                print("refused", error.status.name, flush=True)
                refused += 1
        print("lost", writer.lost and writer.lost.status.name, flush=True)

asyncio.run(main())
"""


async def kill_sequencer(cluster: ProcessCluster, client: Client, stream: Stream) -> int:
    """SIGKILL of the node that sequences a stream."""
    node = int((await client.sequencer(stream.log, timeout=60)).node)
    await cluster.kill(node)
    return node


@asynccontextmanager
async def program(text: str, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python program of its own; killed in the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, *arguments, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def lines_until(process: asyncio.subprocess.Process, enough: int, word: str) -> list[str]:
    """What it prints, up to the line that is so many times one that begins with the word."""
    assert process.stdout is not None
    found: list[str] = []
    while sum(line.startswith(word) for line in found) < enough:
        line = await asyncio.wait_for(process.stdout.readline(), 120)
        assert line, found
        found.append(line.decode().rstrip("\n"))
    return found


@pytest.mark.slow
async def test_each_late_write_of_a_paused_owner_is_fenced(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, nodes=5, racks=1, replicate="node:3", settings=SETTINGS) as cluster,
        Client(cluster.file) as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("ledger", writers="exclusive")
        async with program(OWNER, cluster.file) as owner:
            printed = await lines_until(owner, 10, "stored")
            os.kill(owner.pid, signal.SIGSTOP)
            killed = await kill_sequencer(cluster, client, stream)
            async with stream.exclusive_writer(owner="next", wait="60s", lease="1s") as writer:
                assert writer.token == 2
                assert writer.last is not None
                # all that was acknowledged to the one before is in front of it
                assert (await stream.count()) >= sum(line.startswith("stored") for line in printed)
                await writer.write(b"two 0")
                os.kill(owner.pid, signal.SIGCONT)
                after = await lines_until(owner, 1, "lost")
                await writer.write(b"two 1")
                await cluster.start(killed)
                assert writer.lost is None
        printed += after
        # an answer may have been under way when it was paused; what it began to write later is refused
        outcomes = [line for line in after if line.startswith(("stored", "refused"))]
        late = [line for line in outcomes if line.startswith("stored")]
        assert len(late) <= 1, after
        assert outcomes[len(late) :] == ["refused FENCED"] * 20
        assert after[-1] == "lost FENCED"
        stored = [line.removeprefix("stored ").encode() for line in printed if line.startswith("stored")]
        async with stream.reader(until="tail") as reader:
            read = [record.payload async for record in reader]
        ones = [payload for payload in read if payload is not None and payload.startswith(b"one")]
        assert read == [*ones, b"two 0", b"two 1"]
        assert ones[: len(stored)] == stored
        assert len(ones) <= len(stored) + 1  # one was under way


@pytest.mark.slow
async def test_a_killed_sequencer_costs_no_record_of_shared_writers(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, nodes=5, racks=1, replicate="node:3", settings=SETTINGS) as cluster,
        Client(cluster.file) as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders", txid="writer")
        stop = asyncio.Event()
        acknowledged: list[bytes] = []

        async def write(name: int) -> None:
            async with (
                Client(cluster.file) as own,
                Namespace(own) as mine,
                (await mine.open("orders")).writer() as writer,
            ):
                number = 0
                while not stop.is_set():
                    number += 1
                    payloads = [b"%d %d %d" % (name, number, each) for each in range(10)]
                    # ids of two writers may overtake each other, so both give the same
                    await writer.write_many(payloads, txids=[1] * 10)
                    acknowledged.extend(payloads)

        async def follow() -> list[bytes | None]:
            found: list[bytes | None] = []
            async with (
                Client(cluster.file) as own,
                Namespace(own) as mine,
                (await mine.open("orders")).reader() as reader,
            ):
                while batch := await reader.read(timeout=120):
                    assert batch.losses == []
                    found += batch.payloads
                assert reader.state is StreamReaderState.ENDED
            return found

        following = asyncio.create_task(follow())
        writing = [asyncio.create_task(write(name)) for name in range(3)]
        for _ in range(3):
            await asyncio.sleep(1.5)
            killed = await kill_sequencer(cluster, client, stream)
            await asyncio.sleep(1)
            await cluster.start(killed)
            await cluster.acquainted()
        stop.set()
        await asyncio.gather(*writing)
        await stream.mark_end(timeout=60)
        read = await asyncio.wait_for(following, 120)
        assert sorted(filter(None, read)) == sorted(acknowledged)
        for name in range(3):
            mine = [payload for payload in acknowledged if payload.startswith(b"%d " % name)]
            assert [payload for payload in read if payload in set(mine)] == mine
        assert len(acknowledged) > 500
        last = await stream.last()
        assert last is not None
        assert last.payload == read[-1]


@pytest.mark.slow
async def test_what_killed_creators_and_deleters_leave_is_finished(tmp_path: Path) -> None:
    """SIGKILL of processes that create and delete, again and again, at any step: each name is there whole or not at all."""
    churn = """
import asyncio, sys
from logdevice_py import Client, LogDeviceError, Namespace

async def main():
    async with Client(sys.argv[1]) as client, Namespace(client) as namespace:
        for number in range(1000):
            name = f"{sys.argv[2]}-{number}"
            stream = await namespace.create(name)
            async with stream.writer() as writer:
                await writer.write(name.encode())
            print("made", name, flush=True)
            if number % 2:
                await namespace.rename(name, f"{name}-kept")
                print("kept", name, flush=True)
            else:
                await namespace.delete(name)
                print("gone", name, flush=True)

asyncio.run(main())
"""
    async with process_cluster(tmp_path, nodes=3, logs=1, racks=1, replicate="node:2", settings=SETTINGS) as cluster:
        kept: set[str] = set()
        gone: set[str] = set()
        for life in range(4):
            async with program(churn, cluster.file, f"life{life}") as process:
                printed = await lines_until(process, 2 + life, "made")
                await asyncio.sleep(0.03 * life)
                process.kill()
                assert process.stdout is not None
                printed += (await process.stdout.read()).decode().splitlines()
            kept |= {line.split()[1] + "-kept" for line in printed if line.startswith("kept")}
            gone |= {line.split()[1] for line in printed if line.startswith("gone")}
        async with Client(cluster.file) as client, Namespace(client) as namespace:
            await namespace.deletions_finished()
            names = {info.name for info in await namespace.list()}
            assert kept <= names
            assert not gone & names
            assert kept
            for name in sorted(names):
                stream = await namespace.open(name)
                payloads = []
                async with stream.reader(until="tail") as reader:
                    payloads = [record.payload async for record in reader]
                assert payloads in ([name.removesuffix("-kept").encode()], []), name
                assert payloads or name not in kept
            groups = {entry.path for entry in await client.list_logs("/streams/.data")}
            numbers = {info.number for info in await namespace.list()}
            assert groups == {f"/streams/.data/s{number}" for number in numbers}


@pytest.mark.slow
async def test_a_stream_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    async with (
        process_cluster(tmp_path, nodes=5, racks=1, replicate="node:2", settings=SETTINGS) as cluster,
        Client(cluster.file) as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders")
        async with stream.writer() as writer:
            receipt = await writer.write(b"1")
        holders = sorted({shard >> 8 for shard in receipt.copyset})
        await cluster.kill(*holders)
        async with stream.reader(idle="4s") as reader:
            with pytest.raises(IdleReader) as raised:
                await reader.read()
            assert raised.value.state is reader.state is StreamReaderState.STALLED
            assert raised.value.why
        await cluster.start(*holders)
        async with stream.reader() as reader:
            assert (await reader.read(timeout=60)).payloads == [b"1"]
