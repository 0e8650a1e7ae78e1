"""Write streams: frames of one writer that are taken exactly in sequence, within one epoch.

Writer ids stand in records, so anybody who reads a log can send frames under the id of somebody else. Four rules keep what that does visible:

1. A number is taken once. Whoever sends it again has its content acknowledged only if that is what was taken (`Frame.repeats_as_stored`).
2. Other content is refused, and the answer says so (NUMBER_TAKEN).
3. Nothing more is taken of that writer over that connection in this epoch: frames behind the refused one are under way, and would be stored
   without it.
4. Other connections go on, so that a wrong repetition from elsewhere does not end an honest stream. Only when too many were refused to remember them
   all, nobody goes on.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from typing import Final

from logdevice_py.core import marks
from logdevice_py.core.ids import PeerId, WriterId
from sequencer.frames import Frame
from sequencer.settings import SequencerSettings

_REFUSED_MAX: Final = 8
"""Connections that a stream remembers as refused; with one more it takes nothing from anybody."""


class FrameVerdict(enum.Enum):
    """What becomes of a frame."""

    NEXT = enum.auto()  # it is the next one: take it
    REPEATED = enum.auto()  # it was taken before: it has its first position
    UNKNOWN = enum.auto()  # the epoch does not know the writer, and the frame does not resume
    BROKEN = (
        enum.auto()
    )  # a frame before it is missing, it is older than what is remembered, or the stream is another's in this epoch
    NUMBER_TAKEN = enum.auto()  # other content was taken with its number, or with one before it


class KnownWriter:
    """One writer in one epoch."""

    __slots__ = ("last", "recent", "refused")

    def __init__(self, last: int) -> None:
        self.last = last
        """Sequence number of the last frame that was taken."""
        self.recent: list[Frame] = []
        """The last ones that were taken, up to `last`, without a gap: `write_stream_positions` of them, or a few more."""
        self.refused: set[PeerId] | None = None
        """Connections that sent other content under a number that was taken."""

    def taken(self, sequence: int) -> Frame | None:
        """The frame that was taken with that number; None: none was, or it is not remembered."""
        back = self.last - sequence
        return self.recent[-1 - back] if 0 <= back < len(self.recent) else None

    def refuse(self, peer: PeerId) -> None:
        """Take nothing more from a connection."""
        if self.refused is None:
            self.refused = set()
        if len(self.refused) <= _REFUSED_MAX:
            self.refused.add(peer)

    def refuses(self, peer: PeerId) -> bool:
        """Whether nothing is taken from a connection."""
        refused = self.refused
        return refused is not None and (peer in refused or len(refused) > _REFUSED_MAX)


class KnownWriters:
    """The writers of one epoch. When there are too many, those that were silent the longest are forgotten."""

    __slots__ = ("_forgot", "_settings", "_streams")

    def __init__(self, settings: SequencerSettings) -> None:
        self._settings = settings
        self._forgot = False
        """Some writers of this epoch are not known any more."""
        self._streams: OrderedDict[WriterId, KnownWriter] = OrderedDict()

    def judge(self, frame: Frame, resume: bool, exclusive: bool = False) -> FrameVerdict:
        """Whether a frame may be taken.

        Several processes may share a writer id that they derive from a name. With `exclusive` the first of them to resume in this epoch
        has it to itself; where it cannot be told any more whether it is the first, it is UNKNOWN.
        """
        stream = self._streams.get(frame.writer)
        if resume and exclusive:
            if stream is not None:
                marks.hit("write_stream_is_anothers")
                return FrameVerdict.BROKEN
            return FrameVerdict.UNKNOWN if self._forgot else FrameVerdict.NEXT
        if stream is None:
            return FrameVerdict.NEXT if resume else FrameVerdict.UNKNOWN
        if frame.sequence == stream.last + 1:
            if stream.refused is None or not stream.refuses(frame.peer):
                return FrameVerdict.NEXT
            return FrameVerdict.NUMBER_TAKEN
        first = stream.taken(frame.sequence)
        if first is not None:
            if first.repeats_as_stored(frame):
                return FrameVerdict.REPEATED
            marks.hit("write_stream_number_taken")
            stream.refuse(frame.peer)
            return FrameVerdict.NUMBER_TAKEN
        return FrameVerdict.NUMBER_TAKEN if stream.refuses(frame.peer) else FrameVerdict.BROKEN

    def taken(self, writer: WriterId, sequence: int) -> Frame | None:
        """The frame that has a number; None: nobody knows."""
        return self._streams[writer].taken(sequence)

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
        recent = stream.recent
        recent.append(frame)
        positions = self._settings.write_stream_positions
        if len(recent) > positions + positions // 8:  # an eighth more, so that most frames move nothing
            del recent[: len(recent) - positions]

    def give_back(self, frame: Frame) -> None:
        """The frame got no LSN after all. Frames of an entry are given back last first."""
        stream = self._streams.get(frame.writer)
        if stream is None or stream.taken(frame.sequence) is not frame:
            return
        assert stream.last == frame.sequence, (stream.last, frame.sequence)
        stream.recent.pop()
        stream.last -= 1
        if not stream.recent:
            del self._streams[frame.writer]
