"""What streams and guards cost beside plain appends, with real processes: ``python -m benchmarks.streams [--pairs 10] [--only NAME ...]``.

Each comparison does the same work with and without, alternately, in pairs, and prints the median and the spread of the ratios pair by pair. In the end ten clients contend for
the positions of one stream, and everything is read back: each position has one winner, and who lost was told.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.processor_time import processor_seconds
from client.client import Client
from client.guards import START, GuardError, Position
from client.read.items import Record
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file
from streams.namespace import Namespace
from streams.stream import Stream

_NODES: Final = 3
_PAYLOAD: Final = b"x" * 100
_CHUNK: Final = 1000
_CHUNKS_UNDER_WAY: Final = 24
_STREAMS: Final = 64
_CONTENDERS: Final = 10

Work = Callable[[int], Awaitable[object]]
"""Does so many records."""


@dataclass(frozen=True, slots=True)
class PairOfWork:
    """The same work with something and without it."""

    name: str
    count: int
    """Records of one piece of work."""
    given: Work
    plain: Work
    goal: str


class Workloads:
    """What is compared, with one client."""

    def __init__(self, client: Client, streams: list[Stream], log: int, logs: Sequence[int]) -> None:
        """
        Args:
            streams: shared ones whose transaction ids are times: one for a writer, one and 64 for conditional appends.
            log: a log that is no stream.
            logs: 64 more.
        """
        self._client = client
        self._streams = streams
        self._log = log
        self._logs = logs
        self._last: dict[int, Position] = {}
        """Of the last conditional append of each log."""
        self._txids = itertools.count(1)

    async def comparisons(self, numbered: int) -> list[PairOfWork]:
        """All of them; `numbered` is a log whose appends have transaction ids."""
        chained, *streams = [stream.log for stream in self._streams[1:]]

        async def stream_writer(count: int) -> None:
            async with self._streams[0].writer() as writer:
                await self._write(writer.ready, writer.write_many, count)

        async def log_writer(count: int) -> None:
            async with self._client.buffered_writer() as writer:
                await self._write(writer.ready, lambda chunk: writer.append_many(self._log, chunk), count)

        async def with_txid(count: int) -> None:
            for _ in range(count):
                await self._client.append(numbered, _PAYLOAD, txid=next(self._txids))

        return [
            PairOfWork("writer of a stream, of a log", 200_000, stream_writer, log_writer, "records a second: 0.9"),
            PairOfWork("lone appends with and without a guard", 1000, with_txid, self._lone, "processor time: 1.03"),
            PairOfWork(
                "conditional appends, lone appends",
                1000,
                lambda count: self._in_step(chained, count),
                self._lone,
                "records a second: 0.9",
            ),
            PairOfWork(
                "the same over 64 streams, 64 logs",
                10_000,
                lambda count: self._each(self._in_step, streams, count),
                lambda count: self._each(self._appends, self._logs, count),
                "records a second: 0.9",
            ),
        ]

    async def _write(
        self, ready: Callable[[], Awaitable[None]], write: Callable[[list[bytes]], Awaitable[Any]], count: int
    ) -> None:
        chunk = [_PAYLOAD] * min(_CHUNK, count)
        under_way: deque[Awaitable[Any]] = deque()
        for _ in range(count // len(chunk)):
            await ready()
            under_way.append(write(chunk))
            if len(under_way) >= _CHUNKS_UNDER_WAY:
                await under_way.popleft()
        while under_way:
            await under_way.popleft()

    async def _lone(self, count: int) -> None:
        await self._appends(self._log, count)

    async def _appends(self, log: int, count: int) -> None:
        for _ in range(count):
            await self._client.append(log, _PAYLOAD)

    async def _in_step(self, log: int, count: int) -> None:
        """Each behind the one before, which is awaited first."""
        last = self._last.get(log, START)
        for _ in range(count):
            last = (await self._client.append(log, _PAYLOAD, expect=last)).position
        self._last[log] = last

    @staticmethod
    async def _each(work: Callable[[int, int], Awaitable[None]], logs: Sequence[int], count: int) -> None:
        await asyncio.gather(*(work(log, count // len(logs)) for log in logs))


async def _measured(work: Work, count: int, processes: list[int]) -> tuple[float, float]:
    """Records a second, and microseconds of processor time of all processes a record."""
    before, began = sum(map(processor_seconds, processes)), time.perf_counter()
    await work(count)
    took = time.perf_counter() - began
    return count / took, (sum(map(processor_seconds, processes)) - before) / count * 1e6


async def _compare(comparison: PairOfWork, pairs: int, scale: float, processes: list[int]) -> None:
    count = max(_STREAMS, int(comparison.count * scale))
    rates: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    for pair in range(pairs + 1):
        order = (comparison.given, comparison.plain) if pair % 2 else (comparison.plain, comparison.given)
        found = {work: await _measured(work, count, processes) for work in order}
        if pair:  # the first is for warming up
            given, plain = found[comparison.given], found[comparison.plain]
            rates.append((given[0], plain[0]))
            costs.append((given[1], plain[1]))
    print(f"{comparison.name} (goal: {comparison.goal})")
    for name, figures in (("records a second", rates), ("processor us a record", costs)):
        ratios = [given / plain for given, plain in figures]
        given, plain = (statistics.median(each) for each in zip(*figures, strict=True))
        print(
            f"  {name:22} {given:12,.1f} {plain:12,.1f}   ratio {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}",
            flush=True,
        )


async def _contend(file: Path, stream: Stream, seconds: float) -> None:
    """Ten clients append behind what each takes for the last record, for some seconds."""
    won: dict[Position, Position] = {}
    conflicts = [0] * _CONTENDERS
    end = time.perf_counter() + seconds

    async def contend(number: int) -> None:
        async with Client(file) as client:
            last = START
            while time.perf_counter() < end:
                try:
                    receipt = await client.append(stream.log, b"%d" % number, expect=last)
                except GuardError as error:
                    conflicts[number] += 1
                    last = last if error.position is None else error.position
                    continue
                assert receipt.position not in won, f"{receipt.position} was won twice"
                won[receipt.position] = last
                last = receipt.position

    await asyncio.gather(*map(contend, range(_CONTENDERS)))
    client, before = stream.namespace.client, START
    async with client.reader(stream.log, until=await client.tail_lsn(stream.log)) as reader:
        async for item in reader:
            if isinstance(item, Record):
                position = Position(item.lsn, item.batch_offset)
                assert won.pop(position) == before, f"{position} follows {before}"
                before = position
    assert not won, f"{len(won)} were acknowledged and are not there"
    appended = int(await stream.count())
    print(
        f"ten contenders: {appended / seconds:,.0f} appends a second, each position won once and behind what was expected; {sum(conflicts):,} conflicts, "
        f"{min(conflicts):,} to {max(conflicts):,} a client"
    )


async def run(pairs: int, scale: float, only: list[str]) -> None:
    """Start a cluster, measure, stop it."""
    with tempfile.TemporaryDirectory(prefix="logdevice-streams-") as path:
        directory = Path(path)
        config = make_config(
            directory, nodes=_NODES, logs=1, replicate="node:3", racks=1, epoch_store=None, log_tree=True
        )
        supervisor = Supervisor(directory, config)
        write_cluster_file(directory, config)
        await supervisor.listen()
        try:
            await supervisor.start_all()
            await wait_until_acquainted(config, supervisor.running, timeout=60, access=supervisor.admin_access)
            file = layout.cluster_file(directory)
            await wait_until_writable(file, timeout=60)
            processes = [os.getpid(), *(child.process.pid for child in supervisor.children.values())]
            async with Client(file) as client, Namespace(client, "/streams") as namespace:
                streams = [await namespace.create(f"s{number}") for number in range(2 + _STREAMS)]
                plain = (await client.make_log_group("/plain", 2 + _STREAMS)).logs
                workloads = Workloads(client, streams, plain[0], plain[2:])
                for comparison in await workloads.comparisons(plain[1]):
                    if not only or any(name in comparison.name for name in only):
                        await _compare(comparison, pairs, scale, processes)
                if not only or any(name in "ten contenders" for name in only):
                    await _contend(file, await namespace.create("contended"), 10 * scale)
        finally:
            await supervisor.stop_all()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="benchmarks.streams", description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="of each comparison (default 10)")
    parser.add_argument("--scale", type=float, default=1.0, help="how much work, as a multiple")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TEXT", help="comparisons that have this in their name"
    )
    arguments = parser.parse_args()
    asyncio.run(run(arguments.pairs, arguments.scale, arguments.only))


if __name__ == "__main__":
    main()
