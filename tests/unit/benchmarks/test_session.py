"""A session with client processes that do not do as they are told."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks.ldbench import session
from benchmarks.ldbench.measurement import BenchReport, Measurement
from benchmarks.ldbench.session import BenchSession
from benchmarks.ldbench.workload import SMOKE
from benchmarks.ldbench.workloads import all_workloads
from tests.unit.benchmarks.fakes import MemoryEngine


class _Silent:
    def planned(self, runs: int) -> None:
        return

    def doing(self, text: str) -> None:
        return

    def measured(self, measurement: Measurement, primary: str) -> None:
        return

    def said(self, text: str) -> None:
        return


def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """What runs as the client process; it keeps its order in the file that is returned."""
    order = tmp_path / "order.json"
    program = tmp_path / "client"
    program.write_text(f"#!/bin/sh\n{script.format(order=order)}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(session, "load_engine", lambda name: MemoryEngine())
    return order


def made(tmp_path: Path, *, profile: bool = False, report: Path | None = None) -> BenchSession:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return BenchSession(
        scale=SMOKE,
        engines=["memory"],
        workloads={"lone-append": all_workloads()["lone-append"]},
        directory=scratch,
        report_path=report or tmp_path / "report.json",
        report=BenchReport(),
        display=_Silent(),
        profile=profile,
    )


async def cut_short_when_it_works(running: BenchSession, order: Path, calls: int) -> float:
    """How long the session took to end."""
    working = asyncio.create_task(running.run())
    while not order.exists() or not order.stat().st_size:  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    began = time.monotonic()
    for _ in range(calls):
        running.cut_short()
    await working
    return time.monotonic() - began


@pytest.mark.parametrize(("calls", "stop_seconds"), [(1, 0.2), (2, 25.0)])
async def test_a_client_process_that_does_not_end_is_killed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, stop_seconds: float
) -> None:
    order = client(tmp_path, monkeypatch, "trap '' TERM; cat > {order}; exec sleep 30")
    monkeypatch.setattr(session, "STOP_SECONDS", stop_seconds)
    assert await cut_short_when_it_works(made(tmp_path), order, calls) < 15
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_what_is_cut_short_before_the_first_measurement_has_a_report_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = client(tmp_path, monkeypatch, "cat > {order}; exec sleep 60")
    await cut_short_when_it_works(made(tmp_path), order, 1)
    report = BenchReport.load(tmp_path / "report.json")
    assert not report.complete
    assert report.engines["memory"].title == "a list"


async def test_profiles_lie_beside_the_report_wherever_client_processes_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = client(tmp_path, monkeypatch, "cat > {order}")
    monkeypatch.chdir(tmp_path)
    await made(tmp_path, profile=True, report=Path("report.json")).run()
    assert json.loads(order.read_text())["profiles"] == str(tmp_path / "profiles")
    (failed,) = BenchReport.load(tmp_path / "report.json").measurements
    assert failed.error is not None
    assert "the client process ended with status 0" in failed.error
