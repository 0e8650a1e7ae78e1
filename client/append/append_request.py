"""Direct appends of one client, from call to receipt.

Order: appends to one log leave in call order, those of one turn in as few frames as possible. As long as nothing goes wrong they get
positions in that order. A frame that was refused is sent again, so of appends that are under way at the same time a later one may
overtake an earlier one; who needs order awaits each, or uses a BufferedWriter.

Outcome: an append is tried again only when the answer says that it was not applied, or when the new sequencer can find out from the
position that the earlier try may have got (`previous_lsn`). Otherwise it waits for its answer until its time is up, until the
connection breaks, or until its node has been silent for long and counts as dead, and fails with `maybe_applied`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from google_crc32c import value as crc32c

from client.append.append_frame import AppendFrame, FrameState
from client.append.coalescing import cut_frames, whole_frame
from client.append.many import BatchPromise
from client.append.open_appends import OpenAppends
from client.append.router import REFUSALS, Router, Routes
from client.guards import GUARD_REFUSALS, AnyAppend, AppendGuard, guard_error
from client.inquiries import Inquiries
from client.links import Links
from client.metrics import ClientMetrics
from client.promise import Promise, break_
from client.quotas import quota_pause, throttled_error
from client.receipt import Receipt, receipts
from client.settings import ClientSettings
from client.turn_end import TurnEnd
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, PeerId
from logdevice_py.core.lsn import LSN, Lsn, epoch_of
from logdevice_py.core.machine import Rng, Timer, TimerQueue, backoff
from logdevice_py.core.principal import Permission
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.core.status import TRAITS, LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import (
    Append,
    Appended,
    AppendedFlags,
    AppendFlags,
    Durability,
    GetSeqState,
    SeqState,
)
from logdevice_py.protocol.requests import Requests

_NOT_REPLICATED = int(AppendedFlags.NOT_REPLICATED)
_SYNC = int(AppendFlags.SYNC)
_ATOMIC = int(AppendFlags.ATOMIC)
_ROUTING = int(AppendFlags.NO_REDIRECT | AppendFlags.REACTIVATE_IF_PREEMPTED)
_PROBES_MAX = 1000
_WAITING_MAX = 1000
"""Records: a frame of that many gains little by one more."""
_FEW: Final = 2
"""Records that came since the last frame left, where appends are far apart."""
_FAR_APART_FACTOR: Final = 4
"""So many times `coalesce_in_flight` frames are unanswered at most, where appends are far apart."""
DURABILITY = {int(value): value for value in Durability}


class _LogAppends:
    """What is under way for one log."""

    __slots__ = ("held", "in_flight", "left_at", "open", "pauses", "quota_at", "timer", "tries")

    def __init__(self) -> None:
        self.in_flight = 0
        """Frames neither acknowledged nor failed."""
        self.left_at: Micros | None = None
        """When the last frame left; None: none did."""
        self.open: list[OpenAppends] = []
        self.held: list[AppendFrame] = []
        self.pauses: Iterator[int] | None = None
        self.timer: Timer | None = None
        self.tries = 0
        """How many of the held frames are sent next, after a quota held them back; 0: all."""
        self.quota_at = 0
        """When the quota takes the first of them."""


class AppendRequests:
    """All direct appends of one client."""

    __slots__ = (
        "_frames",
        "_ids",
        "_inquiries",
        "_links",
        "_logs",
        "_metrics",
        "_probes",
        "_requests",
        "_rng",
        "_routes",
        "_settings",
        "_sweep",
        "_timers",
        "_turn_end",
        "dirty",
        "named",
    )

    def __init__(
        self,
        routes: Routes,
        links: Links,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        *,
        settings: ClientSettings,
        metrics: ClientMetrics,
        inquiries: Inquiries,
        turn_end: TurnEnd,
    ) -> None:
        self._turn_end = turn_end
        self._inquiries = inquiries
        self._routes = routes
        self._links = links
        self._timers = timers
        self._rng = rng
        self._requests = requests
        self._ids = requests.ids
        self._settings = settings
        self._metrics = metrics
        self._logs: dict[LogId, _LogAppends] = {}
        self._frames: dict[int, AppendFrame] = {}
        self._sweep: Timer | None = None
        self._probes: deque[int] = deque()
        """The latest, answered or not."""
        self.dirty: list[LogId] = []
        """Logs with records that have not left: the end of a turn has work here."""
        self.named: dict[int | str, OpenAppends] = {}
        """What further records of this turn may join that have the client's append timeout, by what the caller named the log."""

    # Events

    def append(
        self,
        log: LogId,
        payload: bytes,
        promise: Promise,
        payload_max: int,
        timeout_us: int,
        key: bytes | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
        seal: Seal | None = None,
    ) -> OpenAppends:
        """Take one record; it leaves at the end of the turn, or when few frames are on their way. The promise gets its `Receipt`.

        Args:
            log: where.
            payload: the record.
            promise: of whoever waits.
            payload_max: the longest record that the log takes.
            timeout_us: from when it leaves on.
            key: of the record.
            synced: it is acknowledged only when all its copies are synced, whatever the log's durability.
            guard: what it asks of the end of the log; it has a frame of its own then.
            seal: encrypts it; None: it is not encrypted. It has a frame of its own then.
        Returns:
            what others of the same turn and about the same timeout may join.
        """
        appends = self._logs.get(log)
        if appends is None:
            appends = self._logs[log] = _LogAppends()
        if guard is not None or seal is not None:
            taken = self._open_alone(log, appends, payload_max, timeout_us)
            taken.guard, taken.seal = guard, seal
        elif not appends.open:
            self._note_open(log)
            taken = OpenAppends(payload_max, timeout_us)
            appends.open.append(taken)
        else:
            taken = appends.open[-1]
            if taken.alone or abs(timeout_us - taken.timeout_us) > self._settings.sweep_us:
                self.named.clear()  # nothing may be put before this record any more
                taken = OpenAppends(payload_max, timeout_us)
                appends.open.append(taken)
        if key is not None:
            taken.keys[len(taken.payloads)] = key
        if synced:
            taken.synced.append(len(taken.payloads))
        taken.payloads.append(payload)
        taken.promises.append(promise)
        return taken

    def append_batch(
        self,
        log: LogId,
        payloads: Sequence[bytes],
        promise: Promise,
        payload_max: int,
        timeout_us: int,
        keys: Sequence[bytes | None] | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
        seal: Seal | None = None,
    ) -> None:
        """Take an atomic batch that the log takes; the promise gets its `Receipts`. Arguments as with `append`; there are keys for all or none."""
        appends = self._logs.get(log)
        if appends is None:
            appends = self._logs[log] = _LogAppends()
        taken = self._open_alone(log, appends, payload_max, timeout_us)
        taken.guard, taken.seal, taken.atomic = guard, seal, True
        if keys is not None:
            taken.keys = {at: key for at, key in enumerate(keys) if key is not None}
        if synced:
            taken.synced.append(0)
        taken.payloads.extend(payloads)
        taken.promises.append(BatchPromise(promise, len(payloads)))

    def _note_open(self, log: LogId) -> None:
        """Look at the log's open appends when the turn ends."""
        self.dirty.append(log)
        self._turn_end.wanted = True

    def _open_alone(self, log: LogId, appends: _LogAppends, payload_max: int, timeout_us: int) -> OpenAppends:
        if appends.open:
            self.named.clear()  # nothing may be put before this record any more
        else:
            self._note_open(log)
        taken = OpenAppends(payload_max, timeout_us)
        taken.alone = True
        appends.open.append(taken)
        return taken

    def on_turn_end(self, now: Micros) -> None:
        """Build and send the frames of the turn. Needed only when `dirty`."""
        self.named.clear()
        dirty, self.dirty = self.dirty, []
        for log in dirty:
            appends = self._logs[log]
            attributes = self._routes.config.log(log)
            batching = attributes is None or attributes.sequencer_batching
            busy = batching and appends.in_flight >= self._settings.coalesce_in_flight
            if busy and not any(taken.alone for taken in appends.open) and self._wait(appends, now):
                self._note_open(log)
                continue
            opened, appends.open = appends.open, []
            appends.left_at = now
            for taken in opened:
                promises, deadline = taken.promises, now + taken.timeout_us
                if taken.alone:
                    self._start_alone(log, appends, taken, now)
                    continue
                payload_max = taken.payload_max if attributes is None else attributes.max_payload_bytes
                for first, last, payload, crc, flags in cut_frames(
                    taken.payloads, self._settings, payload_max, batching=batching, keys=taken.keys
                ):
                    message = Append(
                        request_id=next(self._ids),
                        log=log,
                        flags=flags | _SYNC if taken.asks_for_sync(first, last) else flags,
                        records=last - first,
                        crc=crc,
                        seen_epoch=self._routes.epoch(log),
                        previous_lsn=Lsn(0),
                        writer=b"",
                        sequence=0,
                        stream_epoch=epoch_of(0),
                        payload=payload,
                    )
                    whole = last - first == len(promises)
                    frame = AppendFrame(message, promises if whole else promises[first:last], now, deadline)
                    self._frames[message.request_id] = frame
                    appends.in_flight += 1
                    if appends.held:
                        appends.held.append(frame)  # behind those that wait: they were called for earlier
                    else:
                        self._start(frame, now)
        self._arm(now)

    def _start_alone(self, log: LogId, appends: _LogAppends, taken: OpenAppends, now: Micros) -> None:
        guard = taken.guard
        records, payload, crc, flags = 0, b"", crc32c(b""), 0
        if guard is None or not guard.control:
            _, records, payload, crc, flags = whole_frame(
                taken.payloads, 0, len(taken.payloads), taken.keys, taken.seal
            )
        # what is encrypted is for readers to take apart, in logs too whose sequencer does that
        whole = taken.atomic or taken.seal is not None
        flags |= (_ATOMIC if whole else 0) | (_SYNC if taken.synced else 0)
        request_id, epoch = next(self._ids), self._routes.epoch(log)
        message: AnyAppend
        if guard is None:
            message = Append(
                request_id=request_id,
                log=log,
                flags=flags,
                records=records,
                crc=crc,
                seen_epoch=epoch,
                previous_lsn=Lsn(0),
                writer=b"",
                sequence=0,
                stream_epoch=epoch_of(0),
                payload=payload,
            )
        else:
            message = guard.message(
                request_id=request_id,
                log=log,
                flags=flags,
                records=records,
                crc=crc,
                seen_epoch=epoch,
                payload=payload,
            )
        frame = AppendFrame(message, taken.promises, now, now + taken.timeout_us)
        frame.guard = guard
        self._frames[message.request_id] = frame
        appends.in_flight += 1
        if appends.held:
            appends.held.append(frame)
        else:
            self._start(frame, now)

    def _wait(self, appends: _LogAppends, now: Micros) -> bool:
        """Whether appends are to wait for others to share their frame.

        A frame costs each process that it passes more than a record does. Appends that leave one by one while others are on their way fill queues
        that they then wait in themselves. Those that are far apart do not: nobody would share their frame before long. While many frames are unanswered, as
        where a copy lies in a distant region, that is as far apart as they would wait.
        """
        settings, taken = self._settings, appends.open[0]
        apart = settings.coalesce_apart_us
        if appends.in_flight >= _FAR_APART_FACTOR * settings.coalesce_in_flight:
            apart = max(apart, settings.coalesce_wait_us)
        apart_at = None if appends.left_at is None else Micros(appends.left_at + apart)
        if taken.leave_at is None:
            taken.leave_at = Micros(now + settings.coalesce_wait_us)
            self._timers.at(taken.leave_at, _end_turn)
            if apart_at is not None and now < apart_at < taken.leave_at:
                self._timers.at(apart_at, _end_turn)
        if apart_at is not None and now >= apart_at and len(taken.payloads) <= _FEW:
            return False
        return (
            now < taken.leave_at
            and len(taken.payloads) < _WAITING_MAX
            and len(taken.payloads[-1]) < settings.coalesce_bytes
        )

    def on_appended(self, peer: PeerId, answer: Appended, now: Micros) -> bool:
        """An answer; False when it is not for a direct append."""
        frame = self._frames.get(answer.request_id)
        if frame is None:
            return False
        if frame.state is not FrameState.SENT or frame.node != NodeId(peer):
            return True
        message = frame.message
        if answer.lsn:
            self._routes.saw_epoch(message.log, epoch_of(answer.lsn))
        if answer.status is Status.OK:
            self._acknowledge(frame, answer)
            return True
        frame.refused(answer.status, answer.redirect)
        not_replicated = bool(answer.flags & _NOT_REPLICATED)
        if TRAITS[answer.status].maybe_applied and not not_replicated:
            if frame.guard is not None and frame.guard.alone:
                self._repeat(frame, now)
            else:
                self._fail(frame, answer.status, maybe_applied=True)
            return True
        if answer.status in GUARD_REFUSALS:
            self._failed(frame, maybe_applied=frame.unknown)
            for promise in frame.promises:
                break_(promise, guard_error(frame.guard, answer, repeated=frame.unknown))
            return True
        has_position = bool(answer.lsn) and not not_replicated and answer.status is not Status.STALE
        if has_position and answer.lsn != message.previous_lsn:
            # The next sequencer finds out what became of this position before it gives another one.
            marks.hit("client_append_previous_lsn")
            message.previous_lsn = answer.lsn
            frame.previous_offset = answer.batch_offset
        if answer.status is Status.THROTTLED:
            self._throttled(frame, answer.there, now)
        elif answer.status in (Status.REDIRECTED, Status.PREEMPTED):
            self._follow(frame, answer, now)
        elif answer.status in REFUSALS or has_position or TRAITS[answer.status].maybe_applied:
            self._inquiries.ask(message.log, frame.node, now)
            self._routes.forget(message.log, frame.node)
            self._hold(frame, now)
        elif answer.status is Status.BADPAYLOAD and crc32c(message.payload) == message.crc:
            marks.hit("client_append_damaged_on_the_way")  # what leaves here is as it was made
            self._hold(frame, now)
        elif answer.status is Status.ACCESS:
            refused = self._routes.refused(message.log, Permission.APPEND)
            self._fail(frame, refused.status, maybe_applied=False, detail=refused.detail)
        else:
            self._fail(frame, answer.status, maybe_applied=False)
        return True

    def _on_probe_answer(self, log: LogId, node: NodeId, answer: SeqState, now: Micros) -> None:
        """A node that sequences the log itself gets the appends to come."""
        if answer.status is Status.OK and answer.epoch >= self._routes.epoch(log):
            marks.hit("client_probe_found_sequencer")
            self._routes.saw_epoch(log, answer.epoch)
            self._routes.learned(log, node)

    def on_peer_down(self, peer: PeerId, was_up: bool, now: Micros) -> None:
        """A connection broke, or could not be made."""
        node = NodeId(peer)
        for frame in [
            frame for frame in self._frames.values() if frame.node == node and frame.state is FrameState.SENT
        ]:
            if was_up and frame.guard is not None and frame.guard.alone:
                frame.refused(Status.PEER_CLOSED)
                self._repeat(frame, now)
            elif was_up:
                self._fail_explained(frame, Status.PEER_CLOSED, now, maybe_applied=True)
            else:
                frame.refused(Status.CONNFAILED)
                self._hold(frame, now)

    def _repeat(self, frame: AppendFrame, now: Micros) -> None:
        """Try again what may be stored already: the sequencer knows an append by its id, and its condition lets only one in."""
        marks.hit("client_guarded_append_repeated")
        frame.unknown = True
        self._routes.forget(frame.message.log, frame.node)
        self._hold(frame, now)

    def on_node_dead(self, node: NodeId, now: Micros) -> None:
        """The cluster says that the node is dead: what still waits for a connection to it goes elsewhere."""
        for frame in [
            frame for frame in self._frames.values() if frame.node == node and frame.state is FrameState.SENT
        ]:
            self._leave(frame, now)

    def _leave(self, frame: AppendFrame, now: Micros) -> bool:
        """Send a frame elsewhere that still waits for a connection. False: it may have arrived."""
        if not self._links.withdraw(PeerId(frame.node), frame.message):
            return False
        marks.hit("client_append_leaves_dead_node")
        frame.refused(Status.CONNFAILED)
        self._hold(frame, now)
        return True

    def close(self, error: LogDeviceError) -> None:
        """Fail everything that is under way, with this error."""
        self.named.clear()
        for log in self.dirty:
            opened, self._logs[log].open = self._logs[log].open, []
            for taken in opened:
                for promise in taken.promises:
                    break_(promise, LogDeviceError(error.status, error.detail))
        self.dirty.clear()
        for frame in list(self._frames.values()):
            never_sent = frame.state is FrameState.HELD or self._links.withdraw(PeerId(frame.node), frame.message)
            self._fail(frame, error.status, maybe_applied=not never_sent, detail=error.detail)

    # Sending

    def _start(self, frame: AppendFrame, now: Micros) -> None:
        message = frame.message
        message.flags &= ~_ROUTING
        frame.router = None
        node = self._routes.target(message.log)
        if node is None:
            frame.refused(Status.NOSEQUENCER)
            self._hold(frame, now)
            return
        self._send(frame, node, now)

    def _send(self, frame: AppendFrame, node: NodeId, now: Micros) -> None:
        frame.sent(node, now)
        self._metrics.frames_sent += 1
        self._links.send(PeerId(node), frame.message)

    def _resend_as(self, frame: AppendFrame) -> None:
        """A new id for each try: an answer to an earlier one is then nobody's."""
        old = frame.message
        del self._frames[old.request_id]
        frame.message = replace(old, request_id=next(self._ids), seen_epoch=self._routes.epoch(old.log))
        self._frames[frame.message.request_id] = frame
        self._metrics.frames_retried += 1

    def _follow(self, frame: AppendFrame, answer: Appended, now: Micros) -> None:
        if frame.router is None:
            frame.router = Router(self._routes, frame.message.log)
        node = frame.router.redirected(
            frame.node,
            answer.redirect,
            preempted=answer.status is Status.PREEMPTED,
        )
        if node is None:
            frame.refused(Status.NOSEQUENCER)
            self._routes.forget(frame.message.log, frame.node)
            self._hold(frame, now)
            return
        self._resend_as(frame)
        frame.message.flags = frame.message.flags & ~_ROUTING | frame.router.flags
        self._send(frame, node, now)

    def _hold(self, frame: AppendFrame, now: Micros) -> None:
        """Try again after a pause; all held frames of a log go together, in call order."""
        frame.state = FrameState.HELD
        appends = self._logs[frame.message.log]
        appends.held.append(frame)
        if appends.timer is None:
            if appends.pauses is None:
                appends.pauses = backoff(
                    self._rng, initial_us=self._settings.retry_us_min, max_us=self._settings.retry_us_max
                )
            log = frame.message.log
            self._routes.look_further(log, self._links)
            appends.timer = self._timers.at(now + next(appends.pauses), lambda at: self._retry(log, at))

    def _throttled(self, frame: AppendFrame, wait_us: int, now: Micros) -> None:
        """The quota takes it later: it waits, with what is behind it, unless its time is up before."""
        marks.hit("client_append_throttled")
        self._metrics.frames_throttled += 1
        frame.retry_after_us = wait_us
        if now + wait_us >= frame.deadline:
            self._fail(frame, Status.THROTTLED, maybe_applied=False)
            return
        frame.state = FrameState.HELD
        log = frame.message.log
        appends = self._logs[log]
        appends.held.append(frame)
        appends.tries = 1
        if appends.timer is not None and appends.quota_at <= now:
            appends.timer.cancel()  # what waits for less waits in vain
            appends.timer = None
        if appends.timer is None:
            appends.quota_at = now + quota_pause(wait_us, self._settings.retry_us_min, self._rng)
            appends.timer = self._timers.at(appends.quota_at, lambda at: self._retry(log, at))

    def _retry(self, log: LogId, now: Micros) -> None:
        appends = self._logs[log]
        appends.timer = None
        held, appends.held = appends.held, []
        held.sort(key=lambda frame: frame.call)
        if appends.tries:
            held, appends.held = held[: appends.tries], held[appends.tries :]
            appends.tries = 2 * appends.tries if appends.held else 0
        if appends.held:
            appends.timer = self._timers.at(now + self._settings.retry_us_min, lambda at: self._retry(log, at))
        for frame in held:
            if frame.state is not FrameState.HELD:
                continue
            self._resend_as(frame)
            self._start(frame, now)

    # Outcomes

    def _acknowledge(self, frame: AppendFrame, answer: Appended) -> None:
        message = frame.message
        if answer.split:
            self._acknowledge_split(frame, answer)
            return
        offset = answer.batch_offset
        if message.previous_lsn and answer.lsn == message.previous_lsn:
            # The entry of an earlier try was recovered: whoever answers may know only its LSN.
            offset = frame.previous_offset
        self._accepted(frame)
        lsn, timestamp = LSN(answer.lsn), Timestamp(answer.timestamp)
        copyset = tuple(answer.copyset)
        durability = DURABILITY.get(answer.durability, Durability.ASYNC)
        count = len(frame.promises)
        for promise, receipt in zip(
            frame.promises, receipts(count, lsn, offset, timestamp, copyset, durability), strict=True
        ):
            if not promise.done():
                promise.set_result(receipt)

    def _acknowledge_split(self, frame: AppendFrame, answer: Appended) -> None:
        """Each record got an LSN of its own, whatever this client's cluster file says of batching."""
        records = frame.message.records
        if frame.message.flags & _ATOMIC:
            detail = "the node knows no atomic batches: each record has an LSN of its own, and readers may see some without the others"
            self._fail(frame, Status.PROTO, maybe_applied=True, detail=detail)
            return
        if sum(run.records for run in answer.split) != records or epoch_of(answer.lsn + records - 1) != epoch_of(
            answer.lsn
        ):
            self._fail(frame, Status.PROTO, maybe_applied=True, detail="the answer does not fit the records")
            return
        self._accepted(frame)
        promises, lsn = iter(frame.promises), int(answer.lsn)
        for run in answer.split:
            copyset = tuple(run.copyset)
            safety = DURABILITY.get(run.durability, Durability.ASYNC)
            for promise in islice(promises, run.records):
                if not promise.done():
                    promise.set_result(Receipt(LSN(lsn), 0, run.timestamp, copyset, safety))
                lsn += 1

    def _accepted(self, frame: AppendFrame) -> None:
        message = frame.message
        self._remove(frame)
        self._logs[message.log].pauses = None
        self._metrics.records_appended += message.records

    def _fail(self, frame: AppendFrame, status: Status, *, maybe_applied: bool, detail: str = "") -> None:
        maybe_applied = maybe_applied or frame.unknown or bool(frame.message.previous_lsn)
        self._failed(frame, maybe_applied=maybe_applied)
        for promise in frame.promises:
            if status is Status.THROTTLED:
                log_name = f"log {self._routes.config.log_name(frame.message.log)}"
                break_(promise, throttled_error(log_name, frame.retry_after_us, maybe_applied=maybe_applied))
            else:
                break_(promise, LogDeviceError(status, detail, maybe_applied=maybe_applied))

    def _failed(self, frame: AppendFrame, *, maybe_applied: bool) -> None:
        message = frame.message
        self._remove(frame)
        if maybe_applied:
            self._metrics.appends_of_unknown_outcome += message.records
        else:
            self._metrics.appends_failed += message.records

    def _fail_explained(self, frame: AppendFrame, status: Status, now: Micros, *, maybe_applied: bool) -> None:
        log = frame.message.log
        told = self._inquiries.told(log, frame.node, frame.began, now)
        if frame.state is FrameState.SENT and not self._routes.view.is_alive(frame.node):
            told = f"N{frame.node} counts as dead" + (f"; {told}" if told else "")
        why = frame.explain(status, now, self._routes.epoch(log), self._links, told)
        self._fail(frame, status, maybe_applied=maybe_applied, detail=why)

    def _remove(self, frame: AppendFrame) -> None:
        if frame.state is FrameState.HELD:
            held = self._logs[frame.message.log].held
            if frame in held:
                held.remove(frame)
        frame.state = FrameState.DONE
        del self._frames[frame.message.request_id]
        self._logs[frame.message.log].in_flight -= 1

    # Time

    def _arm(self, now: Micros) -> None:
        if self._sweep is None and self._frames:
            self._sweep = self._timers.at(now + self._settings.sweep_us, self._look)

    def _look(self, now: Micros) -> None:
        """Fail what is out of time, and ask about what is unanswered."""
        self._sweep = None
        unanswered: dict[tuple[LogId, NodeId], AppendFrame] = {}
        for frame in list(self._frames.values()):
            if frame.deadline <= now:
                self._expire(frame, now)
            elif self._is_lost(frame, now):
                self._abandon(frame, now)
            elif frame.state is FrameState.SENT and now - frame.probed_at >= self._settings.unanswered_us:
                unanswered.setdefault((frame.message.log, frame.node), frame)
                frame.probed_at = now
                frame.probes += 1
        for (log, node), frame in unanswered.items():
            self.probe(log, node, frame.probes - 1, now)
        self._arm(now)

    def _expire(self, frame: AppendFrame, now: Micros) -> None:
        if frame.state is FrameState.HELD:
            self._fail_explained(frame, frame.status, now, maybe_applied=False)
        elif self._links.withdraw(PeerId(frame.node), frame.message):
            self._fail_explained(frame, Status.CONNFAILED, now, maybe_applied=False)
        else:
            self._fail_explained(frame, Status.TIMEDOUT, now, maybe_applied=True)

    def _is_lost(self, frame: AppendFrame, now: Micros) -> bool:
        """Whether a frame was sent so long ago to a node that counts as dead that no answer will come. A node that is cut off takes others for dead that live."""
        view = self._routes.view
        return (
            frame.state is FrameState.SENT
            and now - frame.sent_at >= self._settings.silence_us
            and not view.is_alive(frame.node)
            and not view.hears_no_witness()
        )

    def _abandon(self, frame: AppendFrame, now: Micros) -> None:
        """Wait no longer for a node from which no answer will come."""
        if self._leave(frame, now):
            return
        marks.hit("client_append_abandons_dead_node")
        if frame.guard is not None and frame.guard.alone:
            frame.refused(Status.TIMEDOUT)
            self._repeat(frame, now)
        else:
            self._fail_explained(frame, Status.TIMEDOUT, now, maybe_applied=True)

    def probe(self, log: LogId, silent: NodeId, round_: int, now: Micros) -> None:
        """Ask another node where the log is. It also tells the state of the cluster; the append itself goes on waiting. The silent node is asked what
        it waits for."""
        self._inquiries.ask(log, silent, now)
        self._routes.look_further(log, self._links)
        node = self._routes.other_node(log, silent, round_)
        if node is None:
            return
        marks.hit("client_append_probe")
        self._metrics.probes_sent += 1
        if len(self._probes) == _PROBES_MAX:
            self._requests.forget(self._probes.popleft())
        request_id = self._requests.ask(PeerId(node), SeqState, partial(self._on_probe_answer, log, node))
        self._probes.append(request_id)
        self._links.send(PeerId(node), GetSeqState(request_id=request_id, log=log, flags=0, min_epoch=epoch_of(0)))

    @property
    def in_flight(self) -> int:
        """Frames neither acknowledged nor failed."""
        return len(self._frames)


def _end_turn(now: Micros) -> None:
    """A turn ends after a timer: that is all."""
