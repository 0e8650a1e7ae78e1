"""When a supervisor says that none of its processes runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from server.dev.supervisor import Supervisor
from tests.unit.sequencer.fakes import make_config


async def test_how_each_node_ended_is_told_before_none_runs(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path, make_config())
    told = []

    async def tell() -> None:
        await asyncio.sleep(0.05)
        told.append("N0 ended")

    supervisor._watchers.add(asyncio.create_task(tell()))
    await supervisor.wait_until_none_runs()
    assert told == ["N0 ended"]
