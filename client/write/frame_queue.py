"""The unacknowledged frames of a write stream, in the order of their numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from client.write.frame import FrameFate, FramePosition, StreamFrame
from logdevice_py.core import marks


class FrameQueue:
    """Frames in order: first those that were sent (in flight, of unknown outcome, or acknowledged before one that they follow), then queued ones.

    A frame that is acknowledged or dropped leaves; acknowledged ones leave in order, through `complete`.
    """

    __slots__ = ("_acked", "_complete", "frames", "in_flight", "in_flight_bytes", "last_sequence")

    def __init__(self, complete: Callable[[StreamFrame], None]) -> None:
        self._complete = complete
        self._acked = 0
        self.frames: deque[StreamFrame] = deque()
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.last_sequence = 0
        """The greatest number that is stored, or may be stored for good; those left are numbered from here on."""

    def __bool__(self) -> bool:
        return bool(self.frames)

    def __iter__(self) -> Iterator[StreamFrame]:
        return iter(self.frames)

    @property
    def next_sequence(self) -> int:
        """The number of a further frame."""
        return (self.frames[-1].sequence if self.frames else self.last_sequence) + 1

    def put(self, frame: StreamFrame) -> None:
        """A further frame, queued."""
        assert frame.sequence == self.next_sequence, (frame.sequence, self.next_sequence)
        self.frames.append(frame)

    def next_to_send(self) -> StreamFrame | None:
        """The first queued frame. Only while everything before it is in flight or acknowledged."""
        index = self.in_flight + self._acked
        if index >= len(self.frames):
            return None
        frame = self.frames[index]
        assert frame.fate is FrameFate.QUEUED, frame.fate
        return frame

    def sent(self, frame: StreamFrame, now: int) -> None:
        """The frame was given to the connection."""
        frame.fate, frame.sent_at = FrameFate.SENT, now
        self.in_flight += 1
        self.in_flight_bytes += len(frame.payload)

    def landed(self, frame: StreamFrame, fate: FrameFate) -> None:
        """The frame is not in flight any more: QUEUED when it certainly is stored nowhere, else DOUBT."""
        assert frame.fate is FrameFate.SENT, frame.fate
        frame.fate = fate
        self.in_flight -= 1
        self.in_flight_bytes -= len(frame.payload)

    def acknowledged(self, frame: StreamFrame, position: FramePosition) -> None:
        """The position of a frame that is not in flight is known."""
        frame.fate, frame.position = FrameFate.ACKED, position
        self._acked += 1

    def pop_acknowledged(self) -> None:
        """Complete the frames at the head whose position is known: receipts come in order."""
        frames = self.frames
        while frames and frames[0].fate is FrameFate.ACKED:
            self._finish(frames.popleft())

    def _finish(self, frame: StreamFrame) -> None:
        self._acked -= 1
        self.last_sequence = max(self.last_sequence, frame.sequence)
        self._complete(frame)

    def oldest_in_flight(self) -> StreamFrame | None:
        """The first one that was sent and not answered."""
        return next((frame for frame in self.frames if frame.fate is FrameFate.SENT), None)

    def of_unknown_outcome(self) -> list[StreamFrame]:
        """Frames that may be stored."""
        return [frame for frame in self.frames if frame.fate is FrameFate.UNKNOWN]

    def last_acknowledged(self) -> int:
        """The greatest number whose position is known; 0 if none."""
        return max((frame.sequence for frame in self.frames if frame.fate is FrameFate.ACKED), default=0)

    def settle(self) -> None:
        """Once all is certain: drop what failed, and number what is left without a gap behind what was stored."""
        self.frames = deque(frame for frame in self.frames if frame.fate is FrameFate.ACKED or not frame.failed)
        self.finish_acknowledged()
        self._number(self.last_sequence)

    def finish_acknowledged(self) -> None:
        """Complete every frame whose position is known, also behind others that have none."""
        self.pop_acknowledged()
        for frame in [frame for frame in self.frames if frame.fate is FrameFate.ACKED]:
            # No sequencer that keeps the rules does this; the position holds all the same.
            marks.hit("stream_overtaken")
            self.frames.remove(frame)
            self._finish(frame)

    def hand_back_markers(self, frame: StreamFrame) -> None:
        """The records of a frame are about to get their outcome: who waits for all records up to it goes on waiting for those before."""
        before = None
        for other in self.frames:
            if other.sequence >= frame.sequence:
                break
            if not other.failed:
                before = other
        if before is not None:
            before.markers += frame.markers
            frame.markers = []

    def drop_queued(self) -> None:
        """Drop what failed and certainly is stored nowhere. Numbers of queued frames close up; those that were sent keep theirs."""
        kept = [frame for frame in self.frames if frame.fate is not FrameFate.QUEUED or not frame.failed]
        if len(kept) < len(self.frames):
            self.frames = deque(kept)
            self._number(self.last_sequence)

    def _number(self, sequence: int) -> None:
        for frame in self.frames:
            if frame.fate is FrameFate.QUEUED:
                frame.sequence = sequence + 1
            sequence = frame.sequence

    def clear(self) -> None:
        """Forget all frames."""
        self.last_sequence = max([self.last_sequence, *(frame.sequence for frame in self.frames)])
        self.frames.clear()
        self._acked = self.in_flight = self.in_flight_bytes = 0

    def check(self) -> None:
        """What must hold between events."""
        sent = [frame for frame in self.frames if frame.fate is FrameFate.SENT]
        assert len(sent) == self.in_flight
        assert sum(len(frame.payload) for frame in sent) == self.in_flight_bytes
        assert self._acked == sum(1 for frame in self.frames if frame.fate is FrameFate.ACKED)
        numbers = [frame.sequence for frame in self.frames]
        assert numbers == sorted(set(numbers)), numbers

    def check_streaming(self) -> None:
        """What must hold besides while frames are being sent."""
        fates = [frame.fate for frame in self.frames]
        before = self.in_flight + self._acked
        assert all(fate in (FrameFate.SENT, FrameFate.ACKED) for fate in fates[:before]), fates
        assert all(fate is FrameFate.QUEUED for fate in fates[before:]), fates
