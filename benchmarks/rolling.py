"""What rolling costs appends: latency of a steady load on logs that roll, beside the same load on logs that do not.

``python -m benchmarks.rolling --seconds 60 --every 2s``: five nodes as processes, each second of both kinds of logs under way at the same time, so that
whatever else the machine does hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from client.client import Client
from logdevice_py.config.attributes import parse_attribute
from logdevice_py.config.logs import LogTree
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

LOGS_OF_A_KIND: Final = 4


async def _append(client: Client, log: LogId, rate: float, until: float, txids: bool, spent: list[float]) -> int:
    """Append at a steady rate, whatever the answers do; the latency of each, in milliseconds. How many failed."""
    failed = 0

    async def one(number: int, due: float) -> None:
        nonlocal failed
        try:
            await client.append(log, b"x" * 100, txid=number if txids else None)
            spent.append((time.perf_counter() - due) * 1e3)
        except LogDeviceError:
            failed += 1

    began, number = time.perf_counter(), 0
    async with asyncio.TaskGroup() as group:
        while (now := time.perf_counter()) < until:
            while began + number / rate <= now:
                group.create_task(one(number + 1, began + number / rate))
                number += 1
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
    return failed


def _row(name: str, spent: Sequence[float], failed: int) -> str:
    ordered = sorted(spent)
    points = " ".join(f"{ordered[min(len(ordered) - 1, int(len(ordered) * part))]:8.2f}" for part in (0.5, 0.99, 0.999))
    return f"{name:<10} {len(ordered):>8} {failed:>6} {points} {ordered[-1]:8.2f}"


async def measure(directory: Path, seconds: float, every: str, rate: float, guarded: bool) -> None:
    """Start a cluster, load it, and print what came of it."""
    kinds = {"control": (1, {}), "rolling": (1 + LOGS_OF_A_KIND, {"roll_every": every})}
    config = make_config(directory, nodes=5, logs=2 * LOGS_OF_A_KIND, replicate="node:3", racks=1, epoch_store=None)
    groups = [(f"/{name}", first, first + LOGS_OF_A_KIND - 1, parsed(own)) for name, (first, own) in kinds.items()]
    config = replace(config, logs=LogTree.build(defaults=config.logs.defaults, groups=groups))
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, config)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=supervisor.admin_access)
        await wait_until_writable(layout.cluster_file(directory), timeout=60)
        async with Client(layout.cluster_file(directory)) as client:
            for log in range(1, 2 * LOGS_OF_A_KIND + 1):
                await client.append(LogId(log), b"first", txid=1 if guarded else None)
            until = time.perf_counter() + seconds
            spent: dict[str, list[float]] = {name: [] for name in kinds}
            running = {
                name: [
                    asyncio.create_task(_append(client, LogId(first + log), rate, until, guarded, spent[name]))
                    for log in range(LOGS_OF_A_KIND)
                ]
                for name, (first, _) in kinds.items()
            }
            print(f"{'logs':<10} {'appends':>8} {'failed':>6} {'p50 ms':>8} {'p99':>8} {'p99.9':>8} {'most':>8}")
            for name, tasks in running.items():
                print(_row(name, spent[name], sum(await asyncio.gather(*tasks))))
            segments = await client.segments(LogId(1 + LOGS_OF_A_KIND))
            print(f"{len(segments)} segments of one log in {seconds:.0f} s, {'guarded' if guarded else 'not guarded'}")
    finally:
        await supervisor.stop_all()


def parsed(attributes: dict[str, str]) -> dict[str, object]:
    """Attributes as the log tree takes them."""
    return dict(parse_attribute(name, value) for name, value in attributes.items())


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", default="2s", help="age at which epochs roll")
    parser.add_argument("--rate", type=float, default=50, help="appends a second to each of the eight logs")
    parser.add_argument("--guarded", action="store_true", help="with transaction ids")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rolling-") as directory:
        asyncio.run(measure(Path(directory), arguments.seconds, arguments.every, arguments.rate, arguments.guarded))


if __name__ == "__main__":
    main()
