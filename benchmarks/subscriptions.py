"""What commits of subscriptions cost, with real processes: ``python -m benchmarks.subscriptions [--seconds N]``.

Many streams commit in a loop, each as soon as its last commit is acknowledged; then commits are made without waiting, of which the latest of a stream counts.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from client.guards import Position
from logdevice_py.core.lsn import LSN
from server.dev.local_cluster import LocalCluster
from streams.subscriptions.subscriptions import Subscriptions

_STREAMS = (1, 10, 100, 1000)
_BEHIND = 20
"""Commits of a stream that are not waited for."""


async def _commit(subscriptions: Subscriptions, stream: str, until: float, took: list[float]) -> None:
    lsn = 0
    while (began := time.monotonic()) < until:
        lsn += 1
        await subscriptions.commit("bench", stream, Position(LSN(lsn), 0))
        took.append(1e3 * (time.monotonic() - began))


async def _commit_behind(subscriptions: Subscriptions, stream: str, until: float, took: list[float]) -> None:
    lsn = 0
    while (began := time.monotonic()) < until:
        commits = []
        for _ in range(_BEHIND):
            lsn += 1
            commits.append(subscriptions.commit("behind", stream, Position(LSN(lsn), 0)))
        await asyncio.gather(*commits)
        took += [1e3 * (time.monotonic() - began)] * _BEHIND


async def _measure(seconds: float) -> None:
    async with (
        LocalCluster(nodes=3, logs=2) as cluster,
        cluster.client() as client,
        Subscriptions(client, 1, 2) as subscriptions,
    ):
        queue = subscriptions.queue
        for work, what in ((_commit, "each waited for"), (_commit_behind, f"{_BEHIND} at a time")):
            for streams in _STREAMS:
                took: list[float] = []
                commands, merged, began = queue.commands, queue.merged, time.monotonic()
                until = began + seconds
                await asyncio.gather(
                    *(work(subscriptions, f"{streams}-{each}", until, took) for each in range(streams))
                )
                spent = time.monotonic() - began
                made = queue.commands - commands
                print(
                    f"{streams} streams, {what}: {len(took) / spent:.0f} commits/s in {made / spent:.0f} commands/s, "
                    f"{queue.merged - merged} merged, median {statistics.median(took):.1f} ms"
                )


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of streams")
    asyncio.run(_measure(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
