"""The node's end of the pipe to its console's worker: requests while a worker begins and ends."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from server.console import worker_link as module
from server.console.worker_link import WorkerLink

WORKER = """
import json, os, signal, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("ask") == "who":
        print(request["id"], "OK", os.getpid(), flush=True)
    elif request.get("ask") == "alive":
        print(request["id"], "OK null", flush=True)
    elif request.get("ask") == "hang":
        signal.pause()
open(sys.argv[1]).read()
"""
"""Tells who it is; when its input ends, it ends as soon as somebody lets it."""


class Workers:
    """Starts workers that end slowly."""

    def __init__(self, link: WorkerLink, gate: Path) -> None:
        self.link = link
        self.gate = gate

    async def who(self) -> int:
        return int(await self.link.ask("who", {}, authorized=False, seconds=30))

    async def let_end(self) -> None:
        """The worker that closes down may end now."""
        await asyncio.to_thread(self.gate.write_text, "")


@pytest.fixture
async def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workers]:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    start = asyncio.create_subprocess_exec

    async def started(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        options.pop("env")
        return await start(sys.executable, "-c", WORKER, str(gate), **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    monkeypatch.setattr(module, "_END_SECONDS", 30.0)
    link = WorkerLink(tmp_path / "cluster.toml", NodeId(0), None)
    made = Workers(link, gate)
    yield made
    monkeypatch.setattr(module, "_END_SECONDS", 0.0)
    await link.close()


async def test_who_asks_while_an_idle_worker_ends_is_answered_by_the_next_one(workers: Workers) -> None:
    first = await workers.who()
    workers.link.let_worker_end()
    asking = asyncio.create_task(workers.who())
    await workers.let_end()
    assert await asking != first


async def test_who_goes_away_while_an_idle_worker_ends_leaves_no_other_without_an_answer(workers: Workers) -> None:
    first = await workers.who()
    workers.link.let_worker_end()
    gone = asyncio.create_task(workers.who())
    await asyncio.sleep(0)  # it waits for the end of the worker
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    asking = asyncio.create_task(workers.who())
    await workers.let_end()
    assert await asking != first


async def test_a_worker_is_idle_only_when_nobody_waits_for_its_start(workers: Workers) -> None:
    first = await workers.who()
    assert workers.link._idle is not None
    both = [asyncio.create_task(workers.who()) for _ in range(2)]
    await asyncio.sleep(0)
    assert workers.link._idle is None
    assert await asyncio.gather(*both) == [first, first]
    assert workers.link._idle is not None


@pytest.mark.parametrize("hangs", [True, False])
async def test_a_worker_that_hangs_is_followed_by_another(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    first = await workers.who()
    monkeypatch.setattr(module, "_ALIVE_SECONDS", 0.2 if hangs else 30.0)
    with pytest.raises(LogDeviceError) as refused:
        await workers.link.ask("hang" if hangs else "something slow", {}, authorized=False, seconds=0.1)
    assert refused.value.status is Status.TIMEDOUT
    doubt = workers.link._doubt
    assert doubt is not None
    await doubt
    assert (await workers.who() == first) is not hangs


async def test_who_watches_a_worker_that_hangs_is_told(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    await workers.who()
    for name in ("_SILENCE_SECONDS", "_ALIVE_SECONDS"):
        monkeypatch.setattr(module, name, 0.2)
    async with asyncio.timeout(30):
        with pytest.raises(LogDeviceError) as told:
            await anext(workers.link.watch("hang", {}, authorized=False))
    assert told.value.status is Status.FAILED


async def test_a_worker_that_ends_in_the_moment_when_it_is_killed_is_no_error(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await workers.who()
    process = workers.link._process
    assert process is not None

    class Gone:
        stdin, wait = process.stdin, process.wait

        def kill(self) -> None:
            process.kill()
            raise ProcessLookupError

    workers.link._process = cast(Any, Gone())
    monkeypatch.setattr(module, "_END_SECONDS", 0.0)
    await workers.link.close()
