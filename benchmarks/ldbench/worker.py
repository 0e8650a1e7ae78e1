"""The client process of some runs on one system: starts its servers, measures case after case, prints what it finds as JSON lines.

The order comes as JSON on standard input, see `WorkOrder`. Each system gets a process of its own, so that no client library's
threads and memory burden another's figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import (
    AppendError,
    DurabilityClass,
    Engine,
    EngineError,
    RunningEngine,
    Setting,
    StartOptions,
)
from benchmarks.ldbench.engines import load_engine
from benchmarks.ldbench.measurement import Case, EngineInfo, Measurement
from benchmarks.ldbench.sampling import StackSampler
from benchmarks.ldbench.verification import WrongResultError
from benchmarks.ldbench.workload import Workload, settings_of
from benchmarks.ldbench.workloads import all_workloads
from server.die_with_parent import die_with_parent

_CUT_SHORT: Final = 143
LIMIT_SECONDS: Final = 600.0
"""What a case gets beyond thirty times its timed part."""


@dataclass(slots=True, kw_only=True)
class RunOrder:
    """One run of a case."""

    case: Case
    setting: str | None
    """None: the first one."""
    round: int


@dataclass(slots=True, kw_only=True)
class WorkOrder:
    """Runs that share the servers of one system."""

    engine: str
    directory: str
    durability: str
    copies: int = 3
    logs: int = 64
    tolerate_failure: bool = False
    partitions: bool = False
    sync_delay_us: int = 0
    record_bytes: int = 100
    profiles: str | None = None
    """Where profiles go; None: no profiles."""
    parent: int = 0
    runs: list[RunOrder] = field(default_factory=list)

    @classmethod
    def from_json(cls, text: str) -> WorkOrder:
        """Of what `asdict` made."""
        raw = json.loads(text)
        raw["runs"] = [RunOrder(**{**run, "case": Case(**run["case"])}) for run in raw["runs"]]
        return cls(**raw)

    def options(self) -> StartOptions:
        """What the servers are started as."""
        return StartOptions(
            directory=Path(self.directory),
            durability=DurabilityClass(self.durability),
            copies=self.copies,
            logs=self.logs,
            tolerate_failure=self.tolerate_failure,
            partitions=self.partitions,
            sync_delay_us=self.sync_delay_us,
            profile=self.profiles is not None,
            record_bytes=self.record_bytes,
        )


Tell = Callable[[dict[str, Any]], None]


def _setting(workload: Workload, engine: Engine, name: str | None) -> Setting:
    settings = settings_of(workload, engine)
    for setting in settings:
        if name is None or setting.name == name:
            return setting
    raise EngineError(f"{engine.name} has no setting {name} for {workload.name}")


def _describe(engine: Engine, options: StartOptions, running: RunningEngine) -> EngineInfo:
    return EngineInfo(
        title=engine.title,
        versions=dict(engine.versions()),
        acknowledgement={options.durability.value: engine.acknowledgement(options)},
        configuration=dict(running.configuration()),
    )


async def measure(
    engine: Engine,
    running: RunningEngine,
    order: RunOrder,
    tell: Tell,
    *,
    directory: Path,
    sampler: StackSampler | None,
) -> Measurement:
    """One run; what is wrong with it is in its `error`."""
    workload = all_workloads()[order.case.workload]
    setting = _setting(workload, engine, order.setting)
    measurement = Measurement(
        case=order.case,
        engine=engine.name,
        setting=setting.name,
        round=order.round,
        load=os.getloadavg()[0],
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    tell({"kind": "begins", "case": order.case.key, "setting": setting.name, "description": setting.description})
    bench = WorkloadBench(
        engine,
        running,
        setting,
        measurement,
        say=lambda text: tell({"kind": "say", "text": text}),
        directory=directory,
        sampler=sampler,
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS + 30 * order.case.seconds):
            await workload.run(bench)
            await bench.close()
        measurement.add_costs()
        if workload.primary not in measurement.figures:
            raise EngineError(f"nothing was measured that gives {workload.primary}")
    except (WrongResultError, EngineError, AppendError) as error:
        measurement.error = f"{type(error).__name__}: {error}"
    except TimeoutError:
        measurement.error = "it took too long"
    except Exception as error:  # noqa: BLE001 - a broken driver voids its measurement, the others go on
        measurement.error = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"
    return measurement


async def work(order: WorkOrder, tell: Tell) -> int:
    """All runs, or as many as go well: after one that fails, the servers are not trusted any more."""
    engine = load_engine(order.engine)
    if isinstance(engine, str):
        tell({"kind": "unavailable", "reason": engine})
        return 0
    options = order.options()
    if (reason := engine.unavailable(options)) is not None:
        tell({"kind": "unavailable", "reason": reason})
        return 0
    tell({"kind": "say", "text": "starting the servers"})
    try:
        running = await engine.start(options)
    except EngineError as error:
        tell({"kind": "not-started", "reason": str(error)})
        return 0
    sampler = StackSampler() if order.profiles else None
    try:
        tell({"kind": "info", "info": asdict(_describe(engine, options, running))})
        for run in order.runs:
            measurement = await measure(engine, running, run, tell, directory=options.directory, sampler=sampler)
            tell({"kind": "measurement", "measurement": asdict(measurement)})
            if measurement.error is not None:
                break
    finally:
        tell({"kind": "say", "text": "stopping the servers"})
        await running.stop()
        if sampler is not None and order.profiles:
            _keep_profiles(sampler, options.directory / "profiles", Path(order.profiles), engine.name)
    return 0


def _keep_profiles(sampler: StackSampler, servers: Path, into: Path, engine: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    sampler.save(into / f"{engine}-client-{os.getpid()}.stacks")
    if servers.is_dir():
        for path in sorted(servers.iterdir()):
            shutil.copy(path, into / f"{engine}-{path.stem}-{os.getpid()}{path.suffix}")


async def _until_terminated(order: WorkOrder, tell: Tell) -> int:
    working = asyncio.create_task(work(order, tell))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        return await working
    except asyncio.CancelledError:
        return _CUT_SHORT


def main() -> int:
    """The program; its exit status."""
    order = WorkOrder.from_json(sys.stdin.read())
    if order.parent:
        die_with_parent(order.parent)
    # servers and libraries that print must not get between our lines
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(message: dict[str, Any]) -> None:
        lines.write(json.dumps(message) + "\n")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_terminated(order, tell))


if __name__ == "__main__":
    sys.exit(main())
