"""The blocking twin of the client, for scripts, notebooks and executors. Same names, no `await`.

All blocking clients of a process share one event loop in one background thread. Calls may come from any thread; each waits for its outcome.
A client that its program forgets to close is closed when it is collected, or at the end of the program: what its writers hold is
acknowledged first, for `LAST_FLUSH` seconds at most, and what is not acknowledged then is told in a warning.

Callbacks of the futures that writers return run in that thread: they must not call a blocking client, which is refused.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from client.arguments import payloads_argument
from client.buffered_writer import BufferedWriter
from client.client import Client
from client.encryption import EncryptionKeys
from client.guards import Position
from client.log_tree.client_log_tree import LogTreeEntry
from client.look_up.answers import LogHead, LogTail
from client.look_up.segments import LogSegment
from client.public_names import PublicNames
from client.receipt import Receipt, Receipts
from client.replica.commands import StateVersion
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from client.read.batch import RecordBatch
    from client.read.items import Item

T = TypeVar("T")
LAST_FLUSH = 5.0
"""Seconds that a program which ends may be held up by records of a client that it did not close."""
log_ = logging.getLogger("logdevice.client")


class Background:
    """The loop thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closings: set[Future[None]] = set()
        """Of clients that were forgotten."""
        self.clients: weakref.WeakSet[SyncClient] = weakref.WeakSet()
        """Those that were not collected."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop; its thread is started on first use."""
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="logdevice client", daemon=True)
                self._thread.start()
                atexit.register(self._stop, self._loop, self._thread)
            return self._loop

    def _stop(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        """The end of the program."""
        if not thread.is_alive():
            return  # of a parent process
        for client in list(self.clients):
            client.forget()
        wait(self._closings, timeout=LAST_FLUSH + 1)
        wait([asyncio.run_coroutine_threadsafe(_cancel_tasks(), loop)], timeout=1)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=5)
        if not thread.is_alive():
            loop.close()

    def close_forgotten(self, client: Client, writers: list[BufferedWriter]) -> None:
        """Close a client without waiting for it; `writers` are flushed. May be called by the garbage collector in any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        closing = asyncio.run_coroutine_threadsafe(flush_and_close(client, writers), loop)
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait; interrupting the wait cancels it.

        Raises:
            LogDeviceError: INVALID_PARAM: this is the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise LogDeviceError(
                Status.INVALID_PARAM,
                "a callback of a future runs in the thread that all blocking clients share, and must not wait there: call the client from a thread of your own",
            )
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_background = Background()


class SyncClient(PublicNames):
    """`client.client.Client` without `await`: ``with SyncClient("cluster.toml") as client: client.append(log, b"...")``."""

    INTERNAL_NAMES = frozenset({"forget", "open_writers"})

    def __init__(self, config: str | Path | ClusterConfig | None = None, *, name: str = "", **options: Any) -> None:
        """Connects when it is needed; see `Client` for the arguments."""
        self._client = _background.run(_open(config, name, options))
        self.open_writers: list[BufferedWriter] = []
        """What is flushed when the client is forgotten."""
        self._forgotten = weakref.finalize(self, _background.close_forgotten, self._client, self.open_writers)
        # at the end of the program the loop, which closing takes, might be stopped before finalizers run: `Background` sees to both
        self._forgotten.atexit = False
        _background.clients.add(self)

    def __repr__(self) -> str:
        return repr(self._client).replace("<Client", "<SyncClient", 1)

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Fail what is under way and disconnect."""
        self._forgotten.detach()
        _background.run(self._client.close())

    def forget(self) -> None:
        """Close it as one that is collected, without waiting; nothing when it is closed."""
        if self._forgotten.detach() is not None:  # not called, which does nothing when the program ends
            _background.close_forgotten(self._client, self.open_writers)

    @property
    def asynchronous(self) -> Client:
        """The client that does the work; it belongs to the loop of the background thread."""
        return self._client

    @property
    def config(self) -> ClusterConfig:
        """The cluster file in use."""
        return self._client.config

    def run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run ``work(client)`` on the loop and wait for what it returns: for many operations at once."""

        async def begin() -> T:
            return await work(self._client)

        return _background.run(begin())

    def append(
        self,
        log: int | str,
        payload: bytes | bytearray | memoryview,
        *,
        key: bytes | None = None,
        timeout: float | None = None,
        synced: bool = False,
        txid: int | None = None,
        expect: Position | None = None,
        fence: int | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> Receipt:
        """Append one record and wait for its receipt."""

        async def work() -> Receipt:
            return await self._client.append(
                log,
                payload,
                key=key,
                timeout=timeout,
                synced=synced,
                txid=txid,
                expect=expect,
                fence=fence,
                encryption=encryption,
            )

        return _background.run(work())

    def append_many(
        self,
        log: int | str,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        keys: Iterable[bytes | None] | None = None,
        timeout: float | None = None,
        synced: bool = False,
        txids: Iterable[int] | None = None,
        expect: Position | None = None,
        fence: int | None = None,
        atomic: bool = False,
        encryption: EncryptionKeys | None = None,
    ) -> Receipts:
        """Append records and wait for all their receipts; see `Client.append_many`."""
        records = payloads_argument(payloads)  # in the caller's thread: an iterator may take its time

        async def work() -> Receipts:
            return await self._client.append_many(
                log,
                records,
                keys=keys,
                timeout=timeout,
                synced=synced,
                txids=txids,
                expect=expect,
                fence=fence,
                atomic=atomic,
                encryption=encryption,
            )

        return _background.run(work())

    def raise_fence(
        self,
        log: int | str,
        token: int,
        *,
        expect: Position | None = None,
        accept_loss: bool = False,
        timeout: float | None = None,
    ) -> Receipt:
        """Shut out who has no higher token; see `Client.raise_fence`."""

        async def work() -> Receipt:
            return await self._client.raise_fence(log, token, expect=expect, accept_loss=accept_loss, timeout=timeout)

        return _background.run(work())

    def mark_end(
        self, log: int | str, *, expect: Position | None = None, fence: int | None = None, timeout: float | None = None
    ) -> Receipt:
        """End the log for ever; see `Client.mark_end`."""

        async def work() -> Receipt:
            return await self._client.mark_end(log, expect=expect, fence=fence, timeout=timeout)

        return _background.run(work())

    def buffered_writer(self, **options: Any) -> SyncBufferedWriter:
        """A writer of batches; see `Client.buffered_writer`."""

        async def work() -> BufferedWriter:
            return self._client.buffered_writer(**options)

        writer = _background.run(work())
        self.open_writers.append(writer)
        return SyncBufferedWriter(writer, self)

    def reader(
        self, log: int | str, start: int = LSN.OLDEST, until: int | str | datetime = LSN.MAX, **options: Any
    ) -> SyncReader:
        """A reader of [start, until]; see `Client.reader`."""

        async def work() -> Any:
            return await self._client.reader(log, start, until, **options).__aenter__()

        return SyncReader(_background.run(work()), self)

    def merged_reader(self, *logs: int | str, **options: Any) -> SyncMergedReader:
        """A reader of several logs, which patterns like ``/team/*`` may name; see `Client.merged_reader`."""

        async def work() -> Any:
            return await self._client.merged_reader(*await self._client.known_logs(*logs), **options).__aenter__()

        return SyncMergedReader(_background.run(work()), self)

    def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        """See `Client.tail_lsn`."""
        return _background.run(self._client.tail_lsn(log, timeout=timeout))

    def known_tail(self, log: int | str, *, source: str = "quorum", timeout: float | None = None) -> LSN:
        """See `Client.known_tail`."""
        return _background.run(self._client.known_tail(log, source=source, timeout=timeout))

    def tail(self, log: int | str, *, timeout: float | None = None) -> LogTail:
        """See `Client.tail`."""
        return _background.run(self._client.tail(log, timeout=timeout))

    def head(self, log: int | str, *, timeout: float | None = None) -> LogHead:
        """See `Client.head`."""
        return _background.run(self._client.head(log, timeout=timeout))

    def segments(
        self, log: int | str, *, start: int = LSN.OLDEST, limit: int | None = None, timeout: float | None = None
    ) -> list[LogSegment]:
        """See `Client.segments`."""
        return _background.run(self._client.segments(log, start=start, limit=limit, timeout=timeout))

    def is_empty(self, log: int | str, *, timeout: float | None = None) -> bool:
        """See `Client.is_empty`."""
        return _background.run(self._client.is_empty(log, timeout=timeout))

    def find_transaction(self, log: int | str, txid: int, *, timeout: float | None = None) -> LSN:
        """See `Client.find_transaction`."""
        return _background.run(self._client.find_transaction(log, txid, timeout=timeout))

    def find_time(
        self, log: int | str, when: datetime | int, *, approximate: bool = False, timeout: float | None = None
    ) -> LSN:
        """See `Client.find_time`."""
        return _background.run(self._client.find_time(log, when, approximate=approximate, timeout=timeout))

    def find_key(self, log: int | str, key: bytes, *, timeout: float | None = None) -> LSN:
        """See `Client.find_key`."""
        return _background.run(self._client.find_key(log, key, timeout=timeout))

    def data_size(
        self,
        log: int | str,
        start: datetime | int | None = None,
        end: datetime | int | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """See `Client.data_size`."""
        return _background.run(self._client.data_size(log, start, end, timeout=timeout))

    def log_id(self, log: int | str, *, timeout: float | None = None) -> LogId:
        """The id of a log named by id or path; the cluster is asked before NOTFOUND.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM; TIMEDOUT when the log tree could not be asked.
        """
        return _background.run(self._client.known_log(log, timeout))

    def log_ids(self, *names: int | str, timeout: float | None = None) -> list[LogId]:
        """The logs of ids, paths and patterns like ``/team/*``: in that order, each once.

        Raises:
            LogDeviceError: as `log_id`.
        """
        return _background.run(self._client.known_logs(*names, timeout=timeout))

    def make_log_group(
        self, path: str, logs: int = 1, attributes: Mapping[str, Any] | None = None, **options: Any
    ) -> LogTreeEntry:
        """See `Client.make_log_group`."""
        return _background.run(self._client.make_log_group(path, logs, attributes, **options))

    def make_directory(self, path: str, attributes: Mapping[str, Any] | None = None, **options: Any) -> StateVersion:
        """See `Client.make_directory`."""
        return _background.run(self._client.make_directory(path, attributes, **options))

    def set_attributes(self, path: str, attributes: Mapping[str, Any] | None = None, **options: Any) -> StateVersion:
        """See `Client.set_attributes`."""
        return _background.run(self._client.set_attributes(path, attributes, **options))

    def rename(self, path: str, to: str, **options: Any) -> StateVersion:
        """See `Client.rename`."""
        return _background.run(self._client.rename(path, to, **options))

    def remove(self, path: str, **options: Any) -> None:
        """See `Client.remove`."""
        _background.run(self._client.remove(path, **options))

    def get_log_group(self, log: int | str, *, timeout: float | None = None) -> LogTreeEntry:
        """See `Client.get_log_group`."""
        return _background.run(self._client.get_log_group(log, timeout=timeout))

    def list_logs(self, path: str = "/", *, timeout: float | None = None) -> list[LogTreeEntry]:
        """See `Client.list_logs`."""
        return _background.run(self._client.list_logs(path, timeout=timeout))

    def trim(self, log: int | str, lsn: int, *, timeout: float | None = None) -> None:
        """See `Client.trim`."""
        _background.run(self._client.trim(log, lsn, timeout=timeout))


async def _open(config: str | Path | ClusterConfig | None, name: str, options: dict[str, Any]) -> Client:
    client = Client(config, name=name, **options)
    await client.start()
    return client


async def _cancel_tasks() -> None:
    """What threads that nobody waits for still have under way: the interpreter would tell of each."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def flush_and_close(client: Client, writers: list[BufferedWriter]) -> None:
    """Close a client that was forgotten, its writers first: what they could not flush is logged."""
    await asyncio.gather(*map(_close_forgotten_writer, writers))
    await client.close()


async def _close_forgotten_writer(writer: BufferedWriter) -> None:
    try:
        async with asyncio.timeout(LAST_FLUSH):
            await writer.close()
    except (TimeoutError, LogDeviceError) as error:
        why = str(error) or f"it took more than {LAST_FLUSH:g} s"
        log_.warning("a SyncClient was not closed, and not all records of a writer were acknowledged: %s", why)


def submit_taken(ready: Callable[[], Coroutine[Any, Any, None]], append: Callable[[], Awaitable[T]]) -> Future[T]:
    """Have a writer take records on the loop, once it is ready; the future gets what `append` awaits."""
    outcome: Future[T] = Future()

    def done(inner: asyncio.Future[T]) -> None:
        error = inner.exception()
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(inner.result())

    async def work() -> None:
        await ready()
        inner = append()
        assert isinstance(inner, asyncio.Future)
        inner.add_done_callback(done)

    _background.run(work())
    return outcome


class SyncBufferedWriter(PublicNames):
    """`BufferedWriter` without `await`. `append` and `append_many` wait while the writer is full, never for acknowledgements."""

    def __init__(self, writer: BufferedWriter, client: SyncClient) -> None:
        self._writer = writer
        self._client = client  # who holds a writer holds its client: it is not forgotten

    def __repr__(self) -> str:
        return repr(self._writer).replace("<", "<Sync", 1)

    def append(
        self,
        log: int | str,
        payload: bytes | bytearray | memoryview,
        *,
        key: bytes | None = None,
        synced: bool = False,
        txid: int | None = None,
        expect: Position | None = None,
        fence: int | None = None,
    ) -> Future[Receipt]:
        """Take one record; the future's ``result()`` waits for its receipt. `append_many` is far faster."""
        return self._take(
            lambda: self._writer.append(log, payload, key=key, synced=synced, txid=txid, expect=expect, fence=fence)
        )

    def append_many(
        self,
        log: int | str,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        keys: Iterable[bytes | None] | None = None,
        synced: bool = False,
        txids: Iterable[int] | None = None,
        expect: Position | None = None,
        fence: int | None = None,
        atomic: bool = False,
    ) -> Future[Receipts]:
        """Take records; the future's ``result()`` waits for all their receipts."""
        # What a caller's iterator does is done in the caller's thread: it may take its time.
        records: Any = payloads if type(payloads) is list else payloads_argument(payloads)
        known = None if keys is None else list(keys)
        numbers = None if txids is None else list(txids)
        return self._take(
            lambda: self._writer.append_many(
                log, records, keys=known, synced=synced, txids=numbers, expect=expect, fence=fence, atomic=atomic
            )
        )

    def _take(self, append: Callable[[], Awaitable[T]]) -> Future[T]:
        return submit_taken(self._writer.ready, append)

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises what failed."""
        _background.run(self._writer.flush())

    def close(self) -> None:
        """Flush, and take no more."""
        self.__exit__(None, None, None)

    def __enter__(self) -> SyncBufferedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer in self._client.open_writers:
            self._client.open_writers.remove(self._writer)
        _background.run(self._writer.__aexit__(kind, error, trace))


class _SyncReading(PublicNames):
    """What readers without `await` share."""

    def __init__(self, reader: Any, client: SyncClient) -> None:
        self._reader = reader
        self._client = client  # who holds a reader holds its client: it is not forgotten

    def __repr__(self) -> str:
        return repr(self._reader).replace("<", "<Sync", 1)

    def close(self) -> None:
        """Stop reading."""
        _background.run(self._reader.__aexit__(None, None, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncReader(_SyncReading):
    """A reader without `await`: iterate over it, or call `read`."""

    def read(self, max_records: int = 10_000, **options: Any) -> Any:
        """See `client.reader.Reader.read`."""
        return _background.run(self._reader.read(max_records=max_records, **options))

    def __iter__(self) -> Iterator[Item]:
        while True:
            batch = self.read()
            if not batch:
                return
            yield from batch

    @property
    def ended(self) -> bool:
        """See `client.reader.Reader.ended`."""

        async def work() -> bool:
            return bool(self._reader.ended)

        return _background.run(work())

    def proof(self) -> Any:
        """See `client.reader.Reader.proof`."""

        async def work() -> Any:
            return self._reader.proof()

        return _background.run(work())


class SyncMergedReader(_SyncReading):
    """A reader of several logs without `await`: iterate over its batches, or call `read`."""

    def read(self, max_records: int = 10_000) -> Any:
        """See `client.merged_reader.MergedReader.read`."""
        return _background.run(self._reader.read(max_records))

    def __iter__(self) -> Iterator[RecordBatch]:
        while (batch := self.read()) is not None:
            yield batch
