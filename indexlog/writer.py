"""Writers of an index log: modifications go to raw logs, each document's to one, and are acknowledged when they are durable."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.public_names import PublicNames
from client.receipt import Receipt
from client.replica.replica import Replica
from indexlog.manifest.parts import RoutingGeneration
from indexlog.manifest.state import ManifestState
from indexlog.records import LogRecord, Modification, Texts, Variables, check_record, encode_record
from indexlog.routing import raw_log_of
from logdevice_py.core.status import LogDeviceError, Status


def wall_clock() -> int:
    """Milliseconds since 1970, by the clock of this machine."""
    return int(datetime.now(UTC).timestamp() * 1000)


@dataclass(slots=True, eq=False)
class _Entry:
    record: LogRecord
    payload: bytes
    future: asyncio.Future[Receipt]


class IndexWriter(PublicNames):
    """Puts, patches and deletes documents. Use it as ``async with log.writer() as writer``.

    What one task awaits before the next call is in this order, for each document, and so are the records of one `bulk`. Nothing is stored twice, or in
    another order, when nodes fail. When the raw logs are changed, what they do not take any more goes to the new ones, in order.
    """

    def __init__(
        self, client: Client, manifest: Replica[ManifestState], *, clock: Callable[[], int] = wall_clock, **options: Any
    ) -> None:
        """
        Args:
            client: an open client.
            manifest: of the index log.
            clock: the time, for modifications: milliseconds since 1970.
            options: those of `Client.buffered_writer`.
        """
        self._client = client
        self._manifest = manifest
        self._clock = clock
        self._options = options
        self._writer: BufferedWriter | None = None
        self._generation: RoutingGeneration | None = None
        self._sent: dict[_Entry, None] = {}
        """Under way, in the order of sending."""
        self._refused: set[_Entry] = set()
        """Of those, which the raw log did not take as it has ended."""
        self._waiting: deque[_Entry] = deque()
        """To be sent to the next generation."""
        self._rerouting: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    def __repr__(self) -> str:
        number = "none yet" if self._generation is None else self._generation.number
        return f"<IndexWriter: generation {number}, {len(self._sent) + len(self._waiting)} modifications under way>"

    # Life

    async def __aenter__(self) -> IndexWriter:
        self._writer = self._client.buffered_writer(**self._options)
        self._generation = await self._next_generation(-1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            await self.close()
        else:
            self._abandon()

    async def close(self) -> None:
        """Wait for what is under way, and take no more. Failures are told by the calls that met them."""
        if self._rerouting is not None:
            await asyncio.gather(self._rerouting, return_exceptions=True)
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with contextlib.suppress(LogDeviceError):  # who appended was told
                await writer.close()
            await asyncio.sleep(0)  # callbacks of what was acknowledged last

    def _abandon(self) -> None:
        if self._rerouting is not None:
            self._rerouting.cancel()
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    async def _next_generation(self, number: int) -> RoutingGeneration:
        async for _ in self._manifest.changes():
            found = self._manifest.state.writable()
            if found is not None and found.number > number:
                return found
        raise LogDeviceError(Status.SHUTDOWN, "the index log was closed", retriable=False)

    # Writing

    async def put(
        self,
        index: str,
        docid: str,
        fields: Texts,
        *,
        variables: Variables | None = None,
        categories: Texts | None = None,
    ) -> Receipt:
        """Make the document what is given, whatever it was. Returns when that is durable.

        Raises:
            LogDeviceError: INVALID_PARAM, TOOBIG: nothing was written; others as `BufferedWriter.append`, with `maybe_applied`.
        """
        change = Modification(True, fields, variables or {}, categories or {})
        return await (await self.append(LogRecord(index, docid, change)))

    async def patch(
        self,
        index: str,
        docid: str,
        *,
        fields: Texts | None = None,
        variables: Variables | None = None,
        categories: Texts | None = None,
    ) -> Receipt:
        """Set fields, all at once, or some variables or categories; what is not given stays.

        Raises:
            LogDeviceError: as `put`.
        """
        change = Modification(False, fields, variables or {}, categories or {})
        return await (await self.append(LogRecord(index, docid, change)))

    async def delete(self, index: str, docid: str) -> Receipt:
        """Delete the document, if there is one.

        Raises:
            LogDeviceError: as `put`.
        """
        return await (await self.append(LogRecord(index, docid, Modification(True))))

    async def bulk(self, records: Iterable[LogRecord] | AsyncIterable[LogRecord], *, keep_time: bool = False) -> int:
        """Write modifications in their order. Returns how many, when all are durable.

        Args:
            records: what is written.
            keep_time: they keep the timestamps that they have.

        Raises:
            LogDeviceError: the first that failed; those before and behind it may be written.
        """
        under_way: deque[Awaitable[Receipt]] = deque()
        count = 0
        try:
            async for record in _asynchronous(records):
                under_way.append(await self.append(record, keep_time=keep_time))
                count += 1
                while under_way and under_way[0].done():  # type: ignore[attr-defined]
                    await under_way.popleft()
            while under_way:
                await under_way.popleft()
        finally:
            await asyncio.gather(*under_way, return_exceptions=True)
        return count

    async def append(self, record: LogRecord, *, keep_time: bool = False) -> Awaitable[Receipt]:
        """Take a modification, with the time of this moment, or with the one that it has; waits while too much is under way. Awaitable for what becomes of it.

        Raises:
            LogDeviceError: as `put`; SHUTDOWN.
        """
        record = check_record(record)
        if not keep_time:
            record = replace(record, change=replace(record.change, timestamp=self._clock()))
        payload = encode_record(record)
        if self._rerouting is not None:
            await asyncio.wait([self._rerouting])
        await self._open_writer().ready()
        entry = _Entry(record, payload, self._client.future())
        if self._rerouting is not None:
            self._waiting.append(entry)
        else:
            self._send(entry)
        return entry.future

    def _open_writer(self) -> BufferedWriter:
        if self._writer is None:
            raise LogDeviceError(Status.SHUTDOWN, "the index writer is not open", retriable=False)
        return self._writer

    def _send(self, entry: _Entry) -> None:
        assert self._generation is not None
        log = raw_log_of(entry.record.index, entry.record.docid, self._generation.logs)
        # a turn's records to one log share a frame
        future: Any = self._open_writer().append(log, entry.payload)
        self._sent[entry] = None
        future.add_done_callback(partial(self._on_outcome, entry))

    def _on_outcome(self, entry: _Entry, outcome: asyncio.Future[Receipt]) -> None:
        error = None if outcome.cancelled() else outcome.exception()
        if isinstance(error, LogDeviceError) and error.status is Status.ENDED and not error.maybe_applied:
            self._refused.add(entry)
            if self._rerouting is None:
                self._rerouting = self._client.loop.create_task(self._reroute(), name="next generation of raw logs")
        else:
            self._sent.pop(entry)
            if not entry.future.done():
                if error is not None:
                    entry.future.set_exception(error)
                elif not outcome.cancelled():
                    entry.future.set_result(outcome.result())
        self._answered.set()

    async def _reroute(self) -> None:
        """Wait until nothing is under way to the generation that has ended, and send what it did not take to the next one, in order; again, if that ends meanwhile."""
        try:
            while self._refused:
                while len(self._sent) > len(self._refused):
                    self._answered.clear()
                    await self._answered.wait()
                assert self._generation is not None
                self._waiting.extendleft(reversed(self._sent))
                self._sent.clear()
                self._refused.clear()
                self._generation = await self._next_generation(self._generation.number)
                await self._send_waiting()
        except BaseException as error:
            for entry in [*self._refused, *self._waiting]:
                self._sent.pop(entry, None)
                if not entry.future.done():
                    entry.future.set_exception(_as_error(error))
            self._refused.clear()
            self._waiting.clear()
            raise
        finally:
            self._rerouting = None

    async def _send_waiting(self) -> None:
        while self._waiting and not self._refused:
            await self._open_writer().ready()
            entry = self._waiting[0]
            try:
                self._send(entry)
            except LogDeviceError as error:  # of this one, as of an append at another time
                if not entry.future.done():
                    entry.future.set_exception(error)
            self._waiting.popleft()


def _as_error(error: BaseException) -> LogDeviceError:
    if isinstance(error, LogDeviceError):
        return error
    return LogDeviceError(Status.SHUTDOWN, "the index writer was closed", retriable=False, maybe_applied=False)


async def _asynchronous(records: Iterable[LogRecord] | AsyncIterable[LogRecord]) -> Any:
    if isinstance(records, AsyncIterable):
        async for record in records:
            yield record
    else:
        for record in records:
            yield record


def record_of(row: Mapping[str, Any]) -> LogRecord:
    """A modification from a line of JSON: ``index``, ``docid``, and ``deleted``, ``fields``, ``variables``, ``categories`` as far as they are set.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    known = {"index", "docid", "deleted", "fields", "variables", "categories"}
    if unknown := set(row) - known:
        raise LogDeviceError(
            Status.INVALID_PARAM,
            f"there is no {min(unknown)!r} in a modification; there are {', '.join(sorted(known))}",
        )
    try:
        variables = {int(number): worth for number, worth in (row.get("variables") or {}).items()}
    except (ValueError, AttributeError):
        raise LogDeviceError(Status.INVALID_PARAM, "variables are numbers by number") from None
    change = Modification(row.get("deleted", False), row.get("fields"), variables, row.get("categories") or {})
    return check_record(LogRecord(row.get("index", ""), row.get("docid", ""), change))
