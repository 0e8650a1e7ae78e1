"""Clusters that grow while applications append: nodes and regions are added to a stored configuration, a region is taken out of use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from client.client import Client
from logdevice_py import LogDeviceError, simulate
from logdevice_py.config.parse import render_cluster
from logdevice_py.core.ids import node_of
from server.simulation.cluster import SimCluster
from tests.simulation.configurations import Operators

LOGS = 10
WITHIN = 12.0
"""Seconds after a change in which all that is new goes by it: far less than a day."""
CLUSTER: dict[str, Any] = {
    "nodes": 4,
    "logs": LOGS,
    "replicate": "node:2",
    "stored_configuration": True,
    "attributes": {"nodeset_size": 4, "sticky_copysets": False, "sequencer_batching": False},
}


async def change(cluster: SimCluster, added: str) -> None:
    """Have a node store the configuration that it uses, and more."""
    configuration = cluster.node(0).configuration
    assert configuration is not None
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                await configuration.change(render_cluster(configuration.config) + added, "an operator", "growth")
            except LogDeviceError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.2)
            else:
                return


def nodes_at(nodes: Mapping[int, str]) -> str:
    """Nodes of a configuration, at locations."""
    return "".join(
        f'[nodes.N{node}]\nhost = "127.0.0.{node + 1}"\nport = 7000\nroles = ["sequencer", "storage"]\nlocation = "{place}"\n'
        for node, place in nodes.items()
    )


async def load_of(client: Client, records: int) -> Counter[int]:
    """How many copies of records that are appended at this moment each node gets."""
    found: Counter[int] = Counter()
    receipts = await asyncio.gather(
        *(client.append(log, b"x", timeout=20) for log in range(1, LOGS + 1) for _ in range(records))
    )
    for receipt in receipts:
        found.update(int(node_of(shard)) for shard in receipt.copyset)
    return found


@pytest.mark.parametrize("nodeset_size", [4, 0], ids=["nodesets of four", "nodesets of all shards"])
def test_what_is_new_spreads_over_a_cluster_that_is_doubled(nodeset_size: int) -> None:
    """Nodesets keep their size, if they have one, and get other members: each log a new epoch, once."""
    attributes = {**CLUSTER["attributes"], "nodeset_size": nodeset_size}

    async def application(cluster: SimCluster) -> tuple[Counter[int], Counter[int], dict[int, int], dict[int, int]]:
        watching = asyncio.create_task(Operators(cluster).watch())
        async with cluster.client() as client:
            before = await load_of(client, 40)
            await change(cluster, nodes_at(dict.fromkeys(range(4, 8), "rack0")))
            await asyncio.sleep(WITHIN)
            after = await load_of(client, 40)
            epochs = await epochs_of(client)
            await asyncio.sleep(WITHIN)
            later = await epochs_of(client)
        watching.cancel()
        return before, after, epochs, later

    async def epochs_of(client: Client) -> dict[int, int]:
        return {log: (await client.tail_lsn(log)) >> 32 for log in range(1, LOGS + 1)}

    before, after, epochs, later = simulate(application, **{**CLUSTER, "attributes": attributes})
    assert set(before) == set(range(4))
    assert set(after) == set(range(8))
    assert 0.35 <= sum(after[node] for node in range(4, 8)) / after.total() <= 0.65, after
    assert epochs == later, "nothing goes on changing"
    assert max(epochs.values()) <= 3, "one epoch more for a log, or two where its nodeset changed twice"


def test_a_region_is_added_to_a_running_cluster_and_another_one_taken_out_of_use() -> None:
    cluster: dict[str, Any] = {**CLUSTER, "regions": 2, "racks": 2, "replicate": "region:2,node:3", "round_trip": 0.02}
    cluster["attributes"] = {**CLUSTER["attributes"], "nodeset_size": 6}

    async def application(cluster: SimCluster) -> tuple[Counter[str], Counter[str], Counter[str]]:
        watching = asyncio.create_task(Operators(cluster).watch())

        async def load() -> Counter[str]:
            found: Counter[str] = Counter()
            for node, copies in (await load_of(client, 30)).items():
                found["new" if node >= 4 else f"region{node % 2}"] += copies
            return found

        async with cluster.client() as client:
            before = await load()
            await change(cluster, nodes_at({node: f"new.d.c.r.rack{node % 2}" for node in range(4, 6)}))
            await asyncio.sleep(WITHIN)
            grown = await load()
            await change(cluster, '[settings.placement]\ndisabled_regions = "region0"\n')
            await asyncio.sleep(WITHIN)
            without = await load()
        watching.cancel()
        return before, grown, without

    before, grown, without = simulate(application, **cluster)
    assert set(before) == {"region0", "region1"}
    assert set(grown) == {"region0", "region1", "new"}
    assert grown["new"] >= grown.total() / 6
    assert set(without) == {"region1", "new"}
