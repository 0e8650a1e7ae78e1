"""Reading a log, on asyncio: hands what a `ReadStream` delivers to one application task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, TypeVar

from client.arguments import count_argument, flag_argument, lsn_argument, timeout_argument
from client.encryption import EncryptionKeys, environment_keys
from client.progress import Advance, Progress, shown_bytes
from client.range_end import RangeEnd
from client.read.batch import RecordBatch
from client.read.item_reader import ItemReader
from client.read.items import Gap
from client.read.metrics import ReadMetrics
from client.read.proof import Proof
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStreamState
from client.read.settings import ReadSettings
from client.session import ClientSession
from client.session_stream import SessionStream
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.principal import Permission
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

T = TypeVar("T")


class ReaderShell(Protocol):
    """The loop side of a client, as its readers see it."""

    read_settings: ReadSettings
    read_metrics: ReadMetrics
    session: ClientSession

    @property
    def config(self) -> ClusterConfig:
        """The cluster file in use."""

    def future(self) -> Any:
        """A future of the client's loop; refused when the client is not open."""

    def now(self) -> Micros:
        """The monotonic clock."""

    def wake(self) -> None:
        """Run the end of the turn soon."""

    def wrong_cluster(self) -> LogDeviceError | None:
        """Why waiting is of no use: only another cluster answers."""

    def log_id(self, log: int | str) -> LogId:
        """The id of a log named by id or path, as far as it is known here."""

    def may_be_made(self, log: int | str, error: LogDeviceError) -> bool:
        """Whether a look-up failed only because the client has not heard of the log."""

    async def known_log(self, log: int | str, timeout: float | None = None) -> LogId:
        """The id of a log; the cluster is asked before NOTFOUND."""

    async def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        """The last LSN that can be read."""

    async def find_time(
        self, log: int | str, when: datetime | int, *, approximate: bool = False, timeout: float | None = None
    ) -> LSN:
        """The first LSN whose record is not older."""


class Reader(ItemReader):
    """Reads [start, until] of one log in order, with every missing LSN accounted for by a `Gap`.

    Use it as ``async with client.reader(log, start=..., until=...) as reader`` and either iterate (``async for item in reader``) or call
    `read`; not both, and from one task at a time. Reading starts with the first call or on entering the block. A reader never times out by itself:
    while a record cannot be had although it may exist, it waits; `waiting_for` says for what. One whose end lies behind the tail waits until
    the log reaches it.
    """

    INTERNAL_NAMES: ClassVar[frozenset[str]] = frozenset({"read_entries"})

    def __init__(
        self,
        client: ReaderShell,
        log: int | str,
        start: int = LSN_OLDEST,
        until: int | str | datetime = LSN_MAX,
        *,
        single_copy: bool | None = None,
        near: bool | None = None,
        hedged: bool | None = None,
        progress: bool = False,
        settings: ReadSettings | None = None,
        encryption: EncryptionKeys | None = None,
    ) -> None:
        """
        Args:
            client: an open client.
            log: id or path. One that the client does not know, and that may have been made at run time, is looked up when reading begins, which
                then raises NOTFOUND when there is none.
            start: the first LSN to read.
            until: the last LSN to read, inclusive; the greatest one follows the log for ever, or until it is ended (`Client.mark_end`). "tail": what can be read when reading begins.
                An aware datetime: what is older, of what can be read when reading begins.
            single_copy: whether each entry comes from one shard only; None: as the log's attributes say.
            near: whether that is the nearest one, where the client knows where it stands; None: as the log's attributes say.
            hedged: whether others are asked for what the shard that should send it does not send in time; None: as the log's attributes say.
            progress: show how far reading is, until the end or until the reader is closed; needs tqdm.
            settings: in place of the client's.
            encryption: keys of records that are encrypted; `read` fails with NOKEY at one whose key is not among them, with MISPLACED at
                one that somebody repeated or moved, and stays there. None: those in
                the file that the environment variable ``LOGDEVICE_KEYS_FILE`` names, if it names one.

        Raises:
            LogDeviceError: INVALID_PARAM, NOTFOUND.
        """
        super().__init__()
        start, end = lsn_argument("start", start), RangeEnd.of(until)
        self._unknown: int | str | None = None
        """What the log is called; None: its id is known."""
        try:
            self.log = client.log_id(log)
            """The id; 0 until reading begins where it is not known before."""
        except LogDeviceError as error:
            if not client.may_be_made(log, error):
                raise
            self.log, self._unknown = LogId(0), log
        self._encryption = environment_keys() if encryption is None else encryption
        self._client = client
        self._single_copy = single_copy
        self._near = near
        self._hedged = hedged
        self._end = end
        self._shows_progress = flag_argument("progress", progress)
        self._progress: Progress | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._opened = False
        self._closed = False
        self._settings = settings or client.read_settings
        request = ReadRequest(
            log=self.log,
            stream=next(client.session.ids),
            first=Lsn(max(start, LSN_OLDEST)),
            until=Lsn(LSN_MAX if end.lsn is None else end.lsn),
            **self._manner(),
        )
        self._prepare(request)

    def _manner(self) -> dict[str, Any]:
        """How shards are to send: as the reader says, else as the attributes of the log do."""
        single_copy, near, hedged = True, True, False
        attributes = self._client.config.log(self.log)
        if attributes is not None:
            single_copy, near = attributes.single_copy_delivery, attributes.read_near
            hedged = attributes.hedged_reads
        return {
            "single_copy": single_copy if self._single_copy is None else self._single_copy,
            "near": near if self._near is None else self._near,
            "hedged": hedged if self._hedged is None else self._hedged,
        }

    def _prepare(self, request: ReadRequest) -> None:
        client = self._client
        self._reading = SessionStream(
            client.session,
            request,
            settings=self._settings,
            metrics=client.read_metrics,
            on_ready=self._on_ready,
        )
        self._stream = self._reading.stream
        if self._encryption is not None:
            self._stream.open_with(self._encryption.reading())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "reading" if self._opened else "not open"
        if self._opened and (end := self._read_through()):
            state = f"closed, {end}" if self._closed else end
        return f"<Reader of log {self._unknown or self.log}: {state}, {self._end}, next is {self.next_lsn}>"

    def _read_through(self) -> str:
        """That everything was read, in words; empty: it was not."""
        if self.ended:
            return "read to the end of the log"
        return "read to its end" if self._end.lsn is not None and self.next_lsn > self._end.lsn else ""

    # Life

    async def __aenter__(self) -> Reader:
        await self._look_up(None)
        self._open()
        return self

    async def _look_up(self, timeout: float | None) -> None:
        """Find out which log it is, and which LSN is the last where that depends on the log."""
        if self._unknown is not None and not self._closed:
            log = await self._client.known_log(self._unknown, timeout)
            if self._unknown is not None and not self._closed:  # nobody else did meanwhile
                self.log, self._unknown = log, None
                self._prepare(replace(self._stream.request, log=log, **self._manner()))
        if self._end.lsn is None and not self._closed:
            until = await self._end.find(self._client, self.log, timeout)
            if self._end.lsn is None and not self._closed:  # nobody else did meanwhile
                self._end = RangeEnd(until)
                self._prepare(replace(self._stream.request, until=Lsn(until)))

    def _open(self) -> None:
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the reader was closed", retriable=False)
        if not self._opened:
            self._client.future().cancel()  # refuses when the client is not open
            if self._shows_progress:
                self._progress = Progress(f"log {self.log}", self._advance)
            self._opened = True
            self._reading.start(self._client.now())
            self._client.session.view.add_listener(self._on_view)
            self._client.wake()

    async def close(self) -> None:
        """Stop reading. Harmless when called again."""
        if self._opened and not self._closed:
            self._reading.stop()
            self._client.wake()
        self._closed = True
        self._client.session.view.remove_listener(self._on_view)
        self._end_progress()
        self._wake_waiter()

    def _advance(self) -> Advance:
        proof = self.proof()
        until = self._end.lsn
        end = "" if until in (None, LSN.MAX) else f" of {until}"
        return Advance(proof.records, f"{shown_bytes(proof.bytes)}, at {proof.last}{end}")

    def _end_progress(self) -> None:
        if self._progress is not None:
            self._progress.close()

    def _on_ready(self) -> None:
        self._wake_waiter()

    def _on_view(self, now: Micros) -> None:
        """A node was not reached, or another one is: who waits looks whether that is of any use."""
        self._wake_waiter()

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Reading

    async def read(self, max_records: int = 10_000, *, timeout: float | None = None) -> RecordBatch:
        """Up to `max_records` records, and the gaps between them, as columns.

        Waits for at least one record or gap. Returns an empty batch only when everything up to `until` was read, or the log has `ended`. Being cancelled loses
        nothing.

        Args:
            max_records: how many at most.
            timeout: seconds to wait for the first of them; None: for ever.

        Raises:
            LogDeviceError: SHUTDOWN when the client or the reader was closed, INVALID_PARAM, INVALID_CLUSTER or PROTO: no node of the file serves
                this client, ACCESS: it may not read the log, TIMEDOUT: nothing came; the text says what is waited
                for. The reader can be read from again.
        """
        count_argument("max_records", max_records)

        def take() -> RecordBatch:
            batch = self._stream.take(max_records, self._client.now())
            batch.log_group = self._log_group()
            return batch

        return await self._take(take, timeout)

    async def read_entries(
        self, max_entries: int = 1000, *, timeout: float | None = None
    ) -> list[tuple[EntryHeader, bytes] | Gap]:
        """Like `read`, but up to `max_entries` whole entries as they are stored, checked against their checksums, and the gaps between
        them. A reader is read with one or the other."""
        count_argument("max_entries", max_entries)
        return await self._take(lambda: self._stream.take_entries(max_entries, self._client.now()), timeout)

    async def _take(self, take: Callable[[], T], timeout: float | None) -> T:
        """What `take` takes, when there is something to take."""
        timeout_us = timeout_argument(timeout)
        deadline = None if timeout_us is None else self._client.now() + timeout_us
        await self._look_up(timeout)
        self._open()
        stream = self._stream
        stream.answers.refused = False  # it may be permitted meanwhile: shards are asked again and again
        while True:
            if stream.ready:
                taken = take()
                self._client.wake()
                if stream.finished:
                    self._end_progress()
                if taken or stream.finished:
                    return taken
            elif self._closed or stream.state is ReadStreamState.STOPPED:
                self._client.future().cancel()  # the client says why
                raise LogDeviceError(Status.SHUTDOWN, "the reader was closed", retriable=False)
            elif stream.answers.refused:
                raise self._client.session.routes.refused(self.log, Permission.READ)
            elif (error := self._client.wrong_cluster()) is not None:
                raise error
            elif not await self._wait(deadline):
                text = f"nothing came of log {self.log} for {timeout:g} s: it waits for {self.waiting_for()}"
                raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False)

    def _log_group(self) -> str:
        group = self._client.config.group(self.log)
        return "" if group is None else group.path

    async def _wait(self, deadline: int | None) -> bool:
        """Until there may be something; False: the time is up."""
        if self._waiter is not None:
            raise LogDeviceError(Status.INVALID_PARAM, "another task reads from this reader")
        left = None if deadline is None else max(0, deadline - self._client.now()) / 1e6
        waiter = self._waiter = self._client.future()
        try:
            await asyncio.wait_for(waiter, left)
        except TimeoutError:
            return False
        finally:
            self._waiter = None
        return True

    # About it

    def proof(self) -> Proof:
        """What was read so far. While iterating it may be ahead by up to the thousand records that are fetched at once."""
        return self._stream.proof()

    @property
    def ended(self) -> bool:
        """Everything was read, and nothing follows: this reader has met the end that `Client.mark_end` gave the log. One that begins behind that
        end, or finds it trimmed, is not told."""
        return self._stream.log_ended

    def waiting_for(self) -> str:
        """What holds the reader up at this moment, for people."""
        return self._stream.waiting_for()


READER_OPTIONS: Final = ("start", "until", *(Reader.__init__.__kwdefaults__ or ()))
"""By name."""
