"""The read stream machine: one range of one log, delivered in order with every missing LSN accounted for.

Shards send what they hold and say how far they have looked. An entry is delivered when everything before it is accounted for:

  - BRIDGE comes only from a bridge entry, and for positions that never hold an entry (ESN 0, epochs before the log's first one);
  - HOLE comes only from a plug, TRIM only from a trim point;
  - everything else is DATALOSS (`MissingEntries`).

With single-copy delivery each entry comes from the first shard of its copyset that is not counted as down. A shard that fails is counted as
down and all are started anew with another filter version (a rewind); when that does not help, everyone sends everything.

Items wait in a queue until the application takes them; only then do the shards get credit to send on, so a stream that nobody reads
holds a bounded number of bytes and stalls nobody else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from client.read.batch import RecordBatch
from client.read.current_interval import CurrentInterval
from client.read.decoding import rank_of, verify_image
from client.read.fail_over import FailOver
from client.read.items import DataLoss, Gap, GapKind
from client.read.metrics import ReadMetrics
from client.read.missing_entries import Ask, LookBack, Lost, MissingEntries
from client.read.named_timers import NamedTimers
from client.read.nodeset_lookup import NodesetLookup
from client.read.proof import Proof
from client.read.read_buffer import Buffered, ReadBuffer
from client.read.read_set import ReadPosition, ReadRequest, ReadSet
from client.read.ready_queue import GAPS_MAX, ReadyQueue
from client.read.sender_state import ENTRY_WORK, Sender, SenderStatus
from client.read.settings import ReadSettings
from client.read.shard_statuses import ShardStatuses
from client.read.stall_watch import StallWatch
from client.read.stream_look import StreamLook
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.entry import EntryFlags, EntryHeader
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.lsn import ESN_MAX, LSN, LSN_INVALID, Epoch, Lsn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import GapReason, Records, ShardGap, Started

_HOLE: Final = int(EntryFlags.HOLE)
_BRIDGE: Final = int(EntryFlags.BRIDGE)


class ReadStreamState(MachineState):
    """Where a stream stands."""

    LOOKING_UP = enum.auto()  # the nodesets of the log are not known yet
    READING = enum.auto()  # shards are read from
    FINISHED = enum.auto()  # everything up to `until` is delivered
    STOPPED = enum.auto()  # its owner stopped it


_S = ReadStreamState
READ_STREAM_TRANSITIONS: Final = transitions(
    {
        _S.LOOKING_UP: (_S.READING, _S.FINISHED, _S.STOPPED),
        _S.READING: (_S.READING, _S.FINISHED, _S.STOPPED),
        _S.FINISHED: (_S.STOPPED,),
        _S.STOPPED: (),
    }
)


class ReadStream:
    """Reads [first, until] of a log.

    Args:
        request: what to read.
        config: the cluster file.
        settings: how to read.
        outbox: where START, WINDOW and STOP go.
        timers: the client's timers.
        rng: for pauses.
        metrics: counters shared by all streams of the client.
        request_history: asks the owner to read the nodesets of the log anew; `on_history` gets what was read. It must not call back at once.
        on_ready: called when there is something to take, or the stream has finished.
        request_turn_end: asks the owner for a call of `on_turn_end` when all events of the turn are handed in.
        explain_history: whom the owner waits for while no nodeset is known.
    """

    def __init__(
        self,
        request: ReadRequest,
        *,
        config: ClusterConfig,
        settings: ReadSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        metrics: ReadMetrics,
        request_history: Callable[[Micros], None],
        on_ready: Callable[[], None],
        request_turn_end: Callable[[], None],
        explain_history: Callable[[], str] = lambda: "the metadata log",
    ) -> None:
        self.request = request
        self.state = ReadStreamState.LOOKING_UP
        self._metrics = metrics
        self._window_lsns = settings.window_lsns
        self._on_ready = on_ready
        self._request_turn_end = request_turn_end
        self._explain_history = explain_history
        self._position = ReadPosition(request.first, request.until)
        if esn_of(request.first) > 1:
            # The entry before the first LSN may be the bridge of the epoch.
            self._position.look_back = Lsn(request.first - 1)
        self._queue = ReadyQueue(request.log, request.first, metrics)
        self._read_set = ReadSet(
            request,
            self._position,
            self._queue,
            settings=settings,
            outbox=outbox,
            timers=timers,
            rng=rng,
            metrics=metrics,
        )
        self._buffer = ReadBuffer(metrics)
        self._named = NamedTimers(timers, self._mark)
        self._lookup = NodesetLookup(request_history, self._named, settings=settings, rng=rng, metrics=metrics)
        self._history = self._lookup.history
        self._interval = CurrentInterval(self._history, self._position, self._read_set, config)
        self._trim_point: Lsn = LSN_INVALID
        self._fail_over = FailOver(
            self._position,
            self._read_set,
            self._named,
            self._narrow,
            single_copy=request.single_copy,
            settings=settings,
            rng=rng,
            metrics=metrics,
        )
        self._missing = MissingEntries(request, self._position, self._read_set, self._named, settings)
        self._dirty = False
        self._stalls = StallWatch(self._position, self._read_set, self._fail_over, self._lookup, self._named, settings)

    # Face of the owner

    def start(self, now: Micros) -> None:
        """Begin. Call once."""
        assert self.state is ReadStreamState.LOOKING_UP, self.state
        self._lookup.ask(now)
        self._mark()

    @property
    def log(self) -> LogId:
        """The log that is read."""
        return self.request.log

    @property
    def ready(self) -> bool:
        """`take` would return something, or nothing because the stream has finished."""
        return bool(self._queue) or self.state is ReadStreamState.FINISHED

    @property
    def finished(self) -> bool:
        """Everything up to `until` was taken."""
        return self.state is ReadStreamState.FINISHED and not self._queue

    @property
    def next_lsn(self) -> Lsn:
        """The first LSN that was not delivered."""
        return self._position.next

    def proof(self) -> Proof:
        """What was taken so far."""
        return self._queue.proof()

    def stop(self) -> None:
        """Stop: what is there is dropped, and `take` has nothing more. Harmless when called again."""
        if self.state is not ReadStreamState.STOPPED:
            self._close(ReadStreamState.STOPPED)
            self._queue.clear()
            self._mark()
            self._on_ready()

    def take(self, records_max: int, now: Micros) -> RecordBatch:
        """Up to so many records and the gaps between them, in order; what is taken gives the shards credit to send on."""
        assert records_max > 0, records_max
        self._mark()
        return self._queue.take(records_max)

    def take_entries(self, entries_max: int, now: Micros) -> list[tuple[EntryHeader, bytes] | Gap]:
        """Like `take`, but whole entries as they are stored. A stream is read with one or the other."""
        self._mark()
        return self._queue.take_entries(entries_max)

    def waiting_for(self) -> str:
        """Why nothing is delivered at this moment, for people."""
        lsn = self._position.next
        if self.state in (ReadStreamState.FINISHED, ReadStreamState.STOPPED):
            return "nothing: the stream has ended"
        if self.state is ReadStreamState.LOOKING_UP:
            return f"{self._explain_history()}: no nodeset of the log is known yet"
        if self._queue:
            return f"the application: {self._queue.bytes} bytes are ready"
        return self._read_set.waiting_for(lsn, released=self._released, certain_end=self._position.certain_end)

    def look(self) -> StreamLook:
        """How it stands at this moment."""
        position, read_set = self._position, self._read_set
        return StreamLook(
            next=position.next,
            released=self._released,
            window_high=position.window_high(self._window_lsns, self._queue.held_from),
            single_copy=read_set.single_copy,
            ready_bytes=self._queue.bytes,
            waiting_entries=len(self._buffer),
            senders=tuple(read_set.senders.values()),
            waiting_for=self.waiting_for(),
        )

    def check(self) -> None:
        """What must hold between two events."""
        position = self._position
        assert self._queue.taken_to < position.next, (self._queue.taken_to, position.next)
        self._queue.check()
        first = self._buffer.first()
        assert first is None or first > position.next or position.next > position.certain_end or not self._is_open()
        assert all(sender.held >= 0 for sender in self._read_set.senders.values())

    def _mark(self) -> None:
        """Something may have become deliverable."""
        if not self._dirty:
            self._dirty = True
            self._request_turn_end()

    def _is_open(self) -> bool:
        return self.state in (ReadStreamState.LOOKING_UP, ReadStreamState.READING)

    # Nodesets

    def on_history(self, intervals: tuple[EpochInterval, ...], now: Micros, certain: Epoch) -> None:
        """The nodesets of the log, read after `request_history` was called; none: the log has no epoch yet, or they cannot be read. After
        the epoch `certain` there may have been others that cannot be read."""
        if not self._is_open() or not self._lookup.take(intervals, certain, now):
            return
        self._become(ReadStreamState.READING)
        position = self._position
        if position.interval >= 0:
            position.certain_end = self._history.certain_end_of(position.interval)
        self._mark()

    @property
    def _released(self) -> Lsn:
        return self._lookup.released

    def _enter(self, index: int, now: Micros) -> None:
        """Read from the shards of another interval."""
        position, history = self._position, self._history
        position.interval = index
        position.certain_end = history.certain_end_of(index)
        position.limit = Lsn(min(position.until, history.end_of(index)))
        position.wide = False
        detector = self._interval.enter(index)
        self._forget_received()
        self._fail_over.enter_interval(detector, now)

    def on_shard_statuses(self, statuses: ShardStatuses, now: Micros) -> None:
        """The cluster says anew of which shards nobody waits for the data any more."""
        if self._interval.on_statuses(statuses, reading=self.state is ReadStreamState.READING):
            self._mark()

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A new version of the cluster file holds."""
        if self._interval.on_config(config, reading=self.state is ReadStreamState.READING):
            self._fail_over.want_rewind()
            self._mark()

    # What shards send

    def _sender(self, message: Started | Records | ShardGap) -> Sender | None:
        if self.state is not ReadStreamState.READING:
            return None
        self._mark()
        return self._read_set.accept(message)

    def on_started(self, message: Started, now: Micros) -> None:
        """A shard took a START, or refused it."""
        sender = self._sender(message)
        if sender is None:
            return
        if message.status is Status.OK:
            sender.cancel_timer()
            sender.status = SenderStatus.READING
            sender.lost = False
            self._lookup.note_released(message.last_released, now)
        else:
            sender.lost = message.status is Status.REBUILDING
            self._read_set.wait(sender, now)
            self._interval.write_off()
            self._fail_over.failed(sender)
        self._interval.note_lost(sender)

    def on_records(self, message: Records, now: Micros) -> None:
        """A shard sent entries."""
        sender = self._sender(message)
        if sender is None:
            return
        images, at, size = message.images, 0, len(message.images)
        metrics, position, lookup = self._metrics, self._position, self._lookup
        sender.failures = 0
        sender.work += size + ENTRY_WORK * len(message.entries)
        metrics.entries_received += len(message.entries)
        metrics.bytes_received += size
        for lsn, length in message.entries:
            end = at + length
            allowed = sender.has_credit and sender.next_lsn <= lsn <= sender.window_high and end <= size
            if not allowed or sender.status is not SenderStatus.READING:
                hit("read_unasked_records")
                self._on_violation(sender, now)
                return
            image = images if length == size else images[at:end]
            at = end
            sender.received += length
            sender.next_lsn = Lsn(lsn + 1)
            if lsn > lookup.released:
                lookup.note_released(Lsn(lsn), now)
            if lsn < position.next:
                metrics.duplicate_copies += 1
                if position.look_back:
                    self._missing.note_before(sender, Lsn(lsn), image)
            else:
                self._take_copy(sender, Lsn(lsn), image)

    def _take_copy(self, sender: Sender, lsn: Lsn, image: bytes) -> None:
        other = self._buffer.get(lsn)
        try:
            if other is not None and len(image) >= 8 and rank_of(image) <= other.header.rank:
                self._metrics.duplicate_copies += 1
                return
            header = verify_image(self.request.log, lsn, image)
        except CorruptEntryError:
            hit("read_corrupt_copy")
            self._metrics.corrupt_copies += 1
            self._missing.note_unable(sender, lsn, lsn)
            self._fail_over.failed(sender)
            return
        copy = self._buffer.hold(header, image, sender)
        position = self._position
        if lsn == position.next and lsn <= position.certain_end and lsn <= position.until and lsn > self._trim_point:
            if other is not None:
                self._buffer.pop(lsn)
                self._buffer.let_go(other)
            self._deliver(lsn, copy)
        elif self._buffer.put(lsn, copy):
            hit("read_higher_rank")
            self._metrics.duplicate_copies += 1

    def on_gap(self, message: ShardGap, now: Micros) -> None:
        """A shard said how far it has looked."""
        sender = self._sender(message)
        if sender is None:
            return
        if message.first > sender.next_lsn:
            hit("read_gap_leaves_lsns_out")
            self._on_violation(sender, now)
            return
        sender.failures = 0
        last = message.last
        trimmed = message.reason == GapReason.TRIM
        self._lookup.note_released(message.last_released if trimmed else max(last, message.last_released), now)
        if trimmed:
            self._trim_point = Lsn(max(self._trim_point, last))
        elif message.reason in (GapReason.UNDER_REPLICATED, GapReason.CHECKSUM_FAIL):
            self._missing.note_unable(sender, message.first, last)
            if message.reason == GapReason.CHECKSUM_FAIL:
                self._fail_over.failed(sender)
        if last >= sender.next_lsn:
            sender.next_lsn = Lsn(last + 1)

    def _on_violation(self, sender: Sender, now: Micros) -> None:
        """A shard sent what it must not send, or what it sent before is lost: its node could not reach this one a moment ago."""
        self._read_set.violated(sender, now)
        self._fail_over.failed(sender)

    # Delivery

    def on_turn_end(self, now: Micros) -> None:
        """Deliver what the events of the turn make deliverable."""
        if self._dirty:
            self._dirty = False
            self._settle(now)

    def _settle(self, now: Micros) -> None:
        """Deliver what can be delivered, then see to what holds the rest up."""
        position = self._position
        if self.state is ReadStreamState.READING:
            while position.next <= position.until and self._step(now):
                pass
        if position.next > position.until and self._is_open():
            self._close(ReadStreamState.FINISHED)
        if self.state is ReadStreamState.READING:
            detector = self._interval.detector
            if detector is not None:
                self._fail_over.look_for_slow(detector, self._released, now)
                if self._fail_over.is_time(now):
                    self._forget_received()
                    self._fail_over.rewind(detector, now)
            self._stalls.look(now)
            self._read_set.refresh_all()
        if self.ready:
            self._on_ready()

    def _step(self, now: Micros) -> bool:
        """Account for the next LSN; False when that cannot be done yet."""
        position = self._position
        lsn = position.next
        if epoch_of(lsn) < self._history.first_epoch:
            self._deliver_gap(GapKind.BRIDGE, compose_lsn(self._history.first_epoch, 0))
            return True
        if self._trim_point >= lsn:
            self._deliver_gap(GapKind.TRIM, self._trim_point)
            return True
        if esn_of(lsn) == 0:
            self._deliver_gap(GapKind.BRIDGE, lsn)
            return True
        index = self._history.index_of(lsn)
        if index != position.interval:
            self._enter(index, now)
            return False
        if lsn > position.certain_end:
            if epoch_of(self._released) >= epoch_of(lsn):
                self._lookup.ask(now)
            return False
        buffered = self._buffer.pop(lsn)
        if buffered is not None:
            self._deliver(lsn, buffered)
            return True
        if self._missing.begins_behind_bridge and lsn == self.request.first:
            hit("read_begins_behind_bridge")
            self._deliver_gap(GapKind.BRIDGE, compose_lsn(epoch_of(lsn) + 1, 0))
            return True
        return self._account_for_missing(lsn, now)

    def _deliver(self, lsn: Lsn, copy: Buffered) -> None:
        assert lsn == self._position.next, (lsn, self._position.next)
        flags = copy.header.flags
        if flags & _HOLE:
            self._buffer.let_go(copy)
            if flags & _BRIDGE:
                self._deliver_gap(GapKind.BRIDGE, compose_lsn(epoch_of(lsn) + 1, 0))
            else:
                self._deliver_gap(GapKind.HOLE, lsn)
            return
        self._queue.put_entry(copy)
        position = self._position
        position.next = Lsn(lsn + 1)
        position.look_back = LSN_INVALID

    def _deliver_gap(self, kind: GapKind, last: int, loss: DataLoss | None = None) -> None:
        position = self._position
        last = min(last, position.until)
        assert last >= position.next, (kind, last, position.next)
        self._queue.put_gap(Gap(kind, LSN(position.next), LSN(last), loss))
        position.next = Lsn(last + 1)
        position.look_back = LSN_INVALID
        # Trimmed entries, and what a shard that breaks the rules may have sent from behind a bridge.
        self._buffer.drop_below(position.next)

    def _account_for_missing(self, lsn: Lsn, now: Micros) -> bool:
        """Nobody sent an entry for `lsn`: report it as lost if that is certain."""
        detector = self._interval.detector
        assert detector is not None
        if len(self._queue) > GAPS_MAX:
            return False  # every epoch that is lost is two gaps: go on when these are taken
        found = self._missing.judge(
            lsn,
            detector,
            released=self._released,
            is_closed=self._interval.is_closed,
            rewinds=self._fail_over.rewind_due,
            buffered=self._buffer.first(),
            now=now,
        )
        if isinstance(found, Lost):
            loss = found.loss
            hit("read_dataloss" if loss.authoritative else "read_dataloss_not_authoritative")
            self._metrics.gaps_dataloss += 1
            # Within one epoch: the ESN 0 of the next one is a BRIDGE whoever reads it.
            self._deliver_gap(GapKind.DATALOSS, min(found.last, compose_lsn(epoch_of(lsn), ESN_MAX)), loss)
            return True
        if isinstance(found, LookBack):
            self._position.look_back = found.first
            self._fail_over.want_rewind()
        elif found is not None:
            self._position.wide = self._position.wide or found is Ask.FURTHER
            self._fail_over.fall_back()
        return False

    def _narrow(self) -> bool:
        was_wide, self._position.wide = self._position.wide, False
        return was_wide

    def _become(self, state: ReadStreamState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    def _close(self, state: ReadStreamState) -> None:
        self._become(state)
        self._read_set.stop_all()
        self._buffer.clear()
        self._named.cancel_all()

    # Failure and rewinding

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node broke, or it could not be dialled."""
        if self.state is ReadStreamState.READING and self._fail_over.on_peer_down(peer, now):
            self._interval.look_again(reading=True)
            self._mark()

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection to a node is established."""
        if self.state is ReadStreamState.READING:
            self._read_set.on_peer_up(peer, now)

    def _forget_received(self) -> None:
        """All shards are about to be started anew at the next LSN."""
        self._missing.forget()
        self._buffer.clear()
