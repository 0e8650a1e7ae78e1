"""Whether a node starts a process for a duty, what it takes from it, and how it ends it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from epoch_store.interface import Operation, ReadMetadata, Result
from logdevice_py.core.ids import MAINTENANCE_DELTAS
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from server.duties import keeper as module
from server.duties.duty_watch import Duty, DutyStep, DutyWatch
from server.duties.keeper import DutyKeeper, run_worker

CHORES = Duty("chores", MAINTENANCE_DELTAS)


class FakeNode:
    """Says what the epoch store has of the log."""

    path = "cluster.toml"
    node_id = 0
    config = None

    def __init__(self, status: Status) -> None:
        self.asked: list[Operation] = []
        self._status = status

    def ask_epoch_store(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        self.asked += operations
        asyncio.get_running_loop().call_soon(done, [Result(self._status)])


@pytest.mark.parametrize(
    ("status", "started"),
    [(Status.EMPTY, []), (Status.OK, ["chores"]), (Status.AGAIN, ["chores"])],
)
async def test_no_process_is_started_for_a_log_that_nobody_has_used(
    monkeypatch: pytest.MonkeyPatch, status: Status, started: list[str]
) -> None:
    processes: list[str] = []

    async def run(node: Any, name: str) -> str:
        processes.append(name)
        return ""

    monkeypatch.setattr("server.duties.keeper.run_worker", run)
    node: Any = FakeNode(status)
    watch = DutyWatch(CHORES)
    keeper = DutyKeeper(node)
    assert watch.look(is_mine=True, end=Lsn(0), now=1.0) is DutyStep.BEGIN
    await keeper.work(watch)
    assert processes == started
    assert node.asked == [ReadMetadata(MAINTENANCE_DELTAS)]
    assert (watch.is_working, watch.trouble) == (False, "")


def works_by(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """What the process of a duty does."""
    monkeypatch.setattr(module, "own_program", lambda *arguments: (sys.executable, "-c", code))


async def test_a_line_of_any_length_ends_no_work(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    long = "print('x' * 1_000_000, file=sys.stderr, flush=True); print('it waits', file=sys.stderr)"
    works_by(monkeypatch, f"import sys; {long}; sys.exit(1)")
    node: Any = FakeNode(Status.OK)
    caplog.set_level("INFO", "logdevice.duties")
    assert await run_worker(node, "chores") == "it waits"
    assert "chores: it said a line of more than" in caplog.text


async def test_a_process_that_does_not_end_is_killed_also_when_nobody_waits_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    works_by(monkeypatch, "import sys, time; print('works', file=sys.stderr, flush=True); time.sleep(30)")
    processes: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def started(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        processes.append(await start(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    said = asyncio.Event()
    monkeypatch.setattr(module.log, "info", lambda *_: said.set())
    node: Any = FakeNode(Status.OK)
    working = asyncio.create_task(run_worker(node, "chores"))
    await said.wait()
    working.cancel()
    await asyncio.sleep(0)  # it waits for the end of the process
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert await processes[0].wait() == -signal.SIGKILL


async def test_work_that_is_to_end_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, may_end, told_again = [True], asyncio.Event(), []

    async def work(keeper: DutyKeeper, watch: DutyWatch) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                told_again.append(watch)
                raise
            finally:
                watch.ended("it was ended", 0.0)

    monkeypatch.setattr(module, "wanted_duties", lambda config: [CHORES])
    monkeypatch.setattr(DutyKeeper, "work", work)
    monkeypatch.setattr(DutyKeeper, "_is_mine", lambda keeper, log: mine[0])
    monkeypatch.setattr(DutyKeeper, "_end_of", lambda keeper, log: Lsn(1))
    node: Any = FakeNode(Status.OK)
    keeper = DutyKeeper(node)
    keeper.look()
    (working,) = keeper._workers.values()
    await asyncio.sleep(0)
    mine[0] = False
    for _ in range(3):
        keeper.look()
        await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(working, return_exceptions=True)
    assert working.cancelled()
    assert told_again == []
