"""A node's copy of what the event log amounts to: reads snapshots and events, appends events, writes snapshots.

It reads and appends as any client does. Appending is never certain; whoever wants something appends its event again until the state shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

from client.read.items import Gap, GapKind, Record
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStream
from client.read.settings import ReadSettings
from client.receipt import Receipt
from client.session import ClientSession
from client.session_stream import SessionStream
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS, LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.machine import Outbox, Rng, TimerWheel
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, LogDeviceError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import Event, decode_event, encode_event
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.event_log.snapshots import SnapshotChoice
from logdevice_py.protocol.requests import Requests
from server.event_log.links import NodeLinks

_RETRY_US: Final = SECOND
_TAIL_CHECK_US: Final = 10 * SECOND
_STANDSTILL_US: Final = 20 * SECOND
_APPENDED_AGAIN_US: Final = 5 * SECOND
_TAKEN_AT_ONCE: Final = 64 << 10
"""Bytes of events and snapshots that are looked at in a turn; the last one may exceed it."""
_RECORD_COST: Final = 100
"""Bytes that a record counts for besides its own."""
_ENTRIES_PER_BYTE: Final = 4
"""A record counts for further bytes, one for so many entries of the state."""
_MANY_ENTRIES: Final = 256
_PAUSE_US_PER_ENTRY: Final = 50
"""Where the state has many entries, the next events are looked at after so long for each: whoever floods the event log does not stop the node."""


class ReplicaState(enum.Enum):
    """How far the replica is."""

    STOPPED = enum.auto()  # not started
    LOOKING = enum.auto()  # asks how far the snapshots go
    SNAPSHOT = enum.auto()  # reads them
    WEIGHING = enum.auto()  # asks how far the events go, which no snapshot can exceed
    TAILING = enum.auto()  # applies events as they come


class _Outcome:
    """A promise whose outcome is handled at the end of the turn."""

    def __init__(self, replica: EventLogReplica, handle: Callable[[Any, Micros], None]) -> None:
        self._replica = replica
        self._handle = handle
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        self._done = True
        self._replica.outcomes.append((self._handle, result))

    def set_exception(self, exception: BaseException, /) -> None:
        self._done = True
        self._replica.outcomes.append((self._handle, exception))

    def exception(self) -> BaseException | None:
        return None


class EventLogReplica:
    """The event log as one node knows it.

    Args:
        on_change: called when an event, or a snapshot, changed the state, and when it is caught up for the first time.
    """

    def __init__(
        self,
        config: ClusterConfig,
        settings: RebuildingSettings,
        metrics: RebuildingMetrics,
        outbox: Outbox,
        timers: TimerWheel,
        rng: Rng,
        requests: Requests,
        on_change: Callable[[Micros], None],
    ) -> None:
        self.set = RebuildingSet()
        self.state = ReplicaState.STOPPED
        self.caught_up = False
        """Everything that was in the event log at some moment since the start is applied."""
        self.outcomes: list[tuple[Callable[[Any, Micros], None], Any]] = []
        self.session = ClientSession(config, timers, rng, links=NodeLinks(outbox), requests=requests)
        self._settings = settings
        self._metrics = metrics
        self._timers = timers
        self._on_change = on_change
        self._read_settings = ReadSettings()
        self._read_metrics = ReadMetrics()
        self._reading: SessionStream | None = None
        self._now = Micros(0)
        self._snapshots = SnapshotChoice(LSN_INVALID)
        self._trimmed = LSN_INVALID
        """Events up to here are gone, as far as is known."""
        self._lost = LSN_INVALID
        """The end of the last loss of events."""
        self._looked_for = LSN_INVALID
        """Of how far a state was looked for among the snapshots."""
        self._changed = False
        """Since `on_change` was called."""
        self._rests = False
        """Looks at no events for a moment."""
        self._events_since_snapshot = 0
        self._snapshot_under_way = False
        self._written_at = LSN_INVALID
        """Of the last snapshot that this node wrote."""
        self._appended: dict[bytes, Micros] = {}
        self._behind_at = LSN_INVALID
        self._known_tail: Lsn | None = None
        """Before it was caught up for the first time: what is to be applied for that."""
        self._stood: tuple[ReadStream, Lsn, Micros] | None = None
        """Where a stream stands of which it is known that more is to come, and since when."""

    # Events of the shell

    def start(self, now: Micros) -> None:
        """Begin to read."""
        self._now = now
        self._tail(now)
        self._timers.at(now + _RETRY_US, self._check_tail)

    def on_turn_end(self, now: Micros) -> None:
        """Handle what the turn brought."""
        self._now = now
        self.session.on_turn_end(now)
        self._drain(now)
        if self.outcomes:
            outcomes, self.outcomes = self.outcomes, []
            for handle, outcome in outcomes:
                handle(outcome, now)
            self.session.on_turn_end(now)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """Another version of the cluster file."""
        self._now = now
        self.session.set_config(config, now)

    # Reading

    def _look(self, now: Micros) -> None:
        self.state = ReplicaState.LOOKING
        self.session.tail_lsn(EVENT_LOG_SNAPSHOTS, _Outcome(self, self._on_snapshot_tail), now)

    def _on_snapshot_tail(self, tail: LSN | BaseException, now: Micros) -> None:
        if self.state is not ReplicaState.LOOKING:
            return
        if isinstance(tail, BaseException):
            self._timers.at(now + _RETRY_US, self._look)
            return
        self.state = ReplicaState.SNAPSHOT
        self._snapshots = SnapshotChoice(max(self._trimmed, self._lost))
        if tail < LSN_OLDEST:
            self._end_of_snapshots(now)
        else:
            self._open(EVENT_LOG_SNAPSHOTS, LSN_OLDEST, Lsn(tail), now)

    def _open(self, log: LogId, first: Lsn, until: Lsn, now: Micros) -> None:
        self._close()
        session = self.session
        request = ReadRequest(log=log, stream=next(session.ids), first=first, until=until, single_copy=False)
        self._reading = SessionStream(
            session,
            request,
            settings=self._read_settings,
            metrics=self._read_metrics,
            now=lambda: self._now,
            on_ready=lambda: None,
        )
        self._reading.start(now)

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.stop()
            self._reading = None

    @property
    def _stream(self) -> ReadStream | None:
        return None if self._reading is None else self._reading.stream

    def _drain(self, now: Micros) -> None:
        stream = self._stream
        if stream is None or not stream.ready or self._rests:
            return
        room, missing = _TAKEN_AT_ONCE, False
        while room > 0 and not missing and (batch := stream.take(1, now)):
            for item in batch:
                # an event takes up to 0.5 us for each entry that there is
                room -= _RECORD_COST + len(self.set.shards) // _ENTRIES_PER_BYTE
                room -= len(item.payload) if isinstance(item, Record) else 0
                missing = missing or self._take(item)
        if missing:
            self._close()
            self._look_for_what_is_missing(now)
        elif stream.finished:
            self._close()
            if self.state is ReplicaState.SNAPSHOT:
                self._end_of_snapshots(now)
            else:
                self._retry(now)  # the end of all LSNs, which no stream of events reaches
        elif self.state is ReplicaState.TAILING and self._reached_tail(stream):
            self._changed = True
        self._tell(now)
        self._timers.at(now, lambda _: None)  # another turn, in which the shards get credit

    def _tell(self, now: Micros) -> None:
        """Call `on_change` if there is anything to say."""
        if self._changed:
            self._changed = False
            entries = len(self.set.shards)
            if entries > _MANY_ENTRIES:
                self._rests = True
                self._timers.at(Micros(now + entries * _PAUSE_US_PER_ENTRY), self._go_on)
            self._on_change(now)

    def _go_on(self, now: Micros) -> None:
        self._rests = False

    def _take(self, item: Any) -> bool:
        """Returns whether events before it are missing, of which a snapshot may tell."""
        if self.state is ReplicaState.SNAPSHOT:
            if isinstance(item, Record):
                self._snapshots.offer(item.payload, Lsn(item.lsn))
            return False
        if isinstance(item, Gap):
            return item.hi > self.set.version and self._is_missing(item)
        event: Event | None = None
        if isinstance(item, Record):
            try:
                event = decode_event(item.payload)
            except CorruptEntryError:
                hit("event_log_record_is_no_event")
        if item.lsn > self.set.version:
            self._metrics.events_applied += 1
            self._events_since_snapshot += 1
            self._changed = self.set.apply(event, Lsn(item.lsn)) or self._changed
        return False

    def _is_missing(self, gap: Gap) -> bool:
        if gap.kind is GapKind.TRIM:
            hit("event_log_trimmed_ahead")
            self._trimmed = Lsn(max(self._trimmed, gap.hi))
            return True
        if gap.kind is GapKind.DATALOSS and gap.hi > self._lost:
            hit("event_log_lost_events")
            self._metrics.event_log_losses += 1
            self._lost = Lsn(gap.hi)
            return True
        return False

    def _look_for_what_is_missing(self, now: Micros) -> None:
        """What is trimmed is in a snapshot, though perhaps not yet."""
        needed = max(self._trimmed, self._lost)
        if needed > self._looked_for:
            self._look(now)
        else:
            self._retry(now)

    def _retry(self, now: Micros) -> None:
        self.state = ReplicaState.STOPPED
        self._timers.at(now + _RETRY_US, self._look)

    def _end_of_snapshots(self, now: Micros) -> None:
        self.state = ReplicaState.WEIGHING
        self.session.tail_lsn(EVENT_LOG_DELTAS, _Outcome(self, self._on_tail_of_events), now)

    def _on_tail_of_events(self, tail: LSN | BaseException, now: Micros) -> None:
        if self.state is not ReplicaState.WEIGHING:
            return
        if isinstance(tail, BaseException):
            self._retry(now)
            return
        snapshots, self._snapshots = self._snapshots, SnapshotChoice(LSN_INVALID)
        lsn = snapshots.newest(Lsn(tail))
        if lsn > LSN_OLDEST and self._written_at >= lsn:
            self._trim(EVENT_LOG_SNAPSHOTS, Lsn(lsn - 1), now)
        self._looked_for = Lsn(max(self._looked_for, snapshots.needed))
        chosen = snapshots.choose(Lsn(tail), self.set)
        if chosen is not self.set:
            self.set, self._changed = chosen, True
        self._tail(now)
        self._tell(now)

    def _tail(self, now: Micros) -> None:
        self.state = ReplicaState.TAILING
        self._open(EVENT_LOG_DELTAS, Lsn(self.set.version + 1), LSN_MAX, now)
        if not self.caught_up:
            self._ask_tail(now)

    def _check_tail(self, now: Micros) -> None:
        """Whether everything is applied; a stream that stands still is opened anew."""
        self._timers.at(now + (_TAIL_CHECK_US if self.caught_up else _RETRY_US), self._check_tail)
        if self._stands_still(now):
            hit("event_log_read_anew")
            if self.state is ReplicaState.SNAPSHOT:
                self._close()  # what it may still bring is no event
            self._look(now)
        elif self.state is ReplicaState.TAILING:
            self._ask_tail(now)

    def _stands_still(self, now: Micros) -> bool:
        """Before it has come to its known end: shards may have forgotten it with a connection that an earlier run of this node had made."""
        stream = self._stream
        awaits_tail = self.state is ReplicaState.TAILING and not self.caught_up and self._known_tail is not None
        if stream is None or not (awaits_tail or self.state is ReplicaState.SNAPSHOT):
            self._stood = None
            return False
        if self._stood is None or self._stood[:2] != (stream, stream.next_lsn):
            self._stood = stream, stream.next_lsn, now
        return now - self._stood[2] >= _STANDSTILL_US

    def _ask_tail(self, now: Micros) -> None:
        self.session.tail_lsn(EVENT_LOG_DELTAS, _Outcome(self, self._on_tail), now)

    def _on_tail(self, tail: LSN | BaseException, now: Micros) -> None:
        stream = self._stream
        if isinstance(tail, BaseException) or self.state is not ReplicaState.TAILING or stream is None:
            return
        if not self.caught_up:
            self._known_tail = Lsn(tail)
            if self._reached_tail(stream):
                self._on_change(now)
        elif stream.next_lsn > tail:
            self._behind_at = LSN_INVALID
        elif self._behind_at == stream.next_lsn:
            hit("event_log_read_anew")
            self._behind_at = LSN_INVALID
            self._look(now)
        else:
            self._behind_at = stream.next_lsn

    def _reached_tail(self, stream: ReadStream) -> bool:
        """Whether it is caught up as of this moment, for the first time."""
        if self.caught_up or self._known_tail is None or stream.ready or stream.next_lsn <= self._known_tail:
            return False
        self.caught_up, self._known_tail = True, None
        return True

    # Writing

    def append(self, event: Event, now: Micros) -> None:
        """Append an event, unless the same one was appended a moment ago."""
        payload = encode_event(event)
        if now < self._appended.get(payload, 0):
            return
        self._appended = {each: until for each, until in self._appended.items() if until > now}
        self._appended[payload] = Micros(now + _APPENDED_AGAIN_US)
        if self._append(EVENT_LOG_DELTAS, payload, lambda outcome, at: None, now):
            self._metrics.events_written += 1

    def write_snapshot_if_due(self, now: Micros) -> None:
        """Called now and then on the node that leads."""
        due = self._events_since_snapshot >= self._settings.snapshot_events
        if due and not self._snapshot_under_way and self.state is ReplicaState.TAILING:
            self._events_since_snapshot = 0
            version = self.set.version
            self._snapshot_under_way = self._append(
                EVENT_LOG_SNAPSHOTS, self.set.encode(), lambda outcome, at: self._on_snapshot(version, outcome, at), now
            )

    def _append(self, log: LogId, payload: bytes, handle: Callable[[Any, Micros], None], now: Micros) -> bool:
        """False: the log does not take it, and never will."""
        try:
            self.session.append(log, payload, _Outcome(self, handle))
        except LogDeviceError:
            hit("event_log_takes_no_such_record")
            return False
        self._timers.at(now, lambda _: None)
        return True

    def _on_snapshot(self, version: Lsn, outcome: Receipt | BaseException, now: Micros) -> None:
        self._snapshot_under_way = False
        if isinstance(outcome, BaseException):
            return
        self._metrics.snapshots_written += 1
        self._written_at = Lsn(outcome.lsn)
        self._trim(EVENT_LOG_DELTAS, version, now)
        if self.state is ReplicaState.TAILING:
            self._look(now)  # whether it is the newest of those that are there, before the others are trimmed

    def _trim(self, log: LogId, lsn: Lsn, now: Micros) -> None:
        shards = list(self.session.config.storage_shards())
        self.session.trim(log, lsn, shards, _Outcome(self, lambda outcome, at: None), now)
