"""Workloads on a system in memory: what they report, and that a wrong answer voids it."""

import random

import pytest

from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import EngineError, Mode
from benchmarks.ldbench.measurement import Case, Measurement
from benchmarks.ldbench.verification import WrongResultError
from benchmarks.ldbench.workload import SMOKE
from benchmarks.ldbench.workloads import all_workloads
from tests.unit.benchmarks.fakes import MemoryEngine, MemoryRunning

WORKLOADS = all_workloads()
IN_MEMORY = [
    "append",
    "buffered-append-many",
    "many-writers",
    "many-logs",
    "lone-append",
    "catch-up-read",
    "cold-read",
    "tail-read",
    "read-your-write",
    "steady",
    "backfill",
    "fan-out",
]


async def measure(name: str, engine: MemoryEngine, running: MemoryRunning | None = None) -> Measurement:
    parameters = dict(WORKLOADS[name].parameters(SMOKE)[-1])
    if "records" in parameters:
        parameters["records"] = 1_000
    # Longer than the loop may stall on a busy machine.
    case = Case(workload=name, seconds=0.2, warmup_seconds=0.005, parameters=parameters)
    measurement = Measurement(case=case, engine="memory", setting="only", round=1)
    bench = WorkloadBench(
        engine, running or MemoryRunning(engine), engine.lone_setting(), measurement, say=lambda text: None
    )
    await WORKLOADS[name].run(bench)
    await bench.close()
    return measurement


@pytest.mark.parametrize("name", IN_MEMORY)
async def test_a_workload_reports_its_figure_and_verifies_what_it_moved(name: str) -> None:
    measurement = await measure(name, MemoryEngine())
    assert measurement.figures[WORKLOADS[name].primary] > 0
    assert measurement.moved_records > 0
    assert measurement.verified_records >= measurement.moved_records
    assert measurement.out_of_order == 0
    assert measurement.cost["client"]["processes"] == 1


@pytest.mark.parametrize("name", ["append", "lone-append", "many-logs"])
async def test_a_system_that_repeats_a_record_is_caught(name: str) -> None:
    def twice_now_and_then(log: list[bytes], record: bytes) -> None:
        log.append(record)
        if len(log) == 5:
            log.append(record)

    with pytest.raises(WrongResultError, match="twice"):
        await measure(name, MemoryEngine(twice_now_and_then))


async def test_a_system_that_loses_a_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.ldbench.streams.read_until.__kwdefaults__",
        {"max_records": 10_000, "stall_seconds": 0.05, "on_batch": None},
    )
    seen = 0

    def all_but_the_fifth(log: list[bytes], record: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen != 5:
            log.append(record)

    with pytest.raises(WrongResultError, match="1 records were not read"):
        await measure("append", MemoryEngine(all_but_the_fifth))


async def test_a_system_that_changes_a_record_is_caught() -> None:
    def damaged(log: list[bytes], record: bytes) -> None:
        log.append(record[:-1] + b"\0" if len(log) == 7 else record)

    with pytest.raises(WrongResultError, match="not what was appended"):
        await measure("catch-up-read", MemoryEngine(damaged))


async def test_records_out_of_order_are_counted_where_order_is_not_promised() -> None:
    rng = random.Random(1)

    def anywhere_near_the_end(log: list[bytes], record: bytes) -> None:
        log.insert(max(0, len(log) - rng.randrange(3)), record)

    measurement = await measure("append", MemoryEngine(anywhere_near_the_end, ordered=False))
    assert measurement.out_of_order > 0
    with pytest.raises(WrongResultError, match="lies behind"):
        await measure("append", MemoryEngine(anywhere_near_the_end))


async def test_an_append_that_fails_voids_a_measurement_without_faults() -> None:
    engine = MemoryEngine()
    running = MemoryRunning(engine)
    running.refuse = iter([False] * 5 + [True] + [False] * 100_000).__next__
    with pytest.raises(EngineError, match="appends failed: AppendError: refused"):
        await measure("append", engine, running)


@pytest.mark.parametrize("promised", [True, False])
async def test_order_is_judged_behind_faults_only_where_it_is_promised_through_them(promised: bool) -> None:
    engine = MemoryEngine(ordered_through_faults=promised)
    running = MemoryRunning(engine)
    measurement = Measurement(case=Case(workload="copy-paused"), engine="memory", setting="only", round=1)
    bench = WorkloadBench(engine, running, engine.lone_setting(), measurement, say=lambda text: None)
    (log,) = await bench.logs(1)
    stream = await bench.stream(log, Mode.SINGLE)
    stream.send(10)
    await stream.settle()
    running.logs[log].reverse()
    with pytest.raises(WrongResultError, match="lies behind"):
        await bench.verify({log: stream})
    if promised:
        with pytest.raises(WrongResultError, match="lies behind"):
            await bench.verify({log: stream}, faults=True)
    else:
        await bench.verify({log: stream}, faults=True)
        assert measurement.out_of_order == 9


async def test_a_steady_load_tells_of_deliveries_and_acknowledgements_apart() -> None:
    measurement = await measure("steady", MemoryEngine())
    assert measurement.case.parameters["servers"] == "written"
    assert {"p50_ms", "p99_ms", "append_p50_ms", "append_p99_ms"} <= measurement.figures.keys()
    assert measurement.latency["intended append to delivery"]["count"] == measurement.moved_records


async def test_a_system_that_keeps_all_in_memory_is_not_filled_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.ldbench.workloads.steady._IN_MEMORY_MAX", 50_000)
    engine = MemoryEngine()
    engine.in_memory = True  # type: ignore[attr-defined]
    running = MemoryRunning(engine)
    measurement = await measure("steady", engine, running)
    assert "it keeps all in memory" in measurement.notes[0]
    assert len(running.logs["log0"]) == 5
