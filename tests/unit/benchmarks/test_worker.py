"""What a client process makes of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.ldbench.measurement import Case
from benchmarks.ldbench.worker import RunOrder, measure
from tests.unit.benchmarks.fakes import MemoryEngine, MemoryRunning


async def test_a_run_in_which_nothing_was_timed_is_void(tmp_path: Path) -> None:
    engine = MemoryEngine()
    told: list[dict[str, Any]] = []
    order = RunOrder(case=Case(workload="lone-append", seconds=0.0, warmup_seconds=0.0), setting=None, round=1)
    measurement = await measure(engine, MemoryRunning(engine), order, told.append, directory=tmp_path, sampler=None)
    assert measurement.error is not None
    assert "gives p50_ms" in measurement.error
