"""Janitor, copier, owners, shared writers, readers and those who create and delete streams are killed at each of their steps: nothing is lost, doubled or brought back,
and nothing is left for good."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from logdevice_py import Position
from server.dev.local_cluster import LocalCluster
from streams.attributes import Roll
from streams.cold.restoring import read_catalogue, verify_copies
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from streams.stream import Stream
from streams.upkeep.janitor import Janitor
from tests.forked import run_program_async
from tests.integration.test_stream_upkeep import read_all, write_segments
from tests.slow import quick

STRIDE = 6
"""Each variant kills at every so many-th step."""
STEPS_MAX = 90


async def run_worker(cluster: str, role: str, step: int, first: int = 0) -> tuple[int, list[str]]:
    """The exit status of a process that kills itself at a step, and what it printed."""
    worker = "tests.integration.stream_step_worker"
    status, out, _ = await run_program_async(worker, cluster, role, step, first, timeout=120)
    return status, out.splitlines()


async def payload_at(stream: Stream, position: Position) -> bytes | None:
    """Of the record at a position."""
    async with stream.reader(position) as reader:
        return (await reader.read(1)).payloads[0]


async def finish(namespace: Namespace) -> None:
    """What is left to do, by a janitor that lives."""
    async with Janitor(namespace, lease="300ms") as janitor:
        while await janitor.round():
            pass
        assert janitor.failures == {}


@pytest.mark.parametrize("begin", quick(range(STRIDE), 0))
async def test_a_janitor_is_killed_at_each_of_its_steps(tmp_path: Path, begin: int) -> None:
    url = f"file://{tmp_path}/cold"
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders", txid="writer", roll=Roll(bytes="2KiB"), cold=url, ttl="1ms")
        written: list[bytes | None] = []
        step, kills, status = begin, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            written += await write_segments(stream, 1, first=len(written) + 1)
            status, _ = await run_worker(cluster.config_file, "janitor", step)
            assert await read_all(stream) == written, f"after a kill at step {step}"
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
            await finish(namespace)
            assert await read_all(stream) == written, "its successor ends what it began"
        assert status == 0
        assert kills >= 3
        entry = namespace.stream_entry(stream.number).upkeep
        assert entry.copying is None
        assert entry.trimming_to == entry.copied_to > 0
        store = ColdStore(url)
        held = (await asyncio.to_thread(read_catalogue, store)).log("orders").copies
        assert held == [each.copy for each in entry.copies], "what killed attempts left is gone"
        assert await verify_copies(store, held) == []


@pytest.mark.parametrize("begin", quick(range(STRIDE), 1))
async def test_an_owner_is_killed_at_each_of_its_steps(begin: int) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("ledger", writers="exclusive")
        begun: list[bytes] = []
        stored: list[bytes] = []
        step, kills, status = begin, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            status, lines = await run_worker(cluster.config_file, "owner", step, len(begun))
            for line in lines:
                word, number = line.split()
                (begun if word == "begun" else stored).append(number.encode())
            found = await read_all(stream)
            assert len(set(found)) == len(found), "none is doubled"
            assert set(stored) <= set(found) <= set(begun), f"after a kill at step {step}"
            assert found == sorted(found, key=lambda payload: int(payload or b"")), "none is late"
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
        assert status == 0
        assert kills >= 2


def numbers_after(lines: list[str], word: str) -> list[bytes]:
    """Of all lines that begin with a word."""
    return [number.encode() for line in lines if line.startswith(f"{word} ") for number in line.split()[1:]]


@pytest.mark.parametrize("begin", quick(range(STRIDE), 1))
async def test_a_shared_writer_is_killed_at_each_of_its_steps(begin: int) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders", txid="writer")
        said: list[str] = []
        held: list[bytes | None] = []
        step, kills, status = begin, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            first = len(numbers_after(said, "begun"))
            status, lines = await run_worker(cluster.config_file, "writer", step, first)
            said += lines
            found = await read_all(stream)
            assert found[: len(held)] == held, "what was read is read again, and nothing is in front of it"
            assert len(set(found)) == len(found), "none is doubled"
            assert set(numbers_after(said, "stored")) <= set(found) <= set(numbers_after(said, "begun")), step
            assert found == sorted(found, key=lambda payload: int(payload or b"")), "each writer's are in its order"
            held = found
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
        assert status == 0
        assert kills >= 1


@pytest.mark.parametrize("begin", quick(range(STRIDE), 0))
async def test_who_creates_ends_renames_and_deletes_is_killed_at_each_step(begin: int) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        step, kills, life, status = begin, 0, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            life += 1
            status, said = await run_worker(cluster.config_file, "manager", step, life)
            await check_streams_of_life(namespace, life, said)
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
        assert status == 0
        assert kills >= 3
        streams = [await namespace.open(info.name) for info in await namespace.list()]  # what was begun is gone on with
        groups = {entry.path for entry in await client.list_logs("/streams/.data")}
        assert groups == {f"/streams/.data/s{stream.number}" for stream in streams}, "nothing is left over"


async def check_streams_of_life(namespace: Namespace, life: int, said: list[str]) -> None:
    """What a manager of streams was told holds, and what it had begun is whole or can be done again."""
    await namespace.current()
    await namespace.deletions_finished()
    names = {info.name.removesuffix(str(life)) for info in await namespace.list() if info.name.endswith(str(life))}
    words = {line.split()[0] for line in said}
    if f"created another{life}" in said:
        assert names == {"another"}
    elif "deleted" in words:
        assert names <= {"another"}, "what was deleted is not back"
    elif "renamed" in words:
        assert names <= {"after"}, "the name of before is gone"
    elif "created" in words:
        assert len(names & {"before", "after"}) == 1, "there is one stream, by one of its names"
    else:
        assert names <= {"before"}
    for name in names - {"another"}:
        stream = await namespace.open(f"{name}{life}")
        if "untruncated" in words:
            assert await read_all(stream) == [b"one", b"two"]
        elif "truncated" in words:
            assert await read_all(stream) in ([b"two"], [b"one", b"two"])
        if "ended" not in words:
            await stream.mark_end()
        async with stream.reader() as reader:
            assert [record.payload async for record in reader] in ([], [b"one", b"two"], [b"two"]), "it ends"


@pytest.mark.parametrize("begin", quick(range(STRIDE), 0))
async def test_a_reader_of_a_subscription_is_killed_at_each_of_its_steps(begin: int) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("read")
        written = [b"%d" % number for number in range(60)]
        async with stream.writer() as writer:
            await writer.write_many(written)
        handled: list[bytes] = []
        committed = 0
        step, kills, status = begin, 0, -signal.SIGKILL
        while status == -signal.SIGKILL:
            assert step < STEPS_MAX
            status, said = await run_worker(cluster.config_file, "subscriber", step)
            now = numbers_after(said, "handled")
            assert now == written[committed : committed + len(now)], "it goes on behind what is committed"
            handled += now
            told = committed + len(numbers_after(said, "committed"))
            entries = await stream.subscriptions()
            begins = 0 if not entries else written.index(await payload_at(stream, entries[0].position)) + 1
            assert told <= begins <= committed + len(now), (
                "what was told to be committed is, and nothing that was not handled"
            )
            committed = begins
            step, kills = step + STRIDE, kills + (status == -signal.SIGKILL)
        assert status == 0
        assert kills >= 1
        assert list(dict.fromkeys(handled)) == written
