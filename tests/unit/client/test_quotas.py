"""Quotas as clients meet them: how long they wait, in which order they go on, and what they tell."""

from __future__ import annotations

from client.settings import ClientSettings
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.messages import Append, AppendFlags
from tests.unit.client.append.test_append_request import append
from tests.unit.client.fakes import LOG, Bench, appended
from tests.unit.client.write.test_write_streams import WritingClient

RESUME = int(AppendFlags.RESUME)
WAIT = SECOND // 2


def lone() -> Bench:
    """A client of which each append leaves in a frame of its own."""
    return Bench(settings=ClientSettings(coalesce_wait_us=0, coalesce_bytes=1))


def next_tried(bench: Bench) -> list[tuple[NodeId, Append]]:
    """What is sent next, and when nothing was for long."""
    for _ in range(2 * WAIT // 1000):
        bench.pass_time(1000)
        if tried := bench.taken():
            return tried
    raise AssertionError("nothing is tried")


def payloads(frames: list[tuple[NodeId, Append]]) -> list[bytes]:
    return [frame.payload for _, frame in frames]


class TestDirectAppends:
    def test_it_is_tried_again_when_the_sequencer_says(self) -> None:
        bench = lone()
        promise = append(bench, b"late")
        node, frame = bench.one()
        bench.answer(node, appended(frame, Status.THROTTLED, there=WAIT))
        bench.pass_time(WAIT - 1)
        assert bench.taken() == []
        bench.pass_time(WAIT // 10 + 1)
        node, again = bench.one()
        assert again.payload == b"late"
        bench.answer(node, appended(again))
        assert promise.result.lsn
        assert bench.session.metrics.frames_throttled == 1

    def test_one_that_has_no_time_for_it_fails_at_once_and_says_when(self) -> None:
        bench = lone()
        promise = append(bench, timeout_us=SECOND)
        node, frame = bench.one()
        bench.answer(node, appended(frame, Status.THROTTLED, there=3 * SECOND))
        error = promise.failure
        assert error.status is Status.THROTTLED
        assert error.retriable
        assert not error.maybe_applied
        assert error.retry_after_us == 3 * SECOND
        assert "takes this append in 3.0 s" in error.detail

    def test_what_is_called_later_waits_behind_and_what_waits_goes_on_in_order_bit_by_bit(self) -> None:
        bench = lone()
        promises = []
        for number in range(6):
            promises.append(append(bench, b"%d" % number))
            bench.turn()
        first = bench.taken()
        assert len(first) == 6
        for node, frame in first:
            bench.answer(node, appended(frame, Status.THROTTLED, there=WAIT))
        promises.append(append(bench, b"6"))
        bench.turn()
        assert bench.taken() == []
        bench.pass_time(WAIT - 1)
        found: list[bytes] = []
        for expected in (1, 2, 4):
            tried = next_tried(bench)
            assert len(tried) == expected
            found += payloads(tried)
            for node, frame in tried:
                bench.answer(node, appended(frame))
        assert found == [b"%d" % number for number in range(7)]
        assert all(promise.done() for promise in promises)

    def test_who_is_refused_again_tries_one_again(self) -> None:
        bench = lone()
        for number in range(4):
            append(bench, b"%d" % number)
            bench.turn()
        for node, frame in bench.taken():
            bench.answer(node, appended(frame, Status.THROTTLED, there=WAIT))
        for _ in range(3):
            bench.pass_time(WAIT - 10_000)
            ((node, frame),) = next_tried(bench)
            assert frame.payload == b"0"
            bench.answer(node, appended(frame, Status.THROTTLED, there=WAIT))


class TestWriteStreams:
    def writing(self) -> tuple[WritingClient, list[Append]]:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        w.append_many([b"a", b"b", b"c", b"d"])
        return w, w.located()

    def throttle(self, w: WritingClient, frames: list[Append], wait: int = WAIT) -> None:
        w.answer(frames[0], Status.THROTTLED, there=wait)
        for frame in frames[1:]:
            w.answer(frame, Status.WRITE_STREAM_BROKEN)

    def test_it_waits_as_long_as_it_is_told_then_goes_on_in_order(self) -> None:
        w, frames = self.writing()
        w.answer(frames[0], esn=1)
        self.throttle(w, frames[1:])
        w.bench.pass_time(WAIT - 1)
        assert w.frames() == []
        assert "THROTTLED" in str(w.writer.waiting_for(LOG, w.bench.now))
        w.bench.pass_time(WAIT // 10 + 1)
        (second,) = w.frames()
        assert second.sequence == 2
        assert w.bench.session.metrics.frames_throttled == 0
        w.answer(second, esn=2)
        assert [frame.sequence for frame in w.frames()] == [3, 4]
        assert w.writer.metrics.throttled == 1

    def test_the_first_frame_of_an_epoch_resumes_again(self) -> None:
        w, frames = self.writing()
        self.throttle(w, frames)
        w.bench.pass_time(WAIT + WAIT // 10)
        (again,) = w.frames()
        assert again.sequence == 1
        assert again.flags & RESUME
