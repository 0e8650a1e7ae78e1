"""From where clients use a cluster: from this process' own network, or from a machine of their own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from client.client import Client
from client.read.batch import RecordBatch
from client.receipt import Receipt
from logdevice_py.core.ids import LogId

T = TypeVar("T")
_CLONE_NEWNET: Final = 0x40000000


class PlacedWriter(Protocol):
    """What is used of a BufferedWriter."""

    async def append_many(self, log: LogId, payloads: Sequence[bytes]) -> Sequence[Receipt]: ...


class PlacedReader(Protocol):
    """What is used of a reader."""

    async def read(self, max_records: int) -> RecordBatch: ...


class PlacedClient(Protocol):
    """What is used of a client."""

    async def append(self, log: LogId, payload: bytes) -> Receipt: ...

    def buffered_writer(self, *, timeout: str) -> AbstractAsyncContextManager[PlacedWriter]: ...

    def reader(self, log: LogId) -> AbstractAsyncContextManager[PlacedReader]: ...

    async def close(self) -> None: ...


class ClientPlace(Protocol):
    """Where clients are."""

    name: str
    """Part of payloads; empty for this process' own."""

    async def client(self, file: str, *, name: str, seed: int) -> PlacedClient:
        """One that has been started."""


class _Here:
    name = ""

    async def client(self, file: str, *, name: str, seed: int) -> PlacedClient:
        client = Client(file, name=name, seed=seed)
        await client.start()
        return client  # type: ignore[return-value]  # more is possible with a client than is used here


HERE: Final[ClientPlace] = _Here()


class FarPlace:
    """A network namespace: a thread whose sockets are there, with an event loop for clients. They are used from the loop that made the place."""

    def __init__(self, name: str, namespace: str, location: str) -> None:
        """
        Args:
            location: what its clients say where they are.
        """
        self.name = name
        self._namespace = namespace
        self._location = location
        self._loop = asyncio.new_event_loop()
        self._entered = threading.Event()
        self._trouble: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"place {name}", daemon=True)

    def open(self) -> None:
        """Start the thread. OSError: it may not enter the namespace."""
        self._thread.start()
        self._entered.wait()
        if self._trouble is not None:
            raise self._trouble

    def close(self) -> None:
        """End it, once its clients are closed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        try:
            with open(f"/run/netns/{self._namespace}", "rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self._namespace)
        except OSError as error:
            self._trouble = error
            return
        finally:
            self._entered.set()
        self._loop.run_forever()

    async def do(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call something in the thread, and wait for what it gives. Calls begin in the order in which they are made."""

        async def run() -> T:
            return await function()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))

    async def client(self, file: str, *, name: str, seed: int) -> PlacedClient:
        async def make() -> Client:
            client = Client(file, name=name, seed=seed, location=self._location)
            await client.start()
            return client

        return _FarClient(self, await self.do(make))


class _FarClient:
    """A client in the thread of its place."""

    def __init__(self, place: FarPlace, client: Client) -> None:
        self._place = place
        self._client = client

    async def append(self, log: LogId, payload: bytes) -> Receipt:
        return await self._place.do(lambda: self._client.append(log, payload))

    @asynccontextmanager
    async def _entered(self, make: Callable[[], Any]) -> AsyncIterator[Any]:
        async def enter() -> tuple[Any, Any]:
            manager = make()
            return manager, await manager.__aenter__()

        manager, entered = await self._place.do(enter)
        try:
            yield entered
        finally:
            await self._place.do(lambda: manager.__aexit__(None, None, None))

    @asynccontextmanager
    async def buffered_writer(self, *, timeout: str) -> AsyncIterator[PlacedWriter]:
        async with self._entered(lambda: self._client.buffered_writer(timeout=timeout)) as writer:
            yield _FarWriter(self._place, writer)

    @asynccontextmanager
    async def reader(self, log: LogId) -> AsyncIterator[PlacedReader]:
        async with self._entered(lambda: self._client.reader(log)) as reader:
            yield _FarReader(self._place, reader)

    async def close(self) -> None:
        await self._place.do(self._client.close)


class _FarWriter:
    def __init__(self, place: FarPlace, writer: PlacedWriter) -> None:
        self._place = place
        self._writer = writer

    async def append_many(self, log: LogId, payloads: Sequence[bytes]) -> Sequence[Receipt]:
        return await self._place.do(lambda: self._writer.append_many(log, payloads))


class _FarReader:
    def __init__(self, place: FarPlace, reader: PlacedReader) -> None:
        self._place = place
        self._reader = reader

    async def read(self, max_records: int) -> RecordBatch:
        return await self._place.do(lambda: self._reader.read(max_records=max_records))
