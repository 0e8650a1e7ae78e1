"""The blocking twin of groups of a namespace's subscriptions. Same names, no `await`; calls may come from any thread.

Heartbeats run in the background thread, so an application that handles a batch for long does not lose its streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from client.sync import SyncClient
from streams.stream_group import StreamGroup, StreamGroupBatch, StreamGroupReader
from streams.stream_subscriptions import StreamSubscription
from streams.subscriptions.group import MemberEntry
from streams.sync_base import SyncBase


class SyncStreamGroup(SyncBase):
    """`StreamGroup` without `await`."""

    def __init__(self, client: SyncClient, group: StreamGroup) -> None:
        super().__init__(client)
        self._group = group

    def __repr__(self) -> str:
        return repr(self._group).replace("<", "<Sync", 1)

    @property
    def name(self) -> str:
        """Of the subscription."""
        return self._group.name

    def add_streams(self, streams: Iterable[str], *, timeout: float | None = None) -> None:
        """See `StreamGroup.add_streams`."""
        self._run(lambda: self._group.add_streams(streams, timeout=timeout))

    def remove_streams(self, streams: Iterable[str], *, timeout: float | None = None) -> None:
        """See `StreamGroup.remove_streams`."""
        self._run(lambda: self._group.remove_streams(streams, timeout=timeout))

    def streams(self, *, timeout: float | None = None) -> list[StreamSubscription]:
        """See `StreamGroup.streams`."""
        return self._run(lambda: self._group.streams(timeout=timeout))

    def members(self, *, timeout: float | None = None) -> list[MemberEntry]:
        """See `StreamGroup.members`."""
        return self._run(lambda: self._group.members(timeout=timeout))

    def member(self, name: str, **options: Any) -> SyncStreamGroupReader:
        """See `StreamGroup.member`; it has joined when the block is entered."""
        return SyncStreamGroupReader(self._client, self._group.member(name, **options))


class SyncStreamGroupReader(SyncBase):
    """`StreamGroupReader` without `await`: iterate over batches."""

    def __init__(self, client: SyncClient, reader: StreamGroupReader) -> None:
        super().__init__(client)
        self._reader = reader

    def __repr__(self) -> str:
        return repr(self._reader).replace("<", "<Sync", 1)

    @property
    def name(self) -> str:
        """Of the member."""
        return self._reader.name

    @property
    def streams(self) -> dict[str, int]:
        """See `StreamGroupReader.streams`."""
        return self._reader.streams

    @property
    def joins(self) -> int:
        """See `StreamGroupReader.joins`."""
        return self._reader.joins

    def __enter__(self) -> Self:
        self._run(self._reader.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `StreamGroupReader.close`."""
        self._run(self._reader.close)

    def __iter__(self) -> Iterator[StreamGroupBatch]:
        async def following() -> StreamGroupBatch | None:
            return await anext(self._reader, None)

        while (batch := self._run(following)) is not None:
            yield batch

    def commit(self, batch: StreamGroupBatch | None = None, *, timeout: float | None = None) -> None:
        """See `StreamGroupReader.commit`."""
        self._run(lambda: self._reader.commit(batch, timeout=timeout))

    def done(self, batch: StreamGroupBatch) -> None:
        """See `StreamGroupReader.done`."""

        async def done() -> None:
            self._reader.done(batch)

        self._run(done)

    def waiting_for(self) -> str:
        """See `StreamGroupReader.waiting_for`."""
        return self._reader.waiting_for()
