"""StreamWriters of streams: any number beside each other, or one that owns the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from client.buffered_writer import BufferedWriter
from client.encryption import EncryptionKeys
from client.guards import GuardError, Position
from client.public_names import PublicNames
from client.receipt import Receipt, Receipts
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import format_duration
from streams.attributes import Flush, TransactionIds, duration_argument
from streams.commands import AcquireStream, ReleaseStream, RenewLease
from streams.fields import LEASE_US_MAX, OWNER_BYTES_MAX, is_owner
from streams.lease_holder import LeaseHolder
from streams.leases import Lease
from streams.records import StreamRecord

if TYPE_CHECKING:
    from streams.stream import Stream

T = TypeVar("T")


class _StreamWriting(PublicNames):
    """What all writers of streams share."""

    def __init__(self, stream: Stream, flush: Flush, encryption: EncryptionKeys | None = None) -> None:
        self._stream = stream
        self._encryption = encryption
        self._options: dict[str, Any] = flush.options()
        self._by_writer = stream.attributes.txid is TransactionIds.WRITER
        self._open: BufferedWriter | None = None
        self._conditional: set[asyncio.Future[Any]] = set()
        """Writes with `expect` that are under way."""
        self._fence: int | None = None

    @property
    def _writer(self) -> BufferedWriter:
        if self._open is None:
            raise LogDeviceError(
                Status.SHUTDOWN, "the writer is not open: use it as an async context manager", retriable=False
            )
        return self._open

    def write(
        self, payload: bytes | bytearray | memoryview, *, txid: int | None = None, expect: Position | None = None
    ) -> Awaitable[Receipt]:
        """Write one record; awaitable for its receipt, of which `position` is the record's. Records get positions in the order of the calls, and
        none is stored twice; they need not be awaited one by one, but those with `expect`: what is under way beside such a one may be before it or behind.

        Args:
            payload: the record; a bytearray or memoryview is copied at once.
            txid: its transaction id, 1 to 2^63 - 1, not below any in the stream; for streams whose writers number records.
            expect: position of the record that must be the last of the stream, such as ``receipt.position``; `START`: there must be none.

        Raises:
            GuardError: when awaited: CONFLICT, TRANSACTION_ID_TOO_LOW, ENDED, FENCED: what stands there instead.
            LogDeviceError: by the call itself: NOBUFS (await `ready` and call again), TOOBIG, INVALID_PARAM; nothing was taken. Others when awaited; `maybe_applied` tells
                whether the record may be in the stream. `flush` and the end of the block raise them too, but for records with `expect`.
        """
        if (txid is not None) is not self._by_writer:
            raise self._wrong_txid()
        writer, log = self._writer, self._stream.log
        if expect is None:
            return writer.append(log, payload, txid=txid, fence=self._fence)
        client = self._stream.namespace.client
        return self._asked(
            client.append(log, payload, txid=txid, expect=expect, fence=self._fence, encryption=self._encryption)
        )

    def write_many(
        self,
        payloads: Iterable[bytes | bytearray | memoryview],
        *,
        txids: Iterable[int] | None = None,
        expect: Position | None = None,
        atomic: bool = False,
    ) -> Awaitable[Receipts]:
        """Write records; one awaitable for all their receipts. Far faster than a call for each.

        Args:
            payloads: the records; a list of bytes is the fastest.
            txids: their transaction ids, one each, none below the one before.
            expect: with `atomic`: as in `write`.
            atomic: readers see all of these records or none, whatever fails; see `Client.append_many`.

        Raises:
            LogDeviceError: as `write`.
        """
        if (txids is not None) is not self._by_writer:
            raise self._wrong_txid()
        writer, log = self._writer, self._stream.log
        if expect is None:
            return writer.append_many(log, payloads, txids=txids, fence=self._fence, atomic=atomic)
        client = self._stream.namespace.client
        return self._asked(
            client.append_many(
                log,
                payloads,
                txids=txids,
                expect=expect,
                fence=self._fence,
                atomic=atomic,
                encryption=self._encryption,
            )
        )

    def _asked(self, append: Awaitable[T]) -> Awaitable[T]:
        """A write with `expect`, which goes by itself: a refusal is an answer to its caller, and no failure of the writer."""
        asked = asyncio.ensure_future(append)
        self._conditional.add(asked)
        asked.add_done_callback(self._conditional.discard)
        return asked

    def _wrong_txid(self) -> LogDeviceError:
        needs = (
            "each record needs a txid" if self._by_writer else "records have no txid: times are their transaction ids"
        )
        kind = self._stream.attributes.txid.value
        return LogDeviceError(Status.INVALID_PARAM, f'stream {self._stream.name} has txid="{kind}": {needs}')

    async def ready(self) -> None:
        """Wait until records would be taken: memory for those that are not acknowledged is bounded."""
        await self._writer.ready()

    async def flush(self) -> None:
        """Wait until everything written before this call is acknowledged.

        Raises:
            LogDeviceError: records failed since the last flush; says how many.
        """
        await self._answered()
        await self._writer.flush()

    async def _answered(self) -> None:
        if self._conditional:
            await asyncio.wait(list(self._conditional))

    async def _finish(self, error: BaseException | None) -> None:
        """The end of a block: what is written is acknowledged, or has failed. The block's own error goes before."""
        if error is not None and not isinstance(error, Exception):
            self._writer.abandon()  # cancelled or interrupted: nobody may be kept waiting
            return
        try:
            await self._answered()
            await self._writer.close()
        except LogDeviceError:
            if error is None:
                raise

    def abandon(self) -> None:
        """Close without waiting: what is not acknowledged fails with SHUTDOWN."""
        self._writer.abandon()

    def _start(self) -> None:
        self._open = self._stream.namespace.client.buffered_writer(encryption=self._encryption, **self._options)


class SharedWriter(_StreamWriting):
    """Writes to a stream that others may write to at the same time. Leaving the block waits until everything is acknowledged."""

    def __repr__(self) -> str:
        return f"<SharedWriter of {self._stream!r}>"

    async def __aenter__(self) -> SharedWriter:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._finish(error)


class StreamOwned(LogDeviceError):
    """Somebody else owns the stream, and goes on showing life."""

    def __init__(self, text: str, lease: Lease) -> None:
        super().__init__(Status.AGAIN, text, retriable=True, maybe_applied=False)
        self.owner = lease.owner
        """How the owner calls itself."""
        self.token = lease.token
        """Its fence token."""


class StreamOwnership:
    """What the lease of a stream's owner is for."""

    def __init__(self, stream: Stream, owner: str) -> None:
        self._stream = stream
        self._owner = owner

    def look(self) -> Lease | None:
        """The owner's, as far as this process has heard."""
        return self._stream.namespace.stream_entry(self._stream.number).lease

    def acquire(self, lease_us: int, token: int, beats: int) -> AcquireStream:
        """Become the owner."""
        return AcquireStream(self._stream.number, self._owner, lease_us, token, beats)

    def renew(self, token: int) -> RenewLease:
        """A sign of life."""
        return RenewLease(self._stream.number, token)

    def release(self, token: int) -> ReleaseStream:
        """Need the stream no more."""
        return ReleaseStream(self._stream.number, token)


class ExclusiveWriter(_StreamWriting):
    """Owns a stream and writes to it.

    Entering the block waits until nobody else owns the stream, takes a fence token that is greater than all before, and raises the fence of the
    stream's log. From then on nobody else's record gets into the stream, whatever they have under way: each is refused with FENCED. What the
    owner writes is refused so as soon as somebody else owns the stream, however long this process was paused.

    Everything that was acknowledged to owners before can be read when the block is entered; `last` is the last record of it.
    """

    def __init__(
        self,
        stream: Stream,
        owner: str,
        *,
        wait: Any,
        lease: Any,
        flush: Flush,
        encryption: EncryptionKeys | None = None,
    ) -> None:
        """See `Stream.exclusive_writer`."""
        super().__init__(stream, flush, encryption)
        if not is_owner(owner):
            text = f"owner is {owner!r}; it must be a text of 1 to {OWNER_BYTES_MAX} bytes"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        self._wait_us = None if wait is None else 0 if wait == 0 else duration_argument("wait", wait)
        lease_us = duration_argument("lease", lease)
        if lease_us > LEASE_US_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"lease is {lease!r}; a day is the longest")
        self._lease = LeaseHolder(stream.namespace, StreamOwnership(stream, owner), lease_us, f"lease of {stream.name}")
        self.token = 0
        """The fence token; 0: the stream is not owned yet."""
        self.last: StreamRecord | None = None
        """The last record of the stream when it was taken over; None: there was none."""

    @property
    def lost(self) -> LogDeviceError | None:
        """Why the stream is not owned any more, as far as this process has heard. Writes are refused whether it has or not."""
        return self._lease.lost

    def __repr__(self) -> str:
        held = "not owned" if not self.token else f"token {self.token}" + (", lost" if self.lost else "")
        return f"<ExclusiveWriter of {self._stream!r}: {held}>"

    async def __aenter__(self) -> ExclusiveWriter:
        await self._acquire()
        try:
            await self._raise_fence()
            self.last = await self._stream.last(encryption=self._encryption)
        except BaseException:
            await self._lease.release()
            raise
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._finish(error)
        finally:
            await self._lease.release()

    async def mark_end(self, *, timeout: float | None = None) -> None:
        """End the stream behind what was written: nothing follows, from nobody, for ever.

        Raises:
            LogDeviceError: FENCED: somebody else owns it; a record failed since the last flush; TIMEDOUT with `maybe_applied`.
        """
        await self.flush()
        await self._stream.end_by(self.token, timeout)

    # Ownership

    async def _acquire(self) -> None:
        """Get a token once nobody owns the stream, or its owner has shown no life for as long as it said."""
        taken = await self._lease.acquire(self._wait_us)
        if taken is not None:
            raise self._owned_by(*taken)
        self.token = self._fence = self._lease.token

    def _owned_by(self, lease: Lease, waited: int) -> StreamOwned:
        after = f" after {format_duration(round(waited / 1000) * 1000)}" if self._wait_us != 0 else ""
        return StreamOwned(f"stream {self._stream.name} is owned by {lease.owner} (token {lease.token}){after}", lease)

    async def _raise_fence(self) -> None:
        """Nobody below the token gets anything into the log any more; and what they got in can be read."""
        client, log = self._stream.namespace.client, self._stream.log
        try:
            fence = (await client.raise_fence(log, self.token)).lsn
        except GuardError as error:
            if error.status is not Status.FENCED or error.fence != self.token:
                raise
            return  # an earlier try of this writer did it: nobody else has the token
        assert await client.tail_lsn(log) >= fence
