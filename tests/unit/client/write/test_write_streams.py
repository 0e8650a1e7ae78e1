"""BufferedWriter's machines: when frames are cut, what they carry, and what follows each answer."""

from __future__ import annotations

from typing import Any

import pytest

from client.guards import START, Guards
from client.settings import WriterSettings
from client.write.finder import FoundFrames
from client.write.frame import FramePosition
from client.write.write_stream import WriteStream
from logdevice_py.core.batch import decode_batch
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import ESN_MAX, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.constituents import ContentMark
from logdevice_py.protocol.messages import (
    Append,
    AppendedFlags,
    AppendFlags,
    Durability,
    GetSeqState,
    GuardedAppend,
    NodeState,
    SeqStateFlags,
)
from tests.unit.client.fakes import LOG, Bench, FakePromise, appended, cluster, seq_state

STREAM = int(AppendFlags.WRITE_STREAM)
BATCH = int(AppendFlags.BATCH)
RESUME = int(AppendFlags.RESUME)
SYNC = int(AppendFlags.SYNC)


class WritingClient:
    """A bench with one writer."""

    def __init__(self, **options: Any) -> None:
        self.bench = Bench()
        self.searches: list[Any] = []
        self.looked_for: dict[int, ContentMark] = {}
        self.writer = self.bench.session.writer(WriterSettings(**options), self)
        self.node = NodeId(-1)
        self.epoch = 3

    def find(self, log: Any, writer: Any, first: Any, until: Any, contents: Any, done: Any, now: Any) -> WritingClient:
        self.looked_for = contents
        self.searches.append((first, until, done))
        return self

    def cancel(self) -> None:
        """The one search is not wanted any more."""
        self.searches.clear()

    def waiting_for(self) -> str:
        """What the one search waits for."""
        return "e3n1 from N1:S0"

    def append(self, payload: bytes = b"x", *, synced: bool = False) -> FakePromise:
        promise = FakePromise()
        self.writer.append(LOG, payload, promise, self.bench.now, synced=synced)
        return promise

    def append_many(self, payloads: list[bytes], *, synced: bool = False) -> FakePromise:
        promise = FakePromise()
        self.writer.append_many(LOG, payloads, promise, self.bench.now, synced=synced)
        return promise

    def append_whole(self, payloads: list[bytes], guards: Guards | None = None) -> FakePromise:
        promise = FakePromise()
        self.writer.append_many(LOG, payloads, promise, self.bench.now, guards=guards, atomic=True)
        return promise

    def frames(self) -> list[Append]:
        return [message for _, message in self.bench.taken()]

    def located(self, epoch: int = 3) -> list[Append]:
        """Answer the question where the log is; the frames that follow."""
        self.node, question = self.bench.one(GetSeqState)
        self.bench.answer(self.node, seq_state(question, epoch=epoch))
        self.epoch = epoch
        return self.frames()

    def answer(self, frame: Append, status: Status = Status.OK, *, esn: int = 0, **more: Any) -> None:
        lsn = compose_lsn(self.epoch, esn) if esn else more.pop("lsn", 0)
        self.bench.answer(self.node, appended(frame, status, lsn=lsn, **more))
        self.writer.check()

    def moved(self, epoch: int) -> GetSeqState:
        """Answer the question that moves the log on."""
        node, question = self.bench.one(GetSeqState)
        self.node = node
        self.bench.answer(node, seq_state(question, epoch=epoch, released=compose_lsn(epoch, 0)))
        self.epoch = epoch
        return question  # type: ignore[no-any-return]

    def found(
        self, positions: dict[int, int], *, uncertain: bool = False, taken: dict[int, int] | None = None
    ) -> tuple[int, int]:
        """Answer the search with LSNs by sequence number; the range that was searched. `taken`: those with other content."""
        first, until, done = self.searches.pop()
        places, others = (
            {number: FramePosition(lsn, 0, Timestamp(7), (), Durability.SYNC) for number, lsn in lsns.items()}  # type: ignore[arg-type]
            for lsns in (positions, taken or {})
        )
        done(FoundFrames(places, uncertain=uncertain, taken=others), self.bench.now)
        return first, until

    @property
    def stream(self) -> WriteStream:
        return self.writer._streams[LOG]


class TestFrames:
    def test_the_first_frame_of_an_epoch_resumes_and_every_frame_names_the_exact_epoch(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append(b"a")
        (first,) = w.located(epoch=3)
        w.append(b"b")
        (second,) = w.frames()
        assert (first.flags, first.sequence, first.stream_epoch) == (STREAM | RESUME, 1, 3)
        assert (second.flags, second.sequence, second.stream_epoch) == (STREAM, 2, 3)
        assert len(first.writer) == 16
        assert first.writer == second.writer

    def test_an_atomic_batch_is_never_spread_over_frames(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1000)
        w.append_many([bytes(100)] * 5)
        w.append_whole([bytes(100)] * 50)
        w.append_many([bytes(100)] * 30)
        records = [frame.records for frame in w.located()]
        assert records == [55, 9, 9, 9, 3]

    def test_an_atomic_batch_has_a_frame_of_its_own_where_it_does_not_fit(self) -> None:
        w = WritingClient(time_trigger_us=0)
        longest = w.writer.payload_max(LOG)
        w.append(bytes(longest // 2))
        promise = w.append_whole([bytes(longest // 3)] * 2)
        first, second = w.located()
        assert (first.records, second.records) == (1, 2)
        w.answer(first, esn=1)
        w.answer(second, esn=2)
        assert promise.result.lsns() == [compose_lsn(3, 2)] * 2
        with pytest.raises(LogDeviceError, match="never split"):
            w.append_whole([bytes(longest // 2)] * 2)

    def test_an_atomic_batch_that_expects_something_goes_alone(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append(b"before")
        w.append_whole([b"a", b"b"], Guards(None, 0, START, 9))
        w.append(b"after")
        node, question = w.bench.one(GetSeqState)
        w.bench.answer(node, seq_state(question, epoch=3))
        ((_, guarded),) = w.bench.taken(GuardedAppend)
        assert (guarded.records, decode_batch(guarded.payload, 2)) == (2, [b"a", b"b"])

    def test_an_atomic_batch_tells_the_first_and_the_last_transaction_id_of_its_records(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append_whole([b"a", b"b", b"c"], Guards([5, 7, 9], 0))
        node, question = w.bench.one(GetSeqState)
        w.bench.answer(node, seq_state(question, epoch=3))
        ((_, frame),) = w.bench.taken(GuardedAppend)
        assert (frame.records, frame.first_transaction, frame.last_transaction) == (3, 5, 9)

    def test_a_frame_has_the_guards_of_its_own_records_only(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.bench.session.set_config(cluster(3, 2, "max_payload_bytes = '1000B'"), w.bench.now)
        for transaction, payload in ((5, bytes(500)), (9, bytes(700))):
            w.writer.append_many(LOG, [payload], FakePromise(), w.bench.now, guards=Guards([transaction], 0))
        node, question = w.bench.one(GetSeqState)
        w.bench.answer(node, seq_state(question, epoch=3))
        frames = [message for _, message in w.bench.taken(GuardedAppend)]
        assert [(frame.first_transaction, frame.last_transaction) for frame in frames] == [(5, 5), (9, 9)]

    def test_receipts_count_records_within_the_frame(self) -> None:
        w = WritingClient(time_trigger_us=0)
        one, many = w.append(b"a"), w.append_many([b"b", b"", b"c"])
        (frame,) = w.located()
        assert frame.flags & BATCH
        assert decode_batch(frame.payload, 4) == [b"a", b"b", b"", b"c"]
        w.answer(frame, esn=8, offset=10)
        assert one.result.batch_offset == 10
        assert many.result.batch_offsets() == [11, 12, 13]
        assert {receipt.lsn for receipt in many.result} == {compose_lsn(3, 8)}

    def test_one_call_may_be_spread_over_frames_and_is_answered_once(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=50)
        many = w.append_many([b"0123456789"] * 10)
        frames = w.located()
        assert [frame.records for frame in frames] == [3, 3, 3, 1]
        for esn, frame in enumerate(frames[:-1], 1):
            w.answer(frame, esn=esn)
            assert not many.done()
        w.answer(frames[-1], esn=4)
        assert [lsn & 0xFFFF for lsn in many.result.lsns()] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
        assert many.result[-1].lsn == compose_lsn(3, 4)

    def test_a_frame_asks_for_a_sync_when_one_of_its_records_does(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append(b"a")
        w.append(b"b", synced=True)
        (first,) = w.located()
        w.append(b"c")
        (second,) = w.frames()
        assert (first.flags, second.flags) == (STREAM | BATCH | RESUME | SYNC, STREAM)

    def test_so_do_all_frames_over_which_a_call_is_spread_and_no_others(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=50)
        w.append_many([b"x" * 50])
        w.append_many([b"x" * 50] * 2, synced=True)
        w.append_many([b"x" * 50])
        assert [frame.flags & SYNC for frame in w.located()] == [0, SYNC, SYNC, 0]

    def test_a_frame_that_is_sent_again_in_another_epoch_asks_again(self) -> None:
        w = WritingClient(time_trigger_us=0)
        promise = w.append(synced=True)
        (frame,) = w.located(epoch=3)
        w.answer(frame, Status.STALE, lsn=compose_lsn(5, 0), flags=int(AppendedFlags.NOT_REPLICATED))
        w.epoch = 5
        (again,) = w.frames()
        assert (again.flags, again.stream_epoch) == (STREAM | RESUME | SYNC, 5)
        w.answer(again, esn=1, durability=Durability.ASYNC)
        assert promise.result.durability is Durability.ASYNC

    def test_a_record_that_does_not_fit_begins_the_next_frame(self) -> None:
        w = WritingClient(time_trigger_us=0)
        limit = w.writer.payload_max(LOG)
        w.append(b"small")
        w.append(b"L" * limit)
        first, second = w.located()
        assert (first.records, second.records) == (1, 1)
        assert len(second.payload) == limit

    def test_a_record_over_the_limit_is_refused_and_nothing_is_taken(self) -> None:
        w = WritingClient()
        with pytest.raises(LogDeviceError) as caught:
            w.append_many([b"ok", b"L" * (w.writer.payload_max(LOG) + 1)])
        assert caught.value.status is Status.TOOBIG
        assert w.writer.unacknowledged_bytes == 0

    def test_frames_follow_the_limit_of_their_log(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append(b"x")
        w.answer(w.located()[0], esn=1)
        w.append(b"y" * 900)
        w.bench.session.set_config(cluster(version=2, defaults='max_payload_bytes = "1000B"'), w.bench.now)
        for _ in range(3):
            w.append(b"z" * 400)
        assert [(frame.records, len(frame.payload) <= 1000) for frame in w.frames()] == [
            (1, True),
            (2, True),
            (1, True),
        ]
        with pytest.raises(LogDeviceError, match="TOOBIG"):
            w.append(b"L" * 1001)
        w.bench.session.set_config(cluster(version=3, defaults='max_payload_bytes = "2000B"'), w.bench.now)
        w.append(b"L" * 2000)

    def test_what_another_limit_cuts_is_sent_without_waiting_for_more(self) -> None:
        w = WritingClient(time_trigger_us=50_000)
        w.append(b"x")
        w.bench.pass_time(50_000)
        w.answer(w.located()[0], esn=1)
        promise = w.append(b"y")
        assert w.frames() == [], "its time has not come"
        w.bench.session.set_config(cluster(version=2, defaults='max_payload_bytes = "1000B"'), w.bench.now)
        w.bench.pass_time(50_000)
        (frame,) = w.frames()
        w.answer(frame, esn=2)
        assert promise.result.lsn == compose_lsn(3, 2)

    def test_text_is_no_record(self) -> None:
        w = WritingClient()
        with pytest.raises(LogDeviceError, match="INVALID_PARAM"):
            w.append_many([b"ok", "no"])  # type: ignore[list-item]

    def test_an_empty_call_is_done_at_once(self) -> None:
        assert len(WritingClient().append_many([]).result) == 0

    def test_compression_is_dropped_when_it_does_not_help(self) -> None:
        w = WritingClient(time_trigger_us=0, compression="zstd")
        w.append(b"q")
        w.append(b"a" * 1000)
        w.append(b"b" * 1000)
        (frame,) = w.located()
        assert len(frame.payload) < 200
        w.append(b"z")
        (lone,) = w.frames()
        assert lone.payload == b"z"


class TestTriggers:
    def test_left_to_itself_a_stream_sends_at_once_when_idle_and_gathers_while_a_frame_is_under_way(self) -> None:
        w = WritingClient()
        w.append(b"1")
        (first,) = w.located()
        w.append(b"2")
        w.append(b"3")
        assert w.frames() == []
        w.answer(first, esn=1)
        (second,) = w.frames()
        assert second.records == 2

    def test_it_gathers_for_ten_milliseconds_at_most(self) -> None:
        w = WritingClient()
        w.append(b"1")
        w.located()
        w.append(b"2")
        w.bench.pass_time(9_000)
        assert w.frames() == []
        w.bench.pass_time(2_000)
        assert len(w.frames()) == 1

    def test_a_time_trigger_waits_even_when_idle(self) -> None:
        w = WritingClient(time_trigger_us=50_000)
        w.append(b"1")
        w.bench.pass_time(40_000)
        w.append(b"2")
        assert w.bench.taken(GetSeqState) == []
        w.bench.pass_time(11_000)
        (frame,) = w.located()
        assert frame.records == 2

    def test_flush_sends_what_is_open(self) -> None:
        w = WritingClient(time_trigger_us=1_000_000)
        w.append(b"1")
        flushed = FakePromise()
        w.writer.flush(flushed, w.bench.now)
        (frame,) = w.located()
        assert not flushed.done()
        w.answer(frame, esn=1)
        assert flushed.done()
        assert flushed.error is None

    def test_the_window_limits_frames_in_flight(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1, frames_in_flight_max=2)
        w.append_many([b"a"] * 5)
        frames = w.located()
        assert len(frames) == 2
        w.answer(frames[0], esn=1)
        assert [frame.sequence for frame in w.frames()] == [3]


class TestMemory:
    def test_beyond_the_limit_records_are_refused_until_there_is_room(self) -> None:
        w = WritingClient(memory_bytes_max=100)
        w.append(b"x" * 100)
        with pytest.raises(LogDeviceError) as caught:
            w.append(b"y")
        assert caught.value.status is Status.NOBUFS
        ready = FakePromise()
        w.writer.ready(ready)
        (frame,) = w.located()
        assert not ready.done()
        w.answer(frame, esn=1)
        assert ready.done()
        w.append(b"y")

    def test_empty_records_fill_it_too(self) -> None:
        w = WritingClient(memory_bytes_max=10_000, time_trigger_us=0)
        w.append_many([b""] * 100)
        with pytest.raises(LogDeviceError, match="NOBUFS"):
            w.append(b"")
        (frame,) = w.located()
        w.answer(frame, esn=1)
        w.append(b"")


class TestRefusals:
    def test_a_stale_epoch_is_left_when_every_frame_in_flight_was_refused(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        many = w.append_many([b"a", b"b", b"c"])
        frames = w.located(epoch=3)
        assert len(frames) == 3
        for frame in frames[:-1]:
            w.answer(frame, Status.STALE, lsn=compose_lsn(5, 0))
            assert w.frames() == []
        w.answer(frames[-1], Status.STALE, lsn=compose_lsn(5, 0))
        again = w.frames()
        assert [(frame.sequence, frame.stream_epoch) for frame in again] == [(1, 5), (2, 5), (3, 5)]
        assert [bool(frame.flags & RESUME) for frame in again] == [True, False, False]
        w.epoch = 5
        for esn, frame in enumerate(again, 1):
            w.answer(frame, esn=esn)
        assert [lsn >> 32 for lsn in many.result.lsns()] == [5, 5, 5]

    def test_a_stale_epoch_is_not_left_while_the_outcome_of_an_earlier_frame_is_unknown(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        many = w.append_many([b"a", b"b"])
        first, second = w.located(epoch=3)
        w.answer(first, Status.PREEMPTED, esn=7)
        w.answer(second, Status.STALE, lsn=compose_lsn(5, 0))
        question = w.moved(epoch=5)
        assert question.min_epoch == 4
        assert question.flags & SeqStateFlags.WAIT_FOR_RECOVERY
        assert w.frames() == []
        assert w.found({1: compose_lsn(3, 7)}) == (compose_lsn(3, 1), compose_lsn(3, ESN_MAX))
        (again,) = w.frames()
        assert (again.sequence, again.stream_epoch, bool(again.flags & RESUME)) == (2, 5, True)
        w.answer(again, esn=1)
        assert many.result.lsns() == [compose_lsn(3, 7), compose_lsn(5, 1)]

    def test_a_full_sequencer_gets_the_same_numbers_again_after_a_pause(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        w.append_many([b"a", b"b", b"c"])
        first, second, third = w.located()
        w.answer(first, esn=1)
        w.answer(second, Status.SEQNOBUFS)
        w.answer(third, Status.WRITE_STREAM_BROKEN)
        assert w.frames() == []
        w.bench.pass_time(10_000)
        again = w.frames()
        assert [(frame.sequence, frame.stream_epoch, frame.flags & RESUME) for frame in again] == [(2, 3, 0), (3, 3, 0)]

    def test_a_full_sequencer_is_asked_what_it_waits_for(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append(b"a")
        (frame,) = w.located()
        w.answer(frame, Status.SEQNOBUFS)
        w.bench.taken()
        assert [(node, question.log) for node, question in w.bench.inquiries] == [(w.node, LOG)]

    def test_a_record_whose_guard_does_not_hold_fails_and_the_next_takes_its_number(self) -> None:
        w = WritingClient(time_trigger_us=0)
        failed = FakePromise()
        w.writer.append_many(LOG, [b"late"], failed, w.bench.now, guards=Guards([5], 0))
        node, question = w.bench.one(GetSeqState)
        w.node = node
        w.bench.answer(node, seq_state(question, epoch=3))
        ((_, frame),) = w.bench.taken(GuardedAppend)
        certain = int(AppendedFlags.NOT_REPLICATED)
        w.answer(frame, Status.TRANSACTION_ID_TOO_LOW, lsn=compose_lsn(3, 0), flags=certain, there=9)
        assert failed.failure.status is Status.TRANSACTION_ID_TOO_LOW
        assert "transaction id 5 is below 9" in str(failed.failure)
        assert not failed.failure.maybe_applied
        w.append(b"next")
        (following,) = w.frames()
        assert (following.payload, following.sequence, following.stream_epoch) == (b"next", frame.sequence, 3)

    def test_a_refused_first_frame_resumes_again(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append()
        (frame,) = w.located()
        w.answer(frame, Status.NOTREADY)
        w.bench.pass_time(10_000)
        (again,) = w.located()
        assert again.flags & RESUME

    def test_a_sequencer_that_forgot_the_writer_loses_the_epoch(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append()
        (frame,) = w.located(epoch=3)
        w.answer(frame, esn=1)
        w.append()
        (frame,) = w.frames()
        w.answer(frame, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
        assert w.moved(epoch=4).min_epoch == 4
        assert w.searches == []  # every outcome was known
        (again,) = w.frames()
        assert (again.sequence, again.stream_epoch) == (2, 4)

    def test_a_frame_that_can_never_be_taken_fails_and_the_next_takes_its_number(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        bad, good = w.append(b"bad"), w.append(b"good")
        first, second = w.located()
        w.answer(first, Status.TOOBIG)
        w.answer(second, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
        assert bad.failure.status is Status.TOOBIG
        (again,) = w.frames()
        assert (again.payload, again.sequence, bool(again.flags & RESUME)) == (b"good", 1, True)
        w.answer(again, esn=1)
        assert good.result is not None
        flushed = FakePromise()
        w.writer.flush(flushed, w.bench.now)
        assert flushed.failure.status is Status.TOOBIG
        twice = FakePromise()
        w.writer.flush(twice, w.bench.now)
        assert twice.error is None

    def test_a_position_that_certainly_was_not_used_is_no_doubt(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append()
        (frame,) = w.located()
        w.answer(frame, Status.PREEMPTED, esn=4, flags=int(AppendedFlags.NOT_REPLICATED))
        w.bench.pass_time(10_000)
        (again,) = w.located(epoch=4)
        assert again.stream_epoch == 4
        assert w.searches == []


class TestDoubt:
    def test_the_search_includes_the_lsn_of_the_last_acknowledged_frame_which_others_may_share(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append(b"a")
        (first,) = w.located(epoch=3)
        doubtful = w.append(b"b")
        w.frames()
        w.answer(first, esn=8)
        w.bench.down(w.node)
        w.moved(epoch=4)
        searched = w.found({2: compose_lsn(3, 8)})
        assert searched == (compose_lsn(3, 8), compose_lsn(3, ESN_MAX))
        assert doubtful.result.lsn == compose_lsn(3, 8)

    def test_a_lost_connection_ends_the_epoch_and_only_the_missing_is_sent_again(self) -> None:
        w = WritingClient(time_trigger_us=0, size_trigger_bytes=1)
        many = w.append_many([b"a", b"b", b"c"])
        frames = w.located(epoch=3)
        w.answer(frames[0], esn=5)
        w.bench.down(w.node)
        w.moved(epoch=4)
        assert w.found({2: compose_lsn(3, 6)})[0] == compose_lsn(3, 5)
        (again,) = w.frames()
        assert (again.payload, again.sequence, again.stream_epoch) == (b"c", 3, 4)
        w.answer(again, esn=1)
        assert many.result.lsns() == [compose_lsn(3, 5), compose_lsn(3, 6), compose_lsn(4, 1)]

    def test_a_connection_that_was_never_made_leaves_no_outcome_unknown(self) -> None:
        w = WritingClient(time_trigger_us=0)
        w.append()
        w.located(epoch=3)
        w.bench.down(w.node)
        assert w.stream.state.name == "MOVING"
        other = WritingClient(time_trigger_us=0)
        other.bench.connect = False
        other.append()
        other.bench.turn()
        assert other.stream.state.name == "LOCATING"

    def test_frames_of_a_node_that_is_declared_dead_are_of_unknown_outcome_and_late_answers_are_not_heard(self) -> None:
        w = WritingClient(time_trigger_us=0)
        promise = w.append()
        (frame,) = w.located(epoch=3)
        old = w.node
        states = {node: int(NodeState.DEAD if node == old else NodeState.ALIVE) for node in range(3)}
        w.bench.push(NodeId((old + 1) % 3), states)
        w.bench.answer(old, appended(frame, lsn=compose_lsn(3, 1)))
        assert not promise.done()
        w.moved(epoch=4)
        w.found({1: compose_lsn(3, 1)})
        assert promise.result.lsn == compose_lsn(3, 1)

    def test_a_silent_sequencer_is_abandoned_in_time(self) -> None:
        w = WritingClient(time_trigger_us=0, silence_us=2_000_000)
        w.append()
        w.located(epoch=3)
        w.bench.pass_time(1_500_000)
        assert w.stream.state.name == "STREAMING"
        w.bench.pass_time(1_500_000)
        assert w.stream.state.name == "MOVING"

    def test_a_sequencer_that_has_answered_lately_is_not_asked_after(self) -> None:
        w = WritingClient(time_trigger_us=0)
        unanswered = w.bench.session.settings.unanswered_us
        w.append(b"a")
        (frame,) = w.located()
        w.bench.pass_time(unanswered * 3 // 4)
        w.answer(frame, esn=1)
        w.append(b"b")
        w.bench.pass_time(unanswered // 2)
        assert w.bench.taken(GetSeqState) == w.bench.inquiries == []
        w.bench.pass_time(unanswered)
        w.bench.taken()
        assert [node for node, _ in w.bench.inquiries] == [w.node], "it is silent for longer now"

    def test_what_may_be_lost_fails_as_maybe_applied_and_later_records_go_on(self) -> None:
        w = WritingClient(time_trigger_us=0)
        lost = w.append(b"lost")
        w.located(epoch=3)
        w.bench.down(w.node)
        w.moved(epoch=4)
        later = w.append(b"later")
        w.found({}, uncertain=True)
        assert lost.failure.status is Status.DATALOSS
        assert lost.failure.maybe_applied
        (frame,) = w.frames()
        assert (frame.payload, frame.sequence) == (b"later", 2)
        w.answer(frame, esn=1)
        assert later.result is not None
        flushed = FakePromise()
        w.writer.flush(flushed, w.bench.now)
        assert flushed.failure.maybe_applied

    def test_a_record_aborted_before_it_was_sent_is_never_sent(self) -> None:
        w = WritingClient(time_trigger_us=0, timeout_us=500_000)
        promise = w.append(b"old")
        w.bench.pass_time(1_000_000)
        assert promise.failure.status is Status.TIMEDOUT
        assert not promise.failure.maybe_applied
        w.append(b"fresh")
        w.bench.turn()
        questions = w.bench.taken(GetSeqState)
        node, question = questions[-1]
        w.node = node
        w.bench.answer(node, seq_state(question, epoch=3))
        assert [frame.payload for frame in w.frames()] == [b"fresh"]

    def test_a_client_that_no_node_serves_fails_what_is_under_way_and_what_waits(self) -> None:
        w = WritingClient(time_trigger_us=0, frames_in_flight_max=1, size_trigger_bytes=1)
        sent, queued = w.append(b"1"), w.append(b"2")
        w.located()
        w.bench.session.refuse(LogDeviceError(Status.ACCESS, "nobody knows this client"))
        assert [promise.failure.status for promise in (sent, queued)] == [Status.ACCESS] * 2

    def test_a_closed_writer_leaves_no_timer_behind(self) -> None:
        w = WritingClient(time_trigger_us=0)
        before = w.bench.timers.next_deadline()
        w.append(b"1")
        w.located()
        w.writer.close()
        assert w.bench.timers.next_deadline() == before

    def test_closing_ends_the_search(self) -> None:
        w = WritingClient(time_trigger_us=0)
        doubtful = w.append(b"1")
        w.located(epoch=3)
        w.bench.down(w.node)
        w.moved(epoch=4)
        assert len(w.searches) == 1
        w.writer.close()
        assert w.searches == []
        assert doubtful.failure.maybe_applied

    def test_closing_without_waiting_tells_what_may_be_in_the_log(self) -> None:
        w = WritingClient(time_trigger_us=0, frames_in_flight_max=1, size_trigger_bytes=1)
        sent, queued = w.append(b"1"), w.append(b"2")
        w.located()
        w.writer.close()
        assert sent.failure.maybe_applied
        assert not queued.failure.maybe_applied
        with pytest.raises(LogDeviceError, match="SHUTDOWN"):
            w.append()
