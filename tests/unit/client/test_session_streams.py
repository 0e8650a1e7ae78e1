"""The turns of the read streams of a session."""

from __future__ import annotations

from unittest.mock import Mock

from client.read.read_stream import ReadStream
from tests.unit.client.fakes import Bench


def test_a_turn_ends_for_the_streams_that_asked_for_it_and_for_no_other() -> None:
    bench = Bench()
    streams = {number: Mock(spec=ReadStream) for number in range(1, 4)}
    for number, stream in streams.items():
        bench.session.streams.add(number, stream, bench.now)
    bench.session.streams.request_turn_end(2)
    bench.session.streams.request_turn_end(3)
    bench.session.streams.request_turn_end(2)
    bench.session.streams.remove(3)
    bench.turn()
    bench.turn()
    assert [stream.on_turn_end.call_count for stream in streams.values()] == [0, 1, 0]


def test_a_stream_that_asks_while_a_turn_ends_is_due_at_the_end_of_the_next() -> None:
    bench = Bench()
    first, second = Mock(spec=ReadStream), Mock(spec=ReadStream)
    bench.session.streams.add(1, first, bench.now)
    bench.session.streams.add(2, second, bench.now)
    first.on_turn_end.side_effect = lambda now: bench.session.streams.request_turn_end(2)
    bench.session.streams.request_turn_end(1)
    bench.session.on_turn_end(bench.now)
    assert second.on_turn_end.call_count == 0
    bench.session.on_turn_end(bench.now)
    assert (first.on_turn_end.call_count, second.on_turn_end.call_count) == (1, 1)
