"""Small appends at a fixed pace, and how long they took."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from types import TracebackType

from benchmarks.percentiles import percentile
from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError

_PAYLOAD = b"x" * 100
_UNDER_WAY_MAX = 2_000
_FILLERS = 48


@dataclass(slots=True)
class Latencies:
    """Of the appends of a stretch of time."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def percentile(self, share: float) -> float:
        """Milliseconds."""
        return percentile(self.seconds, share) * 1e3

    def add(self, others: Latencies) -> None:
        """Those of another stretch as well."""
        self.seconds += others.seconds
        self.failed += others.failed

    def __str__(self) -> str:
        text = (
            f"{len(self.seconds)} appends, p50 {self.percentile(0.5):.1f} ms, p99 {self.percentile(0.99):.1f} ms, "
            f"max {self.percentile(1):.0f} ms"
        )
        return f"{text}, {self.failed} failed" if self.failed else text


class PacedAppends:
    """Appends of 100 bytes to logs in turn, begun on time whatever became of those before: latencies count from when one was due."""

    def __init__(self, client: Client, logs: list[LogId], per_second: int) -> None:
        self._client = client
        self._logs = logs
        self._pause = 1 / per_second
        self._latencies = Latencies()
        self._under_way: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PacedAppends:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, *self._under_way, return_exceptions=True)

    def take(self) -> Latencies:
        """Those that ended since this was last asked."""
        taken, self._latencies = self._latencies, Latencies()
        return taken

    async def during(self, seconds: float) -> Latencies:
        """Those of so many seconds from here on."""
        self.take()
        await asyncio.sleep(seconds)
        return self.take()

    async def _run(self) -> None:
        due, number = time.perf_counter(), 0
        while True:
            due += self._pause
            await asyncio.sleep(max(0, due - time.perf_counter()))
            if len(self._under_way) < _UNDER_WAY_MAX:
                task = asyncio.create_task(self._append(self._logs[number % len(self._logs)], due))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
                number += 1
            else:
                self._latencies.failed += 1

    async def _append(self, log: LogId, due: float) -> None:
        try:
            await self._client.append(log, _PAYLOAD)
        except LogDeviceError:
            self._latencies.failed += 1
        else:
            self._latencies.seconds.append(time.perf_counter() - due)


async def fill(client: Client, logs: list[LogId], size: int, payload_bytes: int) -> None:
    """Append so many bytes, spread over the logs in turn, in payloads that do not compress."""
    noise = os.urandom(payload_bytes)
    numbers = iter(range(size // payload_bytes))

    async def append() -> None:
        for number in numbers:
            log = logs[number % len(logs)]
            while True:
                try:
                    await client.append(log, number.to_bytes(8, "big") + noise[8:])
                    break
                except LogDeviceError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(0.1)

    await asyncio.gather(*(append() for _ in range(_FILLERS)))
