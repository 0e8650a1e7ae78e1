"""BufferedWriter: many records to many logs, each stored exactly once and in call order, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, Protocol

from client.arguments import (
    atomic_argument,
    flag_argument,
    key_argument,
    keys_argument,
    payload_argument,
    payloads_argument,
)
from client.guard_arguments import batch_keys, guard_argument, guards_argument, transaction_key
from client.guards import AppendGuard, Position
from client.metrics import WriterMetrics
from client.public_names import PublicNames
from client.receipt import Receipt, Receipts
from client.write.context import RECORD_OVERHEAD, FrameObserver
from client.write.write_streams import WriteStreams
from logdevice_py.core.batch import BYTES_PER_RECORD
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.ids import LogId, WriterId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_LOG_NAMES: Final = frozenset({int, str})
_RECORDS_MAX: Final = RECORDS_PER_ENTRY_MAX - 1
"""With one more the batch is full."""


class WriterShell(Protocol):
    """The loop side of a client, as its writers see it."""

    def future(self) -> Any:
        """A future of the client's loop."""

    @property
    def loop(self) -> Any:
        """The client's event loop."""

    @property
    def running_loop(self) -> Callable[[], Any]:
        """Tells which loop the caller runs on."""

    def now(self) -> Micros:
        """The monotonic clock."""

    def wake(self) -> None:
        """Run the end of the turn soon."""

    def log_id(self, log: int | str) -> LogId:
        """The id of a log named by id or path."""

    def closed(self, streams: WriteStreams) -> None:
        """The writer is closed."""


class BufferedWriter(PublicNames):
    """Appends in batches, as write streams: no duplicates, no changes of order, through crashes of nodes and lost connections.

    Records of one log get positions in call order. `append` and `append_many` take records at once and return an awaitable for what
    becomes of them; they need not be awaited one by one: a failure is raised by the next `flush` or by `close` as well, and leaving the
    block closes.

    When somebody else sends under the writer id of one of its streams (ids stand in records), the records of that log that are not stored fail with
    WRITE_STREAM_BROKEN, not retriable, and so do all that are appended to it later: open another writer for them.

    Memory is bounded: when `memory_bytes_max` of records are unacknowledged, further ones are refused with NOBUFS and nothing is taken.
    ``await writer.ready()`` waits until there is room; a call that is taken while there is room may pass the limit by its own size.
    """

    __slots__ = (
        "_create_future",
        "_future",
        "_loop",
        "_named",
        "_now",
        "_owner",
        "_running_loop",
        "_shell",
        "_streams",
        "_wake",
    )

    def __init__(self, shell: WriterShell, streams: WriteStreams) -> None:
        self._shell = shell
        self._streams = streams
        self._future: Callable[[], Any] = shell.future
        self._now = shell.now
        self._wake = shell.wake
        self._loop = shell.loop
        self._running_loop = shell.running_loop
        self._create_future = shell.loop.create_future
        self._named = streams.named
        self._owner = streams.owner

    def __repr__(self) -> str:
        acknowledged, waiting = self.metrics.records_acknowledged, self.unacknowledged_bytes
        return f"<BufferedWriter: {acknowledged:,} records acknowledged, {waiting:,} bytes not acknowledged>"

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
    ) -> Awaitable[Receipt]:
        """Append one record; awaitable for its receipt. A bytearray or memoryview is copied at once.

        Args:
            log: id or path.
            payload: the record.
            key: is kept with the record; `Client.find_key` looks for it, in logs whose keys never get smaller.
            synced: it is acknowledged only when every copy is synced to disk, as with `Client.append`; so are records that share its frame.
            txid, expect, fence: as with `Client.append`. Records share a frame while their ids rise and their tokens are the same; one with
                `expect` has its own. When a frame is refused, those behind it are stored all the same unless they are refused themselves.

        Raises:
            GuardError: when awaited, as with `Client.append`.
            LogDeviceError: NOBUFS (await `ready` and call again), TOOBIG, NOTFOUND, AGAIN: this client has not heard of the log, SHUTDOWN, INVALID_PARAM; nothing
                was taken.
        """
        if (
            key is None
            and txid is None
            and expect is None
            and fence is None
            and synced is False
            and type(payload) is bytes
            and type(log) in _LOG_NAMES
        ):
            # all but the first of a turn: nothing is done for each that has been done for the first
            batch = self._named.get(log)
            if batch is not None:
                length, owner = len(payload), self._owner
                room = batch.room - length - BYTES_PER_RECORD
                records = batch.records
                if room > 0 and owner.room > 0 and len(records) < _RECORDS_MAX and self._running_loop() is self._loop:
                    future = self._create_future()
                    records.append(payload)
                    batch.spans.append(future)
                    batch.room = room
                    owner.room -= length + RECORD_OVERHEAD
                    owner.records += 1
                    return future  # type: ignore[no-any-return]
        guard = None
        if txid is not None or expect is not None or fence is not None:
            guard = guard_argument(txid, expect, fence, self._streams.new_append_id())
            key = transaction_key(guard, key)
        return self._append(log, payload, key, synced, guard)

    def _append(
        self,
        log: int | str,
        payload: bytes | bytearray | memoryview,
        key: bytes | None,
        synced: bool,
        guard: AppendGuard | None,
    ) -> Awaitable[Receipt]:
        streams = self._streams
        synced = flag_argument("synced", synced)
        if key is not None:
            key = key_argument(key)
        if type(payload) is not bytes:
            payload = payload_argument(payload)
        future = self._future()
        if not streams.dirty:
            self._wake()
        known: Any = log if type(log) is int else self._shell.log_id(log)
        batch = streams.append(known, payload, future, self._now(), key, synced=synced, guard=guard)
        if batch.guard is None and type(log) in _LOG_NAMES:
            self._named[log] = batch
        return future  # type: ignore[no-any-return]

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
    ) -> Awaitable[Receipts]:
        """Append records; one awaitable for all their receipts. All are taken, or none.

        Nothing is created for each record, so this is the fast way; a list of bytes is the fastest.

        Args:
            log: id or path.
            payloads: the records.
            keys: their keys, one each, None for one without; None: no record has one.
            synced: as `append`, of all of them.
            txids: their transaction ids, one each, none below the one before; instead of keys.
            expect: with `atomic`: position of the record that must be the last of the log.
            fence: the caller's fence token.
            atomic: as with `Client.append_many`: readers see all of these records or none.

        Raises:
            LogDeviceError: as `append`.
        """
        streams = self._streams
        synced = flag_argument("synced", synced)
        future = self._future()
        if not streams.dirty:
            self._wake()
        known: Any = log if type(log) is int else self._shell.log_id(log)
        records: Any = payloads if type(payloads) is list else payloads_argument(payloads)
        if txids is not None or fence is not None or expect is not None or atomic is not False:
            atomic = atomic_argument(atomic, expect)
            records = payloads_argument(records)
            guards = guards_argument(txids, fence, len(records), expect, streams.new_append_id())
            found = batch_keys(guards, keys_argument(keys, len(records)))
            streams.append_many(known, records, future, self._now(), found, synced=synced, guards=guards, atomic=atomic)
            return future  # type: ignore[no-any-return]
        if keys is not None:
            records = payloads_argument(records)
            streams.append_many(known, records, future, self._now(), keys_argument(keys, len(records)), synced=synced)
            return future  # type: ignore[no-any-return]
        try:
            streams.append_many(known, records, future, self._now(), synced=synced)
        except LogDeviceError as error:
            if error.status is not Status.INVALID_PARAM:
                raise
            # Some are not bytes. Which, is looked for only here: a look at each record would cost every call.
            streams.append_many(known, payloads_argument(records), future, self._now(), synced=synced)
        return future  # type: ignore[no-any-return]

    def take_over(self, log: int | str, writer: WriterId, view: Epoch) -> None:
        """Go on with a write stream of that id, which other processes may have begun; see `client.write.exclusive_stream`.

        Appends to the log then fail with WRITE_STREAM_BROKEN, and nothing of them is stored, once another process has the stream.

        Args:
            log: id or path.
            writer: the id.
            view: everything that the log holds of `writer` below this epoch is known to the caller, by `client.takeover`.

        Raises:
            LogDeviceError: NOTFOUND, SHUTDOWN, INVALID_PARAM.
        """
        self._streams.take_over(self._shell.log_id(log), writer, view)

    async def ready(self) -> None:
        """Wait until records would be taken."""
        if self._streams.full:
            future = self._future()
            self._streams.ready(future)
            await future

    async def flush(self) -> None:
        """Wait until everything appended before this call is acknowledged.

        Raises:
            LogDeviceError: records failed since the last flush; says how many.
        """
        future = self._future()
        self._streams.flush(future, self._now())
        self._wake()
        await future

    async def close(self) -> None:
        """Flush, and take no more. Harmless when it is closed.

        Raises:
            LogDeviceError: as `flush`.
        """
        self._streams.stop_taking()
        try:
            await self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without waiting: what is not acknowledged fails with SHUTDOWN."""
        self._streams.close()
        self._shell.closed(self._streams)

    def waiting_for(self, log: int | str) -> str | None:
        """Why records of a log are not acknowledged yet, for people; None when all are."""
        return self._streams.waiting_for(self._shell.log_id(log), self._now())

    @property
    def unacknowledged_bytes(self) -> int:
        """Bytes of records taken that are neither acknowledged nor failed."""
        return self._streams.unacknowledged_bytes

    def observe(self, observer: FrameObserver) -> None:
        """Have somebody hear of each batch when its records have their outcome, in place of whoever did before."""
        self._owner.observer = observer

    @property
    def metrics(self) -> WriterMetrics:
        """What this writer did."""
        return self._streams.metrics

    async def __aenter__(self) -> BufferedWriter:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            await self.close()
        else:
            self.abandon()  # cancelled or interrupted: nobody may be kept waiting
