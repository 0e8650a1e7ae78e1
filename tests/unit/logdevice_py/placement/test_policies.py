from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of, shard_id
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.policy import CopysetSource
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

DRAWS = 300


def placed(
    policy: str, places: Sequence[str], nodes: Mapping[int, Mapping[str, Any]] | None = None, **settings: Any
) -> tuple[ClusterConfig, ClusterPlacement]:
    config = replace(cluster(places, nodes=nodes), settings={"placement": {"policy": policy, **settings}})
    return config, ClusterPlacement(config, lambda text: pytest.fail(text))


def source(policy: str, places: Sequence[str], replicate: str, **settings: Any) -> CopysetSource:
    """All shards are in the nodeset, and stand in the epoch where they stand today."""
    config, placement = placed(policy, places, **settings)
    domains = FailureDomains.by_file(config.storage_shards(), attributes(replicate).replication, config.location)
    return placement.copysets(domains, config.nodes[NodeId(0)].location, random.Random(5))


def regions(places: Sequence[str], copyset: tuple[ShardId, ...] | None) -> Counter[str]:
    assert copyset is not None
    return Counter(places[node_of(shard)].partition(".")[0] for shard in copyset)


def racks(places: Sequence[str], copyset: tuple[ShardId, ...] | None) -> Counter[str]:
    assert copyset is not None
    return Counter(places[node_of(shard)] for shard in copyset)


RACKS = ["a", "a", "a", "a", "b", "b", "c"]


class TestRackAware:
    def test_copies_lie_in_two_racks_without_being_told(self) -> None:
        chooser = source("rack-aware", RACKS, "node:3")
        assert all(len(racks(RACKS, chooser.pick(lambda _: True))) >= 2 for _ in range(DRAWS))

    def test_without_the_policy_they_do_not(self) -> None:
        chooser = source("weighted", RACKS, "node:3")
        assert any(len(racks(RACKS, chooser.pick(lambda _: True))) == 1 for _ in range(DRAWS))

    def test_three_racks_when_three_are_wished_for(self) -> None:
        chooser = source("rack-aware", RACKS, "node:3", min_racks=3)
        assert all(len(racks(RACKS, chooser.pick(lambda _: True))) == 3 for _ in range(DRAWS))

    def test_where_fewer_racks_are_available_than_are_wished_for_copies_lie_in_all_of_them(self) -> None:
        chooser = source("rack-aware", RACKS, "node:3", min_racks=3)
        kept = (shard_id(NodeId(0)), shard_id(NodeId(1)))
        for _ in range(DRAWS):
            assert set(racks(RACKS, chooser.pick(lambda shard: shard >> 8 < 6))) == {"a", "b"}
            assert racks(RACKS, chooser.replace(kept, lambda shard: shard >> 8 < 6)) == {"a": 2, "b": 1}

    def test_so_do_small_nodesets(self) -> None:
        places = [rack for rack in "ab" for _ in range(8)]
        _, placement = placed("rack-aware", places, min_racks=3)
        for log in range(1, 30):
            assert set(racks(places, placement.select_nodeset(LogId(log), attributes("node:3", nodeset_size=5)))) == {
                "a",
                "b",
            }

    def test_where_one_rack_alone_is_available_it_takes_all(self) -> None:
        chooser = source("rack-aware", RACKS, "node:3")
        assert racks(RACKS, chooser.pick(lambda shard: shard >> 8 < 4)) == {"a": 3}
        kept = [shard_id(NodeId(0)), shard_id(NodeId(1))]
        assert chooser.replace(kept, lambda shard: shard >> 8 < 4) is not None

    def test_what_the_property_asks_for_it_does_not_take_all(self) -> None:
        assert source("rack-aware", RACKS, "rack:2,node:3").pick(lambda shard: shard >> 8 < 4) is None

    def test_a_lost_copy_is_replaced_in_another_rack(self) -> None:
        chooser = source("rack-aware", RACKS, "node:3")
        kept = (shard_id(NodeId(0)), shard_id(NodeId(1)))
        for _ in range(50):
            assert len(racks(RACKS, chooser.replace(kept, lambda _: True))) == 2
        assert chooser.replace((*kept, shard_id(NodeId(2))), lambda _: True) == (*kept, shard_id(NodeId(2)))

    def test_small_nodesets_reach_as_many_racks_as_the_copies_and_hold_what_one_may_have_to_take(self) -> None:
        places = [rack for rack in "abcd" for _ in range(8)]
        _, placement = placed("rack-aware", places)
        for log in range(1, 30):
            nodeset = placement.select_nodeset(LogId(log), attributes("node:3", nodeset_size=8))
            assert racks(places, nodeset) == dict.fromkeys("abcd", 2)

    def test_a_cluster_without_racks_is_one_rack(self) -> None:
        _, placement = placed("rack-aware", [""] * 5)
        assert len(placement.select_nodeset(LogId(1), attributes("node:3"))) == 5
        assert source("rack-aware", [""] * 5, "node:3").pick(lambda _: True) is not None

    def test_the_epochs_labels_count_where_nodes_have_moved_since(self) -> None:
        config, placement = placed("rack-aware", ["x", "y", "z", "z"], min_racks=3)
        was = dict(zip(config.storage_shards(), map(Location.parse, ["a", "a", "a", "b"]), strict=True))
        domains = FailureDomains.by_file(config.storage_shards(), attributes("rack:2,node:3").replication, was.get)
        chooser = placement.copysets(domains, None, random.Random(1))
        for _ in range(DRAWS):
            copyset = chooser.pick(lambda _: True)
            assert copyset is not None
            assert domains.can_replicate(copyset)
        kept = (shard_id(NodeId(0)), shard_id(NodeId(1)))
        for _ in range(50):
            assert chooser.replace(kept, lambda _: True) == (*kept, shard_id(NodeId(3)))


THREE = [f"{region}.d.c.r.{rack}" for region in ("us", "eu", "ap") for rack in "pqr" for _ in range(3)]


class TestRegionAware:
    def test_fifteen_copies_over_three_regions_are_five_in_each_and_spread_over_its_racks(self) -> None:
        chooser = source("region-aware", THREE, "region:2,node:15")
        for _ in range(DRAWS):
            copyset = chooser.pick(lambda _: True)
            assert regions(THREE, copyset) == {"us": 5, "eu": 5, "ap": 5}
            assert set(racks(THREE, copyset).values()) == {1, 2}

    def test_with_a_region_lost_two_hold_seven_and_eight(self) -> None:
        chooser = source("region-aware", THREE, "region:2,node:15")
        shares: Counter[str] = Counter()
        for _ in range(DRAWS):
            found = regions(THREE, chooser.pick(lambda shard: not THREE[shard >> 8].startswith("eu")))
            assert sorted(found.values()) == [7, 8]
            shares += found
        assert shares["us"] == pytest.approx(shares["ap"], rel=0.02)

    def test_lost_copies_are_replaced_where_the_fewest_are_left(self) -> None:
        chooser = source("region-aware", THREE, "region:2,node:15")
        for _ in range(50):
            copyset = chooser.pick(lambda _: True)
            assert copyset is not None
            kept = [shard for shard in copyset if not THREE[shard >> 8].startswith("eu")] + list(copyset[:2])
            assert regions(THREE, chooser.replace(kept, lambda _: True)) == {"us": 5, "eu": 5, "ap": 5}

    def test_shares_are_equal_although_regions_are_not(self) -> None:
        places = ["us.d.c.r.a"] * 9 + ["eu.d.c.r.a"] * 3 + ["ap.d.c.r.a"] * 3
        chooser = source("region-aware", places, "node:3")
        assert all(set(regions(places, chooser.pick(lambda _: True)).values()) == {1} for _ in range(DRAWS))

    def test_where_a_region_has_too_few_shards_the_others_take_the_rest(self) -> None:
        places = ["us.d.c.r.a"] * 6 + ["eu.d.c.r.a"] * 6 + ["ap.d.c.r.a"]
        chooser = source("region-aware", places, "region:2,node:9")
        for _ in range(DRAWS):
            assert regions(places, chooser.pick(lambda _: True)) == {"us": 4, "eu": 4, "ap": 1}

    def test_the_first_copy_is_in_each_region_equally_often(self) -> None:
        chooser = source("region-aware", THREE, "region:3,node:3")
        first = Counter(THREE[(chooser.pick(lambda _: True) or ())[0] >> 8][:2] for _ in range(3000))
        assert all(count == pytest.approx(1000, rel=0.1) for count in first.values())

    def test_within_the_only_region_that_is_left_copies_lie_in_two_racks(self) -> None:
        chooser = source("region-aware", THREE, "node:3")
        for _ in range(DRAWS):
            copyset = chooser.pick(lambda shard: THREE[shard >> 8].startswith("us"))
            assert len(racks(THREE, copyset)) >= 2

    def test_nodesets_have_as_many_shards_of_each_region_as_it_may_have_to_take(self) -> None:
        _, placement = placed("region-aware", THREE)
        for log in range(1, 30):
            nodeset = placement.select_nodeset(LogId(log), attributes("region:2,node:3", nodeset_size=6))
            assert regions(THREE, nodeset) == {"us": 2, "eu": 2, "ap": 2}
            assert set(racks(THREE, nodeset).values()) == {1}
        nodeset = placement.select_nodeset(LogId(1), attributes("node:6", nodeset_size=6))
        assert set(regions(THREE, nodeset).values()) == {3, 4}

    def test_a_cluster_in_one_region_is_placed_as_by_rack_aware(self) -> None:
        config, placement = placed("region-aware", RACKS)
        assert placement.select_nodeset(LogId(1), attributes("node:3")) == config.storage_shards()
        chooser = source("region-aware", RACKS, "node:3")
        assert all(len(racks(RACKS, chooser.pick(lambda _: True))) >= 2 for _ in range(DRAWS))
