"""Wakes logs whose readers wait for a release that nobody would send.

Entries are acknowledged before they are released. When the sequencer's node dies in between, or shards were restarted and remember an older
release pointer, a log that nobody appends to has no sequencer that would release the rest. So a stream that stalls asks for the state
of the log's sequencer: that activates one, which recovers the log and releases what was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from client.read.settings import ReadSettings
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.machine import Timer, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros


class StandingStream(Protocol):
    """The part of a read stream that is looked at."""

    @property
    def log(self) -> LogId: ...

    @property
    def next_lsn(self) -> Lsn: ...

    @property
    def ready(self) -> bool:
        """Something waits for the application: it is not the log that holds the stream up."""


class _Watched:
    """What is remembered of one stream."""

    __slots__ = ("ask_at", "delay", "next_lsn")

    def __init__(self) -> None:
        self.next_lsn = LSN_INVALID
        self.ask_at = 0
        self.delay = 0


class ReleaseLookup:
    """Looks at all read streams of a client now and then."""

    def __init__(
        self,
        streams: Mapping[int, StandingStream],
        ask: Callable[[LogId, Micros], None],
        timers: TimerQueue,
        settings: ReadSettings,
    ) -> None:
        self._streams = streams
        self._ask = ask
        self._timers = timers
        self._settings = settings
        self._watched: dict[int, _Watched] = {}
        self._timer: Timer | None = None

    def watch(self, now: Micros) -> None:
        """Look at the streams from here on, as long as there are any."""
        if self._streams and self._timer is None:
            self._timer = self._timers.at(now + self._settings.release_lookup_us, self._look)

    def on_nodes_dead(self, was_sequenced: Callable[[LogId], bool], now: Micros) -> None:
        """Nodes died: what they had acknowledged last may be released nowhere, so streams that wait ask at once, however long they have waited.

        Args:
            was_sequenced: whether they sequenced a log, as far as is known.
        """
        waiting = [each for each in self._streams.items() if not each[1].ready and was_sequenced(each[1].log)]
        for stream_id, stream in waiting:
            watched = self._watched.setdefault(stream_id, _Watched())
            watched.next_lsn, watched.delay, watched.ask_at = stream.next_lsn, self._settings.release_lookup_us, now
        if waiting:
            hit("reader_asks_after_a_death")
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._timers.at(now, self._look)

    def _look(self, now: Micros) -> None:
        self._timer = None
        for stream_id in [known for known in self._watched if known not in self._streams]:
            del self._watched[stream_id]
        first, longest = self._settings.release_lookup_us, self._settings.release_lookup_us_max
        asked: set[LogId] = set()
        for stream_id, stream in sorted(self._streams.items()):
            watched = self._watched.get(stream_id)
            if watched is None:
                watched = self._watched[stream_id] = _Watched()
            if stream.ready or stream.next_lsn != watched.next_lsn:
                watched.next_lsn, watched.delay, watched.ask_at = stream.next_lsn, first, now + first
            elif now >= watched.ask_at:
                hit("read_asks_for_release")
                watched.delay = min(2 * watched.delay, max(first, longest))
                watched.ask_at = now + watched.delay
                if stream.log not in asked:
                    asked.add(stream.log)
                    self._ask(stream.log, now)
        self.watch(now)
