"""A write stream that several processes may continue: at most one at a time stores anything, and it knows what the others stored."""

from __future__ import annotations

import random
from typing import Any

from logdevice_py.core.ids import WriterId
from logdevice_py.core.lsn import ESN_MAX, Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Append, AppendFlags, GetSeqState, SeqStateFlags
from tests.unit.client.fakes import LOG, FakePromise, seq_state
from tests.unit.client.write.test_write_streams import WritingClient

NAME = WriterId(b"name of a stream")
CLAIM = int(AppendFlags.RESUME | AppendFlags.EXCLUSIVE)


class TakingClient(WritingClient):
    """A client that goes on with a stream of which it knows everything below epoch 3."""

    def __init__(self, **options: Any) -> None:
        super().__init__(size_trigger_bytes=1, **options)
        self.writer.take_over(LOG, NAME, Epoch(3))

    def claimed(self) -> tuple[FakePromise, Append]:
        """Its first record is acknowledged in epoch 3."""
        promise = self.append()
        (frame,) = self.located(epoch=3)
        self.answer(frame, esn=5)
        return promise, frame


def test_the_first_frame_goes_alone_and_claims_the_epoch() -> None:
    w = TakingClient()
    promise = w.append_many([b"a", b"b", b"c", b"d"])
    node, question = w.bench.one(GetSeqState)
    assert question.flags & SeqStateFlags.WAIT_FOR_RECOVERY
    assert question.min_epoch == 3
    w.node, w.epoch = node, 3
    w.bench.answer(node, seq_state(question, epoch=3))
    (first,) = w.frames()
    assert first.writer == NAME
    assert first.flags & CLAIM == CLAIM
    w.answer(first, esn=5)
    others = w.frames()
    assert [frame.sequence for frame in others] == [first.sequence + number for number in (1, 2, 3)]
    assert not any(frame.flags & CLAIM for frame in others)
    assert not promise.done()


def test_two_processes_number_their_frames_apart() -> None:
    one, other = TakingClient(), TakingClient()
    rng = other.bench.session.rng
    assert isinstance(rng, random.Random)
    rng.seed(2)
    other.writer.take_over(LOG, NAME, Epoch(3))
    _, first = one.claimed()
    _, second = other.claimed()
    assert abs(first.sequence - second.sequence) > 1 << 19


def test_an_epoch_that_is_anothers_refuses_everything_and_nothing_is_stored() -> None:
    w = TakingClient()
    promise = w.append()
    (frame,) = w.located(epoch=3)
    w.answer(frame, Status.WRITE_STREAM_BROKEN, lsn=compose_lsn(3, 0))
    assert promise.failure.status is Status.WRITE_STREAM_BROKEN
    assert not promise.failure.maybe_applied


def test_a_later_epoch_is_entered_only_after_reading_what_lies_between() -> None:
    w = TakingClient()
    promise = w.append()
    assert w.located(epoch=6) == []
    assert w.found({}) == (compose_lsn(3, 1), compose_lsn(5, ESN_MAX))
    (frame,) = w.frames()
    assert frame.stream_epoch == 6
    assert frame.flags & CLAIM == CLAIM
    w.answer(frame, esn=1)
    assert promise.result is not None


def test_what_another_stored_between_ends_the_try_before_anything_is_sent() -> None:
    w = TakingClient()
    promise = w.append()
    assert w.located(epoch=4) == []
    w.found({12345: compose_lsn(3, 7)})
    assert promise.failure.status is Status.WRITE_STREAM_BROKEN
    assert w.frames() == []


def test_a_part_that_cannot_be_read_may_hold_anothers_frames() -> None:
    w = TakingClient()
    promise = w.append()
    w.located(epoch=4)
    w.found({}, uncertain=True)
    assert promise.failure.status is Status.DATALOSS
    assert w.frames() == []


def test_when_the_log_moves_on_the_owner_reads_behind_itself_and_claims_again() -> None:
    w = TakingClient()
    w.claimed()
    promise = w.append()
    (frame,) = w.frames()
    w.answer(frame, Status.STALE, lsn=compose_lsn(4, 0))
    assert w.located(epoch=4) == []
    first, until = w.found({frame.sequence - 1: compose_lsn(3, 5)})
    assert (first, until) == (compose_lsn(3, 5), compose_lsn(3, ESN_MAX))
    (again,) = w.frames()
    assert (again.sequence, again.stream_epoch, again.flags & CLAIM) == (frame.sequence, 4, CLAIM)
    w.answer(again, Status.WRITE_STREAM_BROKEN, lsn=compose_lsn(4, 0))
    assert promise.failure.status is Status.WRITE_STREAM_BROKEN


def test_a_frame_of_unknown_outcome_is_found_by_its_number_and_is_not_taken_for_anothers() -> None:
    w = TakingClient()
    w.claimed()
    lost, next_one = w.append(b"lost"), w.append(b"next")
    frames = w.frames()
    w.bench.down(w.node)
    w.moved(5)
    w.found({frames[0].sequence: compose_lsn(3, 6)})
    assert lost.result.lsn == compose_lsn(3, 6)
    (again,) = w.frames()
    assert (again.sequence, again.payload, again.stream_epoch) == (frames[1].sequence, b"next", 5)
    w.answer(again, esn=1)
    assert next_one.result.lsn == compose_lsn(5, 1)


def test_an_epoch_that_forgot_writers_is_left() -> None:
    w = TakingClient()
    promise = w.append()
    (frame,) = w.located(epoch=3)
    w.answer(frame, Status.WRITE_STREAM_UNKNOWN, lsn=compose_lsn(3, 0))
    assert w.moved(4).min_epoch == 4
    w.found({})
    (again,) = w.frames()
    w.answer(again, esn=1)
    assert promise.result is not None
