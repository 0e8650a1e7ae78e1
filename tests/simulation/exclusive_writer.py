"""Applications that share one write stream, of which one at a time goes on with it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from client.read.items import Record
from client.takeover import recovered
from logdevice_py.core.ids import WriterId
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND
from tests.simulation.asyncio_clients import AsyncioApplication
from tests.simulation.history import LogHistory, Observation

LETTER: Final = "y"
"""With which the names of the processes begin."""
_WRITER: Final = WriterId(b"exclusive writer")
_TIMEOUT: Final = 5 * SECOND
_AT_ONCE_MAX: Final = 8


def check_exclusive(history: LogHistory, whole: Observation) -> None:
    """The records of the stream are numbered without a gap or a repetition, whoever appended them: each process knew all those before its own."""
    start = LETTER.encode()
    numbers = [int(payload.split(b"-")[1]) for _, _, payload in whole.records if payload.startswith(start)]
    for expected, number in enumerate(numbers, 1):
        if number != expected:
            history.fail(f"record {number} of the shared write stream stands where {expected} is due")


class ExclusiveStreamWriter(AsyncioApplication):
    """A process that goes on with the stream again and again. It numbers the records: from one behind the last that it has read."""

    async def live(self, interval: int) -> None:
        self.log = self.run.scenario.logs[0]
        self.history = self.run.histories[self.log]
        self.number, self.read_until = 0, 0
        while not self.is_calm.is_set():
            try:
                view = await self.look()
                async with self.client.client.buffered_writer() as writer:
                    writer.take_over(self.log, _WRITER, view)
                    await self.write(writer, interval)
            except LogDeviceError as error:
                self.cluster.note(self.client.name, "does not have the stream", error)
                await self.rest(1 + self.rng.randrange(SECOND))

    async def look(self) -> Epoch:
        """Read what the stream holds below an epoch in which nothing more can come to it: all is known below that one."""
        client = self.client.client
        # half of the time whoever has the stream loses it, as the log moves on
        moves = 1 + client.session.routes.epoch(self.log) if self.rng.random() < 0.5 else 0
        view = Epoch((await recovered(client, self.log, min_epoch=moves, timeout_us=_TIMEOUT)).epoch)
        until = compose_lsn(Epoch(view - 1), ESN_MAX)
        if view > 1 and until > self.read_until:
            async with client.reader(self.log, start=Lsn(self.read_until + 1), until=until) as reader:
                async for item in reader:
                    if isinstance(item, Record) and item.payload.startswith(LETTER.encode()):
                        self.number = int(item.payload.split(b"-")[1])
            self.read_until = int(until)
        return view

    async def write(self, writer: Any, interval: int) -> None:
        """Append until the run is calm or something fails. Nothing is appended behind a record whose outcome is not known."""
        while not self.is_calm.is_set():
            await self.rest(1 + self.rng.randrange(4 * interval))
            answers = []
            for number in range(self.number + 1, self.number + 1 + self.rng.randrange(1, _AT_ONCE_MAX)):
                # a number is given again when what failed was not stored
                payload = f"{self.name}-{number}-{self.rng.getrandbits(32)}-".encode() + bytes(
                    self.rng.choice([0, 10, 1000])
                )
                attempt = self.history.attempt(payload, self.floor[self.log])
                answers.append(self.outcome(self.log, attempt, writer.append(self.log, payload)))
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
            failed = [each for each in outcomes if isinstance(each, BaseException)]
            if failed:
                # what of it is stored is read before anything else is appended
                raise failed[0]
            self.number += len(answers)
