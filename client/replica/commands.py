"""The records of a log of commands, what a command came to, and the limits of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgpack

from logdevice_py.core.lsn import LSN_INVALID, LSN_MAX, Lsn, format_lsn
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.unpacking import check_complete

COMMAND_BYTES_MAX: Final = 512 << 10
"""Of the body of a command."""
RESULT_BYTES_MAX: Final = 256
"""Of what applying a command returns, and of the reason for which it was refused: both are remembered."""
NAME_BYTES_MAX: Final = 64
REQUEST_BYTES: Final = 16
OFFSET_MAX: Final = (1 << 32) - 1
_FORMAT: Final = 1
_OVERHEAD_MAX: Final = 256
T = TypeVar("T")


class StateVersion(NamedTuple):
    """The position of the last command of which a state knows. Equal versions of one log mean equal states."""

    lsn: Lsn
    offset: int
    """Among the records of the entry."""

    def __str__(self) -> str:
        return f"{format_lsn(self.lsn)}+{self.offset}"


NOTHING: Final = StateVersion(LSN_INVALID, 0)
"""Of a state before its first command."""


class RequestId(NamedTuple):
    """Names a change that somebody wants, however often its command is appended."""

    unique: bytes
    base: StateVersion
    """Its writer had applied so much before it appended the command for the first time."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """What a command came to: the same for every copy of it, and for every replica."""

    version: StateVersion
    """At which it was judged."""
    applied: bool
    """False: it was refused, and changed nothing."""
    result: bytes = b""
    """What applying it returned."""
    reason: str = ""
    """Why it was refused."""


class CommandRefused(Exception):
    """Raised by a state that does not apply a command, before it has changed anything; the text is the reason."""


def refuse(status: Status, text: str) -> CommandRefused:
    """A refusal that says its status; `refusal` takes it apart again."""
    return CommandRefused(f"{status.name}: {text}")


def refusal(reason: str) -> tuple[Status, str]:
    """Status and text of a refused command."""
    name, _, text = reason.partition(": ")
    return (Status[name], text) if name in Status.__members__ else (Status.INVALID_PARAM, reason)


def decode_snapshot(data: bytes, what: str, decoded: Callable[[Any], T]) -> T:
    """The state in the bytes of `StateMachine.encode`, which are msgpack.

    Args:
        what: the state, for whoever reads the error.
        decoded: makes the state; ValueError, TypeError, KeyError or CommandRefused for what is wrong.

    Raises:
        ValueError: it is something else.
    """
    try:
        check_complete(data)
        return decoded(msgpack.unpackb(data))
    except (TypeError, KeyError, CommandRefused, msgpack.UnpackException) as error:
        raise ValueError(f"this is no {what}: {error}") from None


def encode_command(kind: str, request: RequestId, body: bytes) -> bytes:
    """The bytes of a record."""
    unique, (lsn, offset) = request
    encoded: bytes = msgpack.packb([_FORMAT, kind, unique, lsn, offset, body])
    return encoded


def decode_command(data: bytes, kind: str) -> tuple[RequestId, bytes]:
    """From `encode_command`: the request and the body.

    Raises:
        CorruptEntryError: it is no command of this kind of state, or of another format.
    """
    if len(data) > COMMAND_BYTES_MAX + _OVERHEAD_MAX:
        raise CorruptEntryError(f"{len(data)} bytes are too many for a command")
    try:
        format_, name, unique, lsn, offset, body = unpack_array(data)
        if format_ != _FORMAT or name != kind or type(body) is not bytes or len(body) > COMMAND_BYTES_MAX:
            raise ValueError(f"a command of {kind} in format {_FORMAT} expected")
        request = RequestId(unique_field(unique), version_field(lsn, offset))
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"this is no command: {error}") from None
    return request, body


def unpack_array(data: bytes) -> list[Any]:
    """A msgpack array of numbers, texts, binaries and arrays, no larger than its bytes.

    Raises:
        ValueError, msgpack.UnpackException: it is something else.
    """
    check_complete(data)
    fields = msgpack.unpackb(data, max_str_len=NAME_BYTES_MAX, max_map_len=0, max_ext_len=0)
    if type(fields) is not list or not fields:
        raise ValueError("an array expected")
    return fields


def number_field(value: Any, lo: int, hi: int) -> int:
    """An integer within bounds; ValueError when it is none."""
    if type(value) is not int or not lo <= value <= hi:
        raise ValueError(f"an integer from {lo} to {hi} expected")
    return value


def version_field(lsn: Any, offset: Any) -> StateVersion:
    """A version; ValueError when it is none."""
    return StateVersion(Lsn(number_field(lsn, 0, LSN_MAX - 1)), number_field(offset, 0, OFFSET_MAX))


def expected_field(value: Any) -> StateVersion | None:
    """A version that something must still have; None: any. ValueError or TypeError when it is something else."""
    if value is None:
        return None
    lsn, offset = value
    return version_field(lsn, offset)


def flag_field(value: Any) -> bool:
    """A flag; ValueError when it is none."""
    if type(value) is not bool:
        raise ValueError("a flag expected")
    return value


def unique_field(value: Any) -> bytes:
    """The unique part of a request id; ValueError when it is none."""
    if type(value) is not bytes or len(value) != REQUEST_BYTES:
        raise ValueError(f"{REQUEST_BYTES} bytes expected")
    return value
