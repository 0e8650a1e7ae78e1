"""What a rolling restart costs those who append and read: latencies and stalls while five nodes are restarted one after the other, beside a control of the same load before.

``python -m benchmarks.rolling_restart``: nodes as processes, stopped and started as ``ldctl rolling-restart`` does it. Goals: no append fails, p99 at most 3 times
that of the control, no reader waits longer than 2 s for a record.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.node_restarts import restart_in_turn
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

NODES: Final = 5
LOGS: Final = 4
P99_MAX: Final = 3.0
STALL_MAX: Final = 2.0
_SETTLE: Final = 2.0


class AppendsAndReaders:
    """Appends at a steady rate to each log, and a reader of each that follows."""

    def __init__(self, writing: Client, reading: Client, rate: float) -> None:
        self._writing = writing
        self._reading = reading
        self._rate = rate
        self.spent: list[float] = []
        """Milliseconds of each append, from when it was due."""
        self.stalls: list[float] = []
        """Seconds for which a reader had nothing, of each time that it had something then."""
        self._last: dict[LogId, float] = {}
        self.failed: list[str] = []
        self._ends = False
        self._tasks = [asyncio.create_task(self._append(LogId(log))) for log in range(1, LOGS + 1)]
        self._readers = [asyncio.create_task(self._read(LogId(log))) for log in range(1, LOGS + 1)]

    def begin(self) -> None:
        """What was noted so far does not count."""
        self.spent, self.stalls, self.failed = [], [], []

    def longest_stall(self) -> float:
        """Seconds for which a reader had nothing, at most; also one that has nothing yet."""
        now = time.perf_counter()
        return max(*self.stalls, *(now - last for last in self._last.values()))

    async def end(self) -> None:
        """Wait for what is under way."""
        self._ends = True
        await asyncio.gather(*self._tasks)
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _append(self, log: LogId) -> None:
        began, number = time.perf_counter(), 0

        async def one(due: float) -> None:
            try:
                await self._writing.append(log, b"x" * 100)
                self.spent.append((time.perf_counter() - due) * 1e3)
            except LogDeviceError as error:
                self.failed.append(str(error))

        async with asyncio.TaskGroup() as group:
            while not self._ends:
                while began + number / self._rate <= time.perf_counter():
                    group.create_task(one(began + number / self._rate))
                    number += 1
                await asyncio.sleep(max(0.0, began + number / self._rate - time.perf_counter()))

    async def _read(self, log: LogId) -> None:
        async with self._reading.reader(log) as reader:
            self._last[log] = time.perf_counter()
            while await reader.read(1000):
                now = time.perf_counter()
                self.stalls.append(now - self._last[log])
                self._last[log] = now


def _point(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _row(name: str, load: AppendsAndReaders) -> tuple[float, float]:
    p99, stall = _point(load.spent, 0.99), load.longest_stall()
    p50, most = _point(load.spent, 0.5), max(load.spent)
    print(
        f"{name:<10} {len(load.spent):>8} {len(load.failed):>6} {p50:8.2f} {p99:8.2f} {most:8.2f} {stall:10.2f}",
        flush=True,
    )
    return p99, stall


async def measure(directory: Path, seconds: float, rate: float) -> bool:
    """Start a cluster, load it, restart it, and print what came of it. Whether all goals are met."""
    config = make_config(directory, nodes=NODES, logs=LOGS, replicate="rack:2,node:3", racks=3, epoch_store=None)
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, config)
    file = layout.cluster_file(directory)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=supervisor.admin_access)
        await wait_until_writable(file, timeout=60)
        async with Client(file) as writing, Client(file) as reading:
            load = AppendsAndReaders(writing, reading, rate)
            await asyncio.sleep(_SETTLE)
            print(f"{'':<10} {'appends':>8} {'failed':>6} {'p50 ms':>8} {'p99':>8} {'most':>8} {'stall s':>10}")
            load.begin()
            await asyncio.sleep(seconds)
            control, _ = _row("control", load)
            load.begin()
            began = time.perf_counter()
            status = await restart_in_turn(directory, [], abandon=False)
            took = time.perf_counter() - began
            p99, stall = _row("restarts", load)
            failed = load.failed
            await load.end()
    finally:
        await supervisor.stop_all()
    met = status == 0 and not failed and p99 <= P99_MAX * control and stall <= STALL_MAX
    print(
        f"{NODES} nodes were restarted in {took:.0f} s under {LOGS} logs of {rate:g} appends a second: p99 is {p99 / control:.1f} times the control "
        f"(goal: {P99_MAX:g}), readers waited {stall:.2f} s at most (goal: {STALL_MAX:g}), {len(failed)} appends failed (goal: 0): {'met' if met else 'missed'}"
    )
    for text in failed[:3]:
        print(f"failed: {text}")
    return met


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolling_restart", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="how long the control lasts (default 30)")
    parser.add_argument("--rate", type=float, default=25, help="appends a second to each of the four logs (default 25)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rolling-restart-") as directory:
        return 0 if asyncio.run(measure(Path(directory), arguments.seconds, arguments.rate)) else 1


if __name__ == "__main__":
    sys.exit(main())
