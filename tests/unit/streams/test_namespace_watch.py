"""Whoever watches a namespace is told of all that changes, until it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from client.replica.commands import StateVersion
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from streams.commands import CreateStream, DeleteStream, NamespaceCommand, encode
from streams.namespace import Namespace, StreamChange
from streams.state import NamespaceState


def applied(state: NamespaceState, at: int, command: NamespaceCommand) -> None:
    state.apply(encode(command), StateVersion(Lsn(at), 0), Timestamp(1))


class ReplicaAtHand:
    """A replica that applies what it is given."""

    def __init__(self) -> None:
        self.state = NamespaceState()
        self._at = 0
        self._versions: asyncio.Queue[int] = asyncio.Queue()

    async def __aenter__(self) -> None:
        pass

    async def caught_up(self, timeout: float) -> None:
        pass

    async def current(self, timeout: float | None) -> None:
        pass

    def apply(self, command: NamespaceCommand) -> None:
        self._at += 1
        applied(self.state, self._at, command)
        self._versions.put_nowait(self._at)

    def replace(self, state: NamespaceState) -> None:
        """Go on from a snapshot."""
        self._at += 1
        self.state = NamespaceState.decode(state.encode())
        self._versions.put_nowait(self._at)

    async def changes(self) -> AsyncIterator[int]:
        while True:
            yield await self._versions.get()

    async def close(self) -> None:
        pass


@asynccontextmanager
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Namespace, ReplicaAtHand]]:
    async def logs(*_: object) -> Any:
        return SimpleNamespace(commands=1, snapshots=2)

    replica = ReplicaAtHand()
    monkeypatch.setattr("streams.namespace.make_own_logs", logs)
    monkeypatch.setattr("streams.namespace.Replica", lambda *_: replica)
    loop = asyncio.get_running_loop()
    settings = SimpleNamespace(append_timeout_us=1)
    client: Any = SimpleNamespace(loop=loop, future=loop.create_future, settings=settings, log_tree=None)
    async with asyncio.timeout(10), Namespace(client) as namespace:
        yield namespace, replica


def name_of(change: StreamChange) -> str | None:
    return None if change.info is None else change.info.name


async def waiting(namespace: Namespace, watchers: int) -> None:
    """Until so many wait for a change."""
    while len(namespace._waiting) < watchers:  # noqa: ASYNC110 - of tasks that do not say
        await asyncio.sleep(0)


async def test_one_that_goes_takes_no_other_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as (namespace, replica):
        stays, goes = asyncio.ensure_future(anext(namespace.watch())), asyncio.ensure_future(anext(namespace.watch()))
        await waiting(namespace, 2)
        goes.cancel()
        await asyncio.gather(goes, return_exceptions=True)
        replica.apply(CreateStream("a"))
        assert name_of(await stays) == "a"


async def test_what_a_snapshot_brought_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    later = NamespaceState()
    applied(later, 1, CreateStream("a"))
    applied(later, 2, CreateStream("b"))
    applied(later, 3, DeleteStream("a"))
    async with opened(monkeypatch) as (namespace, replica):
        replica.apply(CreateStream("a"))
        async with aclosing(namespace.watch()) as changes:
            assert name_of(await anext(changes)) == "a"
            replica.replace(later)
            told = [await anext(changes), await anext(changes)]
            assert [(each.number, name_of(each)) for each in told] == [(1, None), (2, "b")]
            replica.apply(CreateStream("c"))
            assert name_of(await anext(changes)) == "c"


async def test_it_ends_with_the_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as (namespace, replica):
        waits = asyncio.ensure_future(anext(namespace.watch(), None))
        await waiting(namespace, 1)
        replica.apply(CreateStream("a"))
        replica.apply(CreateStream("b"))
        told = []
        async for change in namespace.watch():
            told.append(name_of(change))
            await namespace.close()
        assert told == ["a"]
        assert await waits is None
        await namespace.wait_for_change(None)
