"""Failover on a system in memory that loses what it is given while its leader is down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import AppendError, EngineError, Mode, Setting
from benchmarks.ldbench.measurement import Case, Measurement
from benchmarks.ldbench.workloads import all_workloads
from tests.unit.benchmarks.fakes import MemoryEngine, MemoryProducer, MemoryRunning

CALM = 0.6
"""Seconds before the fault."""
DOWN = 0.4
WATCH = 0.1
"""Shorter than it is down: what was sent in it is lost."""


class FailingRunning(MemoryRunning):
    """Another leader takes over some time after the first one was paused; what the first one was sent fails when it goes on."""

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.lost: list[asyncio.Future[object]] = []
        self.down_until = 0.0
        self.asked_whole = 0

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> MemoryProducer:
        return _LosingProducer(self, log)

    async def pause(self, name: str) -> None:
        self.down_until = asyncio.get_running_loop().time() + DOWN

    async def resume(self, name: str) -> None:
        for future in self.lost:
            future.set_exception(AppendError("lost"))

    async def whole(self, log: str) -> bool:
        self.asked_whole += 1
        if self.asked_whole == 1:
            raise EngineError("no leader yet")
        return self.asked_whole >= 3


class _LosingProducer(MemoryProducer):
    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        running = self._running
        assert isinstance(running, FailingRunning)
        loop = asyncio.get_running_loop()
        if loop.time() >= running.down_until:
            return super().append_many(records)
        future: asyncio.Future[object] = loop.create_future()
        running.lost.append(future)
        return future


async def test_a_stall_ends_with_the_first_success_whatever_became_of_appends_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchmarks.ldbench.workloads.failover._CALM_SECONDS", CALM)
    engine = MemoryEngine()
    running = FailingRunning(engine)
    case = Case(workload="leader-paused", parameters={"repeats": 1, "watch": WATCH})
    measurement = Measurement(case=case, engine="memory", setting="only", round=1)
    bench = WorkloadBench(engine, running, engine.lone_setting(), measurement, say=lambda text: None)
    await all_workloads()["leader-paused"].run(bench)
    assert running.lost
    assert DOWN * 1000 <= measurement.figures["standstill_ms"] < DOWN * 1000 + 3_000
    assert measurement.figures["failed_appends"] >= len(running.lost)
    assert "p99_over_control" not in measurement.figures, "nothing that was appended behind the fault came through"
    assert "p50_ms" not in measurement.figures, "no latency at all is not the best one"
    assert measurement.verified_records > 0
    assert running.asked_whole == 3, "the next fault waits until all servers take part again"


async def test_a_server_that_never_takes_part_again_voids_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: FailingRunning, log: str) -> bool:
        return False

    monkeypatch.setattr("benchmarks.ldbench.workloads.failover._CALM_SECONDS", CALM)
    monkeypatch.setattr(FailingRunning, "whole", never)
    engine = MemoryEngine()
    case = Case(workload="leader-paused", parameters={"repeats": 1, "watch": WATCH})
    measurement = Measurement(case=case, engine="memory", setting="only", round=1)
    bench = WorkloadBench(engine, FailingRunning(engine), engine.lone_setting(), measurement, say=lambda text: None)
    monkeypatch.setattr("benchmarks.ldbench.workloads.failover.RECOVERY_SECONDS", 0.8)
    with pytest.raises(EngineError, match="does not take part again"):
        await all_workloads()["leader-paused"].run(bench)
