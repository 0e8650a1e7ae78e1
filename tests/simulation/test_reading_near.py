"""Reading near in three regions: readers get what they read from the region where they stand."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from client.client import Client
from client.read.items import Record
from logdevice_py.core.ids import node_of
from logdevice_py.core.lsn import LSN
from logdevice_py.protocol.messages import Records
from server.simulation.cluster import APPLICATION_ADDRESS, SimCluster, simulate

REGIONS = 3
ROUND_TRIP = 0.08
CLUSTER: dict[str, Any] = {
    "nodes": 9,
    "regions": REGIONS,
    "racks": 3,
    "round_trip": ROUND_TRIP,
    "logs": 1,
    "replicate": "region:3,node:3",
    "attributes": {"sticky_copysets": False, "sequencer_batching": False},
}
ENTRIES = 300


def count_sources(client: Client, counts: Counter[int]) -> None:
    """Count entries that a client gets by the region of the node that sends them."""
    streams = client.session.streams
    original = streams.on_records

    def on_records(peer: Any, message: Records, now: Any) -> None:
        counts[node_of(message.shard) % REGIONS] += len(message.entries)
        original(peer, message, now)

    client.session._routes[Records] = on_records


async def write(client: Client, *, pause: float = 0.002) -> LSN:
    """Append entries one by one, without waiting for the one before."""
    appends = []
    for number in range(ENTRIES):
        appends.append(asyncio.ensure_future(client.append(1, b"%d" % number)))
        await asyncio.sleep(pause)
    receipts = await asyncio.gather(*appends)
    return max(receipt.lsn for receipt in receipts)


async def read(client: Client, until: LSN, **options: Any) -> list[Any]:
    async with client.reader(1, until=until, **options) as reader:
        return [item async for item in reader if isinstance(item, Record)]


@pytest.mark.parametrize("region", range(REGIONS))
def test_readers_get_what_has_a_copy_in_their_region_from_there(region: int) -> None:
    counts: Counter[int] = Counter()

    async def application(cluster: SimCluster) -> int:
        async with cluster.client() as writer, cluster.client(region) as client:
            tail = await write(writer)
            count_sources(client, counts)
            return len(await read(client, tail))

    assert simulate(application, seed=region, **CLUSTER) == ENTRIES
    assert counts.total() >= ENTRIES
    assert counts[region] >= 0.99 * counts.total(), counts


def test_who_follows_a_log_as_well() -> None:
    counts: Counter[int] = Counter()

    async def application(cluster: SimCluster) -> int:
        async with cluster.client() as writer, cluster.client(2) as client:
            await writer.append(1, b"first")
            count_sources(client, counts)
            reading = asyncio.ensure_future(read(client, LSN.MAX - 1))
            tail = await write(writer)
            reading.cancel()
            await asyncio.wait([reading])
            return len(await read(client, tail))

    assert simulate(application, **CLUSTER) == ENTRIES + 1
    assert counts.total() > 1.9 * ENTRIES
    assert counts[2] >= 0.99 * counts.total(), counts


@pytest.mark.parametrize("which", ["the reader", "the log"])
def test_who_does_not_want_that_gets_a_share_from_each_region(which: str) -> None:
    counts: Counter[int] = Counter()
    attributes = {**CLUSTER["attributes"], "read_near": which != "the log"}

    async def application(cluster: SimCluster) -> int:
        async with cluster.client() as writer, cluster.client(1) as client:
            tail = await write(writer)
            count_sources(client, counts)
            return len(await read(client, tail, near=False if which == "the reader" else None))

    assert simulate(application, **{**CLUSTER, "attributes": attributes}) == ENTRIES
    assert all(count > 0.2 * counts.total() for count in counts.values()), counts


def test_where_nothing_passes_to_the_own_region_others_send_until_it_does_again() -> None:
    counts: Counter[int] = Counter()

    async def application(cluster: SimCluster) -> None:
        network = cluster.machines.network
        async with cluster.client(0) as writer, cluster.client(1) as client:
            tail = await write(writer)
            count_sources(client, counts)
            for node in range(1, 9, REGIONS):
                network.block(node, APPLICATION_ADDRESS - 1)
                network.block(APPLICATION_ADDRESS - 1, node)
            assert len(await read(client, tail)) == ENTRIES
            assert counts[1] == 0
            assert counts.total() >= ENTRIES
            cluster.heal()
            await asyncio.sleep(2)
            counts.clear()
            assert len(await read(client, tail)) == ENTRIES
            assert counts[1] >= 0.99 * counts.total(), counts

    simulate(application, **CLUSTER)
