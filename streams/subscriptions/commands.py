"""Commands to the subscriptions: each a list of operations that are judged one by one, as bytes and as values."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from client.guards import Position
from client.replica.command_set import CommandField, CommandSet, ExpectedVersion, Flag, integer
from client.replica.commands import RESULT_BYTES_MAX, number_field
from logdevice_py.core.status import Status
from streams.fields import position_field

NAME_BYTES_MAX: Final = 255
"""Of the name of a subscription, a stream or a member, in UTF-8."""
OPERATIONS_MAX: Final = RESULT_BYTES_MAX
"""In one command: the answer to each is a byte of its result."""
STREAMS_PER_OPERATION_MAX: Final = 1000
NONCE_BYTES: Final = 8
TTL_US_MAX: Final = 3600 * 1_000_000
LOG_MAX: Final = (1 << 62) - 1
TOKEN_MAX: Final = (1 << 62) - 1
_FORMAT: Final = 1


class OperationAnswer(enum.IntEnum):
    """What an operation came to: a byte of the result of its command."""

    OK = 0
    NOTFOUND = 1  # there is no such subscription, stream or member
    VERSION_MISMATCH = 2  # the checkpoint, or the number of heartbeats, is another one than expected
    FALLS = 3  # the position is below the committed one
    FENCED = 4  # the stream belongs to a member, and the token is not that of its assignment
    EXISTS = 5  # the group has the stream with another log
    NOTEMPTY = 6  # it is in use: members, or a stream of the group
    NOSPC = 7  # the state is full
    NO_HEIR = 8  # nobody is to get the stream


STATUS_OF: Final[dict[OperationAnswer, Status]] = {
    OperationAnswer.OK: Status.OK,
    OperationAnswer.NOTFOUND: Status.NOTFOUND,
    OperationAnswer.VERSION_MISMATCH: Status.VERSION_MISMATCH,
    OperationAnswer.FALLS: Status.STALE,
    OperationAnswer.FENCED: Status.FENCED,
    OperationAnswer.EXISTS: Status.EXISTS,
    OperationAnswer.NOTEMPTY: Status.NOTEMPTY,
    OperationAnswer.NOSPC: Status.NOSPC,
    OperationAnswer.NO_HEIR: Status.CONFLICT,
}


def name_field(value: Any) -> str:
    """A name; ValueError when it is none."""
    if type(value) is not str or not 0 < len(value.encode(errors="surrogatepass")) <= NAME_BYTES_MAX:
        raise ValueError(f"a name of 1 to {NAME_BYTES_MAX} bytes expected")
    return value


def nonce_field(value: Any) -> bytes:
    """What tells members of one name apart; ValueError when it is something else."""
    if type(value) is not bytes or len(value) != NONCE_BYTES:
        raise ValueError(f"{NONCE_BYTES} bytes expected")
    return value


def _name_or_none(value: Any) -> str | None:
    return None if value is None else name_field(value)


def _names(value: Any) -> list[str]:
    return [name_field(each) for each in _some(value)]


def _streams(value: Any) -> list[tuple[str, int]]:
    rows = [(name_field(stream), number_field(log, 1, LOG_MAX)) for stream, log in _some(value)]
    if len(dict(rows)) != len(rows):
        raise ValueError("a stream is named twice")
    return rows


def _some(value: Any) -> list[Any]:
    if type(value) is not list or not 0 < len(value) <= STREAMS_PER_OPERATION_MAX:
        raise ValueError(f"1 to {STREAMS_PER_OPERATION_MAX} streams expected")
    return value


Name: TypeAlias = Annotated[str, CommandField(name_field)]
Nonce: TypeAlias = Annotated[bytes, CommandField(nonce_field)]


@dataclass(frozen=True, slots=True)
class Commit:
    """All records of a stream up to this one are handled."""

    VERB: ClassVar[int] = 1
    subscription: Name
    stream: Name
    position: Annotated[Position, CommandField(position_field, tuple, places=2)]
    expect: ExpectedVersion = None
    """The version of the checkpoint that is replaced; `NOTHING`: there is none; None: any."""
    token: Annotated[int, integer(0, TOKEN_MAX)] = 0
    """Of the assignment of the stream to a member; 0: none."""
    reset: Flag = False
    """The position may fall. Without a token the stream's owner begins anew there, with another token."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the checkpoint of a stream, or a subscription with all its checkpoints and streams."""

    VERB: ClassVar[int] = 2
    subscription: Name
    stream: Annotated[str | None, CommandField(_name_or_none)] = None
    """None: the subscription."""
    expect: ExpectedVersion = None
    """The version of the checkpoint; None: any."""


@dataclass(frozen=True, slots=True)
class AddStreams:
    """Give streams to a group; those that it has with the same log stay as they are."""

    VERB: ClassVar[int] = 3
    subscription: Name
    streams: Annotated[Sequence[tuple[str, int]], CommandField(_streams)]
    """Names and logs."""


@dataclass(frozen=True, slots=True)
class RemoveStreams:
    """Take streams from a group: what their owners handle can no longer be committed. Checkpoints stay."""

    VERB: ClassVar[int] = 4
    subscription: Name
    streams: Annotated[Sequence[str], CommandField(_names)]


@dataclass(frozen=True, slots=True)
class Join:
    """A member joins; an earlier one of the same name is replaced."""

    VERB: ClassVar[int] = 5
    subscription: Name
    member: Name
    nonce: Nonce
    """Tells it from others of the same name."""
    ttl_us: Annotated[int, integer(1, TTL_US_MAX)]
    """Whoever saw no heartbeat of it for so long may expel it."""
    handover_us: Annotated[int, integer(0, TTL_US_MAX)]
    """How long it may take to finish a stream that another member is to get."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A member lives."""

    VERB: ClassVar[int] = 6
    subscription: Name
    member: Name
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class Leave:
    """A member leaves."""

    VERB: ClassVar[int] = 7
    subscription: Name
    member: Name
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class Expel:
    """A member leaves, if it has made no heartbeat since this one."""

    VERB: ClassVar[int] = 8
    subscription: Name
    member: Name
    nonce: Nonce
    beat: Annotated[int, integer(0, TOKEN_MAX)]


@dataclass(frozen=True, slots=True)
class HandOver:
    """An assignment ends, and the heir gets the stream."""

    VERB: ClassVar[int] = 9
    subscription: Name
    stream: Name
    token: Annotated[int, integer(1, TOKEN_MAX)]
    forced: Flag = False
    """By the heir, after the time that the owner had. False: by the owner, who gets the stream again when there is no heir."""


Operation: TypeAlias = Commit | Delete | AddStreams | RemoveStreams | Join | Beat | Leave | Expel | HandOver

COMMANDS: Final = CommandSet[Operation]("subscriptions", _FORMAT, Operation)


def encode(operations: Sequence[Operation]) -> bytes:
    """The body of a command."""
    return COMMANDS.encode_list(operations)


def decode(data: bytes) -> list[Operation]:
    """From `encode`; CommandRefused for anything else."""
    return COMMANDS.decode_list(data, OPERATIONS_MAX)
