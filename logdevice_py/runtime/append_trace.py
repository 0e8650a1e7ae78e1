"""The trace of appends in one process: when messages about entries arrived and left, and when copies were written and synced.

It stands around the machines, not in them: between connections and driver (`TracedEvents`, `TracedSink`), and where a node runs the writes
of its shards. A process that traces nothing has none of these objects. An instant names what it is about as its message does, by log and LSN
or by the request's id; whoever has the instants of all processes puts them together.
"""

from __future__ import annotations

import enum
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from logdevice_py.core.ids import PeerId, ShardId
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import (
    Append,
    Appended,
    GuardedAppend,
    Records,
    Release,
    Store,
    Stored,
)
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.transport import Transport, TransportEvents
from logdevice_py.shell.turn import Sink


class TraceEvent(enum.Enum):
    """What happened at an instant."""

    APPEND_SENT = "an append was given to a connection"
    APPEND_RECEIVED = "an append was decoded"
    STORE_SENT = "a copy was given to the connection to its shard's node"
    STORE_RECEIVED = "a copy was decoded"
    WRITTEN = "a copy was written, not synced; took_ns is the time of the write, which may have written others as well"
    SYNCED = "a sync ended in the syncing thread; took_ns is its time; no log is named"
    DURABLE = "the machines of a shard heard that a copy is as durable as was asked"
    STORED_SENT = "the answer to STORE was given to a connection"
    STORED_RECEIVED = "the answer to STORE was decoded"
    APPENDED_SENT = "the answer to an append was given to a connection"
    APPENDED_RECEIVED = "the answer to an append was decoded"
    RELEASE_SENT = "a shard is told that all up to the LSN may be read, by RELEASE or with a STORE"
    RELEASE_RECEIVED = "a shard's node decoded that"
    RECORDS_SENT = "an entry was given to the connection to a reader"
    RECORDS_RECEIVED = "a reader decoded an entry"


_E: Final = TraceEvent


class TraceInstant(NamedTuple):
    """One thing that happened; None: it does not apply."""

    at_ns: int
    """Of the process's monotonic clock."""
    event: TraceEvent
    log: int | None = None
    lsn: int | None = None
    peer: PeerId | None = None
    """The other end: a node, or a client below 0."""
    shard: ShardId | None = None
    wave: int | None = None
    request_id: int | None = None
    batch_offset: int | None = None
    """Of the append's first record within the entry."""
    took_ns: int | None = None


def _append(message: Any, sent: bool, at: int, peer: PeerId) -> Iterator[TraceInstant]:
    yield TraceInstant(
        at, _E.APPEND_SENT if sent else _E.APPEND_RECEIVED, message.log, peer=peer, request_id=message.request_id
    )


def _appended(message: Appended, sent: bool, at: int, peer: PeerId) -> Iterator[TraceInstant]:
    event = _E.APPENDED_SENT if sent else _E.APPENDED_RECEIVED
    yield TraceInstant(
        at, event, message.log, message.lsn, peer, request_id=message.request_id, batch_offset=message.batch_offset
    )


def _store(message: Store, sent: bool, at: int, peer: PeerId) -> Iterator[TraceInstant]:
    event = _E.STORE_SENT if sent else _E.STORE_RECEIVED
    yield TraceInstant(at, event, message.log, message.lsn, peer, message.shard, message.wave)
    if message.released:
        event = _E.RELEASE_SENT if sent else _E.RELEASE_RECEIVED
        yield TraceInstant(at, event, message.log, message.released, peer, message.shard)


def _stored(message: Stored, sent: bool, at: int, peer: PeerId) -> Iterator[TraceInstant]:
    event = _E.STORED_SENT if sent else _E.STORED_RECEIVED
    yield TraceInstant(at, event, message.log, message.lsn, peer, message.shard, message.wave)


def _release(message: Release, sent: bool, at: int, peer: PeerId) -> Iterator[TraceInstant]:
    event = _E.RELEASE_SENT if sent else _E.RELEASE_RECEIVED
    for log, lsn in message.logs:
        yield TraceInstant(at, event, log, lsn, peer, message.shard)


def _records(message: Records, sent: bool, at: int, peer: PeerId) -> Iterator[TraceInstant]:
    event = _E.RECORDS_SENT if sent else _E.RECORDS_RECEIVED
    for lsn, _ in message.entries:
        yield TraceInstant(at, event, message.log, lsn, peer, message.shard)


_OF_MESSAGES: Final[dict[type[Any], Callable[[Any, bool, int, PeerId], Iterator[TraceInstant]]]] = {
    Append: _append,
    GuardedAppend: _append,
    Appended: _appended,
    Store: _store,
    Stored: _stored,
    Release: _release,
    Records: _records,
}


class AppendTrace:
    """The last instants of one process."""

    def __init__(self, size: int, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """
        Args:
            size: how many instants are kept; later ones displace the oldest.
        """
        self.instants: deque[TraceInstant] = deque(maxlen=size)
        self._clock = clock
        self._pending: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Entries of writes that are not durable yet, by shard and token."""

    def message(self, peer: PeerId, message: Any, *, sent: bool) -> None:
        """A message arrived or is about to leave."""
        describe = _OF_MESSAGES.get(type(message))
        if describe is not None:
            self.instants.extend(describe(message, sent, self._clock(), peer))

    def written(self, shard: ShardId, token: int, entries: Iterable[tuple[Any, ...]], took_ns: int) -> None:
        """A batch was written just now.

        Args:
            token: of the write; `durable` names it.
            entries: begin with log and LSN.
        """
        at = self._clock()
        written = [(log, lsn) for log, lsn, *_ in entries]
        if not written:
            return
        self._pending[shard, token] = written
        for log, lsn in written:
            self.instants.append(TraceInstant(at, _E.WRITTEN, log, lsn, shard=shard, took_ns=took_ns))

    def synced(self, shard: ShardId, ended_ns: int, took_ns: int) -> None:
        """A sync is over."""
        self.instants.append(TraceInstant(ended_ns, _E.SYNCED, shard=shard, took_ns=took_ns))

    def durable(self, shard: ShardId, token: int, status: Status) -> None:
        """The machines hear of a write now."""
        at = self._clock()
        for log, lsn in self._pending.pop((shard, token), ()):
            if status is Status.OK:
                self.instants.append(TraceInstant(at, _E.DURABLE, log, lsn, shard=shard))

    def install(self, driver: Driver, transport: Transport) -> None:
        """Record what arrives and leaves from here on."""
        driver.attach(TracedSink(transport, self))
        transport.events = TracedEvents(driver, self)


def uninstall(driver: Driver, transport: Transport) -> None:
    """The end of `AppendTrace.install`."""
    driver.attach(transport)
    transport.events = driver


class TracedSink:
    """Records messages that leave, at the moment at which the turn's messages are written."""

    def __init__(self, sink: Sink, trace: AppendTrace) -> None:
        self._sink = sink
        self._trace = trace
        self._queued: list[tuple[PeerId, Any]] = []

    def send(self, to: PeerId, message: Any) -> None:
        """As without the trace."""
        self._sink.send(to, message)
        if type(message) in _OF_MESSAGES:
            self._queued.append((to, message))

    def flush(self) -> None:
        """As without the trace. The instant is before the write: who is woken by it may be faster than we are."""
        if self._queued:
            for to, message in self._queued:
                self._trace.message(to, message, sent=True)
            self._queued.clear()
        self._sink.flush()


class TracedEvents:
    """Records messages that arrive."""

    def __init__(self, events: TransportEvents, trace: AppendTrace) -> None:
        self._events = events
        self._trace = trace
        self.on_peer_up = events.on_peer_up
        self.on_peer_down = events.on_peer_down
        self.on_peer_congested = events.on_peer_congested
        self.on_config_version = events.on_config_version

    def on_message(self, peer: PeerId, message: Any) -> None:
        """As without the trace."""
        self._trace.message(peer, message, sent=False)
        self._events.on_message(peer, message)
