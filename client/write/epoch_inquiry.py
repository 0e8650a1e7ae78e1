"""What a write stream asks before it sends in an epoch: where its log is, and what an epoch that it leaves holds of it."""

from __future__ import annotations

from collections.abc import Callable

from client.append.seq_state_request import NoAnswer, SeqStateRequest
from client.write.context import StreamContext
from client.write.finder import FoundFrames, FrameSearch
from client.write.frame import StreamFrame
from logdevice_py.core.ids import LogId, NodeId, WriterId
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import SeqState

EpochKnown = Callable[[Epoch, NodeId, Micros], None]
"""Gets the epoch that the log is in, and the node of its sequencer."""


class EpochInquiry:
    """One question at a time. Whoever asked is called later, once, unless it is cancelled."""

    __slots__ = ("_context", "_failed", "_log", "_question", "_search", "min_epoch")

    def __init__(self, log: LogId, context: StreamContext, failed: Callable[[Status, str], None]) -> None:
        """
        Args:
            failed: called in place of whoever asked where the log is, when that cannot be told.
        """
        self.min_epoch = EPOCH_INVALID
        """Nothing is sent in an epoch below."""
        self._log = log
        self._context = context
        self._failed = failed
        self._question: SeqStateRequest | None = None
        self._search: FrameSearch | None = None

    @property
    def asks(self) -> bool:
        """Where the log is, at this moment."""
        return self._question is not None

    def waiting_for(self, now: Micros) -> str | None:
        """Why there is no answer yet, for people; None: nothing is asked."""
        if self._question is not None:
            return self._question.waits_for(now)
        return None if self._search is None else self._search.waiting_for()

    def ask(self, known: EpochKnown, now: Micros, *, at_least: Epoch, flags: int = 0) -> None:
        """Where the log is.

        Args:
            at_least: the log moves on when it is below.
            flags: of `SeqStateFlags`.
        """

        def answered(answer: SeqState | NoAnswer, at: Micros) -> None:
            question, self._question = self._question, None
            assert question is not None
            if isinstance(answer, NoAnswer):
                self._failed(answer.status, answer.why)
            else:
                known(answer.epoch, question.node, at)

        self._question = self._context.questions.ask(self._log, now, answered, flags=flags, min_epoch=at_least)

    def read(
        self,
        writer: WriterId,
        first: Lsn,
        until: Lsn,
        frames: list[StreamFrame],
        found: Callable[[FoundFrames, Micros], None],
        now: Micros,
    ) -> None:
        """Look for frames of unknown outcome in a range that is recovered."""

        def done(result: FoundFrames, at: Micros) -> None:
            self._search = None
            found(result, at)

        contents = {frame.sequence: frame.content for frame in frames}
        self._search = self._context.finder.find(self._log, writer, first, until, contents, done, now)

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        if self._question is not None:
            self._question.cancel()
        if self._search is not None:
            self._search.cancel()
