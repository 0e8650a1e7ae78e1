"""The read stream machine: one range of one log, delivered in order with every missing LSN accounted for.

Shards send what they hold and say how far they have looked. An entry is delivered when everything before it is accounted for:

  - BRIDGE comes only from a bridge entry, and for positions that never hold an entry (ESN 0, epochs before the log's first one);
  - HOLE comes only from a plug, TRIM only from a trim point;
  - everything else is DATALOSS: reported when an f-majority of the shards has nothing, all of them were asked to send all that they have
    (not only what single-copy delivery makes theirs), and the others had time to speak.

With single-copy delivery each entry comes from the first shard of its copyset that is not counted as down. A shard that fails is counted as
down and all are started anew with another filter version (a rewind); when that does not help, everyone sends everything.

Items wait in a queue until the application takes them; only then do the shards get credit to send on, so a stream that nobody reads
holds a bounded number of bytes and stalls nobody else.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

from client.read.decoding import rank_of, verify_image
from client.read.epochs import EpochHistory
from client.read.fail_over import FailOver
from client.read.gap_detection import GapDetector, GapVerdict
from client.read.items import Gap, GapKind, RecordBatch
from client.read.metrics import ReadMetrics
from client.read.named_timers import NamedTimers
from client.read.proof import Proof
from client.read.read_buffer import Buffered, ReadBuffer
from client.read.read_set import ReadPosition, ReadRequest, ReadSet
from client.read.ready_queue import GAPS_MAX, ReadyQueue
from client.read.sender_state import Sender, SenderStatus
from client.read.settings import ReadSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.entry import EntryFlags, EntryHeader
from logdevice_py.core.ids import LogId, PeerId, ShardId, format_shard
from logdevice_py.core.lsn import ESN_MAX, LSN, LSN_INVALID, Lsn, compose_lsn, epoch_of, esn_of, format_lsn
from logdevice_py.core.machine import Outbox, Rng, TimerWheel, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import GapReason, Records, ShardGap, Started

_HOLE: Final = int(EntryFlags.HOLE)
_BRIDGE: Final = int(EntryFlags.BRIDGE)


class ReadStreamState(enum.Enum):
    """Where a stream stands."""

    LOOKING_UP = enum.auto()  # the nodesets of the log are not known yet
    READING = enum.auto()  # shards are read from
    FINISHED = enum.auto()  # everything up to `until` is delivered
    STOPPED = enum.auto()  # its owner gave it up


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
    """

    def __init__(
        self,
        request: ReadRequest,
        *,
        config: ClusterConfig,
        settings: ReadSettings,
        outbox: Outbox,
        timers: TimerWheel,
        rng: Rng,
        metrics: ReadMetrics,
        request_history: Callable[[], None],
        on_ready: Callable[[], None],
    ) -> None:
        self.request = request
        self.state = ReadStreamState.LOOKING_UP
        self._config = config
        self._settings = settings
        self._rng = rng
        self._metrics = metrics
        self._request_history = request_history
        self._on_ready = on_ready
        self._position = ReadPosition(request.first, request.until)
        self._read_set = ReadSet(
            request, self._position, settings=settings, outbox=outbox, timers=timers, rng=rng, metrics=metrics
        )
        if esn_of(request.first) > 1:
            # The entry before the first LSN may be the bridge of the epoch.
            self._position.look_back = Lsn(request.first - 1)
        self._entry_before = self._bridge_before = False
        self._buffer = ReadBuffer()
        self._queue = ReadyQueue(request.log, request.first, metrics)

        self._history = EpochHistory()
        self._history_asked: int | None = None
        self._history_asked_at = Micros(0)
        self._history_delays = self._new_history_delays()
        self._interval_index = -1
        self._certain_end: Lsn = LSN_INVALID
        self._detector: GapDetector | None = None
        self._released: Lsn = LSN_INVALID
        self._trim_point: Lsn = LSN_INVALID

        self._named = NamedTimers(timers, self._on_timer)
        self._fail_over = FailOver(
            self._position,
            self._read_set,
            self._named,
            single_copy=request.single_copy,
            settings=settings,
            rng=rng,
            metrics=metrics,
        )
        self._dirty = False
        self._grace: tuple[Lsn, Micros] | None = None
        self._stalled_at: Lsn = LSN_INVALID

    # Face of the owner

    def start(self, now: Micros) -> None:
        """Begin. Call once."""
        assert self.state is ReadStreamState.LOOKING_UP, self.state
        self._ask_history(now)
        self._dirty = True

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
        """Give up: what is there is dropped, and `take` has nothing more. Harmless when called again."""
        if self.state is not ReadStreamState.STOPPED:
            self._close(ReadStreamState.STOPPED)
            self._queue.clear()
            self._note_queue()
            self._on_ready()

    def take(self, records_max: int, now: Micros) -> RecordBatch:
        """Up to so many records and the gaps between them, in order; what is taken gives the shards credit to send on."""
        assert records_max > 0, records_max
        batch = self._queue.take(records_max)
        self._note_queue()
        return batch

    def take_entries(self, entries_max: int, now: Micros) -> list[tuple[EntryHeader, bytes] | Gap]:
        """Like `take`, but whole entries as they are stored. A stream is read with one or the other."""
        taken = self._queue.take_entries(entries_max)
        self._note_queue()
        return taken

    def waiting_for(self) -> str:
        """Why nothing is delivered at this moment, for people."""
        lsn = self._position.next
        if self.state in (ReadStreamState.FINISHED, ReadStreamState.STOPPED):
            return "nothing: the stream has ended"
        if self.state is ReadStreamState.LOOKING_UP:
            return "the metadata log: no nodeset of the log is known yet"
        if self._queue:
            return f"the application: {self._queue.bytes} bytes are ready"
        if self._released < lsn:
            return f"{format_lsn(lsn)} to be written and released"
        if lsn > self._certain_end:
            return f"the metadata log: the nodeset of epoch {epoch_of(lsn)} is not known yet"
        silent = [
            f"{format_shard(sender.shard)} ({sender.status.name.lower()})"
            for sender in self._read_set.senders.values()
            if sender.next_lsn <= lsn
        ]
        return f"{format_lsn(lsn)} from " + (", ".join(silent) or "a rewind")

    def check(self) -> None:
        """What must hold between two events."""
        position = self._position
        assert self._queue.taken_to < position.next, (self._queue.taken_to, position.next)
        self._queue.check()
        first = self._buffer.first()
        assert first is None or first > position.next or position.next > self._certain_end or not self._is_open()
        assert self._queue.bytes == position.queued_bytes
        assert all(sender.held >= 0 for sender in self._read_set.senders.values())

    def _on_timer(self) -> None:
        self._dirty = True

    def _is_open(self) -> bool:
        return self.state in (ReadStreamState.LOOKING_UP, ReadStreamState.READING)

    def _note_queue(self) -> None:
        self._dirty = True
        position = self._position
        position.queued_bytes = self._queue.bytes
        position.held_from = self._queue.held_from()

    # Nodesets

    def _new_history_delays(self) -> Any:
        settings = self._settings
        return backoff(self._rng, initial_us=settings.history_retry_us_min, max_us=settings.history_retry_us_max)

    def _ask_history(self, now: Micros) -> None:
        if self._history_asked is None and self._is_open():
            self._named.cancel("history")
            self._history_asked = epoch_of(self._released)
            self._history_asked_at = now
            self._metrics.history_reads += 1
            self._request_history()

    def on_history(self, intervals: tuple[EpochInterval, ...], now: Micros) -> None:
        """The nodesets of the log, read after `request_history` was called; none: the log has no epoch yet."""
        asked, self._history_asked = self._history_asked, None
        if asked is None or not self._is_open():
            return
        if not intervals:
            self._named.set("history", now + next(self._history_delays), self._ask_history)
            return
        self._history_delays = self._new_history_delays()
        self._history.update(intervals, certain=asked)
        self.state = ReadStreamState.READING
        if self._interval_index >= 0:
            self._certain_end = self._history.certain_end_of(self._interval_index)
        self._dirty = True

    def _note_released(self, lsn: Lsn, now: Micros) -> None:
        """A shard knows that everything up to `lsn` is released."""
        self._released = lsn
        if epoch_of(lsn) > self._history.certain:
            self._ask_history(now)

    def _enter(self, index: int, now: Micros) -> None:
        """Read from the shards of another interval."""
        interval = self._history.interval(index)
        self._interval_index = index
        self._certain_end = self._history.certain_end_of(index)
        self._position.limit = Lsn(min(self._position.until, self._history.end_of(index)))
        self._position.wide = False
        self._fail_over.enter_interval()
        self._read_set.enter(interval, self._present())
        self._make_detector()
        self._rewind(now)
        self._fail_over.enter_interval()

    def _make_detector(self) -> None:
        interval = self._history.interval(self._interval_index)
        self._detector = GapDetector(interval, self._config.location)
        for sender in self._read_set.senders.values():
            self._detector.set_lost(sender.shard, sender.lost)

    def _present(self) -> frozenset[ShardId]:
        return frozenset(self._config.storage_shards())

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A new version of the cluster file holds."""
        self._config = config
        if self.state is ReadStreamState.READING and self._interval_index >= 0:
            self._read_set.set_present(self._present())
            self._make_detector()
            self._fail_over.want_rewind()
            self._dirty = True

    # What shards send

    def _sender(self, message: Started | Records | ShardGap) -> Sender | None:
        if self.state is not ReadStreamState.READING:
            return None
        self._dirty = True
        return self._read_set.accept(message)

    def on_started(self, message: Started, now: Micros) -> None:
        """A shard took a START, or refused it."""
        sender = self._sender(message)
        if sender is None:
            return
        assert self._detector is not None
        if message.status is Status.OK:
            sender.cancel_timer()
            sender.status = SenderStatus.READING
            sender.lost = False
            if message.last_released > self._released:
                self._note_released(message.last_released, now)
        else:
            sender.lost = message.status is Status.REBUILDING
            self._read_set.wait(sender, now)
            self._fail_over.failed(sender)
        self._detector.set_lost(sender.shard, sender.lost)

    def on_records(self, message: Records, now: Micros) -> None:
        """A shard sent entries."""
        sender = self._sender(message)
        if sender is None:
            return
        images, at, size = message.images, 0, len(message.images)
        metrics, position = self._metrics, self._position
        sender.failures = 0
        metrics.entries_received += len(message.entries)
        metrics.bytes_received += size
        for lsn, length in message.entries:
            end = at + length
            allowed = sender.has_credit and sender.next_lsn <= lsn <= sender.window_high and end <= size
            if not allowed or sender.status is not SenderStatus.READING:
                hit("read_unasked_records")
                self._read_set.violated(sender, now)
                self._fail_over.failed(sender)
                return
            image = images if length == size else images[at:end]
            at = end
            sender.received += length
            sender.next_lsn = Lsn(lsn + 1)
            if lsn > self._released:
                self._note_released(Lsn(lsn), now)
            if lsn < position.next:
                metrics.duplicate_copies += 1
                if position.look_back:
                    self._note_before(Lsn(lsn), image)
            else:
                self._take_copy(sender, Lsn(lsn), image)

    def _note_before(self, lsn: Lsn, image: bytes) -> None:
        """An entry before the first LSN: after a bridge its epoch holds nothing, after any other entry no bridge lies before it."""
        if epoch_of(lsn) == epoch_of(self.request.first):
            try:
                header = verify_image(self.request.log, lsn, image)
            except CorruptEntryError:
                return
            self._entry_before = True
            self._bridge_before = self._bridge_before or header.is_bridge

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
            sender.under_replicated_until = Lsn(lsn + 1)
            self._fail_over.failed(sender)
            return
        size = len(image)
        sender.held += size
        self._metrics.bytes_buffered += size
        copy = Buffered(header, image, sender)
        position = self._position
        if lsn == position.next and lsn <= self._certain_end and lsn <= position.until and lsn > self._trim_point:
            if other is not None:
                self._buffer.pop(lsn)
                self._let_go(other)
            self._deliver(lsn, copy)
            return
        replaced = self._buffer.put(lsn, copy)
        if replaced is not None:
            hit("read_higher_rank")
            self._metrics.duplicate_copies += 1
            self._let_go(replaced)

    def _let_go(self, copy: Buffered) -> None:
        size = len(copy.image)
        copy.sender.held -= size
        self._metrics.bytes_buffered -= size

    def on_gap(self, message: ShardGap, now: Micros) -> None:
        """A shard said how far it has looked."""
        sender = self._sender(message)
        if sender is None:
            return
        sender.failures = 0
        last = message.last
        if message.reason == GapReason.TRIM:
            self._trim_point = Lsn(max(self._trim_point, last))
        else:
            if last > self._released:
                self._note_released(last, now)
            if message.reason in (GapReason.UNDER_REPLICATED, GapReason.CHECKSUM_FAIL):
                sender.under_replicated_until = Lsn(max(sender.under_replicated_until, last + 1))
                if message.reason == GapReason.CHECKSUM_FAIL:
                    self._fail_over.failed(sender)
        if last >= sender.next_lsn:
            sender.next_lsn = Lsn(last + 1)

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
            if self._fail_over.is_time(now):
                self._rewind(now)
            if "stall" not in self._named and (self._released >= position.next or not self._anyone_reads()):
                self._stalled_at = position.next
                self._named.set("stall", now + self._settings.single_copy_failover_us, self._on_stall)
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
            for copy in self._buffer.drop_below(position.next):
                self._let_go(copy)
            return True
        if esn_of(lsn) == 0:
            self._deliver_gap(GapKind.BRIDGE, lsn)
            return True
        index = self._history.index_of(lsn)
        if index != self._interval_index:
            self._enter(index, now)
            return False
        if lsn > self._certain_end:
            if epoch_of(self._released) >= epoch_of(lsn):
                self._ask_history(now)
            return False
        buffered = self._buffer.pop(lsn)
        if buffered is not None:
            self._deliver(lsn, buffered)
            return True
        if self._bridge_before and lsn == self.request.first:
            hit("read_begins_behind_bridge")
            self._deliver_gap(GapKind.BRIDGE, compose_lsn(epoch_of(lsn) + 1, 0))
            return True
        return self._account_for_missing(lsn, now)

    def _deliver(self, lsn: Lsn, copy: Buffered) -> None:
        assert lsn == self._position.next, (lsn, self._position.next)
        flags = copy.header.flags
        if flags & _HOLE:
            self._let_go(copy)
            if flags & _BRIDGE:
                self._deliver_gap(GapKind.BRIDGE, compose_lsn(epoch_of(lsn) + 1, 0))
            else:
                self._deliver_gap(GapKind.HOLE, lsn)
            return
        self._queue.put_entry(copy)
        position = self._position
        position.queued_bytes = self._queue.bytes
        if position.held_from is None:
            position.held_from = lsn
        position.next = Lsn(lsn + 1)
        position.look_back = LSN_INVALID

    def _deliver_gap(self, kind: GapKind, last: int) -> None:
        position = self._position
        last = min(last, position.until)
        assert last >= position.next, (kind, last, position.next)
        self._queue.put_gap(Gap(kind, LSN(position.next), LSN(last)))
        position.next = Lsn(last + 1)
        position.look_back = LSN_INVALID
        if position.held_from is None and len(self._queue) > GAPS_MAX:
            position.held_from = self._queue.held_from()

    def _account_for_missing(self, lsn: Lsn, now: Micros) -> bool:
        """Nobody sent an entry for `lsn`: report it as lost if that is certain."""
        assert self._detector is not None
        read_set, senders = self._read_set, self._read_set.senders.values()
        passed = [sender for sender in senders if sender.next_lsn > lsn]
        if not passed:
            return self._account_for_lost_nodeset(lsn)
        if self._released < lsn or self._fail_over.rewind_due:
            return False
        if read_set.single_copy:
            if all(sender.next_lsn > lsn for sender in read_set.owing()):
                hit("read_single_copy_owed")
                self._fail_over.fall_back()
            return False
        verdict = self._detector.verdict(lsn, senders)
        if verdict is GapVerdict.WAIT:
            return False
        settings = self._settings
        if not self._position.wide:
            if not self._grace_is_over(lsn, settings.rewind_interval_us, now):
                return False
            # The next entry may lie beyond the window, and what was said so far was said to another question.
            self._position.wide = True
            self._fail_over.fall_back()
            return False
        if verdict is GapVerdict.GRACE and not self._grace_is_over(lsn, settings.gap_grace_period_us, now):
            return False
        last = min(min(sender.next_lsn for sender in passed) - 1, self._certain_end)
        first_buffered = self._buffer.first()
        if first_buffered is not None:
            last = min(last, first_buffered - 1)
        if self._looks_further_back():
            return False
        self._deliver_loss(last)
        return True

    def _looks_further_back(self) -> bool:
        """Nothing was found from the first LSN on: perhaps its epoch had ended before it. Whether that remains to be found out."""
        position, first = self._position, self.request.first
        begin = compose_lsn(epoch_of(first), 1)
        if not position.look_back or self._entry_before or position.look_back <= begin:
            return False
        hit("read_looks_back_for_bridge")
        position.look_back = Lsn(max(begin, first - 64 * (first - position.look_back)))
        self._fail_over.want_rewind()
        return True

    def _account_for_lost_nodeset(self, lsn: Lsn) -> bool:
        """No shard of the nodeset has anything left to say: lost is all that it had, or that was once heard of."""
        if not all(sender.lost for sender in self._read_set.senders.values()):
            return False
        last = self._certain_end if self._history.is_closed(self._interval_index) else self._released
        if last < lsn:
            return False
        hit("read_nodeset_lost")
        self._deliver_loss(last)
        return True

    def _deliver_loss(self, last: int) -> None:
        """Within one epoch: the ESN 0 of the next one is a BRIDGE whoever reads it."""
        hit("read_dataloss")
        self._metrics.gaps_dataloss += 1
        self._deliver_gap(GapKind.DATALOSS, min(last, compose_lsn(epoch_of(self._position.next), ESN_MAX)))

    def _grace_is_over(self, lsn: Lsn, period: int, now: Micros) -> bool:
        if self._grace is None or self._grace[0] != lsn:
            self._grace = (lsn, Micros(now + period))
            self._named.set("grace", self._grace[1])
        return now >= self._grace[1]

    def _close(self, state: ReadStreamState) -> None:
        self.state = state
        self._read_set.stop_all()
        for copy in self._buffer.clear():
            self._let_go(copy)
        self._named.cancel_all()

    # Failure and rewinding

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node broke, or it could not be dialled."""
        if self.state is not ReadStreamState.READING:
            return
        for sender in self._read_set.of_peer(peer):
            if sender.status in (SenderStatus.STARTING, SenderStatus.READING):
                self._read_set.wait(sender, now)
                self._fail_over.failed(sender)
                self._dirty = True

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection to a node is established."""
        if self.state is not ReadStreamState.READING:
            return
        for sender in self._read_set.of_peer(peer):
            if sender.status is SenderStatus.WAITING and not sender.lost:
                self._read_set.start(sender, now)

    def _rewind(self, now: Micros) -> None:
        """Start all shards anew at the next LSN; what they sent is forgotten."""
        assert self._detector is not None
        self._grace = None
        for copy in self._buffer.clear():
            self._let_go(copy)
        self._fail_over.rewind(self._detector, now)

    def _on_stall(self, now: Micros) -> None:
        """Something is released that nobody sent: find out who holds it up."""
        lsn = self._position.next
        if lsn == self._stalled_at and self._released >= lsn:
            self._fail_over.on_stall(lsn)
        if not self._anyone_reads() and now >= self._history_asked_at + self._settings.nodeset_lookup_us:
            self._ask_history(now)

    def _anyone_reads(self) -> bool:
        return any(sender.status is SenderStatus.READING for sender in self._read_set.senders.values())
