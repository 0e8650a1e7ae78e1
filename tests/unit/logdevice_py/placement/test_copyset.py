from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, shard_id
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains

DRAWS = 6000


def selector(
    replicate: str, places: Sequence[str], weights: Sequence[float] | None = None, local: str | None = None
) -> CopysetSelector:
    return CopysetSelector(
        FailureDomains.by_file(
            [shard_id(NodeId(node)) for node in range(len(places))],
            ReplicationProperty.parse(replicate),
            lambda shard: Location.parse(places[shard >> 8]),
        ),
        weight=lambda shard: 1.0 if weights is None else weights[shard >> 8],
        is_near=None if local is None else lambda shard: places[shard >> 8] == local,
        rng=random.Random(7),
    )


def frequencies(chooser: CopysetSelector, without: Sequence[int] = ()) -> list[float]:
    """How many copies of an entry each node gets on average."""
    counts: Counter[int] = Counter()
    for _ in range(DRAWS):
        copyset = chooser.pick(lambda shard: shard >> 8 not in without)
        assert copyset is not None
        counts.update(shard >> 8 for shard in copyset)
    return [counts[node] / DRAWS for node in range(len(chooser.nodeset))]


class TestWeights:
    def test_shards_are_chosen_in_proportion_to_their_weights(self) -> None:
        found = frequencies(selector("node:2", [""] * 5, [1, 1, 2, 3, 3]))
        assert found == pytest.approx([0.2, 0.2, 0.4, 0.6, 0.6], abs=0.03)

    def test_weights_hold_across_racks_of_different_sizes(self) -> None:
        found = frequencies(selector("rack:2,node:3", ["a", "a", "a", "b", "c", "c"], [1, 1, 2, 1, 2, 1]))
        assert found == pytest.approx([3 / 8, 3 / 8, 6 / 8, 3 / 8, 6 / 8, 3 / 8], abs=0.03)

    def test_what_a_rack_may_not_take_goes_to_the_others(self) -> None:
        found = frequencies(selector("rack:2,node:3", ["a", "a", "a", "a", "b"], [1, 1, 1, 1, 1]))
        assert found == pytest.approx([0.5, 0.5, 0.5, 0.5, 1.0], abs=0.03)

    def test_a_shard_heavier_than_one_copy_in_each_entry_is_in_every_copyset(self) -> None:
        found = frequencies(selector("node:2", [""] * 4, [30, 1, 1, 1]))
        assert found == pytest.approx([1.0, 1 / 3, 1 / 3, 1 / 3], abs=0.03)

    def test_when_a_shard_is_gone_the_others_share_by_weight(self) -> None:
        chooser = selector("rack:2,node:2", ["a", "a", "b", "b", "c", "c"])
        assert frequencies(chooser, without=[5]) == pytest.approx([0.4, 0.4, 0.4, 0.4, 0.4, 0], abs=0.03)
        assert frequencies(chooser) == pytest.approx([1 / 3] * 6, abs=0.03)

    def test_a_shard_of_no_weight_is_chosen_only_when_there_is_no_other_way(self) -> None:
        chooser = selector("node:2", [""] * 3, [1, 1, 0])
        assert frequencies(chooser)[2] < 0.001
        copyset = chooser.pick(lambda shard: shard >> 8 != 0)
        assert copyset is not None
        assert sorted(copyset) == [shard_id(NodeId(1)), shard_id(NodeId(2))]

    def test_three_scopes_hold_together(self) -> None:
        places = [f"{region}.d.c.{row}.{rack}" for region in "xyz" for row in "12" for rack in "ab"]
        found = frequencies(selector("region:2,row:3,node:4", places))
        assert found == pytest.approx([1 / 3] * 12, abs=0.05)


class TestOrder:
    def test_every_member_is_equally_often_the_first(self) -> None:
        chooser = selector("rack:2,node:3", ["a", "a", "b"])
        first: Counter[ShardId] = Counter()
        for _ in range(DRAWS):
            copyset = chooser.pick(lambda _: True)
            assert copyset is not None
            first[copyset[0]] += 1
        assert all(count == pytest.approx(DRAWS / 3, rel=0.1) for count in first.values())

    def test_many_different_copysets_are_drawn(self) -> None:
        chooser = selector("node:3", [""] * 8)
        drawn = {tuple(sorted(chooser.pick(lambda _: True) or ())) for _ in range(DRAWS)}
        assert len(drawn) == 56


class TestLocality:
    def test_the_copies_that_other_domains_need_not_hold_are_local(self) -> None:
        chooser = selector("rack:2,node:3", ["a", "a", "a", "b", "b", "b"], local="a")
        for _ in range(200):
            copyset = chooser.pick(lambda _: True)
            assert copyset is not None
            assert sorted(shard >> 8 < 3 for shard in copyset) == [False, True, True]

    def test_without_room_at_home_copies_go_elsewhere(self) -> None:
        chooser = selector("rack:2,node:3", ["a", "a", "b", "b", "c"], local="a")
        assert chooser.pick(lambda shard: shard >> 8 not in (0, 1)) is not None

    def test_a_property_of_nodes_alone_knows_no_home(self) -> None:
        found = frequencies(selector("node:2", ["a", "b", "b", "b"], local="a"))
        assert found == pytest.approx([0.5] * 4, abs=0.03)


class TestAugment:
    def test_what_satisfies_the_property_is_left_alone(self) -> None:
        chooser = selector("rack:2,node:3", ["a", "a", "b", "b"])
        existing = tuple(shard_id(NodeId(node)) for node in (3, 0, 1))
        assert chooser.replace(existing, lambda _: True) == existing

    def test_members_that_are_down_count(self) -> None:
        chooser = selector("node:2", [""] * 2)
        existing = (shard_id(NodeId(0)),)
        assert chooser.replace(existing, lambda shard: shard not in existing) == (*existing, shard_id(NodeId(1)))

    def test_a_member_outside_the_nodeset_does_not_count(self) -> None:
        chooser = selector("rack:2", ["a", "b"])
        outside = shard_id(NodeId(9))
        chosen = chooser.replace([outside], lambda _: True)
        assert chosen is not None
        assert set(chosen) == {outside, *chooser.nodeset}
        assert not chooser.satisfied_by([outside, shard_id(NodeId(0))])

    def test_none_when_the_rest_is_not_available(self) -> None:
        assert selector("node:2", [""] * 2).replace([shard_id(NodeId(0))], lambda _: False) is None


def test_nothing_is_chosen_when_too_few_racks_are_available() -> None:
    chooser = selector("rack:2,node:3", ["a", "a", "a", "b"])
    assert chooser.pick(lambda shard: shard >> 8 != 3) is None
    assert chooser.pick(lambda _: True) is not None


def test_the_memory_of_availability_is_bounded() -> None:
    chooser = selector("node:1", [""] * 8)
    for mask in range(1, 256):
        assert chooser.pick(lambda shard, mask=mask: bool(mask >> (shard >> 8) & 1)) is not None  # type: ignore[misc]
    assert len(chooser._lines) <= 64


def test_a_property_that_throws_hardly_ever_meet_is_met_all_the_same() -> None:
    places = ["y.a", "x.b", "z.c", "z.d", "z.c", "y.a"]
    chooser = selector("row:2,rack:3,node:4", places, [100, 1, 1, 1, 100, 1])
    for _ in range(300):
        copyset = chooser.pick(lambda _: True)
        assert copyset is not None
        where = [places[shard >> 8] for shard in copyset]
        assert len({place[0] for place in where}) >= 2
        assert len(set(where)) >= 3
        assert len(set(copyset)) == 4
