"""What BookKeeper's tests of its rack-aware policy check, in our terms: docs/bookkeeper-placement.md says which of them each test retells."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.core.ids import LogId, NodeId, ShardId, shard_id
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.resolvers import RememberedLocations, ScriptResolver, load_resolver, parse_network_path
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.survival import Survival, copies_survive
from tests.unit.logdevice_py.placement.bookkeeper_cases import (
    DRAWS,
    capacities,
    chooser,
    chooser_of,
    each_of,
    numbers,
    only,
    shards,
    spread,
    up,
)
from tests.unit.logdevice_py.placement.clusters import attributes, cluster
from tests.unit.logdevice_py.placement.test_policies import placed

RACK_AWARE = "rack-aware"
FIVE_EACH = [f"r{rack}" for rack in range(3) for _ in range(5)]
SIX_RACKS = [f"r{rack}" for rack in range(6) for _ in range(5)]


class TestReplacing:
    def test_a_copy_is_replaced_in_no_rack_of_those_that_are_left(self) -> None:
        choose = chooser(RACK_AWARE, ["d", "r2", "r2", "r3"], "node:2")
        assert set(choose.replaced([1], up(0, 2))) == only(0)

    def test_a_copy_is_replaced_in_any_free_rack_and_never_where_it_is_forbidden(self) -> None:
        choose = chooser(RACK_AWARE, ["d", "r2", "r3", "r4"], "node:1")
        assert set(choose.replaced([], up(2, 3))) == each_of(2, 3)

    def test_nothing_replaces_a_copy_when_all_others_are_left_out(self) -> None:
        choose = chooser(RACK_AWARE, ["d", "r2", "r3", "r4"], "node:1")
        assert set(choose.replaced([], up())) == {None}
        assert choose.pick(up()) is None

    def test_a_copy_is_replaced_in_its_own_rack_where_the_others_are_taken_else_anywhere(self) -> None:
        places = ["d", "r2", "r2", "r3"]
        assert set(chooser(RACK_AWARE, places, "rack:3").replaced([0, 3], up(0, 2, 3))) == only(2)
        assert set(chooser(RACK_AWARE, places, "node:1").replaced([], up(0, 2, 3))) == each_of(0, 2, 3)

    @pytest.mark.parametrize(
        ("spares", "found"),
        [([15], {None}), ([15, 16], only(16)), ([15, 17], only(17))],
        ids=["in the rack of another copy", "in a new rack", "in the rack of the lost copy"],
    )
    def test_where_racks_are_promised_a_spare_in_the_rack_of_another_copy_will_not_do(
        self, spares: list[int], found: set[frozenset[int] | None]
    ) -> None:
        choose = chooser(RACK_AWARE, [*FIVE_EACH, "r2", "r100", "r1"], "rack:3,node:3")
        assert set(choose.replaced([0, 10], up(0, 10, *spares))) == found

    def test_a_node_that_has_left_keeps_its_rack_in_the_epochs_that_have_it(self) -> None:
        places = dict(enumerate(["d", "r1", "r1", "d"]))
        before = cluster(places)
        after = replace(
            cluster({node: place for node, place in places.items() if node}),
            settings={"placement": {"policy": RACK_AWARE}},
        )
        domains = FailureDomains.by_file(before.storage_shards(), attributes("rack:2").replication, before.location)
        source = ClusterPlacement(after, pytest.fail).copysets(domains, None, random.Random(1))
        found = {source.replace(shards([0]), up(1, 2, 3)) for _ in range(DRAWS)}
        assert found == {shards([0, 1]), shards([0, 2])}, "3 stands where 0 did"
        assert {source.replace(shards([1]), up(2, 3)) for _ in range(DRAWS)} == {shards([1, 3])}

    @pytest.mark.parametrize(
        ("replicate", "kept", "added"),
        [
            ("rack:2", [0, 3], only()),
            ("rack:2", [0, 1], each_of(3, 4, 5, 6, 7, 8)),
            ("rack:2,node:3", [0, 1, 2], each_of(3, 4, 5, 6, 7, 8)),
            ("rack:3", [3, 0, 1], each_of(6, 7, 8)),
        ],
    )
    def test_a_copyset_that_lies_too_close_gets_as_few_copies_as_spread_it_and_loses_none(
        self, replicate: str, kept: list[int], added: set[frozenset[int] | None]
    ) -> None:
        choose = chooser("weighted", [rack for rack in "abc" for _ in range(3)], replicate)
        assert set(choose.replaced(kept, draws=200)) == added

    def test_a_copyset_that_lies_too_close_stays_as_it_is_when_no_other_rack_is_available(self) -> None:
        choose = chooser(RACK_AWARE, ["a", "a", "a", "b", "b", "b"], "rack:2")
        assert set(choose.replaced([0, 1], up(0, 1, 2))) == {None}

    def test_copies_on_shards_that_are_not_known_count_for_nothing(self) -> None:
        choose = chooser(RACK_AWARE, ["a", "a", "a", "b", "b", "b"], "rack:2")
        assert set(choose.replaced([10, 0])) == each_of(3, 4, 5)
        assert all(nodes and len(spread("aaabbb", nodes)) == 2 for nodes in choose.replaced([10, 11]))


class TestNewCopysets:
    def test_one_rack_takes_all_copies_and_they_survive_no_loss_of_it(self) -> None:
        choose = chooser(RACK_AWARE, ["d"] * 4, "node:3")
        drawn = choose.drawn()
        assert {len(nodes) for nodes in drawn} == {3}
        copysets = [shards(nodes) for nodes in drawn]
        assert copies_survive(copysets, lambda shard: "d") == Survival(0, ("d",))
        by_node = copies_survive(copysets, lambda shard: f"N{shard >> 8}")
        assert by_node is not None
        assert by_node.any_of == 2

    @pytest.mark.parametrize(
        ("places", "replicate", "counts"),
        [
            (["d"] * 4, "rack:2,node:3", "2 racks are needed, they are in 1; 3 nodes are needed, they are in 4"),
            (["r1"] * 9 + ["r2"], "rack:3,node:10", "3 racks are needed, they are in 2"),
            (FIVE_EACH, "rack:4", "4 racks are needed, they are in 3"),
        ],
    )
    def test_where_racks_are_promised_too_few_of_them_are_an_error_that_counts(
        self, places: list[str], replicate: str, counts: str
    ) -> None:
        config, placement = placed(RACK_AWARE, places)
        with pytest.raises(LogDeviceError, match=counts) as caught:
            placement.select_nodeset(LogId(1), attributes(replicate))
        assert caught.value.status is Status.INVALID_CONFIG
        assert chooser_of(config, placement, replicate).pick() is None

    def test_shards_without_a_location_count_as_one_rack(self) -> None:
        places = [*FIVE_EACH, *[""] * 5]
        drawn = chooser(RACK_AWARE, places, "rack:4").drawn()
        assert all(spread(places, nodes) == {"r0": 1, "r1": 1, "r2": 1, "": 1} for nodes in drawn)

    def test_what_is_left_out_is_never_chosen(self) -> None:
        choose = chooser(RACK_AWARE, ["r1", "r2", "r1"], "node:2")
        assert choose.pick(up(0)) is None
        assert set(choose.replaced([0], up(0))) == {None}

    @pytest.mark.parametrize(
        ("left", "found"),
        [
            ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
            ([5, 6, 7, 8, 9, 10], [5, 6, 7, 8, 9, 10]),
            ([10, 11, 12, 13, 14], [10, 11, 12, 13, 14]),
            ([], []),
        ],
        ids=["one rack", "not that rack", "neither that one nor another", "none"],
    )
    def test_a_copy_lies_where_racks_and_shards_are_left_to_choose_from(
        self, left: list[int], found: list[int]
    ) -> None:
        choose = chooser(RACK_AWARE, FIVE_EACH, "node:1")
        expected = {frozenset({node}) for node in found} or {None}
        assert {choose.pick(up(*left)) for _ in range(200)} == expected

    @pytest.mark.parametrize("size", [3, 4, 5, 9, 16, 27, 39])
    def test_copies_lie_in_three_racks_whatever_the_size_of_the_nodeset(self, size: int) -> None:
        places = [f"r{rack}" for rack in range(5) for _ in range(20)]
        config, placement = placed(RACK_AWARE, places)
        nodeset = placement.select_nodeset(LogId(size), attributes("rack:3,node:3", nodeset_size=size))
        assert len(nodeset) == max(size, 5)
        drawn = chooser_of(config, placement, "rack:3,node:3", nodeset).drawn()
        assert all(len(spread(places, nodes)) == 3 for nodes in drawn)

    @pytest.mark.parametrize(("racks", "size", "copies"), [(4, 12, 6), (6, 6, 6), (6, 10, 10), (5, 24, 12)])
    def test_copies_lie_in_as_many_racks_as_are_wished_for(self, racks: int, size: int, copies: int) -> None:
        config, placement = placed(RACK_AWARE, SIX_RACKS, min_racks=racks)
        wanted = attributes(f"node:{copies}", nodeset_size=size)
        nodeset = placement.select_nodeset(LogId(1), wanted)
        drawn = chooser_of(config, placement, f"node:{copies}", nodeset).drawn()
        assert all(len(spread(SIX_RACKS, nodes)) >= racks for nodes in drawn)
        assert {len(nodes) for nodes in drawn} == {copies}

    @pytest.mark.parametrize("copies", [2, 3, 4])
    def test_where_there_are_racks_enough_each_copyset_lies_in_two(self, copies: int) -> None:
        places = ["d", "r2", "r3", "r4"] * 2
        drawn = chooser(RACK_AWARE, places, f"node:{copies}").drawn()
        assert all(len(spread(places, nodes)) >= 2 for nodes in drawn)

    def test_a_rack_of_one_shard_beside_another_has_a_copy_of_everything(self) -> None:
        drawn = chooser(RACK_AWARE, ["d", "r2", "r2", "r2"], "node:2").drawn()
        assert set(drawn) == {frozenset({0, node}) for node in (1, 2, 3)}

    def test_where_all_shards_have_copies_and_lie_in_racks_enough_they_are_always_found(self) -> None:
        drawn = chooser(RACK_AWARE, ["r1"] * 8 + ["r2", "r3"], "rack:3,node:10").drawn()
        assert set(drawn) == only(*range(10))

    def test_no_two_copies_share_a_rack_where_as_many_racks_as_copies_are_wished_for_and_available(self) -> None:
        places = ["r1", "r1", "r2", "r3"]
        choose = chooser(RACK_AWARE, places, "node:3", min_racks=3)
        assert set(choose.drawn()) == {frozenset({0, 2, 3}), frozenset({1, 2, 3})}
        assert set(choose.drawn(up(0, 1, 2))) == only(0, 1, 2)
        two = chooser(RACK_AWARE, places, "node:3").drawn()
        assert any({0, 1} < nodes for nodes in two), "two racks are what is wished for unless told otherwise"

    def test_one_copy_lies_in_the_rack_of_the_sequencer(self) -> None:
        places = ["r1", "r2", "r2", "r2", "r3", "r4", "r5"]
        choose = chooser(RACK_AWARE, places, "node:3", min_racks=3)
        for available in (up(*range(7)), up(0, 1, 2, 3, 5, 6)):
            drawn = choose.drawn(available)
            assert all(0 in nodes and len(spread(places, nodes)) == 3 for nodes in drawn)

    @pytest.mark.parametrize(("racks", "copies"), [(2, 3), (3, 3), (5, 5)])
    def test_what_acknowledges_an_entry_lies_in_the_racks_that_are_promised(self, racks: int, copies: int) -> None:
        choose = chooser(RACK_AWARE, [*SIX_RACKS, *["d"] * 7], f"rack:{racks},node:{copies}")
        assert all(choose.can_replicate(nodes) for nodes in choose.drawn())
        assert not choose.can_replicate(range(30, 37))

    @pytest.mark.parametrize(
        ("nodes", "does"), [([], False), ([0, 1], False), ([0, 1, 2], True), ([2, 1, 0], True), ([3, 4, 5], False)]
    )
    def test_copies_satisfy_the_property_by_their_number_and_their_racks_in_any_order(
        self, nodes: list[int], does: bool
    ) -> None:
        choose = chooser(RACK_AWARE, ["d", "r2", "r2", "r3", "r3", "r3"], "rack:2,node:3")
        assert choose.can_replicate(nodes) is does

    def test_a_shard_that_is_silent_stays_in_the_nodeset_and_is_not_chosen_even_when_it_is_needed(self) -> None:
        config, placement = placed(RACK_AWARE, ["d"] * 4)
        assert placement.select_nodeset(LogId(1), attributes("node:3")) == config.storage_shards()
        assert set(chooser_of(config, placement, "node:3").drawn(up(0, 1, 2))) == only(0, 1, 2)
        assert chooser_of(config, placement, "node:4").pick(up(0, 1, 2)) is None


class TestChanges:
    def test_a_node_that_leaves_is_told_of_and_in_no_nodeset(self) -> None:
        places = dict(enumerate(["d", "r2", "r2", "r3"]))
        settings = {"placement": {"policy": RACK_AWARE}}
        placement = ClusterPlacement(replace(cluster(places), settings=settings), pytest.fail)
        del places[0]
        placement.set_config(replace(cluster(places), settings=settings))
        assert placement.lost == {shard_id(NodeId(0))}
        assert numbers(placement.select_nodeset(LogId(1), attributes("node:3"))) == [1, 2, 3]

    def test_a_rack_that_changes_counts_for_new_epochs_at_once(self) -> None:
        settings = {"placement": {"policy": RACK_AWARE, "min_racks": 3}}
        before = replace(cluster(["r1", "r2", "r2", "r2"]), settings=settings)
        after = replace(cluster(["r1", "r3", "r2", "r2"]), settings=settings)
        placement = ClusterPlacement(before, pytest.fail)
        assert set(chooser_of(before, placement, "node:2").drawn()) == {frozenset({0, node}) for node in (1, 2, 3)}
        placement.set_config(after)
        drawn = chooser_of(after, placement, "node:3").drawn()
        assert set(drawn) == {frozenset({0, 1, 2}), frozenset({0, 1, 3})}

    @pytest.mark.parametrize(
        ("after", "ratio"),
        [([1, 1, 1, 1], 1.0), ([3, 3, 1, 1], 3.0), ([1, 1, 3], 1.0), ([1, 1, 1, 3, 3], 1.0)],
        ids=["equal", "others are larger", "one dies", "one joins"],
    )
    def test_capacities_that_change_count_at_once(self, after: list[float], ratio: float) -> None:
        config, placement = placed("weighted", [""] * 4, capacities(1, 1, 3, 3))
        shares = chooser_of(config, placement, "node:1").shares()
        assert shares[2] / shares[0] == pytest.approx(3)
        config = cluster([""] * len(after), nodes=capacities(*after))
        placement.set_config(config)
        shares = chooser_of(config, placement, "node:1").shares()
        assert shares[0] / shares[min(2, len(after) - 1)] == pytest.approx(after[0] / after[2])
        assert sum(shares.values()) == pytest.approx(1)
        assert max(shares[0], shares[2]) / min(shares[0], shares[2]) == pytest.approx(max(ratio, after[2] / after[0]))


class TestCapacity:
    def test_replacements_go_by_capacity(self) -> None:
        choose = chooser(RACK_AWARE, ["d", "r2", "r2", "r2"], "node:1", nodes=capacities(1, 1, 1, 10))
        found = choose.replaced([], up(2, 3), draws=3000)
        assert found[frozenset({3})] / found[frozenset({2})] == pytest.approx(10, rel=0.25)

    def test_capacity_counts_in_full_until_a_shard_has_a_copy_of_everything(self) -> None:
        large = capacities(1, 1, 1, 10)
        shares = chooser("weighted", [""] * 4, "node:1", nodes=large).shares()
        assert shares[3] / shares[0] == pytest.approx(10)
        shares = chooser("weighted", [""] * 4, "node:2", nodes=large).shares()
        assert list(shares.values()) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])

    def test_racks_are_kept_while_capacity_is_followed(self) -> None:
        places = ["d", *["r2"] * 4, *["r3"] * 4]
        large = capacities(1, 1, 1, 1, 10, 1, 1, 1, 10)
        choose = chooser("weighted", places, "rack:2", nodes=large)
        shares = choose.shares()
        assert (shares[4] / shares[1], shares[8] / shares[5]) == (pytest.approx(10), pytest.approx(10))
        wished = chooser(RACK_AWARE, places, "node:2", nodes=large).drawn()
        assert all(len(spread(places, nodes)) == 2 for nodes in wished)

    def test_one_shard_that_is_left_takes_one_copy_and_not_three(self) -> None:
        places = ["d", "r2", "r2", "r3", "r3"]
        large = capacities(1, 1, 10, 1, 10)
        assert chooser(RACK_AWARE, places, "node:3", nodes=large).pick(up(4)) is None
        assert chooser(RACK_AWARE, places, "node:1", nodes=large).pick(up(4)) == {4}

    @pytest.mark.parametrize(
        ("weights", "shares"),
        [
            ([1, 1, 1, 1], [1 / 4] * 4),
            ([0, 0, 0, 0], [1 / 4] * 4),
            ([0, 0, 1, 2], [0, 0, 1 / 3, 2 / 3]),
            ([1, 2, 10, 7], [1 / 20, 2 / 20, 10 / 20, 7 / 20]),
            ([1, 1, 1, 97], [1 / 100, 1 / 100, 1 / 100, 97 / 100]),
        ],
        ids=["equal", "all none", "some none", "unequal", "one hot"],
    )
    def test_shares_follow_weights(self, weights: list[float], shares: list[float]) -> None:
        domains = FailureDomains.by_file(shards(range(4)), attributes("node:1").replication, lambda _: NOWHERE)
        selector = CopysetSelector(domains, weight=lambda shard: weights[shard >> 8], rng=random.Random(1))
        assert list(selector.shares().values()) == pytest.approx(shares, abs=1e-6)
        assert {selector.pick(up(0, 1)) for _ in range(DRAWS)} <= {shards([0]), shards([1])}


class TestResolvers:
    @staticmethod
    def places(last_digits: str) -> list[str]:
        """What a script says that takes the last digit of an address for the rack."""

        def script(names: Sequence[str]) -> str:
            return "\n".join(f"/{name[-1]}" for name in names)

        hosts = [f"127.0.{index}.{digit}" for index, digit in enumerate(last_digits)]
        return list(map(str, RememberedLocations(ScriptResolver(script, 3)).resolve(hosts)))

    @pytest.mark.parametrize(
        ("digits", "replicate", "kept", "available", "found"),
        [
            ("1224", "rack:3", [0, 3], up(0, 2, 3), only(2)),
            ("1234", "node:1", [], up(2, 3), each_of(2, 3)),
            ("1234", "node:1", [], up(), {None}),
            ("1111", "node:2", [0], up(1, 2, 3), each_of(1, 2, 3)),
            ("1222", "node:2", [1], up(*range(4)), only(0)),
            ("12341234", "node:2", [0], up(*range(8)), each_of(1, 2, 3, 5, 6, 7)),
        ],
    )
    def test_racks_that_a_script_names_count_like_any(
        self,
        digits: str,
        replicate: str,
        kept: list[int],
        available: Callable[[ShardId], bool],
        found: set[frozenset[int] | None],
    ) -> None:
        places = self.places(digits)
        assert places == list(digits)
        assert set(chooser(RACK_AWARE, places, replicate).replaced(kept, available, draws=200)) == found

    def test_hosts_for_which_the_script_fails_stand_at_the_default_and_are_used(self) -> None:
        def script(names: Sequence[str]) -> str:
            if any(name.endswith("99") for name in names):
                raise OSError("exit status 1")
            return "\n".join(f"/{name[-1]}" for name in names)

        known = RememberedLocations(ScriptResolver(script, 1), Location.parse("default"))
        places = [str(known.resolve([host])[0]) for host in ("h1", "h99", "h2", "h399")]
        assert places == ["1", "default", "2", "default"]
        assert set(known.failures) == {"h99", "h399"}
        assert set(chooser(RACK_AWARE, places, "node:2").replaced([1], up(0, 3))) == only(0)

    def test_hosts_at_the_default_location_are_named_until_the_resolver_knows_them(self) -> None:
        racks: dict[str, str | None] = {"a": None, "b": "/r2", "c": "/r3", "d": None}

        class RackTable:
            def resolve(self, names: Sequence[str]) -> Sequence[str | None]:
                return [racks[name] for name in names]

            def reload(self) -> None:
                pass

        known = RememberedLocations(RackTable(), Location.parse("default"))
        known.resolve(sorted(racks))
        assert set(known.failures) == {"a", "d"}
        racks["d"] = "/r4"
        assert list(map(str, known.resolve(sorted(racks)))) == ["default", "r2", "r3", "r4"]
        assert set(known.failures) == {"a"}

    def test_without_a_resolver_nodes_place_and_only_the_question_where_hosts_stand_is_refused(self) -> None:
        _, placement = placed(RACK_AWARE, ["r1", "r2", "r3"])
        assert len(placement.select_nodeset(LogId(1), attributes("rack:2"))) == 3
        with pytest.raises(LogDeviceError, match="set resolver_script or resolver_class"):
            load_resolver(PlacementSettings(policy=RACK_AWARE), lambda names: "")

    def test_a_script_that_always_fails_leaves_every_host_at_the_default_and_says_why(self) -> None:
        def script(names: Sequence[str]) -> str:
            raise OSError("no such file")

        known = load_resolver(PlacementSettings(resolver_script="/bin/none", default_location="/d"), script)
        assert list(map(str, known.resolve(["a", "b"]))) == ["d", "d"]
        assert set(known.failures.values()) == {"OSError: no such file"}

    @pytest.mark.parametrize("path", ["/", "//", "/a/"])
    def test_a_path_without_a_rack_is_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match="write /rack, /region/rack"):
            parse_network_path(path)

    def test_locations_of_several_depths_stand_side_by_side(self) -> None:
        places = list(map(str, map(parse_network_path, ["/r1", "/dp/r1", "/r1", "/dp/r1"])))
        assert places == ["r1", "dp....r1", "r1", "dp....r1"]
        drawn = chooser(RACK_AWARE, places, "rack:2").drawn()
        assert all(spread(places, nodes) == {"r1": 1, "dp....r1": 1} for nodes in drawn)
        assert len(drawn) == 4
