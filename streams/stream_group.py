"""Groups of a namespace's subscriptions: members share streams, which they know by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from client.guards import START, Position
from client.public_names import PublicNames
from client.read.items import Gap
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import StreamAttributes
from streams.records import StreamBatch, StreamRecord
from streams.state import StreamPhase
from streams.stream_subscriptions import StreamSubscription
from streams.subscriptions.group import GroupBatch, GroupReader, MemberEntry
from streams.subscriptions.positions import before
from streams.subscriptions.subscriptions import name_argument

if TYPE_CHECKING:
    from streams.namespace import Namespace


class StreamGroup(PublicNames):
    """The group of a subscription, as ``namespace.group("billing")`` gives it. Making it changes nothing: a group is there from when it has a stream or a member."""

    def __init__(self, namespace: Namespace, name: str) -> None:
        """See `Namespace.group`."""
        self.name = name_argument("group", name)
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<StreamGroup {self.name} of {self._namespace.path}>"

    async def add_streams(self, streams: Iterable[str], *, timeout: float | None = None) -> None:
        """Share these streams too, from here on. Those that the group has stay as they are, and all stay when they are renamed.

        Args:
            streams: their names.
            timeout: seconds.

        Raises:
            LogDeviceError: NOTFOUND: there is no such stream, or it was deleted meanwhile; NOSPC; TIMEDOUT with `maybe_applied`.
        """
        opened = [await self._namespace.open(name, timeout=timeout) for name in _names(streams)]
        group = await self._namespace.stream_subscriptions.group(self.name, timeout)
        await group.add_streams({str(stream.number): stream.log for stream in opened}, timeout=timeout)
        await self._namespace.current(timeout=timeout)
        for stream in opened:
            entry = self._namespace.state.streams.get(stream.number)
            if (
                entry is None or entry.phase is StreamPhase.DELETING
            ):  # perhaps after who deleted it had looked at groups
                await self._namespace.stream_subscriptions.forget(stream.number, timeout)
                raise LogDeviceError(Status.NOTFOUND, f"stream {stream.number} was deleted meanwhile", retriable=False)

    async def remove_streams(self, streams: Iterable[str], *, timeout: float | None = None) -> None:
        """Share these streams no more: members that handle them find themselves fenced at once. Positions stay.

        Raises:
            LogDeviceError: NOTFOUND: there is no such stream, or the group has none of them; TIMEDOUT with `maybe_applied`.
        """
        opened = [await self._namespace.open(name, timeout=timeout) for name in _names(streams)]
        group = await self._namespace.stream_subscriptions.group(self.name, timeout)
        await group.remove_streams([str(stream.number) for stream in opened], timeout=timeout)

    async def streams(self, *, timeout: float | None = None) -> list[StreamSubscription]:
        """The streams, who has them and how far they are, as it is at this moment, in order of names."""
        entries = await self._namespace.subscriptions(self.name, timeout=timeout)
        return [entry for entry in entries if entry.is_shared]

    async def members(self, *, timeout: float | None = None) -> list[MemberEntry]:
        """The members as they are at this moment, in order of names."""
        group = await self._namespace.stream_subscriptions.group(self.name, timeout)
        return await group.members(timeout=timeout)

    def member(self, name: str, **options: Any) -> StreamGroupReader:
        """A member that is to join: ``async with group.member("host1") as member``, then ``async for batch in member``.

        Args:
            name: of the member. A second one of the same name takes over from the first.
            options: `start`, `ttl`, `handover` and `max_records` as of `streams.subscriptions.group.Group.member`.
        """
        return StreamGroupReader(self._namespace, self.name, name_argument("member", name), options)


class StreamGroupBatch:
    """Records of one stream that a member got, in order."""

    __slots__ = ("group_batch", "number", "records", "stream")

    def __init__(self, stream: str, number: int, records: StreamBatch, group_batch: GroupBatch) -> None:
        self.stream = stream
        """The stream's name when the batch was handed out."""
        self.number = number
        """The stream's number, which stays when it is renamed."""
        self.records = records
        self.group_batch = group_batch
        """As the group knows it."""

    def __repr__(self) -> str:
        return f"<StreamGroupBatch of {self.stream}, token {self.token}, up to {self.last}: {len(self)} records>"

    @property
    def token(self) -> int:
        """Of the assignment. Whoever writes what he makes of the records elsewhere keeps the greatest token with it, and takes nothing with a lower one."""
        return self.group_batch.token

    @property
    def last(self) -> Position:
        """What is committed with the batch."""
        return self.group_batch.last

    @property
    def payloads(self) -> list[bytes | None]:
        """Of each record; None: it was written damaged."""
        return self.records.payloads

    @property
    def losses(self) -> list[Gap]:
        """Where records may have been that cannot be had any more."""
        return self.records.losses

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[StreamRecord]:
        return iter(self.records)


class StreamGroupReader(PublicNames):
    """A member of a group: hands out batches of the streams that it has at present. What is promised is that of
    `streams.subscriptions.group.GroupReader`. Records that were truncated before a stream came to the member are not handed out."""

    def __init__(self, namespace: Namespace, group: str, name: str, options: dict[str, Any]) -> None:
        """See `StreamGroup.member`."""
        self.name = name
        self._namespace = namespace
        self._group = group
        self._options = options
        self._opened: GroupReader | None = None

    def __repr__(self) -> str:
        return f"<StreamGroupReader: member {self.name} of group {self._group} of {self._namespace.path}>"

    @property
    def _reader(self) -> GroupReader:
        if self._opened is None:
            text = 'the member has not joined: use "async with group.member(name) as member"'
            raise LogDeviceError(Status.SHUTDOWN, text, retriable=False)
        return self._opened

    async def __aenter__(self) -> StreamGroupReader:
        group = await self._namespace.stream_subscriptions.group(self._group, None)
        opened = group.member(self.name, not_before=self._truncated, **self._options)
        await opened.__aenter__()
        self._opened = opened
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave: others get the streams at once. Harmless when called again."""
        if self._opened is not None:
            await self._opened.close()

    def _truncated(self, key: str) -> Position:
        """What counts as handled, since it is truncated."""
        entry = self._namespace.state.streams.get(int(key))
        return before(START if entry is None else entry.min_active)

    @property
    def streams(self) -> dict[str, int]:
        """The names of the streams that it has at present, and the tokens of their assignments."""
        return {self._namespace.name_of(int(key)): token for key, token in self._reader.streams.items()}

    @property
    def joins(self) -> int:
        """How often it joined: more than once, as others took it for dead."""
        return self._reader.joins

    def __aiter__(self) -> StreamGroupReader:
        return self

    async def __anext__(self) -> StreamGroupBatch:
        while True:
            batch = await anext(self._reader)
            number = int(batch.stream)
            entry = self._namespace.state.streams.get(number)
            if entry is None:
                self._reader.done(batch)  # it was deleted, and nobody commits anything of it
                continue
            kind = StreamAttributes.from_mapping(entry.attributes).txid
            return StreamGroupBatch(entry.name, number, StreamBatch(batch.records, kind, None), batch)

    async def commit(self, batch: StreamGroupBatch | None = None, *, timeout: float | None = None) -> None:
        """Commit the position of a batch and of all before it of its stream; None: of everything that was handed out.

        Raises:
            LogDeviceError: FENCED: another member has a stream by now, and gets the records again, or the stream was deleted or removed; what was committed of
                others holds. TIMEDOUT, SHUTDOWN, DATALOSS with `maybe_applied`.
        """
        await self._reader.commit(None if batch is None else batch.group_batch, timeout=timeout)

    def done(self, batch: StreamGroupBatch) -> None:
        """The application has handled a batch and all before it of its stream, and stored its position itself."""
        self._reader.done(batch.group_batch)

    def waiting_for(self) -> str:
        """What holds the member up at this moment, for people."""
        return self._reader.waiting_for()


def _names(streams: Iterable[str]) -> list[str]:
    if isinstance(streams, str):
        raise LogDeviceError(Status.INVALID_PARAM, f"streams is {streams!r}; it is a list of names")
    return list(dict.fromkeys(streams))
