"""What a stream of very many segments costs whoever uses it: opening it, listing its segments, finding a transaction id, its first and last record.

``python -m benchmarks.segments --segments 5000``: three nodes as processes, a stream that rolls with every record, and a client that measures each
question as the first one of its kind and then again and again. Making the segments takes most of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from client.client import Client
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file
from streams.attributes import Roll
from streams.namespace import Namespace
from streams.records import StreamRecord, TxId
from streams.stream import Stream

_NAME: Final = "many"
_WITHIN_MS: Final = 50.0


async def _make(stream: Stream, segments: int) -> None:
    """Write records, one after the other, until there are so many epochs: each is rolled when what it holds is released."""
    last = await stream.last_confirmed()
    record = None if last.epoch < 2 else await stream.last()
    txid = 0 if record is None or record.txid is None else record.txid
    began, first, told = time.perf_counter(), last.epoch, last.epoch
    async with stream.writer() as writer:
        while True:
            txid += 10
            epoch = (await writer.write(b"x" * 100, txid=txid)).position.epoch
            if epoch >= segments:
                break
            if epoch >= told + 500:
                told = epoch
                print(f"{epoch} segments after {time.perf_counter() - began:.0f} s", flush=True)
    print(
        f"{epoch - first} segments made in {time.perf_counter() - began:.0f} s, {txid // 10} records in all", flush=True
    )


class _Asking:
    """Questions to one stream, from clients that know it and from ones that do not."""

    def __init__(self, file: Path, segments: int, last: StreamRecord) -> None:
        self._file = file
        self._segments = segments
        self._last = last
        self._rng = random.Random(1)

    async def position(self, stream: Stream) -> None:
        """Read from a transaction id on."""
        assert self._last.txid is not None
        wanted = self._rng.randrange(1, self._last.txid // 10) * 10
        async with stream.reader(TxId(wanted)) as reader:
            batch = await reader.read(1)
        assert [record.txid for record in batch] == [wanted]

    async def time(self, stream: Stream) -> None:
        """Find the record of a moment."""
        client = stream.namespace.client
        await client.find_time(stream.log, self._last.timestamp - self._rng.randrange(10_000_000))

    async def listed(self, stream: Stream) -> None:
        """List all."""
        assert len(await stream.segments()) >= self._segments - 1

    async def anew(self, name: str, ask: Callable[[Stream], Awaitable[Any]], times: int) -> bool:
        """By clients that know nothing of the segments yet."""
        spent: list[float] = []
        used: list[float] = []
        for _ in range(times):
            async with Client(self._file) as client, Namespace(client) as namespace:
                stream = await namespace.open(_NAME)
                await client.tail_lsn(stream.log)
                await _timed(lambda stream=stream: ask(stream), spent, used)  # type: ignore[misc]
        return _told(f"{name}, the first time", spent, used)

    async def again(self, times: int) -> bool:
        """By one client, again and again."""
        fine = True
        async with Client(self._file) as client, Namespace(client) as namespace:
            stream = await namespace.open(_NAME)
            questions: dict[str, Callable[[], Awaitable[Any]]] = {
                "open": lambda: namespace.open(_NAME),
                "list": lambda: self.listed(stream),
                "list the last ten": lambda: stream.segments(start=self._last.position),
                "a transaction id": lambda: self.position(stream),
                "a time": lambda: self.time(stream),
                "the first record": stream.first,
                "the last record": stream.last,
                "count all": stream.count,
            }
            for name, question in questions.items():
                spent: list[float] = []
                used: list[float] = []
                for _ in range(times):
                    await _timed(question, spent, used)
                fine &= _told(name, spent, used)
        return fine


async def _timed(question: Callable[[], Awaitable[Any]], spent: list[float], used: list[float]) -> None:
    began, processor = time.perf_counter(), time.process_time()
    await question()
    spent.append((time.perf_counter() - began) * 1e3)
    used.append((time.process_time() - processor) * 1e3)


def _told(name: str, spent: list[float], used: list[float]) -> bool:
    """Print how long it took; whether nine of ten answers were there in time."""
    ordered = sorted(spent)
    most = ordered[len(ordered) * 9 // 10]
    middle, processor = statistics.median(spent), statistics.median(used)
    print(f"{name:<34} {len(spent):>4} {middle:>8.1f} {most:>8.1f} {ordered[-1]:>8.1f} {processor:>10.1f}", flush=True)
    return most <= _WITHIN_MS


async def measure(directory: Path, segments: int, times: int) -> bool:
    """Make the stream unless it is there, and ask; whether all is within 50 ms."""
    file = layout.cluster_file(directory)
    if file.exists():
        config = load_cluster(file.read_text())
    else:
        config = make_config(directory, nodes=3, logs=1, replicate="node:2", racks=1, epoch_store=None, log_tree=True)
        write_cluster_file(directory, config)
    supervisor = Supervisor(directory, config)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=supervisor.admin_access)
        await wait_until_writable(file, timeout=60)
        async with Client(file) as client, Namespace(client) as namespace:
            try:
                stream = await namespace.open(_NAME)
            except LogDeviceError:
                stream = await namespace.create(_NAME, txid="writer", roll=Roll(bytes=1))
            await _make(stream, segments)
            last = await stream.last()
            assert last is not None
        asking = _Asking(file, segments, last)
        print(f"{'question':<34} {'n':>4} {'p50 ms':>8} {'p90':>8} {'most':>8} {'client cpu':>10}")
        fine = await asking.anew("list", asking.listed, max(1, times // 4))
        fine &= await asking.anew("a transaction id", asking.position, max(1, times // 4))
        return await asking.again(times) and fine
    finally:
        await supervisor.stop_all()


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=5000)
    parser.add_argument("--times", type=int, default=40, help="how often each question is asked")
    parser.add_argument("--directory", type=Path, help="where the cluster stays, to be measured again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="segments-") as scratch:
        directory = arguments.directory or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        fine = asyncio.run(measure(directory, arguments.segments, arguments.times))
    print(f"{'all' if fine else 'not all'} nine of ten within {_WITHIN_MS:.0f} ms")


if __name__ == "__main__":
    main()
