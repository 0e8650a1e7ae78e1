"""Direct appends: coalescing, redirects, what is tried again and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from client.append import append_request
from client.guard_arguments import guard_argument
from client.guards import START
from client.receipt import Receipt
from client.settings import ClientSettings
from logdevice_py.core import marks
from logdevice_py.core.batch import decode_batch
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId
from logdevice_py.core.lsn import LSN, LSN_MAX, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import (
    AppendedFlags,
    AppendFlags,
    Durability,
    GetSeqState,
    GuardedAppend,
    NodeState,
    SplitRun,
)
from tests.unit.client.fakes import LOG, Bench, FakePromise, appended, cluster, seq_state


def append(bench: Bench, payload: bytes = b"x", timeout_us: int | None = None, *, synced: bool = False) -> FakePromise:
    promise = FakePromise()
    bench.session.append(LOG, payload, promise, timeout_us, synced=synced)
    return promise


def others(node: int) -> list[int]:
    return [other for other in range(3) if other != node]


class TestCoalescing:
    def test_appends_of_one_turn_share_a_frame_and_each_gets_its_own_position(self) -> None:
        bench = Bench()
        promises = [append(bench, payload) for payload in (b"a", b"", b"c")]
        node, message = bench.one()
        assert message.flags == AppendFlags.BATCH
        assert decode_batch(message.payload, 3) == [b"a", b"", b"c"]
        bench.answer(node, appended(message, lsn=compose_lsn(3, 9), offset=5))
        assert [(p.result.lsn, p.result.batch_offset) for p in promises] == [(LSN.parse("e3n9"), n) for n in (5, 6, 7)]

    def test_records_that_the_sequencer_gave_an_lsn_each_get_that_one_whatever_the_own_cluster_file_says(self) -> None:
        bench = Bench()
        promises = [append(bench, payload) for payload in (b"a", b"b", b"c")]
        node, message = bench.one()
        one, two, three = ShardId(0), ShardId(256), ShardId(512)
        split = [
            SplitRun(2, Timestamp(1234), int(Durability.SYNC), [one, two]),
            SplitRun(1, Timestamp(1235), int(Durability.ASYNC), [three, two]),
        ]
        bench.answer(node, appended(message, lsn=compose_lsn(3, 9), split=split))
        assert [p.result for p in promises] == [
            Receipt(LSN.parse("e3n9"), 0, Timestamp(1234), (0, 256), Durability.SYNC),
            Receipt(LSN.parse("e3n10"), 0, Timestamp(1234), (0, 256), Durability.SYNC),
            Receipt(LSN.parse("e3n11"), 0, Timestamp(1235), (512, 256), Durability.ASYNC),
        ]

    @pytest.mark.parametrize(("counts", "lsn"), [([1], compose_lsn(3, 9)), ([2, 1], compose_lsn(3, 9)), ([2], LSN_MAX)])
    def test_an_answer_that_does_not_fit_the_records_places_none_of_them(self, counts: list[int], lsn: int) -> None:
        bench = Bench()
        promises = [append(bench, payload) for payload in (b"a", b"b")]
        node, message = bench.one()
        bench.answer(
            node, appended(message, lsn=lsn, split=[SplitRun(count, Timestamp(1), 0, [ShardId(0)]) for count in counts])
        )
        assert [(p.failure.status, p.failure.maybe_applied) for p in promises] == [(Status.PROTO, True)] * 2

    def test_a_lone_append_is_sent_as_it_is(self) -> None:
        bench = Bench()
        append(bench, b"alone")
        _, message = bench.one()
        assert (message.payload, message.flags, message.records) == (b"alone", 0, 1)

    def test_a_large_record_has_a_frame_of_its_own_and_order_is_kept(self) -> None:
        bench = Bench()
        for payload in (b"a", b"b", b"L" * 5000, b"c"):
            append(bench, payload)
        frames = [message for _, message in bench.taken()]
        assert [message.records for message in frames] == [2, 1, 1]
        assert frames[1].payload == b"L" * 5000

    def test_a_frame_asks_for_a_sync_when_one_of_its_records_does(self) -> None:
        bench = Bench(settings=ClientSettings(coalesce_wait_us=0))
        for payload in (b"a", b"b", b"L" * 5000, b"c"):
            append(bench, payload, synced=payload == b"b")
        append(bench, b"d", timeout_us=200_000)
        frames = [message for _, message in bench.taken()]
        assert [frame.records for frame in frames] == [2, 1, 1, 1]
        assert [frame.flags for frame in frames] == [AppendFlags.BATCH | AppendFlags.SYNC, 0, 0, 0]
        append(bench)
        assert not bench.one()[1].flags

    def test_without_batching_each_record_asks_for_itself(self) -> None:
        bench = Bench()
        bench.session.set_config(cluster(version=2, defaults="sequencer_batching = false"), bench.now)
        for synced in (False, True, False, True):
            append(bench, synced=synced)
        assert [message.flags for _, message in bench.taken()] == [0, AppendFlags.SYNC] * 2

    def test_frames_stay_within_their_size(self) -> None:
        bench = Bench(settings=ClientSettings(coalesced_frame_bytes=100))
        for _ in range(10):
            append(bench, b"x" * 26)
        assert [message.records for _, message in bench.taken()] == [3, 3, 3, 1]

    @pytest.mark.parametrize("payload_max", [40, 1000, 10_000])
    @pytest.mark.parametrize("key", [None, b"", b"key"])
    def test_what_records_share_stays_within_the_payload_limit_of_their_log(
        self, payload_max: int, key: bytes | None
    ) -> None:
        bench = Bench()
        bench.session.set_config(cluster(version=2, defaults=f'max_payload_bytes = "{payload_max}B"'), bench.now)
        lengths = [payload_max * 2 // 5] * 3 + [1] * 3000
        for length in lengths:
            bench.session.append(LOG, b"x" * length, FakePromise(), key=key)
        frames = [message for _, message in bench.taken()]
        assert sum(frame.records for frame in frames) == len(lengths)
        assert max(len(frame.payload) for frame in frames) <= payload_max

    def test_records_that_leave_after_the_limit_of_their_log_went_down_share_frames_within_the_new_one(self) -> None:
        bench = Bench()
        for _ in range(10):
            append(bench, b"x" * 500)
        bench.session.set_config(cluster(version=2, defaults='max_payload_bytes = "1000B"'), bench.now)
        assert max(len(message.payload) for _, message in bench.taken()) <= 1000

    def test_an_append_that_has_little_time_takes_none_from_its_neighbours(self) -> None:
        bench = Bench()
        later, sooner = append(bench, timeout_us=5_000_000), append(bench, timeout_us=200_000)
        bench.taken()
        bench.pass_time(400_000)
        assert sooner.failure.status is Status.TIMEDOUT
        assert not later.done()
        bench.pass_time(4_500_000)
        assert not later.done()
        bench.pass_time(200_000)
        assert later.failure.status is Status.TIMEDOUT

    def test_a_caller_that_was_cancelled_does_not_shift_the_positions_of_others(self) -> None:
        bench = Bench()
        first, second = append(bench), append(bench)
        node, message = bench.one()
        first.cancel()
        bench.answer(node, appended(message))
        assert second.result.batch_offset == 1

    def test_a_record_over_the_limit_is_refused_before_anything_is_sent(self) -> None:
        bench = Bench()
        with pytest.raises(LogDeviceError) as caught:
            append(bench, b"x" * (64 << 20))
        assert caught.value.status is Status.TOOBIG

    def test_an_unknown_log_is_refused_at_once(self) -> None:
        bench = Bench()
        with pytest.raises(LogDeviceError) as caught:
            bench.session.append(LogId(9999), b"", FakePromise())
        assert caught.value.status is Status.NOTFOUND


class TestWaitingForFramesUnderWay:
    def _busy(self, **settings: int) -> tuple[Bench, list[tuple[NodeId, Any]]]:
        """Two frames are unanswered."""
        bench = Bench(settings=ClientSettings(coalesce_in_flight=2, coalesce_wait_us=5_000, **settings))
        sent = []
        for payload in (b"a", b"b"):
            append(bench, payload)
            sent.append(bench.one())
        return bench, sent

    def test_what_is_called_meanwhile_leaves_together_after_an_answer(self) -> None:
        bench, sent = self._busy()
        promises = []
        for payload in (b"c", b"d", b"e"):
            promises.append(append(bench, payload))
            assert not bench.taken()
        node, message = sent[1]
        bench.answer(node, appended(message))
        node, message = bench.one()
        assert decode_batch(message.payload, 3) == [b"c", b"d", b"e"]
        bench.answer(node, appended(message, lsn=compose_lsn(3, 9)))
        assert [promise.result.batch_offset for promise in promises] == [0, 1, 2]

    def test_it_does_not_wait_for_longer_than_it_may(self) -> None:
        bench, _ = self._busy(coalesce_apart_us=1_000_000)
        append(bench, b"c")
        assert not bench.taken()
        bench.pass_time(4_999)
        append(bench, b"d")
        assert not bench.taken()
        bench.pass_time(1)
        _, message = bench.one()
        assert decode_batch(message.payload, 2) == [b"c", b"d"]

    def test_appends_that_are_far_apart_do_not_wait(self) -> None:
        bench, _ = self._busy()
        bench.pass_time(1_000)
        append(bench, b"c")
        assert [message.payload for _, message in bench.taken()] == [b"c"]
        append(bench, b"d")  # too soon after it
        assert not bench.taken()
        bench.pass_time(999)
        assert not bench.taken()
        bench.pass_time(1)
        assert [message.payload for _, message in bench.taken()] == [b"d"]

    def test_appends_that_are_close_wait_for_answers_however_long_ago_the_last_frame_left(self) -> None:
        bench, sent = self._busy()
        for payload in (b"c", b"d", b"e"):
            append(bench, payload)
        bench.pass_time(4_000)
        assert not bench.taken()
        bench.answer(sent[0][0], appended(sent[0][1]))
        assert [message.records for _, message in bench.taken()] == [3]

    def test_appends_that_are_far_apart_wait_when_nobody_answers(self) -> None:
        bench, _ = self._busy()
        for _ in range(6):
            bench.pass_time(1_000)
            append(bench)
            bench.one()
        bench.pass_time(1_000)
        append(bench)
        assert not bench.taken(), "eight frames are unanswered"
        bench.pass_time(5_000)
        assert len(bench.taken()) == 1

    def test_appends_as_far_apart_as_they_would_wait_leave_at_once_however_long_answers_take(self) -> None:
        bench, _ = self._busy()
        for _ in range(20):
            bench.pass_time(5_000)
            append(bench)
            assert len(bench.taken()) == 1

    def test_a_large_record_does_not_wait(self) -> None:
        bench, _ = self._busy()
        append(bench, b"c")
        append(bench, b"L" * 5000)
        assert [message.payload for _, message in bench.taken()] == [b"c", b"L" * 5000]

    def test_a_thousand_records_do_not_wait(self) -> None:
        bench, _ = self._busy()
        for _ in range(1000):
            append(bench)
        assert [message.records for _, message in bench.taken()] == [1000]

    def test_nothing_waits_where_each_append_has_a_frame_of_its_own(self) -> None:
        bench, _ = self._busy(coalesce_bytes=0)
        append(bench, b"c")
        append(bench, b"d")
        assert [message.payload for _, message in bench.taken()] == [b"c", b"d"]

    def test_other_logs_do_not_wait(self) -> None:
        bench, _ = self._busy()
        bench.session.append(LogId(LOG + 1), b"x", FakePromise())
        assert [message.log for _, message in bench.taken()] == [LOG + 1]

    def test_a_connection_that_breaks_ends_the_wait(self) -> None:
        bench, sent = self._busy()
        waiting = append(bench, b"c")
        bench.down(sent[0][0])
        assert [message.payload for _, message in bench.taken()] == [b"c"]
        assert not waiting.done()

    def test_closing_the_client_fails_what_waits_as_not_applied(self) -> None:
        bench, _ = self._busy()
        waiting = append(bench, b"c")
        assert not bench.taken()
        bench.session.close()
        assert waiting.failure.status is Status.SHUTDOWN
        assert not waiting.failure.maybe_applied


class TestRedirects:
    def test_a_redirect_is_followed_and_remembered(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        other = others(node)[0]
        bench.answer(node, appended(message, Status.REDIRECTED, redirect=other))
        target, again = bench.one()
        assert target == other
        assert again.previous_lsn == 0
        bench.answer(target, appended(again))
        assert promise.result is not None
        append(bench)
        assert bench.one()[0] == other

    def test_a_preempted_append_tells_the_next_sequencer_which_position_it_may_have(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        lsn, other = compose_lsn(4, 2), others(node)[0]
        bench.answer(node, appended(message, Status.PREEMPTED, lsn=lsn, offset=3, redirect=other))
        target, again = bench.one()
        assert (target, again.previous_lsn) == (other, lsn)
        bench.answer(target, appended(again, lsn=lsn))
        assert (promise.result.lsn, promise.result.batch_offset) == (lsn, 3)

    def test_every_try_asks_for_the_sync_and_the_receipt_says_what_came_of_it(self) -> None:
        bench = Bench()
        promise = append(bench, synced=True)
        node, message = bench.one()
        bench.answer(node, appended(message, Status.REDIRECTED, redirect=others(node)[0]))
        node, again = bench.one()
        bench.answer(node, appended(again, Status.SEQNOBUFS))
        bench.pass_time(10_000)
        node, last = bench.one()
        assert [each.flags for each in (message, again, last)] == [AppendFlags.SYNC] * 3
        bench.answer(node, appended(last, durability=Durability.ASYNC))  # one that does not know the flag
        assert promise.result.durability is Durability.ASYNC

    def test_a_refusal_on_the_way_does_not_lose_what_is_known_of_the_position(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        lsn = compose_lsn(4, 2)
        bench.answer(node, appended(message, Status.PREEMPTED, lsn=lsn, offset=3, redirect=others(node)[0]))
        node, again = bench.one()
        bench.answer(node, appended(again, Status.SEQNOBUFS, lsn=lsn))
        bench.pass_time(10_000)
        node, again = bench.one()
        assert again.previous_lsn == lsn
        bench.answer(node, appended(again, lsn=lsn))
        assert (promise.result.lsn, promise.result.batch_offset) == (lsn, 3)

    def test_a_position_that_was_certainly_not_used_is_not_carried_on(self) -> None:
        bench = Bench()
        append(bench)
        node, message = bench.one()
        flags = int(AppendedFlags.NOT_REPLICATED)
        bench.answer(
            node, appended(message, Status.PREEMPTED, lsn=compose_lsn(4, 2), flags=flags, redirect=others(node)[0])
        )
        assert bench.one()[1].previous_lsn == 0

    def test_a_cycle_ends_at_the_node_of_the_highest_index(self) -> None:
        bench = Bench()
        append(bench)
        marks.HITS.clear()
        node, message = bench.one()
        other = others(node)[0]
        bench.answer(node, appended(message, Status.REDIRECTED, redirect=other))
        _, message = bench.one()
        bench.answer(NodeId(other), appended(message, Status.REDIRECTED, redirect=node))
        target, message = bench.one()
        assert target == max(node, other)
        assert message.flags == AppendFlags.NO_REDIRECT
        assert marks.HITS["client_redirect_cycle"] == 1

    def test_nodes_that_send_an_append_around_for_ever_are_left_alone_for_a_while(self) -> None:
        bench = Bench()
        promise = append(bench)
        for _ in range(10):
            node, message = bench.one()
            bench.answer(node, appended(message, Status.REDIRECTED, redirect=others(node)[0]))
        node, message = bench.one()
        bench.answer(node, appended(message, Status.REDIRECTED, redirect=others(node)[0]))
        assert not bench.taken()
        bench.pass_time(1_000_000)
        node, message = bench.one()
        assert message.flags == 0
        bench.answer(node, appended(message))
        assert promise.result is not None

    def test_a_preempted_node_that_must_take_the_log_is_told_to_take_it_back(self) -> None:
        bench = Bench()
        append(bench)
        node, message = bench.one()
        flags = int(AppendedFlags.NOT_REPLICATED)
        bench.answer(node, appended(message, Status.PREEMPTED, flags=flags, redirect=node))
        target, again = bench.one()
        assert target == node
        assert again.flags == AppendFlags.NO_REDIRECT | AppendFlags.REACTIVATE_IF_PREEMPTED

    def test_a_log_that_nobody_takes_fails_as_not_applied(self) -> None:
        bench = Bench()
        promise = append(bench, timeout_us=300_000)
        while not promise.done():
            for node, message in bench.taken():
                bench.answer(node, appended(message, Status.NOSEQUENCER))
            bench.pass_time(10_000)
        assert promise.failure.status is Status.NOSEQUENCER
        assert not promise.failure.maybe_applied


class TestRetries:
    @pytest.mark.parametrize(
        "status", [Status.SEQNOBUFS, Status.NOTREADY, Status.ISOLATED, Status.STALE, Status.REBUILDING]
    )
    def test_a_refused_append_is_tried_again_after_a_pause(self, status: Status) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, status, lsn=compose_lsn(5, 0) if status is Status.STALE else 0))
        assert bench.taken() == []
        bench.pass_time(10_000)
        node, again = bench.one()
        assert again.request_id != message.request_id
        bench.answer(node, appended(again))
        assert promise.result is not None

    def test_refused_appends_go_again_in_call_order_before_later_ones(self) -> None:
        bench = Bench(settings=ClientSettings(coalesce_bytes=0))
        for payload in (b"1", b"2", b"3"):
            append(bench, payload)
        frames = bench.taken()
        for node, message in (frames[1], frames[0], frames[2]):
            bench.answer(node, appended(message, Status.SEQNOBUFS))
        append(bench, b"4")
        assert bench.taken() == []
        bench.pass_time(10_000)
        assert [message.payload for _, message in bench.taken()] == [b"1", b"2", b"3", b"4"]

    def test_what_arrived_otherwise_than_it_was_sent_is_sent_again(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, Status.BADPAYLOAD))
        bench.pass_time(1_000_000)
        node, again = bench.one()
        assert (again.payload, again.crc) == (message.payload, message.crc)
        bench.answer(node, appended(again))
        assert promise.result is not None

    def test_what_was_damaged_here_is_not_sent_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        monkeypatch.setattr(append_request, "crc32c", lambda payload: message.crc ^ 1)
        bench.answer(node, appended(message, Status.BADPAYLOAD))
        assert promise.failure.status is Status.BADPAYLOAD
        assert not promise.failure.maybe_applied

    @pytest.mark.parametrize("status", [Status.NOSPC, Status.DISABLED, Status.TOOBIG])
    def test_what_another_try_would_not_change_fails_at_once(self, status: Status) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, status))
        assert promise.failure.status is status
        assert not promise.failure.maybe_applied

    @pytest.mark.parametrize("status", [Status.ABORTED, Status.INTERNAL, Status.TIMEDOUT])
    @pytest.mark.parametrize("lsn", [0, compose_lsn(3, 4)])
    def test_an_unknown_outcome_is_not_tried_again(self, status: Status, lsn: int) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, status, lsn=lsn))
        assert promise.failure.maybe_applied
        bench.pass_time(1_000_000)
        assert bench.taken() == []


class TestLoss:
    def test_a_node_that_refuses_connections_is_left_out_and_the_append_goes_elsewhere(self) -> None:
        bench = Bench(connect=False)
        promise = append(bench)
        bench.turn()
        (dead,) = bench.dialled
        bench.connect = True
        bench.down(dead, refused=True)
        bench.pass_time(10_000)
        node, message = bench.one()
        assert node != dead
        bench.answer(node, appended(message))
        assert promise.result is not None

    def test_a_connection_that_breaks_after_sending_leaves_the_outcome_unknown(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, _ = bench.one()
        bench.down(node)
        assert promise.failure.status is Status.PEER_CLOSED
        assert promise.failure.maybe_applied

    def test_an_answer_that_never_comes_fails_at_the_deadline_as_maybe_applied(self) -> None:
        bench = Bench()
        promise = append(bench, timeout_us=1_000_000)
        bench.one()
        bench.pass_time(900_000)
        assert not promise.done()
        bench.pass_time(200_000)
        assert promise.failure.status is Status.TIMEDOUT
        assert promise.failure.maybe_applied

    def test_a_dial_without_end_fails_at_the_deadline_as_not_applied(self) -> None:
        bench = Bench(connect=False)
        promise = append(bench, timeout_us=1_000_000)
        bench.pass_time(1_200_000)
        assert not promise.failure.maybe_applied

    def test_a_dial_without_end_is_abandoned_when_the_cluster_says_that_the_node_is_dead(self) -> None:
        bench = Bench(connect=False)
        promise = append(bench)
        bench.turn()
        (dead,) = bench.dialled
        bench.connect = True
        alive = NodeId(others(dead)[0])
        bench.session.on_peer_up(PeerId(alive), bench.now)
        states = {node: int(NodeState.DEAD if node == dead else NodeState.ALIVE) for node in range(3)}
        bench.push(alive, states)
        bench.pass_time(10_000)
        node, message = bench.one()
        assert node != dead
        bench.answer(node, appended(message))
        assert promise.result is not None

    def _declare_dead(self, bench: Bench, dead: NodeId) -> None:
        states = {node: int(NodeState.DEAD if node == dead else NodeState.ALIVE) for node in range(3)}
        bench.push(NodeId(others(dead)[0]), states)

    def test_what_was_sent_to_a_node_that_is_declared_dead_waits_for_its_answer(self) -> None:
        bench = Bench()
        promise = append(bench)
        dead, message = bench.one()
        self._declare_dead(bench, dead)
        bench.pass_time(ClientSettings().silence_us - 100_000)
        assert bench.taken() == []
        bench.answer(dead, appended(message))
        assert promise.result is not None

    def test_what_a_dead_node_does_not_answer_for_long_has_an_unknown_outcome_though_nothing_broke_the_connection(
        self,
    ) -> None:
        bench = Bench()
        promise = append(bench, timeout_us=60_000_000)
        dead, _ = bench.one()
        self._declare_dead(bench, dead)
        bench.pass_time(ClientSettings().silence_us + 100_000)
        assert promise.failure.status is Status.TIMEDOUT
        assert promise.failure.maybe_applied
        assert f"it waited for N{dead} to answer" in promise.failure.detail
        assert f"N{dead} counts as dead" in promise.failure.detail
        append(bench)
        node, _ = bench.one()
        assert node != dead

    def test_what_the_sequencer_knows_by_its_id_is_sent_to_another_node_then(self) -> None:
        bench = Bench()
        promise = FakePromise()
        bench.session.append(LOG, b"x", promise, 60_000_000, guard=guard_argument(None, START, None, 99))
        dead, _ = bench.one(GuardedAppend)
        self._declare_dead(bench, dead)
        bench.pass_time(ClientSettings().silence_us + 100_000)
        node, again = bench.one(GuardedAppend)
        assert node != dead
        bench.answer(node, appended(again))
        assert promise.result is not None

    def test_a_repeated_append_that_fails_tells_that_a_node_was_silent_and_of_no_broken_connection(self) -> None:
        bench = Bench()
        promise = FakePromise()
        bench.session.append(LOG, b"x", promise, 10_000_000, guard=guard_argument(None, START, None, 99))
        dead, _ = bench.one(GuardedAppend)
        self._declare_dead(bench, dead)
        bench.pass_time(11_000_000)
        assert (promise.failure.status, promise.failure.maybe_applied) == (Status.TIMEDOUT, True)
        assert f"TIMEDOUT from N{dead}" in promise.failure.detail
        assert "connection broke" not in promise.failure.detail

    def test_a_node_that_lives_has_until_the_deadline(self) -> None:
        bench = Bench()
        promise = append(bench, timeout_us=60_000_000)
        node, message = bench.one()
        bench.pass_time(50_000_000)
        bench.answer(node, appended(message))
        assert promise.result is not None

    def test_a_node_that_only_one_that_is_cut_off_takes_for_dead_has_until_the_deadline(self) -> None:
        bench = Bench()
        promise = append(bench, timeout_us=60_000_000)
        node, message = bench.one()
        cut_off = NodeId(others(node)[0])
        bench.session.on_peer_up(PeerId(cut_off), bench.now)
        bench.push(cut_off, {each: int(NodeState.ALIVE if each == cut_off else NodeState.DEAD) for each in range(3)})
        bench.pass_time(50_000_000)
        bench.answer(node, appended(message))
        assert promise.result is not None

    def test_an_unanswered_append_makes_the_client_ask_another_node(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.pass_time(400_000)
        other, probe = bench.one(GetSeqState)
        assert other != node
        bench.answer(other, seq_state(probe, epoch=9))
        append(bench)
        target, later = bench.one()
        assert (target, later.seen_epoch) == (other, 9)
        bench.answer(node, appended(message))
        assert promise.result is not None

    def test_of_probes_that_nobody_answers_the_latest_thousand_count(self) -> None:
        bench = Bench()
        silent = NodeId(0)
        for round_ in range(1001):
            bench.session.appends.probe(LOG, silent, round_, bench.now)
            bench.turn()
        assert len(bench.session.requests) == 1000
        probes = bench.taken(GetSeqState)
        other, first = probes[0]
        bench.answer(other, seq_state(first, epoch=9))
        assert bench.session.routes.epoch(LOG) == 0, "it is forgotten"
        other, last = probes[-1]
        bench.answer(other, seq_state(last, epoch=9))
        assert bench.session.routes.epoch(LOG) == 9

    def test_a_late_answer_to_an_earlier_try_is_nobodys(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, Status.SEQNOBUFS))
        bench.pass_time(10_000)
        bench.one()
        bench.answer(node, appended(message))
        assert not promise.done()

    def test_closing_the_client_fails_what_is_under_way(self) -> None:
        bench = Bench()
        sent = append(bench)
        bench.one()
        fresh = append(bench)
        bench.session.close()
        assert sent.failure.maybe_applied
        assert fresh.failure.status is Status.SHUTDOWN
        assert not fresh.failure.maybe_applied


class TestIsolation:
    """Nobody is connected but a node that is cut off from the others."""

    def _cut_off(self, state: NodeState = NodeState.ALIVE) -> tuple[Bench, NodeId]:
        bench = Bench()
        first = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message))
        assert first.result is not None
        bench.push(node, {other: int(state if other == node else NodeState.DEAD) for other in range(3)})
        bench.dialled.clear()
        return bench, node

    def _witness(self, bench: Bench, cut_off: NodeId) -> NodeId:
        """The node that was dialled says who is alive."""
        (witness,) = bench.dialled
        assert witness != cut_off
        bench.push(witness, {other: int(NodeState.DEAD if other == cut_off else NodeState.ALIVE) for other in range(3)})
        return witness

    def test_an_append_that_it_refuses_goes_to_another_node(self) -> None:
        bench, cut_off = self._cut_off()
        promise = append(bench)
        node, message = bench.one()
        assert node == cut_off
        bench.answer(node, appended(message, Status.ISOLATED))
        witness = self._witness(bench, cut_off)
        bench.pass_time(10_000)
        node, message = bench.one()
        assert node == witness, "of those that are left, the log's sequencer is the one to dial first"
        bench.answer(node, appended(message))
        assert promise.result is not None

    def test_a_question_that_it_refuses_goes_to_another_node(self) -> None:
        bench, cut_off = self._cut_off()
        promise = FakePromise()
        bench.session.sequencers.tail_lsn(LOG, promise, bench.now)
        node, question = bench.one(GetSeqState)
        assert node == cut_off
        bench.answer(node, seq_state(question, Status.ISOLATED))
        witness = self._witness(bench, cut_off)
        bench.pass_time(10_000)
        node, question = bench.one(GetSeqState)
        assert node == witness
        bench.answer(node, seq_state(question, released=5))
        assert promise.result == 5

    def test_nothing_waits_until_a_node_that_starts_has_heard_of_the_others(self) -> None:
        bench, starting = self._cut_off(NodeState.STARTING)
        append(bench)
        assert bench.taken() == []
        witness = self._witness(bench, starting)
        bench.pass_time(10_000)
        assert bench.one()[0] == witness

    @pytest.mark.parametrize("asks", [False, True])
    def test_its_silence_makes_the_client_look_further(self, asks: bool) -> None:
        bench, cut_off = self._cut_off()
        if asks:
            bench.session.sequencers.tail_lsn(LOG, FakePromise(), bench.now)
        else:
            append(bench)
        bench.turn()
        assert bench.dialled == []
        bench.pass_time(2_100_000 if asks else 400_000)
        self._witness(bench, cut_off)

    def test_where_the_others_are_really_dead_it_is_what_the_error_tells_of(self) -> None:
        bench, cut_off = self._cut_off()
        bench.connect = False
        promise, asked = append(bench), set()
        while not promise.done():
            for to, message in bench.taken():
                asked.add(to)
                bench.answer(to, appended(message, Status.ISOLATED))
            for node in {other for other in others(cut_off) if bench.session.links.is_dialled(PeerId(other))}:
                bench.down(NodeId(node), refused=True)
            bench.pass_time(5_000)
        assert asked == {cut_off}
        assert promise.failure.status is Status.ISOLATED
        assert "the node cannot see most of the cluster" in str(promise.failure)
        assert not promise.failure.maybe_applied
        assert sorted(set(bench.dialled)) == others(cut_off)
        assert len(bench.dialled) <= 2 * 4, "each again only when its refusal is long past"

    def test_a_refusal_while_a_witness_is_connected_makes_nobody_dial(self) -> None:
        bench = Bench()
        append(bench)
        node, message = bench.one()
        bench.push(node, dict.fromkeys(range(3), int(NodeState.ALIVE)))
        bench.dialled.clear()
        bench.answer(node, appended(message, Status.ISOLATED))
        bench.pass_time(10_000)
        assert bench.dialled == []


class TestView:
    def test_the_log_is_located_among_the_nodes_that_are_alive(self) -> None:
        bench = Bench()
        append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message))
        states: dict[int, Any] = dict.fromkeys(others(node), NodeState.ALIVE)
        bench.push(others(node)[0], {**states, node: NodeState.DEAD})
        append(bench)
        assert bench.one()[0] != node

    def test_an_older_push_of_the_same_node_is_ignored_and_a_restarted_node_counts_anew(self) -> None:
        bench = Bench()
        bench.push(0, {0: 1, 1: 0, 2: 1}, version=5)
        bench.push(0, {0: 1, 1: 1, 2: 1}, version=4)
        assert not bench.session.view.is_alive(NodeId(1))
        bench.down(NodeId(0))
        bench.session.on_peer_up(PeerId(0), bench.now)
        bench.push(0, {0: 1, 1: 1, 2: 1}, version=1)
        assert bench.session.view.is_alive(NodeId(1))

    def test_a_refusal_is_forgotten_after_a_while(self) -> None:
        bench = Bench()
        bench.down(NodeId(1), refused=True)
        assert not bench.session.view.is_alive(NodeId(1))
        bench.pass_time(4_000_000)
        assert bench.session.view.is_alive(NodeId(1))

    def test_leaving_and_starting_nodes_sequence_nothing(self) -> None:
        bench = Bench()
        bench.push(0, {0: NodeState.LEAVING, 1: NodeState.STARTING, 2: NodeState.ALIVE})
        append(bench)
        assert bench.one()[0] == 2


class TestTail:
    def test_it_carries_the_highest_epoch_seen(self) -> None:
        bench = Bench()
        append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, lsn=compose_lsn(6, 1)))
        promise = FakePromise()
        bench.session.sequencers.tail_lsn(LOG, promise, bench.now)
        node, question = bench.one(GetSeqState)
        assert question.min_epoch == 6
        bench.answer(node, seq_state(question, epoch=6, released=compose_lsn(6, 1)))
        assert promise.result == LSN.parse("e6n1")

    def test_it_is_asked_again_until_the_sequencer_knows(self) -> None:
        bench = Bench()
        promise = FakePromise()
        bench.session.sequencers.tail_lsn(LOG, promise, bench.now)
        node, question = bench.one(GetSeqState)
        bench.answer(node, seq_state(question, Status.AGAIN))
        bench.pass_time(10_000)
        node, question = bench.one(GetSeqState)
        bench.answer(node, seq_state(question, released=5))
        assert promise.result == 5

    def test_it_fails_with_the_last_answer_when_the_time_is_up(self) -> None:
        bench = Bench()
        promise = FakePromise()
        bench.session.sequencers.tail_lsn(LOG, promise, bench.now, 100_000)
        while not promise.done():
            for node, question in bench.taken(GetSeqState):
                bench.answer(node, seq_state(question, Status.AGAIN))
            bench.pass_time(5_000)
        assert promise.failure.status is Status.AGAIN
        assert not promise.failure.maybe_applied
