"""Streams whose reader says where it stands: whom of a copyset they want to send."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.read.reading_order import ReadingOrder
from logdevice_py.config.cluster import ClusterConfig, ShardState
from logdevice_py.config.location import Location, Scope
from logdevice_py.core.ids import NodeId
from logdevice_py.core.units import Micros
from tests.unit.client.read.fakes import Harness, make_config, make_image, shard, text

HERE = Location.parse("us.d.c.r.p")
PLACES = ("us.d.c.r.p", "us.d.c.r.q", "us.d.c.s.p", "eu.d.c.r.p")
NOW = Micros(1)


def placed(*places: str, version: int = 1) -> ClusterConfig:
    config = make_config(len(places), version)
    nodes = {
        node: replace(each, location=Location.parse(places[node]), shard_state=ShardState.READ_WRITE)
        for node, each in config.nodes.items()
    }
    return replace(config, nodes=nodes)


def harness(*places: str, at: Location | None = HERE, near: bool = True) -> Harness:
    return Harness(len(places), at=at, near=near, config=placed(*places)).begin()


class TestOrder:
    def test_near_shards_come_before_distant_ones(self) -> None:
        h = harness(*PLACES)
        tiers = h.order(0)
        assert tiers[0] < tiers[1] < tiers[2] < tiers[3]
        assert all(h.order(node) == tiers for node in range(4)), "all shards go by the same order"

    def test_those_that_are_equally_near_are_of_one_tier(self) -> None:
        tiers = harness("us.d.c.r.p", "eu.d.c.r.p", "us.d.c.r.p", "eu.x.c.r.p").order(0)
        assert tiers[0] == tiers[2] < tiers[1] == tiers[3]

    @pytest.mark.parametrize(
        ("places", "at", "near"),
        [
            (PLACES, None, True),  # nobody knows where the reader stands
            (PLACES, HERE, False),  # it does not want to
            (("us.d.c.r.p",) * 4, HERE, True),  # all are equally near
            (("eu.d.c.r.p", "eu.d.c.r.q"), HERE, True),
        ],
    )
    def test_there_is_none_where_it_would_say_nothing(
        self, places: tuple[str, ...], at: Location | None, near: bool
    ) -> None:
        assert harness(*places, at=at, near=near).order(0) == {}

    def test_everything_from_everyone_needs_none(self) -> None:
        h = Harness(4, at=HERE, config=placed(*PLACES), single_copy=False).begin()
        assert h.order(0) == {}

    def test_read_only_and_vanished_shards_come_last_however_near(self) -> None:
        config = placed("us.d.c.r.p", "eu.d.c.r.p", "us.d.c.r.p", "us.d.c.r.p")
        read_only = replace(config.nodes[NodeId(0)], shard_state=ShardState.READ_ONLY)
        nodes = {**config.nodes, NodeId(0): read_only}
        del nodes[NodeId(2)]
        order = ReadingOrder(HERE)
        order.set_config(replace(config, nodes=nodes))
        tiers = dict(order.of(list(map(shard, range(4))), NOW))
        assert tiers[shard(3)] < tiers[shard(1)] < tiers[shard(0)] < tiers[shard(2)]

    def test_shards_that_were_slow_come_after_those_that_are_well(self) -> None:
        order = ReadingOrder(HERE, lambda member, now: member != shard(0))
        order.set_config(placed(*PLACES))
        tiers = dict(order.of(list(map(shard, range(4))), NOW))
        assert tiers[shard(1)] < tiers[shard(2)] < tiers[shard(3)] < tiers[shard(0)]

    @pytest.mark.parametrize(("scope", "first"), [(Scope.RACK, [1, 2, 3, 0]), (Scope.REGION, [3, 0, 1, 2])])
    def test_what_may_fail_together_with_a_slow_shard_comes_last(self, scope: Scope, first: list[int]) -> None:
        order = ReadingOrder(HERE)
        order.set_config(placed(*PLACES))
        tiers = dict(order.apart_from(list(map(shard, range(4))), [shard(0)], scope, NOW))
        assert sorted(range(4), key=lambda node: tiers[shard(node)]) == first

    def test_where_no_locations_are_known_nothing_comes_last(self) -> None:
        order = ReadingOrder()
        order.set_config(make_config(4))
        assert order.apart_from(list(map(shard, range(4))), [shard(0)], Scope.RACK, NOW) == []


class TestConversation:
    def test_entries_come_from_who_is_wanted_to_send_them(self) -> None:
        h = harness(*PLACES)
        h.records(0, (2**32 + 1, make_image(2**32 + 1)))
        assert text(h.take())[-1] == "e1n1:payload"

    def test_a_shard_that_does_not_know_what_an_order_is_ends_it_for_a_while(self) -> None:
        h = Harness(4, at=HERE, config=placed(*PLACES))
        h.history()
        for node in range(3):
            h.started(shard(node))
        h.started(shard(3), ordered=False)
        h.advance(200_000)
        assert all(h.order(node) == {} for node in range(4))
        assert h.is_single_copy(0)
        h.restarted()
        h.stream.on_peer_down(NodeId(1), h.now)  # type: ignore[arg-type]
        h.advance(59_000_000)
        h.restarted()
        assert h.order(0) == {}
        h.advance(2_000_000)
        h.stream.on_peer_down(NodeId(2), h.now)  # type: ignore[arg-type]
        h.advance(200_000)
        assert h.order(0), "it may have been upgraded"

    def test_a_node_that_moves_is_asked_in_another_place(self) -> None:
        h = harness(*PLACES)
        h.stream.on_config(placed("eu.d.c.r.p", *PLACES[1:], version=2), h.now)
        h.turn()
        h.advance(200_000)
        assert h.order(0)[0] == h.order(0)[3] > h.order(0)[1]
