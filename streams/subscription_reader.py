"""Reads one stream for a subscription: begins behind what is committed, and commits what it handed out."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from client.encryption import EncryptionKeys
from client.guards import Position
from client.replica.commands import NOTHING, StateVersion
from logdevice_py.core.status import LogDeviceError, Status
from streams.reading import StreamReader
from streams.records import StreamBatch, StreamRecord, TxId
from streams.stream_subscriptions import Subscription
from streams.subscriptions.positions import last_position
from streams.subscriptions.subscriptions import name_argument

if TYPE_CHECKING:
    from streams.stream import Stream


class SubscriptionReader(StreamReader):
    """A `StreamReader` of a subscription. `commit` says that everything is handled that `read` returned, or the iteration gave, so far.

    One reader at a time makes progress: who commits while somebody else did so is told, and nothing falls back or is passed over. Several readers
    share streams by a group. What was handed out and not committed when a reader dies is handed out again.
    """

    def __init__(
        self,
        stream: Stream,
        subscription: Subscription,
        *,
        oldest: Position,
        until: Any,
        idle: Any,
        encryption: EncryptionKeys | None = None,
    ) -> None:
        """See `Stream.reader`."""
        start: Position | TxId | datetime = oldest if subscription.start is None else subscription.start
        super().__init__(stream, start, until=until, idle=idle, encryption=encryption)
        self._name = name_argument("subscription", subscription.name)
        self._version: StateVersion | None = None
        """Of the checkpoint behind which it reads; None: nobody looked."""
        self._handed_out: Position | None = None
        self._committed: Position | None = None
        self._unknown: set[Position] = set()
        """Positions of commits of which nothing is known."""

    async def __aenter__(self) -> SubscriptionReader:
        await super().__aenter__()
        return self

    @property
    def committed(self) -> Position | None:
        """The position of the subscription as far as this reader knows; None: nothing was committed."""
        return self._committed

    async def _place(self, timeout: float | None) -> Position:
        subscriptions = await self._stream.namespace.stream_subscriptions.opened(timeout)
        entry = await subscriptions.get(self._name, str(self._stream.number), timeout=timeout)
        self._version = NOTHING if entry is None else entry.version
        self._committed = None if entry is None else entry.position
        return await super()._place(timeout) if entry is None else entry.position.following

    async def read(self, max_records: int = 1000, *, timeout: float | None = None) -> StreamBatch:
        """As `StreamReader.read`."""
        batch = await super().read(max_records, timeout=timeout)
        if batch:
            self._note(last_position(batch.columns))
        return batch

    async def __anext__(self) -> StreamRecord:
        record = await super().__anext__()
        self._note(record.position)
        return record

    def _note(self, position: Position) -> None:
        self._handed_out = position if self._handed_out is None else max(self._handed_out, position)

    async def commit(self, *, timeout: float | None = None) -> None:
        """Everything that was handed out so far is handled. Does nothing when that is committed.

        Raises:
            LogDeviceError: VERSION_MISMATCH: somebody else has committed since this reader looked: it cannot commit any more, so open another one; FENCED: the
                stream belongs to a member of the subscription's group; NOTFOUND: the stream was deleted; TIMEDOUT, SHUTDOWN, DATALOSS with `maybe_applied`:
                call it again.
        """
        position = self._handed_out
        if position is None or (self._committed is not None and position <= self._committed):
            return
        while True:
            earlier = set(self._unknown)
            self._unknown.add(position)  # also when this call is cancelled
            try:
                version = await self._commit(position, timeout)
            except LogDeviceError as error:
                if error.maybe_applied:
                    raise
                self._unknown = earlier
                if error.status is not Status.VERSION_MISMATCH or not await self._is_own(timeout):
                    raise
                continue
            self._version, self._committed = version, position
            self._unknown.clear()
            return

    async def _commit(self, position: Position, timeout: float | None) -> StateVersion:
        return await self._stream.namespace.stream_subscriptions.commit(
            self._name, self._stream.number, position, expect=self._version, reset=False, timeout=timeout
        )

    async def _is_own(self, timeout: float | None) -> bool:
        """Whether the checkpoint has another version since an earlier commit of this reader, of which nothing was known, was applied. Somebody else's of
        the same position is taken for it: both are as far."""
        if not self._unknown:
            return False
        subscriptions = await self._stream.namespace.stream_subscriptions.opened(timeout)
        entry = await subscriptions.get(self._name, str(self._stream.number), timeout=timeout)
        if entry is None or entry.position not in self._unknown:
            return False
        self._version, self._committed = entry.version, entry.position
        return True
