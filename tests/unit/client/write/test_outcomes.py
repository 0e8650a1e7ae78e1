"""What callers of a BufferedWriter are told when something goes wrong in the middle, and that nothing is kept for those who were told."""

from __future__ import annotations

from client.write.frame import FrameFate
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import GetSeqState
from tests.unit.client.fakes import LOG, FakePromise, seq_state
from tests.unit.client.write.test_write_streams import WritingClient

SECOND = 1_000_000


def flushed(w: WritingClient) -> FakePromise:
    promise = FakePromise()
    w.writer.flush(promise, w.bench.now)
    w.bench.turn()
    return promise


class TestFlush:
    def test_it_waits_for_earlier_frames_although_a_later_one_failed_already(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        good, bad = w.append(b"good"), w.append(b"bad")
        first, second = w.located()
        promise = flushed(w)
        w.answer(second, Status.TOOBIG)
        assert bad.done()
        assert not good.done()
        assert not promise.done()
        w.answer(first, esn=1)
        assert good.result is not None
        assert promise.failure.status is Status.TOOBIG

    def test_it_waits_for_the_frame_before_although_those_between_failed_too(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        for payload in (b"1", b"2", b"3"):
            w.append(payload)
        first, second, third = w.located()
        promise = flushed(w)
        w.answer(third, Status.BADPAYLOAD)
        w.answer(second, Status.BADPAYLOAD)
        assert not promise.done()
        w.answer(first, esn=1)
        assert promise.failure.detail.startswith("2 records")


class TestAppendMany:
    def test_a_call_that_is_stored_in_part_may_be_applied(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        many = w.append_many([b"a", b"b"])
        first, second = w.located()
        w.answer(first, esn=1)
        w.answer(second, Status.TOOBIG)
        assert many.failure.status is Status.TOOBIG
        assert many.failure.maybe_applied
        assert "1 of 2 records" in many.failure.detail

    def test_a_call_of_which_nothing_is_stored_is_not_applied(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        many = w.append_many([b"a", b"b"])
        first, second = w.located()
        w.answer(first, Status.TOOBIG)
        w.answer(second, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
        (second,) = w.frames()
        w.answer(second, Status.TOOBIG)
        assert not many.failure.maybe_applied

    def test_frames_filled_to_the_limit_of_an_entry_stay_within_it_with_all_that_packing_adds(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=64 << 20, memory_bytes_max=64 << 20)
        limit = w.writer.payload_max(LOG)
        w.append_many([b"L" * (limit // 2 - 5)] * 4)
        frames = w.located()
        assert sum(frame.records for frame in frames) == 4
        assert max(len(frame.payload) for frame in frames) <= limit


class TestNothingIsKept:
    def test_of_records_that_expired_while_the_log_cannot_be_found(self) -> None:
        w = WritingClient(time_trigger_us=0, timeout_us=SECOND)
        promise = w.append(b"x" * 1000)
        w.bench.pass_time(2 * SECOND)
        assert promise.failure.status is Status.TIMEDOUT
        assert w.writer.unacknowledged_bytes == 0
        assert w.stream.idle

    def test_of_records_that_expired_while_the_sequencer_refuses(self) -> None:
        w = WritingClient(time_trigger_us=0, timeout_us=SECOND)
        w.append()
        (frame,) = w.located()
        w.bench.pass_time(900_000)
        w.answer(frame, Status.ISOLATED)
        w.bench.taken()
        w.bench.pass_time(2 * SECOND)
        assert w.stream.idle

    def test_of_queued_records_that_expired_while_the_outcome_of_an_earlier_frame_is_unknown(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1, frames_in_flight_max=1, timeout_us=SECOND)
        doubtful, queued = w.append(b"1"), w.append(b"2")
        w.located(epoch=3)
        w.bench.down(w.node)
        w.bench.pass_time(2 * SECOND)
        assert doubtful.failure.maybe_applied
        assert not queued.failure.maybe_applied
        assert [frame.fate for frame in w.stream._frames] == [FrameFate.UNKNOWN]
        later = w.append(b"3")
        w.bench.turn()
        node, question = w.bench.taken(GetSeqState)[-1]
        w.node, w.epoch = node, 4
        w.bench.answer(node, seq_state(question, epoch=4))
        w.found({1: compose_lsn(3, 1)})
        (frame,) = w.frames()
        assert (frame.payload, frame.sequence) == (b"3", 2)
        w.answer(frame, esn=1)
        assert later.result is not None


class TestAborting:
    def overtaken(self) -> tuple[WritingClient, FakePromise, FakePromise]:
        """A later frame has its position while the outcome of an earlier one is unknown."""
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        first, second = w.append(b"1"), w.append(b"2")
        one, two = w.located(epoch=3)
        w.answer(one, Status.PREEMPTED, esn=1)
        w.answer(two, esn=2)
        return w, first, second

    def test_a_frame_whose_position_is_known_has_its_receipt_although_the_log_was_removed(self) -> None:
        w, first, second = self.overtaken()
        node, question = w.bench.one(GetSeqState)
        w.bench.answer(node, seq_state(question, Status.NOTFOUND))
        assert first.failure.maybe_applied
        assert second.result.lsn == compose_lsn(3, 2)
        assert w.writer.unacknowledged_bytes == 0

    def test_a_frame_whose_position_is_known_has_its_receipt_although_the_writer_is_closed(self) -> None:
        w, first, second = self.overtaken()
        w.writer.close()
        assert first.failure.maybe_applied
        assert second.result.lsn == compose_lsn(3, 2)

    def test_to_close_a_writer_again_is_harmless(self) -> None:
        w, first, _ = self.overtaken()
        w.writer.close()
        w.writer.close()
        assert first.failure.maybe_applied


class TestWaiting:
    def test_it_is_told_why_nothing_is_acknowledged(self) -> None:
        w = WritingClient(time_trigger_us=0)

        def waits_for() -> str | None:
            return w.writer.waiting_for(LOG, w.bench.now)

        assert waits_for() is None
        w.append()
        w.bench.turn()
        node = w.bench.taken(GetSeqState)[0][0]
        assert waits_for() == f"the sequencer of the log to answer: N{node} to answer, asked 0 ms ago"
        w = WritingClient(time_trigger_us=0)
        w.append()
        (frame,) = w.located()
        w.bench.pass_time(40_000)
        asked = f"the sequencer to acknowledge: N{w.node} to answer, asked"
        assert waits_for() == f"{asked} 40 ms ago"
        w.answer(frame, Status.NOSPC)
        assert waits_for() == "the next try (last refusal: NOSPC)"
        w.bench.pass_time(SECOND)
        (frame,) = w.frames()
        assert str(waits_for()).startswith(asked)
        assert str(waits_for()).endswith("(last refusal: NOSPC)")
        w.bench.down(w.node)
        assert "recovery of epoch 3" in str(waits_for())
        w.moved(epoch=4)
        assert str(waits_for()).startswith("records of epoch 3 to be read whose outcome is not known: e3n1 from")
        w.found({1: compose_lsn(3, 1)})
        assert waits_for() is None

    def test_a_sequencer_that_refuses_to_say_where_the_log_is_is_quoted(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append()
        node, question = w.bench.one(GetSeqState)
        w.bench.answer(node, seq_state(question, Status.NOSEQUENCER))
        assert w.writer.waiting_for(LOG, w.bench.now) == (
            f"the sequencer of the log to answer: the next try; the log is in epoch 1, as far as is known; "
            f"NOSEQUENCER from N{node}: no node sequences the log at present"
        )

    def test_records_that_are_aborted_say_what_they_waited_for(self) -> None:
        w = WritingClient(time_trigger_us=0, timeout_us=SECOND, silence_us=60 * SECOND)
        promise = w.append()
        w.located(epoch=3)
        w.bench.pass_time(2 * SECOND)
        assert promise.failure.status is Status.TIMEDOUT
        assert promise.failure.detail.startswith(
            f"after 1.0 s it waited for the sequencer to acknowledge: N{w.node} to answer, asked 1."
        )
