"""``make demo``: a cluster of real processes, real input, and the node that sequences the log killed half-way.

With a ZooKeeper server of its own it can also show what the cluster does without its epoch store: epochs that are open go on, and the
activation of a sequencer waits until the server is back.

Every figure of the summary is counted while it runs: what was acknowledged is compared, position by position and byte by byte, with what is
read back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.receipt import Receipts
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from server import layout
from server.dev_cluster import make_config
from server.readiness import wait_until_writable
from server.supervisor import Supervisor, write_cluster_file
from server.zookeeper_server import ZooKeeperServer, ZooKeeperUnavailableError

LOG = LogId(1)
CHUNK_MAX = 2000
"""Records handed to the writer at once, unless there are few."""
BAR = 28
STOP_SECONDS = 3.0
_STORE_NAMES = {"sqlite": "SQLite", "zookeeper": "ZooKeeper", "memory": "memory"}


@dataclass(slots=True)
class DemoOutcome:
    """What was counted."""

    records: int = 0
    bytes: int = 0
    write_seconds: float = 0.0
    read_seconds: float = 0.0
    killed: str = "nobody"
    stall: float = 0.0
    acknowledged: int = 0
    epochs: list[int] = field(default_factory=list)
    gaps: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    altered: int = 0
    away_seconds: float = 0.0
    """How long the epoch store was stopped."""
    away_records: int = 0
    """Acknowledged while it was."""

    @property
    def good(self) -> bool:
        """Nothing is missing, twice, at the wrong place or changed."""
        return not (self.lost or self.duplicated or self.out_of_order or self.altered or self.gaps["dataloss"])


class DemoProgress:
    """One line that is rewritten, on a terminal; plain lines now and then elsewhere."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, max(1, total)
        self._terminal = sys.stderr.isatty()
        self._last = 0.0
        self._step = -1

    def show(self, done: int, note: str = "") -> None:
        """How far it is."""
        now = time.monotonic()
        share = min(1.0, done / self._total)
        if self._terminal:
            if now - self._last < 0.05 and done < self._total:
                return
            self._last = now
            filled = round(share * BAR)
            bar = "━" * filled + "╌" * (BAR - filled)
            print(f"\r\x1b[K  {self._what:<8} {bar} {share:4.0%}  {note}", end="", file=sys.stderr, flush=True)
        elif int(share * 4) > self._step:
            self._step = int(share * 4)
            print(f"  {self._what:<8} {share:4.0%}  {note}", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        print(("\r\x1b[K" if self._terminal else "") + f"  {text}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The last state stays."""
        if self._terminal:
            print(file=sys.stderr)


def standard_library() -> Iterator[bytes]:
    """The source text of the running Python's standard library, line by line."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" not in path.parts:
            with contextlib.suppress(OSError):
                yield from path.read_bytes().split(b"\n")


def lines_of(path: Path | None) -> list[bytes]:
    """The records: the lines of a file, or of the standard library."""
    return path.read_bytes().split(b"\n") if path is not None else list(standard_library())


class StoreOutage:
    """The epoch store's server is killed at a quarter of the records, and started again some seconds after the sequencer's node was killed."""

    def __init__(self, server: ZooKeeperServer, seconds: float) -> None:
        self.server = server
        self.seconds = seconds
        self.begun_at: float | None = None
        self.ended_at: float | None = None

    def begin(self) -> None:
        """SIGKILL."""
        self.server.kill()
        self.begun_at = time.monotonic()

    async def end(self) -> None:
        """Start it again, when its time is over."""
        await asyncio.sleep(self.seconds)
        await self.server.start_async()
        self.ended_at = time.monotonic()

    @property
    def lasts(self) -> bool:
        """Whether it is away."""
        return self.begun_at is not None and self.ended_at is None


class Writing:
    """Appends everything and breaks things meanwhile."""

    def __init__(
        self,
        client: Client,
        lines: list[bytes],
        supervisor: Supervisor,
        outcome: DemoOutcome,
        outage: StoreOutage | None,
    ) -> None:
        self._client = client
        self._lines = lines
        self._supervisor = supervisor
        self._outcome = outcome
        self._outage = outage
        self._progress = DemoProgress("write", len(lines))
        self._acknowledged = 0
        self._start = self._last = time.monotonic()
        self._away_from = 0

    async def run(self, *, kill: bool) -> list[Receipts]:
        """The receipts, in the order of the records."""
        lines, outcome = self._lines, self._outcome
        chunk = max(1, min(CHUNK_MAX, len(lines) // 100))
        kill_at = len(lines) // 2 if kill else -1
        away_at = len(lines) // 4 if self._outage is not None else -1
        back: asyncio.Task[None] | None = None
        async with self._client.buffered_writer(compression="zstd") as writer:
            running: set[asyncio.Task[Receipts]] = set()
            order: list[asyncio.Task[Receipts]] = []
            try:
                for at in range(0, len(lines), chunk):
                    if self._outage is not None and at <= away_at < at + chunk:
                        self._stop_store(self._outage)
                        back = None if kill else asyncio.create_task(self._end_outage(self._outage))
                    if at <= kill_at < at + chunk:
                        await self._kill_sequencer()
                        if self._outage is not None:
                            back = asyncio.create_task(self._end_outage(self._outage))
                    task = asyncio.create_task(self._one(writer, lines[at : at + chunk]))
                    running.add(task)
                    order.append(task)
                    task.add_done_callback(running.discard)
                    while len(running) > 16:
                        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                receipts = list(await asyncio.gather(*order))
                outcome.write_seconds = time.monotonic() - self._start
                if back is not None:
                    await back
            finally:
                for left in (back, *running):
                    if left is not None:
                        left.cancel()
        outcome.acknowledged = self._acknowledged
        self._show()
        self._progress.end()
        return receipts

    async def _one(self, writer: BufferedWriter, part: list[bytes]) -> Receipts:
        got = await writer.append_many(LOG, part)
        now = time.monotonic()
        if self._acknowledged:
            self._outcome.stall = max(self._outcome.stall, now - self._last)
        self._last = now
        self._acknowledged += len(got)
        if self._outage is not None and self._outage.lasts:
            self._outcome.away_records += len(got)
        self._show()
        return got

    def _show(self) -> None:
        rate = self._acknowledged / max(self._last - self._start, 1e-9)
        self._progress.show(self._acknowledged, f"{self._acknowledged:,} records  {rate:,.0f}/s")

    async def _kill_sequencer(self) -> None:
        node = (await self._client.sequencer(LOG)).node
        await self._supervisor.kill(node)
        self._outcome.killed = f"N{node}"
        waits = self._outage is not None and self._outage.lasts
        then = "a new epoch needs the epoch store: writing waits for it" if waits else "writing goes on"
        self._progress.say(f"N{node}, which sequences the log, is killed (SIGKILL); {then}")

    def _stop_store(self, outage: StoreOutage) -> None:
        outage.begin()
        self._progress.say("ZooKeeper is killed (SIGKILL); the log's epoch is open, writing goes on")

    async def _end_outage(self, outage: StoreOutage) -> None:
        await outage.end()
        assert outage.begun_at is not None
        assert outage.ended_at is not None
        self._outcome.away_seconds = outage.ended_at - outage.begun_at
        self._progress.say(f"ZooKeeper is back after {self._outcome.away_seconds:.1f} s")


async def read_back(client: Client, lines: list[bytes], receipts: list[Receipts], outcome: DemoOutcome) -> None:
    """Read the log from its begin to its tail and compare."""
    expected: dict[tuple[int, int], int] = {}
    for index, position in enumerate(
        position for part in receipts for position in zip(part.lsns(), part.batch_offsets(), strict=True)
    ):
        expected[position] = index
    outcome.duplicated += len(lines) - len(expected)
    progress = DemoProgress("read", len(lines))
    start = time.monotonic()
    seen = bytearray(len(lines))
    last = -1
    tail = await client.tail_lsn(LOG)
    async with client.reader(LOG, start=LSN.OLDEST, until=tail) as reader:
        done = 0
        while batch := await reader.read(max_records=20_000):
            for gap in batch.gaps:
                outcome.gaps[gap.kind.value] += 1
            for payload, lsn, offset in zip(batch.payloads, batch.lsns, batch.batch_offsets, strict=True):
                index = expected.get((lsn, offset), -1)
                if index < 0 or seen[index]:
                    outcome.duplicated += 1
                    continue
                seen[index] = 1
                outcome.out_of_order += index < last
                last = index
                outcome.altered += payload != lines[index]
            outcome.epochs = sorted({*outcome.epochs, *(lsn >> 32 for lsn in {run.lsn for run in batch.runs})})
            done += len(batch)
            progress.show(done, f"{done:,} records  {done / (time.monotonic() - start):,.0f}/s")
    outcome.lost = len(lines) - sum(seen)
    outcome.read_seconds = time.monotonic() - start
    progress.show(len(lines), f"{done:,} records  {done / outcome.read_seconds:,.0f}/s")
    progress.end()


def summary(outcome: DemoOutcome, durability: str, epoch_store: str) -> str:
    """What was counted, for people."""
    size = outcome.bytes / 1e6
    gaps = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.gaps.items()) if count) or "none"
    verdict = "every acknowledged record was read back, once, in order" if outcome.good else "SOMETHING IS WRONG"
    away = ""
    if outcome.away_seconds:
        away = f"; away for {outcome.away_seconds:.1f} s, in which {outcome.away_records:,} records were acknowledged"
    rows = [
        ("records", f"{outcome.records:,} ({size:,.1f} MB), {outcome.acknowledged:,} acknowledged"),
        (
            "written at",
            f"{outcome.records / outcome.write_seconds:,.0f} records/s, {size / outcome.write_seconds:,.1f} MB/s "
            f"(3 copies, durability {durability})",
        ),
        (
            "read at",
            f"{outcome.records / outcome.read_seconds:,.0f} records/s, {size / outcome.read_seconds:,.1f} MB/s",
        ),
        ("killed", f"{outcome.killed}; appends stood still for {outcome.stall:.2f} s at most"),
        ("epochs", ", ".join(map(str, outcome.epochs))),
        ("epoch store", epoch_store + away),
        ("gaps", gaps),
        ("lost", str(outcome.lost)),
        ("duplicated", str(outcome.duplicated)),
        ("out of order", str(outcome.out_of_order)),
        ("altered", str(outcome.altered)),
    ]
    return "\n".join(["", *(f"  {name:<13} {value}" for name, value in rows), "", f"  {verdict}", ""])


async def run(arguments: argparse.Namespace, directory: Path) -> int:
    """The demo; its exit status."""
    lines = await asyncio.to_thread(lines_of, arguments.file)
    outcome = DemoOutcome(records=len(lines), bytes=sum(map(len, lines)))
    server: ZooKeeperServer | None = None
    url: str | None = arguments.epoch_store
    if url == "zookeeper":
        host = layout.zookeeper_host(directory)
        server = ZooKeeperServer(layout.zookeeper_directory(directory), host=host, port=layout.ZOOKEEPER_PORT)
        url = server.url
    config = make_config(directory, nodes=5, logs=1, replicate="rack:2,node:3", racks=3, epoch_store=url)
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, config)
    print(f"five nodes in three racks, replication rack:2,node:3, in {directory}", file=sys.stderr)
    try:
        if server is not None:
            await server.start_async()
            print(f"epoch store: a ZooKeeper server at {server.address}", file=sys.stderr)
        started = time.monotonic()
        await supervisor.listen()
        await supervisor.start_all()
        await wait_until_writable(layout.cluster_file(directory), timeout=60)
        print(f"the log is writable after {time.monotonic() - started:.1f} s\n", file=sys.stderr)
        outage = None
        if server is not None and arguments.stop_epoch_store is not None:
            outage = StoreOutage(server, arguments.stop_epoch_store)
        async with Client(str(layout.cluster_file(directory))) as client:
            writing = Writing(client, lines, supervisor, outcome, outage)
            receipts = await writing.run(kill=not arguments.no_kill)
            await read_back(client, lines, receipts, outcome)
        print(summary(outcome, "sync", _STORE_NAMES[config.epoch_store.partition(":")[0]]), flush=True)
    finally:
        await supervisor.stop_all()
        if server is not None:
            server.stop()
    return 0 if outcome.good else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--file", type=Path, help="records are the lines of this file (default: Python's standard library)"
    )
    parser.add_argument(
        "--epoch-store",
        metavar="STORE",
        help="zookeeper: with a ZooKeeper server of its own\nzookeeper://HOST:PORT: one that runs already (default: SQLite)",
    )
    parser.add_argument(
        "--stop-epoch-store",
        nargs="?",
        type=float,
        const=STOP_SECONDS,
        metavar="SECONDS",
        help="kill that ZooKeeper server at a quarter of the records,\n"
        f"and start it again this long after the node was killed (default: {STOP_SECONDS:.0f})",
    )
    parser.add_argument("--no-kill", action="store_true", help="let the sequencer's node live")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the cluster's files here")
    return parser


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    arguments = _parser().parse_args(argv)
    if arguments.file is not None and not arguments.file.is_file():
        print(f"demo: {arguments.file}: no such file", file=sys.stderr)
        return 2
    if arguments.stop_epoch_store is not None and arguments.epoch_store != "zookeeper":
        print("demo: --stop-epoch-store stops the demo's own server: use --epoch-store zookeeper", file=sys.stderr)
        return 2
    if arguments.keep is not None and layout.cluster_file(arguments.keep).exists():
        print(f"demo: {arguments.keep} holds a cluster already: name an empty directory", file=sys.stderr)
        return 2
    directory = (arguments.keep or Path(tempfile.mkdtemp(prefix="logdevice-demo-"))).resolve()
    os.makedirs(directory, exist_ok=True)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(arguments, directory))
    except (ZooKeeperUnavailableError, LogDeviceError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if arguments.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
