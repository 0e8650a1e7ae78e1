"""The registry of requests: which answers count, who gets them, and what ends a request without one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice

import pytest

from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import Append, SealChecked, SeqState, Stored, Trimmed
from logdevice_py.protocol.requests import Requests, ids_of_run

A, B = PeerId(1), PeerId(2)
SHARD, ITS_NEIGHBOUR, OF_B = shard_id(NodeId(1)), shard_id(NodeId(1), 1), shard_id(NodeId(2))
DEADLINE = 1000


class Asker:
    """Asks, and notes what it is told: answers, and why there is none."""

    def __init__(self) -> None:
        self.timers = TimerQueue()
        self.requests = Requests(count(1), self.timers)
        self.answers: list[tuple[SealChecked, int]] = []
        self.failures: list[tuple[Status, int]] = []

    def ask(self, shard: ShardId = SHARD, *, once: bool = True, deadline: int | None = DEADLINE) -> int:
        return self.requests.ask_shard(
            shard,
            SealChecked,
            lambda answer, now: self.answers.append((answer, now)),
            failed=lambda status, now: self.failures.append((status, now)),
            deadline=deadline,
            once=once,
        )

    def answer(self, request_id: int, *, peer: PeerId = A, shard: ShardId = SHARD, now: int = 5) -> None:
        self.requests.on_answer(peer, SealChecked(request_id=request_id, shard=shard, logs=[]), Micros(now))

    def told(self) -> list[int]:
        """The requests whose answers were handed on."""
        return [answer.request_id for answer, _ in self.answers]


@pytest.fixture
def asker() -> Asker:
    return Asker()


def seq_state(request_id: int) -> SeqState:
    return SeqState(
        request_id=request_id,
        log=LogId(1),
        status=Status.OK,
        redirect=NodeId(-1),
        epoch=Epoch(1),
        last_released=Lsn(0),
        next_lsn=Lsn(1),
        tail_lsn=Lsn(0),
        tail_timestamp=Timestamp(0),
    )


class TestAnswers:
    def test_an_answer_goes_to_who_asked_and_to_nobody_else(self, asker: Asker) -> None:
        other = Asker()
        other.requests = asker.requests
        mine, yours = asker.ask(), other.ask()
        asker.answer(yours, now=7)
        assert (asker.answers, [(answer.request_id, now) for answer, now in other.answers]) == ([], [(yours, 7)])
        asker.answer(mine)
        assert (asker.told(), other.told()) == ([mine], [yours])

    def test_the_first_answer_closes_a_request(self, asker: Asker) -> None:
        request = asker.ask()
        assert request in asker.requests
        asker.answer(request)
        asker.answer(request)
        assert asker.told() == [request]
        assert len(asker.requests) == 0

    def test_a_request_that_is_answered_may_ask_again_at_once(self, asker: Asker) -> None:
        asked: list[int] = []

        def ask() -> None:
            asked.append(asker.requests.ask_shard(SHARD, SealChecked, lambda answer, now: ask()))

        ask()
        asker.answer(asked[0])
        asker.answer(asked[0])
        assert len(asked) == 2
        assert [each in asker.requests for each in asked] == [False, True]

    def test_one_that_may_have_several_answers_is_open_until_it_is_forgotten(self, asker: Asker) -> None:
        request = asker.ask(once=False)
        for _ in range(3):
            asker.answer(request)
        asker.requests.forget(request)
        asker.answer(request)
        assert asker.told() == [request] * 3

    def test_every_request_has_an_id_of_its_own_also_when_earlier_ones_are_closed(self, asker: Asker) -> None:
        first = asker.ask()
        asker.answer(first)
        second = asker.ask()
        assert second != first
        asker.answer(first)
        assert asker.told() == [first], "the answer to the first is none to the second"
        assert second in asker.requests


class TestHostileAnswers:
    @pytest.mark.parametrize(
        "answer",
        [
            lambda asker, request: asker.answer(request, peer=B),
            lambda asker, request: asker.answer(request, peer=PeerId(-3)),
            lambda asker, request: asker.answer(request, shard=ITS_NEIGHBOUR),
            lambda asker, request: asker.answer(request, peer=B, shard=OF_B),
            lambda asker, request: asker.answer(request + 1),
            lambda asker, request: asker.answer(0),
            lambda asker, request: asker.answer(2**64 - 1),
            lambda asker, request: asker.requests.on_answer(A, seq_state(request), Micros(5)),
            lambda asker, request: asker.requests.on_answer(
                A, Trimmed(request_id=request, log=LogId(1), shard=SHARD, status=Status.OK), Micros(5)
            ),
        ],
        ids=["node", "client", "shard", "node and shard", "next id", "zero", "last id", "kind", "kind, same shard"],
    )
    @pytest.mark.parametrize("once", [True, False])
    def test_what_was_not_asked_or_not_of_them_changes_nothing(
        self, asker: Asker, once: bool, answer: Callable[[Asker, int], None]
    ) -> None:
        request = asker.ask(once=once)
        answer(asker, request)
        assert (asker.answers, asker.failures) == ([], [])
        asker.answer(request)
        assert asker.told() == [request], "the request is still open for the right answer"

    def test_an_answer_that_names_no_shard_has_to_come_from_the_node(self, asker: Asker) -> None:
        told: list[int] = []
        request = asker.requests.ask(A, SeqState, lambda answer, now: told.append(answer.request_id))
        asker.requests.on_answer(B, seq_state(request), Micros(5))
        assert told == []
        asker.requests.on_answer(A, seq_state(request), Micros(5))
        assert told == [request]


class TestLostPeers:
    def test_who_asked_a_peer_that_is_lost_hears_so_at_once_and_nobody_else_does(self, asker: Asker) -> None:
        lost, kept = [asker.ask(), asker.ask(ITS_NEIGHBOUR, once=False)], asker.ask(OF_B)
        asker.requests.on_peer_down(A, Micros(9))
        assert asker.failures == [(Status.PEER_CLOSED, 9)] * 2
        assert [each in asker.requests for each in (*lost, kept)] == [False, False, True]

    def test_a_request_fails_once(self, asker: Asker) -> None:
        asker.ask()
        asker.requests.on_peer_down(A, Micros(9))
        asker.requests.on_peer_down(A, Micros(10))
        asker.timers.advance(Micros(DEADLINE))
        assert asker.failures == [(Status.PEER_CLOSED, 9)]

    def test_an_answer_that_comes_over_the_next_connection_is_late(self, asker: Asker) -> None:
        requests = [asker.ask(), asker.ask(once=False)]
        asker.requests.on_peer_down(A, Micros(9))
        for request in requests:
            asker.answer(request)
        assert asker.answers == []

    def test_what_is_asked_because_of_the_loss_is_not_lost(self, asker: Asker) -> None:
        again: list[int] = []
        asker.requests.ask(A, SealChecked, _ignore, failed=lambda status, now: again.append(asker.ask()))
        asker.requests.on_peer_down(A, Micros(9))
        assert asker.failures == []
        asker.answer(again[0])
        assert asker.told() == again

    def test_what_one_forgets_because_of_the_loss_of_another_hears_nothing(self, asker: Asker) -> None:
        ids: list[int] = []
        ids.append(
            asker.requests.ask(A, SealChecked, _ignore, failed=lambda status, now: asker.requests.forget(ids[1]))
        )
        ids.append(asker.ask())
        asker.requests.on_peer_down(A, Micros(9))
        assert asker.failures == []


class TestDeadlines:
    def test_a_request_fails_at_its_deadline_not_before_and_later_answers_do_not_count(self, asker: Asker) -> None:
        request = asker.ask()
        asker.timers.advance(Micros(DEADLINE - 1))
        assert asker.failures == []
        asker.timers.advance(Micros(DEADLINE))
        asker.answer(request, now=DEADLINE + 1)
        assert (asker.answers, asker.failures) == ([], [(Status.TIMEDOUT, DEADLINE)])

    def test_one_that_may_have_several_answers_keeps_its_deadline(self, asker: Asker) -> None:
        request = asker.ask(once=False)
        asker.answer(request)
        asker.timers.advance(Micros(DEADLINE))
        asker.answer(request)
        assert (asker.told(), asker.failures) == ([request], [(Status.TIMEDOUT, DEADLINE)])

    @pytest.mark.parametrize("close", [Asker.answer, lambda asker, request: asker.requests.forget(request)])
    def test_one_that_is_answered_or_forgotten_has_none(
        self, asker: Asker, close: Callable[[Asker, int], None]
    ) -> None:
        close(asker, asker.ask())
        assert asker.timers.next_deadline() is None
        asker.timers.advance(Micros(DEADLINE))
        assert asker.failures == []

    def test_without_a_deadline_it_stays_open(self, asker: Asker) -> None:
        request = asker.ask(deadline=None)
        asker.timers.advance(Micros(10**12))
        assert request in asker.requests
        assert asker.failures == []

    def test_nobody_has_to_want_to_know_that_there_is_no_answer(self, asker: Asker) -> None:
        requests = asker.requests
        requests.ask(A, SealChecked, _ignore, deadline=DEADLINE)
        requests.ask(B, SealChecked, _ignore)
        asker.timers.advance(Micros(DEADLINE))
        requests.on_peer_down(B, Micros(DEADLINE))
        assert len(requests) == 0


def test_a_request_may_be_forgotten_twice_and_when_there_never_was_one(asker: Asker) -> None:
    request = asker.ask()
    for each in (request, request, 0, request + 1):
        asker.requests.forget(each)
    assert len(asker.requests) == 0
    asker.answer(request)
    assert (asker.answers, asker.failures) == ([], [])


@pytest.mark.parametrize("kind", [Append, Stored])
def test_only_answers_that_name_their_request_are_waited_for(asker: Asker, kind: type[object]) -> None:
    with pytest.raises(AssertionError, match=kind.__name__):
        asker.requests.ask(A, kind, _ignore)


def test_no_two_runs_of_a_node_give_a_request_the_same_id() -> None:
    starts = [0, 1, 2, 2**32 - 1]
    runs = [set(islice(ids_of_run(InstanceId(start)), 1000)) for start in starts]
    assert len(set().union(*runs)) == 4000
    assert max(max(run) for run in runs) < 2**63
    assert 0 not in set().union(*runs), "none is taken for no request"


def _ignore(answer: object, now: Micros) -> None:
    """Not wanted."""
