"""Nodes that keep requests waiting are asked why; what they say stands in the errors, and changes nothing else."""

from __future__ import annotations

from itertools import count
from typing import Any

from client.inquiries import Inquiries
from client.links import Links
from logdevice_py.core.ids import LogId, NodeId, PeerId
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.protocol.messages import SeqStateFlags, SeqStateWait
from logdevice_py.protocol.requests import Requests
from tests.unit.client.fakes import LOG, Bench, FakePromise, appended, seq_state

WAIT = SeqStateWait("APPEND", "STORES_AGAIN", "N1:S0", 3, 2_900_000, "wave 4")


def answer_inquiries(bench: Bench, *waits: tuple[str, str, str, int, int, str]) -> None:
    bench.taken()
    asked, bench.inquiries = bench.inquiries, []
    for node, message in asked:
        answer = seq_state(message, Status.AGAIN, epoch=0)
        answer.waits = list(waits)
        bench.answer(node, answer)


def test_an_append_that_is_not_answered_asks_its_node_and_tells_what_it_said() -> None:
    bench, promise = Bench(), FakePromise()
    bench.session.append(LOG, b"x", promise, 2 * SECOND)
    node, _ = bench.one()
    bench.pass_time(200 * MILLISECOND)
    bench.taken()
    assert bench.inquiries == [], "most appends are answered by then"
    bench.pass_time(200 * MILLISECOND)
    bench.taken()
    assert [(who, message.log, message.flags) for who, message in bench.inquiries] == [
        (node, LOG, int(SeqStateFlags.EXPLAIN))
    ]
    answer_inquiries(bench, WAIT)
    bench.pass_time(2 * SECOND)
    assert (
        f" ago N{node} said: APPEND waits for STORES_AGAIN of N1:S0 for 2.9 s (3 of them) (wave 4)"
        in promise.failure.detail
    )


def test_what_a_node_says_redirects_nobody_and_ends_nothing() -> None:
    bench, promise = Bench(), FakePromise()
    bench.session.append(LOG, b"x", promise)
    node, message = bench.one()
    bench.pass_time(400 * MILLISECOND)
    answer_inquiries(bench, WAIT)
    assert not promise.done()
    later = FakePromise()
    bench.session.append(LOG, b"y", later)
    assert bench.one()[0] == node
    bench.answer(node, appended(message))
    assert promise.result is not None


def test_a_node_that_refuses_again_and_again_is_not_asked_each_time() -> None:
    bench, promise = Bench(), FakePromise()
    bench.session.append(LOG, b"x", promise, 2 * SECOND)
    refused = 0
    while not promise.done():
        for node, message in bench.taken():
            refused += 1
            bench.answer(node, appended(message, Status.SEQNOBUFS))
        bench.pass_time(1 * MILLISECOND)
    assert refused > 5
    assert 1 <= len(bench.inquiries) <= 8


def test_an_old_answer_is_not_told_of_a_later_request_and_one_of_another_node_not_at_all() -> None:
    links = Links()
    links.on_peer_up(PeerId(1))
    requests = Requests(count(1), TimerQueue())
    inquiries = Inquiries(links, requests)
    inquiries.ask(LogId(7), NodeId(2), Micros(0))
    assert links.take() == [], "nobody is dialled for it"
    inquiries.ask(LogId(7), NodeId(1), Micros(0))
    (sent,) = links.take()
    answer: Any = seq_state(sent.message, Status.AGAIN)
    answer.waits = [WAIT]
    requests.on_answer(PeerId(2), answer, Micros(4))
    assert inquiries.told(LogId(7), NodeId(1), Micros(0), Micros(5)) == ""
    requests.on_answer(PeerId(1), answer, Micros(5))
    assert inquiries.told(LogId(7), NodeId(1), Micros(5), Micros(5)).startswith("0 ms ago N1 said: APPEND")
    assert inquiries.told(LogId(7), NodeId(1), Micros(6), Micros(9)) == ""
    assert inquiries.told(LogId(7), NodeId(2), Micros(0), Micros(9)) == ""
    assert inquiries.told(LogId(8), NodeId(1), Micros(0), Micros(9)) == ""


def test_memory_is_bounded_however_many_logs_are_asked_about() -> None:
    links = Links()
    links.on_peer_up(PeerId(1))
    requests = Requests(count(1), TimerQueue())
    inquiries = Inquiries(links, requests)
    for log in range(1, 3000):
        inquiries.ask(LogId(log), NodeId(1), Micros(0))
    assert len(requests) == 1000
    for effect in links.take():
        requests.on_answer(PeerId(1), seq_state(effect.message), Micros(1))
    held = (inquiries._asked, inquiries._said)
    assert all(0 < len(each) <= 1000 for each in held)
    assert len(requests) == 0


def test_asked_again_a_node_may_answer_the_first_question() -> None:
    links = Links()
    links.on_peer_up(PeerId(1))
    requests = Requests(count(1), TimerQueue())
    inquiries = Inquiries(links, requests)
    for second in range(3):
        inquiries.ask(LogId(7), NodeId(1), Micros(second * SECOND))
    first, *others = [effect.message for effect in links.take()]
    assert [each.request_id for each in others] == [first.request_id] * 2
    answer: Any = seq_state(first, Status.AGAIN)
    answer.waits = [WAIT]
    requests.on_answer(PeerId(1), answer, Micros(5))
    assert inquiries.told(LogId(7), NodeId(1), Micros(0), Micros(5)) != ""
    inquiries.ask(LogId(7), NodeId(1), Micros(9 * SECOND))
    assert links.take()[0].message.request_id != first.request_id, "an answered question is closed"
