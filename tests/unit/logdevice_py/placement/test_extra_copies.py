"""Extra copies: which shards get them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.placement.extra_copies import ExtraCopies
from logdevice_py.placement.failure_domains import FailureDomains

SHARDS = [shard_id(NodeId(node)) for node in range(9)]


def in_region(shard: ShardId) -> Location:
    """Three regions of three nodes."""
    return Location.parse(f"r{node_of(shard) // 3}....")


def chooser(count: int, replicate: str = "region:2,node:3", weights: dict[ShardId, float] | None = None) -> ExtraCopies:
    domains = FailureDomains.by_file(SHARDS, ReplicationProperty.parse(replicate), in_region)
    known = weights or {}
    return ExtraCopies(count, domains.by_shard, lambda shard: known.get(shard, 1.0), random.Random(5))


@pytest.mark.parametrize("count", [1, 2, 5, 6, 9])
def test_so_many_are_added_as_there_are(count: int) -> None:
    copyset = (SHARDS[4], SHARDS[0], SHARDS[1])
    extended = chooser(count).add(copyset, lambda shard: True)
    assert extended[:3] == copyset, "who sends to readers stays"
    assert len(extended) == len(set(extended)) == 3 + min(count, 6)
    assert set(extended) <= set(SHARDS)


def test_only_available_ones_are() -> None:
    available = {SHARDS[0], SHARDS[1], SHARDS[4], SHARDS[8]}
    assert chooser(3).add((SHARDS[0], SHARDS[1], SHARDS[4]), available.__contains__)[3:] == (SHARDS[8],)
    assert chooser(3).add((SHARDS[0], SHARDS[1], SHARDS[4]), lambda shard: False) == (SHARDS[0], SHARDS[1], SHARDS[4])


def test_the_domains_that_hold_the_fewest_come_first() -> None:
    extras = chooser(4)
    for _ in range(50):
        third, fourth, fifth, sixth = (
            node_of(shard) // 3 for shard in extras.add((SHARDS[0], SHARDS[1], SHARDS[4]), lambda shard: True)[3:]
        )
        assert third == 2
        assert {fourth, fifth} == {1, 2}
        assert sixth in (0, 1, 2)


def test_among_equals_they_follow_capacity() -> None:
    weights = {SHARDS[2]: 3.0, SHARDS[3]: 1.0}
    available = {SHARDS[2], SHARDS[3]}
    extras = chooser(1, "node:2", weights)
    counts = Counter(extras.add((SHARDS[0], SHARDS[1]), available.__contains__)[2] for _ in range(2000))
    assert 2.5 < counts[SHARDS[2]] / counts[SHARDS[3]] < 3.6


def test_shards_without_capacity_get_them_when_there_are_no_others() -> None:
    extras = chooser(1, "node:2", {SHARDS[8]: 0.0})
    assert extras.add((SHARDS[0], SHARDS[1]), {SHARDS[8]}.__contains__)[2] == SHARDS[8]
