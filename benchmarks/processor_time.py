"""Processor time a record, of this checkout beside another one, in alternated pairs.

``python -m benchmarks.processor_time --other DIR`` starts a cluster of three real nodes (three copies of everything) from each checkout in turn,
does the same work on it, and prints for each kind of work what all nodes and the client together spent on a record: the median of
each checkout, and the median and spread of the ratios pair by pair. ``git worktree add DIR COMMIT`` makes the other checkout.

Processor time moves less than latency from run to run, but it moves: the pair beside a figure is what counts, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
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

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAYLOAD: Final = b"x" * 100
_LOG: Final = 1
_CHUNK: Final = 2000
_CHUNKS_UNDER_WAY: Final = 24
_APPENDS_UNDER_WAY: Final = 500


async def _lone(client: Client, count: int) -> int:
    for _ in range(count):
        await client.append(_LOG, _PAYLOAD)
    return count


async def _concurrent(client: Client, count: int) -> int:
    async def appends() -> None:
        for _ in range(count // _APPENDS_UNDER_WAY):
            await client.append(_LOG, _PAYLOAD)

    await asyncio.gather(*(appends() for _ in range(_APPENDS_UNDER_WAY)))
    return count // _APPENDS_UNDER_WAY * _APPENDS_UNDER_WAY


async def _written(client: Client, count: int) -> int:
    chunk = [_PAYLOAD] * _CHUNK
    done = 0
    async with client.buffered_writer() as writer:
        under_way: deque[Awaitable[Any]] = deque()
        for _ in range(count // _CHUNK):
            await writer.ready()
            under_way.append(writer.append_many(_LOG, chunk))
            if len(under_way) >= _CHUNKS_UNDER_WAY:
                done += len(await under_way.popleft())
        while under_way:
            done += len(await under_way.popleft())
    return done


async def _read(client: Client, count: int) -> int:
    del count  # all that the others wrote
    found = 0
    async with client.reader(_LOG, start=LSN.OLDEST, until=await client.tail_lsn(_LOG)) as reader:
        while batch := await reader.read(max_records=20_000):
            found += len(batch)
    return found


_WORK: Final[dict[str, tuple[Callable[[Client, int], Awaitable[int]], int]]] = {
    "lone append": (_lone, 2_000),
    "concurrent append": (_concurrent, 100_000),
    "BufferedWriter": (_written, 1_000_000),
    "catch-up read": (_read, 0),
}


def _spent(pid: int) -> float:
    """Processor seconds of a process, user and system."""
    values = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / _TICKS


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        for child in map(int, (thread / "children").read_text().split()):
            found += [child, *_descendants(child)]
    return found


async def _work(config: str, nodes: list[int], scale: float, kinds: list[str]) -> dict[str, dict[str, float]]:
    """What each of the kinds of work cost: microseconds of processor time a record, of all, and records a second."""
    result: dict[str, dict[str, float]] = {}
    gc.collect()
    gc.freeze()
    processes = [os.getpid(), *nodes]
    async with Client(config) as client:
        await _lone(client, 200)  # everything is activated and warm
        for name, (work, count) in ((name, _WORK[name]) for name in kinds):
            before, began = sum(map(_spent, processes)), time.perf_counter()
            records = await work(client, int(count * scale))
            took, spent = time.perf_counter() - began, sum(map(_spent, processes)) - before
            result[name] = {"us": spent / records * 1e6, "per_second": records / took}
    return result


def _measure(checkout: Path, durability: str, scale: float, kinds: list[str]) -> dict[str, dict[str, float]]:
    """One cluster of a checkout, from start to end."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    program = "from logdevice_py.programs import dev_cluster; raise SystemExit(dev_cluster())"
    with tempfile.TemporaryDirectory(prefix="logdevice-processor-time-") as directory:
        shape = ["--nodes", "3", "--logs", "1", "--replicate", "node:3", "--racks", "1", "--durability", durability]
        command = [sys.executable, "-P", "-c", program, "up", "--dir", directory, *shape]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as cluster:
            try:
                assert cluster.stdout is not None
                ready = cluster.stdout.readline().decode().split()
                if not ready:
                    raise SystemExit(f"processor_time: no cluster starts from {checkout}")
                nodes = ",".join(map(str, _descendants(cluster.pid)))
                worker = [sys.executable, "-P", __file__, "--worker", ready[-1], "--nodes", nodes]
                done = subprocess.run(
                    [*worker, "--scale", str(scale), "--kinds", *kinds],
                    env=environment,
                    check=True,
                    stdout=subprocess.PIPE,
                )
            finally:
                cluster.terminate()
        found: dict[str, dict[str, float]] = json.loads(done.stdout)
        return found


def _print(runs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    print(
        f"{'':18} {'this us':>8} {'other us':>9} {'ratio':>7} {'from':>6} {'to':>6}   {'this /s':>10} {'other /s':>10}"
    )
    for name in runs[0][0]:
        this, other = ([side[name] for side in sides] for sides in zip(*runs, strict=True))
        ratios = [a["us"] / b["us"] for a, b in zip(this, other, strict=True)]
        figures = [statistics.median(each["us"] for each in side) for side in (this, other)]
        rates = [statistics.median(each["per_second"] for each in side) for side in (this, other)]
        print(
            f"{name:18} {figures[0]:8.2f} {figures[1]:9.2f} {statistics.median(ratios):7.3f} {min(ratios):6.3f} {max(ratios):6.3f}   "
            f"{rates[0]:10,.0f} {rates[1]:10,.0f}"
        )


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processor_time", description=__doc__)
    parser.add_argument("--other", type=Path, help="a checkout of the state to compare with")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--durability", choices=("sync", "async"), default="async")
    parser.add_argument("--scale", type=float, default=1.0, help="how much work, as a multiple")
    parser.add_argument(
        "--kinds", nargs="+", choices=_WORK, default=list(_WORK), help="work to do; reads read what the others wrote"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        nodes = [int(pid) for pid in arguments.nodes.split(",")]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(_work(arguments.worker, nodes, arguments.scale, arguments.kinds))))
        return 0
    if arguments.other is None:
        parser.error("--other DIR: a checkout of the state to compare with")
    this, other = Path(__file__).resolve().parent.parent, arguments.other.resolve()
    runs = []
    for pair in range(arguments.pairs):
        order = (this, other) if pair % 2 == 0 else (other, this)
        found = {
            checkout: _measure(checkout, arguments.durability, arguments.scale, arguments.kinds) for checkout in order
        }
        runs.append((found[this], found[other]))
        print(f"pair {pair + 1} of {arguments.pairs}", file=sys.stderr, flush=True)
    print(
        f"{arguments.pairs} alternated pairs, three copies, durability {arguments.durability}, load {os.getloadavg()[0]:.1f}"
    )
    _print(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
