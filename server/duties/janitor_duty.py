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

    async def look(self) -> bool:
        """Look once: whether any namespace takes a janitor.

        Raises:
            LogDeviceError: a namespace cannot be read.
        """
        tree = self._client.log_tree
        paths = [] if tree is None else [each.path for each in tree.view.state.groups() if not each.removing]
        found = namespaces_of(paths)
        for path in [each for each in self._namespaces if each not in found]:
            await self._leave(path)
        for path in found:
            if path not in self._namespaces:
                namespace = Namespace(self._client, path, create=False)
                try:
                    await namespace.start()
                except LogDeviceError as error:
                    if error.status is Status.NOTFOUND:  # it was removed since
                        continue
                    raise
                self._namespaces[path] = namespace
            await self._keep(path)
        return bool(self._janitors)

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
        LogDeviceError: a namespace cannot be read.
    """
    janitors = NamespaceJanitors(client, owner, say)
    try:
        is_needed = await janitors.look()
        while is_needed:
            await asyncio.sleep(pause)
            is_needed = await janitors.look()
    finally:
        await janitors.close()
