"""Somebody else sends under the writer id of a write stream: what its own application is told, and what is never done."""

from __future__ import annotations

import random
from typing import Any

import pytest

from client.client import Client
from client.write.stream_state import WriteStreamState
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import Append, AppendedFlags, AppendFlags, GetSeqState
from tests.slow import quick
from tests.unit.client.fakes import FakePromise, cluster, seq_state
from tests.unit.client.write.model import Model
from tests.unit.client.write.test_exclusive_stream import TakingClient
from tests.unit.client.write.test_write_stream_model import receipts_of
from tests.unit.client.write.test_write_streams import WritingClient

TAKEN = int(AppendedFlags.NOT_REPLICATED | AppendedFlags.NUMBER_TAKEN)
RESUME = int(AppendFlags.RESUME)
SEEDS = 600
BLOCKS = 4


def writing(**options: Any) -> WritingClient:
    return WritingClient(time_trigger_us=0, size_trigger_bytes=1, **options)


def refuse(w: WritingClient, frame: Append, esn: int = 0) -> None:
    """The sequencer says that the number, or one before it, has other content."""
    w.answer(frame, Status.WRITE_STREAM_BROKEN, lsn=compose_lsn(w.epoch, esn), flags=TAKEN)


def check_broken(promise: FakePromise) -> LogDeviceError:
    error = promise.failure
    assert error.status is Status.WRITE_STREAM_BROKEN
    assert not error.retriable
    assert not error.maybe_applied
    assert "somebody else sends under the writer id" in error.detail
    return error


class TestBroken:
    def test_what_is_not_stored_fails_for_good_and_says_so(self) -> None:
        w = writing()
        good, bad, behind = w.append(b"1"), w.append(b"2"), w.append(b"3")
        first, second, third = w.located()
        w.answer(first, esn=1)
        refuse(w, second, esn=7)
        assert not bad.done()  # as long as an answer is due
        refuse(w, third)
        assert good.result.lsn == compose_lsn(3, 1)
        assert "other content at e3n7+0 as its frame 2" in check_broken(bad).detail
        check_broken(behind)
        assert w.stream.state is WriteStreamState.BROKEN
        assert w.writer.metrics.streams_broken == 1

    def test_nothing_more_is_sent_and_later_records_fail_too(self) -> None:
        w = writing()
        w.append(b"1")
        (frame,) = w.located()
        refuse(w, frame)
        later, many = w.append(b"2"), w.append_many([b"3", b"4"])
        w.bench.turn()
        check_broken(later)
        check_broken(many)
        assert w.frames() == []
        assert w.bench.taken(GetSeqState) == []
        assert w.writer.unacknowledged_bytes == 0
        assert w.stream.idle
        flushed = FakePromise()
        w.writer.flush(flushed, w.bench.now)
        assert flushed.failure.status is Status.WRITE_STREAM_BROKEN
        assert not flushed.failure.retriable
        w.bench.pass_time(60_000_000)
        assert w.frames() == []
        w.writer.close()

    def test_frames_of_unknown_outcome_are_looked_for_first(self) -> None:
        w = writing()
        stored, bad, lost = w.append(b"1"), w.append(b"2"), w.append(b"3")
        first, second, third = w.located(epoch=3)
        refuse(w, second)
        w.bench.down(w.node)
        assert not bad.done()
        w.moved(epoch=5)
        assert w.looked_for == {
            1: (first.crc, 1, 1, 2),
            3: (third.crc, 1, 1, 2),
        }
        w.found({1: compose_lsn(3, 4)})
        assert stored.result.lsn == compose_lsn(3, 4)
        check_broken(bad)
        check_broken(lost)
        assert w.frames() == []

    def test_the_log_may_be_gone_before_it_is_known_what_is_stored(self) -> None:
        w = writing()
        doubtful, bad = w.append(b"1"), w.append(b"2")
        _, second = w.located(epoch=3)
        refuse(w, second)
        w.bench.down(w.node)
        node, question = w.bench.one(GetSeqState)
        w.bench.answer(node, seq_state(question, Status.NOTFOUND))
        assert doubtful.failure.maybe_applied
        assert not bad.failure.maybe_applied
        later = w.append(b"3")
        w.bench.turn()
        check_broken(later)


class TestFound:
    def test_other_content_with_the_number_of_a_frame_of_unknown_outcome_is_not_its_position(self) -> None:
        w = writing()
        lost, behind = w.append(b"1"), w.append(b"2")
        w.located(epoch=3)
        w.bench.down(w.node)
        w.moved(epoch=5)
        w.found({}, taken={1: compose_lsn(3, 9)})
        assert "e3n9+0 as its frame 1" in check_broken(lost).detail
        check_broken(behind)

    def test_a_frame_whose_content_is_there_has_its_position_whatever_else_is_there(self) -> None:
        w = writing()
        promise = w.append(b"1")
        w.located(epoch=3)
        w.bench.down(w.node)
        w.moved(epoch=5)
        w.found({1: compose_lsn(3, 8)}, taken={1: compose_lsn(3, 9)})
        assert promise.result.lsn == compose_lsn(3, 8)
        assert w.stream.state is WriteStreamState.STREAMING

    def test_what_cannot_be_read_may_hold_the_frame_all_the_same(self) -> None:
        w = writing()
        promise = w.append(b"1")
        w.located(epoch=3)
        w.bench.down(w.node)
        w.moved(epoch=5)
        w.found({}, taken={1: compose_lsn(3, 9)}, uncertain=True)
        assert promise.failure.status is Status.DATALOSS
        assert promise.failure.maybe_applied
        assert w.stream.state is WriteStreamState.BROKEN


class TestOrder:
    def test_a_refused_frame_is_not_sent_behind_a_later_one_that_is_stored(self) -> None:
        """No sequencer does this on its own: somebody made it forget the writer and resumed with the number."""
        w = writing()
        first, second, third = w.append(b"1"), w.append(b"2"), w.append(b"3")
        one, two, three = w.located(epoch=3)
        w.answer(one, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
        w.answer(two, esn=5)
        w.answer(three, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
        w.moved(epoch=4)
        assert first.failure.status is Status.ABORTED
        assert not first.failure.maybe_applied
        assert second.result.lsn == compose_lsn(3, 5)
        (again,) = w.frames()
        assert again.payload == b"3"
        w.answer(again, esn=1)
        assert third.result is not None


class TestIds:
    def test_after_a_disagreement_the_stream_goes_on_under_an_id_that_nobody_knows(self) -> None:
        """Somebody may have sent more numbers than a sequencer remembers, or have begun the stream with another number."""
        w = writing()
        w.append(b"1")
        (frame,) = w.located(epoch=3)
        w.answer(frame, Status.WRITE_STREAM_BROKEN, lsn=compose_lsn(3, 0))
        w.moved(epoch=4)
        (again,) = w.frames()
        assert again.writer != frame.writer
        assert again.flags & RESUME
        assert (again.payload, again.sequence) == (frame.payload, frame.sequence)

    def test_ids_of_clients_do_not_follow_from_earlier_ones(self) -> None:
        assert isinstance(Client(cluster(1)).session.rng, random.SystemRandom)
        assert not isinstance(Client(cluster(1), seed=7).session.rng, random.SystemRandom)

    def test_a_frame_is_sent_again_with_the_same_bytes(self) -> None:
        w = writing(compression="zstd")
        w.append_many([b"a" * 1000, b"b" * 1000])
        frames = w.located(epoch=3)
        w.answer(frames[0], Status.STALE, lsn=compose_lsn(4, 0))
        for frame in frames[1:]:
            w.answer(frame, Status.STALE, lsn=compose_lsn(4, 0))
        w.bench.pass_time(10_000)
        again = w.frames()
        assert len(again) == len(frames)
        assert all(
            (one.payload, one.crc, one.flags) == (two.payload, two.crc, two.flags)
            for one, two in zip(frames, again, strict=True)
        )


class TestExclusive:
    def test_other_content_under_an_own_number_is_no_other_try(self) -> None:
        w = TakingClient()
        w.claimed()
        promise = w.append(b"mine")
        (frame,) = w.frames()
        refuse(w, frame)
        check_broken(promise)
        again = w.append(b"more")
        w.bench.turn()
        check_broken(again)
        assert w.frames() == []

    def test_found_under_the_number_of_a_frame_of_unknown_outcome(self) -> None:
        w = TakingClient()
        w.claimed()
        promise = w.append(b"mine")
        (frame,) = w.frames()
        w.bench.down(w.node)
        w.moved(5)
        w.found({frame.sequence - 1: compose_lsn(3, 5)}, taken={frame.sequence: compose_lsn(3, 6)})
        check_broken(promise)

    def test_the_id_that_processes_share_stays(self) -> None:
        w = TakingClient()
        _, first = w.claimed()
        w.append(b"mine")
        (frame,) = w.frames()
        w.answer(frame, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
        w.moved(4)
        w.found({frame.sequence - 1: compose_lsn(3, 5)})
        (again,) = w.frames()
        assert again.writer == frame.writer == first.writer


@pytest.mark.parametrize("block", quick(range(BLOCKS), 1))
def test_with_somebody_else_under_the_id_receipts_are_true_and_failures_too(block: int) -> None:
    broken = stored = failed = 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        model = Model(seed)
        model.forges = True
        model.run()
        content = model.content()
        records = [record for record, _, _ in content]
        assert records == sorted(set(records)), seed
        places = {record: (lsn, offset) for record, lsn, offset in content}
        for first, count, promise in model.promises:
            if promise.error is None:
                stored += 1
                assert receipts_of(promise) == [places[first + index] for index in range(count)], seed
            else:
                assert promise.failure.status in (Status.WRITE_STREAM_BROKEN, Status.ABORTED), (seed, promise.failure)
                assert not promise.failure.retriable or promise.failure.status is Status.ABORTED, seed
                if not promise.failure.maybe_applied:
                    failed += 1
                    assert not any(record in places for record in range(first, first + count)), seed
        assert model.writer.unacknowledged_bytes == 0
        broken += model.writer.metrics.streams_broken
    assert broken > SEEDS // BLOCKS // 20
    assert stored > SEEDS // BLOCKS
    assert failed > SEEDS // BLOCKS // 20
