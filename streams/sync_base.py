"""What the blocking twins of namespaces, streams and groups have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from client.client import Client
from client.public_names import PublicNames
from client.sync import SyncClient

T = TypeVar("T")


class SyncBase(PublicNames):
    """What runs on the loop of a client's background thread."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def begin(client: Client) -> T:
            return await work()

        return self._client.run(begin)

    def _follow(self, changes: AsyncIterator[T]) -> Iterator[T]:
        """Changes as they come: each step waits for the next one."""

        async def following() -> T | None:
            return await anext(changes, None)

        while (change := self._run(following)) is not None:
            yield change
