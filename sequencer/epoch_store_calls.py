"""Requests to the epoch store and who waits for their answers."""

from __future__ import annotations

from collections.abc import Callable

from epoch_store.interface import EpochStoreRequest, Operation, Result
from logdevice_py.core import marks
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.units import Micros
from sequencer.settings import SequencerSettings

EpochStoreAnswer = Callable[[Result | None, Micros], None]
"""Called with the result of an operation of the epoch store, or None when no answer came in time: it may have been applied."""


class EpochStoreCalls:
    """The open requests of one node. They expire in the order in which they were made, so one timer serves all."""

    __slots__ = ("_outbox", "_settings", "_timers", "_tokens", "_waiting")

    def __init__(self, settings: SequencerSettings, outbox: Outbox, timers: TimerQueue) -> None:
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._tokens = 0
        self._waiting: dict[int, tuple[int, EpochStoreAnswer]] = {}

    @property
    def latest_token(self) -> int:
        """Of the request made last. Tokens ascend, so one above this belongs to a request that is yet to be made."""
        return self._tokens

    def use_settings(self, settings: SequencerSettings) -> None:
        """Go on with other settings; what was begun keeps its times."""
        self._settings = settings

    def submit(self, operation: Operation, answer: EpochStoreAnswer, now: Micros) -> int:
        """Run `operation`; `answer` is called exactly once, after `epoch_store_timeout_us` at the latest. Returns the token."""
        token = self.next_token()
        deadline = now + self._settings.epoch_store_timeout_us
        if not self._waiting:
            self._timers.at(deadline, self._on_deadline)
        self._waiting[token] = (deadline, answer)
        self._outbox.emit(EpochStoreRequest(token, operation))
        return token

    def next_token(self) -> int:
        """A token for an `EpochStoreRequest` that somebody else puts out."""
        self._tokens += 1
        return self._tokens

    def on_result(self, token: int, result: Result, now: Micros) -> None:
        """The epoch store answered; ignored when nobody waits any more."""
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            waiting[1](result, now)

    def _on_deadline(self, now: Micros) -> None:
        expired = []
        for token, (deadline, answer) in self._waiting.items():
            if deadline > now:
                break
            expired.append((token, answer))
        for token, _ in expired:
            del self._waiting[token]
        if self._waiting:
            self._timers.at(next(iter(self._waiting.values()))[0], self._on_deadline)
        for _, answer in expired:
            marks.hit("epoch_store_silent")
            answer(None, now)
