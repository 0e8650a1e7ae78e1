"""GET_SEQ_STATE: how far a log's sequencer is, waiting until it is as far as the request asks.

A request for the tail is answered when everything acknowledged before it came is released, and after it was made sure that nobody else had
taken the log over when it came: the epoch store is read once for all requests that came before the reading, and if it is silent, shards
are asked who sealed the log. An epoch that was taken after the request had come says as much as a reading.

Any number of requests may wait for a log, and anybody may send them. So nothing that happens often looks at all of them: a release looks at those that it
answers, an answer of the epoch store at those for which it was asked, a deadline at those that are over. What concerns all, such as another epoch, is
worked off in several turns.

Who may append can have a log moved to a later epoch (`min_epoch`), which ends appends under way. Of who may only read it is made sure in the same
way that there is such an epoch: where there is, its sequencer is elsewhere, and where there is not, the answer is STALE.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Final

from epoch_store.interface import ReadMetadata, Result
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, PeerId, is_client, is_internal_log
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_INVALID, Epoch, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.protocol.messages import GetSeqState, SeqState, SeqStateFlags
from sequencer.context import SequencerContext
from sequencer.frames import NO_NODE
from sequencer.seal_check import SealChecks
from sequencer.sequencer import Sequencer, SequencerPhase

_TAIL = int(SeqStateFlags.TAIL)
_WAIT_FOR_RECOVERY = int(SeqStateFlags.WAIT_FOR_RECOVERY)
_ONLY_READS = int(SeqStateFlags.ONLY_READS)
_STORE_METADATA = int(SeqStateFlags.STORE_METADATA)
_WIDEN = int(SeqStateFlags.WIDEN)
_LOOKS_MAX: Final = 500
"""Requests of one log that are looked at in a turn: to answer one takes some 10 us."""


@dataclass(slots=True, eq=False)
class WaitingSeqState:
    """One request that waits."""

    peer: PeerId
    request_id: int
    flags: int
    min_epoch: Epoch
    deadline: int
    acknowledged: Lsn
    """The greatest LSN of which a client was told when the request came."""
    came_after: int
    """Token of the request to the epoch store that had been made last by then."""
    verified: Epoch = EPOCH_INVALID
    """The epoch that was the latest of all when the request had come already."""
    reactivated: bool = False
    """An epoch was got for its sake; another one would not help."""


class _LogRequests:
    """What waits for one log."""

    __slots__ = ("asking", "looking", "unreleased", "unsure", "waiting")

    def __init__(self) -> None:
        self.waiting: OrderedDict[WaitingSeqState, None] = OrderedDict()
        """In the order in which they came, which is that of their deadlines."""
        self.unsure: OrderedDict[WaitingSeqState, None] = OrderedDict()
        """Those for which it was not certain, when they were looked at last, that the epoch is the latest."""
        self.looking: OrderedDict[WaitingSeqState, None] = OrderedDict()
        """Those that are to be looked at again."""
        self.unreleased: OrderedDict[WaitingSeqState, None] = OrderedDict()
        """Those before which something was acknowledged that was not released, in the order of that."""
        self.asking: list[WaitingSeqState] | None = None
        """The requests that the reading in progress serves; None when there is none."""

    def add(self, request: WaitingSeqState, sequencer: Sequencer) -> None:
        """A request waits, or goes on waiting."""
        self.waiting[request] = None
        if request.acknowledged > sequencer.last_released:
            self.unreleased[request] = None
        if _has_to_be_sure(request, sequencer.epoch):
            self.unsure[request] = None
        else:
            self.unsure.pop(request, None)

    def remove(self, request: WaitingSeqState) -> None:
        """A request waits no more."""
        del self.waiting[request]
        self.unsure.pop(request, None)
        self.unreleased.pop(request, None)

    def take_released(self, released: Lsn) -> list[WaitingSeqState]:
        """Those for which enough is released now."""
        found = list(takewhile(lambda request: request.acknowledged <= released, self.unreleased))
        for request in found:
            del self.unreleased[request]
        return found


class SeqStateService:
    """The waiting requests of all logs of a node."""

    __slots__ = ("_context", "_counts", "_logs", "_seal_checks", "_sequencers", "_timed")

    def __init__(self, context: SequencerContext, sequencers: dict[LogId, Sequencer]) -> None:
        self._context = context
        self._sequencers = sequencers
        self._logs: dict[LogId, _LogRequests] = {}
        self._timed: set[LogId] = set()
        """Logs with a timer for the next deadline."""
        self._counts = {False: 0, True: 0}
        """How many wait, for logs of users and for internal ones: a log of users may wait for what internal ones say."""
        self._seal_checks = SealChecks(context)

    def waiting(self, log: LogId) -> tuple[int, bool]:
        """How many requests wait for a log, and whether it is being asked for them who has the log; to look at."""
        requests = self._logs.get(log)
        return (0, False) if requests is None else (len(requests.waiting), requests.asking is not None)

    def logs(self) -> list[LogId]:
        """The logs for which requests wait, to look at."""
        return list(self._logs)

    def on_request(self, sequencer: Sequencer, peer: PeerId, message: GetSeqState, now: Micros) -> None:
        """A request that is served here."""
        if self._counts[is_internal_log(sequencer.log)] >= self._context.settings.sequencer_state_waiters:
            marks.hit("too_many_seq_state_requests")
            self.refuse(peer, message, Status.AGAIN)
            return
        current = sequencer.current
        acknowledged = compose_lsn(current.epoch, current.acknowledged) if current is not None else LSN_INVALID
        deadline = now + self._context.settings.sequencer_state_timeout_us
        asked = self._context.epoch_store.latest_token
        request = WaitingSeqState(
            peer, message.request_id, message.flags, message.min_epoch, deadline, acknowledged, asked
        )
        if self._answer_if_ready(sequencer, request, now):
            return
        requests = self._logs.get(sequencer.log)
        if requests is None:
            requests = self._logs[sequencer.log] = _LogRequests()
            sequencer.watched = True
        requests.add(request, sequencer)
        self._counts[is_internal_log(sequencer.log)] += 1
        self._await_deadline(sequencer.log, deadline)
        self._read_if_needed(sequencer, requests, now)

    def refuse(self, peer: PeerId, message: GetSeqState, status: Status, redirect: NodeId = NO_NODE) -> None:
        """Answer a request that is not served here."""
        self._send(None, peer, message.request_id, message.log, status, redirect)

    def on_changed(self, sequencer: Sequencer, now: Micros) -> None:
        """Epoch or state of a log changed, or its current epoch is released from here on: look at everything that waits."""
        requests = self._logs.get(sequencer.log)
        if requests is not None:
            self._look(sequencer, requests, requests.waiting, now)

    def on_more_released(self, sequencer: Sequencer, now: Micros) -> None:
        """The release pointer went on within the current epoch: look at what waits for that."""
        requests = self._logs.get(sequencer.log)
        if requests is not None:
            self._look(sequencer, requests, requests.take_released(sequencer.last_released), now)

    def _look(self, sequencer: Sequencer, requests: _LogRequests, some: Iterable[WaitingSeqState], now: Micros) -> None:
        """Answer those of some requests that can be answered."""
        is_looking = bool(requests.looking)
        requests.looking.update(dict.fromkeys(some))
        if not is_looking:
            self._go_on(sequencer.log, requests, now)

    def _go_on(self, log: LogId, requests: _LogRequests, now: Micros) -> None:
        """Look at as many as one turn may."""
        sequencer = self._sequencers.get(log)
        if sequencer is None or self._logs.get(log) is not requests:
            return
        for request in list(islice(requests.looking, _LOOKS_MAX)):
            del requests.looking[request]
            if request not in requests.waiting:
                continue
            if self._answer_if_ready(sequencer, request, now):
                requests.remove(request)
                self._counts[is_internal_log(log)] -= 1
            else:
                requests.add(request, sequencer)
        if requests.looking:
            marks.hit("seq_states_go_on_next_turn")
            self._context.timers.at(
                now + 1, partial(self._go_on, log, requests)
            )  # what is due now belongs to this turn
        self._read_if_needed(sequencer, requests, now)
        self._forget_if_empty(sequencer, requests)

    def on_epoch_taken(self, sequencer: Sequencer, token: int) -> None:
        """The current epoch was taken from the epoch store by the request of that token: none was later at that moment."""
        requests = self._logs.get(sequencer.log)
        if requests is not None:
            for request in requests.waiting:
                if request.came_after < token:
                    request.verified = sequencer.epoch

    def on_unavailable(self, sequencer: Sequencer, status: Status, now: Micros) -> None:
        """Nothing that waits for the log will be served."""
        requests = self._logs.get(sequencer.log)
        if requests is None:
            return
        redirect = sequencer.preempted_by if status is Status.PREEMPTED else NO_NODE
        if status not in (Status.PREEMPTED, Status.NOTFOUND):
            status = Status.NOSEQUENCER
        for request in requests.waiting:
            self._send(None, request.peer, request.request_id, sequencer.log, status, redirect)
        self._counts[is_internal_log(sequencer.log)] -= len(requests.waiting)
        for requests_left in (requests.waiting, requests.unsure, requests.unreleased, requests.looking):
            requests_left.clear()
        requests.asking = None
        self._forget_if_empty(sequencer, requests)

    def _answer_if_ready(self, sequencer: Sequencer, request: WaitingSeqState, now: Micros) -> bool:
        current = sequencer.current
        if sequencer.state is SequencerPhase.REFUSED:
            self._send(None, request.peer, request.request_id, sequencer.log, Status.NOSEQUENCER, NO_NODE)
            return True
        if current is None or sequencer.state is not SequencerPhase.ACTIVE:
            sequencer.activate(now)
            return False
        if current.epoch < request.min_epoch and request.flags & _ONLY_READS:
            if request.verified != current.epoch:
                return False
            marks.hit("reader_asks_for_a_later_epoch")
            self._send(None, request.peer, request.request_id, sequencer.log, Status.STALE, NO_NODE)
            return True
        if current.epoch < request.min_epoch:
            if request.reactivated and sequencer.activation is None:
                marks.hit("min_epoch_never_given")
                self._send(None, request.peer, request.request_id, sequencer.log, Status.STALE, NO_NODE)
                return True
            request.reactivated = True
            sequencer.activate(now)
            return False
        if request.flags & (_TAIL | _WAIT_FOR_RECOVERY | _WIDEN) and not sequencer.is_released:
            return False
        if request.flags & _WIDEN and not is_client(request.peer):
            if sequencer.activation is not None:
                return False
            if not request.reactivated and sequencer.widen(now):
                marks.hit("sequencer_is_asked_for_wider_nodesets")
                request.min_epoch, request.reactivated = Epoch(current.epoch + 1), True
                return False
        if request.flags & _TAIL and (
            request.verified != current.epoch or sequencer.last_released < request.acknowledged
        ):
            return False
        if request.flags & _STORE_METADATA:
            sequencer.store_metadata_again(now)
        self._send(sequencer, request.peer, request.request_id, sequencer.log, Status.OK, NO_NODE)
        return True

    def _forget_if_empty(self, sequencer: Sequencer, requests: _LogRequests) -> None:
        if not requests.waiting and requests.asking is None:
            self._logs.pop(sequencer.log, None)
            sequencer.watched = False

    # Who has the log

    def _read_if_needed(self, sequencer: Sequencer, requests: _LogRequests, now: Micros) -> None:
        if (
            requests.asking is not None
            or sequencer.state is not SequencerPhase.ACTIVE
            or sequencer.activation is not None
        ):
            return
        epoch = sequencer.epoch
        unverified = list(requests.unsure)
        if not unverified:
            return
        requests.asking = unverified
        log = sequencer.log
        answered = partial(self._on_read, log, requests, unverified, epoch)
        self._context.epoch_store.submit(ReadMetadata(log), answered, now)
        self._context.timers.at(
            now + self._context.settings.tail_check_timeout_us, partial(self._on_silence, log, requests, unverified)
        )

    def _on_read(
        self,
        log: LogId,
        requests: _LogRequests,
        served: list[WaitingSeqState],
        epoch: Epoch,
        result: Result | None,
        now: Micros,
    ) -> None:
        """`epoch`: ours when the question was put."""
        if requests.asking is not served:
            return
        if result is not None and result.status is Status.OK:
            assert isinstance(result.value, EpochMetaData), result
            if result.value.given_epoch >= epoch:
                self._on_latest_epoch(log, requests, result.value, now)
                return
            marks.hit("epoch_store_behind_sequencer")  # it would say the same if it were asked again at once
        self._on_silence(log, requests, served, now)

    def _on_latest_epoch(self, log: LogId, requests: _LogRequests, metadata: EpochMetaData, now: Micros) -> None:
        served, requests.asking = requests.asking, None
        sequencer = self._sequencers.get(log)
        if sequencer is None or served is None:
            return
        if metadata.given_epoch == sequencer.epoch:
            self._are_sure(sequencer, requests, served, now)
            return
        if metadata.given_epoch > sequencer.epoch and sequencer.activation is None:
            if metadata.writer == self._context.node:
                # The answer to an earlier activation was lost; nobody uses that epoch, but only a later one proves it.
                sequencer.activate(now)
            else:
                sequencer.on_sealed(Epoch(metadata.given_epoch - 1), metadata.writer, now)
        self.on_changed(sequencer, now)

    def _on_silence(self, log: LogId, requests: _LogRequests, served: list[WaitingSeqState], now: Micros) -> None:
        if requests.asking is not served:
            return
        sequencer = self._sequencers.get(log)
        if sequencer is None or sequencer.state is not SequencerPhase.ACTIVE:
            requests.asking = None
            return
        marks.hit("tail_checked_by_seals")
        requests.asking = checked = list(served)
        self._seal_checks.start(sequencer, partial(self._on_seals, log, requests, checked, sequencer.epoch), now)

    def _on_seals(
        self,
        log: LogId,
        requests: _LogRequests,
        served: list[WaitingSeqState],
        epoch: Epoch,
        unsealed: bool,
        now: Micros,
    ) -> None:
        """`unsealed`: no later sequencer has stored anything. Otherwise the sequencer was told, or nothing is known."""
        if requests.asking is not served:
            return
        requests.asking = None
        sequencer = self._sequencers.get(log)
        if sequencer is None:
            return
        if unsealed and sequencer.epoch == epoch:
            self._are_sure(sequencer, requests, served, now)
            return
        if sequencer.epoch == epoch:
            return  # those that wait are answered AGAIN at their deadline: asking at once would only repeat the silence
        self.on_changed(sequencer, now)

    def _are_sure(
        self, sequencer: Sequencer, requests: _LogRequests, served: Iterable[WaitingSeqState], now: Micros
    ) -> None:
        """The present epoch was the latest when these requests had come."""
        for request in served:
            request.verified = sequencer.epoch
            requests.unsure.pop(request, None)
        self._look(sequencer, requests, served, now)

    # Answers

    def _await_deadline(self, log: LogId, deadline: int) -> None:
        if log not in self._timed:
            self._timed.add(log)
            self._context.timers.at(deadline, partial(self._on_deadline, log))

    def _on_deadline(self, log: LogId, now: Micros) -> None:
        self._timed.discard(log)
        requests = self._logs.get(log)
        if requests is None:
            return
        while requests.waiting and (request := next(iter(requests.waiting))).deadline <= now:
            marks.hit("seq_state_deadline")
            requests.remove(request)
            self._counts[is_internal_log(log)] -= 1
            self._send(None, request.peer, request.request_id, log, Status.AGAIN, NO_NODE)
        if requests.waiting:
            self._await_deadline(log, next(iter(requests.waiting)).deadline)
            return
        requests.asking = None
        sequencer = self._sequencers.get(log)
        if sequencer is not None:
            self._forget_if_empty(sequencer, requests)
        else:
            del self._logs[log]

    def _send(
        self,
        sequencer: Sequencer | None,
        peer: PeerId,
        request_id: int,
        log: LogId,
        status: Status,
        redirect: NodeId,
    ) -> None:
        current = sequencer.current if sequencer is not None else None
        self._context.outbox.send(
            peer,
            SeqState(
                request_id=request_id,
                log=log,
                status=status,
                redirect=redirect,
                epoch=current.epoch if current is not None else EPOCH_INVALID,
                last_released=sequencer.last_released if sequencer is not None else LSN_INVALID,
                next_lsn=current.next_lsn if current is not None else LSN_INVALID,
                tail_lsn=sequencer.tail_lsn if sequencer is not None else LSN_INVALID,
                tail_timestamp=sequencer.tail_timestamp if sequencer is not None else Timestamp(0),
                counts=b"" if current is None or current.lng_counts is None else current.lng_counts.encode(),
            ),
        )


def _has_to_be_sure(request: WaitingSeqState, epoch: Epoch) -> bool:
    """Whether a request waits for it to be certain that an epoch is the latest."""
    if request.verified == epoch:
        return False
    return bool(request.flags & _TAIL) or (bool(request.flags & _ONLY_READS) and request.min_epoch > epoch)
