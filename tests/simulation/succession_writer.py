"""An application that is run by one process after another."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from client.read.items import Record
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND
from tests.simulation.asyncio_clients import AsyncioApplication
from tests.simulation.succession import FENCE, CountedRecords

_IN_FLIGHT_MAX = 8
_BEHIND_ALL = 1 << 30
"""An offset within an entry that none has."""


class SuccessionWriter(AsyncioApplication):
    """A process of the writer. It fences the others off, reads what was written, goes on behind the last record that counts, and hands over to a
    successor now and then: before it dies, or by dying. Everybody who wants to take over a stream of records with nothing lost and nothing twice
    can do so like this."""

    handed_over = False

    async def live(self, interval: int) -> None:
        self.log = self.run.scenario.logs[0]
        self.history = self.run.histories[self.log]
        while True:
            try:
                number = await self.take_over()
                break
            except LogDeviceError as error:
                self.cluster.note(self.client.name, "does not take over yet", error)
                await asyncio.sleep(0.1)
        self.cluster.note(self.client.name, "takes over", number)
        try:
            async with self.client.client.buffered_writer() as writer:
                await self.write(writer, number, interval)
        except LogDeviceError as error:
            self.cluster.note(self.client.name, "ends", error)
            self.hand_over()

    async def take_over(self) -> int:
        """The number of the last record that counts."""
        client, log, history = self.client.client, self.log, self.history
        before = history.acknowledged_max
        tail = int(await client.tail_lsn(log))
        history.check_tail(tail, before)
        # whoever knows the tail appends above it, so nothing that was acknowledged before lies above the fence
        payload = f"{self.name}-{FENCE}-{self.rng.getrandbits(32)}".encode()
        fence = history.attempt(payload, (tail, _BEHIND_ALL))
        receipt = await self.outcome(log, fence, client.append(log, payload))
        found: list[bytes] = []
        async with client.reader(log, until=receipt.lsn) as reader:
            async for item in reader:
                if isinstance(item, Record):
                    found.append(item.payload)
        return CountedRecords(found).last

    async def write(self, writer: Any, number: int, interval: int) -> None:
        """Append until the run is calm or a successor has come."""
        waiting: deque[asyncio.Task[Any]] = deque()
        while not self.is_calm.is_set():
            await self.rest(1 + self.rng.randrange(2 * interval))
            number += 1
            payload = f"{self.name}-{number}-".encode() + bytes(self.rng.choice([0, 10, 100]))
            attempt = self.history.attempt(payload, self.floor[self.log], self.name, number)
            waiting.append(asyncio.create_task(self.outcome(self.log, attempt, writer.append(self.log, payload))))
            while len(waiting) >= _IN_FLIGHT_MAX or (waiting and waiting[0].done()):
                await waiting.popleft()
            if self.rng.random() < 0.02:
                self.hand_over()
        await asyncio.gather(*waiting)

    def hand_over(self) -> None:
        """A successor takes over from a process that is gone, or from one that does not know of it and goes on for a while."""
        if self.handed_over or self.run.stopping:
            return
        self.handed_over = True
        if self.rng.random() < 0.5:
            self.die()
        else:
            self.cluster.scheduler.after(self.rng.randrange(3 * SECOND), self.die)
        self.run.add(self.name[0])
