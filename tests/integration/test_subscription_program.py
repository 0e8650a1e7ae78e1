"""``ldstream`` and subscriptions: what is printed is committed, also when the program is killed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from client.sync import SyncClient
from logdevice_py.programs import own_program
from server.dev.local_cluster import LocalCluster
from streams.namespace import Namespace
from streams.stream import Stream
from streams.sync import SyncNamespace
from tests.forked import run_program_async

KILLS = 3
PRINTED_FIRST = 20
"""Records that a program prints before it is killed."""


async def run(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    return await run_program_async("streams.cli", "-c", cluster.config_file, *arguments, timeout=120)


@pytest.mark.slow
async def test_subscriptions_in_a_shell() -> None:
    async with LocalCluster(nodes=3, log_tree=True) as cluster:

        def fill() -> tuple[str, str]:
            with SyncClient(cluster.config_file) as client, SyncNamespace(client) as namespace:
                stream = namespace.create("orders")
                with stream.writer() as writer:
                    writer.write_many([b"1", b"2", b"3"]).result()
                return str(next(iter(stream.reader(until="tail"))).position), str(stream.end().following)

        first, behind = await asyncio.to_thread(fill)
        assert await run(cluster, "subscriptions", "--json") == (0, "", "")
        assert (await run(cluster, "read", "orders", "--subscription", "audit"))[1] == "1\n2\n3\n"
        assert (await run(cluster, "read", "orders", "--subscription", "audit"))[1] == ""
        status, out, _ = await run(cluster, "subscriptions", "orders", "--json")
        row = json.loads(out)
        assert (status, row["subscription"], row["stream"], row["commits"]) == (0, "audit", "orders", 1)
        assert 0 <= row["age_seconds"] < 120
        status, _, err = await run(cluster, "commit", "audit", "orders", first)
        assert (status, "STALE" in err, "audit, stream orders" in err) == (1, True, True)
        assert "ldstream reset goes back" in err
        # positions that nobody has written to would pass over what is written there
        for verb in ("commit", "reset"):
            status, _, err = await run(cluster, verb, "audit", "orders", behind)
            assert (status, f"nothing is written at {behind} yet: stream orders ends at" in err) == (2, True)
        assert (await run(cluster, "commit", "billing", "orders", first))[0] == 0
        assert (await run(cluster, "read", "orders", "--subscription", "billing"))[1] == "2\n3\n"
        assert (await run(cluster, "reset", "audit", "orders", "oldest"))[0] == 0
        assert (await run(cluster, "read", "orders", "--subscription", "audit"))[1] == "1\n2\n3\n"
        assert (await run(cluster, "reset", "audit", "orders", "end"))[0] == 0
        assert (await run(cluster, "read", "orders", "--subscription", "audit"))[1] == ""
        assert (await run(cluster, "reset", "audit", "orders", "yesterday"))[0] == 2
        lines = (await run(cluster, "subscriptions"))[1].splitlines()
        assert [line.split()[:2] for line in lines] == [
            ["SUBSCRIPTION", "STREAM"],
            ["audit", "orders"],
            ["billing", "orders"],
        ]


async def write_numbers(stream: Stream, stop: asyncio.Event) -> int:
    """Numbers from 0 on, one a line; how many."""
    number = 0
    async with stream.writer() as writer:
        while not stop.is_set():
            await writer.write(b"%d" % number)
            number += 1
            await asyncio.sleep(0.005)
    return number


def printed(path: Path) -> list[int]:
    """Whole lines."""
    return [int(line) for line in path.read_bytes().split(b"\n")[:-1]]


async def test_a_program_that_is_killed_again_and_again_prints_everything(tmp_path: Path) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream, stop = await namespace.create("orders"), asyncio.Event()
        writing = asyncio.create_task(write_numbers(stream, stop))
        handled = 0  # all below were printed by somebody
        for kill in range(KILLS):
            path = tmp_path / str(kill)
            program = own_program("streams.cli", "-c", cluster.config_file, "read", "-f", "orders")
            with path.open("wb") as out:
                process = await asyncio.create_subprocess_exec(*program, "--subscription", "billing", stdout=out)
            try:
                async with asyncio.timeout(120):
                    while len(printed(path)) < PRINTED_FIRST:  # noqa: ASYNC110 - of a process
                        await asyncio.sleep(0.02)
            finally:
                process.kill()
                await process.wait()
            numbers = printed(path)
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert numbers[0] <= handled, "records were committed that nobody printed"
            handled = max(handled, numbers[-1] + 1)
            found = await namespace.subscriptions()  # none: it was killed before it committed anything
            committed = [entry.position.following for entry in found if entry.position is not None]
            assert [at for at in committed if await stream.count(end=at) > handled] == []
        stop.set()
        written = await writing
        status, rest, _ = await run(cluster, "read", "orders", "--subscription", "billing")
        numbers = [int(line) for line in rest.splitlines()]
        assert status == 0
        assert numbers == list(range(numbers[0], written))
        assert numbers[0] <= handled
