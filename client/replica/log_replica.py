"""A copy of the state that a log of commands amounts to: reads snapshots and commands, appends both, trims what snapshots replace.

It reads and appends as any client does. Appending is never certain: whoever wants something looks whether the state shows it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from client.read.items import CorruptRecord, Gap, GapKind, Item, Record
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.read.read_stream import ReadStream
from client.read.settings import ReadSettings
from client.receipt import Receipt
from client.session import ClientSession
from client.session_stream import SessionStream
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_MAX, LSN_OLDEST, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros

_RETRY_US: Final = SECOND
_TAIL_CHECK_US: Final = 10 * SECOND
_STALL_US: Final = 20 * SECOND
_LOSS_RETRY_US: Final = 30 * SECOND
"""Where commands are lost: copies may come back."""
_TAKEN_AT_ONCE: Final = 64 << 10
"""Bytes of commands and snapshots that are looked at in a turn; the last one may exceed it."""


class ReplicaStage(enum.Enum):
    """How far a replica is."""

    STOPPED = enum.auto()  # not started, or pauses before it looks again
    LOOKING = enum.auto()  # asks how far the snapshots go
    SNAPSHOT = enum.auto()  # reads them
    WEIGHING = enum.auto()  # asks how far the commands go, which no snapshot can exceed
    TAILING = enum.auto()  # applies commands as they come
    CLOSED = enum.auto()  # does nothing any more


class ReplicatedState(Protocol):
    """What the commands amount to."""

    @property
    def version(self) -> Lsn:
        """All commands up to this LSN are applied."""


S = TypeVar("S", bound=ReplicatedState)


class SnapshotReading(Protocol[S]):
    """Looks through all snapshots, in the order in which they stand in their log, and chooses."""

    needed: Lsn
    """As far as commands are gone from their log."""

    def offer(self, snapshot: bytes, lsn: Lsn) -> None:
        """Look at the next record."""

    def choose(self, tail: Lsn, state: S) -> S:
        """The state to go on with; `tail` is that of the commands, asked for after the last snapshot was read."""

    def removable(self, tail: Lsn, written: Lsn) -> tuple[Lsn, Lsn]:
        """Up to where commands and snapshots can be trimmed by the replica of which the last snapshot ended at `written`; 0: nowhere."""


class ReplicaRules(Protocol[S]):
    """What is particular to one kind of state."""

    commands: LogId
    snapshots: LogId
    skips_losses: bool
    """Lost commands of which no snapshot tells what they did count as if they had not been; False: nothing is applied behind them."""

    def apply(self, state: S, item: Record | CorruptRecord) -> bool:
        """Take the next record of the commands. Whether it changed what others are to be told of."""

    def on_loss(self, gap: Gap) -> None:
        """Commands are lost: a snapshot is looked for that tells what they did."""

    def read_snapshots(self, needed: Lsn) -> SnapshotReading[S]:
        """Begin to look through snapshots."""

    def snapshot(self, state: S) -> list[bytes]:
        """The records that are written of a state; none: it is too large for a snapshot."""

    def on_snapshot_written(self, version: Lsn) -> Lsn:
        """They are in their log. Up to where commands can be trimmed at once; 0: nowhere."""

    def cost(self, state: S) -> int:
        """For how many bytes a record counts besides its own, as applying it takes time."""

    def pause_us(self, state: S) -> int:
        """For how long nothing is read after others were told of a change."""


Confirmed = Callable[[BaseException | None, Micros], None]
"""Called when commands up to some end are applied, or with why that end is not known."""


class _Outcome:
    """A promise whose outcome is handled at the end of the turn."""

    def __init__(self, replica: LogReplica[Any], handle: Callable[[Any, Micros], None]) -> None:
        self._replica = replica
        self._handle = handle
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, result: Any, /) -> None:
        self._done = True
        self._replica.add_outcome(self._handle, result)

    def set_exception(self, exception: BaseException, /) -> None:
        self._done = True
        self._replica.add_outcome(self._handle, exception)

    def exception(self) -> BaseException | None:
        return None


class LogReplica(Generic[S]):
    """One replica.

    Args:
        session: reads and appends.
        state: before the first command.
        on_change: called when a command, or a snapshot, changed the state, when it is caught up for the first time, and when it is told that the client
            may not read the logs.
    """

    def __init__(
        self,
        session: ClientSession,
        rules: ReplicaRules[S],
        state: S,
        on_change: Callable[[Micros], None],
        read_settings: ReadSettings | None = None,
    ) -> None:
        self.state = state
        self.stage = ReplicaStage.STOPPED
        self.caught_up = False
        """Everything that was in the log of commands at some moment since the start is applied."""
        self.confirmed_at = Micros(-1)
        """When the end of the commands was asked for, up to which all are applied; -1: never."""
        self.loss: Gap | None = None
        """Lost commands behind which nothing is applied."""
        self.refused: LogDeviceError | None = None
        """With ACCESS: the client may not read the logs, as the last answer said. They are asked for again and again, as it may be permitted meanwhile."""
        self.session = session
        self._outcomes: list[tuple[Callable[[Any, Micros], None], Any]] = []
        self._rules = rules
        self._timers = session.timers
        self._on_change = on_change
        self._read_settings = read_settings or ReadSettings()
        self._read_metrics = ReadMetrics()
        self._reading: SessionStream | None = None
        self._found = rules.read_snapshots(LSN_INVALID)
        self._trimmed = LSN_INVALID
        """Commands up to here are gone, as far as is known."""
        self._lost = LSN_INVALID
        """The end of the last loss of commands."""
        self._looked_for = LSN_INVALID
        """Of how far a state was looked for among the snapshots."""
        self._changed = False
        """Since `on_change` was called."""
        self._rests = False
        """Looks at no commands for a moment."""
        self._snapshot_under_way = False
        self._written_at = LSN_INVALID
        """Of the last snapshot that this replica wrote."""
        self._behind_at = LSN_INVALID
        self._awaited: list[tuple[Lsn, Micros, Confirmed]] = []
        """Ends of the commands that somebody waits for, with when they were asked for."""
        self._known_tail: Lsn | None = None
        """Before it was caught up for the first time: what is to be applied for that."""
        self._stood: tuple[ReadStream, Lsn, Micros] | None = None
        """Where a stream stands of which it is known that more is to come, and since when."""

    # Events of the shell

    def start(self, now: Micros) -> None:
        """Begin to read."""
        self._tail(now)
        self._timers.at(now + _RETRY_US, self._check_tail)

    def wake(self) -> None:
        """There is something to do at the end of the turn."""
        self.session.handle_turn_end(self.handle_turn)

    def handle_turn(self, now: Micros) -> bool:
        """Handle what the session brought in a turn. Returns whether the session has something to do again."""
        self._drain(now)
        outcomes, self._outcomes = self._outcomes, []
        for handle, outcome in outcomes:
            handle(outcome, now)
        self._tell_awaited(now)
        return bool(outcomes)

    def add_outcome(self, handle: Callable[[Any, Micros], None], outcome: Any) -> None:
        """An answer of the session, for the end of the turn."""
        if self.stage is not ReplicaStage.CLOSED:
            self._outcomes.append((handle, outcome))
            self.wake()

    def stop(self) -> None:
        """Do nothing any more."""
        self.stage = ReplicaStage.CLOSED
        self._close()
        self._outcomes.clear()

    # Reading

    def _look(self, now: Micros) -> None:
        if self.stage is ReplicaStage.CLOSED:
            return
        self.stage = ReplicaStage.LOOKING
        self.session.sequencers.tail_lsn(self._rules.snapshots, _Outcome(self, self._on_snapshot_tail), now)

    def _on_snapshot_tail(self, tail: LSN | BaseException, now: Micros) -> None:
        self._note_refusal(tail, now)
        if self.stage is not ReplicaStage.LOOKING:
            return
        if isinstance(tail, BaseException):
            self._timers.at(now + _RETRY_US, self._look)
            return
        self.stage = ReplicaStage.SNAPSHOT
        self._found = self._rules.read_snapshots(max(self._trimmed, self._lost))
        if tail < LSN_OLDEST:
            self._end_of_snapshots(now)
        else:
            self._open(self._rules.snapshots, LSN_OLDEST, Lsn(tail), now)

    def _open(self, log: LogId, first: Lsn, until: Lsn, now: Micros) -> None:
        self._close()
        session = self.session
        request = ReadRequest(log=log, stream=next(session.ids), first=first, until=until, single_copy=False)
        self._reading = SessionStream(
            session,
            request,
            settings=self._read_settings,
            metrics=self._read_metrics,
            on_ready=self.wake,
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
                room -= self._rules.cost(self.state) + (len(item.payload) if isinstance(item, Record) else 0)
                missing = missing or self._take(item)
        if missing:
            self._close()
            self._look_for_what_is_missing(now)
        elif stream.finished:
            self._close()
            if self.stage is ReplicaStage.SNAPSHOT:
                self._end_of_snapshots(now)
            else:
                self._retry(now)  # the end of all LSNs, which no stream of commands reaches
        elif self.stage is ReplicaStage.TAILING and self._reached_tail(stream):
            self._changed = True
        self._tell(now)
        self._timers.at(now, lambda _: None)  # another turn, in which the shards get credit
        self.wake()

    def _tell(self, now: Micros) -> None:
        """Call `on_change` if there is anything to say."""
        if self._changed:
            self._changed = False
            pause = self._rules.pause_us(self.state)
            if pause:
                self._rests = True
                self._timers.at(Micros(now + pause), self._go_on)
            self._on_change(now)

    def _go_on(self, now: Micros) -> None:
        self._rests = False
        self.wake()

    def _take(self, item: Item) -> bool:
        """Returns whether commands before it are missing, of which a snapshot may tell."""
        if self.stage is ReplicaStage.SNAPSHOT:
            if isinstance(item, Record):
                self._found.offer(item.payload, Lsn(item.lsn))
            return False
        if isinstance(item, Gap):
            missing, end = item.hi > self.state.version and self._is_missing(item), item.hi
        else:
            missing, end = False, item.lsn
            self._changed = self._rules.apply(self.state, item) or self._changed
        if not missing and self.loss is not None and end >= self.loss.lo:
            self.loss = None  # a copy is back, or nothing was there
        return missing

    def _is_missing(self, gap: Gap) -> bool:
        if gap.kind is GapKind.TRIM:
            hit("replica_is_behind_the_trim_point")
            self._trimmed = Lsn(max(self._trimmed, gap.hi))
            return True
        if gap.kind is not GapKind.DATALOSS:
            return False
        if not self._rules.skips_losses:
            self.loss = gap
        elif gap.hi <= self._lost:
            return False
        if gap.hi > self._lost:
            self._rules.on_loss(gap)
            self._lost = Lsn(gap.hi)
        return True

    def _look_for_what_is_missing(self, now: Micros) -> None:
        """What is trimmed is in a snapshot, though perhaps not yet."""
        needed = max(self._trimmed, self._lost)
        if needed > self._looked_for:
            self._look(now)
        else:
            self._retry(now)

    def _retry(self, now: Micros) -> None:
        self.stage = ReplicaStage.STOPPED
        self._timers.at(now + (_RETRY_US if self.loss is None else _LOSS_RETRY_US), self._look)

    def _end_of_snapshots(self, now: Micros) -> None:
        self.stage = ReplicaStage.WEIGHING
        self.session.sequencers.tail_lsn(self._rules.commands, _Outcome(self, self._on_tail_of_commands), now)

    def _on_tail_of_commands(self, tail: LSN | BaseException, now: Micros) -> None:
        self._note_refusal(tail, now)
        if self.stage is not ReplicaStage.WEIGHING:
            return
        if isinstance(tail, BaseException):
            self._retry(now)
            return
        found, self._found = self._found, self._rules.read_snapshots(LSN_INVALID)
        commands, snapshots = found.removable(Lsn(tail), self._written_at)
        self._trim(self._rules.commands, commands, now)
        self._trim(self._rules.snapshots, snapshots, now)
        self._looked_for = Lsn(max(self._looked_for, found.needed))
        chosen = found.choose(Lsn(tail), self.state)
        if chosen is not self.state:
            self.state, self._changed = chosen, True
            self.loss = None
        self._tail(now)
        self._tell(now)

    def _tail(self, now: Micros) -> None:
        self.stage = ReplicaStage.TAILING
        self._open(self._rules.commands, Lsn(self.state.version + 1), LSN_MAX, now)
        if not self.caught_up:
            self._ask_tail(now)

    def _check_tail(self, now: Micros) -> None:
        """Whether everything is applied; a stream that stalls is opened again."""
        if self.stage is ReplicaStage.CLOSED:
            return
        self._timers.at(now + (_TAIL_CHECK_US if self.caught_up else _RETRY_US), self._check_tail)
        if self._is_stalled(now):
            hit("replica_reads_anew")
            if self.stage is ReplicaStage.SNAPSHOT:
                self._close()  # what it may still bring is no command
            self._look(now)
        elif self.stage is ReplicaStage.TAILING:
            self._ask_tail(now)

    def _is_stalled(self, now: Micros) -> bool:
        """Before it has come to its known end: shards may have forgotten it with a connection that an earlier run of this node had made."""
        stream = self._stream
        awaits_tail = self.stage is ReplicaStage.TAILING and not self.caught_up and self._known_tail is not None
        if stream is None or not (awaits_tail or self.stage is ReplicaStage.SNAPSHOT):
            self._stood = None
            return False
        if self._stood is None or self._stood[:2] != (stream, stream.next_lsn):
            self._stood = stream, stream.next_lsn, now
        return now - self._stood[2] >= _STALL_US

    def _ask_tail(self, now: Micros) -> None:
        self.session.sequencers.tail_lsn(
            self._rules.commands, _Outcome(self, lambda tail, at: self._on_tail(tail, now, at)), now
        )

    def _on_tail(self, tail: LSN | BaseException, asked: Micros, now: Micros) -> None:
        self._note_refusal(tail, now)
        stream = self._stream
        if isinstance(tail, BaseException) or self.stage is not ReplicaStage.TAILING or stream is None:
            return
        if not self.caught_up:
            self._known_tail = Lsn(tail)
            if self._reached_tail(stream):
                self.confirmed_at = max(self.confirmed_at, asked)
                self._on_change(now)
        elif stream.next_lsn > tail:
            self._behind_at = LSN_INVALID
            if not stream.ready:
                self.confirmed_at = max(self.confirmed_at, asked)
        elif self._behind_at == stream.next_lsn:
            hit("replica_reads_anew")
            self._behind_at = LSN_INVALID
            self._look(now)
        else:
            self._behind_at = stream.next_lsn

    def _note_refusal(self, tail: LSN | BaseException, now: Micros) -> None:
        """An answer about the end of a log has come."""
        was, self.refused = self.refused, None
        if isinstance(tail, LogDeviceError) and tail.status is Status.ACCESS:
            self.refused = tail
            if was is None:
                hit("replica_may_not_read")
                self._on_change(now)

    def confirm(self, done: Confirmed, now: Micros, timeout_us: int) -> None:
        """Ask how far the commands go, and call `done` when all up to there are applied, or with the error when nobody told in time. What was acknowledged
        to anybody before this call is applied then."""

        def told(tail: LSN | BaseException, at: Micros) -> None:
            if isinstance(tail, BaseException):
                done(tail, at)
            else:
                self._awaited.append((Lsn(tail), now, done))
                self._tell_awaited(at)

        self.session.sequencers.tail_lsn(self._rules.commands, _Outcome(self, told), now, timeout_us)

    def _tell_awaited(self, now: Micros) -> None:
        stream = self._stream
        if not self._awaited or self.stage is not ReplicaStage.TAILING or stream is None or stream.ready:
            return
        reached = [each for each in self._awaited if stream.next_lsn > each[0]]
        self._awaited = [each for each in self._awaited if stream.next_lsn <= each[0]]
        for _, asked, done in reached:
            self.confirmed_at = max(self.confirmed_at, asked)
            done(None, now)

    def _reached_tail(self, stream: ReadStream) -> bool:
        """Whether it is caught up as of this moment, for the first time."""
        if self.caught_up or self._known_tail is None or stream.ready or stream.next_lsn <= self._known_tail:
            return False
        self.caught_up, self._known_tail = True, None
        return True

    # Writing

    def write_snapshot(self, now: Micros) -> bool:
        """Write one unless that is under way, or the replica does not follow the commands. Returns whether it begins to."""
        if self._snapshot_under_way or self.stage is not ReplicaStage.TAILING:
            return False
        self._write(self._rules.snapshot(self.state), 0, self.state.version, now)
        return True

    def _write(self, records: list[bytes], index: int, version: Lsn, now: Micros) -> None:
        """Append the records of a snapshot from `index` on, one after the other."""
        self._snapshot_under_way = index < len(records) and self.append(
            self._rules.snapshots,
            records[index],
            lambda outcome, at: self._on_written(records, index, version, outcome, at),
            now,
        )

    def append(
        self,
        log: LogId,
        payload: bytes,
        handle: Callable[[Any, Micros], None],
        now: Micros,
        timeout_us: int | None = None,
    ) -> bool:
        """Append a record; `handle` gets the receipt or an error. False: the log does not take it, and never will."""
        try:
            self.session.append(log, payload, _Outcome(self, handle), timeout_us)
        except LogDeviceError:
            hit("replica_record_is_refused")
            return False
        self._timers.at(now, lambda _: None)
        return True

    def _on_written(
        self, records: list[bytes], index: int, version: Lsn, outcome: Receipt | BaseException, now: Micros
    ) -> None:
        self._snapshot_under_way = False
        if isinstance(outcome, BaseException):
            return
        if index + 1 < len(records):
            self._write(records, index + 1, version, now)
            return
        self._written_at = Lsn(outcome.lsn)
        self._trim(self._rules.commands, self._rules.on_snapshot_written(version), now)
        if self.stage is ReplicaStage.TAILING:
            self._look(now)  # which others are there, before any is trimmed

    def _trim(self, log: LogId, lsn: Lsn, now: Micros) -> None:
        if lsn > LSN_INVALID:
            shards = list(self.session.config.storage_shards())
            self.session.trim(log, lsn, shards, _Outcome(self, lambda outcome, at: None), now)
