"""What a log takes that is flooded at ten times its quota, and what that leaves to its neighbour, with real processes.

``python -m benchmarks.quotas``; `--rounds`, `--seconds`, `--quota` and `--nodes` say how much. In each round the neighbour appends for a while alone and for a while beside the flood.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import uvloop

from client.client import Client
from logdevice_py.config.logs import LogTree
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

FLOODED: Final = LogId(1)
NEIGHBOUR: Final = LogId(2)
TENFOLD: Final = 10
WINDOW: Final = 10.0
_PAYLOAD: Final = 1000
_IN_TIME_SECONDS: Final = 1.0
"""Seconds within which an append of the neighbour has to be acknowledged."""
Taken = list[tuple[float, int]]
"""When so many bytes were acknowledged."""


async def _flood(client: Client, quota: int, seconds: float) -> Taken:
    """Ten times the quota, half of it by a BufferedWriter, half of it by appends."""
    taken: Taken = []
    payload = os.urandom(_PAYLOAD)
    until, due = time.monotonic() + seconds, time.monotonic()
    under_way: set[asyncio.Future[None]] = set()
    writer = client.buffered_writer(memory_bytes_max=2 * quota, timeout="1s")

    async def one(*, alone: bool) -> None:
        with contextlib.suppress(LogDeviceError):  # it is over the quota
            await (client.append(FLOODED, payload, timeout=1) if alone else writer.append(FLOODED, payload))
            taken.append((time.monotonic(), _PAYLOAD))

    number = 0
    while (now := time.monotonic()) < until:
        while due <= now:
            number += 1
            task = asyncio.ensure_future(one(alone=number % 2 == 0))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            due += _PAYLOAD / (TENFOLD * quota)
        await asyncio.sleep(0.005)
    writer.abandon()
    await asyncio.gather(*under_way)
    return taken


def _flooder(file: Path, quota: int, pipe: Connection) -> None:
    """A process that floods for as many seconds as it is told, each time that it is told."""

    async def run() -> None:
        async with Client(file) as client:
            await client.append(FLOODED, b"first")
            while (seconds := await asyncio.to_thread(pipe.recv)) is not None:
                pipe.send(await _flood(client, quota, seconds))

    uvloop.run(run())


async def _append_steadily(client: Client, rate: float, seconds: float) -> float:
    """The part of the appends that was acknowledged in time."""
    payload, kept = os.urandom(_PAYLOAD), 0

    async def one() -> None:
        nonlocal kept
        with contextlib.suppress(LogDeviceError):
            await client.append(NEIGHBOUR, payload, timeout=_IN_TIME_SECONDS)
            kept += 1

    began, number = time.monotonic(), 0
    async with asyncio.TaskGroup() as group:
        while (now := time.monotonic()) < began + seconds:
            while began + number / rate <= now:
                group.create_task(one())
                number += 1
            await asyncio.sleep(0.002)
    return kept / max(1, number)


def most_in_a_window(taken: Sequence[tuple[float, int]], window: float = WINDOW) -> int:
    """Bytes that were acknowledged in any ten seconds."""
    most = held = first = 0
    for at, size in (ordered := sorted(taken)):
        held += size
        while ordered[first][0] <= at - window:
            held -= ordered[first][1]
            first += 1
        most = max(most, held)
    return most


async def _measure(options: argparse.Namespace, directory: Path) -> None:
    quota: int = options.quota
    config = make_config(
        directory,
        nodes=options.nodes,
        logs=2,
        replicate=f"node:{min(options.nodes, 3)}",
        racks=1,
        epoch_store=None,
        secure=False,
    )
    groups = [
        (group.path, group.lo, group.hi, {**group.overrides, "append_bytes_per_s": quota})
        for group in config.logs.groups
    ]
    logs = LogTree.build(defaults=config.logs.defaults, directories=config.logs.directories, groups=groups)
    config = replace(config, logs=logs)
    supervisor, file = Supervisor(directory, config), layout.cluster_file(directory)
    write_cluster_file(directory, config)
    await supervisor.listen()
    await supervisor.start_all()
    ours, theirs = multiprocessing.Pipe()
    flooder = multiprocessing.get_context("spawn").Process(target=_flooder, args=(file, quota, theirs), daemon=True)
    alone: list[float] = []
    beside: list[float] = []
    taken: Taken = []
    try:
        await wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=supervisor.admin_access)
        await wait_until_writable(file, timeout=60)
        flooder.start()
        theirs.close()  # so that its end is noticed here
        rate = 0.95 * quota / _PAYLOAD
        async with Client(file) as client:
            await client.append(NEIGHBOUR, b"first")
            await asyncio.sleep(2)
            for _ in range(options.rounds):
                alone.append(await _append_steadily(client, rate, options.seconds))
                ours.send(options.seconds)
                beside.append(await _append_steadily(client, rate, options.seconds))
                taken += await asyncio.to_thread(ours.recv)
        ours.send(None)
    finally:
        flooder.kill()
        await supervisor.stop_all()
    most, allowed = most_in_a_window(taken), 1.05 * quota * WINDOW + quota
    print(
        f"a log with {quota} bytes a second is flooded at ten times as much, {options.rounds} rounds of {options.seconds:g} s"
    )
    print(
        f"  most in ten seconds {most} bytes: {most / (quota * WINDOW):.3f} times the rate (goal: at most {allowed:.0f})"
    )
    for name, parts in (("alone", alone), ("beside it", beside)):
        each = " ".join(f"{part:.3f}" for part in parts)
        print(
            f"  the neighbour {name:<10} {statistics.median(parts):.3f} of its appends within {_IN_TIME_SECONDS:g} s  ({each})"
        )
    print(f"  ratio {statistics.median(beside) / max(statistics.median(alone), 1e-9):.3f}  (goal: at least 0.95)")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of each part of a round")
    parser.add_argument("--quota", type=int, default=100_000, help="bytes a second of each of the two logs")
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quotas-") as directory:
        uvloop.run(_measure(options, Path(directory)))


if __name__ == "__main__":
    main()
