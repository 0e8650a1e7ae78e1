"""The append path beside the bare minimum, alternately in one run.

``python -m benchmarks.append_path`` starts a cluster of three nodes (three copies of everything, one log) and the processes of
`benchmarks.bare_append_path`, and measures them in turn: the latency of appends made one at a time, throughput of small records, and
throughput of large ones. Everything that the product acknowledged is read back and counted. With ``--durability sync`` lone appends are
also measured on a second cluster without syncs: what a sync may add is judged by the product's own figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.disk_sync import SyncCost, measure_sync
from logdevice_py.config.attributes import Durability
from logdevice_py.core.units import format_duration, parse_duration
from logdevice_py.programs import own_program
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.free_ports import free_ports
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

SMALL = 100
LARGE = 100_000
LONE = 2000
"""Appends made one at a time, per round."""
BARE_WINDOW = 10_000
BARE_LARGE_WINDOW = 32
"""Records under way; of 10,000 and 30,000, and of 32 and 128, these serve the baseline best."""
THROUGHPUT_GOAL = 0.5
ASYNC_LATENCY_GOAL = 2.5
SYNC_LATENCY_GOAL = 1.5
MEASURES = ("small_per_second", "large_mb_per_second", "lone_p50_ms", "lone_p99_ms")


@dataclass(slots=True)
class Run:
    """What was measured; one figure a round in each list."""

    bare: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    bare_sync: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    product: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    product_async: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MEASURES})
    """With durability sync: the lone appends of a cluster with durability async, in the same rounds."""
    sync: list[SyncCost] = field(default_factory=list)
    verified_records: int = 0
    load: list[float] = field(default_factory=list)


def _note_lone(into: dict[str, list[float]], lone: Any) -> None:
    into["lone_p50_ms"].append(lone["p50_ms"])
    into["lone_p99_ms"].append(lone["p99_ms"])


def _note_throughput(into: dict[str, list[float]], small: Any, large: Any) -> None:
    into["small_per_second"].append(small["records"] / small["seconds"])
    into["large_mb_per_second"].append(large["records"] * LARGE / large["seconds"] / 1e6)


async def _ask(module: str, *arguments: object) -> Any:
    """Run a program to its end; the JSON that it prints."""
    process = await asyncio.create_subprocess_exec(*own_program(module, *arguments), stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{module} ended with status {process.returncode}")
    return json.loads(output)


class Bare:
    """The processes of the baseline."""

    def __init__(self, directory: Path, arguments: Sequence[str] = ()) -> None:
        self._directory = directory
        self._arguments = arguments
        self._ports: list[int] = []
        self._processes: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Storage first: the sequencer connects to it."""
        self._ports = free_ports(4)
        sequencer, *storage = self._ports
        for port in storage:
            await self._start("storage", self._directory / f"bare{port}", port, *self._arguments)
        await self._start("sequencer", sequencer, *storage)

    async def _start(self, *arguments: object) -> None:
        process = await asyncio.create_subprocess_exec(
            *own_program("benchmarks.bare_append_path", *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        self._processes.append(process)
        assert process.stdout is not None
        await process.stdout.readline()

    async def stop(self) -> None:
        """Kill them: nothing of theirs is kept."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            await process.wait()

    async def measure_lone(self, into: dict[str, list[float]], payload: Sequence[str]) -> None:
        """Appends one at a time, of one round."""
        _note_lone(into, await self._ask(LONE, SMALL, 1, payload))

    async def measure_throughput(
        self, into: dict[str, list[float]], records: int, large: int, payload: Sequence[str]
    ) -> None:
        """Small and large records, of one round."""
        small = await self._ask(records, SMALL, BARE_WINDOW, payload)
        big = await self._ask(large, LARGE, BARE_LARGE_WINDOW, payload)
        _note_throughput(into, small, big)

    async def _ask(self, count: int, size: int, window: int, payload: Sequence[str]) -> Any:
        return await _ask("benchmarks.bare_append_path", "client", self._ports[0], count, size, window, *payload)


class Product:
    """A cluster of three nodes."""

    def __init__(self, directory: Path, durability: Durability, sync_delay_us: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        config = make_config(
            directory, nodes=3, logs=1, replicate="node:3", racks=3, epoch_store=None, durability=durability
        )
        if sync_delay_us:
            config = replace(config, settings={"storage": {"sync_delay_us": format_duration(sync_delay_us)}})
        self._directory = directory
        self._config = config
        self._supervisor = Supervisor(directory, config)

    @property
    def processes(self) -> dict[int, int]:
        """Process ids of the nodes."""
        return {int(node): child.process.pid for node, child in self._supervisor.children.items()}

    async def start(self) -> None:
        """Returns when the log takes appends."""
        write_cluster_file(self._directory, self._config)
        await self._supervisor.listen()
        await self._supervisor.start_all()
        await wait_until_writable(layout.cluster_file(self._directory), timeout=60)

    async def stop(self) -> None:
        """In order."""
        await self._supervisor.stop_all()

    async def measure_lone(self, into: dict[str, list[float]], payload: Sequence[str]) -> int:
        """Appends one at a time, of one round; how many records were read back."""
        result = await self._ask("--lone", LONE, *payload)
        _note_lone(into, result["lone"])
        return int(result["verified_records"])

    async def measure_throughput(
        self, into: dict[str, list[float]], records: int, large: int, payload: Sequence[str]
    ) -> int:
        """Small and large records, of one round; how many were read back."""
        result = await self._ask("--records", records, "--large", large, *payload)
        _note_throughput(into, result["small"], result["large"])
        return int(result["verified_records"])

    async def _ask(self, *arguments: object) -> Any:
        return await _ask("benchmarks.append_client", layout.cluster_file(self._directory), *arguments)


async def measure(arguments: argparse.Namespace, directory: Path) -> Run:
    """All rounds."""
    run = Run()
    durability = Durability[arguments.durability.upper()]
    delay_us = parse_duration(arguments.sync_delay)
    payload = ["--random"] if arguments.payload == "random" else []
    bare = Bare(directory)
    product = Product(directory / "cluster", durability, delay_us)
    systems: list[Bare | Product] = [bare, product]
    bare_sync, product_async = None, None
    if durability is Durability.SYNC:
        bare_sync = Bare(directory, ["--sync", "--sync-delay", arguments.sync_delay])
        product_async = Product(directory / "cluster-async", Durability.ASYNC, 0)
        systems += [bare_sync, product_async]
    try:
        for system in systems:
            await system.start()
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            run.load.append(os.getloadavg()[0])
            # what is divided by each other is measured side by side
            await bare.measure_lone(run.bare, payload)
            run.verified_records += await product.measure_lone(run.product, payload)
            run.sync.append(await asyncio.to_thread(measure_sync, directory, delay_us=delay_us))
            if product_async is not None and bare_sync is not None:
                run.verified_records += await product_async.measure_lone(run.product_async, payload)
                await bare_sync.measure_lone(run.bare_sync, payload)
            amounts = (arguments.records, arguments.large, payload)
            await bare.measure_throughput(run.bare, *amounts)
            run.verified_records += await product.measure_throughput(run.product, *amounts)
            if bare_sync is not None:
                await bare_sync.measure_throughput(run.bare_sync, *amounts)
    finally:
        for system in systems:
            await system.stop()
    return run


def _spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}..{max(values):,.{digits}f})"


def _ratio(product: list[float], bare: list[float]) -> list[float]:
    return [a / b for a, b in zip(product, bare, strict=True)]


def report(run: Run, arguments: argparse.Namespace) -> str:
    """The table, for people."""
    titles = {
        "small_per_second": (f"{SMALL} B, records/s", 0),
        "large_mb_per_second": (f"{LARGE // 1000} KB, MB/s", 1),
        "lone_p50_ms": ("lone append p50, ms", 3),
        "lone_p99_ms": ("lone append p99, ms", 3),
    }
    sync = arguments.durability == "sync"
    lines = [
        f"durability {arguments.durability}, 3 copies, payload {arguments.payload}, sync delay {arguments.sync_delay}, {arguments.rounds} rounds in alternation; "
        "median (min..max)",
        f"Python {platform.python_version()}, uvloop {version('uvloop')}, rocksdict {version('rocksdict')}, "
        f"msgpack {version('msgpack')}, Linux {platform.release()}, {os.cpu_count()} cores, "
        f"load at the begin of the rounds {', '.join(f'{load:.1f}' for load in run.load)}",
        f"fdatasync p50 {_spread([cost.fdatasync_p50 for cost in run.sync], 0)} us, "
        f"p99 {_spread([cost.fdatasync_p99 for cost in run.sync], 0)} us; "
        f"through a thread and back p50 {_spread([cost.hop_p50 for cost in run.sync], 0)} us",
        f"the product's {run.verified_records:,} acknowledged records were read back",
        "",
        f"{'':<22}{'product':<32}{'bare':<32}{'product/bare':<24}" + ("bare with sync" if sync else ""),
    ]
    for name, (title, digits) in titles.items():
        ratios = _ratio(run.product[name], run.bare[name])
        line = (
            f"{title:<22}{_spread(run.product[name], digits):<32}{_spread(run.bare[name], digits):<32}"
            f"{_spread(ratios, 2):<24}"
        )
        lines.append(line + (_spread(run.bare_sync[name], digits) if sync else ""))
    if sync:
        own = run.product_async
        lines.append("")
        lines += [
            f"{title:<22}{_spread(own[name], digits):<32}of the product with durability async"
            for name, (title, digits) in titles.items()
            if own[name]
        ]
    lines.append("")
    if sync:
        lines.append(f"for comparison: {_with_hop(run, run.bare['lone_p50_ms'], 'bare lone append')[0]}")
    lines += [f"{'met ' if met else 'MISSED'}  {text}" for text, met in verdicts(run, arguments.durability)]
    return "\n".join(line.rstrip() for line in lines)


def verdicts(run: Run, durability: str) -> list[tuple[str, bool]]:
    """The goals and whether they are met, by the medians of the rounds."""
    found = []
    for name, title in (("small_per_second", "small records"), ("large_mb_per_second", "large records")):
        ratio = statistics.median(_ratio(run.product[name], run.bare[name]))
        found.append(
            (f"throughput of {title} {ratio:.2f} of bare, at least {THROUGHPUT_GOAL}", ratio >= THROUGHPUT_GOAL)
        )
    lone = run.product["lone_p50_ms"]
    if durability == "async":
        ratio = statistics.median(_ratio(lone, run.bare["lone_p50_ms"]))
        found.append((f"lone append {ratio:.2f} of bare, at most {ASYNC_LATENCY_GOAL}", ratio <= ASYNC_LATENCY_GOAL))
    else:
        text, ratio = _with_hop(run, run.product_async["lone_p50_ms"], "own lone append without sync")
        found.append((text, ratio <= 1))
    return found


def _with_hop(run: Run, base: list[float], title: str) -> tuple[str, float]:
    """The lone append with sync beside `SYNC_LATENCY_GOAL` x (a latency without sync + the hop with a sync): in words, and as a ratio."""
    lone = run.product["lone_p50_ms"]
    limits = [SYNC_LATENCY_GOAL * (each + cost.hop_p50 / 1e3) for each, cost in zip(base, run.sync, strict=True)]
    ratio = statistics.median(_ratio(lone, limits))
    return (
        f"lone append {statistics.median(lone):.3f} ms; {SYNC_LATENCY_GOAL} x ({title} + hop and sync) is "
        f"{statistics.median(limits):.3f} ms; {ratio:.2f} of that"
    ), ratio


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="append_path", description=__doc__)
    parser.add_argument("--durability", choices=["async", "sync"], default="async", help="of the product's log")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sync-delay", default="0us", help="every sync takes this much longer, like 2ms")
    parser.add_argument("--records", type=int, default=400_000, help="small records a round (default 400000)")
    parser.add_argument("--large", type=int, default=2000, help="large records a round (default 2000)")
    parser.add_argument(
        "--payload",
        choices=["x", "random"],
        default="x",
        help="records of x, as ever, or bytes that cannot be compressed",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--dir", type=Path, help="where the data go while it runs (default: a temporary directory)")
    arguments = parser.parse_args(argv)
    directory = Path(tempfile.mkdtemp(prefix="append-path-", dir=arguments.dir))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            run = runner.run(measure(arguments, directory))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(report(run, arguments))
    if arguments.json is not None:
        figures = {"arguments": {key: str(value) for key, value in vars(arguments).items()}, **asdict(run)}
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 0 if all(met for _, met in verdicts(run, arguments.durability)) else 1


if __name__ == "__main__":
    sys.exit(main())
