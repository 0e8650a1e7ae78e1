"""In which order the effects of a turn are run, and which messages wait or are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import GetSeqState, Release, Store, says
from logdevice_py.shell.outgoing import WAIT_US
from logdevice_py.shell.turn import ROUNDS_MAX, Turn

OWN = PeerId(0)
PEER = PeerId(1)
OTHER = PeerId(2)


def urgent(number: int) -> GetSeqState:
    return GetSeqState(request_id=number, log=LogId(1), flags=0, min_epoch=Epoch(0))


def release(number: int) -> Release:
    return Release(shard=ShardId(0), logs=[(LogId(1), number)])


def store(released: int) -> Store:
    return Store(
        log=LogId(1),
        lsn=Lsn(9),
        shard=ShardId(0),
        generation=Generation(1),
        wave=1,
        flags=0,
        seal_epoch=Epoch(0),
        recovery_id=0,
        released=Lsn(released),
        image=b"image",
    )


class First:
    """An effect of a kind."""


class Second:
    """One of another kind."""


class Bench:
    """A machine that does what it is told, and what its effects did, in order."""

    def __init__(self) -> None:
        self.now = Micros(0)
        self.done: list[Any] = []
        self.outbox = Outbox()
        self.timers = TimerQueue()
        self.on_message_do: Callable[[Any], None] = lambda message: None
        self.turn = Turn(
            self,
            self.outbox.take,
            self.timers,
            {First: lambda same: self.done.append(("first", len(same))), Second: self.run_second},
            own=OWN,
            sink=self,
        )
        self.run_second_do: Callable[[], None] = lambda: None

    # the sink

    def send(self, to: PeerId, message: Any) -> None:
        self.done.append((int(to), message))

    def flush(self) -> None:
        if self.done and self.done[-1] != "flush":
            self.done.append("flush")

    # the machine

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        assert peer == OWN
        self.done.append(("own", message))
        self.on_message_do(message)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None: ...

    def on_peer_down(self, peer: PeerId, now: Micros, *, refused: bool) -> None: ...

    def on_turn_end(self, now: Micros) -> None:
        assert now == self.now

    def run_second(self, same: list[Any]) -> None:
        self.done.append(("second", len(same)))
        self.run_second_do()

    # what tests do

    def run(self, *effects: Any) -> bool:
        for effect in effects:
            self.outbox.emit(effect)
        return self.turn.run(lambda: self.now)

    def pass_time(self, us: int) -> None:
        self.now = Micros(self.now + us)
        self.timers.advance(self.now)

    def sent(self) -> list[Any]:
        """Since the last call, without flushes."""
        done, self.done = self.done, []
        return [each for each in done if each != "flush"]


def defer(to: PeerId, message: Any) -> Send:
    return Send(to, message, deferrable=True)


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestOrder:
    def test_messages_leave_before_other_effects_are_run_and_kinds_stay_together(self, bench: Bench) -> None:
        assert not bench.run(Second(), Send(PEER, 1), First(), Send(OTHER, 2), Second(), Send(PEER, 3))
        assert bench.done == [(1, 1), (2, 2), (1, 3), "flush", ("second", 2), ("first", 1)]

    def test_messages_to_the_own_node_and_outcomes_come_in_the_same_turn_after_the_effects(self, bench: Bench) -> None:
        bench.run_second_do = lambda: bench.turn.complete(lambda now: bench.done.append("outcome"))
        assert not bench.run(Send(OWN, "a"), Second(), Send(PEER, 1))
        assert bench.done == [(1, 1), "flush", ("second", 1), "outcome", ("own", "a")]

    def test_a_machine_that_talks_to_itself_lets_others_have_their_share(self, bench: Bench) -> None:
        bench.on_message_do = lambda message: bench.outbox.send(OWN, message + 1)
        assert bench.run(Send(OWN, 1))
        assert len(bench.sent()) == ROUNDS_MAX - 1
        assert bench.run()
        assert bench.sent()[0] == ("own", ROUNDS_MAX)

    def test_nothing_follows_the_round_that_stops(self, bench: Bench) -> None:
        bench.run_second_do = bench.turn.stop
        assert not bench.run(Send(OWN, 1), Second())
        assert bench.sent() == [("second", 1)]


class TestDeferrableMessages:
    def make_company(self, bench: Bench) -> None:
        """The last deferrable message to PEER would not have waited in vain."""
        bench.run(defer(PEER, release(1)))
        bench.run(Send(PEER, urgent(1)))
        assert bench.sent() == [(1, release(1)), (1, urgent(1))]

    def test_one_leaves_at_once_when_nothing_followed_the_one_before(self, bench: Bench) -> None:
        for number in (1, 2, 3):
            bench.run(defer(PEER, release(number)))
            assert bench.sent() == [(1, release(number))]
            bench.pass_time(WAIT_US)
            bench.run(Send(PEER, urgent(number)))
            bench.sent()

    def test_one_waits_for_the_next_one_where_such_have_come_and_order_is_kept(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(defer(PEER, release(2)))
        assert bench.sent() == []
        bench.run(defer(PEER, release(3)), Send(OTHER, urgent(2)))
        assert bench.sent() == [(2, urgent(2))]
        bench.run(Send(PEER, urgent(3)))
        assert bench.sent() == [(1, release(2)), (1, release(3)), (1, urgent(3))]

    def test_a_release_that_waits_is_left_out_when_a_store_says_the_same(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(defer(PEER, release(2)), Send(PEER, store(released=2)))
        assert bench.sent() == [(1, store(released=2))]
        bench.run(defer(PEER, release(3)))
        bench.run(Send(PEER, store(released=2)))
        assert bench.sent() == [(1, release(3)), (1, store(released=2))]

    def test_one_that_follows_another_message_of_its_turn_leaves_with_it(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(Send(PEER, urgent(2)), defer(PEER, release(2)))
        assert bench.sent() == [(1, urgent(2)), (1, release(2))]

    def test_one_that_waits_in_vain_is_sent_in_one_write_and_the_next_does_not_wait(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(defer(PEER, release(2)))
        bench.pass_time(WAIT_US - 1)
        assert bench.done == []
        bench.pass_time(1)
        assert bench.done == [(1, release(2)), "flush"]
        bench.sent()
        bench.run(defer(PEER, release(3)))
        assert bench.sent() == [(1, release(3))]

    def test_each_peer_has_a_wait_of_its_own(self, bench: Bench) -> None:
        for peer in (PEER, OTHER):
            bench.run(defer(peer, release(1)))
            bench.run(Send(peer, urgent(1)))
        bench.sent()
        bench.run(defer(PEER, release(2)))
        bench.pass_time(WAIT_US // 2)
        bench.run(defer(OTHER, release(3)))
        bench.pass_time(WAIT_US // 2)
        assert bench.sent() == [(1, release(2))]
        bench.pass_time(WAIT_US // 2)
        assert bench.sent() == [(2, release(3))]
        assert bench.timers.next_deadline() is None

    def test_no_timer_is_left_when_nothing_waits(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(defer(PEER, release(2)))
        assert bench.timers.next_deadline() == WAIT_US
        bench.run(Send(PEER, urgent(2)))
        assert bench.timers.next_deadline() is None

    def test_what_waits_for_a_peer_is_lost_with_its_connection(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(defer(PEER, release(2)))
        bench.turn.on_peer_down(PEER)
        bench.pass_time(WAIT_US)
        bench.run(Send(PEER, urgent(2)))
        assert bench.sent() == [(1, urgent(2))]

    def test_what_waits_is_sent_at_the_end(self, bench: Bench) -> None:
        self.make_company(bench)
        bench.run(defer(PEER, release(2)))
        bench.turn.send_waiting()
        assert bench.done == [(1, release(2)), "flush"]

    def test_one_to_the_own_node_waits_for_the_next_and_is_delivered_when_none_comes(self, bench: Bench) -> None:
        bench.run(defer(OWN, release(1)))
        assert bench.sent() == []
        bench.run(Send(OWN, urgent(1)))
        assert bench.sent() == [("own", release(1)), ("own", urgent(1))]
        bench.run(defer(OWN, release(2)))
        bench.run(Send(OWN, store(released=2)))
        assert bench.sent() == [("own", store(released=2))]
        bench.run(defer(OWN, release(3)))
        bench.pass_time(WAIT_US)
        bench.run()
        assert bench.sent() == [("own", release(3))]


@pytest.mark.parametrize(
    ("deferred", "left_out"),
    [
        (Release(shard=ShardId(0), logs=[(1, 7)]), True),
        (Release(shard=ShardId(0), logs=[(1, 6)]), True),
        (Release(shard=ShardId(0), logs=[(1, 8)]), False),
        (Release(shard=ShardId(0), logs=[(2, 7)]), False),
        (Release(shard=ShardId(0), logs=[(1, 7), (2, 7)]), False),
        (Release(shard=ShardId(1), logs=[(1, 7)]), False),
    ],
)
def test_a_store_says_what_a_release_of_its_log_alone_says_to_its_shard(deferred: Release, left_out: bool) -> None:
    assert says(store(released=7), deferred) is left_out
    assert not says(urgent(1), deferred)
