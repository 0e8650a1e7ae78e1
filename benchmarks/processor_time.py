"""Processor time a record, of this checkout beside another one, in alternated pairs.

``python -m benchmarks.processor_time --other DIR`` starts a cluster of three real nodes (three copies of everything) from each checkout, has each of the two
do the same work in turn, a second or two of each kind, and prints for each kind what all nodes and the client together spent on a record: the
median of each checkout, the median and spread of the ratios pair by pair, and the ratio of the best quarters. ``git worktree add DIR COMMIT`` makes the other checkout.

The speed of a machine moves by a third within minutes, so what is compared is done within seconds of each other. Where three nodes and their logs end
up moves figures as well, so there are several such clusters (`--clusters`), each pair with new ones. Reads are of what the round before them wrote, several times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import uvloop

from logdevice_py import LSN, Client

_PAYLOAD: Final = b"x" * 100
_LOG: Final = 1
_CHUNK: Final = 2000
_CHUNKS_UNDER_WAY: Final = 24
_APPENDS_UNDER_WAY: Final = 500
_READINGS: Final = 5


class _Work:
    """The kinds of work, of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._written_from: LSN = LSN.OLDEST

    async def lone(self, count: int) -> int:
        for _ in range(count):
            await self._client.append(_LOG, _PAYLOAD)
        return count

    async def concurrent(self, count: int) -> int:
        async def appends() -> None:
            for _ in range(count // _APPENDS_UNDER_WAY):
                await self._client.append(_LOG, _PAYLOAD)

        await asyncio.gather(*(appends() for _ in range(_APPENDS_UNDER_WAY)))
        return count // _APPENDS_UNDER_WAY * _APPENDS_UNDER_WAY

    async def written(self, count: int) -> int:
        self._written_from = await self._client.tail_lsn(_LOG)
        chunk = [_PAYLOAD] * _CHUNK
        done = 0
        async with self._client.buffered_writer() as writer:
            under_way: deque[Awaitable[Any]] = deque()
            for _ in range(count // _CHUNK):
                await writer.ready()
                under_way.append(writer.append_many(_LOG, chunk))
                if len(under_way) >= _CHUNKS_UNDER_WAY:
                    done += len(await under_way.popleft())
            while under_way:
                done += len(await under_way.popleft())
        return done

    async def read(self, count: int) -> int:
        """What the last BufferedWriter wrote, however much that is."""
        del count
        found = 0
        tail = await self._client.tail_lsn(_LOG)
        for _ in range(_READINGS):
            async with self._client.reader(_LOG, start=self._written_from, until=tail) as reader:
                while batch := await reader.read(max_records=20_000):
                    found += len(batch)
        return found


_KINDS: Final[dict[str, tuple[Callable[[_Work, int], Awaitable[int]], int]]] = {
    "lone append": (_Work.lone, 1_000),
    "concurrent append": (_Work.concurrent, 50_000),
    "BufferedWriter": (_Work.written, 400_000),
    "catch-up read": (_Work.read, 0),
}


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process' threads."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has ended
            total += int(thread.read_text().split()[0])
    return total / 1e9


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *_descendants(child)]
    return found


async def _serve(config: str, nodes: list[int]) -> None:
    """Do the kinds of work that are named on standard input; a line of JSON each: microseconds of processor time a record, and records a second."""
    gc.collect()
    gc.freeze()
    processes = [os.getpid(), *nodes]
    async with Client(config) as client:
        work = _Work(client)
        await work.lone(200)  # everything is activated and warm
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, count = json.loads(line)
            before, began = sum(map(processor_seconds, processes)), time.perf_counter()
            records = await _KINDS[name][0](work, count)
            took, spent = time.perf_counter() - began, sum(map(processor_seconds, processes)) - before
            print(json.dumps({"us": spent / records * 1e6, "per_second": records / took}), flush=True)


class _Cluster:
    """Three nodes of a checkout, and a client of the same checkout that does what it is told."""

    def __init__(self, checkout: Path, durability: str, options: list[str], stack: contextlib.ExitStack) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        program = "from logdevice_py.programs import dev_cluster; raise SystemExit(dev_cluster())"
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="logdevice-processor-time-"))
        shape = ["--nodes", "3", "--logs", "1", "--replicate", "node:3", "--racks", "1", "--durability", durability]
        command = [sys.executable, "-P", "-c", program, "up", "--dir", directory, *shape, *options]
        cluster = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        stack.callback(cluster.wait)
        stack.callback(cluster.terminate)
        assert cluster.stdout is not None
        ready = cluster.stdout.readline().decode().split()
        if not ready:
            raise SystemExit(f"processor_time: no cluster starts from {checkout}")
        nodes = ",".join(map(str, _descendants(cluster.pid)))
        worker = [sys.executable, "-P", __file__, "--worker", ready[-1], "--nodes", nodes]
        self._worker = subprocess.Popen(
            worker, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(self._worker.wait)
        assert self._worker.stdin is not None
        stack.callback(self._worker.stdin.close)

    def do(self, kind: str, scale: float) -> dict[str, float]:
        """One piece of work, and what it cost."""
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        print(json.dumps((kind, int(_KINDS[kind][1] * scale))), file=self._worker.stdin, flush=True)
        line = self._worker.stdout.readline()
        if not line:
            raise SystemExit("processor_time: the client ended")
        found: dict[str, float] = json.loads(line)
        return found


def _measure(
    checkouts: tuple[Path, Path], durability: str, options: list[str], pairs: int, scale: float, kinds: list[str]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of one cluster of each checkout."""
    with contextlib.ExitStack() as stack:
        clusters = [
            _Cluster(checkout, durability, given, stack)
            for checkout, given in zip(checkouts, (options, []), strict=True)
        ]
        found = []
        for pair in range(pairs + 1):
            sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
            for kind in kinds:
                for side in (0, 1) if pair % 2 == 0 else (1, 0):
                    sides[side][kind] = clusters[side].do(kind, scale)
            if pair:  # the first is for warming up
                found.append(sides)
        return found


def _quarter(values: list[float]) -> float:
    """The mean of the lowest quarter: what else a machine does only adds."""
    return statistics.mean(sorted(values)[: max(1, len(values) // 4)])


def _print(runs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    print(
        f"{'':18} {'this us':>8} {'other us':>9} {'ratio':>7} {'from':>6} {'to':>6} {'best':>6}   {'this /s':>10} {'other /s':>10}"
    )
    for name in runs[0][0]:
        this, other = ([side[name] for side in sides] for sides in zip(*runs, strict=True))
        ratios = [a["us"] / b["us"] for a, b in zip(this, other, strict=True)]
        figures = [statistics.median(each["us"] for each in side) for side in (this, other)]
        rates = [statistics.median(each["per_second"] for each in side) for side in (this, other)]
        best = _quarter([each["us"] for each in this]) / _quarter([each["us"] for each in other])
        print(
            f"{name:18} {figures[0]:8.2f} {figures[1]:9.2f} {statistics.median(ratios):7.3f} {min(ratios):6.3f} {max(ratios):6.3f} {best:6.3f}   "
            f"{rates[0]:10,.0f} {rates[1]:10,.0f}"
        )


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processor_time", description=__doc__)
    parser.add_argument("--other", type=Path, help="a checkout of the state to compare with")
    parser.add_argument("--clusters", type=int, default=2, help="how often both start new clusters")
    parser.add_argument("--pairs", type=int, default=10, help="of each two clusters")
    parser.add_argument("--durability", choices=("sync", "async"), default="async")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        help="of ld-dev-cluster up, of this checkout's clusters: --option=--no-rebuilding beside one that has no rebuilding by default",
    )
    parser.add_argument("--scale", type=float, default=1.0, help="how much work, as a multiple")
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=_KINDS,
        default=list(_KINDS),
        help="work to do; reads read what BufferedWriter wrote",
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        nodes = [int(pid) for pid in arguments.nodes.split(",")]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(arguments.worker, nodes))
        return 0
    if arguments.other is None:
        parser.error("--other DIR: a checkout of the state to compare with")
    checkouts = Path(__file__).resolve().parent.parent, arguments.other.resolve()
    runs = []
    for number in range(arguments.clusters):
        runs += _measure(
            checkouts,
            arguments.durability,
            arguments.option,
            arguments.pairs,
            arguments.scale,
            arguments.kinds,
        )
        print(f"clusters {number + 1} of {arguments.clusters}", file=sys.stderr, flush=True)
    print(
        f"{arguments.pairs} alternated pairs on each of {arguments.clusters} clusters, three copies, durability {arguments.durability}, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    _print(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
