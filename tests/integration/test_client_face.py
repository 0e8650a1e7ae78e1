"""What applications get from the client when they use it in ways that it does not expect."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from client.client import Client, read_cluster_file
from client.read.items import Record
from client.sync import SyncClient
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster
from tests.integration.test_cli import PROGRAMS, Cluster

Call = Callable[[Client], Any]


async def outcome(call: Call, client: Client) -> Any:
    """Of a call, awaited where there is something to await."""
    made = call(client)
    return await made if hasattr(made, "__await__") else made


WRONG: list[Call] = [
    lambda client: client.append(True, b"x"),
    lambda client: client.append(1.0, b"x"),  # type: ignore[arg-type]
    lambda client: client.append(-1, b"x"),
    lambda client: client.append(1 << 64, b"x"),
    lambda client: client.append(1, "text"),  # type: ignore[arg-type]
    lambda client: client.append(1, b"x", timeout=float("nan")),
    lambda client: client.append(1, b"x", timeout="1s"),  # type: ignore[arg-type]
    lambda client: client.append(1, b"x", timeout=0),
    lambda client: client.append(1, b"x", synced=0),  # type: ignore[arg-type]
    lambda client: client.tail_lsn(1, timeout=-1),
    lambda client: client.sequencer(1, timeout=True),
    lambda client: client.reader(1, start=datetime(2026, 1, 1, tzinfo=UTC)),  # type: ignore[arg-type]
    lambda client: client.reader(1, start="oldest"),  # type: ignore[arg-type]
    lambda client: client.reader(1, start=LSN(-1)),
    lambda client: client.reader(1, until=1.5),  # type: ignore[arg-type]
    lambda client: client.reader(True),
    lambda client: client.reader(1).read(0),
    lambda client: client.reader(1).read("many"),  # type: ignore[arg-type]
    lambda client: client.find_time(1, "yesterday"),  # type: ignore[arg-type]
    lambda client: client.find_time(1, datetime(2026, 1, 1)),
    lambda client: client.trim(1, "e1n1"),  # type: ignore[arg-type]
    lambda client: client.trim(1, 1, timeout=0),
    lambda client: client.buffered_writer(compression=None),
    lambda client: client.buffered_writer(memory=-1),
    lambda client: client.buffered_writer().append(True, b"x"),
    lambda client: client.buffered_writer().append(1, None),  # type: ignore[arg-type]
    lambda client: client.buffered_writer().append_many(1, b"xyz"),  # type: ignore[arg-type]
    lambda client: client.buffered_writer().append_many(1, [b"x", "y"]),  # type: ignore[list-item]
    lambda client: client.buffered_writer().append_many(1, 7),  # type: ignore[arg-type]
    lambda client: client.buffered_writer().append(1, b"x", synced=None),  # type: ignore[arg-type]
    lambda client: client.buffered_writer().append_many(1, [b"x"], synced=1),  # type: ignore[arg-type]
    lambda client: Client(7),  # type: ignore[arg-type]
]


async def test_wrong_arguments_are_refused_in_words() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        for number, call in enumerate(WRONG):
            with pytest.raises(LogDeviceError) as caught:
                await outcome(call, client)
            assert caught.value.status is Status.INVALID_PARAM, (number, caught.value)
            assert caught.value.detail, number
        assert (await client.tail_lsn(1)).esn == 0  # nothing of it was written


async def test_records_may_be_any_bytes_and_come_from_any_iterable() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        buffer = bytearray(b"one")
        appended = client.append(1, buffer)
        buffer[:] = b"xxx"
        await appended
        async with client.buffered_writer() as writer:
            two = writer.append(1, memoryview(buffer := bytearray(b"two")))
            many = writer.append_many(1, (payload for payload in [b"three", bytearray(b"four")]))
            mixed = writer.append_many(1, [b"five", buffer])
            buffer[:] = b"xxx"
            await two
            assert (len(await many), len(await mixed)) == (2, 2)
        async with client.reader(1, until=await client.tail_lsn(1)) as reader:
            payloads: list[bytes | None] = []
            while batch := await reader.read():
                payloads += batch.payloads
        assert payloads == [b"one", b"two", b"three", b"four", b"five", b"two"]


USES: list[Call] = [
    lambda client: client.append(1, b"x"),
    lambda client: client.buffered_writer(),
    lambda client: client.tail_lsn(1),
    lambda client: client.sequencer(1),
    lambda client: client.trim(1, 1),
    lambda client: client.find_time(1, 0),
    lambda client: client.reader(1).read(),
]


async def test_a_client_that_is_not_open_says_so_and_that_trying_again_is_of_no_use() -> None:
    async with LocalCluster(nodes=1) as cluster:
        closed = cluster.client()
        async with closed:
            await closed.append(1, b"x")
        for client, text in ((Client(read_cluster_file(cluster.config_file)), "async with Client"), (closed, "closed")):
            for number, call in enumerate(USES):
                with pytest.raises(LogDeviceError, match=text) as caught:
                    await outcome(call, client)
                assert caught.value.status is Status.SHUTDOWN, number
                assert not caught.value.retriable, number
        with pytest.raises(LogDeviceError, match="closed"):
            await closed.start()


async def test_closing_a_client_ends_what_waits_for_an_answer() -> None:
    async with LocalCluster(nodes=1) as cluster:
        config = read_cluster_file(cluster.config_file)
    client = Client(config)
    await client.start()
    waiting = [
        asyncio.ensure_future(outcome(call, client))
        for call in (lambda c: c.tail_lsn(1, timeout=1000), lambda c: c.sequencer(1, timeout=1000))
    ]
    await asyncio.sleep(0)
    await client.close()
    async with asyncio.timeout(10):
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert len(errors) == 2
        for error in errors:
            assert isinstance(error, LogDeviceError)
            assert (error.status, error.retriable) == (Status.SHUTDOWN, False)


async def until_tried(client: Client) -> None:
    """Ask until every address was tried in vain: where the process stalls, a request times out before."""
    connectivity = client.connectivity()
    async with asyncio.timeout(60):
        while len(connectivity.troubles) < len(connectivity.nodes):
            with pytest.raises(LogDeviceError):
                await client.tail_lsn(1, timeout=0.2)
            connectivity = client.connectivity()


async def test_errors_say_that_nobody_answers() -> None:
    async with LocalCluster(nodes=2, replicate="node:2") as cluster:
        config = read_cluster_file(cluster.config_file)
    async with Client(config) as client:
        await until_tried(client)
        with pytest.raises(LogDeviceError, match=r"no node of .* answers \(2 of 2 addresses tried: N0, N1: nobody"):
            await client.tail_lsn(1, timeout=1)


async def test_a_cluster_that_is_another_one_is_an_error_that_is_not_retriable() -> None:
    async with LocalCluster(nodes=1) as cluster:
        text = render_cluster(read_cluster_file(cluster.config_file)).replace(
            read_cluster_file(cluster.config_file).uuid.hex()[:8], "00000000"
        )
        other = load_cluster(text)
        assert other.uuid != read_cluster_file(cluster.config_file).uuid
        async with Client(other) as client:
            await until_tried(client)
            with pytest.raises(LogDeviceError, match="is not the file of the cluster that answers") as caught:
                await client.tail_lsn(1, timeout=1)
            assert caught.value.status is Status.INVALID_CLUSTER
            assert not caught.value.retriable


@pytest.mark.slow
async def test_what_is_under_way_fails_at_once_when_only_another_cluster_answers() -> None:
    async with LocalCluster(nodes=3) as cluster:
        config = read_cluster_file(cluster.config_file)
        other = dataclasses.replace(config, uuid=bytes(16))
        calls: list[Call] = [
            lambda client: client.append(1, b"x"),
            lambda client: client.buffered_writer().append(1, b"x"),
            lambda client: client.tail_lsn(1),
            lambda client: client.head(1),
            lambda client: client.reader(1).read(),
        ]
        for call in calls:
            async with Client(other) as client, asyncio.timeout(5):  # far less than any deadline of theirs
                for _ in range(2):
                    with pytest.raises(LogDeviceError, match="is not the file of the cluster that answers") as caught:
                        await outcome(call, client)
                    assert caught.value.status is Status.INVALID_CLUSTER
                    assert not caught.value.maybe_applied


FORGETFUL = """
import logging, sys
from client import sync
from logdevice_py import SyncClient
logging.getLogger("asyncio").setLevel(logging.ERROR)  # that a step took 100 ms says that the machine is busy
sync.LAST_FLUSH = 50  # so it may be slow
client = SyncClient(sys.argv[1])
client.append(1, b"first")
writer = client.buffered_writer()
writer.append_many(1, (b"%d" % n for n in range(1000)))
print(bool(client.reader(1).read()))
"""


def test_a_program_that_does_not_close_its_client_ends_in_silence_and_loses_nothing(tmp_path: Path) -> None:
    own = Cluster(tmp_path, "--nodes", "1", "--logs", "1", "--replicate", "node:1")
    try:
        got = subprocess.run(
            [sys.executable, "-X", "dev", "-c", FORGETFUL, own.file],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (got.returncode, got.stdout, got.stderr) == (0, "True\n", "")
        got = subprocess.run(
            [PROGRAMS / "ldcat", "-c", own.file, "1"], capture_output=True, text=True, timeout=60, check=False
        )
        assert got.stdout.split() == ["first", *map(str, range(1000))]
    finally:
        own.end(signal.SIGTERM)


def test_a_writer_keeps_its_client_from_being_forgotten(tmp_path: Path) -> None:
    own = Cluster(tmp_path, "--nodes", "1", "--logs", "1", "--replicate", "node:1")
    try:
        writer = SyncClient(own.file).buffered_writer()
        gc.collect()
        assert str(writer.append(1, b"x").result(20).lsn) == "e1n1"
        writer.close()
        writer.close()
    finally:
        own.end(signal.SIGTERM)


async def test_a_client_refuses_other_loops_and_threads_before_it_takes_anything(tmp_path: Path) -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        await client.append(1, b"mine")

        def elsewhere() -> list[str]:
            async def use() -> None:
                await client.append(1, b"other loop")

            refused = []
            for call in (lambda: asyncio.run(use()), lambda: client.append(1, b"no loop")):
                try:
                    call()
                except LogDeviceError as error:
                    refused.append(error.status.name)
            return refused

        assert await asyncio.to_thread(elsewhere) == ["INVALID_PARAM", "INVALID_PARAM"]
        async with client.reader(1, until=await client.tail_lsn(1)) as reader:
            payloads = [item.payload async for item in reader if isinstance(item, Record)]
        assert payloads == [b"mine"]
