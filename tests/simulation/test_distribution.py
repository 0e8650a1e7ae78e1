"""Streams that are cut into many segments are spread evenly over the nodes that store them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py import Namespace, SimCluster

NODES, COPIES = 5, 3
SEGMENTS = 150


async def two_streams(cluster: SimCluster) -> tuple[Counter[int], list[int]]:
    """Copies of records by node, and segments by stream."""
    copies: Counter[int] = Counter()
    async with cluster.client() as client, Namespace(client, "/streams") as namespace:
        rolls = {"roll_every": "1s"}
        streams = [await namespace.create(name, log_attributes=rolls) for name in ("x", "y")]
        for _ in range(SEGMENTS):
            for stream in streams:
                async with stream.writer() as writer:
                    for receipt in await writer.write_many([b"a record"] * 5):
                        copies.update(shard >> 8 for shard in receipt.copyset)
            await asyncio.sleep(1)
        return copies, [len(await client.segments(stream.log)) for stream in streams]


@pytest.mark.slow
def test_two_streams_of_many_segments_are_spread_evenly_over_five_nodes(simulate: Callable[..., Any]) -> None:
    copies, segments = simulate(
        two_streams, seed=1, nodes=NODES, replicate=f"node:{COPIES}", log_tree=True, virtual_seconds=3600
    )
    assert min(segments) > SEGMENTS * 3 // 4, segments
    even = copies.total() / NODES
    assert copies.total() == 2 * SEGMENTS * 5 * COPIES
    assert all(0.85 * even <= copies[node] <= 1.15 * even for node in range(NODES)), copies
