"""Is the janitor of all namespaces in which a stream takes one: what `ldstream janitor` does, by a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from client.client import Client
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import StreamAttributes
from streams.namespace import Namespace
from streams.own_logs import namespaces_of
from streams.state import StreamPhase
from streams.upkeep.janitor import Janitor

PAUSE: Final = 15.0
"""Seconds between two looks at which namespaces there are."""
_ENDS: Final = frozenset({Status.ACCESS, Status.SHUTDOWN})
"""Of the client: it is no better with another namespace."""


class NamespaceJanitors:
    """Follows namespaces, and keeps a janitor running for each that takes one. Another process that holds a role is left alone until it shows no life."""

    def __init__(self, client: Client, owner: str, say: Callable[[str], None]) -> None:
        """
        Args:
            owner: how the janitors call themselves.
        """
        self._client = client
        self._owner = owner
        self._say = say
        self._namespaces: dict[str, Namespace] = {}
        self._janitors: dict[str, asyncio.Task[None]] = {}
        self._unread: dict[str, LogDeviceError] = {}
        """Namespaces that could not be read, and why."""

    async def look(self) -> bool:
        """Look once: whether any namespace takes a janitor. One that cannot be read does not stop the janitors of others, and is read at the next look.

        Raises:
            LogDeviceError: ACCESS, SHUTDOWN; otherwise: a namespace cannot be read, and no other takes a janitor.
        """
        tree = self._client.log_tree
        paths = [] if tree is None else [each.path for each in tree.view.state.groups() if not each.removing]
        found = namespaces_of(paths)
        for path in [each for each in self._namespaces if each not in found]:
            await self._leave(path)
        before, self._unread = self._unread, {}
        for path in sorted(found, key=before.__contains__):  # those that may have to be waited for come last
            if path in self._namespaces or await self._open(path):
                await self._keep(path)
        for path, error in self._unread.items():
            if str(before.get(path, "")) != str(error):
                self._say(f"cannot read {path}, whose streams have no janitor of this node: {error}")
            if not self._janitors:
                raise error
        return bool(self._janitors)

    async def _open(self, path: str) -> bool:
        """Whether a namespace can be read."""
        namespace = Namespace(self._client, path, create=False)
        try:
            await namespace.start()
        except LogDeviceError as error:
            if error.status in _ENDS:
                raise
            if error.status is not Status.NOTFOUND:  # else it was removed since
                self._unread[path] = error
            return False
        self._namespaces[path] = namespace
        return True

    async def _keep(self, path: str) -> None:
        namespace, running = self._namespaces[path], self._janitors.get(path)
        wanted = any(
            entry.phase is StreamPhase.LIVE and StreamAttributes.from_mapping(entry.attributes).for_janitor
            for entry in namespace.state.streams.values()
        )
        if running is not None and running.done() and (error := running.exception()) is not None:
            self._say(f"was the janitor of {path} until that failed: {error}")
        if wanted and (running is None or running.done()):
            self._say(f"is the janitor of {path}, unless somebody is")
            janitor = Janitor(namespace, owner=self._owner)
            self._janitors[path] = asyncio.create_task(janitor.run(), name=f"janitor of {path}")
        elif running is not None and not wanted:
            await self._dismiss(path)

    async def _dismiss(self, path: str) -> None:
        task = self._janitors.pop(path, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _leave(self, path: str) -> None:
        await self._dismiss(path)
        await self._namespaces.pop(path).close()

    async def close(self) -> None:
        """End the janitors, which let the next ones in."""
        for path in list(self._namespaces):
            await self._leave(path)


async def see_to_namespaces(
    client: Client, owner: str, *, say: Callable[[str], None] = lambda text: None, pause: float = PAUSE
) -> None:
    """Until no stream takes a janitor.

    Raises:
        LogDeviceError: as `NamespaceJanitors.look`.
    """
    janitors = NamespaceJanitors(client, owner, say)
    try:
        is_needed = await janitors.look()
        while is_needed:
            await asyncio.sleep(pause)
            is_needed = await janitors.look()
    finally:
        await janitors.close()
