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
from client.read.delivery import Delivery
from client.read.fail_over import FailOver
from client.read.hedging import HedgeContext, Hedging
from client.read.items import Gap, GapKind
from client.read.metrics import ReadMetrics
from client.read.missing_entries import Ask, LookBack, Lost, MissingEntries
from client.read.named_timers import NamedTimers
from client.read.nodeset_lookup import NodesetLookup
from client.read.proof import Proof
from client.read.read_set import ReadPosition, ReadRequest, ReadSet
from client.read.reading_order import ReadingOrder
from client.read.ready_queue import GAPS_MAX, ReadyQueue
from client.read.settings import ReadSettings
from client.read.shard_answers import ShardAnswers
from client.read.shard_statuses import ShardStatuses
from client.read.stall_watch import StallWatch
from client.read.stream_look import StreamLook
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.sealed_batch import OpenSealed
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval


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
        at: where the reader stands; None: nobody knows.
        hedges: of the client; needed where the request says that it is hedged.
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
        at: Location | None = None,
        hedges: HedgeContext | None = None,
    ) -> None:
        self.request = request
        self.state = ReadStreamState.LOOKING_UP
        self._window_lsns = settings.window_lsns
        self._on_ready = on_ready
        self._request_turn_end = request_turn_end
        self._explain_history = explain_history
        self._position = ReadPosition(request.first, request.until)
        if esn_of(request.first) > 1:
            # The entry before the first LSN may be the bridge of the epoch.
            self._position.look_back = Lsn(request.first - 1)
        self._queue = ReadyQueue(request.log, request.first, metrics)
        is_well = None if hedges is None or not request.hedged else hedges.delays.is_well
        order = None
        if is_well is not None or (at is not None and request.near):
            order = ReadingOrder(at if request.near else None, is_well)
        self._read_set = ReadSet(
            request,
            self._position,
            self._queue,
            settings=settings,
            outbox=outbox,
            timers=timers,
            rng=rng,
            metrics=metrics,
            order=order,
        )
        self._delivery = Delivery(request.log, self._position, self._queue, metrics)
        self._named = NamedTimers(timers, self._mark)
        self._lookup = NodesetLookup(request_history, self._named, settings=settings, rng=rng, metrics=metrics)
        self._interval = CurrentInterval(self._lookup.history, self._position, self._read_set, config)
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
        self._hedging: Hedging | None = None
        if hedges is not None and order is not None and is_well is not None:
            self._hedging = Hedging(
                request,
                self._position,
                self._read_set,
                self._delivery,
                self._lookup,
                self._named,
                order,
                hedges,
                outbox=outbox,
                metrics=metrics,
                want_rewind=self._fail_over.want_rewind,
                mark=self._mark,
            )
        self.answers = ShardAnswers(
            self._position,
            self._read_set,
            self._delivery,
            self._lookup,
            self._interval,
            self._missing,
            self._fail_over,
            metrics,
            self._mark,
            on_ready,
            self._hedging,
        )
        """Takes what shards send."""
        self._dirty = False
        self._stalls = StallWatch(
            self._position, self._read_set, self._fail_over, self._lookup, self._named, settings, self._hedging
        )

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
    def log_ended(self) -> bool:
        """Everything was taken, and nothing follows: the log was ended."""
        return self._delivery.log_ended and not self._queue

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

    def open_with(self, open_sealed: OpenSealed) -> None:
        """What opens the batches that are encrypted."""
        self._queue.open_sealed = open_sealed

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
        return self._read_set.waiting_for(lsn, released=self._lookup.released, certain_end=self._position.certain_end)

    def look(self) -> StreamLook:
        """How it stands at this moment."""
        position, read_set = self._position, self._read_set
        return StreamLook(
            next=position.next,
            released=self._lookup.released,
            window_high=position.window_high(self._window_lsns, self._queue.held_from),
            single_copy=read_set.single_copy,
            ready_bytes=self._queue.bytes,
            waiting_entries=len(self._delivery.buffer),
            senders=tuple(read_set.senders.values()),
            order=tuple(read_set.order),
            hedges="" if self._hedging is None else self._hedging.explain(),
            waiting_for=self.waiting_for(),
        )

    def check(self) -> None:
        """What must hold between two events."""
        position = self._position
        assert self._queue.taken_to < position.next, (self._queue.taken_to, position.next)
        self._queue.check()
        first = self._delivery.buffer.first()
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

    def on_history(
        self, intervals: tuple[EpochInterval, ...], now: Micros, certain: Epoch, *, is_whole: bool = True
    ) -> None:
        """The nodesets of the log, read after `request_history` was called; none: the log has no epoch yet, or they cannot be read. After
        the epoch `certain` there may have been others that cannot be read. `is_whole`: as in `NodesetLookup.take`."""
        if not self._is_open() or not self._lookup.take(intervals, certain, now, is_whole=is_whole):
            return
        self._become(ReadStreamState.READING)
        position = self._position
        if position.interval >= 0:
            position.certain_end = self._lookup.history.certain_end_of(position.interval)
            if self._interval.is_wider_now:
                hit("read_nodeset_is_wider")
                self._enter(position.interval, now)
        self._mark()

    def _enter(self, index: int, now: Micros) -> None:
        """Read from the shards of another interval."""
        position, history = self._position, self._lookup.history
        position.interval = index
        position.certain_end = history.certain_end_of(index)
        position.limit = Lsn(min(position.until, history.end_of(index)))
        position.wide = False
        detector = self._interval.enter(index)
        self._lookup.is_later_than(self._interval.rebuilt_heard_at, now)
        self._forget_received()
        self._fail_over.enter_interval(detector, now)
        if self._hedging is not None:
            self._hedging.restarted(now)

    def on_shard_statuses(self, statuses: ShardStatuses, now: Micros) -> None:
        """The cluster says anew of which shards nobody waits for the data any more."""
        if self._interval.on_statuses(statuses, reading=self.state is ReadStreamState.READING):
            self._lookup.is_later_than(self._interval.rebuilt_heard_at, now)
            self._mark()

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A new version of the cluster file holds."""
        if self._interval.on_config(config, reading=self.state is ReadStreamState.READING, now=now):
            self._fail_over.want_rewind()
            self._mark()

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
                self._fail_over.look_for_slow(detector, self._lookup.released, now)
                if self._hedging is not None:
                    self._hedging.let_back(now)
                if self._fail_over.is_time(now):
                    self._forget_received()
                    self._fail_over.rewind(detector, now)
                    if self._hedging is not None:
                        self._hedging.restarted(now)
            if self._hedging is not None:
                self._hedging.look(now)
            self._stalls.look(now)
            self._read_set.refresh_all()
        if self.ready:
            self._on_ready()

    def _step(self, now: Micros) -> bool:
        """Account for the next LSN; False when that cannot be done yet."""
        position, delivery, history = self._position, self._delivery, self._lookup.history
        lsn = position.next
        if epoch_of(lsn) < history.trimmed_before:
            hit("read_before_history")
            delivery.gap(GapKind.TRIM, compose_lsn(history.trimmed_before, 0) - 1)
            return True
        if epoch_of(lsn) < history.first_epoch:
            delivery.gap(GapKind.BRIDGE, compose_lsn(history.first_epoch, 0))
            return True
        if delivery.trim_point >= lsn:
            delivery.gap(GapKind.TRIM, delivery.trim_point)
            return True
        if esn_of(lsn) == 0:
            delivery.gap(GapKind.BRIDGE, lsn)
            return True
        index = history.index_of(lsn)
        if index != position.interval:
            self._enter(index, now)
            return False
        if lsn > position.certain_end:
            if epoch_of(self._lookup.released) >= epoch_of(lsn):
                self._lookup.ask(now)
            return False
        buffered = delivery.buffer.pop(lsn)
        if buffered is not None:
            delivery.deliver(lsn, buffered)
            return True
        if self._missing.begins_behind_bridge and lsn == self.request.first:
            hit("read_begins_behind_bridge")
            delivery.bridge_epoch(lsn)
            return True
        return self._account_for_missing(lsn, now)

    def _account_for_missing(self, lsn: Lsn, now: Micros) -> bool:
        """Nobody sent an entry for `lsn`: report it as lost if that is certain."""
        detector = self._interval.detector
        assert detector is not None
        if len(self._queue) > GAPS_MAX:
            return False  # every epoch that is lost is two gaps: go on when these are taken
        found = self._missing.judge(
            lsn,
            detector,
            released=self._lookup.released,
            is_closed=self._interval.is_closed,
            rewinds=self._fail_over.rewind_due,
            buffered=self._delivery.buffer.first(),
            now=now,
        )
        if isinstance(found, Lost):
            if not self._lookup.is_later_than(self._interval.losses_heard_at, now):
                hit("read_history_again_before_loss")
                return False
            self._delivery.lose(found.last, found.loss)
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
        self.answers.listens = state is ReadStreamState.READING

    def _close(self, state: ReadStreamState) -> None:
        self._become(state)
        self._read_set.stop_all()
        if self._hedging is not None:
            self._hedging.close()
        self._delivery.buffer.clear()
        self._named.cancel_all()

    # Failure and rewinding

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node broke, or it could not be dialled."""
        if self._hedging is not None:
            self._hedging.on_peer_down(peer)
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
        if self._hedging is not None:
            self._hedging.forget()
        self._delivery.buffer.clear()
