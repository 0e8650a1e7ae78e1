"""``make demo``: a cluster of real processes, real input, and the node that sequences the log killed half-way.

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

from client.client import Client
from client.receipt import Receipts
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from server import layout
from server.dev_cluster import make_config
from server.readiness import wait_until_writable
from server.supervisor import Supervisor, write_cluster_file

LOG = LogId(1)
CHUNK = 2000
"""Records handed to the writer at once."""
BAR = 28


@dataclass(slots=True)
class Outcome:
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

    @property
    def good(self) -> bool:
        """Nothing is missing, twice, at the wrong place or changed."""
        return not (self.lost or self.duplicated or self.out_of_order or self.altered or self.gaps["dataloss"])


class Progress:
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


async def write(
    client: Client, lines: list[bytes], supervisor: Supervisor, outcome: Outcome, *, kill: bool
) -> list[Receipts]:
    """Append everything; kill the sequencer's node half-way. Receipts are in the order of the records."""
    progress = Progress("write", len(lines))
    receipts: list[Receipts] = []
    acknowledged = 0
    last_ack = start = time.monotonic()

    def on_acknowledged(count: int) -> None:
        nonlocal acknowledged, last_ack
        now = time.monotonic()
        if acknowledged:
            outcome.stall = max(outcome.stall, now - last_ack)
        last_ack = now
        acknowledged += count
        rate = acknowledged / max(now - start, 1e-9)
        progress.show(acknowledged, f"{acknowledged:,} records  {rate:,.0f}/s")

    async def one(part: list[bytes]) -> Receipts:
        got = await writer.append_many(LOG, part)
        on_acknowledged(len(got))
        return got

    kill_at = len(lines) // 2 if kill else len(lines) + 1
    async with client.buffered_writer(compression="zstd") as writer:
        running: set[asyncio.Task[Receipts]] = set()
        order: list[asyncio.Task[Receipts]] = []
        for at in range(0, len(lines), CHUNK):
            if at <= kill_at < at + CHUNK:
                node = (await client.sequencer(LOG)).node
                await supervisor.kill(node)
                outcome.killed = f"N{node}"
                progress.say(f"N{node}, which sequences the log, is killed (SIGKILL); writing goes on")
            task = asyncio.create_task(one(lines[at : at + CHUNK]))
            running.add(task)
            order.append(task)
            task.add_done_callback(running.discard)
            while len(running) > 16:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        receipts = list(await asyncio.gather(*order))
    outcome.write_seconds = time.monotonic() - start
    outcome.acknowledged = acknowledged
    progress.show(acknowledged, f"{acknowledged:,} records  {acknowledged / outcome.write_seconds:,.0f}/s")
    progress.end()
    return receipts


async def read_back(client: Client, lines: list[bytes], receipts: list[Receipts], outcome: Outcome) -> None:
    """Read the log from its begin to its tail and compare."""
    expected: dict[tuple[int, int], int] = {}
    for index, position in enumerate(
        position for part in receipts for position in zip(part.lsns(), part.batch_offsets(), strict=True)
    ):
        expected[position] = index
    outcome.duplicated += len(lines) - len(expected)
    progress = Progress("read", len(lines))
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


def summary(outcome: Outcome, durability: str, epoch_store: str) -> str:
    """What was counted, for people."""
    size = outcome.bytes / 1e6
    gaps = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.gaps.items()) if count) or "none"
    verdict = "every acknowledged record was read back, once, in order" if outcome.good else "SOMETHING IS WRONG"
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
        ("epochs", f"{', '.join(map(str, outcome.epochs))} (epoch store: {epoch_store})"),
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
    outcome = Outcome(records=len(lines), bytes=sum(map(len, lines)))
    config = make_config(
        directory, nodes=5, logs=1, replicate="rack:2,node:3", racks=3, epoch_store=arguments.epoch_store
    )
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, config)
    print(f"five nodes in three racks, replication rack:2,node:3, in {directory}", file=sys.stderr)
    started = time.monotonic()
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_writable(layout.cluster_file(directory), timeout=60)
        print(f"the log is writable after {time.monotonic() - started:.1f} s\n", file=sys.stderr)
        async with Client(str(layout.cluster_file(directory))) as client:
            receipts = await write(client, lines, supervisor, outcome, kill=not arguments.no_kill)
            await read_back(client, lines, receipts, outcome)
        store = config.epoch_store.partition(":")[0]
        print(summary(outcome, "sync", store), flush=True)
    finally:
        await supervisor.stop_all()
    return 0 if outcome.good else 3


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument(
        "--file", type=Path, help="records are the lines of this file (default: Python's standard library)"
    )
    parser.add_argument("--epoch-store", help="zookeeper://HOST:PORT (default: SQLite)")
    parser.add_argument("--no-kill", action="store_true", help="let the sequencer's node live")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the cluster's files here")
    arguments = parser.parse_args(argv)
    if arguments.file is not None and not arguments.file.is_file():
        print(f"demo: {arguments.file}: no such file", file=sys.stderr)
        return 2
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="logdevice-demo-"))
    os.makedirs(directory, exist_ok=True)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(arguments, directory))
    except KeyboardInterrupt:
        return 130
    finally:
        if arguments.keep is None:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
