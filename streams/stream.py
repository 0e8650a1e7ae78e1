"""One stream: what is asked of it, and what makes its writers and readers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, overload

from client.arguments import count_argument
from client.encryption import EncryptionKeys
from client.guard_arguments import position_argument
from client.guards import GuardError, Position
from client.public_names import PublicNames
from client.replica.commands import StateVersion
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_OLDEST, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import Flush, StreamAttributes, StreamWriters, duration_argument
from streams.commands import EndStream, StreamEnded, TruncateStream, UntruncateStream
from streams.leases import Lease
from streams.look_up import end_of_epoch
from streams.reading import StreamReader
from streams.records import StreamRecord, TxId
from streams.stream_subscriptions import StreamSubscription, Subscription
from streams.subscription_reader import SubscriptionReader
from streams.upkeep.segments import StreamSegment, listed_stream_segments, parts_to_count
from streams.watching import OwnerChange, SegmentChange, watch_stream
from streams.writers import ExclusiveWriter, SharedWriter

if TYPE_CHECKING:
    from streams.namespace import Namespace

OLDEST: Final = Position(LSN(LSN_OLDEST), 0)
SEQUENCER: Final = "sequencer"
STORAGE_NODES: Final = ("quorum", "any")
"""Who else can be asked how far the stream can be read."""
_WIDEN: Final = 16
"""Where the last record is looked for: in ranges that grow so much each time."""


class Stream(PublicNames):
    """A stream that was created or opened. It stays the same when it is renamed. Positions are those of its log: epoch, ESN, offset in the entry."""

    INTERNAL_NAMES = frozenset({"namespace", "end_by", "finish_end"})

    def __init__(self, namespace: Namespace, number: int) -> None:
        self.namespace = namespace
        self.number = number
        """Given once in its namespace."""
        entry = namespace.stream_entry(number)
        self.log: LogId = entry.log
        """That holds the records."""
        self.attributes = StreamAttributes.from_mapping(entry.attributes)

    def __repr__(self) -> str:
        name = self.namespace.name_of(self.number)
        return f"<Stream {name} of {self.namespace.path}: log {self.log}, {self.attributes.writers.value} writers>"

    @property
    def name(self) -> str:
        """As far as it is known here.

        Raises:
            LogDeviceError: NOTFOUND: it was deleted.
        """
        return self.namespace.stream_entry(self.number).name

    # Writing

    def writer(self, *, flush: Flush | None = None, encryption: EncryptionKeys | None = None) -> SharedWriter:
        """A writer beside others; see `SharedWriter`. Use it as an async context manager.

        Args:
            flush: when the writer sends what it has.
            encryption: records are encrypted, by the key that these are written with; transaction ids are not. Readers need the same keys.

        Raises:
            LogDeviceError: INVALID_PARAM: the stream has one owner at a time.
        """
        self._check_writers(StreamWriters.SHARED, "exclusive_writer(owner=...)")
        return SharedWriter(self, flush or Flush(), encryption)

    def exclusive_writer(
        self,
        *,
        owner: str,
        wait: str | float | timedelta | None = None,
        lease: str | float | timedelta = "5s",
        flush: Flush | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> ExclusiveWriter:
        """Own the stream, and write to it; see `ExclusiveWriter`. Use it as an async context manager, which waits until the stream is owned.

        Args:
            owner: how the caller calls itself, for others to see: ``"host:1"``.
            wait: how long to wait for another owner to release the stream, or to show no more life; None: for ever.
            lease: how long others wait for a sign of life before they take the stream over.
            flush: when the writer sends what it has.
            encryption: as in `writer`; what earlier owners wrote is read by these keys too.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        self._check_writers(StreamWriters.EXCLUSIVE, "writer()")
        return ExclusiveWriter(self, owner, wait=wait, lease=lease, flush=flush or Flush(), encryption=encryption)

    def _check_writers(self, wanted: StreamWriters, other: str) -> None:
        if self.attributes.writers is not wanted:
            has = self.attributes.writers.value
            raise LogDeviceError(Status.INVALID_PARAM, f"stream {self.name} has {has} writers: use {other}")

    async def owner(self, *, timeout: float | None = None) -> Lease | None:
        """Who owns an exclusive stream, as far as leases tell; None: nobody. Who shows no life for `lease_us` may lose it at any time."""
        await self.namespace.current(timeout=timeout)
        return self.namespace.stream_entry(self.number).lease

    async def mark_end(self, *, timeout: float | None = None) -> None:
        """End the stream: nothing follows, from nobody, for ever. Readers come to its end. One that somebody owns is ended by its owner:
        `ExclusiveWriter.mark_end`.

        Raises:
            LogDeviceError: FENCED: somebody owns it; NOTFOUND; TIMEDOUT with `maybe_applied`: readers go on with it.
        """
        await self.end_by(0, timeout)

    async def end_by(self, token: int, timeout: float | None) -> None:
        """End the stream as its owner with this token; 0: nobody owns it."""
        await self.namespace.propose(EndStream(self.number, token), timeout)
        await self.finish_end(timeout)

    async def finish_end(self, timeout: float | None) -> None:
        """End the log of a stream that is to end, and let readers know. Anybody may, at any time."""
        client = self.namespace.client
        token = self.namespace.stream_entry(self.number).last_token  # nobody gets another one
        try:
            await client.mark_end(self.log, fence=token or None, timeout=timeout)
        except GuardError as error:
            if error.status is not Status.ENDED:
                raise
        last = await client.tail_lsn(
            self.log, timeout=timeout
        )  # no record follows the end, so later answers tell of no others
        await self.namespace.propose(StreamEnded(self.number, last), timeout)

    # Reading

    @property
    def oldest(self) -> Position:
        """Before everything: readers begin at the first record that is not truncated."""
        return OLDEST

    @overload
    def reader(
        self,
        start: Subscription,
        *,
        until: Position | str | None = None,
        idle: str | float | timedelta | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> SubscriptionReader: ...

    @overload
    def reader(
        self,
        start: Position | TxId | datetime = OLDEST,
        *,
        until: Position | str | None = None,
        idle: str | float | timedelta | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> StreamReader: ...

    def reader(
        self,
        start: Position | TxId | datetime | Subscription = OLDEST,
        *,
        until: Position | str | None = None,
        idle: str | float | timedelta | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> StreamReader:
        """A reader from a place on; see `StreamReader`. Use it as an async context manager.

        Args:
            start: a position; ``TxId(7)``: the first record with this transaction id or a greater one; an aware datetime: the first record that is
                not older; ``Subscription("billing")``: behind what is committed, and the reader commits. What is truncated is passed over.
            until: before which position to end; ``"tail"``: with what can be read when reading begins; None: follow the stream.
            idle: raise `IdleReader` when nothing comes for so long.
            encryption: keys of records that are encrypted; None: those in the file that ``LOGDEVICE_KEYS_FILE`` names. `read` fails with NOKEY at a record
                whose key is not among them, with MISPLACED at one that somebody repeated or moved, and stays there.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        if isinstance(start, Subscription):
            return SubscriptionReader(self, start, oldest=OLDEST, until=until, idle=idle, encryption=encryption)
        return StreamReader(self, start, until=until, idle=idle, encryption=encryption)

    # Subscriptions

    async def subscriptions(self, *, timeout: float | None = None) -> list[StreamSubscription]:
        """How far each subscription is in this stream, with the age of its last commit, as it is at this moment, in order of names."""
        return await self.namespace.stream_subscriptions.entries(None, self.number, timeout)

    async def commit(
        self,
        subscription: str,
        position: Position,
        *,
        expect: StateVersion | None = None,
        reset: bool = False,
        timeout: float | None = None,
    ) -> StateVersion:
        """Remember that a subscription has handled all records up to a position.

        Args:
            subscription: its name; it is made if need be.
            position: of the last record that is handled.
            expect: the version that a commit returned or `subscriptions` told; `NOTHING`: nothing was committed; None: any.
            reset: the position may be below the committed one. A member of a group that has the stream begins anew behind it.
            timeout: seconds.

        Returns:
            The version of the position.

        Raises:
            LogDeviceError: VERSION_MISMATCH; STALE: it is farther; FENCED: a member of the group has the stream; NOTFOUND: the stream was deleted; NOSPC;
                INVALID_PARAM. Nothing was changed. TIMEDOUT, SHUTDOWN, DATALOSS, with `maybe_applied`.
        """
        return await self.namespace.stream_subscriptions.commit(
            subscription, self.number, position, expect=expect, reset=reset, timeout=timeout
        )

    async def delete_subscription(self, subscription: str, *, timeout: float | None = None) -> None:
        """Forget how far a subscription is in this stream.

        Raises:
            LogDeviceError: NOTFOUND; NOTEMPTY: the stream belongs to its group; TIMEDOUT with `maybe_applied`.
        """
        await self.namespace.stream_subscriptions.delete(subscription, self.number, timeout)

    async def first(
        self, *, timeout: float | None = None, encryption: EncryptionKeys | None = None
    ) -> StreamRecord | None:
        """The first record that is not truncated; None: there is none. encryption: as in `reader`."""
        async with self.reader(until="tail", encryption=encryption) as reader:
            while batch := await reader.read(1, timeout=timeout):
                for record in batch:
                    return record
        return None

    async def last(
        self, *, timeout: float | None = None, encryption: EncryptionKeys | None = None
    ) -> StreamRecord | None:
        """The last record that can be read and is not truncated; None: there is none."""
        lowest, client = max(self.min_active, OLDEST).lsn, self.namespace.client
        for segment in reversed(await client.segments(self.log, start=lowest, timeout=timeout)):
            end = segment.last_lsn
            if end is None:
                end = await end_of_epoch(client, self.log, segment.epoch, timeout, encryption)
            found = await self._last_up_to(end, lowest, timeout, encryption)
            if found is not None:
                return found
        await self.namespace.current(timeout=timeout)
        for each in reversed(self.namespace.stream_entry(self.number).upkeep.copies):
            if each.copy.records and each.copy.last >= lowest:
                first = LSN(max(each.copy.first, lowest))
                found = await self._last_up_to(each.copy.last, first, timeout, encryption)
                if found is not None:
                    return found
        return None

    async def _last_up_to(
        self, end: LSN, lowest: LSN, timeout: float | None, encryption: EncryptionKeys | None
    ) -> StreamRecord | None:
        """The last record of an epoch up to `end` that is not below `lowest`."""
        span = 1
        while end.esn and end >= lowest:
            begin = LSN(max(compose_lsn(end.epoch, max(1, end.esn - span + 1)), lowest))
            found = await self._last_in(begin, end, timeout, encryption)
            if found is not None:
                return found
            end, span = LSN(begin - 1), span * _WIDEN
        return None

    async def _last_in(
        self, begin: LSN, end: LSN, timeout: float | None, encryption: EncryptionKeys | None
    ) -> StreamRecord | None:
        found = None
        until = Position(LSN(end + 1), 0)
        async with self.reader(Position(begin, 0), until=until, encryption=encryption) as reader:
            while batch := await reader.read(10_000, timeout=timeout):
                found = next(reversed(list(batch)), found)
        return found

    async def segments(
        self, *, start: Position = OLDEST, limit: int | None = None, timeout: float | None = None
    ) -> list[StreamSegment]:
        """The segments of the stream in order: those that are only in cold copies, those in the log, and the one in progress. Those that are gone
        are left out. Of each it is known what it holds if the stream rolls or its writers show transaction ids or tokens.

        Args:
            start: segments that end before it are left out.
            limit: at most so many, the first ones.
            timeout: seconds.

        Raises:
            LogDeviceError: INVALID_PARAM; NOTFOUND; PARTIAL: too few shards answered; TIMEDOUT.
        """
        await self.namespace.current(timeout=timeout)
        entry = self.namespace.stream_entry(self.number)
        first = position_argument(start, "start").lsn
        live = await self.namespace.client.segments(self.log, start=max(first, LSN.OLDEST), timeout=timeout)
        found = [each for each in listed_stream_segments(entry, live) if each.last is None or each.last.lsn >= first]
        return found if limit is None else found[: count_argument("limit", limit)]

    def watch(
        self, *, every: str | float | timedelta = "1s", timeout: float | None = None
    ) -> AsyncIterator[SegmentChange | OwnerChange]:
        """The owner and the segments as they are, as if they had just come to be, and then what changes, until the stream is deleted or the namespace closed. Owners,
        truncations and copies are told as soon as the namespace hears of them; a segment that begins or ends in the log within `every`. Of changes that
        follow each other quickly only the last may be told. Use it as ``async for change in stream.watch()``.

        Args:
            every: how often the log is asked for its segments: what is completed is remembered.
            timeout: seconds for one such question; when nobody answers in time it is asked again.

        Raises:
            LogDeviceError: INVALID_PARAM; what is not retriable.
        """
        return watch_stream(self, duration_argument("every", every) / 1e6, timeout)

    async def count(
        self,
        start: Position | None = None,
        end: Position | None = None,
        *,
        timeout: float | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> int:
        """How many records there are from one position on and before another, of those that are not truncated; without them, all. Segments tell where
        they know it; the rest is read.

        `timeout` is how long nothing may come; `encryption` are the keys of records that are encrypted, as in `reader`.

        Raises:
            LogDeviceError: INVALID_PARAM; as `segments` and `StreamReader.read`.
        """
        begin = max(OLDEST if start is None else position_argument(start, "start"), self.min_active)
        until = await self.end(timeout=timeout) if end is None else position_argument(end, "end")
        records = 0
        for part in parts_to_count(await self.segments(start=begin, timeout=timeout), begin, until):
            if part.records is not None:
                records += part.records
                continue
            async with self.reader(part.first, until=part.until, encryption=encryption) as reader:
                while batch := await reader.read(10_000, timeout=timeout):
                    records += len(batch)
        return records

    async def end(self, *, timeout: float | None = None) -> Position:
        """Behind all that can be read now: whoever begins here reads what is written from now on."""
        tail = await self.namespace.client.tail_lsn(self.log, timeout=timeout)
        return Position(LSN(tail + 1), 0)

    async def last_confirmed(self, source: str = SEQUENCER, *, timeout: float | None = None) -> LSN:
        """Up to where the stream can be read: what is at or below it can be, now and by everybody. What else it promises depends on who is asked.

        Args:
            source: "sequencer": nothing that was acknowledged to anybody before this call lies above it. A sequencer is started when there is none, which
                takes as long as a take-over.
                "quorum": storage nodes are asked, and no sequencer is started. It is a lower bound: at least what all shards of some copyset were told
                before this call, so what was acknowledged a moment ago may lie above it, and it may be less than an earlier answer.
                "any": the first storage node that knows of anything. It may be any amount behind.
            timeout: seconds.

        Raises:
            LogDeviceError: INVALID_PARAM; PARTIAL: too few shards answered; as `Client.tail_lsn` and `Client.known_tail`.
        """
        client = self.namespace.client
        if source == SEQUENCER:
            return await client.tail_lsn(self.log, timeout=timeout)
        if source not in STORAGE_NODES:
            known = ", ".join(map(repr, (SEQUENCER, *STORAGE_NODES)))
            raise LogDeviceError(Status.INVALID_PARAM, f"source is {source!r}; it must be one of {known}")
        return await client.known_tail(self.log, source=source, timeout=timeout)

    # Truncation

    @property
    def min_active(self) -> Position:
        """Everything before is truncated, as far as it is known here; `START`: nothing is."""
        return self.namespace.stream_entry(self.number).min_active

    async def truncate(self, position: Position, *, timeout: float | None = None) -> None:
        """Truncate everything before a position: readers that begin later begin there at the earliest. Those that read go on. `untruncate`
        takes it back. Does nothing when as much is truncated.

        Raises:
            LogDeviceError: INVALID_PARAM: the position is behind the end; NOTFOUND; TIMEDOUT.
        """
        position = position_argument(position, "position")
        end = await self.end(timeout=timeout)
        if position > end:
            raise LogDeviceError(Status.INVALID_PARAM, f"{position} is behind the end of stream {self.name}, {end}")
        try:
            await self.namespace.propose(TruncateStream(self.number, position), timeout)
        except LogDeviceError as error:
            if error.status is not Status.CONFLICT:
                raise

    async def untruncate(self, *, timeout: float | None = None) -> None:
        """Take truncations back: readers begin at the first record that is still there, in the log or in a cold copy.

        Raises:
            LogDeviceError: CONFLICT: all that was truncated is trimmed, or about to be; NOTFOUND; TIMEDOUT.
        """
        await self.namespace.propose(UntruncateStream(self.number), timeout)
