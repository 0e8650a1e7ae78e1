"""The worker of a console: what it begins for somebody who goes away."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import client.client
from logdevice_py.core.ids import NodeId
from server.console.worker import ConsoleWorker


async def test_who_goes_away_while_the_client_starts_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Slow] = []
    starts = asyncio.Event()

    class Slow:
        def __init__(self, *_: Any, **__: Any) -> None:
            self.closed = False
            made.append(self)

        async def start(self) -> None:
            starts.set()
            if len(made) == 1:
                await asyncio.Event().wait()

        async def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(client.client, "Client", Slow)
    worker = ConsoleWorker(tmp_path / "cluster.toml", NodeId(0), None)
    asking = asyncio.create_task(worker.opened())
    await starts.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert made[0].closed
    assert await worker.opened() is made[1]
    await worker.close()
    assert made[1].closed
