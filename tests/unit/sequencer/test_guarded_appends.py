"""Guarded appends at a sequencer: what they wait for, how they are judged, acknowledged, repeated and recovered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from epoch_store.interface import LastCleanEpoch
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.extensions import Condition, TailFlags, TailState, parse_extensions
from logdevice_py.core.ids import EVENT_LOG_DELTAS, NodeId, PeerId
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from logdevice_py.protocol.messages import (
    OFFSET_UNKNOWN,
    Appended,
    AppendedFlags,
    AppendFlags,
    GuardFlags,
    NodeState,
    Store,
)
from sequencer.recovery.result import EpochContents
from sequencer.sequencer import Sequencer
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, ME, World, make_config
from tests.unit.sequencer.test_recovery_handoff import RecoveringWorld

RAISE, END, ACCEPT_LOSS = GuardFlags.RAISE, GuardFlags.END, GuardFlags.ACCEPT_LOSS


def position(answer: Appended) -> tuple[int, int]:
    return answer.lsn, answer.batch_offset


def guarded(world: World | None = None) -> World:
    """A world whose log is guarded from epoch 1 on, with one record."""
    world = world or RecoveringWorld()
    first = world.guarded_append(b"first", expect=(0, 0))
    world.run(1_000_000)
    assert world.answer_to(first).status is Status.OK
    assert world.store.metadata[LOG].guarded_since == 1
    return world


def get_epoch_anew(world: World) -> None:
    """The node ends its epoch of the log and takes it again: it does not go on behind the epoch that it had."""
    assert world.sequencer.deactivate(world.now)
    world.sequencer.activate(world.now)
    world.run()


def outcome(world: World, request: int) -> tuple[Status, bool]:
    """The status, and whether the append is certainly not applied."""
    answer = world.answer_to(request)
    return answer.status, bool(answer.flags & AppendedFlags.NOT_REPLICATED)


def now(world: World, **guard: Any) -> Appended:
    request = world.guarded_append(**guard)
    world.run()
    return world.answer_to(request)


class TestInternalLogs:
    @pytest.mark.parametrize("guard", [{"guards": END}, {"guards": RAISE, "token": 2**62}, {"transaction": 2**62}])
    def test_nobody_guards_a_log_of_the_cluster_itself(self, guard: dict[str, Any]) -> None:
        world = World(replace(make_config(), settings={"rebuilding": {"enabled": True}}))
        request = world.guarded_append(log=EVENT_LOG_DELTAS, **guard)
        world.run(1_000_000)
        assert outcome(world, request) == (Status.INVALID_PARAM, True)
        plain = world.append(log=EVENT_LOG_DELTAS)
        world.run(1_000_000)
        assert world.answer_to(plain).status is Status.OK


class TestBecomingGuarded:
    def test_the_first_guard_takes_another_epoch_which_says_so_for_ever(self) -> None:
        world = RecoveringWorld()
        before = [world.append(b"a"), world.append(b"b")]
        world.run(1_000_000)
        last = position(world.answer_to(before[-1]))
        request = world.guarded_append(expect=last)
        world.run(1_000_000)
        assert world.answer_to(request).status is Status.OK
        assert world.answer_to(request).lsn >> 32 == 2
        assert world.store.metadata[LOG].guarded_since == 2
        world.sequencer.activate(world.now)
        world.run(1_000_000)
        assert (world.sequencer.epoch, world.store.metadata[LOG].guarded_since) == (3, 2)

    def test_logs_that_nobody_guards_keep_their_bytes(self) -> None:
        world = World()
        world.append()
        world.run(1_000_000)
        assert {store.image[0] for store in world.stores} == {1}
        assert not world.store.metadata[LOG].guarded_since

    def test_a_guard_that_arrives_during_an_activation_is_served_by_the_one_after_it(self) -> None:
        world = World()
        world.store.silent = True
        plain = world.append()
        world.run()
        request = world.guarded_append(expect=(0, 0))
        world.run()
        world.store.silent = False
        assert world.store.held
        for held in world.store.held:
            result = world.store.run(held.operation)
            assert result is not None
            world.node.on_epoch_store(held.token, result, world.now)
        world.run(2_000_000)
        assert world.answer_to(plain).status is Status.OK
        assert world.answer_to(request).status is Status.CONFLICT
        assert world.store.metadata[LOG].guarded_since > 0


class TestWaiting:
    def test_nothing_gets_an_lsn_before_the_earlier_epochs_are_recovered(self) -> None:
        world = World()
        world.recoveries.held = True
        requests = [world.guarded_append(expect=(0, 0))]
        world.run()
        get_epoch_anew(world)
        assert world.sequencer.epoch == 2
        requests += [world.append(b"plain"), world.stream_append(1, epoch=2, resume=True)]
        world.run()
        assert {store.lsn >> 32 for store in world.stores} == {1}
        tail = TailRecord(Lsn(compose_lsn(1, 1)), Timestamp(5), 1, TailState())
        world.recoveries.finish(LOG, world.now, tail=tail, epochs=())
        world.run()
        assert [world.answer_to(request).status for request in requests] == [Status.OK] * 3
        assert [world.answer_to(request).lsn for request in requests[1:]] == [compose_lsn(2, 1), compose_lsn(2, 2)]

    def test_what_waits_is_bounded_and_certainly_not_applied(self) -> None:
        world = World(settings=SequencerSettings(append_buffer_frames=2))
        world.recoveries.held = True
        world.guarded_append(expect=(0, 0))
        world.run()
        get_epoch_anew(world)
        requests = [world.append() for _ in range(3)]
        world.run()
        assert outcome(world, requests[2]) == (Status.SEQNOBUFS, True)
        world.store.take_over()
        world.sequencer.on_sealed(Epoch(2), world.node.node, world.now)
        world.run()
        assert outcome(world, requests[0])[0] is Status.PREEMPTED
        assert outcome(world, requests[0])[1]

    def test_a_fence_of_an_earlier_epoch_holds_for_the_first_append_of_the_next(self) -> None:
        world = guarded()
        assert now(world, token=5, guards=RAISE).status is Status.OK
        world.sequencer.activate(world.now)
        world.run()
        plain = world.append()
        world.run(2_000_000)
        assert world.sequencer.epoch == 2
        assert (world.answer_to(plain).status, world.answer_to(plain).there) == (Status.FENCED, 5)


class TestGoingOn:
    """Behind an epoch of the same node of which all is stored, nothing waits for its recovery."""

    def _rolled(self, world: World) -> None:
        world.recoveries.held = True
        world.node.context.recoveries = world.recoveries
        world.sequencer.activate(world.now)
        world.run()
        assert world.sequencer.epoch == 2

    def test_appends_are_judged_at_once(self) -> None:
        world = guarded()
        assert now(world, token=5, guards=RAISE).status is Status.OK
        last = now(world, token=5, transaction=7)
        self._rolled(world)
        assert world.sequencer.recovered is None
        lower, low = now(world, token=4), now(world, token=5, transaction=6)
        assert (lower.status, lower.there) == (Status.FENCED, 5)
        assert (low.status, low.there) == (Status.TRANSACTION_ID_TOO_LOW, 7)
        first = now(world, token=5, expect=position(last))
        assert (first.status, position(first)) == (Status.OK, (compose_lsn(2, 1), 0))
        header, _ = world.entries()[compose_lsn(2, 1)]
        assert parse_extensions(header.extensions).tail == TailState(7, 5)

    def test_recovery_does_not_set_the_state_back(self) -> None:
        world = guarded()
        self._rolled(world)
        assert now(world, token=5, guards=RAISE).status is Status.OK
        world.recoveries.finish(LOG, world.now, tail=TailRecord(Lsn(compose_lsn(1, 1)), Timestamp(5), 1, TailState()))
        world.run()
        assert now(world, token=4).status is Status.FENCED
        assert now(world, token=5, expect=(compose_lsn(2, 1), 0)).status is Status.OK

    def test_a_conditional_append_of_the_epoch_before_is_known_when_it_is_repeated(self) -> None:
        world = guarded()
        first = now(world, expect=(compose_lsn(1, 1), 0), append_id=77)
        self._rolled(world)
        again = now(world, expect=(compose_lsn(1, 1), 0), append_id=77)
        assert (again.status, position(again)) == (Status.OK, position(first))

    def test_they_wait_until_the_rest_of_the_epoch_before_is_stored(self) -> None:
        world = guarded()
        slow: list[Store] = []
        world.answer = lambda store: slow.append(store) if store.lsn == compose_lsn(1, 2) else Status.OK  # type: ignore[func-returns-value]
        last = world.append(b"slow")
        world.run()
        self._rolled(world)
        request = world.guarded_append(expect=(compose_lsn(1, 2), 0))
        world.run()
        assert not world.is_answered(request)
        for store in slow:
            world.reply(store)
        world.run()
        assert world.answer_to(last).status is world.answer_to(request).status is Status.OK
        assert world.sequencer.recovered is None

    def _behind_a_hole(self) -> tuple[Status, bool]:
        """What becomes of an append that expects the last entry of the epoch before, of which recovery makes a hole; whether it did."""
        world = guarded()
        world.answer = lambda store: None if store.lsn == compose_lsn(1, 2) else Status.OK
        world.append(b"nowhere")
        world.run()
        world.guarded_append(b"behind it", expect=(compose_lsn(1, 2), 0))
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        request = world.guarded_append(b"behind both", expect=(compose_lsn(1, 3), 0))
        world.run(120_000_000)
        at = compose_lsn(1, 3)
        kept = [images[at] for images in world.kept.values() if at in images]  # type: ignore[attr-defined]
        return world.answer_to(request).status, all(parse_header(image).is_hole for image in kept)

    def test_nobody_follows_an_entry_that_becomes_a_hole(self) -> None:
        assert self._behind_a_hole() == (Status.CONFLICT, True)

    def test_who_goes_on_behind_what_is_not_stored_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        take = Sequencer.on_epoch_taken

        def undrained(self: Sequencer, *arguments: Any) -> None:
            take(self, *arguments)
            self.tail = self.tail or self._tail_of_draining

        monkeypatch.setattr(Sequencer, "on_epoch_taken", undrained)
        assert self._behind_a_hole() == (Status.OK, True)

    @pytest.mark.parametrize("stored_late", [False, True])
    def test_they_wait_for_recovery_when_something_of_it_is_not_stored_in_time(self, stored_late: bool) -> None:
        world = guarded()
        slow: list[Store] = []
        world.answer = lambda store: slow.append(store) if store.lsn == compose_lsn(1, 2) else Status.OK  # type: ignore[func-returns-value]
        world.append(b"slow")
        world.run()
        self._rolled(world)
        request = world.guarded_append(expect=(compose_lsn(1, 1), 0))
        world.run(world.node.context.settings.epoch_draining_timeout_us + 1)
        if stored_late:  # recovery may have decided already
            for store in slow:
                world.reply(store)
            world.run()
        assert not world.is_answered(request)
        world.recoveries.finish(LOG, world.now, tail=TailRecord(Lsn(compose_lsn(1, 1)), Timestamp(5), 1, TailState()))
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_they_wait_for_recovery_when_another_node_had_an_epoch_between(self) -> None:
        world = guarded()
        before = world.sequencer.current
        world.recoveries.held = True
        world.node.context.recoveries = world.recoveries
        metadata = replace(world.store.metadata[LOG], epoch=Epoch(4))
        world.sequencer.on_epoch_taken(metadata, 0, world.now)
        assert before is not world.sequencer.current
        request = world.guarded_append(expect=(compose_lsn(1, 1), 0))
        world.run()
        assert world.sequencer.epoch == 3
        assert not world.is_answered(request)

    def test_nor_do_they_go_on_where_the_state_was_not_known(self) -> None:
        world = guarded()
        world.recoveries.held = True
        world.node.context.recoveries = world.recoveries
        get_epoch_anew(world)
        epoch = world.sequencer.epoch
        request = world.guarded_append(expect=(compose_lsn(1, 1), 0))
        world.sequencer.activate(world.now)
        world.run()
        assert (epoch, world.sequencer.epoch) == (2, 3)
        assert not world.is_answered(request)


class TestGuards:
    def test_expect_is_the_position_of_the_last_record(self) -> None:
        world = guarded()
        several = [world.append(b"a"), world.append(b"b")]
        world.run()
        last = position(world.answer_to(several[1]))
        assert last[1] == 1
        conflict = now(world, expect=(last[0], 0))
        assert (conflict.status, position(conflict)) == (Status.CONFLICT, last)
        assert conflict.flags & AppendedFlags.NOT_REPLICATED
        right = now(world, expect=last)
        assert right.status is Status.OK
        assert now(world, expect=last).status is Status.CONFLICT
        assert now(world, expect=position(right)).status is Status.OK

    def test_of_contenders_in_one_turn_one_wins(self) -> None:
        world = guarded()
        requests = [world.guarded_append(expect=(compose_lsn(1, 1), 0)) for _ in range(10)]
        world.run()
        statuses = [world.answer_to(request).status for request in requests]
        assert statuses == [Status.OK] + [Status.CONFLICT] * 9

    def test_what_waits_in_the_open_batch_counts(self) -> None:
        world = guarded()
        plain = world.append(b"in the batch")
        conflict = world.guarded_append(expect=(compose_lsn(1, 1), 0))
        world.run()
        assert world.answer_to(conflict).status is Status.CONFLICT
        assert position(world.answer_to(conflict)) == position(world.answer_to(plain))

    def test_transaction_ids_never_fall_and_share_entries(self) -> None:
        world = guarded()
        requests = [world.guarded_append(transaction=each) for each in (5, 5, (6, 9), 8, 9)]
        world.run()
        answers = [world.answer_to(request) for request in requests]
        low = Status.TRANSACTION_ID_TOO_LOW
        assert [answer.status for answer in answers] == [Status.OK, Status.OK, Status.OK, low, Status.OK]
        assert answers[3].there == 9
        assert len({answer.lsn for answer in answers if answer.status is Status.OK}) == 1
        header, _ = world.entries()[answers[0].lsn]
        assert parse_extensions(header.extensions).tail == TailState(9)
        plain = world.append(b"has none")
        world.run()
        assert world.answer_to(plain).status is Status.OK

    def test_a_fence_refuses_lower_and_missing_tokens(self) -> None:
        world = guarded()
        assert now(world, token=3).status is Status.OK, "there is no fence yet"
        control = now(world, payload=b"", records=0, token=3, guards=RAISE)
        assert control.status is Status.OK
        header, parts = world.entries()[control.lsn]
        assert (header.records, parts) == (0, [])
        assert header.flags & EntryFlags.CONTROL
        plain = world.append()
        world.run()
        assert (world.answer_to(plain).status, world.answer_to(plain).there) == (Status.FENCED, 3)
        assert now(world, token=2).status is Status.FENCED
        assert now(world, token=3).status is Status.OK
        assert now(world, token=4).status is Status.OK, "a higher one does not raise it"
        assert now(world, token=3).status is Status.OK
        assert now(world, token=3, guards=RAISE).status is Status.FENCED
        assert now(world, token=9, guards=RAISE).status is Status.OK
        assert now(world, token=8).there == 9
        assert now(world, expect=(0, 0)).status is Status.FENCED, "the token is judged first"

    def test_nothing_follows_the_end(self) -> None:
        world = guarded()
        end = now(world, payload=b"last words", guards=END)
        assert end.status is Status.OK
        for guard in ({"token": 9, "guards": RAISE}, {"transaction": 7}, {"expect": position(end)}, {"guards": END}):
            refused = now(world, **guard)
            assert (refused.status, position(refused)) == (Status.ENDED, position(end))
        plain = world.append()
        world.run()
        assert world.answer_to(plain).status is Status.ENDED

    @pytest.mark.parametrize(
        "case",
        [
            {"guards": GuardFlags(64), "transaction": 1},
            {"guards": GuardFlags.NONE},
            {"transaction": 0},
            {"transaction": (5, 4)},
            {"transaction": 2**63},
            {"guards": RAISE},
            {"guards": ACCEPT_LOSS, "token": 5},
            {"token": 0},
            {"transaction": 5, "records": 0, "payload": b""},
            {"guards": END, "records": 0, "payload": b"x"},
            {"guards": END, "records": 0, "payload": b"", "flags": AppendFlags.BATCH},
        ],
    )
    def test_guards_that_do_not_go_together_are_refused(self, case: dict[str, Any]) -> None:
        world = guarded()
        assert now(world, **case).status is Status.INVALID_PARAM

    def test_frames_that_get_no_lsn_leave_no_trace(self) -> None:
        world = guarded(RecoveringWorld(config=make_config(max_writes_in_flight=2)))
        silent: list[Store] = []
        world.answer = lambda store: silent.append(store)
        taken = [world.guarded_append(transaction=3)]
        world.run()
        taken.append(world.guarded_append(transaction=4))
        world.run()
        refused = [world.guarded_append(transaction=7), world.guarded_append(transaction=8)]
        world.run()
        assert {world.answer_to(each).status for each in refused} == {Status.SEQNOBUFS}
        fence = world.guarded_append(token=7, guards=RAISE)
        world.run()
        assert world.answer_to(fence).status is Status.SEQNOBUFS
        world.answer = lambda store: Status.OK
        for store in silent:
            world.reply(store)
        world.run()
        assert [world.answer_to(each).status for each in taken] == [Status.OK] * 2
        assert now(world, transaction=4).status is Status.OK
        tail = world.sequencer.tail
        assert tail is not None
        assert (tail.state.transaction, tail.state.fence) == (4, 0)

    @pytest.mark.parametrize(
        "case",
        [
            {"payload": encode_batch([bytes(80)] * 2), "flags": int(AppendFlags.BATCH), "records": 2},
            {"payload": bytes(90)},
        ],
        ids=["goes alone", "does not fit"],
    )
    def test_an_entry_tells_of_no_frame_that_comes_behind_it(self, case: dict[str, Any]) -> None:
        world = guarded(RecoveringWorld(config=make_config(batching_passthrough_bytes=100, max_payload_bytes=170)))
        before = world.guarded_append(bytes(90), transaction=5)
        behind = world.guarded_append(transaction=(6, 9), **case)
        world.run()
        first, second = (world.answer_to(each).lsn for each in (before, behind))
        assert first < second
        assert [parse_extensions(world.entries()[lsn][0].extensions).tail for lsn in (first, second)] == [
            TailState(5),
            TailState(9),
        ]

    def test_a_large_frame_that_gets_no_lsn_behind_an_open_batch_may_be_repeated(self) -> None:
        world = guarded(RecoveringWorld(config=make_config(batching_passthrough_bytes=100, max_writes_in_flight=1)))
        silent: list[Store] = []
        world.answer = lambda store: silent.append(store)
        before = world.guarded_append(b"a", transaction=5)
        refused = world.guarded_append(bytes(200), transaction=9)
        world.run()
        assert outcome(world, refused) == (Status.SEQNOBUFS, True)
        world.answer = lambda store: Status.OK
        for store in silent:
            world.reply(store)
        world.run()
        assert world.answer_to(before).status is Status.OK
        assert now(world, transaction=7).status is Status.OK

    def test_a_frame_that_cannot_be_opened_leaves_no_trace(self) -> None:
        world = guarded(RecoveringWorld(config=make_config(sequencer_batching=False)))
        junk = now(world, payload=b"junk", flags=int(AppendFlags.BATCH), records=2, transaction=9)
        assert junk.status is Status.BADPAYLOAD
        assert now(world, transaction=5).status is Status.OK


class TestAcknowledgement:
    def test_a_conditional_append_is_acknowledged_when_all_before_it_is_stored(self) -> None:
        world = guarded()
        slow: list[Store] = []
        world.answer = lambda store: slow.append(store) if store.lsn == compose_lsn(1, 2) else Status.OK  # type: ignore[func-returns-value]
        first = world.append(b"slow")
        world.run()
        second = world.guarded_append(b"after it", expect=(compose_lsn(1, 2), 0))
        plain = world.append(b"does not care")
        world.run()
        assert world.is_answered(plain)
        assert not world.is_answered(second)
        for store in slow:
            world.reply(store)
        world.run()
        assert world.answer_to(first).status is world.answer_to(second).status is Status.OK
        header, _ = world.entries()[compose_lsn(1, 3)]
        assert header.flags & EntryFlags.CONDITIONAL
        assert parse_extensions(header.extensions).condition == Condition(second, Lsn(compose_lsn(1, 2)), 0)

    def test_behind_an_entry_that_was_never_stored_recovery_makes_a_hole_of_it(self) -> None:
        world = guarded()
        world.answer = lambda store: None if store.lsn == compose_lsn(1, 2) else Status.OK
        lost = world.append(b"nowhere")
        world.run()
        conditional = world.guarded_append(b"behind it", expect=(compose_lsn(1, 2), 0))
        plain = world.append(b"kept")
        world.run()
        world.sequencer.activate(world.now)
        world.run(120_000_000)
        world.answer = lambda store: Status.OK
        assert world.answer_to(lost).status is not Status.OK
        assert world.answer_to(conditional).status is not Status.OK
        assert world.answer_to(plain).status is Status.OK
        at = compose_lsn(1, 3)
        kept = [images[at] for images in world.kept.values() if at in images]  # type: ignore[attr-defined]
        assert [parse_header(image).is_hole for image in kept] == [True] * len(kept)
        assert kept
        assert now(world, expect=position(world.answer_to(plain))).status is Status.OK


class TestEndOfTurn:
    """What a conditional append is answered that is no entry yet when something else happens in that turn."""

    def test_it_is_refused_when_another_node_takes_the_log(self) -> None:
        world = guarded()
        fence = world.guarded_append(token=7, guards=RAISE)
        world.sequencer.on_sealed(world.store.take_over(LOG, NodeId(2)), NodeId(2), world.now)
        world.run()
        assert outcome(world, fence) == (Status.PREEMPTED, True)
        assert world.answer_to(fence).redirect == 2
        assert len(world.entries()) == 1

    def test_the_log_is_kept_until_it_is_an_entry(self) -> None:
        world = guarded()
        end = world.guarded_append(guards=END)
        assert not world.sequencer.deactivate(world.now)
        world.run()
        assert outcome(world, end) == (Status.OK, False)

    def test_it_becomes_an_entry_before_this_node_leaves(self) -> None:
        world = guarded()
        end = world.guarded_append(guards=END)
        world.cluster.states[ME] = NodeState.LEAVING
        world.node.on_cluster_state(world.now)
        assert world.sequencer.open_batch is None
        world.run()
        assert outcome(world, end) == (Status.OK, False)

    def test_frames_behind_it_wait_for_others_as_long_as_ever(self) -> None:
        world = guarded(RecoveringWorld(config=make_config(batching_time_us=50_000)))
        conditional = world.guarded_append(expect=(compose_lsn(1, 1), 0))
        plain = world.append(b"may be joined")
        world.run(40_000)
        assert world.answer_to(conditional).status is Status.OK
        joined = world.append(b"joins it")
        world.run(10_000)
        assert position(world.answer_to(plain)) == (compose_lsn(1, 3), 0)
        assert position(world.answer_to(joined)) == (compose_lsn(1, 3), 1)


class TestRepetition:
    def test_what_comes_in_the_same_turn_has_an_entry_of_its_own(self) -> None:
        world = guarded()
        conditional = world.guarded_append(expect=(compose_lsn(1, 1), 0), append_id=77)
        plain = world.append(b"behind it")
        world.run()
        assert position(world.answer_to(conditional)) == (compose_lsn(1, 2), 0)
        assert position(world.answer_to(plain)) == (compose_lsn(1, 3), 0)

    def test_a_repeated_append_is_answered_as_the_first_try(self) -> None:
        world = guarded()
        first = world.guarded_append(expect=(compose_lsn(1, 1), 0), append_id=77)
        again = world.guarded_append(expect=(compose_lsn(1, 1), 0), append_id=77, peer=PeerId(-2))
        world.run()
        later = now(world, expect=(compose_lsn(1, 1), 0), append_id=77)
        assert position(world.answer_to(first)) == position(world.answer_to(again)) == position(later)
        assert {world.answer_to(first).status, world.answer_to(again).status, later.status} == {Status.OK}
        assert len(world.entries()) == 2

    def test_a_repetition_waits_for_the_first_try(self) -> None:
        world = guarded()
        world.answer = lambda store: None
        first = world.guarded_append(guards=END, append_id=77)
        world.run()
        again = world.guarded_append(guards=END, append_id=77)
        world.run()
        assert not world.is_answered(first)
        assert not world.is_answered(again)
        for store in [store for store in world.stores if store.lsn == compose_lsn(1, 2)]:
            world.reply(store)
        world.run()
        assert position(world.answer_to(first)) == position(world.answer_to(again)) == (compose_lsn(1, 2), 0)

    @pytest.mark.parametrize(
        "guard", [{"expect": (compose_lsn(1, 1), 0)}, {"token": 4, "guards": RAISE}, {"guards": END}]
    )
    def test_the_next_sequencer_knows_the_last_of_the_epoch_before(self, guard: dict[str, Any]) -> None:
        world = guarded()
        first = now(world, append_id=77, **guard)
        assert first.status is Status.OK
        world.sequencer.activate(world.now)
        world.run(2_000_000)
        again = now(world, append_id=77, **guard)
        assert (again.status, position(again)) == (Status.OK, position(first))
        assert now(world, append_id=78, **guard).status in (Status.CONFLICT, Status.FENCED, Status.ENDED)

    def test_a_redirected_one_is_looked_for_before_it_is_judged(self) -> None:
        world = World()
        world.recoveries.held = True
        world.guarded_append(expect=(0, 0))
        world.run()
        get_epoch_anew(world)
        stored = world.guarded_append(expect=(compose_lsn(1, 1), 0), previous_lsn=compose_lsn(1, 2))
        holed = world.guarded_append(expect=(compose_lsn(1, 2), 0), previous_lsn=compose_lsn(1, 3))
        conflict = world.guarded_append(expect=(compose_lsn(1, 1), 0), previous_lsn=compose_lsn(1, 4))
        contents = EpochContents(Epoch(1), 2, (), frozenset(), 2, True)  # type: ignore[arg-type]
        tail = TailRecord(Lsn(compose_lsn(1, 2)), Timestamp(5), 1, TailState())
        world.recoveries.finish(LOG, world.now, tail=tail, epochs=(contents,))
        world.run()
        assert position(world.answer_to(stored)) == (compose_lsn(1, 2), 0)
        assert position(world.answer_to(holed)) == (compose_lsn(2, 1), 0)
        assert world.answer_to(conflict).status is Status.CONFLICT

    def test_an_entry_does_not_tell_of_a_redirected_frame_behind_it(self) -> None:
        world = World()
        world.recoveries.held = True
        world.guarded_append(expect=(0, 0))
        world.run()
        get_epoch_anew(world)
        before = world.guarded_append(b"a", transaction=5)
        holed = world.guarded_append(b"b", transaction=9, previous_lsn=compose_lsn(1, 2))
        contents = EpochContents(Epoch(1), 1, (), frozenset(), 1, True)  # type: ignore[arg-type]
        tail = TailRecord(Lsn(compose_lsn(1, 1)), Timestamp(5), 1, TailState())
        world.recoveries.finish(LOG, world.now, tail=tail, epochs=(contents,))
        world.run()
        assert [position(world.answer_to(each)) for each in (before, holed)] == [
            (compose_lsn(2, 1), 0),
            (compose_lsn(2, 2), 0),
        ]
        header, _ = world.entries()[compose_lsn(2, 1)]
        assert parse_extensions(header.extensions).tail == TailState(5)

    def test_a_repeated_frame_of_a_write_stream_is_answered_before_its_guard_is_judged(self) -> None:
        world = guarded()
        stream = {"writer": b"w" * 16, "stream_epoch": 1}
        flags = int(AppendFlags.WRITE_STREAM | AppendFlags.RESUME)
        guard = {"expect": (compose_lsn(1, 1), 0), "flags": flags, "sequence": 1, **stream}
        first, again = now(world, **guard), now(world, **guard)
        assert first.status is again.status is Status.OK
        assert position(first) == position(again)

    def test_a_refused_frame_of_a_write_stream_does_not_use_its_number(self) -> None:
        world = guarded()
        stream = {"writer": b"w" * 16, "stream_epoch": 1}
        flags = int(AppendFlags.WRITE_STREAM)
        resume = flags | int(AppendFlags.RESUME)
        assert now(world, transaction=9, flags=resume, sequence=1, **stream).status is Status.OK
        refused = world.guarded_append(transaction=8, flags=flags, sequence=2, **stream)
        behind = world.guarded_append(transaction=9, flags=flags, sequence=3, **stream)
        world.run()
        assert outcome(world, refused) == (Status.TRANSACTION_ID_TOO_LOW, True)
        assert outcome(world, behind) == (Status.WRITE_STREAM_BROKEN, True)
        assert now(world, transaction=9, flags=flags, sequence=2, **stream).status is Status.OK


class TestRecovery:
    @pytest.mark.parametrize("esn", [1, 2])
    def test_the_state_is_that_of_the_last_entry_and_stands_in_the_epoch_store(self, esn: int) -> None:
        world = guarded()
        for _ in range(esn):
            assert now(world, transaction=8).status is Status.OK
        assert now(world, token=6, guards=RAISE, append_id=55).status is Status.OK
        world.sequencer.activate(world.now)
        world.run(2_000_000)
        tail = world.clean[LOG].tail  # type: ignore[attr-defined]
        assert tail.lsn == compose_lsn(1, 2 + esn)
        assert (tail.records, tail.state, tail.condition) == (1, TailState(8, 6), 55)
        assert now(world, token=6, transaction=7).status is Status.TRANSACTION_ID_TOO_LOW
        assert now(world, token=6, transaction=8, expect=(tail.lsn, 0)).status is Status.OK

    def test_a_log_that_is_trimmed_whole_keeps_its_state(self) -> None:
        world = guarded()
        assert now(world, token=6, transaction=9, guards=RAISE).status is Status.OK
        world.sequencer.activate(world.now)
        world.run(2_000_000)
        world.kept.clear()  # type: ignore[attr-defined]
        for epoch in (2, 3):
            world.sequencer.activate(world.now)
            world.run(2_000_000)
            assert world.sequencer.epoch == epoch + 1
        tail = world.sequencer.tail
        assert tail is not None
        assert (tail.state, tail.lsn, tail.offset) == (TailState(9, 6), compose_lsn(1, 2), 0)

    def test_a_state_that_is_lost_is_not_guessed(self) -> None:
        world = guarded()
        world.recoveries.held = True
        world.node.context.recoveries = world.recoveries
        get_epoch_anew(world)
        tail = TailRecord(Lsn(compose_lsn(1, 1)), Timestamp(5), 1, TailState(4, 3, int(TailFlags.LOST)))
        world.recoveries.finish(LOG, world.now, tail=tail)
        world.run()
        plain = world.append()
        world.run()
        assert outcome(world, plain) == (Status.DATALOSS, True)
        assert now(world, token=9).status is Status.DATALOSS
        assert now(world, token=9, guards=RAISE).status is Status.DATALOSS
        assert now(world, token=3, guards=RAISE | ACCEPT_LOSS).there == 3, "what is known still holds"
        assert now(world, token=4, guards=RAISE | ACCEPT_LOSS).status is Status.OK
        assert now(world, token=4, transaction=3).status is Status.TRANSACTION_ID_TOO_LOW
        last = now(world, token=4)
        header, _ = world.entries()[last.lsn]
        assert parse_extensions(header.extensions).tail == TailState(4, 4)

    def test_a_tail_of_which_only_the_lsn_is_known_matches_no_expectation(self) -> None:
        world = RecoveringWorld()
        world.append()
        world.run(1_000_000)
        world.store.take_over()
        world.clean[LOG] = LastCleanEpoch(Epoch(1), TailRecord(Lsn(compose_lsn(1, 1)), Timestamp(5)))
        world.kept.clear()
        world.node.deactivate(LOG, world.now)
        request = world.guarded_append(expect=(compose_lsn(1, 1), 0))
        world.run(2_000_000)
        assert world.answer_to(request).status is Status.CONFLICT
        assert position(world.answer_to(request)) == (compose_lsn(1, 1), OFFSET_UNKNOWN)
        plain = world.append()
        world.run(1_000_000)
        assert now(world, expect=position(world.answer_to(plain))).status is Status.OK
