from __future__ import annotations

from client.read.release_lookup import ReleaseLookup
from client.read.settings import ReadSettings
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn, compose_lsn
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import SECOND, Micros


class LookedUpStream:
    """As much of a read stream as is looked at."""

    def __init__(self) -> None:
        self.log = LogId(7)
        self.next_lsn: Lsn = compose_lsn(1, 1)
        self.ready = False


class Bench:
    """Streams that are looked at under virtual time, and what was asked when."""

    def __init__(self) -> None:
        self.timers = TimerQueue()
        self.streams: dict[int, LookedUpStream] = {}
        self.asked: list[int] = []
        self.now = Micros(0)
        self.lookup = ReleaseLookup(
            self.streams, lambda log, now: self.asked.append(now // SECOND), self.timers, ReadSettings()
        )

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.lookup.watch(self.now)
            self.now = Micros(self.now + SECOND)
            self.timers.advance(self.now)


def test_a_stream_that_gets_nothing_asks_and_then_less_and_less_often() -> None:
    bench = Bench()
    bench.streams[1] = LookedUpStream()
    bench.pass_seconds(200)
    assert bench.asked[0] == 4
    pauses = [later - earlier for earlier, later in zip(bench.asked, bench.asked[1:], strict=False)]
    assert pauses == [4, 8, 16, 32, 60, 60]


def test_a_stream_that_moves_never_asks() -> None:
    bench = Bench()
    stream = bench.streams[1] = LookedUpStream()
    for esn in range(2, 100):
        stream.next_lsn = compose_lsn(1, esn)
        bench.pass_seconds(1)
    assert bench.asked == []


def test_a_stream_whose_application_does_not_take_what_is_there_never_asks() -> None:
    bench = Bench()
    bench.streams[1] = LookedUpStream()
    bench.streams[1].ready = True
    bench.pass_seconds(100)
    assert bench.asked == []


def test_nothing_is_looked_at_without_streams() -> None:
    bench = Bench()
    bench.streams[1] = LookedUpStream()
    bench.pass_seconds(3)
    del bench.streams[1]
    bench.pass_seconds(5)
    assert bench.timers.next_deadline() is None


def test_many_streams_of_a_log_ask_once() -> None:
    bench = Bench()
    bench.streams.update({number: LookedUpStream() for number in range(1, 100)})
    bench.pass_seconds(5)
    assert bench.asked == [4]


def test_when_nodes_die_streams_of_their_logs_ask_at_once_and_then_seldom_again() -> None:
    bench = Bench()
    theirs, other = LookedUpStream(), LookedUpStream()
    other.log = LogId(8)
    bench.streams.update({1: theirs, 2: other})
    bench.pass_seconds(50)  # both ask every minute by now
    bench.asked.clear()
    bench.lookup.on_nodes_dead(lambda log: log == theirs.log, bench.now)
    bench.timers.advance(bench.now)
    assert bench.asked == [50]
    bench.pass_seconds(8)
    assert bench.asked == [50, 54]


def test_a_stream_that_has_moved_a_moment_ago_asks_when_its_node_dies() -> None:
    bench = Bench()
    stream = bench.streams[1] = LookedUpStream()
    bench.pass_seconds(3)
    stream.next_lsn = compose_lsn(1, 9)
    bench.lookup.on_nodes_dead(lambda log: True, bench.now)
    bench.timers.advance(bench.now)
    assert bench.asked == [3]


def test_what_the_application_does_not_take_needs_no_question_when_a_node_dies() -> None:
    bench = Bench()
    bench.streams[1] = LookedUpStream()
    bench.streams[1].ready = True
    bench.lookup.on_nodes_dead(lambda log: True, bench.now)
    bench.timers.advance(bench.now)
    assert bench.asked == []
