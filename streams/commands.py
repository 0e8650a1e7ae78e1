"""Commands to a namespace: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from client.guards import Position
from client.log_tree.commands import AttributesField
from client.replica.command_set import CommandField, CommandSet, ExpectedVersion, integer
from client.replica.commands import number_field
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN, LSN_MAX
from streams.fields import BEATS_MAX, LEASE_US_MAX, StreamLog, StreamNumber, owner_field, position_field
from streams.names import checked_name
from streams.upkeep.commands import UpkeepCommand

_FORMAT: Final = 1
StreamName: TypeAlias = Annotated[str, CommandField(checked_name)]
OwnerToken: TypeAlias = Annotated[int, integer(1, NUMBER_MAX)]
TokenOrNone: TypeAlias = Annotated[int, integer(0, NUMBER_MAX)]


def _last(value: Any) -> LSN:
    return LSN(number_field(value, 0, LSN_MAX - 1))  # 0: there is no record


@dataclass(frozen=True, slots=True)
class CreateStream:
    """Give a name to a new stream, which gets the next number. Its log is made after that."""

    VERB: ClassVar[int] = 1
    name: StreamName
    attributes: AttributesField = field(default_factory=dict)
    """Of the stream."""
    log_attributes: AttributesField = field(default_factory=dict)
    """Of its log, as the log tree keeps them."""


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """The log of a stream is made: the stream can be used."""

    VERB: ClassVar[int] = 2
    number: StreamNumber
    log: StreamLog


@dataclass(frozen=True, slots=True)
class RenameStream:
    """Give a stream a name that is free."""

    VERB: ClassVar[int] = 3
    name: StreamName
    to: StreamName
    expect: ExpectedVersion = None


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """Take the name from a stream. Its log is removed after that."""

    VERB: ClassVar[int] = 4
    name: StreamName
    expect: ExpectedVersion = None


@dataclass(frozen=True, slots=True)
class StreamDeleted:
    """The log of a stream that is being deleted is removed: nobody can write to it."""

    VERB: ClassVar[int] = 5
    number: StreamNumber


@dataclass(frozen=True, slots=True)
class TruncateStream:
    """Everything before a position is truncated."""

    VERB: ClassVar[int] = 6
    number: StreamNumber
    position: Annotated[Position, CommandField(position_field, tuple, places=2)]


@dataclass(frozen=True, slots=True)
class UntruncateStream:
    """Nothing is truncated that can still be read."""

    VERB: ClassVar[int] = 7
    number: StreamNumber


@dataclass(frozen=True, slots=True)
class EndStream:
    """The stream is to end: whoever sees it goes on with that."""

    VERB: ClassVar[int] = 8
    number: StreamNumber
    token: TokenOrNone = 0
    """Of the owner; 0: nobody may own it."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The log of a stream is ended, and holds no record above an LSN."""

    VERB: ClassVar[int] = 9
    number: StreamNumber
    last: Annotated[LSN, CommandField(_last)]


@dataclass(frozen=True, slots=True)
class AcquireStream:
    """Become the owner of a stream, with the next token, if the lease is as it was seen."""

    VERB: ClassVar[int] = 10
    number: StreamNumber
    owner: Annotated[str, CommandField(owner_field)]
    lease_us: Annotated[int, integer(1, LEASE_US_MAX)]
    """How long others wait for a sign of life before they take over."""
    token: TokenOrNone = 0
    """Of the owner that was seen; 0: there was none."""
    beats: Annotated[int, integer(0, BEATS_MAX)] = 0
    """Its signs of life so far."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """A sign of life of the owner."""

    VERB: ClassVar[int] = 11
    number: StreamNumber
    token: OwnerToken


@dataclass(frozen=True, slots=True)
class ReleaseStream:
    """The owner needs the stream no more."""

    VERB: ClassVar[int] = 12
    number: StreamNumber
    token: OwnerToken


NamespaceCommand: TypeAlias = (
    CreateStream
    | StreamCreated
    | RenameStream
    | DeleteStream
    | StreamDeleted
    | TruncateStream
    | UntruncateStream
    | EndStream
    | StreamEnded
    | AcquireStream
    | RenewLease
    | ReleaseStream
    | UpkeepCommand
)

COMMANDS: Final = CommandSet[NamespaceCommand]("a namespace", _FORMAT, NamespaceCommand)
encode: Final = COMMANDS.encode
decode: Final = COMMANDS.decode
