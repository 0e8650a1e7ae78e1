"""Commands to a namespace: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeAlias

from client.guards import Position
from client.log_tree.commands import Attributes, checked_attributes
from client.replica.commands import StateVersion, decode_body, encode_body, expected_field, number_field, refuse
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_MAX
from logdevice_py.core.status import Status
from streams.fields import BEATS_MAX, LEASE_US_MAX, log_field, owner_field, position_field, stream_number
from streams.names import checked_name
from streams.upkeep.commands import UPKEEP_VERB_MIN, UpkeepCommand, decode_upkeep, upkeep_fields

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class CreateStream:
    """Give a name to a new stream, which gets the next number. Its log is made after that."""

    VERB: ClassVar[int] = 1
    name: str
    attributes: Attributes = field(default_factory=dict)
    """Of the stream."""
    log_attributes: Attributes = field(default_factory=dict)
    """Of its log, as the log tree keeps them."""


@dataclass(frozen=True, slots=True)
class StreamCreated:
    """The log of a stream is made: the stream can be used."""

    VERB: ClassVar[int] = 2
    number: int
    log: LogId


@dataclass(frozen=True, slots=True)
class RenameStream:
    """Give a stream a name that is free."""

    VERB: ClassVar[int] = 3
    name: str
    to: str
    expect: StateVersion | None = None


@dataclass(frozen=True, slots=True)
class DeleteStream:
    """Take the name from a stream. Its log is removed after that."""

    VERB: ClassVar[int] = 4
    name: str
    expect: StateVersion | None = None


@dataclass(frozen=True, slots=True)
class StreamDeleted:
    """The log of a stream that is being deleted is removed: nobody can write to it."""

    VERB: ClassVar[int] = 5
    number: int


@dataclass(frozen=True, slots=True)
class TruncateStream:
    """Everything before a position is truncated."""

    VERB: ClassVar[int] = 6
    number: int
    position: Position


@dataclass(frozen=True, slots=True)
class UntruncateStream:
    """Nothing is truncated that can still be read."""

    VERB: ClassVar[int] = 7
    number: int


@dataclass(frozen=True, slots=True)
class EndStream:
    """The stream is to end: whoever sees it goes on with that."""

    VERB: ClassVar[int] = 8
    number: int
    token: int = 0
    """Of the owner; 0: nobody may own it."""


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The log of a stream is ended, and holds no record above an LSN."""

    VERB: ClassVar[int] = 9
    number: int
    last: LSN


@dataclass(frozen=True, slots=True)
class AcquireStream:
    """Become the owner of a stream, with the next token, if the lease is as it was seen."""

    VERB: ClassVar[int] = 10
    number: int
    owner: str
    lease_us: int
    """How long others wait for a sign of life before they take over."""
    token: int = 0
    """Of the owner that was seen; 0: there was none."""
    beats: int = 0
    """Its signs of life so far."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """A sign of life of the owner."""

    VERB: ClassVar[int] = 11
    number: int
    token: int


@dataclass(frozen=True, slots=True)
class ReleaseStream:
    """The owner needs the stream no more."""

    VERB: ClassVar[int] = 12
    number: int
    token: int


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


def encode(command: NamespaceCommand) -> bytes:
    """The body of a command."""
    fields: list[Any]
    match command:
        case CreateStream(name, attributes, log_attributes):
            fields = [name, dict(attributes), dict(log_attributes)]
        case StreamCreated(number, log):
            fields = [number, log]
        case RenameStream(name, to, expect):
            fields = [name, to, expect]
        case DeleteStream(name, expect):
            fields = [name, expect]
        case TruncateStream(number, position):
            fields = [number, *position]
        case StreamEnded(number, last):
            fields = [number, int(last)]
        case AcquireStream(number, owner, lease_us, token, beats):
            fields = [number, owner, lease_us, token, beats]
        case RenewLease(number, token) | ReleaseStream(number, token) | EndStream(number, token):
            fields = [number, token]
        case StreamDeleted(number) | UntruncateStream(number):
            fields = [number]
        case _:
            fields = upkeep_fields(command)
    return encode_body(_FORMAT, command.VERB, fields)


def decode(data: bytes) -> NamespaceCommand:
    """From `encode`; CommandRefused for anything else."""
    return decode_body(data, _FORMAT, "a namespace", _decoded)


def _decoded(verb: Any, fields: list[Any]) -> NamespaceCommand:
    if verb == CreateStream.VERB:
        name, attributes, log_attributes = fields
        return CreateStream(checked_name(name), checked_attributes(attributes), checked_attributes(log_attributes))
    if verb == RenameStream.VERB:
        name, to, expect = fields
        return RenameStream(checked_name(name), checked_name(to), expected_field(expect))
    if verb == DeleteStream.VERB:
        name, expect = fields
        return DeleteStream(checked_name(name), expected_field(expect))
    if type(verb) is int and verb >= UPKEEP_VERB_MIN:
        return decode_upkeep(verb, fields)
    number = stream_number(fields[0]) if fields else 0
    if verb == StreamCreated.VERB:
        _, log = fields
        return StreamCreated(number, log_field(log))
    if verb == TruncateStream.VERB:
        _, lsn, offset = fields
        return TruncateStream(number, position_field(lsn, offset))
    if verb == StreamEnded.VERB:
        _, last = fields
        return StreamEnded(number, LSN(number_field(last, 0, LSN_MAX - 1)))
    if verb == AcquireStream.VERB:
        _, owner, lease_us, token, beats = fields
        lease = number_field(lease_us, 1, LEASE_US_MAX)
        return AcquireStream(
            number, owner_field(owner), lease, number_field(token, 0, NUMBER_MAX), number_field(beats, 0, BEATS_MAX)
        )
    if verb in (RenewLease.VERB, ReleaseStream.VERB):
        _, token = fields
        kind = RenewLease if verb == RenewLease.VERB else ReleaseStream
        return kind(number, number_field(token, 1, NUMBER_MAX))
    if verb == EndStream.VERB:
        _, token = fields
        return EndStream(number, number_field(token, 0, NUMBER_MAX))
    if verb in (StreamDeleted.VERB, UntruncateStream.VERB):
        (_,) = fields
        return StreamDeleted(number) if verb == StreamDeleted.VERB else UntruncateStream(number)
    raise refuse(Status.NOTSUPPORTED, "a verb of namespaces expected")
