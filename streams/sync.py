"""The blocking twin of namespaces and streams, over a `SyncClient`. Same names, no `await`; calls may come from any thread."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, overload

from client.guards import Position
from client.read.items import Gap
from client.receipt import Receipt, Receipts
from client.replica.commands import StateVersion
from client.sync import SyncClient, submit_taken
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from streams.attributes import StreamAttributes
from streams.leases import Lease
from streams.namespace import Namespace, StreamChange, StreamInfo
from streams.reading import StreamReader, StreamReaderState
from streams.records import StreamBatch, StreamRecord
from streams.stream import OLDEST, Stream
from streams.stream_subscriptions import StreamSubscription, Subscription
from streams.subscription_reader import SubscriptionReader
from streams.sync_base import SyncBase
from streams.sync_group import SyncStreamGroup
from streams.upkeep.segments import StreamSegment
from streams.watching import OwnerChange, SegmentChange
from streams.writers import ExclusiveWriter, SharedWriter


class SyncNamespace(SyncBase):
    """`Namespace` without `await`: ``with SyncNamespace(client, "/streams") as namespace: namespace.open("orders")``."""

    def __init__(self, client: SyncClient, path: str = "/streams", **options: Any) -> None:
        """See `Namespace` for the arguments."""
        super().__init__(client)
        self._namespace = Namespace(client.asynchronous, path, **options)
        path = self._namespace.path
        self._namespace.how_to_open = (
            f'use "with SyncNamespace(client, {path!r}) as namespace", or call "namespace.start()"'
        )

    def __repr__(self) -> str:
        return repr(self._namespace).replace("<", "<Sync", 1)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, *, timeout: float | None = None) -> Self:
        """See `Namespace.start`: for notebooks, where one cell opens what others use, in place of ``with``. Returns the namespace itself."""
        self._run(lambda: self._namespace.start(timeout=timeout))
        return self

    def close(self) -> None:
        """See `Namespace.close`."""
        self._run(self._namespace.close)

    def create(self, name: str, **options: Any) -> SyncStream:
        """See `Namespace.create`."""
        return SyncStream(self._client, self._run(lambda: self._namespace.create(name, **options)))

    def open(self, name: str, *, timeout: float | None = None) -> SyncStream:
        """See `Namespace.open`."""
        return SyncStream(self._client, self._run(lambda: self._namespace.open(name, timeout=timeout)))

    def rename(self, name: str, to: str, **options: Any) -> None:
        """See `Namespace.rename`."""
        self._run(lambda: self._namespace.rename(name, to, **options))

    def delete(self, name: str, **options: Any) -> None:
        """See `Namespace.delete`."""
        self._run(lambda: self._namespace.delete(name, **options))

    def list(self, directory: str = "", *, timeout: float | None = None) -> list[StreamInfo]:
        """See `Namespace.list`."""
        return self._run(lambda: self._namespace.list(directory, timeout=timeout))

    def watch(self, directory: str = "") -> Iterator[StreamChange]:
        """See `Namespace.watch`; each step waits for the next change."""
        return self._follow(self._namespace.watch(directory))

    def subscriptions(
        self, subscription: str | None = None, *, timeout: float | None = None
    ) -> builtins.list[StreamSubscription]:
        """See `Namespace.subscriptions`."""
        return self._run(lambda: self._namespace.subscriptions(subscription, timeout=timeout))

    def group(self, subscription: str) -> SyncStreamGroup:
        """See `Namespace.group`."""
        return SyncStreamGroup(self._client, self._namespace.group(subscription))

    def delete_subscription(self, subscription: str, *, timeout: float | None = None) -> None:
        """See `Namespace.delete_subscription`."""
        self._run(lambda: self._namespace.delete_subscription(subscription, timeout=timeout))


class SyncStream(SyncBase):
    """`Stream` without `await`."""

    def __init__(self, client: SyncClient, stream: Stream) -> None:
        super().__init__(client)
        self._stream = stream

    def __repr__(self) -> str:
        return repr(self._stream).replace("<", "<Sync", 1)

    @property
    def name(self) -> str:
        """See `Stream.name`."""
        return self._stream.name

    @property
    def attributes(self) -> StreamAttributes:
        """What holds for it."""
        return self._stream.attributes

    @property
    def oldest(self) -> Position:
        """See `Stream.oldest`."""
        return OLDEST

    @property
    def min_active(self) -> Position:
        """See `Stream.min_active`."""
        return self._stream.min_active

    def writer(self, **options: Any) -> SyncStreamWriter:
        """See `Stream.writer`; it is open when this returns."""
        return SyncStreamWriter(self._client, self._run(lambda: self._stream.writer(**options).__aenter__()))

    def exclusive_writer(self, **options: Any) -> SyncExclusiveWriter:
        """See `Stream.exclusive_writer`; the stream is owned when this returns."""
        return SyncExclusiveWriter(
            self._client, self._run(lambda: self._stream.exclusive_writer(**options).__aenter__())
        )

    @overload
    def reader(self, start: Subscription, **options: Any) -> SyncSubscriptionReader: ...

    @overload
    def reader(self, start: Any = OLDEST, **options: Any) -> SyncStreamReader: ...

    def reader(self, start: Any = OLDEST, **options: Any) -> SyncStreamReader:
        """See `Stream.reader`; it is open when this returns."""
        reader = self._stream.reader(start, **options)
        self._run(reader.__aenter__)
        if isinstance(reader, SubscriptionReader):
            return SyncSubscriptionReader(self._client, reader)
        return SyncStreamReader(self._client, reader)

    def subscriptions(self, *, timeout: float | None = None) -> list[StreamSubscription]:
        """See `Stream.subscriptions`."""
        return self._run(lambda: self._stream.subscriptions(timeout=timeout))

    def commit(self, subscription: str, position: Position, **options: Any) -> StateVersion:
        """See `Stream.commit`."""
        return self._run(lambda: self._stream.commit(subscription, position, **options))

    def delete_subscription(self, subscription: str, *, timeout: float | None = None) -> None:
        """See `Stream.delete_subscription`."""
        self._run(lambda: self._stream.delete_subscription(subscription, timeout=timeout))

    def owner(self, *, timeout: float | None = None) -> Lease | None:
        """See `Stream.owner`."""
        return self._run(lambda: self._stream.owner(timeout=timeout))

    def first(self, **options: Any) -> StreamRecord | None:
        """See `Stream.first`."""
        return self._run(lambda: self._stream.first(**options))

    def last(self, **options: Any) -> StreamRecord | None:
        """See `Stream.last`."""
        return self._run(lambda: self._stream.last(**options))

    def count(self, start: Position | None = None, end: Position | None = None, **options: Any) -> int:
        """See `Stream.count`."""
        return self._run(lambda: self._stream.count(start, end, **options))

    def segments(self, **options: Any) -> list[StreamSegment]:
        """See `Stream.segments`."""
        return self._run(lambda: self._stream.segments(**options))

    def end(self, *, timeout: float | None = None) -> Position:
        """See `Stream.end`."""
        return self._run(lambda: self._stream.end(timeout=timeout))

    def watch(self, **options: Any) -> Iterator[SegmentChange | OwnerChange]:
        """See `Stream.watch`; each step waits for the next change."""
        return self._follow(self._stream.watch(**options))

    def last_confirmed(self, source: str = "sequencer", *, timeout: float | None = None) -> LSN:
        """See `Stream.last_confirmed`."""
        return self._run(lambda: self._stream.last_confirmed(source, timeout=timeout))

    def truncate(self, position: Position, *, timeout: float | None = None) -> None:
        """See `Stream.truncate`."""
        self._run(lambda: self._stream.truncate(position, timeout=timeout))

    def untruncate(self, *, timeout: float | None = None) -> None:
        """See `Stream.untruncate`."""
        self._run(lambda: self._stream.untruncate(timeout=timeout))

    def mark_end(self, *, timeout: float | None = None) -> None:
        """See `Stream.mark_end`."""
        self._run(lambda: self._stream.mark_end(timeout=timeout))


class SyncStreamWriter(SyncBase):
    """`SharedWriter` without `await`. Writes wait while the writer is full, never for acknowledgements: ``result()`` of the future does."""

    def __init__(self, client: SyncClient, writer: SharedWriter | ExclusiveWriter) -> None:
        super().__init__(client)
        self._writer = writer

    def __repr__(self) -> str:
        return repr(self._writer).replace("<", "<Sync", 1)

    def write(
        self, payload: bytes | bytearray | memoryview, *, txid: int | None = None, expect: Position | None = None
    ) -> Future[Receipt]:
        """See `SharedWriter.write`."""
        return submit_taken(self._writer.ready, lambda: self._writer.write(payload, txid=txid, expect=expect))

    def write_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        txids: Iterable[int] | None = None,
        expect: Position | None = None,
        atomic: bool = False,
    ) -> Future[Receipts]:
        """See `SharedWriter.write_many`."""
        # what the caller's iterators do is done in the caller's thread
        records, numbers = list(payloads), None if txids is None else list(txids)
        return submit_taken(
            self._writer.ready,
            lambda: self._writer.write_many(records, txids=numbers, expect=expect, atomic=atomic),
        )

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises what failed."""
        self._run(self._writer.flush)

    def close(self) -> None:
        """Flush, and take no more."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(lambda: self._writer.__aexit__(kind, error, trace))


class SyncExclusiveWriter(SyncStreamWriter):
    """`ExclusiveWriter` without `await`."""

    _writer: ExclusiveWriter

    @property
    def token(self) -> int:
        """The fence token."""
        return self._writer.token

    @property
    def last(self) -> StreamRecord | None:
        """See `ExclusiveWriter.last`."""
        return self._writer.last

    @property
    def lost(self) -> LogDeviceError | None:
        """See `ExclusiveWriter.lost`."""
        return self._writer.lost

    def mark_end(self, *, timeout: float | None = None) -> None:
        """See `ExclusiveWriter.mark_end`."""
        self._run(lambda: self._writer.mark_end(timeout=timeout))


class SyncStreamReader(SyncBase):
    """`StreamReader` without `await`: iterate over records, or call `read`. Who iterates gets a DATALOSS error where records were lost, and may begin
    another loop: it goes on behind them."""

    def __init__(self, client: SyncClient, reader: StreamReader) -> None:
        super().__init__(client)
        self._reader = reader
        self._items: Iterator[StreamRecord | Gap] = iter(())
        """Of the batch that is iterated over."""

    def __repr__(self) -> str:
        return repr(self._reader).replace("<", "<Sync", 1)

    @property
    def state(self) -> StreamReaderState:
        """See `StreamReader.state`."""
        return self._reader.state

    @property
    def why(self) -> str:
        """See `StreamReader.why`."""
        return self._reader.why

    def read(self, max_records: int = 1000, *, timeout: float | None = None) -> StreamBatch:
        """See `StreamReader.read`."""
        return self._run(lambda: self._reader.read(max_records, timeout=timeout))

    def __iter__(self) -> Iterator[StreamRecord]:
        while True:
            while (record := self._reader.next_of(self._items)) is not None:
                yield record
            if not (batch := self.read()):
                return
            self._items = batch.items()

    def close(self) -> None:
        """Stop reading."""
        self._run(self._reader.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncSubscriptionReader(SyncStreamReader):
    """`SubscriptionReader` without `await`."""

    _reader: SubscriptionReader

    @property
    def committed(self) -> Position | None:
        """See `SubscriptionReader.committed`."""
        return self._reader.committed

    def __iter__(self) -> Iterator[StreamRecord]:
        async def following() -> StreamRecord | None:
            return await anext(self._reader, None)

        while (record := self._run(following)) is not None:
            yield record  # one by one: what the caller has not come to is not committed

    def commit(self, *, timeout: float | None = None) -> None:
        """See `SubscriptionReader.commit`."""
        self._run(lambda: self._reader.commit(timeout=timeout))
