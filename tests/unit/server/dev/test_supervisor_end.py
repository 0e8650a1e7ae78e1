"""When a supervisor says that none of its processes runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from server.dev.supervisor import Supervisor
from tests.unit.sequencer.fakes import make_config


async def test_how_each_node_ended_is_told_before_none_runs(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, make_config())
    told = []
    ended = asyncio.Event()

    async def tell() -> None:
        await ended.wait()
        told.append("N0 ended")

    supervisor._watchers.add(asyncio.create_task(tell()))
    waiting = asyncio.create_task(supervisor.wait_until_none_runs())
    await asyncio.sleep(0)
    assert not waiting.done()
    ended.set()
    await waiting
    assert told == ["N0 ended"]
