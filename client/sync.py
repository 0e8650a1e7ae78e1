"""The blocking twin of the client, for scripts, notebooks and executors. Same names, no `await`.

All blocking clients of a process share one event loop in one background thread. Calls may come from any thread; each waits for its outcome.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.receipt import Receipt, Receipts
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.lsn import LSN

if TYPE_CHECKING:
    from client.read.items import Item

T = TypeVar("T")


class _Background:
    """The loop thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; its thread is started on first use."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="logdevice client", daemon=True)
                self._thread.start()
                atexit.register(self._stop, self._loop, self._thread)
            return self._loop

    @staticmethod
    def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=5)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait; interrupting the wait cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_background = _Background()


class SyncClient:
    """`client.client.Client` without `await`: ``with SyncClient("cluster.toml") as client: client.append(log, b"...")``."""

    def __init__(self, config: str | Path | ClusterConfig, *, name: str = "", **options: Any) -> None:
        """Connects when it is needed; see `Client` for the arguments."""
        self._client = _background.run(_open(config, name, options))

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Fail what is under way and disconnect."""
        _background.run(self._client.close())

    @property
    def config(self) -> ClusterConfig:
        """The cluster file in use."""
        return self._client.config

    def append(self, log: int | str, payload: bytes, *, timeout: float | None = None) -> Receipt:
        """Append one record and wait for its receipt."""

        async def work() -> Receipt:
            return await self._client.append(log, payload, timeout=timeout)

        return _background.run(work())

    def buffered_writer(self, **options: Any) -> SyncBufferedWriter:
        """A writer of batches; see `Client.buffered_writer`."""

        async def work() -> BufferedWriter:
            return self._client.buffered_writer(**options)

        return SyncBufferedWriter(_background.run(work()))

    def reader(self, log: int | str, start: int = LSN.OLDEST, until: int = LSN.MAX, **options: Any) -> SyncReader:
        """A reader of [start, until]; see `Client.reader`."""

        async def work() -> Any:
            reader = self._client.reader(log, start, until, **options)
            return await reader.__aenter__()

        return SyncReader(_background.run(work()))

    def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        """See `Client.tail_lsn`."""
        return _background.run(self._client.tail_lsn(log, timeout=timeout))

    def trim(self, log: int | str, lsn: int, *, timeout: float | None = None) -> None:
        """See `Client.trim`."""
        _background.run(self._client.trim(log, lsn, timeout=timeout))


async def _open(config: str | Path | ClusterConfig, name: str, options: dict[str, Any]) -> Client:
    client = Client(config, name=name, **options)
    await client.start()
    return client


class SyncBufferedWriter:
    """`BufferedWriter` without `await`. `append` and `append_many` wait while the writer is full, never for acknowledgements."""

    def __init__(self, writer: BufferedWriter) -> None:
        self._writer = writer

    def append(self, log: int | str, payload: bytes) -> Future[Receipt]:
        """Take one record; the future's ``result()`` waits for its receipt. `append_many` is far faster."""
        return self._take(lambda: self._writer.append(log, payload))

    def append_many(self, log: int | str, payloads: Sequence[bytes]) -> Future[Receipts]:
        """Take records; the future's ``result()`` waits for all their receipts."""
        return self._take(lambda: self._writer.append_many(log, payloads))

    def _take(self, append: Callable[[], Awaitable[T]]) -> Future[T]:
        outcome: Future[T] = Future()

        def done(inner: asyncio.Future[T]) -> None:
            error = inner.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(inner.result())

        async def work() -> None:
            await self._writer.ready()
            inner = append()
            assert isinstance(inner, asyncio.Future)
            inner.add_done_callback(done)

        _background.run(work())
        return outcome

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises what failed."""
        _background.run(self._writer.flush())

    def close(self) -> None:
        """Flush, and take no more."""
        _background.run(self._writer.close())

    def __enter__(self) -> SyncBufferedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _background.run(self._writer.__aexit__(kind, error, trace))


class SyncReader:
    """A reader without `await`: iterate over it, or call `read`."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def read(self, max_records: int = 10_000, **options: Any) -> Any:
        """See `client.reader.Reader.read`."""
        return _background.run(self._reader.read(max_records=max_records, **options))

    def __iter__(self) -> Iterator[Item]:
        while True:
            batch = self.read()
            if not batch:
                return
            yield from batch

    def proof(self) -> Any:
        """See `client.reader.Reader.proof`."""

        async def work() -> Any:
            return self._reader.proof()

        return _background.run(work())

    def close(self) -> None:
        """Stop reading."""
        _background.run(self._reader.__aexit__(None, None, None))

    def __enter__(self) -> SyncReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
