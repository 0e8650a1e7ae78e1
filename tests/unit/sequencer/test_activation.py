"""Getting epochs: provisioning, limits, failures of the epoch store, what happens to appends meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epoch_store.interface import ReadMetadata, UpdateMetadata
from logdevice_py.config.cluster import MetadataLogConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import body_of, parse_constituents
from logdevice_py.core.ids import EVENT_LOG_DELTAS, Generation, LogId, NodeId, PeerId, shard_id
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.metadata.epoch_metadata import HISTORY_LONG, HISTORY_MAX, EpochInterval, EpochMetaData
from logdevice_py.protocol.messages import AppendedFlags, Digest, Digested, DigestedRange, SeqStateFlags, Store
from sequencer.activation import ActivationState
from sequencer.epoch_sequencer import EpochSequencerState
from sequencer.sequencer import SequencerPhase
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, World, active, make_config


def shards_of_generation(generation: int) -> World:
    """A world whose shards lost their data, and hold what they stored since they had this generation."""
    world = World()
    answer = world._run_digest

    def digest(to: PeerId, message: Digest) -> None:
        (asked,) = message.ranges
        if asked.generation == generation:
            answer(to, message)
            return
        rows = [DigestedRange(asked.log, Status.REBUILDING, asked.last)]
        world.node.on_message(
            to,
            Digested(request_id=message.request_id, shard=message.shard, ranges=rows, entries=[], images=b""),
            world.now,
        )

    world._run_digest = digest  # type: ignore[method-assign,assignment]
    return world


class TestFirstActivation:
    def test_an_append_activates_the_log_and_is_stored_in_epoch_1(self) -> None:
        world = World()
        request = world.append(b"hello")
        world.run()
        answer = world.answer_to(request)
        assert (answer.status, answer.lsn, answer.batch_offset) == (Status.OK, compose_lsn(1, 1), 0)
        assert answer.timestamp == world.wall
        assert sorted(answer.copyset) == sorted(store.shard for store in world.stores)

    def test_why_the_epoch_store_was_of_no_use_can_be_seen_while_it_waits_to_ask_again(self) -> None:
        world = World()
        world.store.failures = [Status.CONNFAILED]
        request = world.append()
        world.run()
        activation = world.sequencer.activation
        assert activation is not None
        assert (activation.state, activation.failure) == (ActivationState.WAITING, Status.CONNFAILED)
        assert world.node.context.metrics.activation_failures == 1
        world.run(1_000_000)
        assert world.answer_to(request).status is Status.OK
        assert activation.state is ActivationState.DONE

    def test_it_reads_the_metadata_log_before_it_provisions(self) -> None:
        world = World()
        world.append()
        world.run()
        kinds = [type(operation) for operation in world.store.operations]
        assert kinds == [UpdateMetadata, UpdateMetadata, UpdateMetadata]
        assert {digest.shard for digest in world.messages(Digest)} == set(world.config.metadata_log.nodeset)
        assert world.store.metadata[LOG].written

    def test_a_log_whose_metadata_log_is_not_empty_is_not_provisioned(self) -> None:
        world = active()
        del world.store.metadata[LOG]
        again = World()
        again.metadata_stores = world.metadata_stores
        request = again.append()
        again.run()
        assert again.answer_to(request).status is Status.NOSEQUENCER
        assert again.sequencer.state is SequencerPhase.REFUSED
        assert LOG not in again.store.metadata

    def test_a_log_that_another_node_provisions_meanwhile_is_taken_from_there(self) -> None:
        """Between the epoch store's "nothing there" and the look at the metadata log."""
        other = active()
        world = World()
        world.store.failures = [Status.EMPTY]
        world.store.metadata = other.store.metadata
        world.metadata_stores = other.metadata_stores
        request = world.append()
        world.run()
        assert world.answer_to(request).lsn == compose_lsn(2, 1)
        assert world.sequencer.state is SequencerPhase.ACTIVE

    def test_a_connection_that_breaks_meanwhile_costs_a_retry(self) -> None:
        world = World()
        answer = world._run_digest
        world._run_digest = lambda to, digest: None  # type: ignore[method-assign]
        request = world.append()
        world.run()
        for node in range(4):
            world.node.on_peer_down(PeerId(node), world.now)
            world.node.on_peer_up(PeerId(node), world.now)
        world._run_digest = answer  # type: ignore[method-assign]
        world.run(3_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_a_metadata_log_that_moves_meanwhile_is_read_where_it_is(self) -> None:
        world = World(make_config(8))
        answer = world._run_digest
        metadata_log = world.config.metadata_log
        moved = MetadataLogConfig(metadata_log.nodeset[4:], metadata_log.replication)
        gone = metadata_log.nodeset[:4]
        world._run_digest = lambda to, digest: None if digest.shard in gone else answer(to, digest)  # type: ignore[method-assign]
        world.node.on_config(
            replace(world.config, version=2, metadata_log=MetadataLogConfig(gone, metadata_log.replication)), world.now
        )
        request = world.append()
        world.run(1_000_000)
        world.node.on_config(replace(world.config, version=3, metadata_log=moved), world.now)
        world.run(1_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_a_metadata_log_that_shards_have_lost_is_not_read_when_nobody_wants_the_log_any_more(self) -> None:
        world = World()
        answer = world._run_digest

        def lost(to: PeerId, digest: Digest) -> None:
            rows = [DigestedRange(each.log, Status.REBUILDING, each.last) for each in digest.ranges]
            world.node.on_message(
                to,
                Digested(request_id=digest.request_id, shard=digest.shard, ranges=rows, entries=[], images=b""),
                world.now,
            )

        world._run_digest = lost  # type: ignore[method-assign]
        request = world.append()
        world.run(12_000_000)
        assert world.answer_to(request).status is Status.NOSEQUENCER
        world.run(30_000_000)
        world.sent.clear()
        world.run(60_000_000)
        assert not world.messages(Digest)
        request = world.append()
        world.run(5_000_000)
        world._run_digest = answer  # type: ignore[method-assign]
        world.run(9_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_an_activation_that_takes_longer_than_appends_wait_ends_all_the_same(self) -> None:
        world = World(settings=SequencerSettings(activation_wait_us=100_000))
        answer, asked = world._run_digest, []
        world._run_digest = lambda to, digest: asked.append((to, digest))  # type: ignore[method-assign]
        for _ in range(3):
            request = world.append()
            world.run(150_000)
            assert world.answer_to(request).status is Status.NOSEQUENCER
        world._run_digest = answer  # type: ignore[method-assign]
        for to, digest in asked:
            answer(to, digest)
        world.run()
        assert world.sequencer.state is SequencerPhase.ACTIVE
        assert len(world.store.operations) == 3, "it was not begun anew"

    def test_an_activation_for_which_somebody_waits_again_goes_on(self) -> None:
        world = World(settings=SequencerSettings(activation_wait_us=100_000))
        answer = world._run_digest
        world._run_digest = lambda to, digest: None  # type: ignore[method-assign]
        world.append()
        world.run(30_050_000)
        request = world.append()
        world.run(60_000)
        activation = world.sequencer.activation
        assert activation is not None
        world._run_digest = answer  # type: ignore[method-assign]
        world.run(30_000)
        assert world.sequencer.activation is activation, "more than half a minute after the first one was refused"
        world.run(5_000_000)
        assert world.sequencer.state is SequencerPhase.ACTIVE
        assert world.answer_to(request).status is Status.NOSEQUENCER

    def test_a_log_that_has_an_epoch_gets_the_next_one_though_nobody_waits_any_more(self) -> None:
        world = active(settings=SequencerSettings(activation_wait_us=100_000))
        world.store.silent = True
        request = world.append(seen_epoch=2)
        world.run(60_000_000)
        assert world.answer_to(request).status is Status.NOSEQUENCER
        assert world.sequencer.activation is not None

    def test_a_log_is_provisioned_though_all_shards_of_the_metadata_nodeset_lost_their_data_once(self) -> None:
        world = shards_of_generation(2)
        for shard in world.config.metadata_log.nodeset:
            world.store.generations[shard] = Generation(2)
        request = world.append()
        world.run(10_000_000)
        assert world.answer_to(request).lsn == compose_lsn(1, 1)

    def test_an_epoch_store_that_knows_earlier_generations_was_set_back_and_provisions_nothing(self) -> None:
        world = shards_of_generation(3)
        for shard in world.config.metadata_log.nodeset:
            world.store.generations[shard] = Generation(2)
        request = world.append()
        world.run(30_000_000)
        assert world.answer_to(request).status is Status.NOSEQUENCER
        assert LOG not in world.store.metadata

    def test_an_epoch_store_that_knows_no_shard_was_wiped_and_provisions_nothing(self) -> None:
        world = shards_of_generation(2)
        request = world.append()
        world.run(30_000_000)
        assert world.answer_to(request).status is Status.NOSEQUENCER
        assert LOG not in world.store.metadata

    def test_an_epoch_store_that_does_not_say_which_generations_it_knows_is_asked_again(self) -> None:
        world = shards_of_generation(2)
        for shard in world.config.metadata_log.nodeset:
            world.store.generations[shard] = Generation(2)
        world.store.failures = [Status.EMPTY, *[Status.TIMEDOUT] * len(world.config.metadata_log.nodeset)]
        request = world.append()
        world.run(5_000)
        assert not world.store.failures
        assert not world.is_answered(request)
        world.run(9_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_the_nodeset_lists_the_generations_that_the_cluster_knows(self) -> None:
        world = World()
        world.cluster.generations[shard_id(NodeId(1))] = Generation(7)
        world.append()
        world.run()
        assert world.store.metadata[LOG].current.generation(shard_id(NodeId(1))) == 7

    def test_a_shard_of_unknown_generation_is_left_out_if_the_rest_can_replicate(self) -> None:
        world = World(settings=SequencerSettings(acquaintance_us=0))
        del world.cluster.generations[shard_id(NodeId(3))]
        world.append()
        world.run()
        assert shard_id(NodeId(3)) not in world.store.metadata[LOG].current.shards

    def test_the_first_nodeset_waits_for_shards_that_are_heard_of_soon(self) -> None:
        world = World()
        del world.cluster.generations[shard_id(NodeId(3))]
        request = world.append()
        world.run(1_000_000)
        assert LOG not in world.store.metadata
        world.cluster.generations[shard_id(NodeId(3))] = Generation(2)
        world.run(100_000)
        assert world.answer_to(request).status is Status.OK
        assert world.store.metadata[LOG].current.generation(shard_id(NodeId(3))) == 2

    def test_it_waits_once_and_not_for_ever(self) -> None:
        world = World(settings=SequencerSettings(acquaintance_us=500_000))
        del world.cluster.generations[shard_id(NodeId(3))]
        first = world.append()
        world.run(400_000)
        assert not world.is_answered(first)
        world.run(200_000)
        second = world.append(log=LogId(2))
        world.run()
        assert [world.answer_to(each).status for each in (first, second)] == [Status.OK] * 2

    def test_it_waits_until_enough_generations_are_known(self) -> None:
        world = World()
        del world.cluster.generations[shard_id(NodeId(3))]
        del world.cluster.generations[shard_id(NodeId(2))]
        request = world.append()
        world.run(1_000_000)
        assert LOG not in world.store.metadata
        world.cluster.generations[shard_id(NodeId(2))] = Generation(1)
        world.run(5_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_the_first_nodeset_waits_until_it_is_known_which_shards_are_drained(self) -> None:
        world = World(replace(make_config(), excluded_known=False))
        request = world.append()
        world.run(4_000_000)
        assert LOG not in world.store.metadata
        drained = shard_id(NodeId(3))
        world.node.on_config(replace(world.config, excluded=frozenset({drained}), excluded_known=True), world.now)
        world.run(100_000)
        assert world.answer_to(request).status is Status.OK
        assert drained not in world.store.metadata[LOG].current.shards

    def test_the_event_log_is_provisioned_before_that_is_known(self) -> None:
        rebuilding = {"rebuilding": {"enabled": True}}
        world = World(replace(make_config(), excluded_known=False, settings=rebuilding))
        request = world.append(log=EVENT_LOG_DELTAS)
        world.run(100_000)
        assert world.answer_to(request).status is Status.OK

    def test_stores_carry_the_generation_of_the_metadata(self) -> None:
        world = World(make_config(3))
        world.cluster.generations[shard_id(NodeId(0))] = Generation(5)
        world.append()
        world.run()
        generations = {store.shard: store.generation for store in world.stores}
        assert generations == {shard_id(NodeId(0)): 5, shard_id(NodeId(1)): 1, shard_id(NodeId(2)): 1}


class TestEpochStoreTrouble:
    def test_appends_wait_while_it_fails_and_go_on_when_it_answers(self) -> None:
        world = World()
        world.store.failures = [Status.AGAIN, Status.TIMEDOUT, Status.FAILED]
        request = world.append()
        world.run()
        assert not world.is_answered(request)
        world.run(3_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_appends_that_wait_too_long_get_nosequencer_and_are_not_applied(self) -> None:
        world = World()
        world.store.silent = True
        request = world.append()
        world.run(10_000_000)
        answer = world.answer_to(request)
        assert answer.status is Status.NOSEQUENCER
        assert answer.flags & AppendedFlags.NOT_REPLICATED
        world.run(30_000_000)
        assert world.sequencer.activation is None

    def test_a_late_answer_after_the_deadline_is_ignored(self) -> None:
        world = World()
        world.store.silent = True
        world.append()
        world.run(10_000_000)
        held = world.store.held[0]
        result = world.store.run(held.operation)
        assert result is not None
        world.node.on_epoch_store(held.token, result, world.now)
        world.run()
        assert world.sequencer.current is None

    def test_an_open_epoch_goes_on_while_the_epoch_store_is_down(self) -> None:
        world = active()
        world.store.silent = True
        world.sequencer.activate(world.now)
        request = world.append()
        world.run(60_000_000)
        assert world.answer_to(request).status is Status.OK

    def test_a_lost_answer_costs_an_epoch_and_nothing_else(self) -> None:
        world = active()
        world.store.lose_answers = 1
        world.sequencer.activate(world.now)
        world.run(5_000_000)
        assert world.sequencer.epoch == 3
        assert world.sequencer.state is SequencerPhase.ACTIVE


class TestReactivation:
    def test_no_more_than_the_limit_within_a_second(self) -> None:
        world = active(settings=SequencerSettings(reactivation_limit=2))
        start = world.now
        world.run(2_000_000)
        for _ in range(4):
            world.sequencer.activate(world.now)
            world.run()
        assert world.sequencer.epoch == 3
        world.run(1_000_000)
        assert world.sequencer.epoch == 4
        assert world.now > start

    def test_appends_continue_in_the_new_epoch_while_the_old_one_drains(self) -> None:
        world = active()
        world.answer = lambda store: None
        old = world.append(b"old")
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        world.answer = lambda store: Status.OK
        new = world.append(b"new")
        world.run()
        assert world.answer_to(new).lsn == compose_lsn(2, 1)
        assert not world.is_answered(old)
        assert world.recoveries.started == {}
        world.reply_to_held()
        assert world.answer_to(old).lsn == compose_lsn(1, 2)

    def test_recovery_starts_when_the_old_epoch_has_drained(self) -> None:
        world = active()
        world.recoveries.held = True
        world.answer = lambda store: None
        world.append(b"old")
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        assert world.recoveries.started == {}
        world.reply_to_held()
        assert world.recoveries.started[LOG][0] == 2

    def test_recovery_starts_anyway_after_the_drain_timeout(self) -> None:
        world = active()
        world.recoveries.held = True
        world.answer = lambda store: None
        world.append(b"old")
        world.run()
        world.sequencer.activate(world.now)
        world.run(1_900_000)
        assert world.recoveries.started == {}
        world.run(200_000)
        assert world.recoveries.started[LOG][0] == 2

    def test_a_second_reactivation_abandons_what_the_first_still_drains(self) -> None:
        world = active()
        world.answer = lambda store: None
        old = world.append(b"old")
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        middle = world.append(b"middle")
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        answer = world.answer_to(old)
        assert (answer.status, answer.redirect, answer.lsn) == (Status.PREEMPTED, 0, compose_lsn(1, 2))
        assert not answer.flags & AppendedFlags.NOT_REPLICATED
        assert not world.is_answered(middle)
        assert world.sequencer.draining is not None
        assert world.sequencer.draining.state is EpochSequencerState.DRAINING

    def test_stores_of_a_draining_epoch_say_so(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append(b"old")
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        world.run(600_000)
        later = [store for store in world.stores if store.wave > 1]
        assert later
        assert all(store.flags & 2 for store in later)

    def test_a_batch_that_is_open_when_the_epoch_changes_goes_into_the_old_one(self) -> None:
        world = active(config=make_config(batching_time_us=50_000))
        request = world.append(b"open")
        world.sequencer.activate(world.now)
        world.run(100_000)
        assert world.answer_to(request).lsn == compose_lsn(1, 2)
        assert world.sequencer.epoch == 2

    def test_esns_that_run_out_make_another_epoch(self) -> None:
        world = World(settings=SequencerSettings(esn_max=3))
        requests = []
        for _ in range(8):
            requests.append(world.append())
            world.run(1_000_000)
        lsns = [world.answer_to(request).lsn for request in requests]
        assert lsns == sorted(set(lsns))
        assert lsns[3] == compose_lsn(2, 1)
        assert lsns[6] == compose_lsn(3, 1)

    def test_what_recovery_overtakes_is_told_to_ask_again(self) -> None:
        world = active()
        world.answer = lambda store: None
        old = world.append(b"old")
        world.run()
        world.sequencer.activate(world.now)
        world.run(3_000_000)
        answer = world.answer_to(old)
        assert (answer.status, answer.redirect, answer.lsn) == (Status.PREEMPTED, 0, compose_lsn(1, 2))
        assert world.sequencer.draining is None

    def test_a_recovery_that_did_not_wait_for_the_old_epoch_is_not_begun_anew_when_that_is_done(self) -> None:
        world = active(settings=SequencerSettings(epoch_draining_timeout_us=100_000))
        world.recoveries.held = True
        world.answer = lambda store: None
        late = world.append()
        world.run()
        world.sequencer.activate(world.now)
        world.run(50_000)
        assert LOG not in world.recoveries.started
        world.run(100_000)
        begun = world.recoveries.started[LOG]
        world.answer = lambda store: Status.OK
        world.reply_to_held()
        assert world.answer_to(late).status is Status.OK
        assert world.sequencer.draining is None
        assert world.recoveries.started[LOG] is begun


class TestTakenOver:
    def test_a_reactivation_that_finds_a_later_epoch_is_a_preemption(self) -> None:
        world = active()
        world.store.take_over(LOG, NodeId(2))
        world.sequencer.activate(world.now)
        world.run()
        assert world.sequencer.state is SequencerPhase.PREEMPTED
        assert world.sequencer.preempted_by == 2

    def test_a_disabled_log_refuses_appends(self) -> None:
        world = World()
        world.store.failures = [Status.DISABLED]
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.NOSEQUENCER
        assert world.sequencer.state is SequencerPhase.UNAVAILABLE


class TestMetadataLog:
    def test_the_entry_is_epoch_esn_1_of_the_metadata_log_and_synced(self) -> None:
        world = World()
        world.append()
        world.run()
        assert {store.lsn for store in world.metadata_stores} == {compose_lsn(1, 1)}
        assert all(store.flags & 4 for store in world.metadata_stores)

    def test_nothing_is_released_before_it_is_written(self) -> None:
        world = World()
        real = world._run_store

        def without_metadata(store: Store) -> None:
            if store.log == LOG:
                real(store)
            else:
                world.metadata_stores.append(store)
                world.held_stores.append(store)

        world._run_store = without_metadata  # type: ignore[method-assign]
        request = world.append()
        world.run(100_000)
        assert world.answer_to(request).status is Status.OK
        assert world.sequencer.last_released == 0
        world.reply_to_held()
        assert world.sequencer.last_released == compose_lsn(1, 1)

    @pytest.mark.parametrize("by", ["an answer", "a broken connection", "silence"])
    def test_a_copy_that_is_lost_before_the_last_one_is_stored_is_stored_anew(self, by: str) -> None:
        """Else the record could be on two shards alone while the third, with another disk, has asked them already what it had."""
        world = World()
        answer, asked = world._run_digest, []

        def hold(to: PeerId, digest: Digest) -> None:
            if digest.ranges[0].last == digest.ranges[0].first == compose_lsn(1, 1):
                asked.append((to, digest))
            else:
                answer(to, digest)

        world._run_digest = hold  # type: ignore[method-assign]
        world.append()
        world.run(100_000)
        assert not world.sequencer.is_released
        copyset = [store.shard for store in world.metadata_stores]
        assert [digest.shard for _, digest in asked] == copyset
        assert all(digest.ranges[0].generation == 1 for _, digest in asked), "another generation has another disk"
        lost = asked.pop()
        for to, digest in asked:
            answer(to, digest)
        assert not world.sequencer.is_released
        world._run_digest = answer  # type: ignore[method-assign]
        if by == "an answer":
            world.metadata_stores.pop()
            answer(*lost)
        elif by == "a broken connection":
            world.node.on_peer_down(PeerId(lost[0]), world.now)
        else:
            world._run_digest = lambda to, digest: None  # type: ignore[method-assign]
            world.run(2_000_000)
            world._run_digest = answer  # type: ignore[method-assign]
        stored = len(world.metadata_stores)
        world.run(3_000_000)
        assert world.sequencer.is_released
        assert len(world.metadata_stores) == stored + len(copyset)

    def test_a_late_answer_is_as_good_and_where_all_are_late_the_record_is_written_all_the_same(self) -> None:
        world = World()
        answer, late = world._run_digest, []

        def delay(to: PeerId, digest: Digest) -> None:
            if digest.ranges[0].first == compose_lsn(1, 1):
                late.append((world.now + 700_000, to, digest))
            else:
                answer(to, digest)

        world._run_digest = delay  # type: ignore[method-assign]
        world.append()
        for _ in range(50):
            world.run(100_000)
            due = [each for each in late if each[0] <= world.now]
            late[:] = [each for each in late if each[0] > world.now]
            for _, to, digest in due:
                answer(to, digest)
        assert world.sequencer.is_released
        assert len(world.metadata_stores) == 3

    def test_a_shard_that_has_too_much_to_do_is_asked_again_whether_it_has_its_copy(self) -> None:
        world = World()
        answer = world._run_digest
        refused: list[Digest] = []

        def refuse(to: PeerId, digest: Digest) -> None:
            if digest.ranges[0].first == compose_lsn(1, 1) and not refused:
                refused.append(digest)
                asked = digest.ranges[0]
                ranges = [DigestedRange(asked.log, Status.OVERLOADED, Lsn(asked.first - 1))]
                message = Digested(
                    request_id=digest.request_id, shard=digest.shard, ranges=ranges, entries=[], images=b""
                )
                world.node.on_message(to, message, world.now)
            else:
                answer(to, digest)

        world._run_digest = refuse  # type: ignore[method-assign]
        world.append()
        world.run(100_000)
        assert refused
        assert not world.sequencer.is_released
        world.run(600_000)
        assert world.sequencer.is_released
        assert len(world.metadata_stores) == 3

    def test_the_mark_in_the_epoch_store_is_repeated_until_it_is_there(self) -> None:
        world = World()
        request = world.append()
        world.store.failures = [Status.EMPTY]
        world.run()
        assert world.answer_to(request).status is Status.OK
        world = World()
        world.append()
        original = world.store.run
        failures = [Status.AGAIN] * 4

        def run(operation: object) -> object:
            stored = world.store.metadata.get(LOG)
            if stored is not None and not stored.written and failures:
                world.store.failures = [failures.pop()]
            return original(operation)

        world.store.run = run  # type: ignore[method-assign,assignment]
        world.run(10_000_000)
        assert world.store.metadata[LOG].written
        assert world.sequencer.is_released

    def test_it_is_stored_again_when_readers_cannot_read_it_but_not_all_the_time(self) -> None:
        world = active()
        world.sequencer.activate(world.now)
        world.run(1_000_000)
        before = world.metadata_stores
        copies = len(before)
        for _ in range(3):
            request = world.ask_state(SeqStateFlags.STORE_METADATA)
            world.run(1_000_000)
            assert world.state_of(request).status is Status.OK
        again = before[copies:]
        assert len(again) == copies
        assert {store.lsn for store in again} == {compose_lsn(2, 1)}
        first, second = (
            EpochMetaData.decode(parse_constituents(body_of(store.image))[0].payload) for store in (before[0], again[0])
        )
        assert second.history == first.history
        assert world.store.metadata[LOG].given_epoch == 2
        world.run(30_000_000)
        world.ask_state(SeqStateFlags.STORE_METADATA)
        world.run(1_000_000)
        assert len(before) == 3 * copies
        assert world.sequencer.is_released

    def test_it_is_stored_again_when_shards_are_taken_out_of_the_nodeset_of_metadata_logs(self) -> None:
        config = make_config(5, nodeset_size=3)
        world = active(World(config))
        before = world.metadata_stores
        copies = len(before)
        shards = config.metadata_log.nodeset
        gone = before[0].shard
        rest = tuple(shard for shard in shards if shard != gone)
        moved = replace(config, version=2, metadata_log=replace(config.metadata_log, nodeset=rest))
        world.node.on_config(moved, world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 1
        assert {store.shard for store in before[copies:]} <= set(rest)
        assert len(before) == 2 * copies
        world.node.on_config(replace(config, version=3), world.now)
        world.run(1_000_000)
        assert len(before) == 2 * copies

    def test_an_epoch_without_changes_writes_no_metadata(self) -> None:
        world = active()
        written = len(world.metadata_stores)
        world.sequencer.activate(world.now)
        world.run(1_000_000)
        assert len(world.metadata_stores) == written
        assert world.sequencer.is_released


class TestNodesetChanges:
    def test_a_new_generation_of_a_shard_makes_a_new_epoch(self) -> None:
        world = active()
        world.cluster.generations[shard_id(NodeId(1))] = Generation(2)
        world.node.on_cluster_state(world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 2
        metadata = world.store.metadata[LOG]
        assert metadata.current.generation(shard_id(NodeId(1))) == 2
        assert len(metadata.history) == 2
        assert metadata.written

    def test_so_does_one_that_is_heard_of_while_an_epoch_is_being_got(self) -> None:
        world = active()
        world.store.silent = True
        world.sequencer.activate(world.now)
        world.run()
        world.cluster.generations[shard_id(NodeId(1))] = Generation(2)
        world.node.on_cluster_state(world.now)
        world.run(1_000_000)
        world.store.silent = False
        assert world.store.held
        for held in world.store.held:
            result = world.store.run(held.operation)
            assert result is not None
            world.node.on_epoch_store(held.token, result, world.now)
        world.run(1_000_000)
        assert world.store.metadata[LOG].current.generation(shard_id(NodeId(1))) == 2
        assert world.sequencer.epoch == 3

    def test_a_history_that_is_full_is_no_reason_for_one_epoch_after_the_other(self) -> None:
        world = active()
        world.store.metadata[LOG] = replace(
            world.store.metadata[LOG],
            epoch=Epoch(HISTORY_MAX + 2),
            history=tuple(
                replace(world.store.metadata[LOG].current, since=Epoch(since)) for since in range(1, HISTORY_MAX + 1)
            ),
        )
        world.cluster.generations[shard_id(NodeId(1))] = Generation(2)
        world.store.operations.clear()
        world.sequencer.activate(world.now)
        world.run(10_000_000)
        assert len(world.store.operations) <= 3

    def test_a_log_that_had_many_nodesets_is_told_of_once(self) -> None:
        world = active()

        def nodesets(count: int) -> None:
            stored = world.store.metadata[LOG]
            history = tuple(replace(stored.current, since=Epoch(since)) for since in range(1, count + 1))
            world.store.metadata[LOG] = replace(stored, epoch=Epoch(count + 2), history=history)
            world.sequencer.deactivate(world.now)
            world.append()
            world.run(10_000_000)

        nodesets(HISTORY_LONG - 1)
        assert not world.notices
        for generation in (2, 3, 4):
            world.cluster.generations[shard_id(NodeId(1))] = Generation(generation)
            world.node.on_cluster_state(world.now)
            world.run(10_000_000)
        assert len(world.store.metadata[LOG].history) == HISTORY_LONG + 2
        assert [notice.log for notice in world.notices] == [LOG]
        assert f"{HISTORY_LONG} nodesets" in world.notices[0].text

    def test_a_shard_that_is_not_heard_of_any_more_stays_in_the_nodeset(self) -> None:
        world = active()
        world.cluster.generations[shard_id(NodeId(1))] = Generation(0)
        world.node.on_cluster_state(world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 1

    def test_another_replication_makes_a_new_epoch(self) -> None:
        world = active()
        world.node.on_config(make_config(replicate="node:2", version=2), world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 2
        assert world.store.metadata[LOG].current.replication.copies == 2

    def test_other_racks_make_a_new_epoch_and_the_epoch_before_keeps_its_own(self) -> None:
        world = active(config=make_config(replicate="rack:2,node:3", racks="aabb"))
        assert world.store.metadata[LOG].current.labels == ((0, 0, 1, 1),)
        world.node.on_config(make_config(replicate="rack:2,node:3", racks="xyyy", version=2), world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 2
        history = world.store.metadata[LOG].history
        assert [(interval.since, interval.labels) for interval in history] == [
            (1, ((0, 0, 1, 1),)),
            (2, ((0, 1, 1, 1),)),
        ]

    def test_other_names_of_racks_make_no_epoch(self) -> None:
        world = active(config=make_config(replicate="rack:2,node:3", racks="aabb"))
        world.node.on_config(make_config(replicate="rack:2,node:3", racks="xxyy", version=2), world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 1

    def test_racks_mean_nothing_where_only_nodes_matter(self) -> None:
        world = active(config=make_config(racks="aabb"))
        world.node.on_config(make_config(racks="abbb", version=2), world.now)
        world.run(1_000_000)
        assert world.sequencer.epoch == 1

    def test_an_epoch_chooses_copysets_by_its_own_racks(self) -> None:
        world = active(config=make_config(replicate="rack:2", racks="aabb"))
        current = world.sequencer.current
        assert current is not None
        world.node.context.set_config(make_config(replicate="rack:2", racks="abab", version=2))
        for _ in range(50):
            copyset = current.pick_copyset(1, (), world.now)
            assert copyset is not None
            assert {shard >> 8 < 2 for shard in copyset} == {True, False}

    def test_epochs_of_an_older_version_get_the_racks_of_the_file(self) -> None:
        world = World(config=make_config(replicate="rack:2,node:3", racks="aabb"))
        nodeset = tuple((shard_id(NodeId(node)), Generation(1)) for node in range(4))
        old = EpochInterval(Epoch(1), nodeset, ReplicationProperty.parse("rack:2,node:3"), 1)
        world.store.metadata[LOG] = EpochMetaData(Epoch(4), (old,), True, False, NodeId(2))
        world.append()
        world.run(1_000_000)
        metadata = world.store.metadata[LOG]
        assert (metadata.given_epoch, metadata.history) == (4, (replace(old, labels=((0, 0, 1, 1),)),))
        assert metadata.written
        assert world.sequencer.epoch == 4

    def test_they_stay_without_as_long_as_a_node_has_an_older_file_than_they(self) -> None:
        world = World(config=make_config(replicate="rack:2,node:3", racks="aabb"))
        nodeset = tuple((shard_id(NodeId(node)), Generation(1)) for node in range(4))
        old = EpochInterval(Epoch(1), nodeset, ReplicationProperty.parse("rack:2,node:3"), 2)
        world.store.metadata[LOG] = EpochMetaData(Epoch(4), (old,), True, False, NodeId(2))
        world.append()
        world.run(1_000_000)
        assert world.sequencer.epoch == 4
        assert world.store.metadata[LOG].history == (old,)

    def test_a_new_node_joins_the_nodeset(self) -> None:
        world = active()
        world.cluster.states[NodeId(4)] = world.cluster.states[NodeId(0)]
        world.cluster.generations[shard_id(NodeId(4))] = Generation(1)
        world.node.on_config(make_config(5, version=2), world.now)
        world.run(1_000_000)
        assert shard_id(NodeId(4)) in world.store.metadata[LOG].current.shards

    def test_a_log_that_is_removed_is_deactivated(self) -> None:
        world = active()
        sequencer = world.sequencer
        world.answer = lambda store: None
        request = world.append()
        world.run()
        world.node.on_config(make_config(logs=(50, 60), version=2), world.now)
        world.run()
        assert world.answer_to(request).status is Status.ABORTED
        assert sequencer.state is SequencerPhase.UNAVAILABLE
        assert LOG not in world.node.sequencers
        late = world.append()
        world.run()
        assert world.answer_to(late).status is Status.NOTFOUND

    def test_nothing_is_begun_for_a_removed_log_although_somebody_waits_for_it(self) -> None:
        world = World()
        world.store.silent = True
        request = world.ask_state()
        world.run()
        sequencer = world.sequencer
        world.node.on_config(make_config(logs=(50, 60), version=2), world.now)
        world.run(100_000)
        assert sequencer.activation is None
        assert world.state_of(request).status is Status.NOTFOUND

    def test_a_sweep_over_many_logs_finds_all_that_are_gone(self) -> None:
        world = World(settings=SequencerSettings(configuration_logs=3))
        for log in range(1, 11):
            world.append(log=log)  # type: ignore[arg-type]
        world.run(1_000_000)
        world.node.on_config(make_config(logs=(8, 60), version=2), world.now)
        world.run()
        gone = world.append(log=LOG)
        world.run(500_000)
        assert world.answer_to(gone).status is Status.NOTFOUND
        assert sorted(world.node.sequencers) == [8, 9, 10]

    def test_logs_are_reactivated_a_few_at_a_time(self) -> None:
        world = World(make_config(logs=(1, 6)), settings=SequencerSettings(reconfiguration_logs=2))
        for log in range(1, 7):
            world.append(log=log)  # type: ignore[arg-type]
        world.run(1_000_000)
        world.node.on_config(make_config(logs=(1, 6), replicate="node:2", version=2), world.now)
        world.run(50_000)
        assert sum(sequencer.epoch == 2 for sequencer in world.node.sequencers.values()) == 2
        world.run(1_000_000)
        assert all(sequencer.epoch == 2 for sequencer in world.node.sequencers.values())
        read = {operation.log for operation in world.store.operations if isinstance(operation, ReadMetadata)}
        assert read.isdisjoint(range(1, 7))
