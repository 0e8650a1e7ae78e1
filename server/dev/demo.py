"""``make demo``: a cluster of real processes, real input, and the node that sequences the log killed half-way.

With a ZooKeeper server of its own it can also show what the cluster does without its epoch store: epochs that are open go on, and the
activation of a sequencer waits until the server is back.

Every figure of the summary is counted while it runs: what was acknowledged is compared, position by position and byte by byte, with what is
read back.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from client.buffered_writer import BufferedWriter
from client.client import Client
from client.receipt import Receipts
from logdevice_py.config.admin import console_url
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.demo_input import DemoInputError, lines_of
from server.dev.demo_progress import DemoProgress
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.scratch import ScratchDirectory
from server.dev.supervisor import Supervisor, write_cluster_file
from server.dev.zookeeper_server import ZooKeeperServer, ZooKeeperUnavailableError
from server.os_errors import explain
from server.private_files import keep_files_private

LOG = LogId(1)
CHUNK_MAX = 2000
"""Records handed to the writer at once, unless there are few."""
RATED_MIN = 10_000
STOP_SECONDS = 3.0
_GAPS = {
    "bridge": "where an epoch ends",
    "hole": "numbers that were never acknowledged",
    "trim": "deleted on request",
    "dataloss": "records are missing",
}
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
        self._progress.end()
        return receipts

    async def _one(self, writer: BufferedWriter, part: list[bytes]) -> Receipts:
        got = await writer.append_many(LOG, part)
        now = time.monotonic()
        self._outcome.stall = max(self._outcome.stall, now - self._last)
        self._last = now
        self._acknowledged += len(got)
        if self._outage is not None and self._outage.lasts:
            self._outcome.away_records += len(got)
        self._progress.show(self._acknowledged)
        return got

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
            progress.show(done)
    outcome.lost = len(lines) - sum(seen)
    outcome.read_seconds = time.monotonic() - start
    progress.end()


def _pace(outcome: DemoOutcome, seconds: float) -> str:
    """How fast; of few records a rate would tell nothing."""
    if outcome.records < RATED_MIN:
        return f"in {seconds:.2f} s"
    return f"in {seconds:.2f} s: {outcome.records / seconds:,.0f} records/s, {outcome.bytes / 1e6 / seconds:,.1f} MB/s"


def summary(outcome: DemoOutcome, durability: str, epoch_store: str) -> str:
    """What was counted, for people."""
    size = outcome.bytes / 1e6
    gaps = ", ".join(f"{count} of kind {kind} ({_GAPS[kind]})" for kind, count in sorted(outcome.gaps.items()) if count)
    verdict = "every acknowledged record was read back, once, in order" if outcome.good else "SOMETHING IS WRONG"
    away = ""
    if outcome.away_seconds:
        away = f"; away for {outcome.away_seconds:.1f} s, in which {outcome.away_records:,} records were acknowledged"
    rows = [
        ("records", f"{outcome.records:,} ({size:,.1f} MB), {outcome.acknowledged:,} acknowledged"),
        ("written", f"{_pace(outcome, outcome.write_seconds)} (3 copies, durability {durability})"),
        ("read", _pace(outcome, outcome.read_seconds)),
        ("killed", f"{outcome.killed}; appends stalled for {outcome.stall:.2f} s at most"),
        ("epochs", ", ".join(map(str, outcome.epochs)) + " (a sequencer that takes over begins the next one)"),
        ("epoch store", epoch_store + away),
        ("gaps", gaps or "none"),
        ("lost", str(outcome.lost)),
        ("duplicated", str(outcome.duplicated)),
        ("out of order", str(outcome.out_of_order)),
        ("altered", str(outcome.altered)),
    ]
    return "\n".join(["", *(f"  {name:<13} {value}" for name, value in rows), "", f"  {verdict}", ""])


async def run(arguments: argparse.Namespace, directory: Path, lines: list[bytes]) -> int:
    """The demo; its exit status."""
    outcome = DemoOutcome(records=len(lines), bytes=sum(map(len, lines)))
    server: ZooKeeperServer | None = None
    url: str | None = arguments.epoch_store
    if url == "zookeeper":
        host = layout.zookeeper_host(directory)
        server = ZooKeeperServer(layout.zookeeper_directory(directory), host=host, port=layout.ZOOKEEPER_PORT)
        url = server.url
    config = make_config(directory, nodes=5, logs=3, replicate="rack:2,node:3", racks=3, epoch_store=url)
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, config)
    kept = "kept" if arguments.keep is not None else "deleted at the end"
    print(
        f"\n  starting five nodes in three racks, each a process; every record goes to three nodes in two racks or more"
        f"\n  their data: {directory}, {kept}",
        file=sys.stderr,
    )
    try:
        if server is not None:
            await server.start_async()
            print(f"  epoch store: a ZooKeeper server at {server.address}", file=sys.stderr)
        started = time.monotonic()
        await supervisor.listen()
        await supervisor.start_all()
        await wait_until_acquainted(config, supervisor.running, timeout=60, access=supervisor.admin_access)
        await wait_until_writable(layout.cluster_file(directory), timeout=60)
        source = "Python's standard library" if arguments.file is None else str(arguments.file)
        print(
            f"  the log takes appends after {time.monotonic() - started:.1f} s; what is written: {outcome.records:,} lines "
            f"({outcome.bytes / 1e6:,.1f} MB) of {source}\n  console, while it runs: {console_url(config)}\n",
            file=sys.stderr,
        )
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
    if arguments.stop_epoch_store is not None and arguments.epoch_store != "zookeeper":
        print("demo: --stop-epoch-store stops the demo's own server: use --epoch-store zookeeper", file=sys.stderr)
        return 2
    if arguments.keep is not None and layout.cluster_file(arguments.keep).exists():
        print(f"demo: {arguments.keep} holds a cluster already: name an empty directory", file=sys.stderr)
        return 2
    scratch: ScratchDirectory | None = None
    try:
        lines = lines_of(arguments.file)
        if arguments.keep is None:
            scratch = ScratchDirectory("logdevice-demo-")
            directory = scratch.path
        else:
            directory = arguments.keep.resolve()
            keep_files_private()
            directory.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(arguments, directory, lines))
    except DemoInputError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except (ZooKeeperUnavailableError, LogDeviceError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"demo: {explain(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
        return 130
    finally:
        if scratch is not None:
            scratch.remove()


if __name__ == "__main__":
    sys.exit(main())
