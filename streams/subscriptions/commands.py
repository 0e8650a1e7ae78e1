"""Commands to the subscriptions: each a list of operations that are judged one by one, as bytes and as values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import msgpack

from client.guards import Position
from client.replica.commands import (
    RESULT_BYTES_MAX,
    StateVersion,
    expected_field,
    flag_field,
    number_field,
    refuse,
)
from logdevice_py.core.status import Status
from logdevice_py.core.unpacking import check_complete
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


@dataclass(frozen=True, slots=True)
class Commit:
    """All records of a stream up to this one are handled."""

    VERB: ClassVar[int] = 1
    subscription: str
    stream: str
    position: Position
    expect: StateVersion | None = None
    """The version of the checkpoint that is replaced; `NOTHING`: there is none; None: any."""
    token: int = 0
    """Of the assignment of the stream to a member; 0: none."""
    reset: bool = False
    """The position may fall. Without a token the stream's owner begins anew there, with another token."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the checkpoint of a stream, or a subscription with all its checkpoints and streams."""

    VERB: ClassVar[int] = 2
    subscription: str
    stream: str | None = None
    """None: the subscription."""
    expect: StateVersion | None = None
    """The version of the checkpoint; None: any."""


@dataclass(frozen=True, slots=True)
class AddStreams:
    """Give streams to a group; those that it has with the same log stay as they are."""

    VERB: ClassVar[int] = 3
    subscription: str
    streams: Sequence[tuple[str, int]]
    """Names and logs."""


@dataclass(frozen=True, slots=True)
class RemoveStreams:
    """Take streams from a group: what their owners handle can no longer be committed. Checkpoints stay."""

    VERB: ClassVar[int] = 4
    subscription: str
    streams: Sequence[str]


@dataclass(frozen=True, slots=True)
class Join:
    """A member joins; an earlier one of the same name is replaced."""

    VERB: ClassVar[int] = 5
    subscription: str
    member: str
    nonce: bytes
    """Tells it from others of the same name."""
    ttl_us: int
    """Whoever saw no heartbeat of it for so long may expel it."""
    handover_us: int
    """How long it may take to finish a stream that another member is to get."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A member lives."""

    VERB: ClassVar[int] = 6
    subscription: str
    member: str
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Leave:
    """A member leaves."""

    VERB: ClassVar[int] = 7
    subscription: str
    member: str
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Expel:
    """A member leaves, if it has made no heartbeat since this one."""

    VERB: ClassVar[int] = 8
    subscription: str
    member: str
    nonce: bytes
    beat: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """An assignment ends, and the heir gets the stream."""

    VERB: ClassVar[int] = 9
    subscription: str
    stream: str
    token: int
    forced: bool = False
    """By the heir, after the time that the owner had. False: by the owner, who gets the stream again when there is no heir."""


Operation: TypeAlias = Commit | Delete | AddStreams | RemoveStreams | Join | Beat | Leave | Expel | HandOver


def encode(operations: Sequence[Operation]) -> bytes:
    """The body of a command."""
    packed: bytes = msgpack.packb([_FORMAT, [[each.VERB, *_fields(each)] for each in operations]])
    return packed


def _fields(operation: Operation) -> list[Any]:
    match operation:
        case Commit(name, stream, (lsn, offset), expect, token, reset):
            return [name, stream, int(lsn), offset, expect, token, reset]
        case Delete(name, stream, expect):
            return [name, stream, expect]
        case AddStreams(name, streams):
            return [name, [list(each) for each in streams]]
        case RemoveStreams(name, names):
            return [name, list(names)]
        case Join(name, member, nonce, ttl_us, handover_us):
            return [name, member, nonce, ttl_us, handover_us]
        case Beat(name, member, nonce) | Leave(name, member, nonce):
            return [name, member, nonce]
        case Expel(name, member, nonce, beat):
            return [name, member, nonce, beat]
        case HandOver(name, stream, token, forced):
            return [name, stream, token, forced]


def decode(data: bytes) -> list[Operation]:
    """From `encode`; CommandRefused for anything else."""
    try:
        check_complete(data)
        raw = msgpack.unpackb(data)
        if type(raw) is not list or len(raw) != 2 or raw[0] != _FORMAT:
            raise ValueError(f"a command of format {_FORMAT} expected")
        rows = raw[1]
        if type(rows) is not list or not 0 < len(rows) <= OPERATIONS_MAX:
            raise ValueError(f"1 to {OPERATIONS_MAX} operations expected")
        return [_decoded(*row) for row in rows]
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise refuse(Status.INVALID_PARAM, f"this is no command to subscriptions: {str(error)[:100]}") from None


def _decoded(verb: int, *fields: Any) -> Operation:
    return _READERS[verb](*fields)


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


def _rows(value: Any) -> list[Any]:
    if type(value) is not list or not 0 < len(value) <= STREAMS_PER_OPERATION_MAX:
        raise ValueError(f"1 to {STREAMS_PER_OPERATION_MAX} streams expected")
    return value


def _commit(name: Any, stream: Any, lsn: Any, offset: Any, expect: Any, token: Any, reset: Any) -> Commit:
    return Commit(
        name_field(name),
        name_field(stream),
        position_field(lsn, offset),
        expected_field(expect),
        number_field(token, 0, TOKEN_MAX),
        flag_field(reset),
    )


def _delete(name: Any, stream: Any, expect: Any) -> Delete:
    return Delete(name_field(name), None if stream is None else name_field(stream), expected_field(expect))


def _add_streams(name: Any, streams: Any) -> AddStreams:
    rows = [(name_field(stream), number_field(log, 1, LOG_MAX)) for stream, log in _rows(streams)]
    if len(dict(rows)) != len(rows):
        raise ValueError("a stream is named twice")
    return AddStreams(name_field(name), rows)


def _remove_streams(name: Any, streams: Any) -> RemoveStreams:
    return RemoveStreams(name_field(name), [name_field(stream) for stream in _rows(streams)])


def _join(name: Any, member: Any, nonce: Any, ttl_us: Any, handover_us: Any) -> Join:
    ttl, handover = number_field(ttl_us, 1, TTL_US_MAX), number_field(handover_us, 0, TTL_US_MAX)
    return Join(name_field(name), name_field(member), nonce_field(nonce), ttl, handover)


def _beat(name: Any, member: Any, nonce: Any) -> Beat:
    return Beat(name_field(name), name_field(member), nonce_field(nonce))


def _leave(name: Any, member: Any, nonce: Any) -> Leave:
    return Leave(name_field(name), name_field(member), nonce_field(nonce))


def _expel(name: Any, member: Any, nonce: Any, beat: Any) -> Expel:
    return Expel(name_field(name), name_field(member), nonce_field(nonce), number_field(beat, 0, TOKEN_MAX))


def _hand_over(name: Any, stream: Any, token: Any, forced: Any) -> HandOver:
    return HandOver(name_field(name), name_field(stream), number_field(token, 1, TOKEN_MAX), flag_field(forced))


_READERS: Final[dict[int, Callable[..., Operation]]] = {
    Commit.VERB: _commit,
    Delete.VERB: _delete,
    AddStreams.VERB: _add_streams,
    RemoveStreams.VERB: _remove_streams,
    Join.VERB: _join,
    Beat.VERB: _beat,
    Leave.VERB: _leave,
    Expel.VERB: _expel,
    HandOver.VERB: _hand_over,
}
