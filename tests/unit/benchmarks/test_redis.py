"""The driver of Redis: whose replicas are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.ldbench.engine import DurabilityClass, StartOptions
from benchmarks.ldbench.server_processes import ServerProcesses

redis_streams = pytest.importorskip("benchmarks.ldbench.engines.redis_streams", reason="needs redis-py")


async def test_a_master_that_came_back_and_is_no_replica_yet_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    online: dict[str, Any] = {"master_repl_offset": 1_000_000}
    online |= {f"slave{number}": {"state": "online", "offset": 999_900} for number in (0, 1)}
    told: dict[int, dict[str, Any]] = {4000: {}, 4001: online}

    class FakeRedis:
        def __init__(self, *, port: int, **_: Any) -> None:
            self._port = port

        async def info(self, section: str) -> dict[str, Any]:
            return told[self._port]

        async def aclose(self) -> None:
            return

    async def promoted(self: object, log: str) -> str:
        return "r1"

    monkeypatch.setattr(redis_streams, "Redis", FakeRedis)
    monkeypatch.setattr(redis_streams.RunningRedis, "leader", promoted)
    options = StartOptions(directory=tmp_path, durability=DurabilityClass.SYNC)
    ports = {f"r{number}": 4000 + number for number in range(4)}
    running = redis_streams.RunningRedis(ServerProcesses(tmp_path), options, ports, [])
    assert not await running.whole("log0")
    told[4001] = online | {"slave2": {"state": "online", "offset": 5_000}}
    assert not await running.whole("log0"), "it still copies what it missed"
    told[4001] = online | {"slave2": {"state": "online", "offset": 1_000_000}}
    assert await running.whole("log0")
