"""Appending and reading with the books kept: what was handed over, acknowledged and seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from benchmarks.ldbench.acknowledgements import AcknowledgementLog
from benchmarks.ldbench.engine import AppendError, Consumer, EngineError, Producer, Setting
from benchmarks.ldbench.verification import LogVerifier, WriterLedger, WrongResultError

STALL_SECONDS = 30.0
"""A reader that delivers nothing for so long while records are missing is taken to have lost them."""


class CallWindow:
    """Bounds what is handed over and not acknowledged."""

    def __init__(self, setting: Setting, record_bytes: int) -> None:
        self.records_max = max(1, min(setting.records_in_flight, setting.bytes_in_flight // record_bytes))
        self.call_records = max(1, min(setting.records_per_call, self.records_max // 2))
        """How many records a call hands over."""
        self.records = 0
        self._waiter: asyncio.Future[None] | None = None

    def give_back(self, count: int) -> None:
        """So many are acknowledged or failed."""
        self.records -= count
        if self._waiter is not None and self._has_room() and not self._waiter.done():
            self._waiter.set_result(None)

    def _has_room(self) -> bool:
        return self.records == 0 or self.records + self.call_records <= self.records_max

    async def room(self) -> None:
        """Wait until a call fits in. One task waits at a time."""
        while not self._has_room():
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None


class AppendStream:
    """One writer of one log."""

    def __init__(self, producer: Producer, ledger: WriterLedger, acknowledgements: AcknowledgementLog) -> None:
        self.producer = producer
        self.ledger = ledger
        self.acknowledgements = acknowledgements
        self._pending: set[asyncio.Future[object]] = set()
        self.errors: list[str] = []
        """What failed appends said, the first few."""

    def send(self, count: int, *, window: CallWindow | None = None) -> None:
        """Hand over `count` records in one call; `window` is charged until they are acknowledged."""
        began = time.monotonic_ns()
        acknowledgements = self.acknowledgements
        self._send(count, window, lambda ended: acknowledgements.add(began, ended, count))

    def send_arrivals(self, moments: Sequence[int], *, window: CallWindow | None = None) -> None:
        """Hand over a record for each moment at which one should have been handed over (`time.monotonic_ns`): latency counts from there."""
        acknowledgements = self.acknowledgements

        def note(ended: int) -> None:
            for moment in moments:
                acknowledgements.add(moment, ended, 1)

        self._send(len(moments), window, note)

    def _send(self, count: int, window: CallWindow | None, note: Callable[[int], None]) -> None:
        ledger = self.ledger
        first, records = ledger.take(count)
        if window is not None:
            window.records += count
        done = asyncio.ensure_future(self.producer.append_many(records))
        self._pending.add(done)

        def acknowledged(future: asyncio.Future[object]) -> None:
            self._pending.discard(future)
            if window is not None:
                window.give_back(count)
            if future.cancelled():
                ledger.on_failed(first, count)
                return
            error = future.exception()
            if error is None:
                ledger.on_acknowledged(count)
                note(time.monotonic_ns())
                return
            ledger.on_failed(first, count)
            self.acknowledgements.failed_records += count
            if len(self.errors) < 3:
                self.errors.append(f"{type(error).__name__}: {error}")

        done.add_done_callback(acknowledged)

    async def lone(self) -> int:
        """Append one record and wait for its acknowledgement; nanoseconds that it took.

        Raises:
            AppendError: it was not acknowledged.
        """
        first, records = self.ledger.take(1)
        began = time.monotonic_ns()
        try:
            await self.producer.append_many(records)
        except AppendError:
            self.ledger.on_failed(first, 1)
            self.acknowledgements.failed_records += 1
            raise
        ended = time.monotonic_ns()
        self.ledger.on_acknowledged(1)
        self.acknowledgements.add(began, ended, 1)
        return ended - began

    async def settle(self) -> None:
        """Wait until everything handed over is acknowledged or failed."""
        while self._pending:
            await asyncio.wait(self._pending)

    def raise_failures(self) -> None:
        """Fail when an append did, where nothing was meant to fail.

        Raises:
            EngineError: with what the first ones said.
        """
        if self.errors:
            raise EngineError(f"appends failed: {'; '.join(self.errors)}")


async def read_until(
    consumer: Consumer,
    verifier: LogVerifier,
    done: Callable[[], bool],
    *,
    max_records: int = 10_000,
    stall_seconds: float = STALL_SECONDS,
    on_batch: Callable[[int, int], None] | None = None,
) -> None:
    """Read and judge until `done`, which is asked after each batch.

    Args:
        consumer: a reader of the log.
        verifier: judges what comes.
        done: whether to stop.
        max_records: of one batch.
        stall_seconds: the longest wait for a batch.
        on_batch: called with the moment of delivery (`time.monotonic_ns`) and the number of records, before they are judged.

    Raises:
        WrongResultError: something wrong was read, or nothing more comes although records are missing.
    """
    while not done():
        try:
            async with asyncio.timeout(stall_seconds):
                records = await consumer.read(max_records)
        except TimeoutError:
            raise WrongResultError(
                f"nothing was delivered for {stall_seconds:.0f} s; {verifier.missing} records were not read"
            ) from None
        if on_batch is not None:
            on_batch(time.monotonic_ns(), len(records))
        verifier.feed(records)
