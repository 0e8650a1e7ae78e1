"""What applications ask the sequencer of a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from client.append.router import Routes
from client.append.seq_state_request import NoAnswer, SeqStateRequests
from client.look_up.answers import LogTail
from client.look_up.segments import EpochInProgress
from client.promise import Promise, break_, keep
from client.sequencer_state import SequencerState
from client.settings import ClientSettings
from logdevice_py.core.epoch_summary import EpochCounts
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import CorruptEntryError, LogDeviceError
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import SeqState, SeqStateFlags

_TAIL = int(SeqStateFlags.TAIL)


class SequencerQuestions:
    """Asks whoever sequences a log, which activates one that nobody sequences, and gives a promise what was asked for.

    All may fail with TIMEDOUT, AGAIN, DISABLED or what else the sequencer's node answered: retriable as the error says, and never applied.
    """

    def __init__(self, questions: SeqStateRequests, routes: Routes, settings: ClientSettings) -> None:
        self._questions = questions
        self._routes = routes
        self._settings = settings

    def tail_lsn(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """The last LSN that can be read at present, `LSN`: nothing acknowledged before this call lies above it."""
        self._ask(log, promise, now, timeout_us, "tail", lambda answer, node: LSN(answer.last_released), flags=_TAIL)

    def tail_record(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """Where the log ends, `LogTail`."""
        self._ask(log, promise, now, timeout_us, "tail", _tail_of, flags=_TAIL)

    def log_end(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """Where the log ends, and what the epoch in progress holds, `EpochInProgress`."""
        self._ask(log, promise, now, timeout_us, "tail", _end_of, flags=_TAIL)

    def state(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """Who sequences the log and how far it is, `SequencerState`."""
        self._ask(log, promise, now, timeout_us, "sequencer", _state_of)

    def _ask(
        self,
        log: LogId,
        promise: Promise,
        now: Micros,
        timeout_us: int | None,
        what: str,
        value_of: Callable[[SeqState, NodeId], Any],
        *,
        flags: int = 0,
    ) -> None:
        """The promise gets `value_of` the answer and the node that gave it, or an error that names what was asked for."""
        timeout = self._settings.request_timeout_us if timeout_us is None else timeout_us

        def answered(answer: SeqState | NoAnswer, at: Micros) -> None:
            if isinstance(answer, NoAnswer):
                text = f"{what} of log {log}: {answer.why}"
                break_(promise, LogDeviceError(answer.status, text, maybe_applied=False))
            else:
                keep(promise, value_of(answer, request.node))

        request = self._questions.ask(
            log, now, answered, flags=flags, min_epoch=self._routes.epoch(log), deadline=now + timeout
        )


def _end_of(answer: SeqState, node: NodeId) -> EpochInProgress:
    try:
        counts = EpochCounts.decode(answer.counts) if answer.counts else None
    except CorruptEntryError:
        counts = None
    return EpochInProgress(answer.epoch, answer.last_released, answer.tail_timestamp, counts)


def _tail_of(answer: SeqState, node: NodeId) -> LogTail:
    known = answer.tail_lsn > 0
    return LogTail(
        LSN(answer.last_released),
        LSN(answer.tail_lsn) if known else None,
        answer.tail_timestamp if known else None,
    )


def _state_of(answer: SeqState, node: NodeId) -> SequencerState:
    return SequencerState(node, answer.epoch, LSN(answer.last_released), LSN(answer.next_lsn))
