"""GET_SEQ_STATE: what it waits for, and that a tail is never older than what was acknowledged."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import pytest

from epoch_store.interface import ReadMetadata
from logdevice_py.core.ids import EVENT_LOG_SNAPSHOTS, LogId, NodeId, PeerId, shard_id
from logdevice_py.core.lsn import Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol.messages import CheckSeal, NodeState, SeqStateFlags
from sequencer import seq_state
from sequencer.seq_state import SeqStateService, WaitingSeqState
from sequencer.sequencer import SequencerPhase
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, World, active, make_config

TAIL = int(SeqStateFlags.TAIL)
WAIT = int(SeqStateFlags.WAIT_FOR_RECOVERY)
WIDEN = int(SeqStateFlags.WIDEN)
DONOR = PeerId(3)


class TestWiderNodesets:
    """A donor says that records of earlier epochs have no place in their nodeset."""

    def short_of_shards(self) -> World:
        """Epoch 1 was stored on the three shards that there were, one of which is lost since. Epoch 2 does without it."""
        config = make_config(5)
        *first, self.fourth, self.fifth = config.storage_shards()
        self.lost = first[0]
        world = World(replace(config, excluded=frozenset({self.fourth, self.fifth})))
        world.append()
        world.run()
        assert world.store.metadata[LOG].current.shards == tuple(first)
        config = replace(config, version=2, excluded=frozenset({self.lost}))
        world.node.on_config(config, world.now)
        world.run(1_000_000)
        metadata = world.store.metadata[LOG]
        assert (metadata.given_epoch, metadata.written, len(metadata.history)) == (2, True, 2)
        return world

    def test_an_epoch_makes_them_wider_and_the_donor_is_told_when_that_is_in_the_metadata_log(self) -> None:
        world = self.short_of_shards()
        written = len(world.metadata_stores)
        world.recoveries.held = True
        request = world.ask_state(WIDEN, peer=DONOR)
        world.run(1_000_000)
        first, second = world.store.metadata[LOG].history
        assert (first.widened, first.joined, self.lost in first.shards) == (3, (self.fourth, self.fifth), True)
        assert second.shards == first.shards[1:]
        assert len(world.metadata_stores) > written
        assert world.states == [], "the earlier epoch is not recovered yet"
        world.recoveries.finish(LOG, world.now)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).epoch) == (Status.OK, 3)

    def test_the_answer_waits_for_the_metadata_log(self) -> None:
        world = self.short_of_shards()
        request = world.ask_state(WIDEN, peer=DONOR)
        for node in (1, 2, 3):
            world.cluster.states[NodeId(node)] = NodeState.DEAD
        world.run(300_000)
        assert world.store.metadata[LOG].history[0].joined
        assert not world.store.metadata[LOG].written
        assert world.states == []
        for node in (1, 2, 3):
            world.cluster.states[NodeId(node)] = NodeState.ALIVE
        world.run(4_500_000)
        assert world.state_of(request).status is Status.OK

    def test_shards_that_joined_are_told_of_releases(self) -> None:
        world = self.short_of_shards()
        assert self.lost in world.sequencer.release_shards
        world.ask_state(WIDEN, peer=DONOR)
        world.run(1_000_000)
        assert {self.lost, self.fourth, self.fifth} < set(world.sequencer.release_shards)

    def test_nothing_is_changed_where_none_is_short_of_shards(self) -> None:
        world = self.short_of_shards()
        for _ in range(2):
            request = world.ask_state(WIDEN, peer=DONOR)
            world.run(2_000_000)
            assert (world.state_of(request).status, world.state_of(request).epoch) == (Status.OK, 3)

    def test_the_nodeset_of_the_current_epoch_is_not_widened(self) -> None:
        world = active(World(make_config(3)))
        world.node.on_config(replace(make_config(4, version=2), excluded=frozenset({shard_id(NodeId(0))})), world.now)
        world.store.silent = True
        request = world.ask_state(WIDEN, peer=DONOR)
        world.run(100_000)
        world.store.silent = False
        world.run(10_000_000)
        assert world.state_of(request).status in (Status.OK, Status.AGAIN)
        assert not world.store.metadata[LOG].current.joined

    def test_a_history_that_has_no_room_for_more_costs_no_epoch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sequencer.sequencer.JOINED_MAX", 1)
        world = self.short_of_shards()
        request = world.ask_state(WIDEN, peer=DONOR)
        world.run(1_000_000)
        assert (world.state_of(request).status, world.state_of(request).epoch) == (Status.OK, 2)

    def test_a_client_cannot_have_it_done(self) -> None:
        world = self.short_of_shards()
        request = world.ask_state(WIDEN)
        world.run(1_000_000)
        assert (world.state_of(request).status, world.state_of(request).epoch) == (Status.OK, 2)


class TestState:
    def test_it_activates_the_log(self) -> None:
        world = World()
        request = world.ask_state()
        world.run()
        state = world.state_of(request)
        assert (state.status, state.epoch, state.next_lsn) == (Status.OK, 1, compose_lsn(1, 1))

    def test_an_unknown_log_is_not_found(self) -> None:
        world = World()
        request = world.ask_state(log=LogId(5000))
        world.run()
        assert world.state_of(request).status is Status.NOTFOUND

    def test_a_minimal_epoch_makes_it_reactivate(self) -> None:
        world = active()
        request = world.ask_state(min_epoch=2)
        world.run()
        assert world.state_of(request).epoch == 2

    def test_an_epoch_that_was_never_given_costs_one_activation(self) -> None:
        world = active()
        request = world.ask_state(min_epoch=1000)
        world.run(6_000_000)
        assert world.state_of(request).status is Status.STALE
        assert world.sequencer.epoch == 2

    def test_waiting_for_recovery_ends_when_the_epoch_is_released(self) -> None:
        world = active()
        world.recoveries.held = True
        request = world.ask_state(WAIT, min_epoch=2)
        world.run(1_000_000)
        assert world.states == []
        world.recoveries.finish(LOG, world.now)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).last_released) == (Status.OK, compose_lsn(2, 0))

    def test_or_with_again_at_the_deadline(self) -> None:
        world = active()
        world.recoveries.held = True
        request = world.ask_state(WAIT, min_epoch=2)
        world.run(5_000_000)
        assert world.state_of(request).status is Status.AGAIN

    def test_the_tail_of_an_empty_epoch_is_that_of_recovery(self) -> None:
        world = active()
        world.recoveries.held = True
        request = world.ask_state(WAIT, min_epoch=2)
        world.run()
        world.recoveries.finish(LOG, world.now, tail=TailRecord(compose_lsn(1, 1), Timestamp(77)))
        world.run()
        state = world.state_of(request)
        assert (state.tail_lsn, state.tail_timestamp) == (compose_lsn(1, 1), 77)

    def test_preemption_ends_the_waiting(self) -> None:
        world = active()
        world.recoveries.held = True
        request = world.ask_state(WAIT, min_epoch=2)
        world.run()
        world.sequencer.on_sealed(world.store.take_over(LOG, NodeId(2)), NodeId(2), world.now)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).redirect) == (Status.PREEMPTED, 2)

    def test_who_waits_does_not_take_the_log_back_from_who_preempted_it(self) -> None:
        world = active()
        world.store.silent = True
        request = world.ask_state(min_epoch=2)
        world.run()
        assert world.sequencer.activation is not None
        world.sequencer.on_sealed(Epoch(1), NodeId(2), world.now)
        assert world.sequencer.activation is None
        world.run()
        assert world.state_of(request).status is Status.PREEMPTED

    def test_the_number_of_waiting_requests_is_bounded(self) -> None:
        world = World(settings=SequencerSettings(sequencer_state_waiters=2))
        world.store.silent = True
        requests = [world.ask_state() for _ in range(3)]
        world.run()
        assert world.state_of(requests[2]).status is Status.AGAIN

    def test_requests_for_logs_of_users_leave_room_for_those_for_the_event_log(self) -> None:
        config = replace(make_config(), settings={"rebuilding": {"enabled": True}})
        world = World(config, settings=SequencerSettings(sequencer_state_waiters=1))
        world.store.silent = True
        requests = [world.ask_state(), world.ask_state(), world.ask_state(log=EVENT_LOG_SNAPSHOTS)]
        refused = world.ask_state(log=EVENT_LOG_SNAPSHOTS)
        world.run()
        assert {state.request_id for state in world.states} == {requests[1], refused}, "that one waits"
        assert world.node.sequencers[EVENT_LOG_SNAPSHOTS].activation is not None


class CountedRequest(WaitingSeqState):
    """Counts how often anybody looks whether its time is over."""

    looks: ClassVar = 0

    @property
    def deadline(self) -> int:  # type: ignore[override]
        CountedRequest.looks += 1
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: int) -> None:
        self._deadline = deadline


class TestManyRequests:
    """Anybody may send thousands that wait: what each of them costs does not grow with the others."""

    def test_a_deadline_looks_at_what_is_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seq_state, "WaitingSeqState", CountedRequest)
        world = active()
        world.recoveries.held = True
        requests = []
        for _ in range(300):
            requests.append(world.ask_state(WAIT, min_epoch=2))
            world.run(1_000)
        CountedRequest.looks = 0
        world.run(5_000_000)
        assert [state.request_id for state in world.states] == requests
        assert {state.status for state in world.states} == {Status.AGAIN}
        assert CountedRequest.looks < 5 * len(requests)

    def test_appends_look_at_none_that_waits_for_an_epoch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = active()
        world.store.silent = True
        for _ in range(50):
            world.ask_state(min_epoch=2)
        world.run()
        looks = 0
        answer_if_ready = SeqStateService._answer_if_ready

        def count(*arguments: Any) -> bool:
            nonlocal looks
            looks += 1
            return answer_if_ready(*arguments)

        monkeypatch.setattr(SeqStateService, "_answer_if_ready", count)
        for _ in range(50):
            world.append(b"record")
            world.run()
        assert {answer.status for answer in world.answered} == {Status.OK}
        assert (world.states, looks) == ([], 0)

    def test_a_new_epoch_answers_some_in_each_turn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = active()
        world.store.silent = True
        requests = [world.ask_state(min_epoch=2) for _ in range(1200)]
        world.run()
        answers = [0]
        end_turn = world.node.on_turn_end

        def on_turn_end(now: Micros) -> None:
            end_turn(now)
            answers.append(len(world.states))

        monkeypatch.setattr(world.node, "on_turn_end", on_turn_end)
        world.store.silent = False
        for effect in world.store.held:
            world.node.on_epoch_store(effect.token, world.store.run(effect.operation), world.now)
        world.run(10)
        assert [state.request_id for state in world.states] == requests
        assert {state.status for state in world.states} == {Status.OK}
        assert max(after - before for before, after in pairwise(answers)) <= 500


class HeldSealChecks:
    """What the sequencer asks shards of seals stays unanswered until the test says so."""

    def __init__(self, world: World) -> None:
        self._reply = world._run_check_seal
        self.asked: list[tuple[PeerId, CheckSeal]] = []
        world._run_check_seal = lambda to, message: self.asked.append((to, message))  # type: ignore[method-assign]

    def answer(self, questions: list[tuple[PeerId, CheckSeal]]) -> None:
        """The shards answer these."""
        for question in questions:
            self._reply(*question)


def unconfirmed_tail() -> tuple[World, HeldSealChecks, int]:
    """While the epoch store is silent, somebody asks for the tail: a log that is active, what shards will be asked of seals, the request."""
    world = active()
    world.store.silent = True
    checks = HeldSealChecks(world)
    return world, checks, world.ask_state(TAIL)


class TestTail:
    def test_it_covers_everything_acknowledged_before(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append(b"slow")
        world.run()
        slow, world.held_stores = world.held_stores, []
        world.answer = lambda store: Status.OK
        acknowledged = world.append(b"quick")
        world.run()
        request = world.ask_state(TAIL)
        world.run()
        assert world.states == []
        for store in slow:
            world.reply(store)
        world.run()
        assert world.state_of(request).last_released >= world.answer_to(acknowledged).lsn

    def test_it_does_not_wait_for_what_nobody_was_told_of(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append(b"slow")
        world.run()
        request = world.ask_state(TAIL)
        world.run()
        assert world.state_of(request).last_released == compose_lsn(1, 1)

    def test_it_makes_sure_that_nobody_took_the_log_over(self) -> None:
        world = active()
        world.store.take_over(LOG, NodeId(2))
        request = world.ask_state(TAIL)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).redirect) == (Status.PREEMPTED, 2)
        assert world.sequencer.state is SequencerPhase.PREEMPTED

    def test_one_reading_serves_all_that_came_before_it(self) -> None:
        world = active()
        world.store.silent = True
        requests = [world.ask_state(TAIL) for _ in range(5)]
        world.run()
        assert len(world.store.held) == 1
        world.store.silent = False
        self.answer_held(world)
        readings = [operation for operation in world.store.operations if isinstance(operation, ReadMetadata)]
        assert len(readings) == 2  # the first came when only one request waited
        assert all(world.state_of(request).status is Status.OK for request in requests)

    def answer_held(self, world: World) -> None:
        held, world.store.held = world.store.held, []
        for effect in held:
            result = world.store.run(effect.operation)
            assert result is not None
            world.node.on_epoch_store(effect.token, result, world.now)
        world.run()

    def test_a_reading_sent_before_the_request_came_does_not_count(self) -> None:
        world = active()
        world.store.silent = True
        first = world.ask_state(TAIL)
        world.run()
        early = world.store.held[0]
        result = world.store.run(early.operation)
        second = world.ask_state(TAIL)
        world.store.take_over(LOG, NodeId(2))
        world.store.silent = False
        assert result is not None
        world.node.on_epoch_store(early.token, result, world.now)
        world.run()
        assert world.state_of(first).status is Status.OK
        assert world.state_of(second).status is Status.PREEMPTED

    def test_an_epoch_that_was_taken_for_the_request_needs_no_reading(self) -> None:
        world = World()
        request = world.ask_state(TAIL)
        world.run()
        assert world.state_of(request).status is Status.OK
        assert not [operation for operation in world.store.operations if isinstance(operation, ReadMetadata)]

    def test_an_epoch_asked_for_before_the_request_came_does_not_count(self) -> None:
        world = active()
        world.store.silent = True
        world.ask_state(TAIL, min_epoch=2)
        world.run()
        early = world.store.held[0]
        result = world.store.run(early.operation)
        late = world.ask_state(TAIL, min_epoch=2)
        world.store.take_over(LOG, NodeId(2))
        world.store.silent = False
        assert result is not None
        world.node.on_epoch_store(early.token, result, world.now)
        world.run()
        assert world.state_of(late).status is Status.PREEMPTED

    def test_shards_are_asked_when_the_epoch_store_is_silent(self) -> None:
        world = active()
        world.store.silent = True
        request = world.ask_state(TAIL)
        world.run(500_000)
        assert world.states == []
        world.run(1_000_000)
        assert world.state_of(request).status is Status.OK

    def test_and_when_it_answers_with_less_than_we_know(self) -> None:
        world = active()
        world.sequencer.activate(world.now)
        world.run(1_000_000)
        stored = world.store.metadata[LOG]
        world.store.metadata[LOG] = replace(stored, epoch=Epoch(stored.epoch - 1))
        world.store.operations.clear()
        request = world.ask_state(TAIL)
        world.run(6_000_000)
        assert world.state_of(request).status is Status.OK
        assert len(world.store.operations) == 1

    def test_the_seals_of_a_later_sequencer_end_it(self) -> None:
        world = active()
        world.store.silent = True
        world.seals = {shard_id(NodeId(node)): (1, 3) for node in (1, 2, 3)}
        request = world.ask_state(TAIL)
        world.run(2_000_000)
        assert (world.state_of(request).status, world.state_of(request).redirect) == (Status.PREEMPTED, 3)

    def test_what_shards_said_when_an_earlier_request_was_checked_does_not_count(self) -> None:
        world, checks, first = unconfirmed_tail()
        world.run(5_100_000)
        assert world.state_of(first).status is Status.AGAIN
        world.store.silent, world.store.failures = False, [Status.FAILED]
        early, checks.asked = checks.asked, []
        second = world.ask_state(TAIL)
        world.run()
        assert checks.asked
        checks.answer(early)
        world.run()
        assert not [state for state in world.states if state.request_id == second]
        world.seals = {shard_id(NodeId(node)): (1, 3) for node in range(4)}
        checks.answer(checks.asked)
        world.run()
        assert world.state_of(second).status is Status.PREEMPTED

    def test_what_shards_say_of_an_epoch_that_is_over_is_not_waited_out(self) -> None:
        world, checks, first = unconfirmed_tail()
        world.run(1_100_000)
        assert checks.asked
        world.store.held.clear()
        world.sequencer.activate(world.now)
        world.run()
        second = world.ask_state(TAIL)
        world.store.silent = False
        self.answer_held(world)
        assert world.state_of(first).epoch == 2
        checks.answer(checks.asked)
        world.run()
        assert world.state_of(second).status is Status.OK

    def test_shards_that_answer_when_the_log_was_deactivated_do_no_harm(self) -> None:
        world, checks, first = unconfirmed_tail()
        world.run(1_100_000)
        assert world.sequencer.deactivate(world.now)
        checks.answer(checks.asked)
        world.run()
        assert world.state_of(first).status is Status.NOSEQUENCER
        world.store.silent = False
        second = world.ask_state(TAIL)
        world.run(1_000_000)
        assert world.state_of(second).status is Status.OK

    def test_too_few_shards_prove_nothing(self) -> None:
        world = active()
        world.store.silent = True
        for node in (1, 2, 3):
            del world.cluster.states[NodeId(node)]
        request = world.ask_state(TAIL)
        world.run(6_000_000)
        assert world.state_of(request).status is Status.AGAIN

    def test_another_activation_makes_up_for_a_lost_answer(self) -> None:
        world = active()
        world.store.take_over(LOG, NodeId(0))
        request = world.ask_state(TAIL)
        world.run(1_000_000)
        assert world.state_of(request).status is Status.OK
        assert world.sequencer.epoch == 3


READER = int(SeqStateFlags.ONLY_READS)
INSISTS = READER | int(SeqStateFlags.NO_REDIRECT)


class TestThoseWhoOnlyRead:
    """Whoever may not append asks: `SeqStateFlags.ONLY_READS`."""

    def test_a_log_that_nobody_has_begins_for_them(self) -> None:
        world = World()
        request = world.ask_state(READER | TAIL)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).epoch) == (Status.OK, 1)

    def test_an_epoch_that_was_never_given_costs_none(self) -> None:
        world = active()
        requests = [world.ask_state(READER | flags, min_epoch=2) for flags in (0, WAIT, TAIL)]
        world.run(6_000_000)
        assert [world.state_of(request).status for request in requests] == [Status.STALE] * 3
        assert world.sequencer.epoch == 1

    def test_a_later_epoch_elsewhere_is_found(self) -> None:
        world = active()
        world.store.take_over(LOG, NodeId(2))
        request = world.ask_state(READER, min_epoch=2)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).redirect) == (Status.PREEMPTED, 2)

    def test_they_are_told_the_same_while_the_epoch_store_is_silent(self) -> None:
        world = active()
        world.store.silent = True
        request = world.ask_state(READER, min_epoch=2)
        world.run(2_000_000)
        assert world.state_of(request).status is Status.STALE, "no shard knows of a later one"
        assert world.sequencer.epoch == 1

    def elsewhere(self, last: int | None = 1) -> tuple[World, LogId]:
        """A log whose home is another node; which node had it last, None: nobody ever did."""
        config = make_config(sequencers=[0, 1, 2], logs=(1, 1000))
        world = World(config)
        may_sequence = world.cluster.may_sequence
        log = next(log for log in map(LogId, range(1, 1000)) if locate_sequencer(log, config, may_sequence) == 1)
        if last is not None:
            home = World(config, node=NodeId(1))
            home.ask_state(log=log)
            home.run()
            world.store.metadata[log] = home.store.metadata[log]
            world.store.take_over(log, NodeId(last))
        return world, log

    def test_they_take_no_log_from_the_node_that_has_it(self) -> None:
        world, log = self.elsewhere()
        for _ in range(3):
            request = world.ask_state(INSISTS, log=log)
            world.run(1_000_000)
            assert (world.state_of(request).status, world.state_of(request).redirect) == (Status.PREEMPTED, 1)
        assert world.store.metadata[log].given_epoch == 2
        assert log not in world.node.sequencers
        request = world.ask_state(int(SeqStateFlags.NO_REDIRECT), log=log)
        world.run()
        assert world.state_of(request).epoch == 3, "who may append does"

    def test_one_that_nobody_ever_had_begins_at_its_home(self) -> None:
        world, log = self.elsewhere(None)
        request = world.ask_state(INSISTS, log=log)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).redirect) == (Status.REDIRECTED, 1)
        assert log not in world.store.metadata

    @pytest.mark.parametrize("last", [0, 2])
    def test_one_whose_last_node_is_gone_or_was_started_again_begins_here(self, last: int) -> None:
        world, log = self.elsewhere(last)
        world.cluster.states[NodeId(2)] = NodeState.DEAD
        request = world.ask_state(INSISTS, log=log)
        world.run()
        assert (world.state_of(request).status, world.state_of(request).epoch) == (Status.OK, 3)
        again = world.ask_state(INSISTS, log=log)
        world.run()
        assert world.state_of(again).epoch == 3

    def test_while_it_is_not_known_who_has_it_they_wait(self) -> None:
        world, log = self.elsewhere()
        world.store.failures = [Status.AGAIN]
        request = world.ask_state(INSISTS, log=log)
        world.run()
        assert world.state_of(request).status is Status.AGAIN
