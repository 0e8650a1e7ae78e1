"""What BookKeeper's tests of its region-aware policy check, in our terms: docs/bookkeeper-placement.md says which of them each test retells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from logdevice_py.config.validate import validate_cluster
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.resolvers import RememberedLocations, StableLocations
from tests.unit.logdevice_py.placement.bookkeeper_cases import (
    DRAWS,
    Chooser,
    capacities,
    chooser,
    chooser_of,
    each_of,
    numbers,
    only,
    regions_of,
    shards,
    spread,
    up,
)
from tests.unit.logdevice_py.placement.clusters import attributes, cluster
from tests.unit.logdevice_py.placement.test_policies import placed

REGION_AWARE = "region-aware"


def at(*places: str) -> list[str]:
    """Locations of the form region/rack."""
    return [place.replace("/", "....") for place in places]


def three_each(count: int) -> list[str]:
    """So many regions with three racks of one node each."""
    return at(*(f"r{region}/{region}{rack}" for region in range(1, count + 1) for rack in "abc"))


FOUR = at("d/r1", "r2/r2", "r3/r3", "r4/r4")
THREE = three_each(3)
FOUR_FOUR_TWO = at("r2/1", "r1/2", "r2/3", "r3/4", "r1/11", "r1/12", "r2/13", "r3/14", "r2/23", "r1/24")


class TestRegionReplacing:
    def test_a_copy_is_replaced_in_the_region_that_lacks_one(self) -> None:
        choose = chooser(REGION_AWARE, at("d/r0", "x/r1", "x/r2", "d/r3"), "node:2")
        assert set(choose.replaced([0], up(2, 3))) == only(2)

    def test_a_copy_is_replaced_in_another_region_and_never_where_it_is_forbidden(self) -> None:
        assert set(chooser(REGION_AWARE, FOUR, "node:1").replaced([], up(2, 3))) == each_of(2, 3)

    def test_nothing_replaces_a_copy_when_all_other_regions_are_left_out(self) -> None:
        assert set(chooser(REGION_AWARE, FOUR, "node:1").replaced([], up())) == {None}

    def test_a_copy_that_is_lost_is_replaced_by_its_neighbour_although_that_shares_its_rack(self) -> None:
        choose = chooser(REGION_AWARE, at("r1/a", "r1/a", "r2/b", "r2/b", "r3/c", "r3/c"), "region:2,node:3")
        assert set(choose.replaced([2, 5], up(1, 2, 3, 4, 5))) == only(1)

    def test_what_is_left_of_a_region_replaces_its_copy_and_another_region_where_nothing_is(self) -> None:
        choose = chooser(REGION_AWARE, THREE, "region:3,node:6")
        kept = [0, 1, 3, 6, 7]
        assert set(choose.replaced(kept, up(*kept, 2, 5, 8))) == only(5)
        assert set(choose.replaced(kept, up(*kept, 2, 8))) == each_of(2, 8)

    def test_where_each_region_must_have_a_copy_another_one_will_not_do(self) -> None:
        choose = chooser(REGION_AWARE, THREE, "region:3,node:3")
        assert set(choose.replaced([0, 6], up(1, 2, 4, 5, 7, 8))) == each_of(4, 5)
        assert set(choose.replaced([0, 6], up(1, 2, 7, 8))) == {None}

    @pytest.mark.parametrize("replicate", ["node:6", "region:2,node:6"])
    def test_copies_of_a_disabled_region_are_replaced_in_the_others(self, replicate: str) -> None:
        config, placement = placed(REGION_AWARE, THREE, disabled_regions="r2")
        choose = chooser_of(config, placement, replicate, shards(range(9)))
        found = choose.replaced([0, 1, 6, 7], config.is_writable)
        assert set(found) == only(2, 8)

    @pytest.mark.parametrize("replicate", ["node:6", "region:1,node:6"])
    def test_where_no_region_is_promised_any_will_do(self, replicate: str) -> None:
        choose = chooser(REGION_AWARE, THREE, replicate)
        assert set(choose.replaced([0, 1, 3, 6, 7], up(2, 8))) == each_of(2, 8)
        one_region = chooser(REGION_AWARE, at(*(f"r1/{rack}" for rack in range(9))), replicate)
        assert len(one_region.drawn()) > 1
        assert set(one_region.replaced([0, 1, 2, 3, 4])) == each_of(5, 6, 7, 8)


class TestRegionCopysets:
    @pytest.mark.parametrize(
        ("places", "replicate", "counts"),
        [
            (FOUR, "node:5", "the 4 writable shards that can be chosen .*5 nodes are needed, they are in 4"),
            (
                at(*["r1/a"] * 4),
                "region:2,node:3",
                "2 regions are needed, they are in 1; 3 nodes are needed, they are in 4",
            ),
            (FOUR, "region:5", "5 regions are needed, they are in 4"),
        ],
    )
    def test_too_few_shards_or_regions_are_an_error_that_counts(
        self, places: list[str], replicate: str, counts: str
    ) -> None:
        config, placement = placed(REGION_AWARE, places)
        with pytest.raises(LogDeviceError, match=counts):
            placement.select_nodeset(LogId(1), attributes(replicate))
        assert chooser_of(config, placement, replicate).pick() is None

    def test_a_region_without_shards_gets_no_share(self) -> None:
        settings = {"placement": {"policy": REGION_AWARE}}
        before = replace(cluster(FOUR), settings=settings)
        placement = ClusterPlacement(before, pytest.fail)
        assert {len(nodes) for nodes in chooser_of(before, placement, "node:3").drawn()} == {3}
        after = replace(cluster(dict(list(enumerate(FOUR))[1:])), settings=settings)
        placement.set_config(after)
        assert set(chooser_of(after, placement, "node:3", at=1).drawn()) == only(1, 2, 3)

    @pytest.mark.parametrize("copies", [2, 3, 4])
    def test_one_region_takes_all_copies(self, copies: int) -> None:
        drawn = chooser(REGION_AWARE, at(*["r1/a"] * 4), f"node:{copies}").drawn()
        assert {len(nodes) for nodes in drawn} == {copies}

    def test_a_region_of_one_shard_beside_a_larger_one_has_a_copy_of_everything(self) -> None:
        drawn = chooser(REGION_AWARE, at("d/r1", "r1/r2", "r1/r2", "r1/r2"), "node:2").drawn()
        assert set(drawn) == {frozenset({0, node}) for node in (1, 2, 3)}

    def test_copies_within_a_region_share_no_rack_where_as_many_racks_are_wished_for_and_available(self) -> None:
        places = at("r1/a", "r1/a", "r1/b", "r1/c", "r2/a")
        choose = chooser(REGION_AWARE, places, "node:4", min_racks=4)
        assert set(choose.drawn()) == {frozenset({0, 2, 3, 4}), frozenset({1, 2, 3, 4})}
        assert set(choose.drawn(up(0, 1, 2, 4))) == only(0, 1, 2, 4)
        two = chooser(REGION_AWARE, places, "node:4").drawn()
        assert any({0, 1} < nodes for nodes in two), "two racks are what is wished for unless told otherwise"

    @pytest.mark.parametrize("copies", [2, 3, 4])
    def test_where_there_are_regions_enough_no_two_copies_share_one(self, copies: int) -> None:
        places = at("d/1", "r1/2", "r2/3", "r3/4", "d/5", "r1/6", "r2/7", "r3/8")
        drawn = chooser(REGION_AWARE, places, f"node:{copies}").drawn()
        assert all(len(regions_of(places, nodes)) == copies for nodes in drawn)

    def test_a_region_with_most_of_its_shards_in_one_rack_is_no_hindrance(self) -> None:
        places = at(*["r1/1"] * 6, "r1/2", "r1/3", "r2/1", "r3/1")
        assert set(chooser(REGION_AWARE, places, "rack:3,node:10").drawn()) == only(*range(10))

    @pytest.mark.parametrize(("copies", "others"), [(6, {2}), (7, {2, 3}), (8, {3}), (9, {3, 4})])
    def test_copies_are_spread_equally_as_far_as_each_region_has_shards(self, copies: int, others: set[int]) -> None:
        drawn = chooser(REGION_AWARE, FOUR_FOUR_TWO, f"region:2,node:{copies}").drawn()
        found = [regions_of(FOUR_FOUR_TWO, nodes) for nodes in drawn]
        assert {each["r3"] for each in found} == {2}
        assert {each[region] for each in found for region in ("r1", "r2")} == others

    def test_a_disabled_region_gets_no_copies_until_it_is_enabled_again(self) -> None:
        config = cluster(FOUR_FOUR_TWO, replicate="region:2,node:6")
        placement = ClusterPlacement(config, pytest.fail)

        def switch(disabled: str) -> Chooser:
            after = replace(config, settings={"placement": {"policy": REGION_AWARE, "disabled_regions": disabled}})
            validate_cluster(after)
            placement.set_config(after)
            nodeset = placement.select_nodeset(LogId(1), attributes("region:2,node:6"))
            return chooser_of(after, placement, "region:2,node:6", nodeset)

        all_of_two = only(0, 2, 3, 6, 7, 8)
        assert set(switch("r1").drawn()) == all_of_two
        with pytest.raises(LogDeviceError, match="needs storage in 2 different regions, there is storage in 1"):
            switch("r1,r2")
        assert set(switch("r1").drawn()) == all_of_two
        assert all(len(regions_of(FOUR_FOUR_TWO, nodes)) == 3 for nodes in switch("").drawn())

    def test_five_regions_have_two_copies_each_and_one_that_lacks_a_shard_takes_the_others(self) -> None:
        places = three_each(5)
        choose = chooser(REGION_AWARE, places, "region:5,node:10")
        assert all(set(regions_of(places, nodes).values()) == {2} for nodes in choose.drawn())
        drawn = choose.drawn(lambda shard: shard >> 8 != 9)
        assert all({10, 11} < nodes and len(regions_of(places, nodes)) == 5 for nodes in drawn)

    def test_where_all_five_regions_are_promised_none_can_be_missing(self) -> None:
        places = at(*(f"r{region}/{region}{rack}" for region in range(5) for rack in "ab"))
        assert chooser(REGION_AWARE, places, "region:5,node:10").pick(up(*range(8))) is None
        assert chooser(REGION_AWARE, places, "region:5").pick(up(*range(8))) is None
        assert chooser(REGION_AWARE, places, "region:4,node:8").pick(up(*range(8))) == set(range(8))

    def test_with_more_regions_than_copies_each_set_of_regions_is_chosen(self) -> None:
        places = at(*(f"r{region}/{region}" for region in range(5)))
        drawn = chooser(REGION_AWARE, places, "node:3").drawn(draws=400)
        assert set(drawn) == {frozenset(each) for each in combinations(range(5), 3)}

    def test_capacity_counts_within_a_region_and_not_between_them(self) -> None:
        places = at("r1/1", "r1/1", "r2/2", "r2/2", "r2/2")
        for sizes in ((8, 4, 2, 3, 4), (4, 8, 4, 3, 2)):
            drawn = chooser(REGION_AWARE, places, "node:2", nodes=capacities(*sizes)).drawn(draws=2000)
            assert all(regions_of(places, nodes) == {"r1": 1, "r2": 1} for nodes in drawn)
            counts: Counter[int] = Counter()
            for nodes, count in drawn.items():
                counts.update(dict.fromkeys(nodes, count))
            assert [counts[node] / 2000 for node in range(5)] == pytest.approx(
                [sizes[0] / 12, sizes[1] / 12, sizes[2] / 9, sizes[3] / 9, sizes[4] / 9], abs=0.05
            )

    def test_uneven_capacity_keeps_no_region_from_its_copy(self) -> None:
        places = at(*(f"r{region}/{region}" for region in range(5)))
        drawn = chooser(REGION_AWARE, places, "node:3", nodes=capacities(1, 50, 50, 50, 50)).drawn(draws=400)
        assert sum(count for nodes, count in drawn.items() if 0 in nodes) == pytest.approx(240, rel=0.15)

    def test_one_copy_stays_in_the_region_of_the_sequencer_by_the_policies_that_do_not_spread_equally(self) -> None:
        places = at("r1/1", "r2/2", "r2/2", "r2/2", "r3/3", "r4/4", "r5/5", "r1/2", "r1/2")
        near = chooser("rack-aware", places, "region:3,node:3", at=7)
        assert all(regions_of(places, nodes)["r1"] == 1 for nodes in near.drawn())
        without = near.drawn(up(*range(7)))
        assert all(0 in nodes for nodes in without)
        equally = chooser(REGION_AWARE, places, "region:3,node:3", at=7).drawn(draws=400)
        share = sum(count for nodes, count in equally.items() if regions_of(places, nodes)["r1"]) / 400
        assert share == pytest.approx(3 / 5, abs=0.1)

    def test_fifteen_copies_are_five_in_each_of_three_regions_and_one_region_promises_but_itself(self) -> None:
        places = at(*(f"r{region}/{region}{rack}" for region in range(3) for rack in range(5)))
        choose = chooser(REGION_AWARE, places, "region:2,node:15")
        assert set(choose.drawn()) == only(*range(15))
        larger = [*places, *at("r0/x", "r0/y", "r1/x", "r2/x")]
        drawn = chooser(REGION_AWARE, larger, "region:2,node:15").drawn()
        assert all(set(regions_of(larger, nodes).values()) == {5} for nodes in drawn)
        assert choose.pick(up(*range(5))) is None
        assert chooser(REGION_AWARE, places, "node:5").pick(up(*range(5))) == set(range(5))


class TestRegionChanges:
    @pytest.mark.parametrize(
        ("moved", "regions"),
        [("r1/b", {"r1": 3, "r2": 1}), ("r3/a", {"r1": 1, "r2": 1, "r3": 2})],
        ids=["to a region that is there", "to a new one"],
    )
    def test_nodes_that_move_count_in_their_new_region(self, moved: str, regions: dict[str, int]) -> None:
        settings = {"placement": {"policy": REGION_AWARE}}
        before = at("r1/a", "r1/a", "r2/a", "r2/a")
        placement = ClusterPlacement(replace(cluster(before), settings=settings), pytest.fail)
        after = at("r1/a", moved, "r2/a", moved)
        config = replace(cluster(after), settings=settings)
        placement.set_config(config)
        assert placement.lost == frozenset()
        nodeset = placement.select_nodeset(LogId(1), attributes(f"region:{len(regions)}"))
        assert regions_of(after, numbers(nodeset)) == regions
        drawn = chooser_of(config, placement, f"node:{len(regions)}", nodeset).drawn()
        assert all(set(regions_of(after, nodes)) == set(regions) for nodes in drawn)

    def test_a_node_whose_region_was_not_known_stands_there_once_its_resolver_tells(self) -> None:
        told: dict[str, str | None] = {"h0": None, "h1": "/r1/d", "h2": "/r2/d", "h3": "/r3/d"}

        class Growing:
            def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
                return [told[name] for name in names]

            def reload(self) -> None:
                pass

        known = RememberedLocations(Growing())
        first = known.resolve(sorted(told))
        assert [location.region for location in first] == ["", "r1", "r2", "r3"]
        stable = StableLocations(0, {NodeId(node): location for node, location in enumerate(first)})
        told["h0"] = "/r1/d"
        again = {NodeId(node): location for node, location in enumerate(known.resolve(sorted(told)))}
        assert {int(node): str(place) for node, place in stable.on_found(again, 1).items()} == {0: "r1....d"}
        places = [str(location) for location in again.values()]
        drawn = chooser(REGION_AWARE, places, "node:3").drawn(draws=DRAWS)
        assert all(spread(places, nodes) == {"r1....d": 1, "r2....d": 1, "r3....d": 1} for nodes in drawn)
