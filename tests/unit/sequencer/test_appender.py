"""Waves of STOREs: failures, timeouts, preemption, and which shards are avoided."""

from __future__ import annotations

from logdevice_py.config.attributes import Durability
from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.ids import Generation, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import (
    AppendedFlags,
    AppendFlags,
    CheckSeal,
    NodeState,
    Store,
    StoredFlags,
    StoreFlags,
)
from sequencer.sequencer import SequencerPhase
from sequencer.settings import SequencerSettings
from sequencer.store_availability import Reason
from tests.unit.sequencer.fakes import World, active, make_config


def shards_of(world: World, wave: int) -> set[ShardId]:
    return {store.shard for store in world.stores if store.wave == wave}


def block_copyset(world: World) -> tuple[ShardId, ...]:
    """Where the next entries go: they share a copyset for a while."""
    world.append()
    world.run()
    copyset = tuple(store.shard for store in world.stores)
    world.stores.clear()
    world.answered.clear()
    return copyset


class TestFirstWave:
    def test_all_copies_get_the_same_image(self) -> None:
        world = active()
        world.append(b"payload")
        world.run()
        assert len({id(store.image) for store in world.stores}) == 1
        header = parse_header(world.stores[0].image)
        assert header.copyset == tuple(store.shard for store in world.stores)
        assert (header.wave, header.lng) == (1, 1)

    def test_nobody_is_told_before_every_copy_is_stored(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run()
        *early, last = world.held_stores
        for store in early:
            world.reply(store)
        world.run()
        assert not world.is_answered(request)
        world.reply(last)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_an_answer_that_comes_twice_counts_once(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run()
        for _ in range(3):
            world.reply(world.held_stores[0])
        world.run()
        assert not world.is_answered(request)

    def test_an_answer_in_the_name_of_another_node_is_ignored(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run()
        for store in world.held_stores:
            world.node.on_message(PeerId(-5), world.stored_by(store, Status.OK), world.now)
        world.run()
        assert not world.is_answered(request)


class TestFailedRecipients:
    def test_a_refusal_starts_the_next_wave_at_once_without_that_shard(self) -> None:
        world = active()
        refused = block_copyset(world)[0]
        world.answer = lambda store: Status.NOSPC if store.shard == refused else Status.OK
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK
        assert refused in shards_of(world, 1)
        assert shards_of(world, 2) == {shard_id(NodeId(node)) for node in range(4)} - {refused}
        assert world.node.context.availability.reason(refused) is Reason.NO_SPACE

    def test_a_shard_that_stored_an_earlier_wave_gets_an_amend(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append(b"body")
        world.run()
        first, second, third = world.held_stores
        world.reply(first)
        world.reply(second)
        world.reply(third, Status.NOSPC)
        world.run()
        later = {store.shard: parse_header(store.image) for store in world.stores if store.wave == 2}
        for shard, header in later.items():
            assert header.is_amend is (shard in (first.shard, second.shard))
            assert header.body_length == parse_header(first.image).body_length
        assert third.shard not in later

    def test_a_shard_whose_node_was_restarted_gets_the_body_again(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append(b"body")
        world.run()
        first, second, _ = world.held_stores
        world.reply(first)
        world.reply(second, Status.FAILED)
        world.run()
        sent = len(world.stores)
        world.node.on_peer_down(PeerId(first.shard >> 8), world.now)
        world.node.on_peer_up(PeerId(first.shard >> 8), world.now)
        world.run(10_000_000)
        again = [parse_header(store.image) for store in world.stores[sent:] if store.shard == first.shard]
        assert again
        assert not any(header.flags & EntryFlags.AMEND for header in again)

    def test_so_does_one_that_had_stored_the_very_wave_that_failed(self) -> None:
        world = active(config=make_config(3, durability=Durability.ASYNC))
        world.answer = lambda store: None
        world.append(b"body")
        world.run()
        first, second, third = world.held_stores
        world.reply(first)
        world.node.on_peer_down(PeerId(first.shard >> 8), world.now)
        world.node.on_peer_up(PeerId(first.shard >> 8), world.now)
        world.reply(second)
        world.reply(third, Status.INTERNAL)
        world.run(100_000)
        kinds = {store.shard: parse_header(store.image).is_amend for store in world.stores if store.wave == 2}
        assert kinds == {first.shard: False, second.shard: True, third.shard: False}

    def test_a_shard_that_has_no_body_for_an_amend_gets_the_body(self) -> None:
        world = active(config=make_config(3))
        world.answer = lambda store: None
        request = world.append(b"body")
        world.run()
        first, second, third = world.held_stores
        world.reply(first)
        world.reply(second)
        world.reply(third, Status.INTERNAL)
        bodies: set[ShardId] = set()

        def forgetful(store: Store) -> Status:
            if parse_header(store.image).is_amend and store.shard not in bodies:
                return Status.BADPAYLOAD
            bodies.add(store.shard)
            return Status.OK

        world.answer = forgetful
        world.run(1_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_after_two_waves_a_failure_waits_for_the_timer(self) -> None:
        world = active(config=make_config(8))
        world.answer = lambda store: Status.FAILED
        world.append()
        world.run()
        assert max(store.wave for store in world.stores) <= 3

    def test_it_tries_without_end(self) -> None:
        world = active()
        world.answer = lambda store: Status.DISABLED
        request = world.append()
        world.run(100_000_000)
        assert not world.is_answered(request)
        world.answer = lambda store: Status.OK
        world.run(100_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_answers_of_an_earlier_wave_do_not_complete_a_later_one(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run(6_000_000)
        old = [store for store in world.held_stores if store.wave == 1]
        for store in old:
            world.reply(store)
        world.run()
        assert not world.is_answered(request)

    def test_a_shard_of_another_generation_is_left_out_of_this_epoch_only(self) -> None:
        world = active(config=make_config(3))
        wiped = shard_id(NodeId(1))
        world.answer = lambda store: Status.REBUILDING if store.shard == wiped and store.generation == 1 else Status.OK
        request = world.append()
        world.run()
        assert not world.is_answered(request)
        refused = world.append()
        world.run()
        assert world.answer_to(refused).status is Status.DISABLED
        world.cluster.generations[wiped] = Generation(2)
        world.node.on_cluster_state(world.now)
        world.run(3_000_000)
        taken = world.append()
        world.run()
        assert world.answer_to(taken).lsn >> 32 == 2
        assert wiped in world.answer_to(taken).copyset
        assert world.answer_to(request).status is Status.PREEMPTED


class TestTimeouts:
    def test_a_silent_shard_is_graylisted_when_others_answered(self) -> None:
        world = active()
        slow = block_copyset(world)[0]
        world.answer = lambda store: None if store.shard == slow else Status.OK
        request = world.append()
        world.run(1_000_000)
        assert world.answer_to(request).status is Status.OK
        assert slow not in world.answer_to(request).copyset
        assert world.node.context.availability.reason(slow) is Reason.SLOW

    def test_nobody_is_graylisted_when_all_are_silent(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append()
        world.run(1_000_000)
        assert all(world.node.context.availability.reason(shard_id(NodeId(node))) is None for node in range(4))
        assert max(store.wave for store in world.stores) > 1

    def test_what_is_under_way_to_a_shard_that_comes_onto_the_graylist_does_not_wait_out_its_own_time(self) -> None:
        world = active()
        slow = block_copyset(world)[0]
        world.answer = lambda store: None if store.shard == slow else Status.OK
        first = world.append()
        world.run(18_000)
        second = world.append()
        world.run(8_000)
        assert world.is_answered(first)
        assert world.node.context.availability.reason(slow) is Reason.SLOW
        assert world.answer_to(second).status is Status.OK, "8 ms behind the append, whose own time is 20 ms"

    def test_a_wave_that_is_cut_short_blames_no_shard_that_merely_has_not_answered_yet(self) -> None:
        world = active()
        slow, busy, _ = block_copyset(world)
        world.answer = lambda store: None if store.shard == slow else Status.OK
        world.append()
        world.run(18_000)
        world.answer = lambda store: None if store.wave == 1 and store.shard in (slow, busy) else Status.OK
        late = world.append()
        world.run(12_000)
        assert world.answer_to(late).status is Status.OK
        assert world.node.context.availability.reason(slow) is Reason.SLOW
        assert world.node.context.availability.reason(busy) is None

    def test_a_slow_shard_that_nothing_can_do_without_hurries_each_entry_once(self) -> None:
        world = active(config=make_config(3))
        world.answer = lambda store: None if store.shard == shard_id(NodeId(1), 0) else Status.OK
        for _ in range(50):
            world.append()
            world.run(5_000)
        waves: dict[int, int] = {}
        for store in world.stores:
            waves[store.lsn] = max(waves.get(store.lsn, 0), store.wave)
        # 20 ms and twice as long with each wave: within 250 ms four waves and the hurried one
        assert max(waves.values()) <= 5

    def test_timeouts_follow_latency_and_grow_with_the_wave(self) -> None:
        world = active()
        timeouts = world.node.context.store_timeouts
        assert timeouts.timeout((ShardId(0),), 1) == 20_000
        assert timeouts.timeout((ShardId(0),), 2) == 40_000
        assert timeouts.timeout((ShardId(0),), 30) == 5_000_000
        assert timeouts.timeout((ShardId(999),), 1) == 500_000

    def test_the_graylist_is_cleared_when_no_copyset_can_be_made_without_it(self) -> None:
        world = active(config=make_config(3))
        slow = shard_id(NodeId(1))
        world.node.context.availability.block(slow, Reason.SLOW, world.now)
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK
        assert world.node.context.availability.reason(slow) is None

    def test_a_graylisted_shard_is_probed_before_it_is_used_again(self) -> None:
        world = active()
        slow = shard_id(NodeId(1))
        world.node.context.availability.block(slow, Reason.SLOW, world.now)
        world.cluster.states[NodeId(1)] = NodeState.DEAD
        world.run(11_000_000)
        assert [message.shard for message in world.messages(CheckSeal)] == [slow]
        assert world.node.context.availability.reason(slow) is Reason.PROBING
        world.cluster.states[NodeId(1)] = NodeState.ALIVE
        world.run(5_000_000)
        assert world.node.context.availability.reason(slow) is None


class TestConnections:
    def test_a_broken_connection_fails_its_recipients_at_once(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run()
        lost = world.held_stores[0].shard
        world.answer = lambda store: Status.OK
        world.node.on_peer_down(PeerId(lost >> 8), world.now)
        world.run()
        assert world.answer_to(request).status is Status.OK
        assert lost not in world.answer_to(request).copyset

    def test_dead_nodes_are_not_picked(self) -> None:
        world = active()
        world.cluster.states[NodeId(2)] = NodeState.DEAD
        world.node.on_cluster_state(world.now)
        request = world.append()
        world.run()
        assert shard_id(NodeId(2)) not in world.answer_to(request).copyset

    def test_an_append_is_refused_when_too_few_shards_are_left(self) -> None:
        world = active()
        for node in (1, 2):
            world.node.context.availability.block(shard_id(NodeId(node)), Reason.NO_SPACE, world.now)
        request = world.append()
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.NOSPC
        assert answer.flags & AppendedFlags.NOT_REPLICATED

    def test_a_log_is_writable_within_seconds_after_there_is_space_again(self) -> None:
        world = active()
        world.answer = lambda store: Status.NOSPC if store.shard != shard_id(NodeId(0)) else Status.OK
        request = world.append()
        world.run()
        assert not world.answered
        world.answer = lambda store: Status.OK
        world.run(3_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_a_shard_whose_disk_failed_is_picked_again_when_its_node_is_back(self) -> None:
        world = active(config=make_config(3))
        failed = shard_id(NodeId(1))
        world.node.context.availability.note_status(failed, Status.FAILED, world.now)
        world.node.on_peer_down(PeerId(1), world.now)
        world.node.on_peer_up(PeerId(1), world.now)
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_read_only_shards_take_no_new_entries(self) -> None:
        world = active(config=make_config(read_only=[1]))
        request = world.append()
        world.run()
        assert shard_id(NodeId(1)) not in world.answer_to(request).copyset


class TestPreemption:
    def preempted(self, world: World) -> World:
        world.seal_epoch, world.seal_node = 1, 2
        return world

    def test_with_no_copy_anywhere_the_append_is_certainly_not_applied(self) -> None:
        world = self.preempted(active())
        world.answer = lambda store: Status.PREEMPTED
        request = world.append()
        world.run()
        answer = world.answer_to(request)
        assert (answer.status, answer.redirect, answer.lsn) == (Status.PREEMPTED, 2, compose_lsn(1, 2))
        assert answer.flags & AppendedFlags.NOT_REPLICATED
        assert world.sequencer.state is SequencerPhase.PREEMPTED

    def test_with_a_copy_somewhere_it_may_be_applied(self) -> None:
        world = self.preempted(active())
        answers = iter([Status.OK, Status.PREEMPTED, Status.PREEMPTED])
        world.answer = lambda store: next(answers)
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.PREEMPTED
        assert not world.answer_to(request).flags & AppendedFlags.NOT_REPLICATED

    def test_the_position_that_it_may_have_is_told(self) -> None:
        world = self.preempted(active())
        answers = iter([Status.OK, Status.PREEMPTED, Status.PREEMPTED])
        world.answer = lambda store: next(answers)
        requests = [world.append(), world.append()]
        world.run()
        assert [world.answer_to(request).batch_offset for request in requests] == [0, 1]

    def test_it_waits_for_the_other_answers_before_it_says_not_applied(self) -> None:
        world = self.preempted(active())
        world.answer = lambda store: None
        request = world.append()
        world.run()
        first, second, third = world.held_stores
        world.reply(first, Status.PREEMPTED)
        world.run()
        assert not world.is_answered(request)
        world.reply(second, Status.PREEMPTED)
        world.reply(third, Status.OK)
        world.run()
        assert not world.answer_to(request).flags & AppendedFlags.NOT_REPLICATED

    def test_a_store_that_was_lost_on_the_way_may_be_applied(self) -> None:
        world = self.preempted(active())
        world.answer = lambda store: None
        request = world.append()
        world.run()
        first, second, third = world.held_stores
        world.reply(first, Status.PREEMPTED)
        world.reply(second, Status.PREEMPTED)
        world.node.on_peer_down(PeerId(third.shard >> 8), world.now)
        world.run()
        assert world.answer_to(request).status is Status.PREEMPTED
        assert not world.answer_to(request).flags & AppendedFlags.NOT_REPLICATED

    def test_a_soft_seal_does_not_stop_a_draining_epoch(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        world.stored_flags, world.seal_epoch, world.seal_node = int(StoredFlags.SOFT_PREEMPTED), 1, 0
        held, world.held_stores = world.held_stores, []
        world.answer = lambda store: Status.OK if store.flags & 2 else Status.PREEMPTED
        for store in held:
            world.reply(store, Status.PREEMPTED)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_the_lng_stops_before_an_entry_that_was_abandoned(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append(b"a")
        world.run()
        doomed = list(world.held_stores)
        world.answer = lambda store: Status.OK
        later = world.append(b"b")
        world.run()
        assert world.answer_to(later).status is Status.OK
        world.seal_epoch, world.seal_node = 1, 2
        for store in doomed:
            world.reply(store, Status.PREEMPTED)
        world.run()
        current = world.sequencer.current
        assert current is not None
        assert (current.lng, current.in_flight) == (1, 0)
        assert world.sequencer.last_released == compose_lsn(1, 1)


class TestStickyCopysets:
    def test_entries_share_a_copyset_until_the_block_is_full(self) -> None:
        world = active(config=make_config(8, sticky_block_bytes=3000))
        copysets = []
        for _ in range(12):
            request = world.append(b"x" * 500)
            world.run()
            copysets.append(tuple(sorted(world.answer_to(request).copyset)))
        assert 1 < len(set(copysets)) <= 5
        assert copysets[1] == copysets[2]

    def test_without_them_each_entry_has_its_own(self) -> None:
        world = active(config=make_config(8, sticky_copysets=False))
        copysets = set()
        for _ in range(12):
            request = world.append()
            world.run()
            copysets.add(tuple(world.answer_to(request).copyset))
        assert len(copysets) > 5

    def test_a_block_ends_with_its_age(self) -> None:
        world = active(config=make_config(8, sticky_block_age_us=1_000_000))
        copysets = set()
        for _ in range(12):
            request = world.append()
            world.run(1_500_000)
            copysets.add(tuple(world.answer_to(request).copyset))
        assert len(copysets) > 5


class TestWindow:
    def test_a_full_window_refuses_appends(self) -> None:
        world = active(config=make_config(max_writes_in_flight=2))
        world.answer = lambda store: None
        requests = []
        for _ in range(3):
            requests.append(world.append())
            world.run()
        assert world.answer_to(requests[2]).status is Status.SEQNOBUFS
        world.reply_to_held()
        assert world.answer_to(requests[0]).status is Status.OK
        again = world.append()
        world.answer = lambda store: Status.OK
        world.run()
        assert world.answer_to(again).status is Status.OK

    def test_a_window_full_of_bytes_refuses_appends(self) -> None:
        world = active(config=make_config(window_bytes=6000, max_payload_bytes=6000))
        world.answer = lambda store: None
        first = world.append(b"x" * 5000)
        second = world.append(b"x" * 5000)
        world.run()
        assert not world.is_answered(first)
        assert world.answer_to(second).status is Status.SEQNOBUFS

    def test_all_logs_together_are_bounded_too(self) -> None:
        world = active(settings=SequencerSettings(appender_bytes=3000))
        world.answer = lambda store: None
        world.append(b"x" * 2000)
        world.run()
        second = world.append(b"x" * 2000)
        world.run()
        assert world.answer_to(second).status is Status.SEQNOBUFS

    def test_entries_are_acknowledged_out_of_order_and_released_in_order(self) -> None:
        world = active()
        world.answer = lambda store: None
        first = world.append(b"1")
        world.run()
        stores: list[Store] = list(world.held_stores)
        world.answer = lambda store: Status.OK
        second = world.append(b"2")
        world.run()
        assert world.answer_to(second).status is Status.OK
        assert not world.is_answered(first)
        assert world.sequencer.last_released == compose_lsn(1, 1)
        for store in stores:
            world.reply(store)
        world.run()
        assert world.sequencer.last_released == compose_lsn(1, 3)


class TestDurability:
    def test_an_acknowledgement_promises_what_the_wave_asked_for_not_what_the_log_asks_since(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        world.answer = lambda store: None
        request = world.append()
        world.run()
        world.node.on_config(make_config(version=2, durability=Durability.SYNC), world.now)
        world.run()
        world.reply_to_held()
        assert world.answer_to(request).durability == Durability.ASYNC
        world.answer = lambda store: Status.OK
        later = world.append()
        world.run()
        assert world.answer_to(later).durability == Durability.SYNC

    def test_an_append_may_ask_for_a_sync_that_its_log_does_not_ask_for(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        plain = world.append()
        world.run()
        asking = world.append(flags=int(AppendFlags.SYNC))
        world.run()
        assert [store.flags for store in world.stores] == [0] * 3 + [StoreFlags.SYNC] * 3
        assert world.answer_to(plain).durability == Durability.ASYNC
        assert world.answer_to(asking).durability == Durability.SYNC

    def test_it_changes_nothing_for_a_log_that_syncs(self) -> None:
        world = active()
        plain = world.append()
        world.run()
        asking = world.append(flags=int(AppendFlags.SYNC))
        world.run()
        assert {store.flags for store in world.stores} == {StoreFlags.SYNC}
        assert world.answer_to(plain).durability == world.answer_to(asking).durability == Durability.SYNC

    def test_later_waves_ask_for_the_sync_too_with_and_without_the_body(self) -> None:
        world = active(config=make_config(durability=Durability.ASYNC))
        world.answer = lambda store: None
        request = world.append(flags=int(AppendFlags.SYNC))
        world.run()
        first, second, third = world.held_stores
        world.held_stores = []
        world.reply(first)
        world.reply(second)
        world.reply(third, Status.NOSPC)
        world.run()
        later = [store for store in world.stores if store.wave == 2]
        assert {parse_header(store.image).is_amend for store in later} == {True, False}
        assert {store.flags for store in later} == {StoreFlags.SYNC}
        world.reply_to_held()
        assert world.answer_to(request).durability == Durability.SYNC

    def test_it_is_kept_when_the_epoch_drains_and_when_the_log_changes(self) -> None:
        world = active(config=make_config(durability=Durability.SYNC))
        world.answer = lambda store: None
        request = world.append(flags=int(AppendFlags.SYNC))
        world.run()
        world.node.on_config(make_config(version=2, durability=Durability.ASYNC), world.now)
        world.sequencer.activate(world.now)
        world.run()
        world.reply(world.held_stores.pop(), Status.NOSPC)
        world.run()
        later = {store.flags for store in world.stores if store.wave == 2}
        assert later == {StoreFlags.SYNC | StoreFlags.DRAINING}
        world.reply_to_held()
        assert world.answer_to(request).durability == Durability.SYNC
