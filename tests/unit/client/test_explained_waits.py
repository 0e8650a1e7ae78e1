"""Requests that run out of time say what they waited for and what happened before: made of what the machines saw, for each kind of trouble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.request_history import RequestHistory, format_wait
from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.lsn import Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.messages import Append, GetSeqState, Trim
from tests.unit.client.fakes import LOG, Bench, FakePromise, appended, seq_state
from tests.unit.client.test_operations import SHARDS, trimmed

TIME = 3 * SECOND


def append(bench: Bench) -> FakePromise:
    promise = FakePromise()
    bench.session.append(LOG, b"x", promise, TIME)
    return promise


def tail(bench: Bench) -> FakePromise:
    promise = FakePromise()
    bench.session.sequencers.tail_lsn(LOG, promise, bench.now, TIME)
    return promise


def refuse(bench: Bench, promise: FakePromise, answer: Callable[[Any], Any], kind: type[Any] = Append) -> str:
    """Answer every try alike until the time is up; what the error says."""
    while not promise.done():
        for node, message in bench.taken(kind):
            bench.answer(node, answer(message))
        bench.pass_time(10_000)
    return promise.failure.detail


def run_out(bench: Bench, promise: FakePromise) -> str:
    """Let the time pass; what the error says."""
    bench.pass_time(2 * TIME)
    return promise.failure.detail


class TestAppends:
    def test_a_node_that_does_not_answer_is_named_with_its_silence_and_the_epoch(self) -> None:
        bench = Bench()
        first = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, lsn=compose_lsn(4, 1)))
        assert first.result is not None
        promise = append(bench)
        why = run_out(bench, promise)
        assert promise.failure.maybe_applied
        assert f"waited for N{node} to answer, asked 3.0 s ago; the log is in epoch 4" in why

    def test_a_node_that_cannot_be_reached_is_named(self) -> None:
        bench = Bench(connect=False)
        promise = append(bench)
        bench.turn()
        (node,) = bench.dialled
        why = run_out(bench, promise)
        assert promise.failure.status is Status.CONNFAILED
        assert f"waited for a connection to N{node}, for 3.0 s" in why

    @pytest.mark.parametrize(
        ("status", "meaning"),
        [
            (Status.SEQNOBUFS, "the sequencer's window or hold buffer is full"),
            (Status.OVERLOADED, "too many shards of the nodeset are overloaded"),
            (Status.ISOLATED, "the node cannot see most of the cluster"),
            (Status.NOTREADY, "the node is starting"),
            (Status.UNROUTABLE, "too many shards of the nodeset cannot be reached"),
        ],
    )
    def test_a_refusal_is_told_with_who_refused_how_often_and_what_it_means(self, status: Status, meaning: str) -> None:
        bench = Bench()
        promise = append(bench)
        node = NodeId(-1)

        def answer(message: Any) -> Any:
            return appended(message, status)

        node, message = bench.one()
        bench.answer(node, answer(message))
        why = refuse(bench, promise, answer)
        assert promise.failure.status is status
        assert "it waited for the next try" in why
        assert f"{status.name} from N" in why
        assert " times)" in why
        assert why.endswith(meaning)

    def test_nodes_that_refuse_connections_are_named(self) -> None:
        bench = Bench(connect=False)
        promise = append(bench)
        bench.turn()
        dialled = set()
        while not promise.done():
            for node in bench.dialled:
                dialled.add(node)
                bench.down(node, refused=True)
            bench.dialled.clear()
            bench.pass_time(20_000)
        why = promise.failure.detail
        assert dialled == {0, 1, 2}
        assert all(f"N{node}" in why for node in dialled)
        assert "CONNFAILED from N" in why
        assert not promise.failure.maybe_applied

    def test_redirects_are_counted_and_the_last_one_is_named(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        other = NodeId((node + 1) % 3)
        bench.answer(node, appended(message, Status.REDIRECTED, redirect=other))
        why = run_out(bench, promise)
        assert f"waited for N{other} to answer" in why
        assert f"redirected once, last by N{node} to N{other}" in why

    def test_a_preempted_sequencer_is_told(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, message = bench.one()
        bench.answer(node, appended(message, Status.PREEMPTED, lsn=compose_lsn(4, 2), redirect=(node + 1) % 3))
        assert f"PREEMPTED from N{node}: another sequencer or recovery took over" in run_out(bench, promise)

    def test_a_connection_that_breaks_is_told_with_how_long_the_node_had_it(self) -> None:
        bench = Bench()
        promise = append(bench)
        node, _ = bench.one()
        bench.pass_time(SECOND)
        bench.down(node)
        assert promise.failure.status is Status.PEER_CLOSED
        assert "after 1.0 s" in promise.failure.detail
        assert f"N{node}" in promise.failure.detail

    def test_a_cluster_in_which_nobody_may_sequence_is_told(self) -> None:
        bench = Bench()
        bench.push(0, {0: 2, 1: 2, 2: 2})
        promise = append(bench)
        assert "no node sequences the log at present" in run_out(bench, promise)


class TestQuestions:
    def test_a_node_that_does_not_answer_is_named_and_so_are_those_asked_before(self) -> None:
        bench = Bench()
        promise = tail(bench)
        (first, _), *_ = bench.taken(GetSeqState)
        bench.pass_time(TIME - 1)
        second = bench.taken(GetSeqState)[-1][0]
        why = run_out(bench, promise)
        assert first != second
        assert f"waited for N{second} to answer, asked 1.0 s ago" in why
        assert f"no answer came from N{first}" in why

    def test_what_the_sequencer_waits_for_itself_is_told_as_it_answers(self) -> None:
        bench = Bench()
        promise = tail(bench)
        why = refuse(bench, promise, lambda message: seq_state(message, Status.AGAIN, epoch=7), GetSeqState)
        assert promise.failure.status is Status.AGAIN
        assert "the log is in epoch 7" in why
        assert "AGAIN from N" in why

    def test_redirects_are_counted(self) -> None:
        bench = Bench()
        promise = tail(bench)
        node, message = bench.one(GetSeqState)
        other = (node + 1) % 3
        bench.answer(node, seq_state(message, Status.REDIRECTED, redirect=other))
        assert f"redirected once, last by N{node} to N{other}" in run_out(bench, promise)


class TestTrims:
    def test_silent_shards_and_those_that_refuse_are_told_apart(self) -> None:
        bench, promise = Bench(), FakePromise()
        bench.session.trim(LOG, 99, SHARDS, promise, bench.now, TIME)
        asked = bench.taken(Trim)
        bench.answer(asked[0][0], trimmed(asked[0][1]))
        bench.answer(asked[1][0], trimmed(asked[1][1], Status.DISABLED))
        why = run_out(bench, promise)
        assert why.startswith("not trimmed at N1:S0, N2:S0: after 3.0 s it waited for ")
        assert "DISABLED from N1:S0" in why

    def test_shards_without_a_connection_are_said_to_have_none(self) -> None:
        bench, promise = Bench(connect=False), FakePromise()
        bench.session.trim(LOG, 99, [ShardId(256)], promise, bench.now, TIME)
        assert "waited for a connection to N1:S0" in run_out(bench, promise)


def test_a_story_stays_short_however_often_things_go_wrong() -> None:
    history = RequestHistory()
    for _ in range(1000):
        history.redirected(NodeId(1), NodeId(2))
        history.refused("N2", Status.SEQNOBUFS)
        history.unanswered("N3")
    assert history.explain("the next try", Epoch(3)) == (
        "the next try; the log is in epoch 3, as far as is known; redirected 1000 times, last by N1 to N2; no answer came from N3 (1000 times); "
        "SEQNOBUFS from N2 (1000 times): the sequencer's window or hold buffer is full"
    )


def test_times_are_written_for_people() -> None:
    assert [format_wait(micros) for micros in (0, 40_000, 3_140_000)] == ["0 ms", "40 ms", "3.1 s"]
