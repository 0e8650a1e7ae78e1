"""``ldstream janitor`` as a process that is killed between its steps while a stream is written to, and the other verbs of segments."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from logdevice_py.programs import own_program
from server.dev.local_cluster import LocalCluster
from streams.attributes import Roll
from streams.cold.restoring import read_catalogue, verify_copies
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from tests.integration.test_stream_upkeep import read_all, write_segments

STEPS = ("copied", "committed a copy", "began to trim")


@pytest.mark.slow
async def test_a_janitor_is_killed_at_each_of_its_steps(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cold"
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders", txid="writer", roll=Roll(bytes="2KiB"), cold=url, ttl="1ms")
        written: list[bytes] = []

        async def start() -> asyncio.subprocess.Process:
            program = own_program(
                "streams.cli", "-c", cluster.config_file, "janitor", "--lease", "500ms", "--every", "100ms"
            )
            return await asyncio.create_subprocess_exec(*program, stderr=subprocess.PIPE)

        async def line_with(process: asyncio.subprocess.Process, word: str) -> None:
            assert process.stderr is not None
            while True:
                line = await asyncio.wait_for(process.stderr.readline(), 90)
                assert line, f"the janitor ended before {word!r}"
                if line.endswith(f"{word}\n".encode()):
                    return

        for step in STEPS:
            written += await write_segments(stream, 1, first=len(written) + 1)
            janitor = await start()
            try:
                await line_with(janitor, step)
            finally:
                janitor.kill()
                await janitor.wait()
            assert await read_all(stream) == written

        janitor = await start()
        try:
            async with asyncio.timeout(90):
                while not (upkeep := namespace.stream_entry(stream.number).upkeep).trimming_to == upkeep.copied_to > 0:
                    await namespace.wait_for_change(1)

                async def run(*arguments: str) -> str:
                    program = own_program("streams.cli", "-c", cluster.config_file, *arguments)
                    process = await asyncio.create_subprocess_exec(*program, stdout=subprocess.PIPE)
                    out, _ = await process.communicate()
                    assert process.returncode == 0, arguments
                    return out.decode()

                assert namespace.state.role.lease is not None
                info = json.loads(await run("info", "orders", "--json"))
                assert info["janitor"] == namespace.state.role.lease.owner
                assert info["janitor_did"].startswith("orders: ")
                segments = [json.loads(line) for line in (await run("segments", "orders", "--json")).splitlines()]
                assert {each["state"] for each in segments[:-1]} == {"cold"}
                assert sum(each["records"] for each in segments) == len(written)
        finally:
            janitor.terminate()
            assert await janitor.wait() == 0
        assert namespace.state.role.lease is None
        assert await read_all(stream) == written
        upkeep = namespace.stream_entry(stream.number).upkeep
        store = ColdStore(url)
        held = (await asyncio.to_thread(read_catalogue, store)).log("orders").copies
        assert held == [each.copy for each in upkeep.copies]
        assert await verify_copies(store, held) == []
