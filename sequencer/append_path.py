"""APPEND from its arrival to its entry: routing, checks, waiting for epochs and recoveries, batching."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from google_crc32c import value as crc32c

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core import marks
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.ids import NodeId, PeerId, is_internal_log
from logdevice_py.core.lsn import LSN_INVALID, compose_lsn, epoch_of, esn_of
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.protocol.messages import Append, AppendFlags, GuardedAppend
from sequencer.activation import Activation
from sequencer.batching import OpenEntry, is_batched, is_split, split
from sequencer.context import SequencerContext
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.frames import NO_NODE, Frame, SplitAppend, frame_of
from sequencer.guard import ALONE, is_guarded_well
from sequencer.recovery.result import Found, find
from sequencer.redirection import Action, Route
from sequencer.sequencer import Sequencer, SequencerPhase
from sequencer.tail import Tail
from sequencer.write_streams import FrameVerdict, KnownWriters

AnyAppend = Append | GuardedAppend
_BATCH = int(AppendFlags.BATCH)
_WRITE_STREAM = int(AppendFlags.WRITE_STREAM)
_RESUME = int(AppendFlags.RESUME)
_EXCLUSIVE = int(AppendFlags.EXCLUSIVE)
_OK = Status.OK
_ACTIVE = SequencerPhase.ACTIVE
_EXHAUSTION_MARGIN = 100_000
"""An epoch with fewer ESNs left is replaced before it runs out of them."""
_INTERNAL_RECORDS_MAX: Final = 1000
"""Records of a frame to a log of the cluster itself, in which each becomes an entry: anybody may be able to append there, and the node does nothing else meanwhile."""
_UNWANTED_US: Final = 30 * SECOND
"""How long an activation goes on after the last append stopped waiting for it. Who asks again must not find it begun anew: it may take longer than
an append waits, and would never end."""


def _is_control(append: AnyAppend) -> bool:
    """An entry that has no records, since only its guards matter."""
    return (
        append.__class__ is GuardedAppend
        and not append.records
        and not append.payload
        and bool(append.guards & ALONE)
        and not append.flags & (_BATCH | _WRITE_STREAM)
    )


class AppendPath:
    """The append path of all logs of a node."""

    __slots__ = ("_context", "_quotas", "_turn")

    def __init__(self, context: SequencerContext) -> None:
        self._context = context
        self._quotas = context.quotas
        self._turn: list[tuple[Sequencer, OpenEntry]] = []
        """Batches that are cut when the turn ends, if they are still open."""

    # Arrival

    def on_append(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        """An APPEND that is served here, for a log that exists."""
        status = self._check(append, sequencer.attributes)
        if status is not _OK:
            self._refuse(peer, append, status)
            return
        self._take(sequencer, peer, append, False, now)

    def refuse_route(self, peer: PeerId, append: AnyAppend, route: Route) -> None:
        """An APPEND that is not served here."""
        assert route.action is Action.REFUSE
        self._context.answers.refuse(
            peer,
            append.request_id,
            append.log,
            route.status,
            not_replicated=True,
            redirect=route.redirect,
        )

    def on_turn_end(self, now: Micros) -> None:
        """Cut what the turn gathered."""
        turn, self._turn = self._turn, []
        for sequencer, open_batch in turn:
            if sequencer.open_batch is open_batch:
                self.cut(sequencer, now)

    def _check(self, append: AnyAppend, attributes: LogAttributes) -> Status:
        payload = append.payload
        if not 1 <= append.records <= RECORDS_PER_ENTRY_MAX and not _is_control(append):
            return Status.INVALID_PARAM
        if append.flags & _WRITE_STREAM and not (len(append.writer) == 16 and append.sequence):
            return Status.INVALID_PARAM
        if len(payload) > attributes.max_payload_bytes:
            return Status.TOOBIG
        if append.records > _INTERNAL_RECORDS_MAX and is_internal_log(append.log):
            return Status.TOOBIG
        if append.__class__ is GuardedAppend and (is_internal_log(append.log) or not is_guarded_well(append)):
            # Nobody guards the logs of the cluster itself, and nobody could take it back when somebody ended or fenced one.
            return Status.INVALID_PARAM
        if crc32c(payload) != append.crc or (append.records > 1 and not append.flags & _BATCH):
            return Status.BADPAYLOAD
        return _OK

    def _refuse(self, peer: PeerId, append: AnyAppend, status: Status) -> None:
        self._context.answers.refuse(peer, append.request_id, append.log, status, not_replicated=True)

    def _take(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, again: bool, now: Micros) -> None:
        """`again`: it waited for an epoch already, so that one must do."""
        current = sequencer.current
        if current is None or sequencer.state is not _ACTIVE or self._waits_behind_others(sequencer, peer):
            self._wait_for_epoch(sequencer, peer, append, now)
            return
        epoch = current.epoch
        if append.seen_epoch > epoch or append.previous_lsn >> 32 > epoch:
            if again:
                marks.hit("stale_after_activation")
                self._stale(sequencer, peer, append)
            else:
                self._wait_for_epoch(sequencer, peer, append, now)
        elif sequencer.tail is None and (sequencer.guarded or append.__class__ is GuardedAppend):
            self._wait_for_tail(sequencer, peer, append, now)
        elif sequencer.open_batch is not None and sequencer.open_batch.alone:
            # First: this may be another try of it, or expect it.
            self.cut(sequencer, now)
            self._take(sequencer, peer, append, again, now)
        elif append.flags & _WRITE_STREAM:
            if sequencer.open_batch is not None and self._ends_batch(sequencer, frame_of(peer, append)):
                # First: the batch may be refused, and then this frame of the same writer is no longer the next one.
                self.cut(sequencer, now)
                self._take(sequencer, peer, append, again, now)
            else:
                self._take_stream(sequencer, peer, append, now)
        elif append.previous_lsn:
            self._take_redirected(sequencer, peer, append, now)
        elif sequencer.tail is None:
            frame = frame_of(peer, append)
            if self._is_within_quota(sequencer, frame, now):
                self._add(sequencer, frame, now)
        else:
            self._add_guarded(sequencer, frame_of(peer, append), now)

    @staticmethod
    def _waits_behind_others(sequencer: Sequencer, peer: PeerId) -> bool:
        """Whether appends wait for an epoch behind which this one has its place: its sender's own, or any where the next epoch is the first guarded one.
        Whoever says that he has seen a later epoch, which may be made up, holds up nobody else."""
        buffer = sequencer.buffer
        if buffer is None:
            return False
        return (sequencer.wants_guards and not sequencer.guarded) or any(peer == each for each, _ in buffer)

    # Quotas

    def _is_within_quota(self, sequencer: Sequencer, frame: Frame, now: Micros) -> bool:
        """Charge the log and the sender for a frame that is about to be taken; it is refused here when one of them is over its quota. What was taken
        before, and is answered again, is charged once."""
        if sequencer.meter is None and not self._quotas.limits_appends:
            return True
        ours, theirs = sequencer.meter, self._quotas.appends(frame.peer)
        size, records = len(frame.payload), max(1, frame.records)
        waits = {meter: meter.wait(size, records, now) for meter in (ours, theirs) if meter is not None}
        wait = max(waits.values(), default=0)
        if not wait:
            for meter in waits:
                meter.spend(size, records)
            return True
        for meter, each in waits.items():
            meter.throttled += bool(each)
        marks.hit("append_throttled")
        self._context.metrics.appends_throttled += 1
        self._context.answers.refuse(
            frame.peer, frame.request_id, sequencer.log, Status.THROTTLED, not_replicated=True, there=wait
        )
        return False

    # Guarded logs

    def _wait_for_tail(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        """Nothing of a guarded log gets an LSN before it is known how the earlier epochs ended."""
        if sequencer.guarded:
            self._hold(sequencer, peer, append)
        else:
            self._wait_for_epoch(sequencer, peer, append, now)

    def _add_guarded(self, sequencer: Sequencer, frame: Frame, now: Micros) -> None:
        """A frame that is in no write stream, of a log whose tail is known."""
        if not self._is_repeated(sequencer, frame) and self._admit(sequencer, frame, now):
            self._add(sequencer, frame, now)

    def _is_repeated(self, sequencer: Sequencer, frame: Frame) -> bool:
        """Whether this is another try of a conditional append that got its position before; then it is answered."""
        tail, guard = sequencer.tail, frame.guard
        assert tail is not None
        if guard is None:
            return False
        first = tail.first_try(guard)
        if first is not None:
            marks.hit("conditional_append_repeated")
            self._answer_as_first(sequencer, frame, first)
            return True
        if not tail.is_tail_record(guard):
            return False
        marks.hit("conditional_append_was_recovered")
        assert sequencer.current is not None
        frame.lsn, frame.durability = tail.record_lsn, sequencer.current.durability
        self._context.answers.repeat(frame.peer, frame.request_id, sequencer.log, frame)
        return True

    def _answer_as_first(self, sequencer: Sequencer, frame: Frame, first: Frame) -> None:
        if first.timestamp:
            self._context.answers.repeat(frame.peer, frame.request_id, sequencer.log, first)
        else:
            first.repeated_by(frame)

    def _admit(self, sequencer: Sequencer, frame: Frame, now: Micros) -> bool:
        """Judge what the frame asks of the end of the log, and charge for it; it is refused here if that is not so, or over the quota."""
        guard = frame.guard
        if guard is not None and self._ends_batch(sequencer, frame):
            # First: the entry of the open batch must not tell of a frame that has no LSN yet.
            self.cut(sequencer, now)
        tail = sequencer.tail
        if tail is None:
            return self._is_within_quota(sequencer, frame, now)
        refusal = tail.judge(guard)
        if refusal is None:
            if not self._is_within_quota(sequencer, frame, now):
                return False
            tail.take(guard)
            return True
        self._context.metrics.guards_refused += 1
        self._context.answers.refuse(
            frame.peer,
            frame.request_id,
            sequencer.log,
            refusal.status,
            lsn=refusal.lsn,
            batch_offset=refusal.offset,
            not_replicated=True,
            there=refusal.there,
        )
        return False

    def _stale(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, status: Status = Status.STALE) -> None:
        lsn = compose_lsn(sequencer.epoch, 0)
        self._context.answers.refuse(peer, append.request_id, append.log, status, lsn=lsn, not_replicated=True)

    # Waiting for an epoch

    def _wait_for_epoch(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        if sequencer.state is SequencerPhase.REFUSED:
            self._refuse(peer, append, Status.NOSEQUENCER)
            return
        if not self._has_room(sequencer.buffer, append):
            self._refuse(peer, append, Status.SEQNOBUFS)
            return
        if append.__class__ is GuardedAppend:
            sequencer.wants_guards = True
        self._context.metrics.bytes_buffered += len(append.payload)
        if sequencer.buffer is None:
            buffer = sequencer.buffer = [(peer, append)]
            wait = self._context.settings.activation_wait_us
            self._context.timers.at(now + wait, partial(self._on_wait_over, sequencer, buffer))
        else:
            sequencer.buffer.append((peer, append))
        sequencer.activate(now)

    def _has_room(self, buffer: list[tuple[PeerId, AnyAppend]] | None, append: AnyAppend) -> bool:
        settings = self._context.settings
        if buffer is not None and len(buffer) >= settings.append_buffer_frames:
            marks.hit("append_buffer_full")
            return False
        return self._context.metrics.bytes_buffered + len(append.payload) <= settings.append_buffer_bytes

    def _on_wait_over(self, sequencer: Sequencer, buffer: list[tuple[PeerId, AnyAppend]], now: Micros) -> None:
        if sequencer.buffer is not buffer:
            return
        marks.hit("activation_took_too_long")
        for peer, append in self._take_back(sequencer):
            self._refuse(peer, append, Status.NOSEQUENCER)
        activation = sequencer.activation
        if activation is not None and sequencer.current is None:
            activation.wanted = now
            self._context.timers.at(now + _UNWANTED_US, partial(self._on_unwanted, sequencer, activation))

    @staticmethod
    def _on_unwanted(sequencer: Sequencer, activation: Activation, now: Micros) -> None:
        if sequencer.activation is activation and sequencer.buffer is None and now - activation.wanted >= _UNWANTED_US:
            sequencer.stop_activation(now)

    def _take_back(self, sequencer: Sequencer) -> list[tuple[PeerId, AnyAppend]]:
        buffer, sequencer.buffer = sequencer.buffer, None
        if buffer is None:
            return []
        taken = list(buffer)
        buffer.clear()  # its timer still refers to it, and must not keep payloads
        self._context.metrics.bytes_buffered -= sum(len(append.payload) for _, append in taken)
        return taken

    def before_new_epoch(self, sequencer: Sequencer, now: Micros) -> None:
        """What is open goes into the old epoch; write streams could not go anywhere else."""
        if sequencer.open_batch is not None:
            self.cut(sequencer, now)

    def on_active(self, sequencer: Sequencer, now: Micros) -> None:
        """There is a new epoch: what waited for it goes on in order, and so does what waited for the recovery before."""
        held, sequencer.held = sequencer.held or [], None
        self._context.metrics.bytes_buffered -= sum(len(append.payload) for _, append in held)
        for peer, append in [*held, *self._take_back(sequencer)]:
            self._take(sequencer, peer, append, True, now)

    def on_unavailable(self, sequencer: Sequencer, status: Status, now: Micros) -> None:
        """Nothing that waits here will be served."""
        answers, redirect = self._context.answers, NO_NODE
        if status is Status.PREEMPTED:
            redirect = sequencer.preempted_by
        elif status is not Status.NOTFOUND:
            status = Status.NOSEQUENCER
        open_batch, sequencer.open_batch = sequencer.open_batch, None
        if open_batch is not None:
            self._give_back(sequencer, open_batch.frames)
            for frame in open_batch.frames:
                answers.fail(frame, sequencer.log, status, redirect=redirect)
        self._refuse_waiting(sequencer, status, redirect)

    def on_leaving(self, sequencer: Sequencer, now: Micros) -> None:
        """This node is about to stop: what is open becomes an entry at once, and what waits goes to others."""
        if sequencer.open_batch is not None:
            self.cut(sequencer, now)
        self._refuse_waiting(sequencer, Status.SHUTDOWN, NO_NODE)

    def _refuse_waiting(self, sequencer: Sequencer, status: Status, redirect: NodeId) -> None:
        answers = self._context.answers
        for peer, append in self._take_back(sequencer):
            answers.refuse(peer, append.request_id, append.log, status, not_replicated=True, redirect=redirect)
        held, sequencer.held = sequencer.held or [], None
        self._context.metrics.bytes_buffered -= sum(len(append.payload) for _, append in held)
        for peer, append in held:
            previous = append.previous_lsn
            answers.refuse(
                peer,
                append.request_id,
                append.log,
                status,
                lsn=previous,
                not_replicated=not previous,
                redirect=redirect,
            )

    # Appends that may have got an LSN before

    def _take_redirected(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        current = sequencer.current
        assert current is not None
        if sequencer.tail is not None and self._is_repeated(sequencer, frame_of(peer, append)):
            return
        previous = append.previous_lsn
        if epoch_of(previous) == current.epoch:
            if current.withholds:
                self._hold(sequencer, peer, append)
            elif 0 < esn_of(previous) <= current.lng:
                self._answer_previous(sequencer, peer, append)
            else:
                self._maybe_applied(peer, append)
        elif sequencer.recovered is not None:
            self._resolve(sequencer, peer, append, now)
        else:
            self._hold(sequencer, peer, append)

    def _hold(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend) -> None:
        if not self._has_room(sequencer.held, append):
            previous = append.previous_lsn
            self._context.answers.refuse(
                peer, append.request_id, append.log, Status.SEQNOBUFS, lsn=previous, not_replicated=not previous
            )
            return
        marks.hit("append_held_for_recovery")
        self._context.metrics.bytes_buffered += len(append.payload)
        if sequencer.held is None:
            sequencer.held = []
        sequencer.held.append((peer, append))

    def take_held(self, sequencer: Sequencer, now: Micros) -> None:
        """It is known how the earlier epochs ended, perhaps also what their LSNs hold."""
        held, sequencer.held = sequencer.held or [], None
        for peer, append in held:
            self._context.metrics.bytes_buffered -= len(append.payload)
            self._take(sequencer, peer, append, True, now)

    def _resolve(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        assert sequencer.recovered is not None
        found = find(sequencer.recovered, append.previous_lsn)
        if found is Found.ENTRY:
            marks.hit("redirected_append_was_stored")
            self._answer_previous(sequencer, peer, append)
        elif found is Found.HOLE:
            frame = frame_of(peer, append)
            if sequencer.open_batch is not None:
                self.cut(sequencer, now)
            if self._admit(sequencer, frame, now):
                self._append_alone(sequencer, frame, now)
        else:
            self._maybe_applied(peer, append)

    def _answer_previous(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend) -> None:
        assert sequencer.current is not None
        frame = frame_of(peer, append)
        frame.lsn = append.previous_lsn
        frame.durability = sequencer.current.durability
        self._context.answers.repeat(peer, append.request_id, append.log, frame)

    def _maybe_applied(self, peer: PeerId, append: AnyAppend) -> None:
        marks.hit("redirected_append_unknown")
        self._context.answers.refuse(
            peer, append.request_id, append.log, Status.ABORTED, lsn=append.previous_lsn, not_replicated=False
        )

    # Write streams

    def _take_stream(self, sequencer: Sequencer, peer: PeerId, append: AnyAppend, now: Micros) -> None:
        current = sequencer.current
        assert current is not None
        if append.stream_epoch != current.epoch:
            self._stale(sequencer, peer, append)
            return
        if current.streams is None:
            current.streams = KnownWriters(self._context.settings)
        streams, flags = current.streams, append.flags
        frame = frame_of(peer, append)
        verdict = streams.judge(frame, bool(flags & _RESUME), bool(flags & _EXCLUSIVE))
        if verdict is FrameVerdict.NEXT:
            if self._admit(sequencer, frame, now):
                streams.take(frame)
                self._add(sequencer, frame, now)
        elif verdict is FrameVerdict.REPEATED:
            marks.hit("write_stream_frame_repeated")
            first = streams.taken(frame.writer, frame.sequence)
            assert first is not None
            self._answer_as_first(sequencer, frame, first)
        elif verdict is FrameVerdict.UNKNOWN:
            self._stale(sequencer, peer, append, Status.WRITE_STREAM_UNKNOWN)
        elif verdict is FrameVerdict.NUMBER_TAKEN:
            self._refuse_number(sequencer, frame, streams.taken(frame.writer, frame.sequence))
        else:
            self._stale(sequencer, peer, append, Status.WRITE_STREAM_BROKEN)

    def _refuse_number(self, sequencer: Sequencer, frame: Frame, other: Frame | None) -> None:
        """Refuse a frame; `other` has its number, if it is known."""
        self._context.metrics.stream_numbers_taken += 1
        lsn, offset = (other.lsn, other.offset) if other is not None and other.lsn else (LSN_INVALID, 0)
        self._context.answers.refuse(
            frame.peer,
            frame.request_id,
            sequencer.log,
            Status.WRITE_STREAM_BROKEN,
            lsn=lsn or compose_lsn(sequencer.epoch, 0),
            batch_offset=offset,
            not_replicated=True,
            number_taken=True,
        )

    @staticmethod
    def _ends_batch(sequencer: Sequencer, frame: Frame) -> bool:
        """Whether the open batch must become an entry before this frame gets its place."""
        open_batch, attributes = sequencer.open_batch, sequencer.attributes
        if open_batch is None:
            return False
        alone = (
            not is_batched(sequencer.log, attributes)
            or len(frame.payload) >= attributes.batching_passthrough_bytes
            or (frame.guard is not None and frame.guard.alone)
        )
        return alone or not open_batch.fits(frame, attributes)

    def _give_back(self, sequencer: Sequencer, frames: list[Frame]) -> None:
        current, meter = sequencer.current, sequencer.meter
        if sequencer.tail is not None:
            sequencer.tail.give_back()
        if meter is not None:
            meter.give_back(sum(len(frame.payload) for frame in frames), sum(max(1, frame.records) for frame in frames))
        if current is not None and current.streams is not None:
            for frame in reversed(frames):
                current.streams.give_back(frame)

    # Batching

    def _add(self, sequencer: Sequencer, frame: Frame, now: Micros) -> None:
        attributes = sequencer.attributes
        guard = frame.guard
        if guard is not None and guard.alone:
            # at the end of the turn, as other frames: its STOREs leave, and reach disks, with theirs
            alone = sequencer.open_batch = OpenEntry(bool(frame.writer), alone=True)
            alone.add(frame)
            self._turn.append((sequencer, alone))
            return
        if not is_batched(sequencer.log, attributes):
            self._add_unbatched(sequencer, frame, now)
            return
        if len(frame.payload) >= attributes.batching_passthrough_bytes:
            self._append_alone(sequencer, frame, now)
            return
        open_batch = sequencer.open_batch
        if open_batch is not None and not open_batch.fits(frame, attributes):
            self.cut(sequencer, now)
            open_batch = None
        if open_batch is None:
            open_batch = sequencer.open_batch = OpenEntry(bool(frame.writer))
            if attributes.batching_time_us == 0:
                self._turn.append((sequencer, open_batch))
            else:
                self._context.timers.at(
                    now + attributes.batching_time_us, partial(self._on_batch_time, sequencer, open_batch)
                )
        open_batch.add(frame)
        if open_batch.bytes >= attributes.batching_size_bytes:
            self.cut(sequencer, now)

    def _on_batch_time(self, sequencer: Sequencer, open_batch: OpenEntry, now: Micros) -> None:
        if sequencer.open_batch is open_batch:
            self.cut(sequencer, now)

    def _append_alone(self, sequencer: Sequencer, frame: Frame, now: Micros) -> None:
        if sequencer.open_batch is not None:
            self.cut(sequencer, now)
        self._append(sequencer, [frame], frame.records, len(frame.payload), now)

    def _add_unbatched(self, sequencer: Sequencer, frame: Frame, now: Micros) -> None:
        if not is_split(frame):
            self._append_alone(sequencer, frame, now)
            return
        if sequencer.open_batch is not None:
            self.cut(sequencer, now)
        current = sequencer.current
        assert current is not None
        # First: a full window is no reason to take tens of thousands of records apart.
        status = current.room(frame.records, len(frame.payload))
        if status is not _OK:
            self._refused(sequencer, [frame], status, now)
            return
        try:
            frames = split(frame)
        except CorruptEntryError:
            # Its records cannot get an LSN each, and nothing else may stand at LSNs that they would have got.
            self._refused(sequencer, [frame], Status.BADPAYLOAD, now)
            return
        status = current.room(len(frames), sum(len(part.payload) for part in frames))
        if status is not _OK:
            self._refused(sequencer, [frame], status, now)
            return
        group = frames[0].split
        assert group is not None
        group.lsn = current.next_lsn
        stamp = sequencer.timestamp()  # they came at one instant
        for at, part in enumerate(frames):
            if not self._append(sequencer, [part], 1, len(part.payload), now, stamp=stamp):
                # The frames after it must not get LSNs: the records would not follow each other.
                self._fail_rest(sequencer, frames[at + 1 :], group)
                return

    def _fail_rest(self, sequencer: Sequencer, frames: Iterable[Frame], group: SplitAppend) -> None:
        for frame in frames:
            self._context.answers.fail(frame, sequencer.log, group.status)

    def cut(self, sequencer: Sequencer, now: Micros) -> None:
        """Make the open batch an entry."""
        open_batch = sequencer.open_batch
        assert open_batch is not None
        sequencer.open_batch = None
        self._append(sequencer, open_batch.frames, open_batch.records, open_batch.bytes, now)

    def _append(
        self,
        sequencer: Sequencer,
        frames: list[Frame],
        records: int,
        size: int,
        now: Micros,
        *,
        stamp: Timestamp | None = None,
    ) -> bool:
        """`stamp`: the entry is one of several of a frame; there is room for all, and they are of that time."""
        current = sequencer.current
        if current is None or sequencer.state is not _ACTIVE:
            self._refused(sequencer, frames, Status.NOSEQUENCER, now)
            return False
        room_checked = stamp is not None
        if stamp is None:
            stamp = sequencer.timestamp()
        tail = sequencer.tail
        if tail is None:
            status = current.append(
                frames, records, size, bool(frames[0].writer), stamp, now, room_checked=room_checked
            )
        else:
            status = self._append_guarded(current, tail, frames, records, size, stamp, now, room_checked=room_checked)
        if status is not _OK:
            self._refused(sequencer, frames, status, now)
            return False
        if current.next_esn > self._context.settings.esn_max - _EXHAUSTION_MARGIN:
            self._reactivate_early(sequencer, current.next_esn, now)
        return True

    def _append_guarded(
        self,
        current: EpochSequencer,
        tail: Tail,
        frames: list[Frame],
        records: int,
        size: int,
        stamp: Timestamp,
        now: Micros,
        *,
        room_checked: bool,
    ) -> Status:
        lsn, stream = current.next_lsn, bool(frames[0].writer)
        extensions = tail.extensions(frames)
        status = current.append(
            frames, records, size, stream, stamp, now, room_checked=room_checked, extensions=extensions
        )
        if status is _OK:
            tail.entered(lsn, frames)
        return status

    def _reactivate_early(self, sequencer: Sequencer, next_esn: int, now: Micros) -> None:
        """ESNs run out soon. Small limits, as tests set them, leave the margin out."""
        esn_max = self._context.settings.esn_max
        if next_esn > esn_max or esn_max > 2 * _EXHAUSTION_MARGIN:
            marks.hit("esn_exhausted")
            sequencer.activate(now)

    def _refused(self, sequencer: Sequencer, frames: list[Frame], status: Status, now: Micros) -> None:
        self._give_back(sequencer, frames)
        if status is Status.TOOBIG:
            sequencer.activate(now)
            status = Status.SEQNOBUFS
        for frame in frames:
            self._context.answers.fail(frame, sequencer.log, status, lsn=LSN_INVALID)
