from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from logdevice_py.config.location import Location
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.placement.reading_order import ReadHealth, distance, local_first, nearest_first

HERE = Location.parse("us.d.c.r.p")
Order = Callable[..., list[ShardId]]


def order(
    choose: Order, places: list[str | None], health: dict[int, ReadHealth] | None = None, seed: int = 1
) -> list[int]:
    """Numbers of the shards at these places, as a reader in rack p of region us asks them."""
    shards = [shard_id(NodeId(node)) for node in range(len(places))]

    def place(shard: ShardId) -> Location | None:
        text = places[node_of(shard)]
        return None if text is None else Location.parse(text)

    known = health or {}
    found = choose(shards, HERE, place, lambda s: known.get(node_of(s), ReadHealth.WELL), random.Random(seed))
    assert sorted(found) == shards
    return [int(node_of(shard)) for shard in found]


@pytest.mark.parametrize(
    ("there", "far"),
    [("us.d.c.r.p", 0), ("us.d.c.r.q", 1), ("us.d.c.s.p", 2), ("us.d.e.r.p", 3), ("us.x.c.r.p", 4), ("eu.d.c.r.p", 5)],
)
def test_how_far_places_are_apart(there: str, far: int) -> None:
    assert distance(HERE, Location.parse(there)) == far
    assert distance(Location.parse(there), None) == 6


class TestNearestFirst:
    def test_the_nearest_then_another_rack_then_another_region_then_by_distance(self) -> None:
        places: list[str | None] = ["eu.d.c.r.p", "us.d.c.r.p", "us.d.c.r.q", "us.d.c.r.p", "ap.d.c.r.p", "us.d.c.s.p"]
        for seed in range(20):
            found = order(nearest_first, places, seed=seed)
            assert {found[0]} <= {1, 3}
            assert found[1] == 2
            assert {found[2]} <= {0, 4}
            assert {found[3]} <= {1, 3}
            assert found[4] == 5
            assert {found[5]} <= {0, 4}

    def test_one_of_those_that_are_equally_near_is_chosen_at_random(self) -> None:
        places: list[str | None] = ["us.d.c.r.p", "us.d.c.r.p", "eu.d.c.r.p"]
        first = Counter(order(nearest_first, places, seed=seed)[0] for seed in range(400))
        assert set(first) == {0, 1}
        assert all(150 < count < 250 for count in first.values())

    def test_without_another_rack_or_region_the_near_ones_follow(self) -> None:
        found = order(nearest_first, ["us.d.c.r.p", "us.d.c.r.p", "eu.d.c.r.p", None])
        assert found[1] == 2, "another region is another rack"
        assert found[-1] in (0, 1)

    def test_healthy_then_failed_then_read_only_then_vanished(self) -> None:
        places: list[str | None] = ["us.d.c.r.p", "us.d.c.r.p", "us.d.c.r.p", "eu.d.c.r.p", None]
        health = {0: ReadHealth.READ_ONLY, 1: ReadHealth.FAILED, 4: ReadHealth.VANISHED}
        assert order(nearest_first, places, health) == [2, 3, 1, 0, 4]


class TestLocalFirst:
    LOCALS, REMOTES = 5, 3

    def places(self) -> list[str | None]:
        return ["us.d.c.r.q"] * self.LOCALS + ["eu.d.c.r.p"] * self.REMOTES

    def test_after_every_two_local_ones_a_remote_one(self) -> None:
        found = order(local_first, self.places())
        assert "".join("L" if node < self.LOCALS else "R" for node in found) == "LLRLLRLR"

    def test_when_one_kind_runs_out_the_other_follows(self) -> None:
        found = order(local_first, ["us.d.c.r.q", *["eu.d.c.r.p"] * 3])
        assert found[0] == 0
        found = order(local_first, [*["us.d.c.r.q"] * 4, "eu.d.c.r.p"])
        assert found[2] == 4

    def test_healthy_local_and_remote_ones_come_before_those_that_failed(self) -> None:
        health = {0: ReadHealth.FAILED, 5: ReadHealth.FAILED, 6: ReadHealth.READ_ONLY, 1: ReadHealth.READ_ONLY}
        found = order(local_first, self.places(), health)
        assert (set(found[:2]) | {found[3]}, found[2], found[4:6], found[6:]) == ({2, 3, 4}, 7, [0, 5], [1, 6])
