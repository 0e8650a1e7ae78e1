"""Strict order under faults: clients append, each one record at a time, and remember when they called and when they were told.

1. An append that began after another one was acknowledged lies behind it, whoever appended them and whichever sequencers took them.
2. Nobody is told of an entry before an f-majority of shards has the seal of the epoch before on its disk.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from client.takeover import recovered
from logdevice_py import LogDeviceError, SimCluster, Status
from logdevice_py.core.ids import LogId
from logdevice_py.core.machine import Send
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Appended, Sealed
from server.simulation.machines import SimNode

LOG = 7
CLIENTS = 3
SECONDS = 10


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
            await asyncio.sleep(cluster.rng.choice([0.005, 0.02, 0.1]))


class SealWatch:
    """Looks at what nodes send: rule 2."""

    def __init__(self, f_majority: int) -> None:
        self._f_majority = f_majority
        self.sealed: dict[int, int] = {}
        """By shard: the greatest epoch that it said it has sealed, which it says once that is on its disk."""
        self.take_overs: set[int] = set()

    def __call__(self, node: SimNode, effects: list[Any]) -> None:
        for effect in effects:
            if type(effect) is not Send:
                continue
            message = effect.message
            if type(message) is Sealed:
                for row in message.logs:
                    if row.log == LOG and row.status is Status.OK:
                        self.sealed[message.shard] = max(self.sealed.get(message.shard, 0), row.seal_epoch)
            elif type(message) is Appended and message.log == LOG and message.status is Status.OK:
                self._check(message.lsn >> 32)

    def _check(self, epoch: int) -> None:
        if epoch == 1:
            return
        self.take_overs.add(epoch)
        sealed = sum(until >= epoch - 1 for until in self.sealed.values())
        assert sealed >= self._f_majority, (
            f"rule 2: an entry of epoch {epoch} is acknowledged, and {sealed} shards are sealed"
        )


async def _move_on(cluster: SimCluster) -> None:
    """Takes the log to other epochs."""
    async with cluster.client() as client:
        while True:
            await asyncio.sleep(cluster.rng.uniform(0.2, 1))
            with suppress(LogDeviceError):
                before = await client.sequencer(LOG, timeout=2)
                await recovered(client, LogId(LOG), min_epoch=before.epoch + 1, timeout_us=Micros(2_000_000))


async def strictly_ordered_appends(cluster: SimCluster) -> SealWatch:
    """All of it, and the rules."""
    # with two copies of each record, all shards but one are an f-majority
    appends, watch = Appends(), SealWatch(len(cluster.machines.nodes) - 1)
    cluster.machines.watch = watch
    moving = asyncio.create_task(_move_on(cluster))
    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(_append(cluster, appends, f"c{number}"))
    moving.cancel()
    await asyncio.gather(moving, return_exceptions=True)
    violations = appends.violations()
    assert not violations, (
        f"rule 1: {len(violations)} of {len(appends.acknowledged)} appends are out of order: {violations[0]}"
    )
    await cluster.calm()
    return watch
