"""F-majorities and copysets of every small cluster, for every subset of its shards, against their definitions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains, FMajority

PROPERTIES = ("node:1", "node:2", "node:3", "rack:2", "rack:3", "rack:1,node:3", "rack:2,node:3", "rack:2,node:4")


def partitions(nodes: int) -> Iterator[tuple[int, ...]]:
    """Every way to put nodes into racks, names of racks aside: the rack of each node."""

    def grow(racks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(racks) == nodes:
            yield racks
            return
        for rack in range(max(racks, default=-1) + 2):
            yield from grow((*racks, rack))

    return grow(())


def subsets(shards: tuple[ShardId, ...]) -> list[frozenset[ShardId]]:
    return [frozenset(chosen) for size in range(len(shards) + 1) for chosen in combinations(shards, size)]


@pytest.mark.parametrize("text", PROPERTIES)
def test_every_subset_of_every_small_cluster(text: str) -> None:
    replication = ReplicationProperty.parse(text)
    for nodes in range(1, 6):
        shards = tuple(shard_id(NodeId(node)) for node in range(nodes))
        for racks in partitions(nodes):
            places = [Location(("", "", "", "", f"rack{rack}")) for rack in racks]

            def location(shard: ShardId, places: list[Location] = places) -> Location:
                return places[node_of(shard)]

            def satisfies(chosen: tuple[ShardId, ...], places: list[Location] = places) -> bool:
                return all(
                    len({places[node_of(shard)].domain(scope, node_of(shard)) for shard in chosen}) >= factor
                    for scope, factor in replication.factors
                )

            copysets = [frozenset(chosen) for chosen in combinations(shards, replication.copies) if satisfies(chosen)]
            domains = FailureDomains.by_file(shards, replication, location)
            selector = CopysetSelector(domains, weight=lambda _: 1.0, rng=random.Random(nodes))
            for subset in subsets(shards):
                meets_all = all(copyset & subset for copyset in copysets)
                result = domains.f_majority(subset)
                if copysets:
                    assert (result is not FMajority.NONE) == meets_all, (text, racks, subset)
                assert (result is FMajority.COMPLETE) == (len(subset) == nodes)
                possible = any(copyset <= subset for copyset in copysets)
                assert domains.can_replicate(subset) == possible
                chosen = selector.pick(subset.__contains__)
                assert (chosen is not None) == possible
                assert chosen is None or (frozenset(chosen) in copysets and frozenset(chosen) <= subset)
