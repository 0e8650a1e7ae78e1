"""A state with what makes its commands idempotent: its version, and the memory of requests. All of it follows from the log of commands alone.

Rules, which `docs/decisions/0010-replicated-state-machines.md` gives reasons for:

1. Remembered: a request that is in the memory is not applied again.
2. Forgotten: one with a base below the horizon is refused, as it may be one that was forgotten.
3. Honest: a base at or behind the position of the command itself is no base; such a command is none.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

import msgpack

from client.read.items import CorruptRecord, Record
from client.replica.commands import (
    NOTHING,
    RESULT_BYTES_MAX,
    CommandOutcome,
    CommandRefused,
    RequestId,
    StateVersion,
    decode_command,
    number_field,
    unique_field,
    unpack_array,
    version_field,
)
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp

REQUESTS_MAX: Final = 4096
"""That are remembered. The same for all replicas of all versions of this program: what is applied depends on it."""
_FORMAT: Final = 1
_COMMANDS_MAX: Final = (1 << 63) - 1


class StateMachine(Protocol):
    """What applications keep in a log."""

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """Change the state and return a result of at most `RESULT_BYTES_MAX` bytes, or raise CommandRefused and change nothing, for commands too
        that nobody of this application wrote. What happens depends on the state and the arguments alone: no clock, no file, no order of a set.

        Args:
            at: the position of the command.
            time: its timestamp, given by the sequencer: the same for all replicas, and not in order.
        """

    def encode(self) -> bytes:
        """For a snapshot: equal states have equal bytes."""


T = TypeVar("T", bound=StateMachine)


@dataclass(frozen=True, slots=True)
class StateKind(Generic[T]):
    """One kind of state machine."""

    name: str
    """In every record: those of other kinds are skipped."""
    empty: Callable[[], T]
    """Makes a state before its first command."""
    decode: Callable[[bytes], T]
    """From `StateMachine.encode`; raises ValueError for anything else."""


class CommandFate(enum.Enum):
    """What became of one record of a log of commands."""

    JUDGED = enum.auto()  # applied, or refused by the state; remembered
    REPEATED = enum.auto()  # the request was judged before
    TOO_OLD = enum.auto()  # the request may have been judged and forgotten
    OTHER_KIND = enum.auto()  # it is no command of this kind of state
    KNOWN = enum.auto()  # the state has it already


class AppliedState(Generic[T]):
    """What a log of commands amounts to, up to some position."""

    def __init__(self, kind: StateKind[T]) -> None:
        self.kind = kind
        self.value = kind.empty()
        self.position = NOTHING
        """Of the last record that was taken."""
        self.commands = 0
        """Judged since the beginning."""
        self.horizon = NOTHING
        """Where the last request was judged that is forgotten."""
        self._outcomes: dict[bytes, CommandOutcome] = {}

    @property
    def version(self) -> Lsn:
        """All entries up to this one are taken whole; of the next one, records may be missing."""
        return Lsn(max(self.position.lsn - 1, LSN_INVALID))

    def outcome(self, request: RequestId) -> CommandOutcome | None:
        """What a request came to, if that is remembered."""
        return self._outcomes.get(request.unique)

    def is_forgotten(self, request: RequestId) -> bool:
        """Whether nobody knows any more what it came to, if it came to anything."""
        return request.base < self.horizon and request.unique not in self._outcomes

    def take(self, item: Record | CorruptRecord) -> tuple[CommandFate, RequestId | None]:
        """The next record of the log: what becomes of it, and whose request it is."""
        here = StateVersion(Lsn(item.lsn), item.batch_offset)
        if here <= self.position:
            return CommandFate.KNOWN, None
        self.position = here
        if isinstance(item, CorruptRecord):
            return CommandFate.OTHER_KIND, None
        try:
            request, body = decode_command(item.payload, self.kind.name)
        except CorruptEntryError:
            return CommandFate.OTHER_KIND, None
        if request.base >= here:
            return CommandFate.OTHER_KIND, None
        if request.unique in self._outcomes:
            hit("replica_command_is_repeated")
            return CommandFate.REPEATED, request
        if request.base < self.horizon:
            hit("replica_command_is_too_old")
            return CommandFate.TOO_OLD, request
        self._remember(request, self._judge(body, here, item.timestamp))
        return CommandFate.JUDGED, request

    def _judge(self, body: bytes, here: StateVersion, time: Timestamp) -> CommandOutcome:
        self.commands += 1
        try:
            result = self.value.apply(body, here, time)
        except CommandRefused as refusal:
            reason = str(refusal).encode(errors="replace")[:RESULT_BYTES_MAX].decode(errors="ignore")
            return CommandOutcome(here, applied=False, reason=reason)
        assert len(result) <= RESULT_BYTES_MAX, len(result)
        return CommandOutcome(here, applied=True, result=result)

    def _remember(self, request: RequestId, outcome: CommandOutcome) -> None:
        self._outcomes[request.unique] = outcome
        if len(self._outcomes) > REQUESTS_MAX:
            oldest = next(iter(self._outcomes))
            self.horizon = self._outcomes.pop(oldest).version

    # Snapshots

    def encode(self) -> bytes:
        """The bytes of a snapshot, before it is cut."""
        encoded: bytes = msgpack.packb(
            [
                _FORMAT,
                self.kind.name,
                *self.position,
                *self.horizon,
                self.commands,
                [
                    [unique, *each.version, each.applied, each.result or each.reason.encode()]
                    for unique, each in self._outcomes.items()
                ],
                self.value.encode(),
            ]
        )
        return encoded

    @classmethod
    def decode(cls, data: bytes, kind: StateKind[T]) -> AppliedState[T]:
        """From `encode`.

        Raises:
            CorruptEntryError: the bytes are no snapshot of this kind of state.
        """
        try:
            format_, name, lsn, offset, horizon_lsn, horizon_offset, commands, requests, value = unpack_array(data)
            if format_ != _FORMAT or name != kind.name or type(value) is not bytes:
                raise ValueError(f"a snapshot of {kind.name} in format {_FORMAT} expected")
            found = cls(kind)
            found.position = version_field(lsn, offset)
            found.horizon = version_field(horizon_lsn, horizon_offset)
            found.commands = number_field(commands, 0, _COMMANDS_MAX)
            found._outcomes = _outcomes(requests, found.horizon, found.position)
            found.value = kind.decode(value)
        except (ValueError, msgpack.UnpackException) as error:
            raise CorruptEntryError(f"this is no snapshot of {kind.name}: {error}") from None
        return found


def _outcomes(rows: Any, horizon: StateVersion, position: StateVersion) -> dict[bytes, CommandOutcome]:
    """The memory of requests, in the order in which they were judged."""
    if type(rows) is not list or len(rows) > REQUESTS_MAX:
        raise ValueError(f"an array of up to {REQUESTS_MAX} requests expected")
    found: dict[bytes, CommandOutcome] = {}
    last = horizon
    for row in rows:
        if type(row) is not list:
            raise ValueError("an array of arrays expected")
        unique, lsn, offset, applied, said = row
        version = version_field(lsn, offset)
        if not last < version <= position or type(applied) is not bool:
            raise ValueError("requests in order, each with a flag, expected")
        if type(said) is not bytes or len(said) > RESULT_BYTES_MAX:
            raise ValueError(f"a result of up to {RESULT_BYTES_MAX} bytes expected")
        found[unique_field(unique)] = (
            CommandOutcome(version, applied, said)
            if applied
            else CommandOutcome(version, applied, reason=said.decode())
        )
        last = version
    if len(found) != len(rows):
        raise ValueError("a request is listed twice")
    return found
