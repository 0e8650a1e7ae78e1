"""Clients that append to a log and look at it, one operation at a time each, and note it all in a history."""

from __future__ import annotations

import asyncio
import random

from client.client import Client
from client.guards import START, GuardError, Position
from client.read.items import Record
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from tests.linearizability.history import History, digest

OPERATION_SECONDS = 5.0


async def records_of(client: Client, log: int, until: LSN, timeout: float) -> dict[bytes, Position]:
    """All records up to an LSN, in order, with their positions."""
    records: dict[bytes, Position] = {}
    async with asyncio.timeout(timeout), client.reader(log, until=until) as reader:
        async for item in reader:
            if isinstance(item, Record):
                assert item.payload not in records, f"{item.payload!r} is there twice"
                records[item.payload] = Position(item.lsn, item.batch_offset)
    return records


class HistoryClient:
    """One client of one log."""

    def __init__(self, number: int, client: Client, log: int, history: History, rng: random.Random, *, guarded: bool):
        """`guarded`: half of its appends expect what it takes for the last record."""
        self._number = number
        self._client = client
        self._log = log
        self._history = history
        self._rng = rng
        self._guarded = guarded
        self._last = START
        self._appended = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until it is told to stop."""
        while not stop.is_set():
            choice = self._rng.random()
            if choice < 0.8:
                await self._append()
            elif choice < 0.95:
                await self._tail()
            else:
                await self._read()
            await asyncio.sleep(self._rng.choice([0, 0.002, 0.01, 0.05]))

    async def _append(self) -> None:
        self._appended += 1
        payload = f"{self._number}-{self._appended}".encode()
        expect = self._last if self._guarded and self._rng.random() < 0.5 else None
        operation = self._history.append(self._number, payload, expect)
        try:
            receipt = await self._client.append(self._log, payload, expect=expect, timeout=OPERATION_SECONDS)
        except LogDeviceError as error:
            if isinstance(error, GuardError) and error.position is not None:
                self._last = error.position
            if error.maybe_applied:
                self._history.unknown.append(operation)
            else:
                self._history.refused.add(payload)
            return
        self._last = receipt.position
        self._history.told(operation, position=[int(receipt.lsn), receipt.batch_offset])

    async def _tail(self) -> None:
        operation = self._history.look(self._number, "tail")
        try:
            tail = await self._client.tail_lsn(self._log, timeout=OPERATION_SECONDS)
        except LogDeviceError:
            return
        self._history.told(operation, tail=int(tail))

    async def _read(self) -> None:
        operation = self._history.look(self._number, "read")
        try:
            tail = await self._client.tail_lsn(self._log, timeout=OPERATION_SECONDS)
            records = await records_of(self._client, self._log, tail, OPERATION_SECONDS)
        except (LogDeviceError, TimeoutError):
            return
        if records:
            self._last = list(records.values())[-1]
        self._history.told(operation, tail=int(tail), count=len(records), digest=digest(records))
