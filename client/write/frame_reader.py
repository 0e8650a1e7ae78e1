"""Reads a stream's own frames back through an ordinary read stream, so what it sees is what every reader sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from client.read.items import Gap, GapKind
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.settings import ReadSettings
from client.session import ClientSession
from client.session_stream import SessionStream
from client.write.finder import FoundFrames, FrameSearch, StoredFrame, StoredFrames
from client.write.frame import FramePosition
from logdevice_py.core.entry import Constituent, ConstituentFlags, EntryHeader, body_of, parse_constituents
from logdevice_py.core.ids import LogId, WriterId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Micros
from logdevice_py.protocol.constituents import ContentMark
from logdevice_py.protocol.messages import Durability

_STREAM: Final = int(ConstituentFlags.WRITE_STREAM)
_BATCH: Final = int(ConstituentFlags.BATCH)
_KEYS: Final = int(ConstituentFlags.KEYS)
_ENTRIES_AT_ONCE: Final = 64
_CERTAIN: Final = frozenset({GapKind.BRIDGE, GapKind.HOLE})


class _EntryScan:
    """One range being read, entry by entry."""

    def __init__(
        self, session: ClientSession, request: ReadRequest, settings: ReadSettings, metrics: ReadMetrics
    ) -> None:
        self._session = session
        self._timer: Timer | None = None
        self._reading = SessionStream(session, request, settings=settings, metrics=metrics, on_ready=self._on_ready)
        self.stream = self._reading.stream

    def start(self, now: Micros) -> None:
        """Begin to read."""
        self._reading.start(now)

    def cancel(self) -> None:
        """Stop reading."""
        self._reading.stop()

    def waiting_for(self) -> str:
        """Why nothing more is read at this moment."""
        return self.stream.waiting_for()

    def _on_ready(self) -> None:
        """Not within a call of the stream: at the next look at the timers."""
        if self._timer is None:
            self._timer = self._session.timers.at(0, self._take)

    def _take(self, now: Micros) -> None:
        self._timer = None
        while self.stream.ready and not self.stream.finished:
            for item in self.stream.take_entries(_ENTRIES_AT_ONCE, now):
                if isinstance(item, tuple):
                    self.note_entry(*item)
                else:
                    self.note_gap(item)
        if self.stream.finished:
            self._reading.leave()
            self.finish(now)

    def note_entry(self, header: EntryHeader, image: bytes) -> None:
        """Take an entry of the range: its header and its whole image."""
        try:
            parts = parse_constituents(body_of(image))
        except CorruptEntryError:
            self._unreadable()
            return
        offset = 0
        for part in parts:
            if part.flags & _STREAM:
                self._note_frame(header, offset, part)
            offset += part.records

    def _note_frame(self, header: EntryHeader, offset: int, frame: Constituent) -> None:
        raise NotImplementedError

    def note_gap(self, gap: Gap) -> None:
        """Take a range of positions that no entry comes from."""
        raise NotImplementedError

    def _unreadable(self) -> None:
        raise NotImplementedError

    def finish(self, now: Micros) -> None:
        """Tell what was found: the whole range was read."""
        raise NotImplementedError


def is_wanted(content: ContentMark | None, frame: Constituent) -> bool:
    """Whether a frame that was found has the content that was sent with its number; None: nothing was, or its outcome is known."""
    return content is None or content == (frame.crc, len(frame.payload), frame.records, frame.flags)


class PositionSearch(_EntryScan):
    """For the positions of one writer's frames."""

    def __init__(
        self,
        session: ClientSession,
        request: ReadRequest,
        writer: WriterId,
        contents: Mapping[int, ContentMark],
        done: Callable[[FoundFrames, Micros], None],
        settings: ReadSettings,
        metrics: ReadMetrics,
    ) -> None:
        super().__init__(session, request, settings, metrics)
        self._writer = writer
        self._contents = contents
        self._done = done
        self._found: dict[int, FramePosition] = {}
        self._taken: dict[int, FramePosition] = {}
        self._uncertain = False
        attributes = session.config.log(request.log)
        synced = attributes is None or int(attributes.durability) == int(Durability.SYNC)
        self._durability = Durability.SYNC if synced else Durability.ASYNC

    def _note_frame(self, header: EntryHeader, offset: int, frame: Constituent) -> None:
        if frame.writer == self._writer:
            found = self._found if is_wanted(self._contents.get(frame.sequence), frame) else self._taken
            found[frame.sequence] = FramePosition(
                header.lsn, offset, header.timestamp, tuple(header.copyset), self._durability
            )

    def note_gap(self, gap: Gap) -> None:
        """Take a range of positions that no entry comes from."""
        if gap.kind not in _CERTAIN:
            self._uncertain = True

    def _unreadable(self) -> None:
        self._uncertain = True

    def finish(self, now: Micros) -> None:
        """Tell what was found: the whole range was read."""
        self._done(FoundFrames(self._found, uncertain=self._uncertain, taken=self._taken), now)


class FrameListing(_EntryScan):
    """For all frames of the writers that `wanted` names, with their records."""

    def __init__(
        self,
        session: ClientSession,
        request: ReadRequest,
        wanted: Callable[[WriterId], bool],
        done: Callable[[StoredFrames], None],
        settings: ReadSettings,
        metrics: ReadMetrics,
    ) -> None:
        super().__init__(session, request, settings, metrics)
        self._wanted = wanted
        self._done = done
        self._frames: list[StoredFrame] = []
        self._lost = False

    def _note_frame(self, header: EntryHeader, offset: int, frame: Constituent) -> None:
        if self._wanted(frame.writer):
            batched, keyed = bool(frame.flags & _BATCH), bool(frame.flags & _KEYS)
            self._frames.append(StoredFrame(header.lsn, frame.writer, frame.records, frame.payload, batched, keyed))

    def note_gap(self, gap: Gap) -> None:
        """Take a range of positions that no entry comes from."""
        if gap.kind is GapKind.DATALOSS:
            self._lost = True

    def _unreadable(self) -> None:
        self._lost = True

    def finish(self, now: Micros) -> None:
        """Tell what was found: the whole range was read."""
        self._done(StoredFrames(self._frames, lost=self._lost))


class StreamFrameReader:
    """The `FrameFinder` of a client."""

    __slots__ = ("_metrics", "_session", "_settings")

    def __init__(self, session: ClientSession, settings: ReadSettings, metrics: ReadMetrics) -> None:
        self._session = session
        self._settings = settings
        self._metrics = metrics

    def find(
        self,
        log: LogId,
        writer: WriterId,
        first: Lsn,
        until: Lsn,
        contents: Mapping[int, ContentMark],
        done: Callable[[FoundFrames, Micros], None],
        now: Micros,
    ) -> FrameSearch:
        """Look for the frames of `writer` in [first, until]."""
        request = ReadRequest(log=log, stream=next(self._session.ids), first=first, until=until)
        search = PositionSearch(self._session, request, writer, contents, done, self._settings, self._metrics)
        search.start(now)
        return search

    def list(
        self,
        log: LogId,
        first: Lsn,
        until: Lsn,
        wanted: Callable[[WriterId], bool],
        done: Callable[[StoredFrames], None],
        now: Micros,
    ) -> FrameSearch:
        """All frames of some writers in [first, until]; calls `done` once, later."""
        request = ReadRequest(log=log, stream=next(self._session.ids), first=first, until=until)
        listing = FrameListing(self._session, request, wanted, done, self._settings, self._metrics)
        listing.start(now)
        return listing
