"""A run of ``ldbench``: gives orders to client processes one after the other, and keeps the report up to date."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from benchmarks.ldbench.engine import DurabilityClass, Engine, StartOptions
from benchmarks.ldbench.engines import load_engine
from benchmarks.ldbench.measurement import BenchReport, Case, EngineInfo, Measurement
from benchmarks.ldbench.plan import Bundle, all_cases, bundles, runs_of, why_not
from benchmarks.ldbench.summary import best_setting
from benchmarks.ldbench.worker import RunOrder, WorkOrder
from benchmarks.ldbench.workload import Scale, Workload, settings_of
from logdevice_py.programs import own_program

STOP_SECONDS: Final = 30.0
"""What a client process gets to end in order; its servers end with it in any case."""
_REMOVALS: Final = 20
"""Servers of a client process that died may write a moment longer."""
_LINE_MAX: Final = 64 << 20


class Display(Protocol):
    """Shows what is going on."""

    def planned(self, runs: int) -> None:
        """So many runs are to come in all, as far as is known."""

    def doing(self, text: str) -> None:
        """What happens at this moment."""

    def measured(self, measurement: Measurement, primary: str) -> None:
        """One run is over."""

    def said(self, text: str) -> None:
        """Something that the person should see."""


class BenchSession:
    """Rounds of bundles of cases on systems."""

    def __init__(
        self,
        *,
        scale: Scale,
        engines: Sequence[str],
        workloads: Mapping[str, Workload],
        directory: Path,
        report_path: Path,
        report: BenchReport,
        display: Display,
        copies: int = 3,
        sync_delay_us: int = 0,
        profile: bool = False,
    ) -> None:
        """
        Args:
            scale: how much.
            engines: names of the systems, in the order in which they take turns.
            workloads: what is measured, by name.
            directory: on the disk that is measured.
            report_path: where the report is kept.
            report: to be filled.
            display: shows progress.
            copies: of each record.
            sync_delay_us: added to every sync.
            profile: have every process sample its stacks.
        """
        self._scale = scale
        self._names = engines
        self._workloads = workloads
        self._directory = directory
        self._report_path = report_path
        self._report = report
        self._display = display
        self._copies = copies
        self._sync_delay_us = sync_delay_us
        self._profiles = report_path.parent.resolve() / "profiles" if profile else None
        self._engines: dict[str, Engine] = {}
        self._worker: asyncio.subprocess.Process | None = None
        self._cut_short = False

    async def run(self) -> None:
        """Everything, or until `cut_short`."""
        cases = list(all_cases(self._scale, list(self._workloads.values()), sync_delay_us=self._sync_delay_us))
        planned = bundles(cases, self._workloads, self._scale)
        self._find_engines()
        self._display.planned(self._count(planned))
        for number in range(1, self._scale.rounds + 1):
            for bundle in planned:
                for engine in list(self._engines.values()):
                    if not self._cut_short:
                        runs = runs_of(bundle, engine, self._workloads, self._scale, number, self._chosen)
                        await self._obey(bundle, engine, runs)
        self._report.complete = not self._cut_short
        self._save()

    def cut_short(self) -> None:
        """Stop what runs at this moment, in order; what was measured before stays. Called again: at once."""
        again, self._cut_short = self._cut_short, True
        worker = self._worker
        if worker is None or worker.returncode is not None:
            return
        if again:
            worker.kill()
            return
        self._display.said("cut short: the servers are being stopped")
        self._end(worker)

    def _end(self, worker: asyncio.subprocess.Process) -> None:
        worker.send_signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(STOP_SECONDS, _kill, worker)

    def _save(self) -> None:
        self._report.save(self._report_path)

    def _find_engines(self) -> None:
        for name in self._names:
            info = self._report.engines[name] = EngineInfo()
            engine = load_engine(name)
            if isinstance(engine, str):
                info.unavailable = engine
            else:
                info.title = engine.title
                info.unavailable = engine.unavailable(self._options(engine, self._directory))
            if info.unavailable is not None:
                self._display.said(f"{name} is skipped: {info.unavailable}")
                continue
            assert not isinstance(engine, str)
            self._engines[name] = engine
            for workload in self._workloads.values():
                if (reason := why_not(workload, engine)) is not None:
                    self._report.skipped.append(f"{name}: {reason}")
                for setting in settings_of(workload, engine):
                    info.settings[f"{workload.name}: {setting.name}"] = setting.description

    def _options(self, engine: Engine, directory: Path) -> StartOptions:
        durability = DurabilityClass(self._scale.durabilities[0])
        return StartOptions(
            directory=directory, durability=durability, copies=self._copies, sync_delay_us=self._sync_delay_us
        )

    def _count(self, planned: Sequence[Bundle]) -> int:
        first, later = (
            sum(
                len(runs_of(bundle, engine, self._workloads, self._scale, number, lambda engine, key: ""))
                for bundle in planned
                for engine in self._engines.values()
            )
            for number in (1, 2)
        )
        return first + later * (self._scale.rounds - 1)

    def _chosen(self, engine: str, key: str) -> str | None:
        measured = [each for each in self._report.measurements if each.engine == engine and each.case.key == key]
        return best_setting(measured, self._workloads[measured[0].case.workload].primary) if measured else None

    async def _obey(self, bundle: Bundle, engine: Engine, runs: list[RunOrder]) -> None:
        """Have runs made; servers are started anew behind each that failed."""
        while runs and not self._cut_short:
            scratch = Path(tempfile.mkdtemp(prefix="ldb", dir=self._directory))
            try:
                order = WorkOrder(
                    engine=engine.name,
                    directory=str(scratch),
                    durability=bundle.durability,
                    copies=self._copies,
                    logs=sum(self._workloads[run.case.workload].logs(run.case) for run in runs),
                    tolerate_failure=bundle.tolerate_failure,
                    partitions=bundle.partitions,
                    sync_delay_us=self._sync_delay_us,
                    record_bytes=bundle.record_bytes,
                    profiles=None if self._profiles is None else str(self._profiles),
                    parent=os.getpid(),
                    runs=runs,
                )
                made = await self._work(order)
            finally:
                await asyncio.to_thread(_remove, scratch)
            runs = runs[made:]

    async def _work(self, order: WorkOrder) -> int:
        """One client process, to its end; how many runs are done."""
        process = self._worker = await asyncio.create_subprocess_exec(
            *own_program("benchmarks.ldbench.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            limit=_LINE_MAX,
            start_new_session=True,  # Ctrl-C is for us: we end it in order
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        stderr = asyncio.create_task(_tail(process.stderr))
        process.stdin.write(json.dumps(asdict(order)).encode())
        process.stdin.close()
        if self._cut_short:
            self._end(process)
        done, why = 0, None
        try:
            while line := await process.stdout.readline():
                message: dict[str, Any] = json.loads(line)
                if message["kind"] == "measurement":
                    done += 1
                    self._take(Measurement.from_json(message["measurement"]))
                elif message["kind"] in ("unavailable", "not-started"):
                    why = str(message["reason"])
                else:
                    self._on_message(order.engine, message)
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            self._worker = None
            said = await stderr
        if self._cut_short or done == len(order.runs):
            return len(order.runs)
        if done and self._report.measurements[-1].error is not None:
            return done
        # the servers did not start, or the client process died
        self._fail(order.engine, order.runs[done], why or f"the client process ended with status {status}: {said}")
        return done + 1 if why is None else self._fail_rest(order, done + 1, why)

    def _fail_rest(self, order: WorkOrder, done: int, why: str) -> int:
        for run in order.runs[done:]:
            self._fail(order.engine, run, why)
        return len(order.runs)

    def _fail(self, engine: str, run: RunOrder, why: str) -> None:
        self._take(Measurement(case=run.case, engine=engine, setting=run.setting or "", round=run.round, error=why))

    def _take(self, measurement: Measurement) -> None:
        self._report.measurements.append(measurement)
        self._save()
        self._display.measured(measurement, self._workloads[measurement.case.workload].primary)

    def _on_message(self, engine: str, message: dict[str, Any]) -> None:
        if message["kind"] == "info":
            info, found = self._report.engines[engine], message["info"]
            info.versions = found["versions"]
            info.acknowledgement |= found["acknowledgement"]
            info.configuration = found["configuration"]
        elif message["kind"] == "begins":
            self._display.doing(f"{engine}, {message['case']}, {message['setting']}")
        elif message["kind"] == "say":
            self._display.doing(f"{engine}: {message['text']}")


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


def _remove(directory: Path) -> None:
    for _ in range(_REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.1)


async def _tail(stream: asyncio.StreamReader, limit: int = 4000) -> str:
    """The end of what was written to a stream."""
    kept = b""
    while part := await stream.read(1 << 16):
        kept = (kept + part)[-limit:]
    return kept.decode(errors="replace").strip()


def case_line(case: Case, measurement: Measurement, primary: str, unit: str) -> str:
    """One line about a run."""
    name = f"{measurement.engine:<10} {case.key}, {measurement.setting}"
    if measurement.error is not None:
        return f"{name}: FAILED: {measurement.error.splitlines()[0]}"
    value = measurement.figures.get(primary)
    return f"{name}: {value:,.2f} {unit}" if value is not None else f"{name}: nothing measured"
