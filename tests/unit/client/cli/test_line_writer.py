"""What ldwrite tells about each line, whatever becomes of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.cli.line_writer import LineWriter, WriteAccount
from client.connectivity import Connectivity
from client.receipt import ReceiptRun, Receipts
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import Durability
from tests.unit.client.fakes import LOG, cluster

LOST = LogDeviceError(Status.TIMEDOUT, "not acknowledged", maybe_applied=False)


class FakeWriter:
    """Takes batches; the test says what becomes of each."""

    def __init__(self) -> None:
        self.outcomes: list[asyncio.Future[Receipts]] = []
        self.taken: list[list[bytes]] = []
        self.asked: list[bool] = []
        self.called = asyncio.Event()

    async def ready(self) -> None:
        """There is always room."""

    def append_many(
        self, log: int, payloads: list[bytes], *, keys: list[bytes | None] | None, synced: bool
    ) -> asyncio.Future[Receipts]:
        if max(map(len, payloads)) > 1 << 20:
            raise LogDeviceError(Status.TOOBIG, "too long")
        self.taken.append(payloads)
        self.asked.append(synced)
        self.called.set()
        self.outcomes.append(asyncio.get_running_loop().create_future())
        return self.outcomes[-1]

    def abandon(self) -> None:
        for outcome in self.outcomes:
            if not outcome.done():
                outcome.set_exception(LogDeviceError(Status.SHUTDOWN, "closed", maybe_applied=True))

    def acknowledge(self, index: int, esn: int, durability: Durability = Durability.SYNC) -> None:
        run = ReceiptRun(len(self.taken[index]), LSN(1 << 32 | esn), 0, Timestamp(0), (), durability)
        self.outcomes[index].set_result(Receipts([run]))


class FakeLines:
    """Input whose end the test decides on."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[list[bytes] | None] = asyncio.Queue()

    async def next(self) -> list[bytes] | None:
        return await self.queue.get()


class FakeClient:
    def __init__(self) -> None:
        self.config = cluster()

    def connectivity(self) -> Connectivity:
        return Connectivity("c.toml", tuple(self.config.nodes), (), {})


class WritingBench:
    def __init__(self, *batches: list[bytes] | None, synced: bool = False) -> None:
        self.writer, self.lines, self.account = FakeWriter(), FakeLines(), WriteAccount()
        client: Any = FakeClient()
        writer: Any = self.writer
        self.machine = LineWriter(client, LOG, writer, self.account, synced=synced)
        for batch in batches:
            self.lines.queue.put_nowait(batch)

    async def start(self, *, batches: int) -> None:
        lines: Any = self.lines
        self.task = asyncio.create_task(self.machine.run(lines))
        while len(self.writer.taken) < batches:
            await self.writer.called.wait()
            self.writer.called.clear()

    def numbers(self) -> tuple[int, int, int]:
        account = self.account
        return account.records, account.acknowledged, account.in_doubt


async def test_at_the_end_of_the_input_everything_is_awaited() -> None:
    writing = WritingBench([b"a", b"b"], [b"c"], None)
    await writing.start(batches=2)
    writing.writer.acknowledge(1, 2)
    writing.writer.acknowledge(0, 1)
    await writing.task
    assert writing.numbers() == (3, 3, 0)
    assert (writing.account.first, writing.account.last) == ("e1n1", "e1n2")
    assert not writing.account.error


async def test_the_first_failure_stops_it_and_the_rest_is_of_unknown_outcome() -> None:
    writing = WritingBench([b"a"], [b"b", b"c"], [b"d"])
    await writing.start(batches=3)
    writing.writer.acknowledge(0, 1)
    writing.writer.outcomes[1].set_exception(LOST)
    await asyncio.wait([writing.writer.outcomes[1]])
    await asyncio.sleep(0)
    writing.lines.queue.put_nowait([b"e"])
    writing.machine.interrupt()
    await writing.task
    assert writing.writer.taken[-1] == [b"d"]
    assert writing.numbers() == (4, 1, 1)
    assert writing.account.error == "TIMEDOUT: not acknowledged; no node of c.toml has answered yet"
    assert writing.account.status == 4


async def test_an_interruption_waits_for_answers_and_a_second_one_does_not() -> None:
    writing = WritingBench([b"a"], [b"b"])
    await writing.start(batches=2)
    writing.machine.interrupt()
    writing.writer.acknowledge(0, 1)
    writing.machine.interrupt()
    await writing.task
    assert writing.numbers() == (2, 1, 1)
    assert not writing.account.error


async def test_a_line_that_is_too_long_is_named_and_nothing_behind_it_is_written() -> None:
    writing = WritingBench([b"a"], [b"b", b"x" * (2 << 20), b"c"], [b"d"], None)
    await writing.start(batches=2)
    writing.writer.acknowledge(0, 1)
    writing.writer.acknowledge(1, 2)
    await writing.task
    assert writing.writer.taken == [[b"a"], [b"b"]]
    assert writing.numbers() == (3, 2, 0)
    assert writing.account.error == "TOOBIG: line 3: too long"
    assert writing.account.status == 1


@pytest.mark.parametrize("synced", [False, True])
async def test_every_line_asks_for_a_sync_or_none_and_how_many_are_synced_is_counted(synced: bool) -> None:
    writing = WritingBench([b"a"], [b"b", b"c"], None, synced=synced)
    await writing.start(batches=2)
    writing.writer.acknowledge(0, 1)
    writing.writer.acknowledge(1, 2, Durability.ASYNC)
    await writing.task
    assert writing.writer.asked == [synced] * 2
    assert (writing.account.acknowledged, writing.account.summary()["synced"]) == (3, 1)
