"""What a node says of maintenances that wait."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from server.duties.maintenance_duty import see_to_maintenances


class WaitingOnce:
    """A log of maintenances in which one waits at the first look, and none is left at the second; and its manager."""

    has_work = True

    def __init__(self, reasons: list[str]) -> None:
        self._live: list[Any] = [{1: "waits"}, {}]
        self._reasons = reasons

    async def current(self) -> Any:
        return SimpleNamespace(live=self._live.pop(0))

    async def look(self) -> Any:
        return SimpleNamespace(reasons={1: self._reasons})


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, []),
        (5, ["maintenance 1 waits: r0; r1; r2; r3; r4"]),
        (9000, ["maintenance 1 waits: r0; r1; r2; r3; r4; and 8995 more reasons (ldctl maintenance list)"]),
    ],
)
async def test_some_reasons_are_said_and_how_many_there_are_beside(count: int, said: list[str]) -> None:
    told: list[str] = []
    waiting: Any = WaitingOnce([f"r{number}" for number in range(count)])
    await see_to_maintenances(waiting, waiting, say=told.append, pause=0)
    assert told == said
