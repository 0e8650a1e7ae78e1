"""Extra copies: acked when the holders satisfy `replicate`, settled when the whole wave is stored. Numbers are those of rules in `sequencer.extra_copies`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.attributes import Durability
from logdevice_py.config.location import Location
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId, NodeId, PeerId, ShardId, format_shard, node_of, shard_id
from logdevice_py.core.lsn import Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND
from logdevice_py.protocol.messages import AppendedFlags, Release, SeqStateFlags, Store
from logdevice_py.tables.constraints import EVERYTHING
from sequencer.activation import wanted_placement
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.extra_copies import AppenderWithExtras, EpochWithExtras
from sequencer.settings import SequencerSettings
from sequencer.store_availability import Reason
from sequencer.waits import waits_rows
from tests.unit.sequencer.fakes import LOG, World, active, make_config

SETTLE = 10 * MILLISECOND
"""Longer than the settle timer, and shorter than a wave may take."""


def shard(node: int) -> ShardId:
    return shard_id(NodeId(node))


def world_with(nodes: int = 4, *, replicate: str = "node:2", extra_copies: int = 1, **more: Any) -> World:
    """A log whose shards answer when they are told to; STOREs to all were quick so far."""
    world = active(config=make_config(nodes, replicate=replicate, extra_copies=extra_copies, **more))
    for _ in range(3):
        world.run(1_000_000)  # by now it is known how long STOREs take
    world.answer = lambda store: None
    world.stores.clear()
    return world


def epoch_of(world: World) -> EpochWithExtras:
    current = world.sequencer.current
    assert isinstance(current, EpochWithExtras)
    return current


def sent(world: World) -> list[Store]:
    """The STOREs since last asked, which wait for their answers."""
    stores, world.held_stores = world.held_stores, []
    world.stores.clear()
    return stores


def append(world: World) -> tuple[int, list[Store]]:
    request = world.append()
    world.run()
    return request, sent(world)


def copyset(store: Store) -> tuple[ShardId, ...]:
    return parse_header(store.image).copyset


def amends(stores: list[Store]) -> list[bool]:
    return [parse_header(store.image).is_amend for store in stores]


class TestWaves:
    def test_a_wave_goes_to_as_many_shards_more(self) -> None:
        _, stores = append(world_with(6, extra_copies=2))
        assert len({store.shard for store in stores}) == 4
        assert copyset(stores[0]) == tuple(store.shard for store in stores)

    def test_to_fewer_when_no_more_are_available(self) -> None:
        world = world_with(4, replicate="node:3")
        world.node.context.availability.block(shard(3), Reason.NO_SPACE, world.now)
        request, stores = append(world)
        assert {store.shard for store in stores} == {shard(0), shard(1), shard(2)}
        for store in stores:
            world.reply(store)
        world.run()
        assert world.answer_to(request).status is Status.OK
        assert epoch_of(world).lng == 2

    def test_never_to_fewer_than_replicate_asks_for(self) -> None:
        world = world_with(4, replicate="node:3")
        for node in (2, 3):
            world.node.context.availability.block(shard(node), Reason.NO_SPACE, world.now)
        request, stores = append(world)
        assert stores == []
        assert world.answer_to(request).status is Status.NOSPC

    def test_extra_copies_come_back_with_the_shards(self) -> None:
        world = world_with(3)
        world.node.context.availability.block(shard(2), Reason.UNROUTABLE, world.now)
        _, stores = append(world)
        assert len(stores) == 2
        world.node.on_peer_up(PeerId(2), world.now)
        _, stores = append(world)
        assert len(stores) == 3, "the block of entries does not go on without"

    def test_extra_copies_go_where_there_are_the_fewest(self) -> None:
        world = world_with(6, replicate="rack:2,node:2", racks="aabbcc")
        for _ in range(20):
            epoch_of(world)._sticky = None
            _, stores = append(world)
            assert len({(store.shard >> 8) // 2 for store in stores}) == 3, "one in each rack"

    def test_without_extra_copies_nothing_is_different(self) -> None:
        world = active(config=make_config(4, replicate="node:2"))
        assert type(world.sequencer.current) is EpochSequencer
        assert world.sequencer.metadata is not None
        assert world.sequencer.metadata.current.extra_copies == 0

    def test_logs_of_the_cluster_have_none(self) -> None:
        world = world_with()
        attributes = world.sequencer.attributes
        context = world.node.context
        of_user = wanted_placement(LogId(USER_LOG_ID_MAX), attributes, context)
        of_cluster = wanted_placement(LogId(USER_LOG_ID_MAX + 1), attributes, context)
        assert of_user is not None
        assert of_cluster is not None
        assert (of_user.extra_copies, of_cluster.extra_copies) == (1, 0)

    def test_another_number_makes_another_epoch(self) -> None:
        world = world_with()
        world.answer = lambda store: Status.OK
        before = world.sequencer.epoch
        config = make_config(4, replicate="node:2", extra_copies=2, version=2)
        world.node.on_config(config, world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == before + 1
        assert world.sequencer.metadata is not None
        assert [each.extra_copies for each in world.sequencer.metadata.history] == [1, 2]


class TestAcked:
    """Rules 1 and 2."""

    def test_clients_are_answered_when_the_holders_suffice(self) -> None:
        world = world_with()
        request, (first, second, third) = append(world)
        world.reply(third)
        world.run()
        assert not world.is_answered(request)
        world.reply(first)
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.OK
        assert answer.copyset == [first.shard, third.shard], "the receipt lists the holders"
        assert second.shard not in answer.copyset

    def test_copies_of_different_waves_count_together(self) -> None:
        world = world_with(6)
        request, (first, *_) = append(world)
        world.reply(first)
        world.run(1_000_000)
        later = [store for store in sent(world) if store.wave == 2 and store.shard != first.shard]
        assert later
        assert not world.is_answered(request)
        world.reply(later[0])
        world.run()
        assert set(world.answer_to(request).copyset) == {first.shard, later[0].shard}

    def test_a_late_answer_to_an_earlier_wave_counts(self) -> None:
        world = world_with(6)
        request, (first, second, _) = append(world)
        world.reply(first)
        world.run(1_000_000)
        assert any(store.wave == 2 for store in sent(world))
        world.reply(second)
        world.run()
        assert set(world.answer_to(request).copyset) == {first.shard, second.shard}

    def test_holders_must_be_in_as_many_racks_as_the_epoch_began_with(self) -> None:
        world = world_with(6, replicate="rack:2,node:3", racks="aaabbb", extra_copies=3)
        request, stores = append(world)
        assert len(stores) == 6
        here = [store for store in stores if store.shard >> 8 < 3]
        for store in here:
            world.reply(store)
        world.run()
        assert not world.is_answered(request), "three copies in one rack"
        # the cluster file moves a node, the labels of the epoch stay
        nodes = dict(world.config.nodes)
        nodes[NodeId(2)] = replace(nodes[NodeId(2)], location=Location.parse("b"))
        epoch_of(world).context.config = replace(world.config, nodes=nodes)
        epoch_of(world).context.placement_version += 1
        world.run()
        other = next(store for store in stores if store.shard >> 8 == 2)
        world.reply(other)
        world.run()
        assert not world.is_answered(request), "it stood in the rack of the others when the epoch began"
        world.reply(next(store for store in stores if store.shard >> 8 == 4))
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_a_member_that_refuses_costs_no_wave_while_the_others_may_do(self) -> None:
        world = world_with(6)
        request, (first, second, third) = append(world)
        world.reply(first, Status.NOSPC)
        world.run()
        assert sent(world) == []
        world.reply(second)
        world.reply(third)
        world.run()
        assert world.answer_to(request).copyset == [second.shard, third.shard]

    def test_it_costs_one_at_once_when_they_cannot(self) -> None:
        world = world_with(6)
        _, (first, second, third) = append(world)
        world.reply(first, Status.NOSPC)
        world.reply(second, Status.NOSPC)
        world.run()
        again = sent(world)
        assert {store.wave for store in again} == {2}
        assert len(again) == 3
        assert third.shard in {store.shard for store in again} or len({store.shard for store in again}) == 3


class TestTakenBack:
    """Rule 1: what is no holder any more does not count."""

    def test_a_shard_that_lost_its_data(self) -> None:
        world = world_with(6)
        request, (first, second, third) = append(world)
        world.reply(first)
        other, (one, *_) = append(world)
        assert one.shard == first.shard, "entries share a copyset for a while"
        world.reply(one, Status.REBUILDING)
        world.run()
        world.reply(second)
        world.run()
        assert not world.is_answered(request), "of two copies one is lost"
        world.reply(third)
        world.run()
        assert world.answer_to(request).copyset == [second.shard, third.shard]
        assert not world.is_answered(other)

    def test_a_shard_that_says_so_of_an_earlier_wave(self) -> None:
        world = world_with(6)
        request, (first, second, third) = append(world)
        world.reply(first)
        world.run(1_000_000)
        world.reply(second, Status.REBUILDING)
        world.reply(first, Status.REBUILDING)
        world.run()
        world.reply(third)
        world.run()
        assert not world.is_answered(request)

    def test_a_shard_that_finds_no_body_for_an_amend(self) -> None:
        world = world_with(6)
        request, (first, *_) = append(world)
        world.reply(first)
        appender = epoch_of(world).appender(2)
        assert isinstance(appender, AppenderWithExtras)
        while first.shard not in (again := {store.shard: store for store in sent(world) if store.wave > 1}):
            world.run(10 * MILLISECOND)
        assert amends([again[first.shard]]) == [True]
        world.reply(again[first.shard], Status.BADPAYLOAD)
        assert appender.holders == []
        other = next(store for store in again.values() if store.shard != first.shard)
        world.reply(other)
        world.run()
        assert not world.is_answered(request)

    @pytest.mark.parametrize("durability", list(Durability))
    def test_what_was_not_synced_when_the_connection_broke(self, durability: Durability) -> None:
        world = world_with(6, durability=durability)
        request, (first, second, _) = append(world)
        world.reply(first)
        world.run()
        world.node.on_peer_down(PeerId(first.shard >> 8), world.now)
        world.run()
        world.reply(second)
        world.run()
        assert world.is_answered(request) is (durability is Durability.SYNC)

    def test_what_was_not_synced_when_a_write_failed(self) -> None:
        world = world_with(6, durability=Durability.ASYNC)
        request, (first, second, _) = append(world)
        world.reply(first)
        world.run()
        appender = epoch_of(world).appender(2)
        assert isinstance(appender, AppenderWithExtras)
        world.reply(replace_wave(first, 1), Status.FAILED)
        world.reply(second)
        world.run()
        assert not world.is_answered(request)

    def test_an_answer_over_a_connection_that_broke_is_none(self) -> None:
        world = world_with(6, durability=Durability.ASYNC)
        request, (first, second, _) = append(world)
        world.node.on_peer_down(PeerId(first.shard >> 8), world.now)
        world.run()
        world.reply(first)
        world.reply(second)
        world.run()
        assert not world.is_answered(request)

    def test_a_wave_with_a_copy_that_was_taken_back_settles_nothing(self) -> None:
        world = world_with(6, durability=Durability.ASYNC)
        request, (first, second, third) = append(world)
        world.reply(first)
        world.run()
        world.node.on_peer_down(PeerId(first.shard >> 8), world.now)
        world.reply(second)
        world.reply(third)
        world.run()
        assert world.answer_to(request).copyset == [second.shard, third.shard]
        assert epoch_of(world).lng == 1
        settling = sent(world)
        assert {store.shard for store in settling} == {second.shard, third.shard}
        for store in settling:
            world.reply(store)
        world.run()
        assert epoch_of(world).lng == 2


def replace_wave(store: Store, wave: int) -> Store:
    return replace(store, wave=wave)


class TestSettled:
    """Rules 3 and 4."""

    def test_nothing_is_released_before_the_whole_wave_is_stored(self) -> None:
        world = world_with()
        request, (first, second, third) = append(world)
        world.reply(first)
        world.reply(second)
        world.run()
        assert world.answer_to(request).status is Status.OK
        epoch = epoch_of(world)
        assert (epoch.lng, epoch.acked_through, epoch.in_flight) == (1, 2, 1)
        assert world.sequencer.last_released == compose_lsn(1, 1)
        _, later = append(world)
        assert parse_header(later[0].image).lng == 1
        assert later[0].released == compose_lsn(1, 1)
        world.reply(third)
        world.run()
        assert epoch.lng == 2
        assert world.sequencer.last_released == compose_lsn(1, 2)
        assert all(lsn <= compose_lsn(1, 2) for release in world.messages(Release) for _, lsn in release.logs)

    def test_a_whole_wave_costs_no_other(self) -> None:
        world = world_with()
        _, stores = append(world)
        for store in stores:
            world.reply(store)
        world.run(1_000_000)
        assert sent(world) == []
        assert epoch_of(world).lng == 2

    def test_after_a_while_the_holders_become_the_copyset(self) -> None:
        world = world_with()
        _, (first, second, third) = append(world)
        world.reply(third)
        world.reply(first)
        world.run(SETTLE)
        settling = sent(world)
        assert [store.shard for store in settling] == [first.shard, third.shard]
        assert amends(settling) == [True, True]
        assert {copyset(store) for store in settling} == {(first.shard, third.shard)}
        assert world.node.context.availability.reason(second.shard) is None, "a moment is not long"
        for store in settling:
            world.reply(store)
        world.run()
        assert epoch_of(world).lng == 2
        assert world.sequencer.last_released == compose_lsn(1, 2)
        world.reply(second)
        world.run(1_000_000)
        assert sent(world) == []

    @pytest.mark.parametrize("answers", [False, True])
    def test_a_late_shard_is_avoided_when_it_answers_nothing_at_all(self, answers: bool) -> None:
        world = world_with(3)
        late = shard(2)
        began, kept = world.now, []
        least = SequencerSettings().silent_shard_us
        while world.now < began + 2 * least and world.node.context.availability.reason(late) is None:
            _, stores = append(world)
            kept += [store for store in stores if store.shard == late]
            for store in stores:
                if store.shard != late:
                    world.reply(store)
            world.run(SETTLE)
            for store in sent(world):
                world.reply(store)
            if answers:
                world.reply(kept.pop(0))
            world.run()
        assert world.node.context.availability.reason(late) is (None if answers else Reason.SLOW)
        assert answers or least <= world.now - began <= least + 3 * SETTLE
        assert epoch_of(world).lng == epoch_of(world).next_esn - 1

    def test_others_get_the_body_where_holders_are_lacking(self) -> None:
        world = world_with(6)
        request, (first, second, third) = append(world)
        world.reply(first)
        world.reply(second)
        world.run()
        assert world.is_answered(request)
        world.node.context.availability.block(second.shard, Reason.DISABLED, world.now)
        world.run(SETTLE)
        settling = sent(world)
        assert settling[0].shard == first.shard
        assert amends(settling) == [True, False]
        assert settling[1].shard not in (second.shard, third.shard)
        for store in settling:
            world.reply(store)
        world.run()
        assert epoch_of(world).lng == 2

    def test_who_loses_it_after_the_answer_is_replaced(self) -> None:
        world = world_with(6)
        request, (first, second, _) = append(world)
        world.reply(first)
        world.reply(second)
        world.run(SETTLE)
        assert world.is_answered(request)
        settling = sent(world)
        world.reply(settling[0], Status.REBUILDING)
        world.reply(settling[1])
        world.run()
        again = sent(world)
        assert first.shard not in {store.shard for store in again}
        assert len(again) == 2
        for store in again:
            world.reply(store)
        world.run()
        assert epoch_of(world).lng == 2

    def test_where_all_have_answered_it_settles_at_once(self) -> None:
        world = world_with(6)
        request, (first, second, third) = append(world)
        world.reply(first)
        world.reply(second, Status.NOSPC)
        world.run()
        world.reply(third)
        world.run()
        assert world.is_answered(request)
        assert {store.shard for store in sent(world)} == {first.shard, third.shard}

    def test_a_tail_is_told_when_all_that_was_acknowledged_is_settled(self) -> None:
        world = world_with()
        request, (first, second, third) = append(world)
        world.reply(first)
        world.reply(second)
        world.run()
        assert world.is_answered(request)
        asked = world.ask_state(int(SeqStateFlags.TAIL))
        world.run()
        assert not any(state.request_id == asked for state in world.states)
        world.reply(third)
        world.run()
        assert world.state_of(asked).last_released == compose_lsn(1, 2)

    def test_what_it_waits_for_is_shown_as_a_release(self) -> None:
        world = world_with()
        _, (first, second, third) = append(world)
        world.reply(first)
        world.run()
        assert [row.kind for row in waits_rows(world.node, EVERYTHING, world.now)] == ["APPEND"]
        world.reply(second)
        world.run()
        (row,) = waits_rows(world.node, EVERYTHING, world.now)
        assert (row.kind, row.cause, row.shards) == ("RELEASE", "STORES", format_shard(third.shard))

    def test_where_no_copyset_can_be_made_it_waits(self) -> None:
        world = world_with(3)
        request, (first, second, third) = append(world)
        world.reply(first)
        world.reply(second)
        world.run()
        for store in (second, third):
            world.node.context.availability.block(store.shard, Reason.DISABLED, world.now)
        world.run(SETTLE)
        assert sent(world) == []
        assert world.answer_to(request).status is Status.OK
        assert epoch_of(world).in_flight == 1
        for store in (second, third):
            world.node.context.availability.on_peer_up(node_of(store.shard))
        world.run(5_000_000)
        for store in sent(world):
            world.reply(store)
        world.run()
        assert epoch_of(world).lng == 2


class TestOrder:
    """Write streams and conditional appends: at the contiguous acked prefix."""

    def test_a_frame_waits_for_what_is_before_it_to_be_acked(self) -> None:
        world = world_with()
        direct, before = append(world)
        frame = world.stream_append(1, resume=True)
        world.run()
        after = sent(world)
        for store in after[:2]:
            world.reply(store)
        world.run()
        assert not world.is_answered(frame)
        for store in before[:2]:
            world.reply(store)
        world.run()
        assert world.answer_to(direct).status is Status.OK
        assert world.answer_to(frame).status is Status.OK
        assert epoch_of(world).lng == 1, "nothing of it is settled"

    def test_a_frame_behind_an_entry_that_is_aborted_is_refused(self) -> None:
        world = world_with()
        direct, before = append(world)
        frame = world.stream_append(1, resume=True)
        world.run()
        for store in sent(world):
            world.reply(store)
        world.run()
        world.seal_epoch, world.seal_node = 1, 3
        world.reply(before[0], Status.PREEMPTED)
        world.reply(before[1])
        world.run()
        assert world.answer_to(direct).status is Status.PREEMPTED
        assert world.answer_to(frame).status is Status.PREEMPTED

    def test_a_frame_behind_one_that_was_aborted_when_it_was_acked_is_answered(self) -> None:
        world = world_with()
        direct, before = append(world)
        frame = world.stream_append(1, resume=True)
        world.run()
        after = sent(world)
        world.reply(before[0])
        world.reply(before[1])
        world.run()
        world.seal_epoch, world.seal_node = 1, 3
        world.reply(before[2], Status.PREEMPTED)
        world.run()
        assert world.answer_to(direct).status is Status.OK
        for store in after:
            world.reply(store)
        world.run()
        assert world.answer_to(frame).status is Status.OK
        assert epoch_of(world).lng == 1

    def test_a_frame_whose_holders_went_while_it_waited_is_not_acked(self) -> None:
        world = world_with(6, durability=Durability.ASYNC)
        _, before = append(world)
        frame = world.stream_append(1, resume=True)
        world.run()
        after = sent(world)
        world.reply(after[0])
        world.reply(after[1])
        world.run()
        world.node.on_peer_down(PeerId(after[0].shard >> 8), world.now)
        world.run()
        for store in before:
            if store.shard != after[0].shard:
                world.reply(store)
        world.run()
        assert not world.is_answered(frame)
        world.reply(after[2])
        world.run()
        assert world.answer_to(frame).copyset == [after[1].shard, after[2].shard]

    def test_a_conditional_append_waits_as_well(self) -> None:
        world = active(config=make_config(4, replicate="node:2", extra_copies=1))
        first = world.guarded_append(transaction=1)
        world.run(3_000_000)
        assert world.answer_to(first).status is Status.OK
        world.answer = lambda store: None
        sent(world)
        direct = world.append()
        world.run()
        before = sent(world)
        expected = (before[0].lsn, 0)
        conditional = world.guarded_append(expect=expected)
        world.run()
        for store in sent(world)[:2]:
            world.reply(store)
        world.run()
        assert not world.is_answered(conditional)
        for store in before[1:]:
            world.reply(store)
        world.run()
        assert world.answer_to(direct).status is Status.OK
        assert world.answer_to(conditional).status is Status.OK


class TestSilence:
    """Rule 5."""

    def test_preempted_after_the_answer(self) -> None:
        world = world_with()
        request, (first, second, third) = append(world)
        world.reply(first)
        world.reply(second)
        world.run()
        world.seal_epoch, world.seal_node = 1, 3
        world.reply(third, Status.PREEMPTED)
        world.run(10_000_000)
        assert world.answer_to(request).status is Status.OK
        assert epoch_of(world).lng == 1
        assert sent(world) == []

    def test_destroyed_after_the_answer(self) -> None:
        world = world_with()
        request, (first, second, _) = append(world)
        world.reply(first)
        world.reply(second)
        world.run()
        epoch_of(world).destroy(NodeId(3), world.now)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_before_the_answer_the_client_is_told(self) -> None:
        world = world_with()
        request, (first, _, third) = append(world)
        world.reply(first)
        world.run()
        world.seal_epoch, world.seal_node = 1, 3
        world.reply(third, Status.PREEMPTED)
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.PREEMPTED
        assert not answer.flags & AppendedFlags.NOT_REPLICATED


class TestStrictOrder:
    def taken_over(self) -> World:
        world = active(config=make_config(4, replicate="node:2", extra_copies=1, strict_order=True))
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        world.answer = lambda store: None
        sent(world)
        return world

    def test_an_acked_entry_is_told_when_the_epochs_before_are_sealed(self) -> None:
        world = self.taken_over()
        request, (first, _, third) = append(world)
        world.reply(first)
        world.reply(third)
        world.run()
        assert not world.is_answered(request)
        world.recoveries.sealed(world.now)
        world.run()
        assert world.answer_to(request).copyset == [first.shard, third.shard]

    def test_one_that_is_withheld_is_refused_once(self) -> None:
        world = self.taken_over()
        request, (first, _, third) = append(world)
        world.reply(first)
        world.reply(third)
        world.run()
        world.sequencer.on_sealed(Epoch(2), NodeId(3), world.now)
        epoch_of(world).destroy(NodeId(3), world.now)
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.PREEMPTED
        assert not answer.flags & AppendedFlags.NOT_REPLICATED
        assert world.sequencer.log == LOG
