"""What BookKeeper's tests of the order of reading check, in our terms: docs/bookkeeper-placement.md says which of them each test retells."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from logdevice_py.config.location import Location
from logdevice_py.core.ids import ShardId, node_of
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.reading_order import ReadHealth
from tests.unit.logdevice_py.placement.bookkeeper_cases import numbers, shards
from tests.unit.logdevice_py.placement.clusters import cluster

SLOW, READ_ONLY, DOWN = ReadHealth.FAILED, ReadHealth.READ_ONLY, ReadHealth.VANISHED
FOUR = ["r1....a", "d....k", "d....k", "r1....b"]
NINE = [f"r{region}....{rack}" for region in (1, 2, 3) for rack in "abc"]


def order(
    policy: str,
    places: Sequence[str],
    at: str | None,
    health: Mapping[int, ReadHealth] | None = None,
    *,
    of: Sequence[int] | None = None,
    seed: int = 1,
) -> list[int]:
    """In which order a reader asks nodes. Those that vanished are in no configuration."""
    known = health or {}
    there = {node: place for node, place in enumerate(places) if known.get(node) is not DOWN}
    config = replace(cluster(there), settings={"placement": {"policy": policy}})
    placement = ClusterPlacement(config, pytest.fail)
    copyset = shards(range(len(places)) if of is None else of)

    def of_shard(shard: ShardId) -> ReadHealth:
        assert shard in copyset, "the health of others is of no concern"
        return known.get(int(node_of(shard)), ReadHealth.WELL)

    here = None if at is None else Location.parse(at)
    return numbers(placement.reading_order(copyset, here, of_shard, random.Random(seed)))


def in_groups(found: Sequence[int], groups: Sequence[set[int]]) -> list[set[int]]:
    """The order, cut where the groups are."""
    cut, begin = [], 0
    for group in groups:
        cut.append(set(found[begin : begin + len(group)]))
        begin += len(group)
    assert begin == len(found)
    return cut


@pytest.mark.parametrize(
    ("health", "by_racks", "by_regions"),
    [
        ({}, [{0, 1, 2, 3}], [{0, 3}, {1, 2}]),
        ({0: DOWN}, [{1, 2, 3}, {0}], [{3}, {1, 2}, {0}]),
        ({0: READ_ONLY}, [{1, 2, 3}, {0}], [{3}, {1, 2}, {0}]),
        ({0: SLOW}, [{1, 2, 3}, {0}], [{3}, {1, 2}, {0}]),
        ({0: SLOW, 1: SLOW}, [{2, 3}, {0, 1}], [{3}, {2}, {0}, {1}]),
        ({0: DOWN, 1: DOWN}, [{2, 3}, {0, 1}], [{3}, {2}, {0, 1}]),
        ({0: DOWN, 1: READ_ONLY}, [{2, 3}, {1}, {0}], [{3}, {2}, {1}, {0}]),
        ({0: SLOW, 1: DOWN}, [{2, 3}, {0}, {1}], [{3}, {2}, {0}, {1}]),
        ({0: DOWN, 1: READ_ONLY, 2: SLOW}, [{3}, {2}, {1}, {0}], [{3}, {2}, {1}, {0}]),
    ],
)
def test_well_then_slow_then_read_only_then_vanished_and_the_own_region_first_in_each(
    health: dict[int, ReadHealth], by_racks: list[set[int]], by_regions: list[set[int]]
) -> None:
    for seed in range(10):
        found = order("rack-aware", ["d....a", "d....k", "d....k", "d....b"], "r1....x", health, seed=seed)
        assert in_groups(found, by_racks) == by_racks
        found = order("region-aware", FOUR, "r1....x", health, seed=seed)
        assert in_groups(found, by_regions) == by_regions


@pytest.mark.parametrize("policy", ["rack-aware", "region-aware"])
def test_those_that_failed_come_after_those_that_are_well_however_near(policy: str) -> None:
    places = ["x....1", "r2....1", "r2....2", "x....2", "r1....3", "r2....3", "r2....4", "r1....4"]
    failed = dict.fromkeys(range(4), SLOW)
    found = order(policy, places, "r2....1", failed)
    assert set(found[:4]) == {4, 5, 6, 7}
    by_regions = [{5, 6}, {4, 7}, {1, 2}, {0, 3}]
    found = order("region-aware", places, "r2....1", failed)
    assert in_groups(found, by_regions) == by_regions


@pytest.mark.parametrize(("policy", "places"), [("rack-aware", ["d....k"] * 4), ("region-aware", FOUR)])
def test_who_does_not_know_where_it_stands_asks_any_first(policy: str, places: list[str]) -> None:
    first = Counter(order(policy, places, None, seed=seed)[0] for seed in range(200))
    assert set(first) == {0, 1, 2, 3}
    assert max(first.values()) < 80


@pytest.mark.parametrize("begin", range(9))
def test_in_a_region_without_copies_any_is_asked_first(begin: int) -> None:
    rotated = [(begin + node) % 9 for node in range(9)]
    first = {order("region-aware", NINE, "r4....a", of=rotated, seed=seed)[0] for seed in range(80)}
    assert first == set(range(9))


@pytest.mark.parametrize("begin", range(9))
@pytest.mark.parametrize(
    ("places", "shape"), [(NINE, "LLRLRRRRR"), (["r1....a", *["r2....b"] * 5, *["r3....a"] * 3], "LLRLLRLRR")]
)
def test_after_two_local_shards_comes_a_remote_one(begin: int, places: list[str], shape: str) -> None:
    rotated = [(begin + node) % 9 for node in range(9)]
    found = order("region-aware", places, "r2....x", of=rotated)
    assert "".join("L" if places[node].startswith("r2") else "R" for node in found) == shape


@pytest.mark.parametrize("begin", range(9))
def test_where_all_are_remote_writable_regions_come_before_read_only_and_vanished_ones(begin: int) -> None:
    rotated = [(begin + node) % 9 for node in range(9)]
    health = {**dict.fromkeys(range(3), DOWN), **dict.fromkeys(range(6, 9), READ_ONLY)}
    groups = [{3, 4, 5}, {6, 7, 8}, {0, 1, 2}]
    assert in_groups(order("region-aware", NINE, "r4....a", health, of=rotated), groups) == groups


def test_a_slow_shard_that_has_no_copy_changes_no_order() -> None:
    for seed in range(10):
        orders = [order("rack-aware", FOUR, "d....k", health, of=[1, 2, 3], seed=seed) for health in ({}, {0: SLOW})]
        assert orders[0] == orders[1]
        assert sorted(orders[0]) == [1, 2, 3]


@pytest.mark.parametrize(
    "groups", [[{0}, {1, 2, 3}, {4}], [{0, 1, 2}, {3}, {4}], [{0}, {1}, {2, 3, 4}]], ids=["middle", "first", "last"]
)
def test_only_shards_of_one_kind_and_equally_near_are_shuffled(groups: list[set[int]]) -> None:
    health = {node: kind for kind, group in zip(ReadHealth, groups, strict=False) for node in group}
    orders = {tuple(order("rack-aware", ["d....k"] * 5, "d....k", health, seed=seed)) for seed in range(100)}
    assert all(in_groups(found, groups) == groups for found in orders)
    assert len(orders) == 6, "every order of three"
