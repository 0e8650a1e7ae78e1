"""``python -m tests.simulation.region_losses``: regions that are far apart, and what is lost, and for how long, when the one that sequences ends.

Each seed is a cluster of its own: some writers append to one log that is sequenced in `region0`, a reader in another region follows it, and that region ends. It
ends in one of two ways: its processes do, and connections are reset; or nothing passes to it and from it any more, and nobody is told. Later it is back.

1. Others append again, and read what was appended, within bounds.
2. What was acknowledged is read, once, in the order of its positions; records of a BufferedWriter all, once, in the order of their calls.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, product
from typing import Any, Final

from client.client import Client
from logdevice_py import LSN, LogDeviceError, Position, Record, SimulationFailed
from logdevice_py.core.ids import LogId
from server.simulation.cluster import APPLICATION_ADDRESS, SimCluster, simulate

LOG: Final = LogId(1)
THREE: Final[dict[str, Any]] = {
    "nodes": 9,
    "regions": 3,
    "racks": 3,
    "round_trip": 0.08,
    "logs": 1,
    "replicate": "region:2,node:3",
    "attributes": {"sequencer_affinity": "region0...."},
}
FIVE: Final[dict[str, Any]] = {**THREE, "nodes": 10, "regions": 5, "racks": 2, "replicate": "region:3,node:3"}
UNEVEN: Final[Mapping[tuple[int, int], float]] = {(0, 1): 0.03, (0, 2): 0.07, (1, 2): 0.14}
"""Round trips between three regions, in seconds."""
APPENDING_WITHIN: Final = {"reset": 3.0, "black hole": 6.0}
"""Seconds after which others append again, by how the region ends."""
READABLE_WITHIN: Final = 2.0
"""Seconds from then on until a record is read."""
_CLIENTS: Final = 4
_WARM_UP: Final = 2.0
_WATCHED: Final = 10.0
_BACK: Final = 60.0


class BrokenRule(AssertionError):
    """A rule of this module does not hold."""


def set_round_trips(cluster: SimCluster, round_trips: Mapping[tuple[int, int], float], regions: int) -> None:
    """Let regions be as far apart as a matrix says. Clients that are made later stand as far away as the argument `round_trip` says."""
    distances, nodes = cluster.machines.network.distances, list(cluster.machines.nodes)
    for one, two in product(nodes, nodes):
        pair = (min(one % regions, two % regions), max(one % regions, two % regions))
        if pair in round_trips:
            distances[one, two] = round(round_trips[pair] * 1e6 / 2)


def sequencing_region(cluster: SimCluster, regions: int) -> int:
    """Where the log is sequenced: the region of the node that has its latest epoch."""
    epochs = {
        int(node): machine.root.sequencer.sequencers[LOG].epoch
        for node, machine in cluster.machines.nodes.items()
        if machine.root is not None and machine.root.sequencer is not None and LOG in machine.root.sequencer.sequencers
    }
    return max(epochs, key=lambda node: epochs[node]) % regions


@dataclass(frozen=True, slots=True)
class RegionLoss:
    """What one loss came to; times in seconds."""

    records: int
    """That were acknowledged in the run."""
    appending: float
    """From the loss until the first append that began after it was acknowledged."""
    readable: float
    """The longest that an append took, after it was acknowledged, to come to the reader, of those that began after the loss."""


@dataclass(slots=True)
class _Told:
    """What applications were told."""

    began: dict[bytes, float] = field(default_factory=dict)
    """When each direct append began."""
    acknowledged: dict[bytes, tuple[Position, float]] = field(default_factory=dict)
    """Where each lies, and when that was told."""
    written: dict[bytes, Position] = field(default_factory=dict)
    """Records of the BufferedWriter."""
    read: dict[bytes, float] = field(default_factory=dict)
    """When each came to who follows the log."""


async def _append(client: Client, told: _Told) -> None:
    loop = asyncio.get_running_loop()

    async def one(payload: bytes) -> None:
        told.began[payload] = loop.time()
        with suppress(LogDeviceError):
            receipt = await client.append(LOG, payload, timeout=20)
            told.acknowledged[payload] = receipt.position, loop.time()

    async with asyncio.TaskGroup() as group:
        for number in count():
            group.create_task(one(b"a%d" % number))
            await asyncio.sleep(0.02)


async def _write(client: Client, told: _Told, ended: asyncio.Event) -> int:
    """A BufferedWriter's records until the end; how many."""

    async def one(number: int) -> None:
        told.written[b"w%d" % number] = (await writer.append(LOG, b"w%d" % number)).position

    async with client.buffered_writer() as writer, asyncio.TaskGroup() as group:
        for number in count():
            if ended.is_set():
                return number
            group.create_task(one(number))
            await asyncio.sleep(0.03)
    raise AssertionError


async def _follow(client: Client, told: _Told) -> None:
    loop, last = asyncio.get_running_loop(), Position(0, 0)
    async with client.reader(LOG, until=LSN.MAX) as reader:
        async for item in reader:
            if isinstance(item, Record):
                where = Position(item.lsn, item.batch_offset)
                if where <= last:
                    raise BrokenRule(f"rule 2: {where} is read behind {last}")
                last = where
                if item.payload in told.read:
                    raise BrokenRule(f"rule 2: {item.payload!r} is read twice")
                told.read[item.payload] = loop.time()


async def end_regions(cluster: SimCluster, ended: list[int], regions: int, way: str) -> None:
    """End regions, in one of the ways of `APPENDING_WITHIN`."""
    network, nodes = cluster.machines.network, list(cluster.machines.nodes)
    gone = [node for node in nodes if node % regions in ended]
    if way == "reset":
        for node in gone:
            await cluster.stop_node(node)
        return
    others = [node for node in nodes if node not in gone]
    for one, two in product(gone, [*others, *(APPLICATION_ADDRESS - number for number in range(_CLIENTS))]):
        network.block(one, two)
        network.block(two, one)


async def bring_back(cluster: SimCluster, ended: list[int], regions: int, way: str) -> None:
    """End what `end_regions` began."""
    cluster.heal()
    if way == "reset":
        for node in list(cluster.machines.nodes):
            if node % regions in ended:
                await cluster.start_node(node)


async def lose_regions(cluster: SimCluster, *, ended: list[int], regions: int, way: str) -> RegionLoss:
    """Regions end while others write and read; with the rules."""
    loop, told, over = asyncio.get_running_loop(), _Told(), asyncio.Event()
    left = [region for region in range(regions) if region not in ended]
    async with (
        cluster.client(left[0]) as appender,
        cluster.client(left[0]) as writer,
        cluster.client(left[-1]) as follower,
    ):
        await appender.append(LOG, b"first")
        appending = asyncio.create_task(_append(appender, told))
        following = asyncio.create_task(_follow(follower, told))
        writing = asyncio.create_task(_write(writer, told, over))
        try:
            await asyncio.sleep(_WARM_UP)
            if (region := sequencing_region(cluster, regions)) not in ended:
                raise BrokenRule(f"region {region} sequences, not one of {ended}")
            lost_at = loop.time()
            await end_regions(cluster, ended, regions, way)
            await asyncio.sleep(_WATCHED)
            over.set()
            again = {payload: at for payload, (_, at) in told.acknowledged.items() if told.began[payload] >= lost_at}
            if not again:
                raise BrokenRule(f"rule 1: nobody appends within {_WATCHED:.0f} s")
            written = await writing
            appending.cancel()
            await asyncio.wait([appending])
            await asyncio.sleep(READABLE_WITHIN)
            if following.done():
                following.result()
            if late := [payload for payload in again if payload not in told.read]:
                raise BrokenRule(f"rule 1: {len(late)} records are not read {READABLE_WITHIN} s later: {late[:5]}")
            await bring_back(cluster, ended, regions, way)
            async with asyncio.timeout(_BACK):
                _check(await _read_all(appender), told, written)
            if following.done():
                following.result()
        finally:
            for task in (appending, following, writing):
                task.cancel()
            await asyncio.wait([appending, following, writing])
    return RegionLoss(
        len(told.acknowledged) + written,
        min(again.values()) - lost_at,
        max(told.read[payload] - at for payload, at in again.items()),
    )


async def _read_all(client: Client) -> list[tuple[Position, bytes]]:
    last = (await client.append(LOG, b"last")).lsn
    async with client.reader(LOG, until=last) as reader:
        return [
            (Position(item.lsn, item.batch_offset), item.payload) async for item in reader if isinstance(item, Record)
        ]


def _check(records: list[tuple[Position, bytes]], told: _Told, written: int) -> None:
    """Rule 2, of the whole log."""
    found = {payload: where for where, payload in records}
    if len(found) != len(records):
        raise BrokenRule(f"rule 2: {len(records) - len(found)} records are there twice")
    wanted = {payload: where for payload, (where, _) in told.acknowledged.items()} | told.written
    if wrong := {payload: where for payload, where in wanted.items() if found.get(payload) != where}:
        raise BrokenRule(
            f"rule 2: {len(wrong)} records are not where they were acknowledged: {list(wrong.items())[:5]}"
        )
    order = [payload for _, payload in records if payload.startswith(b"w")]
    if order != [b"w%d" % number for number in range(written)]:
        raise BrokenRule("rule 2: records of the BufferedWriter are not all there in the order of their calls")


def losses(
    seeds: range, way: str, cluster: Mapping[str, Any], ended: list[int]
) -> Iterator[tuple[int, RegionLoss | SimulationFailed]]:
    """One loss a seed."""
    regions = cluster["regions"]
    for seed in seeds:
        try:
            found = simulate(
                lambda made: lose_regions(made, ended=ended, regions=regions, way=way), seed=seed, **cluster
            )
        except SimulationFailed as error:
            yield seed, error
        else:
            yield seed, found


def main(arguments: list[str]) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.region_losses", description=__doc__)
    parser.add_argument("--losses", type=int, default=100, help="so many, half of them in each way (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first one (default 0)")
    parser.add_argument(
        "--five", action="store_true", help="two of five regions end, of which records lie in three (else one of three)"
    )
    chosen = parser.parse_args(arguments)
    cluster, ended = (FIVE, [0, 1]) if chosen.five else (THREE, [0])
    bad, began = 0, time.monotonic()
    for way, within in APPENDING_WITHIN.items():
        found: list[RegionLoss] = []
        for seed, each in losses(range(chosen.seed, chosen.seed + -(-chosen.losses // 2)), way, cluster, ended):
            if isinstance(each, SimulationFailed):
                bad += 1
                print(f"{way}, seed {seed}: {each}", flush=True)
            else:
                found.append(each)
                if each.appending > within:
                    bad += 1
                    print(f"{way}, seed {seed}: appending again after {each.appending:.2f} s", flush=True)
        if not found:
            continue
        appending = sorted(each.appending for each in found)
        print(
            f"{way}: {len(found)} losses, {sum(each.records for each in found):,} records acknowledged; appending again after {appending[0]:.2f} to "
            f"{appending[-1]:.2f} s (median {appending[len(appending) // 2]:.2f}, bound {within:.0f}), readable at most "
            f"{max(each.readable for each in found):.2f} s later (bound {READABLE_WITHIN:.0f})",
            flush=True,
        )
    print(f"{bad} wrong; {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
