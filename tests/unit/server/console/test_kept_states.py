"""How far readers of streams are behind, and what is kept up of streams."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ldquery.maintenance import manager as manager_module
from ldquery.namespaces import namespace_upkeep
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from server.console import kept_states as module
from server.console.kept_states import KeptStates, entries_behind, kept_up, note_lags
from streams.upkeep.commands import ReleaseUpkeep
from tests.unit.streams.test_upkeep_state import Upkept


@pytest.mark.parametrize(
    ("position", "tail", "behind"),
    [
        ("e3n17+2", "e3n17", 0),
        ("e3n17+2", "e3n20", 3),
        ("e3n17+2", "e3n10", 0),
        ("e2n17+2", "e3n1", None),
        (None, "e3n1", None),
        ("e3n17+2", None, None),
    ],
)
def test_what_is_behind_is_counted_within_an_epoch(position: str | None, tail: str | None, behind: int | None) -> None:
    assert entries_behind(position, tail) == behind


def test_what_is_kept_up_of_a_stream_and_who_does_it() -> None:
    upkept = Upkept(cold=True)
    upkept.copied(LSN.OLDEST, LSN.parse("e1n9"))
    found = namespace_upkeep("/streams", upkept.state)
    name = upkept.state.streams[1].name
    assert (found.janitor, found.unattended) == ("one", [])
    kept = kept_up(found, name)
    assert kept is not None
    assert (kept["copied_to"], kept["copies_count"], kept["copies_bytes"], kept["copying"]) == ("e1n9", 1, 10, None)
    assert [(each["first"], each["last"], each["files"]) for each in kept["copies"]] == [("e0n1", "e1n9", 1)]
    assert "cold" in kept["attributes"]
    assert kept_up(found, "another") is None
    upkept(ReleaseUpkeep(1))
    found = namespace_upkeep("/streams", upkept.state)
    assert (found.janitor, found.unattended) == (None, [name])


async def test_maintenances_take_no_longer_than_one_node_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why some wait, and who sees to them, are asked at once."""
    both = asyncio.Barrier(2)

    async def seers(*_: Any) -> list[str]:
        await both.wait()
        return ["N0"]

    class Manager:
        def __init__(self, *_: Any) -> None: ...

        async def reasons(self) -> dict[int, list[str]]:
            await both.wait()
            return {}

    class Log:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        async def __aenter__(self) -> None: ...

        async def __aexit__(self, *_: object) -> None: ...

        async def current(self) -> Any:
            return SimpleNamespace(live={}, ended=[], restart=None)

    async def used(*_: Any) -> bool:
        return True

    async def opened() -> Any:
        return SimpleNamespace(config=SimpleNamespace(has_maintenances=True))

    monkeypatch.setattr(module, "_seers", seers)
    monkeypatch.setattr(manager_module, "MaintenanceManager", Manager)
    monkeypatch.setattr(manager_module, "MaintenanceLog", Log)
    monkeypatch.setattr(manager_module, "is_used", used)
    states = KeptStates(opened)
    async with asyncio.timeout(20):
        found = await states.maintenances(cast(Any, None), {})
    assert found["seen_to_by"] == ["N0"]
    await states.close()


async def test_subscriptions_of_a_stream_are_looked_at_at_once_and_one_that_cannot_be_read_leaves_the_others() -> None:
    all_of_them = asyncio.Barrier(module.LAGS_MAX)

    class LateReader:
        def __init__(self, start: int) -> None:
            self.start = start

        async def __aenter__(self) -> LateReader:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def read(self, *_: Any, **__: Any) -> list[Any]:
            await all_of_them.wait()
            if self.start == LSN.parse("e1n2"):
                raise LogDeviceError(Status.TIMEDOUT)
            return []

    fake = SimpleNamespace(reader=lambda log, start, last: LateReader(start))
    rows: list[dict[str, Any]] = [{"position": f"e1n{esn}+0"} for esn in range(1, module.LAGS_MAX + 3)]
    async with asyncio.timeout(20):
        await note_lags(cast(Any, fake), 1, rows, "e1n90")
    assert [row["behind"] for row in rows] == [90 - esn for esn in range(1, module.LAGS_MAX + 3)], "of all of them"
    await note_lags(cast(Any, fake), None, rows, None)
    assert {(row["tail"], row["behind"]) for row in rows} == {(None, None)}
