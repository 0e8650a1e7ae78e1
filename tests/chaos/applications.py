"""Writers and readers of real clients, whose acknowledgement logs are the simulator's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError
from tests.chaos.places import HERE, ClientPlace, PlacedClient
from tests.simulation.history import LogHistory, Observation, Position

UNDER_WAY_MAX = 20


class ChaosApplications:
    """Everything that uses the cluster, and what it may say about it."""

    def __init__(self, file: str, logs: range, rng: random.Random, places: Sequence[ClientPlace] = (HERE,)) -> None:
        """
        Args:
            places: from where clients write and read, each all logs.
        """
        self.histories = {LogId(log): LogHistory(LogId(log)) for log in logs}
        self._file = file
        self._places = places
        self._rng = rng
        self._stop = asyncio.Event()
        self._began = asyncio.get_running_loop().time()
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: list[PlacedClient] = []
        self.longest_silence = 0.0
        """Seconds between two acknowledgements of any one log at any one place, at most."""
        self.silent = ""
        """Which log and place that was, and how long after the beginning it ended."""
        self._last_acknowledgement: dict[tuple[LogId, str], float] = {}

    async def start(self) -> None:
        """Begin: a stream writer, plain appends and a tailing reader for each log, on three clients at each place."""
        for place in self._places:
            clients = [
                await place.client(self._file, name=f"chaos{index}{place.name}", seed=self._rng.getrandbits(32))
                for index in range(3)
            ]
            self._clients += clients
            writing, appending, reading = clients
            for log in self.histories:
                self._spawn(self._write_stream(writing, log, place.name), f"stream of {log} {place.name}")
                self._spawn(self._append(appending, log, place.name), f"appends to {log} {place.name}")
                self._spawn(self._tail(reading, log, place.name), f"reader of {log} {place.name}")

    def _spawn(self, run: object, name: str) -> None:
        self._tasks.append(asyncio.create_task(run, name=name))  # type: ignore[arg-type]

    def check(self) -> None:
        """Raises what an application raised."""
        for task in self._tasks:
            if task.done():
                task.result()

    @property
    def acknowledged(self) -> int:
        """Records, of all logs."""
        return sum(history.acknowledged for history in self.histories.values())

    def _acknowledged(self, log: LogId, place: str) -> None:
        now = asyncio.get_running_loop().time()
        silence = now - self._last_acknowledgement.get((log, place), now)
        if silence > self.longest_silence:
            self.longest_silence = silence
            self.silent = f"log {log}{f' from {place}' if place else ''}, until {now - self._began:.1f} s"
        self._last_acknowledgement[log, place] = now

    async def _write_stream(self, client: PlacedClient, log: LogId, place: str) -> None:
        history, name, number = self.histories[log], f"s{log}{place}", 0
        floor: Position = (0, 0)
        rng = random.Random(self._rng.getrandbits(32))
        under_way: set[asyncio.Task[None]] = set()

        async def batch(first: int, payloads: list[bytes]) -> None:
            nonlocal floor
            attempts = [history.attempt(each, floor, name, first + index) for index, each in enumerate(payloads)]
            receipts = await writer.append_many(log, payloads)
            for attempt, receipt in zip(attempts, receipts, strict=True):
                history.acknowledge(attempt, receipt.lsn, receipt.batch_offset)
                floor = max(floor, (int(receipt.lsn), receipt.batch_offset))
            self._acknowledged(log, place)

        async with client.buffered_writer(timeout="5min") as writer:
            while not self._stop.is_set():
                count = rng.choice([1, 5, 40])
                payloads = [f"{name}-{number + i}-".encode() + bytes(rng.choice([0, 50, 400])) for i in range(count)]
                task = asyncio.create_task(batch(number, payloads))
                number += count
                under_way.add(task)
                await asyncio.sleep(0)  # the batch is handed over in the order of the numbers
                while len(under_way) >= UNDER_WAY_MAX:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        each.result()
                await asyncio.sleep(rng.uniform(0, 0.01))
            for each in under_way:
                await each

    async def _append(self, client: PlacedClient, log: LogId, place: str) -> None:
        history, number = self.histories[log], 0
        floor: Position = (0, 0)
        while not self._stop.is_set():
            attempt = history.attempt(f"d{log}{place}-{number}".encode(), floor)
            number += 1
            try:
                receipt = await client.append(log, attempt.payload)
            except LogDeviceError as error:
                history.note_failure(attempt, maybe_applied=error.maybe_applied)
                await asyncio.sleep(0.05)
                continue
            history.acknowledge(attempt, receipt.lsn, receipt.batch_offset)
            floor = max(floor, (int(receipt.lsn), receipt.batch_offset))
            self._acknowledged(log, place)
            await asyncio.sleep(0.005)

    async def _tail(self, client: PlacedClient, log: LogId, place: str) -> None:
        history = self.histories[log]
        seen = Observation(f"tailing reader of {log} {place}", LSN_OLDEST)
        history.observations.append(seen)
        async with client.reader(log) as reader:
            while True:
                history.observe(seen, await reader.read(max_records=500))

    # The end

    async def until_all_go_on(self, *, timeout: float) -> float:
        """Wait until each log was acknowledged something at each place; the seconds that it took.

        Raises:
            TimeoutError: in so many seconds that did not come about.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        everywhere = [(log, place.name) for log in self.histories for place in self._places]
        async with asyncio.timeout(timeout):
            while any(self._last_acknowledgement.get(each, 0) <= began for each in everywhere):
                self.check()
                await asyncio.sleep(0.02)
        return loop.time() - began

    async def finish(self, *, timeout: float) -> None:
        """Stop writing; everything under way gets its answer, everything is read once more and compared.

        Raises:
            Violation: something that must never happen.
            TimeoutError: the cluster did not come to rest in so many seconds without faults.
        """
        self._stop.set()
        async with asyncio.timeout(timeout):
            await asyncio.gather(*(task for task in self._tasks if not task.get_name().startswith("reader")))
            async with Client(self._file, name="chaos-end") as client:
                for log, history in self.histories.items():
                    tail = await self._tail_of(client, log)
                    history.check_tail(tail, history.acknowledged_max)
                    await self._read(client, history, tail, single_copy=True)
                    whole = await self._read(client, history, tail, single_copy=False)
                    for tailing in [seen for seen in history.observations if seen.name.startswith("tailing")]:
                        while tailing.last < tail:
                            self.check()
                            await asyncio.sleep(0.05)
                    history.check_end(whole)

    async def _tail_of(self, client: Client, log: LogId) -> LSN:
        while True:
            try:
                return await client.tail_lsn(log)
            except LogDeviceError as error:
                if not error.retriable:
                    raise

    async def _read(self, client: Client, history: LogHistory, tail: LSN, *, single_copy: bool) -> Observation:
        seen = Observation("single-copy" if single_copy else "all-copies", LSN_OLDEST)
        async with client.reader(history.log, until=tail, single_copy=single_copy) as reader:
            while batch := await reader.read():
                history.observe(seen, batch)
        history.observations.append(seen)
        return seen

    async def close(self) -> None:
        """End readers and clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()
