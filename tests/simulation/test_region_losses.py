"""Regions that are far apart: what appends cost, what passes between them, and what is lost when one or two of them end. ``python -m tests.simulation.region_losses``
ends a hundred."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from benchmarks.percentiles import percentile
from logdevice_py import simulate
from logdevice_py.core.ids import node_of
from logdevice_py.simulation.connection import End
from server.simulation.cluster import SimCluster
from tests.simulation.region_losses import (
    APPENDING_WITHIN,
    FIVE,
    LOG,
    READABLE_WITHIN,
    THREE,
    UNEVEN,
    BrokenRule,
    RegionLoss,
    losses,
    sequencing_region,
    set_round_trips,
)
from tests.slow import quick

NEAR: dict[str, Any] = {**THREE, "attributes": {**THREE["attributes"], "sticky_copysets": False}}


def appends_of(cluster: dict[str, Any], *, uneven: bool = False) -> list[float]:
    """How many seconds appends take in the region that sequences, one every 10 ms."""

    async def application(cluster: SimCluster) -> list[float]:
        if uneven:
            set_round_trips(cluster, UNEVEN, 3)
        # its own rare long delays are not what is measured
        cluster.machines.network.settings.slow_probability = 0
        loop, took = asyncio.get_running_loop(), list[float]()

        async def one() -> None:
            began = loop.time()
            await client.append(LOG, b"x" * 100)
            took.append(loop.time() - began)

        async with cluster.client(0) as client:
            await client.append(LOG, b"first")
            assert sequencing_region(cluster, 3) == 0
            async with asyncio.TaskGroup() as group:
                for _ in range(1000):
                    group.create_task(one())
                    await asyncio.sleep(0.01)
        return took

    return simulate(application, **cluster)


def test_an_append_takes_one_round_trip() -> None:
    took = appends_of(NEAR)
    assert percentile(took, 0.5) <= 0.085
    assert percentile(took, 0.99) <= 0.110


def test_an_append_takes_as_long_as_the_way_to_its_other_region_and_back() -> None:
    took = appends_of(NEAR, uneven=True)
    assert min(took) <= UNEVEN[0, 1] + 0.005
    assert percentile(took, 0.5) <= UNEVEN[0, 2] + 0.005
    assert percentile(took, 0.99) <= UNEVEN[0, 2] + 0.030


def test_bodies_cross_once_for_each_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """And little else does, at 2 MB/s: what nodes tell each other at all times is less than 0.1 MB/s for nine of them."""
    crossed: Counter[bool] = Counter()
    send, size = End.send, 16 << 10

    def counting(end: End, data: bytes) -> None:
        one, two = end.host.address, end.other.host.address
        crossed[min(one, two) >= 0 and one % 3 != two % 3] += len(data)
        send(end, data)

    async def application(cluster: SimCluster) -> float:
        async with cluster.client(0) as client:
            await client.append(LOG, b"first")
            monkeypatch.setattr(End, "send", counting)
            receipts = []
            for _ in range(30):
                receipts += await asyncio.gather(*(client.append(LOG, b"x" * size) for _ in range(16)))
                await asyncio.sleep(0.01)
            monkeypatch.setattr(End, "send", send)
        remote = sum(node_of(shard) % 3 != 0 for receipt in receipts for shard in receipt.copyset)
        assert remote >= len(receipts)
        return crossed[True] / (remote * size)

    assert simulate(application, **NEAR) <= 1.05


@pytest.mark.parametrize("way", APPENDING_WITHIN)
@pytest.mark.parametrize("seed", quick(range(12), 1))
def test_others_go_on_when_the_region_that_sequences_ends(seed: int, way: str) -> None:
    ((_, found),) = losses(range(seed, seed + 1), way, THREE, [0])
    assert isinstance(found, RegionLoss), found
    assert found.records > 300
    assert found.appending <= APPENDING_WITHIN[way]
    assert found.readable <= READABLE_WITHIN


@pytest.mark.parametrize("way", APPENDING_WITHIN)
@pytest.mark.parametrize("seed", quick(range(12), 1))
def test_with_five_regions_and_a_minimum_of_three_two_may_end(seed: int, way: str) -> None:
    """Appends, recovery and reads go on."""
    ((_, found),) = losses(range(seed, seed + 1), way, FIVE, [0, 1])
    assert isinstance(found, RegionLoss), found
    assert found.appending <= APPENDING_WITHIN[way]
    assert found.readable <= READABLE_WITHIN


def test_with_a_region_less_than_is_promised_nobody_appends() -> None:
    ((_, found),) = losses(range(1), "reset", FIVE, [0, 1, 2])
    assert isinstance(found, Exception)
    assert isinstance(found.__cause__, BrokenRule)
    assert "nobody appends within" in str(found.__cause__)
