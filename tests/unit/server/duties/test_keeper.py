"""Whether a node starts a process for a duty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from epoch_store.interface import Operation, ReadMetadata, Result
from logdevice_py.core.ids import MAINTENANCE_DELTAS
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from server.duties.duty_watch import Duty, DutyStep, DutyWatch
from server.duties.keeper import DutyKeeper


class FakeNode:
    """Says what the epoch store has of the log."""

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
    watch = DutyWatch(Duty("chores", MAINTENANCE_DELTAS))
    keeper = DutyKeeper(node)
    assert watch.look(is_mine=True, end=Lsn(0), now=1.0) is DutyStep.BEGIN
    await keeper.work(watch)
    assert processes == started
    assert node.asked == [ReadMetadata(MAINTENANCE_DELTAS)]
    assert (watch.is_working, watch.trouble) == (False, "")
