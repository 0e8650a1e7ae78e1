"""Reading the nodesets of a log for somebody who waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from client.append.router import Routes
from client.links import Links
from client.metadata_repair import MetadataRepair
from client.request_history import name_awaited
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import EPOCH_MAX, Epoch
from logdevice_py.core.machine import Rng, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.metadata.history import MetadataHistoryReader
from logdevice_py.protocol.requests import Requests

HistoryKnown = Callable[[tuple[EpochInterval, ...], Micros, Epoch], None]
"""(history, now, the last epoch for which it may be certain)"""


class HistorySession(Protocol):
    """What reading a history takes of a client."""

    links: Links
    timers: TimerQueue
    rng: Rng
    requests: Requests
    routes: Routes
    metadata_repair: MetadataRepair

    @property
    def config(self) -> ClusterConfig:
        """The newest cluster file."""


class HistoryRequest:
    """Somebody waits for the nodesets of a log; `cancel` when he does not any more."""

    __slots__ = ("_done", "_log", "_open", "_reader", "_session", "is_whole")

    def __init__(self, session: HistorySession, log: LogId, done: HistoryKnown, open_: OpenHistories) -> None:
        self._session = session
        self._open = open_
        self._log = log
        self._done = done
        self._reader: MetadataHistoryReader | None = None
        self.is_whole = False
        """Once it is answered: so many shards have told that no later record can be missing."""

    def start(self, now: Micros) -> None:
        """Read, as the newest cluster file says; anew when it is being read."""
        self._stop()
        session = self._session
        self._reader = MetadataHistoryReader(
            self._log, session.config, session.links, session.timers, session.rng, session.requests, self._known
        )
        self._reader.start(now)

    def on_config(self, now: Micros) -> None:
        """The metadata log may be kept by others, and those that are asked may be gone for good."""
        if self._reader is not None:
            marks.hit("client_history_read_anew")
            self.start(now)

    def _known(self, reader: MetadataHistoryReader, now: Micros) -> None:
        self._reader = None
        self._open.remove(self)
        hidden = reader.unreadable_from
        self.is_whole = reader.authoritative
        self._session.metadata_repair.note(self._log, found=bool(reader.history))
        if not reader.authoritative:
            self._session.metadata_repair.wanted(self._log, self._session.routes.epoch(self._log), now)
        self._done(reader.history, now, EPOCH_MAX if hidden is None else Epoch(hidden - 1))

    @property
    def log(self) -> LogId:
        """Whose nodesets."""
        return self._log

    def unanswered(self) -> list[ShardId]:
        """The shards that have not answered."""
        return [] if self._reader is None else sorted(self._reader.unanswered())

    def waiting_for(self) -> str:
        """What it waits for."""
        awaited = name_awaited(self.unanswered(), self._session.links)
        return f"{awaited or 'shards that lost nothing'}, which keep the metadata log"

    def cancel(self) -> None:
        """Harmless when it was answered."""
        self._stop()
        self._open.remove(self)

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None


class OpenHistories:
    """The histories that somebody waits for."""

    def __init__(self, session: HistorySession) -> None:
        self._session = session
        self._requests: list[HistoryRequest] = []

    def read(self, log: LogId, now: Micros, done: HistoryKnown) -> HistoryRequest:
        """Read the nodesets of a log from its metadata log; `done` gets them later, once. () when the log was never written, or none can
        be read."""
        request = HistoryRequest(self._session, log, done, self)
        self._requests.append(request)
        request.start(now)
        return request

    def on_config(self, now: Micros) -> None:
        """The cluster file is another one."""
        for request in list(self._requests):
            request.on_config(now)

    def unanswered(self, log: LogId) -> list[ShardId]:
        """The shards that have not said which nodesets a log has, of those that are asked."""
        return sorted({shard for request in self._requests if request.log == log for shard in request.unanswered()})

    def remove(self, request: HistoryRequest) -> None:
        """It was answered, or nobody waits for it; harmless when that is known."""
        if request in self._requests:
            self._requests.remove(request)
