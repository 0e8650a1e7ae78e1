"""Operations of one process that wait to be proposed: many of them become one command, and of the commits of one stream the latest.

Rules:

1. One command at a time: operations are applied in the order in which they were added.
2. Merged: a commit replaces the one before it of the same stream that still waits, when neither says what it expects, both have the same token, the
   position does not fall, and nothing but commits was added between them: it moves to the place of the earlier one. Both have the outcome of the later one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from client.promise import Promise, break_, keep
from client.replica.commands import CommandOutcome, StateVersion
from logdevice_py.core.status import LogDeviceError, Status
from streams.subscriptions.commands import OPERATIONS_MAX, Commit, Operation, OperationAnswer, encode

BYTES_MAX: Final = 256 << 10
"""Of a command, about."""
WAITING_MAX: Final = 100_000
"""Operations in a queue."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What an operation came to."""

    answer: OperationAnswer
    version: StateVersion
    """Of the command in which it was."""


@dataclass(slots=True, eq=False)
class _Waiting:
    operation: Operation
    promises: list[Promise] = field(default_factory=list)


class OperationQueue:
    """The operations of one process."""

    def __init__(self) -> None:
        self.operations = 0
        """That were added."""
        self.merged = 0
        """Commits that a later one replaced."""
        self.commands = 0
        """That were made of them."""
        self._waiting: dict[int, _Waiting] = {}
        """By number, in the order of adding."""
        self._last: dict[tuple[str, str], int] = {}
        """The number of the last commit of each stream that a later one may replace."""
        self._under_way: list[_Waiting] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """No command is under way."""
        return not self._under_way

    def add(self, operation: Operation, promise: Promise | None) -> None:
        """The promise gets what the operation came to, as `Judged`.

        Raises:
            LogDeviceError: NOBUFS: too many wait.
        """
        if len(self._waiting) >= WAITING_MAX:
            raise LogDeviceError(Status.NOBUFS, f"{WAITING_MAX} operations wait for the log of commands")
        self.operations += 1
        promises = [] if promise is None else [promise]
        if type(operation) is Commit:
            stream = (operation.subscription, operation.stream)
            before = self._waiting.get(self._last.get(stream, 0))
            if before is not None and _merges(before.operation, operation):
                self.merged += 1
                before.operation = operation
                before.promises += promises
                return
            self._last[stream] = self.operations
        else:
            self._last.clear()
        self._waiting[self.operations] = _Waiting(operation, promises)

    def next_command(self) -> bytes:
        """A command of what waits; `settle` or `fail` says what came of it. Something waits, and no command is under way."""
        assert self._waiting
        assert not self._under_way
        size = 0
        for number, waiting in list(self._waiting.items()):
            size += _size(waiting.operation)
            if self._under_way and (size > BYTES_MAX or len(self._under_way) >= OPERATIONS_MAX):
                break
            del self._waiting[number]
            self._under_way.append(waiting)
            if type(waiting.operation) is Commit:
                stream = (waiting.operation.subscription, waiting.operation.stream)
                if self._last.get(stream) == number:
                    del self._last[stream]
        self.commands += 1
        return encode([waiting.operation for waiting in self._under_way])

    def settle(self, outcome: CommandOutcome) -> None:
        """The command was judged."""
        under_way, self._under_way = self._under_way, []
        for waiting, answer in zip(under_way, outcome.result, strict=True):
            judged = Judged(OperationAnswer(answer), outcome.version)
            for promise in waiting.promises:
                keep(promise, judged)

    def fail(self, error: BaseException) -> None:
        """What came of the command is not known, or nothing."""
        under_way, self._under_way = self._under_way, []
        for waiting in under_way:
            for promise in waiting.promises:
                break_(promise, error)

    def fail_all(self, error: BaseException) -> None:
        """Nothing that waits is proposed any more."""
        self.fail(error)
        self._under_way, self._waiting = list(self._waiting.values()), {}
        self._last.clear()
        self.fail(error)


def _merges(before: Operation, after: Commit) -> bool:
    return (
        type(before) is Commit
        and before.expect is None
        and after.expect is None
        and not before.reset
        and not after.reset
        and before.token == after.token
        and before.position <= after.position
    )


def _size(operation: Operation) -> int:
    streams = getattr(operation, "streams", ())
    return 400 + 300 * len(streams)
