"""A write stream: the frames of one writer for one log, each stored exactly once and in order, whatever fails.

Every frame carries (writer id, sequence number, exact epoch). A sequencer of another epoch refuses it; within an epoch a sequencer takes
a writer's numbers only one after the other. So as long as all frames under way belong to one epoch, what is stored of them is a prefix.

When the outcome of a frame is unknown (its connection broke, its node died or stays silent, an answer says that it may have got a
position) the stream makes the log move past that epoch and be recovered. From then on the epoch never changes again, and reading it tells
which frames it holds. Those are complete; the others are sent again, in order, in the new epoch. A frame is never sent in a second epoch
before its outcome in the first one is known.

Writer ids stand in records, so somebody else may send under the stream's id. When the sequencer, or a recovered epoch, holds other content with
the number of a frame, the stream is BROKEN: as soon as it is known what became of every frame that was sent, whatever is not stored fails with
WRITE_STREAM_BROKEN, and so does every later record. A frame is acknowledged only where its own content is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from client.append.append_request import DURABILITY
from client.guards import GUARD_REFUSALS, AnyAppend, guard_error
from client.quotas import quota_pause
from client.request_history import name_asked
from client.write.context import StreamContext, StreamOwner
from client.write.epoch_inquiry import EpochInquiry
from client.write.finder import FoundFrames
from client.write.frame import FrameFate, FramePosition, StreamFrame
from client.write.outcomes import FrameOutcomes
from client.write.record_intake import RecordIntake
from client.write.refusals import FATAL, HERE, is_certain
from client.write.silence_watch import SilenceWatch
from client.write.stream_epoch import StreamEpoch
from client.write.stream_state import WriteStreamState, explain_wait
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, PeerId, WriterId
from logdevice_py.core.lsn import EPOCH_INVALID, ESN_MAX, Epoch, Lsn, compose_lsn, epoch_of, esn_of, format_lsn
from logdevice_py.core.machine import Rng, Timer, backoff
from logdevice_py.core.principal import Permission
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import (
    Append,
    Appended,
    AppendedFlags,
    AppendFlags,
    Durability,
    SeqStateFlags,
)

_RESUME: Final = int(AppendFlags.RESUME)
_NUMBER_TAKEN: Final = int(AppendedFlags.NUMBER_TAKEN)
_WAIT_FOR_RECOVERY: Final = int(SeqStateFlags.WAIT_FOR_RECOVERY)


def new_writer_id(rng: Rng) -> WriterId:
    """One that nobody has: 128 random bits."""
    return WriterId(rng.getrandbits(128).to_bytes(16, "big"))


class WriteStream:
    """The frames of one writer for one log."""

    RESUME_FLAGS = _RESUME  # of the first frame in an epoch

    __slots__ = (
        "_context",
        "_epoch",
        "_frames",
        "_frames_allowed",
        "_inquiry",
        "_other_content",
        "_outcomes",
        "_owner",
        "_pauses",
        "_reason",
        "_reason_epoch",
        "_retry_after_us",
        "_timer",
        "_watch",
        "intake",
        "log",
        "state",
        "writer",
    )

    def __init__(
        self, log: LogId, writer: WriterId, context: StreamContext, owner: StreamOwner, payload_max: int
    ) -> None:
        self.log = log
        self.writer = writer
        self.state = WriteStreamState.LOCATING
        self._epoch = StreamEpoch()
        self._context = context
        self._owner = owner
        self._outcomes = FrameOutcomes(log, owner)
        self._frames = self._outcomes.frames
        self.intake = RecordIntake(owner, self._frames, context.timers, payload_max, self._pump, owner.sealer(log))
        """Takes the records."""
        self._other_content = ""
        """Which number somebody else used, for people; empty: nobody did."""
        self._inquiry = EpochInquiry(log, context, self._fail_all)
        self._reason, self._reason_epoch = Status.OK, EPOCH_INVALID
        self._retry_after_us = 0
        """THROTTLED: what the sequencer said."""
        self._frames_allowed = 0
        """How many frames may be in flight, since a quota held them back; 0: as many as ever."""
        self._pauses: Iterator[int] | None = None
        self._timer: Timer | None = None
        self._watch = SilenceWatch(
            log,
            self._epoch,
            self._outcomes,
            context,
            owner,
            self.waiting_for,
            lambda now: self._lost(now, unknown=True),
        )

    def _become(self, state: WriteStreamState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    # Records

    @property
    def epoch(self) -> Epoch:
        """In which it sends; 0: not known yet."""
        return self._epoch.number

    @property
    def idle(self) -> bool:
        """Nothing is unacknowledged."""
        return not self._frames and not self.intake

    def waiting_for(self, now: Micros) -> str:
        """Why what was taken is not acknowledged yet, for people."""
        was_refused = self._pauses is not None or self._frames_allowed
        refusal = self._reason if was_refused and not self._inquiry.asks else Status.OK
        more = self._inquiry.waiting_for(now)
        if more is None:
            oldest, node = self._frames.oldest_in_flight(), self._epoch.node
            asked = "" if oldest is None else name_asked(node, now - oldest.sent_at, self._context.links)
            told = self._context.questions.inquiries.told(self.log, node, Micros(now - 2 * SECOND), now)
            more = "; ".join(filter(None, (asked, told)))
        return explain_wait(self.state, self._epoch.number, refusal, more)

    def flush(self, marker: Callable[[], None], now: Micros) -> bool:
        """Send what is open at the end of the turn; `marker` is called when everything taken so far has its outcome. False: it has."""
        self.intake.cut(now)
        waiting = [frame for frame in self._frames if not frame.failed]
        if not waiting:
            return False
        waiting[-1].markers.append(marker)
        return True

    # Events

    def on_turn_end(self, now: Micros) -> None:
        """Cut the open batch if it is time, and send what may be sent."""
        self.intake.on_turn_end(now)
        self._pump(now)

    def on_appended(self, peer: PeerId, frame: StreamFrame, answer: Appended, now: Micros) -> None:
        """The answer to a frame in flight."""
        if frame.fate is not FrameFate.SENT or NodeId(peer) != self._epoch.node:
            return
        self._context.frames.pop(frame.request_id, None)
        if answer.status is Status.OK and epoch_of(answer.lsn) == self._epoch.number:
            durability = DURABILITY.get(answer.durability, Durability.ASYNC)
            position = FramePosition(
                answer.lsn, answer.batch_offset, answer.timestamp, tuple(answer.copyset), durability
            )
            self._frames.landed(frame, FrameFate.UNKNOWN)
            self._frames.acknowledged(frame, position)
            self._epoch.accepted = True
            self._pauses = None
            if self._frames_allowed:
                self._allow_more()
            self._frames.pop_acknowledged()
            if self.state is WriteStreamState.STREAMING:
                if not self._frames:
                    self.intake.on_idle(now)
                self._pump(now)
                return
        else:
            self._refused(frame, answer)
        if not self._frames.in_flight:
            self._drained(now)

    def _refused(self, frame: StreamFrame, answer: Appended) -> None:
        """Not OK. Every further frame in flight will be refused too, or has an unknown outcome."""
        status = answer.status
        certain = is_certain(answer)
        self._frames.landed(frame, FrameFate.QUEUED if certain else FrameFate.UNKNOWN)
        self._owner.metrics.refusals += 1
        if answer.lsn:
            self._context.routes.saw_epoch(self.log, epoch_of(answer.lsn))
        if status is Status.REDIRECTED and answer.redirect >= 0:
            self._context.routes.learned(self.log, answer.redirect)
        if self.state is WriteStreamState.STREAMING:
            self._become(WriteStreamState.DRAINING)
            self._reason = status
            self._reason_epoch = epoch_of(answer.lsn)
            self._retry_after_us = answer.there
        if certain and status in GUARD_REFUSALS:
            self._outcomes.fail(frame, guard_error(frame.guard, answer))
        elif certain and status is Status.ACCESS:
            self._outcomes.fail(frame, self._context.routes.refused(self.log, Permission.APPEND))
        elif certain and status in FATAL:
            self._outcomes.fail(frame, LogDeviceError(status, maybe_applied=False))
        elif certain and status is Status.WRITE_STREAM_BROKEN and answer.flags & _NUMBER_TAKEN:
            self._note_other_content(frame, answer.lsn, answer.batch_offset)

    def on_peer_down(self, peer: PeerId, was_up: bool, now: Micros) -> None:
        """A connection broke, or a dial failed and nothing was sent."""
        if NodeId(peer) == self._epoch.node and self._frames.in_flight:
            self._lost(now, unknown=was_up)

    def on_node_dead(self, node: NodeId, now: Micros) -> None:
        """The cluster says that the node is dead; its connection may look alive for long."""
        if node == self._epoch.node and self._frames.in_flight:
            self._lost(now, unknown=True)

    def _lost(self, now: Micros, *, unknown: bool) -> None:
        """No answers will come to what is in flight."""
        for frame in self._frames:
            if frame.fate is FrameFate.SENT:
                certain = not unknown or self._withdraw(frame)
                self._context.frames.pop(frame.request_id, None)
                self._frames.landed(frame, FrameFate.QUEUED if certain else FrameFate.UNKNOWN)
        self._become(WriteStreamState.DRAINING)
        self._reason = Status.CONNFAILED
        self._context.routes.forget(self.log, self._epoch.node)
        self._drained(now)

    def _withdraw(self, frame: StreamFrame) -> bool:
        found = self._context.frames.get(frame.request_id)
        return found is not None and self._context.links.withdraw(PeerId(self._epoch.node), found[2])

    # Sending

    def _pump(self, now: Micros) -> None:
        """Send queued frames as far as the window allows."""
        if not self._frames:
            return
        if self.state is WriteStreamState.BROKEN:
            self._break()
            return
        self._watch.begin(now)
        if self.state is WriteStreamState.LOCATING:
            if not self._inquiry.asks:
                self._locate(now)
            return
        if self.state is not WriteStreamState.STREAMING:
            return
        settings = self._owner.settings
        frames, frames_max = self._frames, self._frames_in_flight_max()
        while frames.in_flight < frames_max and (frame := frames.next_to_send()) is not None:
            if frames.in_flight and frames.in_flight_bytes + len(frame.payload) > settings.bytes_in_flight_max:
                break
            self._send(frame, now)

    def _frames_in_flight_max(self) -> int:
        return self._frames_allowed or self._owner.settings.frames_in_flight_max

    def _allow_more(self) -> None:
        self._frames_allowed *= 2
        if self._frames_allowed >= self._owner.settings.frames_in_flight_max:
            self._frames_allowed = 0

    def _send(self, frame: StreamFrame, now: Micros) -> None:
        context = self._context
        flags = frame.flags
        epoch = self._epoch
        if not epoch.accepted and not epoch.resume_sent:
            flags |= self.RESUME_FLAGS
            epoch.resume_sent = True
        frame.request_id = next(context.ids)
        message: AnyAppend
        if frame.guard is not None:
            message = frame.guard.message(
                request_id=frame.request_id,
                log=self.log,
                flags=flags,
                records=frame.records,
                crc=frame.crc,
                seen_epoch=epoch.number,
                writer=self.writer,
                sequence=frame.sequence,
                stream_epoch=epoch.number,
                payload=frame.payload,
            )
        else:
            message = Append(
                request_id=frame.request_id,
                log=self.log,
                flags=flags,
                records=frame.records,
                crc=frame.crc,
                seen_epoch=epoch.number,
                previous_lsn=Lsn(0),
                writer=self.writer,
                sequence=frame.sequence,
                stream_epoch=epoch.number,
                payload=frame.payload,
            )
        self._frames.sent(frame, now)
        self._owner.metrics.frames_sent += 1
        context.frames[frame.request_id] = (self, frame, message)
        context.links.send(PeerId(epoch.node), message)

    # What follows an answer that is not OK

    def _drained(self, now: Micros) -> None:
        """Nothing is in flight: every frame is queued, acknowledged or of unknown outcome."""
        assert self._frames.in_flight == 0
        self._epoch.resume_sent = False
        self._frames.pop_acknowledged()
        reason = self._reason
        if self._frames.of_unknown_outcome():
            self._owner.metrics.unknown_outcomes += 1
            self._move(now)
        elif self._other_content:
            self._break()
        else:
            self._go_on(reason, now)

    def _go_on(self, reason: Status, now: Micros) -> None:
        """Every frame is queued or acknowledged."""
        if reason in (Status.WRITE_STREAM_UNKNOWN, Status.WRITE_STREAM_BROKEN):
            # The first refusal of this drain: no refused frame before it explains it, so the sequencer and we disagree about the epoch.
            marks.hit("stream_disagreement")
            self._take_another_id()
            self._move(now)
        elif reason is Status.STALE and self._reason_epoch > self._epoch.number:
            marks.hit("stream_adopts_epoch")
            self._enter(self._reason_epoch, self._epoch.node, now)
        elif reason is Status.THROTTLED:
            self._wait_for_quota(now)
        elif reason in HERE:
            self._context.questions.inquiries.ask(self.log, self._epoch.node, now)
            self._pause(WriteStreamState.STREAMING, now)
        elif reason in FATAL:
            self._enter(self._epoch.number, self._epoch.node, now)
        else:
            self._pause(WriteStreamState.LOCATING, now)

    def _take_another_id(self) -> None:
        """No outcome is unknown, so nothing will be looked for under the present id. Who uses it against this stream does not know the next one."""
        self.writer = new_writer_id(self._context.rng)

    def _locate(self, now: Micros) -> None:
        self._become(WriteStreamState.LOCATING)
        self._inquiry.ask(self._enter, now, at_least=self._lowest_epoch())

    def _lowest_epoch(self) -> Epoch:
        """In which the stream may go on."""
        return max(self._inquiry.min_epoch, self._epoch.number, self._context.routes.epoch(self.log))

    def _move(self, now: Micros) -> None:
        """Frames of our epoch have an unknown outcome: end it."""
        self._become(WriteStreamState.MOVING)
        self._inquiry.min_epoch = Epoch(self._epoch.number + 1)
        self._inquiry.ask(self._moved, now, at_least=self._inquiry.min_epoch, flags=_WAIT_FOR_RECOVERY)

    def _moved(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """The log is in a later epoch, and ours is recovered."""
        ours = self._epoch.number
        assert epoch > ours
        if self._frames.of_unknown_outcome():
            # Frames may share an LSN: of those that share it with the last acknowledged one, some may have an unknown outcome.
            self._read(max(self._outcomes.last_lsn, compose_lsn(ours, 1)), ours, epoch, node, now)
        else:
            self._enter(epoch, node, now)

    def _read(self, first: Lsn, last: Epoch, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """Look for frames of unknown outcome from an LSN to the end of the epoch `last`, before going on in `epoch`."""
        self._become(WriteStreamState.READING)
        self._inquiry.read(
            self.writer,
            first,
            compose_lsn(last, ESN_MAX),
            self._frames.of_unknown_outcome(),
            lambda found, at: self._found(found, epoch, node, at),
            now,
        )

    def _found(self, found: FoundFrames, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """What the recovered epoch holds of ours."""
        assert self.state is WriteStreamState.READING, self.state
        assert self._frames.in_flight == 0
        frames = self._frames
        self._take_found(found)
        for frame in frames.of_unknown_outcome():
            frame.fate = FrameFate.QUEUED
            if found.uncertain:
                marks.hit("stream_frame_uncertain")
                # Its number may be stored for good, so nothing else may have it.
                frames.last_sequence = max(frames.last_sequence, frame.sequence)
                detail = "a part of the epoch in which it was sent cannot be read"
                self._outcomes.fail(frame, LogDeviceError(Status.DATALOSS, detail, maybe_applied=True))
        if self._other_content:
            self._break()
        else:
            self._enter(epoch, node, now)

    def _take_found(self, found: FoundFrames) -> None:
        """Complete the frames of unknown outcome that were found."""
        for frame in self._frames.of_unknown_outcome():
            position = found.positions.get(frame.sequence)
            if position is not None:
                marks.hit("stream_frame_found")
                self._owner.metrics.frames_found += 1
                self._frames.acknowledged(frame, position)
            elif (other := found.taken.get(frame.sequence)) is not None:
                self._note_other_content(frame, other.lsn, other.batch_offset)

    def _enter(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """Go on in an epoch, with no outcome unknown."""
        if self._epoch.enter(epoch, node):
            self._owner.metrics.epochs_entered += 1
        self._context.routes.saw_epoch(self.log, epoch)
        self._watch.answered()
        self._become(WriteStreamState.STREAMING)
        self._settle()
        self._pump(now)

    def _pause(self, then: WriteStreamState, now: Micros) -> None:
        self._become(WriteStreamState.PAUSED)
        if self._pauses is None:
            settings = self._context.settings
            self._pauses = backoff(self._context.rng, initial_us=settings.retry_us_min, max_us=settings.retry_us_max)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.timers.at(now + next(self._pauses), lambda at: self._resume(then, at))

    def _wait_for_quota(self, now: Micros) -> None:
        """The log, or our principal, is over its quota: the first frame that was refused is tried again when it should be taken, the others behind it."""
        marks.hit("stream_throttled")
        self._owner.metrics.throttled += 1
        self._frames_allowed = 1
        self._become(WriteStreamState.PAUSED)
        if self._timer is not None:
            self._timer.cancel()
        pause = quota_pause(self._retry_after_us, self._context.settings.retry_us_min, self._context.rng)
        self._timer = self._context.timers.at(now + pause, lambda at: self._resume(WriteStreamState.STREAMING, at))

    def _resume(self, then: WriteStreamState, now: Micros) -> None:
        if self.state is WriteStreamState.PAUSED:
            self._become(then)
            self._settle()
            self._pump(now)

    def _settle(self) -> None:
        """No outcome is unknown: what is not stored is to be sent, unless that would put it behind a later frame."""
        self._outcomes.fail_overtaken()
        self._frames.settle()

    # Somebody else under this writer id

    def _note_other_content(self, frame: StreamFrame, lsn: Lsn, offset: int) -> None:
        if self._other_content:
            return
        marks.hit("stream_number_taken")
        where = f" at {format_lsn(lsn)}+{offset}" if esn_of(lsn) else ""
        self._other_content = (
            f"log {self.log}: somebody else sends under the writer id of this write stream: epoch {epoch_of(lsn)} has other content{where} "
            f"as its frame {frame.sequence}. Records without a receipt are stored nowhere unless their own error says otherwise, and this writer "
            "appends nothing more to the log. Find out who writes there, then append what failed with another writer"
        )

    def _break(self) -> None:
        """No outcome is unknown: what has no position fails, whatever is queued later too."""
        if self.state is not WriteStreamState.BROKEN:
            self._owner.metrics.streams_broken += 1
        self._fail_all(Status.WRITE_STREAM_BROKEN, self._other_content, retriable=False)

    # Outcomes

    def _fail_all(self, status: Status, detail: str = "", *, retriable: bool | None = None) -> None:
        """The log cannot be written at all, or not by this stream."""
        self._outcomes.fail_all(status, detail, retriable=retriable)
        if self._frames.of_unknown_outcome():
            # Nothing of this epoch may be sent again, and it cannot be told what it holds.
            self._inquiry.min_epoch = Epoch(self._epoch.number + 1)
        self._frames.clear()
        self._epoch.accepted = False
        self._become(WriteStreamState.BROKEN if self._other_content else WriteStreamState.LOCATING)

    def refuse(self, error: LogDeviceError) -> None:
        """Nobody takes anything any more: records without an outcome fail with this error."""
        self._outcomes.refuse(error)

    def close(self) -> None:
        """Fail what has no outcome. Harmless when called again."""
        if self.state is WriteStreamState.CLOSED:
            return
        self._become(WriteStreamState.CLOSED)
        if self._timer is not None:
            self._timer.cancel()
        self._watch.stop()
        self._inquiry.cancel()
        self.intake.cut(Micros(0))
        for frame in self._frames:
            if frame.fate is FrameFate.ACKED:
                continue
            certain = frame.fate is FrameFate.QUEUED or (frame.fate is FrameFate.SENT and self._withdraw(frame))
            self._context.frames.pop(frame.request_id, None)
            self._outcomes.fail(
                frame, LogDeviceError(Status.SHUTDOWN, "the writer was closed", maybe_applied=not certain)
            )
        self._frames.finish_acknowledged()
        self._frames.clear()

    def check(self) -> None:
        """What must hold between events."""
        self._frames.check()
        sending = self.state in (WriteStreamState.STREAMING, WriteStreamState.DRAINING)
        assert sending or not self._frames.in_flight, self.state
        if self.state is WriteStreamState.STREAMING:
            self._frames.check_streaming()
