"""Strict order while sequencers are cut off: clients append, each one record at a time, and remember when they called and when they were told.

The rule: an append that began after another one was acknowledged lies behind it, whoever appended them and whichever sequencers took them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate

from logdevice_py import LogDeviceError, SimCluster

LOG = 1
CLIENTS = 4
NODES = 5
SECONDS = 12


@dataclass
class Appends:
    """Of all clients."""

    acknowledged: list[tuple[float, float, tuple[int, int]]] = field(default_factory=list)
    """When it was called, when it was told, and the position."""

    def violations(self) -> list[str]:
        """Appends that lie before one that was acknowledged before they began."""
        told = sorted((told, position) for _, told, position in self.acknowledged)
        times = [time for time, _ in told]
        greatest = list(accumulate((position for _, position in told), max))
        found = []
        for called, _, position in self.acknowledged:
            before = bisect_left(times, called)
            if before and greatest[before - 1] > position:
                found.append(
                    f"{position}, called at {called:.6f}, lies before {greatest[before - 1]}, told before that"
                )
        return found


async def _append(cluster: SimCluster, appends: Appends, name: str) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    async with cluster.client() as client:
        number = 0
        while loop.time() < end:
            number += 1
            called = loop.time()
            try:
                receipt = await client.append(LOG, f"{name} {number}".encode(), timeout=5)
            except LogDeviceError:
                await asyncio.sleep(0.1)
                continue
            appends.acknowledged.append((called, loop.time(), (int(receipt.lsn), receipt.batch_offset)))
            await asyncio.sleep(cluster.rng.choice([0, 0.005, 0.02, 0.1]))


async def _cut_off(cluster: SimCluster) -> None:
    """The log's sequencer and one more node do not hear of the others for a while, again and again; clients reach all of them."""
    network = cluster.machines.network
    async with cluster.client() as client:
        while True:
            await asyncio.sleep(cluster.rng.uniform(0.5, 1.5))
            sequencer = int((await client.sequencer(LOG, timeout=60)).node)
            few = [sequencer, cluster.rng.choice([node for node in range(NODES) if node != sequencer])]
            pairs = [(one, two) for one in few for two in range(NODES) if two not in few]
            pairs += [(two, one) for one, two in pairs]
            for source, target in pairs:
                network.block(source, target)
            await asyncio.sleep(cluster.rng.uniform(2, 5))
            for source, target in pairs:
                network.unblock(source, target)


async def strictly_ordered_appends(cluster: SimCluster) -> Appends:
    """All of it, and the rule."""
    appends = Appends()
    cutting = asyncio.create_task(_cut_off(cluster))
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(_append(cluster, appends, f"c{number}"))
    cutting.cancel()
    await asyncio.gather(cutting, return_exceptions=True)
    violations = appends.violations()
    assert not violations, (
        f"rule: {len(violations)} of {len(appends.acknowledged)} appends are out of order: {violations[0]}"
    )
    await cluster.calm()
    return appends
