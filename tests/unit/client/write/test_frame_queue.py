"""The unacknowledged frames of a stream: their order, their numbers, and what of them is on its way."""

from __future__ import annotations

import pytest

from client.metrics import WriterMetrics
from client.settings import WriterSettings
from client.write.context import RECORD_OVERHEAD, StreamOwner
from client.write.frame import FrameFate, FramePosition, StreamFrame
from client.write.frame_queue import FrameQueue
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import Durability

POSITION = FramePosition(Lsn(5), 0, Timestamp(7), (), Durability.SYNC)


class Queue:
    """A queue, and the numbers of the frames that it completed."""

    def __init__(self, frames: int = 0) -> None:
        self.completed: list[int] = []
        self.queue = FrameQueue(lambda frame: self.completed.append(frame.sequence))
        self.made: list[StreamFrame] = []
        for _ in range(frames):
            self.put()

    def put(self) -> StreamFrame:
        frame = StreamFrame(self.queue.next_sequence, b"xx", 0, 0, [], 1, 2, Micros(0))
        self.queue.put(frame)
        self.made.append(frame)
        return frame

    def send(self, count: int) -> None:
        for _ in range(count):
            frame = self.queue.next_to_send()
            assert frame is not None
            self.queue.sent(frame, 10 + frame.sequence)

    def acknowledge(self, *sequences: int) -> None:
        for sequence in sequences:
            frame = next(frame for frame in self.queue if frame.sequence == sequence)
            if frame.fate is FrameFate.SENT:
                self.queue.landed(frame, FrameFate.UNKNOWN)
            self.queue.acknowledged(frame, POSITION)
        self.queue.check()

    @property
    def numbers(self) -> list[int]:
        return [frame.sequence for frame in self.queue]


def test_frames_are_sent_in_order_behind_those_that_were_acknowledged_early() -> None:
    q = Queue(4)
    q.send(2)
    q.acknowledge(2)
    assert (q.queue.in_flight, q.queue.in_flight_bytes, q.queue.last_acknowledged()) == (1, 2, 2)
    assert q.queue.oldest_in_flight() is q.made[0]
    assert q.queue.next_to_send() is q.made[2]
    q.send(2)
    assert q.queue.next_to_send() is None
    assert [frame.sent_at for frame in q.queue] == [11, 12, 13, 14]
    q.queue.check_streaming()


def test_they_complete_in_order() -> None:
    q = Queue(3)
    q.send(3)
    q.acknowledge(2, 3)
    q.queue.pop_acknowledged()
    assert (q.completed, q.numbers) == ([], [1, 2, 3])
    q.acknowledge(1)
    q.queue.pop_acknowledged()
    assert (q.completed, q.numbers) == ([1, 2, 3], [])
    assert (q.queue.last_sequence, q.queue.next_sequence, q.queue.last_acknowledged()) == (3, 4, 0)


def test_one_whose_position_is_known_completes_also_behind_one_without() -> None:
    q = Queue(3)
    q.send(3)
    q.acknowledge(3)
    q.queue.finish_acknowledged()
    assert (q.completed, q.numbers, q.queue.last_sequence) == ([3], [1, 2], 3)


def test_what_is_of_unknown_outcome_is_told_from_what_is_queued() -> None:
    q = Queue(3)
    q.send(2)
    q.queue.landed(q.made[1], FrameFate.QUEUED)
    q.queue.landed(q.made[0], FrameFate.UNKNOWN)
    assert q.queue.of_unknown_outcome() == [q.made[0]]
    assert (q.queue.oldest_in_flight(), q.queue.in_flight, q.queue.in_flight_bytes) == (None, 0, 0)


def test_what_was_aborted_is_dropped_and_the_numbers_close_up() -> None:
    q = Queue(5)
    q.send(2)
    for at in (0, 2, 3):
        q.made[at].failed = True
    q.queue.drop_queued()
    assert [frame is made for frame, made in zip(q.queue, (q.made[0], q.made[1], q.made[4]), strict=True)] == [True] * 3
    assert q.numbers == [1, 2, 3]
    q.queue.drop_queued()
    assert (q.numbers, q.queue.next_sequence) == ([1, 2, 3], 4)


def test_once_all_is_certain_numbers_go_on_behind_what_is_stored() -> None:
    q = Queue(4)
    q.send(3)
    q.acknowledge(1)
    q.queue.landed(q.made[1], FrameFate.QUEUED)
    q.queue.landed(q.made[2], FrameFate.QUEUED)
    q.made[1].failed = True
    q.queue.settle()
    assert (q.completed, q.numbers) == ([1], [2, 3])
    assert list(q.queue) == [q.made[2], q.made[3]]


def test_forgotten_numbers_are_not_given_again() -> None:
    q = Queue(3)
    q.send(2)
    q.queue.clear()
    assert (bool(q.queue), q.queue.in_flight, q.queue.in_flight_bytes) == (False, 0, 0)
    assert (q.queue.last_sequence, q.put().sequence) == (3, 4)
    q.queue.check()


def test_who_waits_for_all_records_before_goes_on_waiting_for_those_that_are_left() -> None:
    q = Queue(4)
    marker = object()
    q.made[3].markers = [marker]  # type: ignore[list-item]
    q.made[2].failed = True
    q.queue.hand_back_markers(q.made[3])
    assert [frame.markers for frame in q.made] == [[], [marker], [], []]
    q.made[0].markers = [marker]  # type: ignore[list-item]
    q.queue.hand_back_markers(q.made[0])
    assert q.made[0].markers == [marker], "nothing is before it"


class TestOwner:
    def owner(self) -> StreamOwner:
        return StreamOwner(WriterSettings(memory_bytes_max=10_000), WriterMetrics())

    def test_records_take_room_until_they_have_an_outcome(self) -> None:
        owner = self.owner()
        owner.take(3, 70)
        owner.take(1, 2)
        assert (owner.records, owner.unacknowledged_bytes) == (4, 72)
        assert owner.room == 10_000 - 72 - 4 * RECORD_OVERHEAD
        owner.has_outcome(LogId(1), StreamFrame(1, b"xx", 0, 0, [], 1, 2, Micros(0)), None)
        assert (owner.records, owner.unacknowledged_bytes, owner.full) == (3, 70, False)

    @pytest.mark.parametrize(("size", "full"), [(9_899, False), (9_900, True)])
    def test_it_is_full_at_its_limit(self, size: int, full: bool) -> None:
        owner = self.owner()
        owner.take(1, size)
        assert owner.full is full

    def test_the_error_that_leaves_most_open_is_remembered(self) -> None:
        owner = self.owner()
        errors = [LogDeviceError(Status.TIMEDOUT, maybe_applied=maybe) for maybe in (False, True, True)]
        for records, error in enumerate(errors, 1):
            owner.on_failed(records, error)
        assert owner.first_error is errors[1]
        assert (owner.failures, owner.metrics.records_failed) == (6, 6)
