"""Write streams: frames of one writer that are taken exactly in sequence, within one epoch."""

from __future__ import annotations

import enum
from collections import OrderedDict

from logdevice_py.core import marks
from logdevice_py.core.ids import WriterId
from sequencer.frames import Frame
from sequencer.settings import SequencerSettings


class FrameVerdict(enum.Enum):
    """What becomes of a frame."""

    NEXT = enum.auto()  # it is the next one: take it
    REPEATED = enum.auto()  # it was taken before: it has its first position
    UNKNOWN = enum.auto()  # the epoch does not know the writer, and the frame does not resume
    BROKEN = (
        enum.auto()
    )  # a frame before it is missing, it is older than what is remembered, or the stream is another's in this epoch


class KnownWriter:
    """One writer in one epoch."""

    __slots__ = ("last", "recent")

    def __init__(self, last: int) -> None:
        self.last = last
        """Sequence number of the last frame that was taken."""
        self.recent: OrderedDict[int, Frame] = OrderedDict()


class KnownWriters:
    """The writers of one epoch. When there are too many, those that were silent the longest are forgotten."""

    __slots__ = ("_forgot", "_settings", "_streams")

    def __init__(self, settings: SequencerSettings) -> None:
        self._settings = settings
        self._forgot = False
        """Some writers of this epoch are not known any more."""
        self._streams: OrderedDict[WriterId, KnownWriter] = OrderedDict()

    def judge(self, writer: WriterId, sequence: int, resume: bool, exclusive: bool = False) -> FrameVerdict:
        """Whether the frame `sequence` of a writer may be taken.

        Several processes may share a writer id that they derive from a name. With `exclusive` the first of them to resume in this epoch
        has it to itself; where it cannot be told any more whether it is the first, it is UNKNOWN.
        """
        stream = self._streams.get(writer)
        if resume and exclusive:
            if stream is not None:
                marks.hit("write_stream_is_anothers")
                return FrameVerdict.BROKEN
            return FrameVerdict.UNKNOWN if self._forgot else FrameVerdict.NEXT
        if stream is None:
            return FrameVerdict.NEXT if resume else FrameVerdict.UNKNOWN
        if sequence == stream.last + 1:
            return FrameVerdict.NEXT
        if sequence in stream.recent:
            return FrameVerdict.REPEATED
        return FrameVerdict.BROKEN

    def first(self, writer: WriterId, sequence: int) -> Frame:
        """The frame that a REPEATED one repeats."""
        return self._streams[writer].recent[sequence]

    def take(self, frame: Frame) -> None:
        """The frame was judged NEXT and goes into an entry."""
        stream = self._streams.get(frame.writer)
        if stream is None:
            if len(self._streams) >= self._settings.write_streams_per_log:
                marks.hit("write_streams_forgotten")
                self._forgot = True
                for _ in range(max(1, self._settings.write_streams_per_log // 10)):
                    self._streams.popitem(last=False)
            stream = self._streams[frame.writer] = KnownWriter(frame.sequence)
        else:
            assert frame.sequence == stream.last + 1, (frame.sequence, stream.last)
            self._streams.move_to_end(frame.writer)
        stream.last = frame.sequence
        stream.recent[frame.sequence] = frame
        if len(stream.recent) > self._settings.write_stream_positions:
            stream.recent.popitem(last=False)

    def give_back(self, frame: Frame) -> None:
        """The frame got no LSN after all. Frames of an entry are given back last first."""
        stream = self._streams.get(frame.writer)
        if stream is None or stream.recent.get(frame.sequence) is not frame:
            return
        assert stream.last == frame.sequence, (stream.last, frame.sequence)
        del stream.recent[frame.sequence]
        stream.last -= 1
        if not stream.recent:
            del self._streams[frame.writer]
