"""Which namespaces a node is the janitor of, when some of them cannot be read."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from logdevice_py.core.status import LogDeviceError, Status
from server.duties import janitor_duty as module
from server.duties.janitor_duty import NamespaceJanitors
from streams.attributes import StreamAttributes
from streams.state import StreamPhase

TAKES_ONE = StreamAttributes(ttl_us=86_400_000_000).mapping()
AWAY = LogDeviceError(Status.TIMEDOUT, "its logs do not answer")


class Namespaces:
    """Some namespaces with a stream each, and the janitors that run."""

    def __init__(self, *paths: str) -> None:
        self.paths = list(paths)
        self.failures: dict[str, LogDeviceError] = {}
        self.without_janitor: set[str] = set()
        self.running: set[str] = set()
        self.said: list[str] = []
        client: Any = SimpleNamespace(log_tree=None)
        self.janitors = NamespaceJanitors(client, "N0", self.said.append)

    async def look(self) -> bool:
        needed = await self.janitors.look()
        await asyncio.sleep(0)  # janitors that were begun run
        return needed


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Namespaces:
    made = Namespaces("/a", "/b", "/c")

    class FakeNamespace:
        def __init__(self, client: Any, path: str, *, create: bool) -> None:
            self.path = path
            attributes = {} if path in made.without_janitor else TAKES_ONE
            entry = SimpleNamespace(phase=StreamPhase.LIVE, attributes=attributes)
            self.state = SimpleNamespace(streams={1: entry})

        async def start(self) -> None:
            if self.path in made.failures:
                raise made.failures[self.path]

        async def close(self) -> None:
            """Nothing is open."""

    class FakeJanitor:
        def __init__(self, namespace: FakeNamespace, owner: str) -> None:
            self._path = namespace.path

        async def run(self) -> None:
            made.running.add(self._path)
            try:
                await asyncio.Event().wait()
            finally:
                made.running.discard(self._path)

    monkeypatch.setattr(module, "Namespace", FakeNamespace)
    monkeypatch.setattr(module, "Janitor", FakeJanitor)
    monkeypatch.setattr(module, "namespaces_of", lambda paths: made.paths)
    return made


async def test_a_namespace_that_cannot_be_read_stops_no_janitor_and_is_read_later(found: Namespaces) -> None:
    found.failures["/b"] = AWAY
    assert await found.look()
    assert await found.look()
    assert found.running == {"/a", "/c"}
    assert [text for text in found.said if "cannot read" in text] == [
        "cannot read /b, whose streams have no janitor of this node: TIMEDOUT: its logs do not answer"
    ]
    del found.failures["/b"]
    assert await found.look()
    assert found.running == {"/a", "/b", "/c"}
    await found.janitors.close()
    assert found.running == set()


async def test_work_fails_where_a_namespace_cannot_be_read_and_no_other_takes_a_janitor(found: Namespaces) -> None:
    found.failures["/b"], found.without_janitor = AWAY, {"/a", "/c"}
    with pytest.raises(LogDeviceError, match="do not answer"):
        await found.look()


@pytest.mark.parametrize("status", [Status.ACCESS, Status.SHUTDOWN])
async def test_what_ails_the_client_ends_the_work(found: Namespaces, status: Status) -> None:
    found.failures["/b"] = LogDeviceError(status)
    with pytest.raises(LogDeviceError) as raised:
        await found.look()
    assert raised.value.status is status
    await found.janitors.close()


async def test_a_namespace_that_was_removed_meanwhile_is_no_failure(found: Namespaces) -> None:
    found.failures["/b"], found.without_janitor = LogDeviceError(Status.NOTFOUND), {"/a", "/c"}
    assert not await found.look()
    assert found.said == []
