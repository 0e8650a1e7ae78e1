"""Appends lines, and keeps account of what became of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from client.cli.input_lines import InputLines
from client.cli.program import EXIT_FAILED, InputError, exit_status
from client.cli.record_lines import LineError, Parse, whole_lines
from client.guards import Position
from logdevice_py.core.record_keys import KEY_OVERHEAD, KEYS_HEAD
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import Durability

if TYPE_CHECKING:
    from client.client import Client
    from client.receipt import Receipts
    from logdevice_py.core.ids import LogId

CHUNKS_IN_FLIGHT: Final = 16
LAST_SECONDS: Final = 2.0
"""How long answers to what is under way are awaited once nothing more is to be written."""


@dataclass(frozen=True, slots=True)
class LineGuards:
    """What lines ask of the end of their log."""

    txid: int | None = None
    """Transaction id of the first line; each further one has the next. None: none has."""
    expect: Position | None = None
    """With `atomic`: the last record of the log."""
    fence: int | None = None
    atomic: bool = False
    """All lines are one atomic batch."""

    def arguments(self, first: int, count: int) -> dict[str, Any]:
        """For `BufferedWriter.append_many` of so many lines, before which there were `first`."""
        given: dict[str, Any] = {}
        if self.txid is not None:
            given["txids"] = range(self.txid + first, self.txid + first + count)
        if self.expect is not None:
            given["expect"] = self.expect
        if self.fence is not None:
            given["fence"] = self.fence
        if self.atomic:
            given["atomic"] = True
        return given


class WriteAccount:
    """What was done so far."""

    def __init__(self) -> None:
        self.records = self.bytes = self.acknowledged = self.unsynced = self.in_doubt = 0
        self.first: str | None = None
        self.last: str | None = None
        self.position: str | None = None
        """Of the last line: what an append behind it may expect."""
        self.error = ""
        self.status = 0
        """The exit status that the error calls for."""
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    @property
    def rate(self) -> float:
        """Records acknowledged in a second."""
        return self.acknowledged / max(self.seconds, 1e-9)

    def fail(self, error: LogDeviceError | InputError) -> None:
        """Remember the first error."""
        if not self.error:
            self.error = str(error)
            self.status = exit_status(error) if isinstance(error, LogDeviceError) else EXIT_FAILED

    def acknowledge(self, count: int, receipts: Receipts) -> None:
        """Neighbouring lines are stored."""
        self.acknowledged += count
        self.unsynced += sum(run.count for run in receipts.runs if run.durability is not Durability.SYNC)
        self.first = self.first or str(receipts[0].lsn)
        self.last = str(receipts[-1].lsn)
        self.position = str(receipts[-1].position)

    def summary(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "acknowledged": self.acknowledged,
            "synced": self.acknowledged - self.unsynced,
            "failed": self.records - self.acknowledged,
            "in_doubt": self.in_doubt,
            "seconds": round(self.seconds, 6),
            "first": self.first,
            "last": self.last,
            "position": self.position,
        }


NO_GUARDS: Final = LineGuards()


class LineSink(Protocol):
    """A writer, as far as lines need it: a `BufferedWriter` is one."""

    def append_many(
        self, log: int | str, payloads: list[bytes], *, keys: list[bytes | None] | None, synced: bool
    ) -> Awaitable[Receipts]:
        """Take lines, in order."""

    async def ready(self) -> None:
        """Wait until lines would be taken."""

    def abandon(self) -> None:
        """What is not acknowledged fails."""


class LineWriter:
    """Appends every line of an input. Reading goes on while earlier lines are on their way.

    It stops at the first line that fails: lines behind it must not be stored without it.
    """

    def __init__(
        self,
        client: Client,
        log: LogId,
        writer: LineSink,
        account: WriteAccount,
        *,
        parse: Parse = whole_lines,
        synced: bool = False,
        guards: LineGuards = NO_GUARDS,
    ) -> None:
        """`parse`: makes records of lines. `synced`: lines are acknowledged when all copies are synced, also where the log is ``async``."""
        self._guards = guards
        self._parse = parse
        self._client = client
        self._synced = synced
        self._log = log
        self._writer = writer
        self._account = account
        self._slots = asyncio.Semaphore(CHUNKS_IN_FLIGHT)
        self._pending: asyncio.Queue[tuple[int, Awaitable[Receipts]] | None] = asyncio.Queue()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._failed = False

    def interrupt(self) -> None:
        """Read no more; when called again, wait no more either."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self, lines: InputLines) -> None:
        """Append until the input ends, a line fails or it is interrupted. What came of it is in the account."""
        collecting = asyncio.create_task(self._collect())
        try:
            reading = asyncio.create_task(self._read(lines))
            try:
                await self._unless(self._stop, reading)
                if reading.done():
                    reading.result()
            except (LogDeviceError, InputError) as error:
                self._account.fail(error)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            self._pending.put_nowait(None)
            await self._unless(self._stop, collecting)
            if not collecting.done():
                await self._unless(self._hurry, collecting, LAST_SECONDS)
        finally:
            self._fail()
            await collecting

    async def _unless(self, event: asyncio.Event, task: asyncio.Task[None], timeout: float | None = None) -> None:
        """Wait for a task until an event or the timeout cuts it short."""
        cut = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({cut, task}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()

    def _fail(self) -> None:
        """Everything that has no outcome gets one at once."""
        self._failed = True
        self._writer.abandon()
        self._pending.put_nowait(None)

    async def _read(self, lines: InputLines) -> None:
        await (self._read_whole(lines) if self._guards.atomic else self._read_on(lines))

    async def _read_whole(self, lines: InputLines) -> None:
        """Nothing is written before the input has ended, or when one line is no record."""
        attributes = self._client.config.log(self._log)
        longest = 0 if attributes is None else attributes.max_payload_bytes
        payloads: list[bytes] = []
        keys: list[bytes | None] = []
        size = 0
        while (batch := await lines.next()) is not None:
            try:
                more, more_keys = self._parse(batch)
            except LineError as error:
                text = f"line {len(payloads) + error.index + 1}: {error}; nothing was written"
                raise LogDeviceError(Status.INVALID_PARAM, text) from None
            payloads += more
            keys += more_keys or [None] * len(more)
            size += sum(map(len, more))
            if size > longest:
                break  # the rest cannot make it smaller
        if payloads and not self._stop.is_set():
            await self._slots.acquire()
            self._append(payloads, keys if any(key is not None for key in keys) else None)

    async def _read_on(self, lines: InputLines) -> None:
        while (batch := await lines.next()) is not None:
            await self._slots.acquire()
            await self._writer.ready()
            if self._stop.is_set():
                return  # a line before these failed a moment ago
            try:
                payloads, keys = self._parse(batch)
            except LineError as error:
                if error.index:
                    self._append_until_too_big(*self._parse(batch[: error.index]))
                self._account.records += 1
                raise LogDeviceError(Status.INVALID_PARAM, f"line {self._account.records}: {error}") from None
            self._append_until_too_big(payloads, keys)

    def _append_until_too_big(self, payloads: list[bytes], keys: list[bytes | None] | None) -> None:
        """Append records; the first that is too long for the log is named, and those before it are appended."""
        try:
            self._append(payloads, keys)
        except LogDeviceError as error:
            if error.status is not Status.TOOBIG:
                raise
            raise self._too_big(payloads, keys, error) from None

    def _too_big(self, payloads: list[bytes], keys: list[bytes | None] | None, error: LogDeviceError) -> LogDeviceError:
        """Append what comes before the record that is too long, and name it."""
        attributes = self._client.config.log(self._log)
        longest = 0 if attributes is None else attributes.max_payload_bytes
        sizes = list(map(len, payloads))
        if keys is not None:
            sizes = [size + KEYS_HEAD + KEY_OVERHEAD + len(key or b"") for size, key in zip(sizes, keys, strict=True)]
        index = next((index for index, size in enumerate(sizes) if size > longest), 0)
        if index:
            self._append(payloads[:index], None if keys is None else keys[:index])
        self._account.records += 1
        self._account.bytes += len(payloads[index])
        return LogDeviceError(error.status, f"line {self._account.records}: {error.detail}")

    def _append(self, payloads: list[bytes], keys: list[bytes | None] | None) -> None:
        guards = self._guards.arguments(self._account.records, len(payloads))
        outcome = self._writer.append_many(self._log, payloads, keys=keys, synced=self._synced, **guards)
        self._account.records += len(payloads)
        self._account.bytes += sum(map(len, payloads))
        self._pending.put_nowait((len(payloads), outcome))

    def _explained(self, error: LogDeviceError) -> LogDeviceError:
        """An error that may pass says whom the client reaches."""
        if not error.retriable:
            return error
        return LogDeviceError(error.status, f"{error.detail or 'timed out'}; {self._client.connectivity()}")

    async def _collect(self) -> None:
        """Note what became of the lines, in order."""
        while (item := await self._pending.get()) is not None:
            count, outcome = item
            try:
                self._account.acknowledge(count, await outcome)
            except LogDeviceError as error:
                if error.maybe_applied:
                    self._account.in_doubt += count
                if not self._failed:
                    self._account.fail(self._explained(error))
                    self._stop.set()
            self._slots.release()
