"""Commands of whoever trims and copies the streams of a namespace. All of them show its token, so that a former one changes nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from client.replica.commands import StateVersion, number_field, refuse, version_field
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN, LSN_MAX
from logdevice_py.core.status import Status
from streams.fields import BEATS_MAX, LEASE_US_MAX, owner_field, stream_number
from streams.upkeep.segment_copy import SegmentCopy

UPKEEP_VERB_MIN: Final = 40
DID_BYTES_MAX: Final = 256


class TrimCause(enum.IntEnum):
    """Why records are trimmed; the numbers stand in commands."""

    TRUNCATED = 1  # they were truncated long enough ago
    EXPIRED = 2  # their segment was completed long enough ago


@dataclass(frozen=True, slots=True)
class AcquireUpkeep:
    """Become the one who trims and copies, with the next token, if the lease is as it was seen."""

    VERB: ClassVar[int] = 40
    owner: str
    lease_us: int
    """How long others wait for a sign of life before they take over."""
    token: int = 0
    """Of the holder that was seen; 0: there was none."""
    beats: int = 0
    """Its signs of life so far."""


@dataclass(frozen=True, slots=True)
class RenewUpkeep:
    """A sign of life, and what was done last."""

    VERB: ClassVar[int] = 41
    token: int
    did: str = ""
    """Empty: as before."""


@dataclass(frozen=True, slots=True)
class ReleaseUpkeep:
    """The holder needs the role no more."""

    VERB: ClassVar[int] = 42
    token: int


@dataclass(frozen=True, slots=True)
class BeginTrim:
    """Everything up to an LSN is trimmed from now on: nobody takes it back."""

    VERB: ClassVar[int] = 43
    token: int
    number: int
    lsn: LSN
    cause: TrimCause
    expect: StateVersion
    """Of the stream: it was not truncated, nor a truncation taken back, since this was decided."""


@dataclass(frozen=True, slots=True)
class BeginCopy:
    """An attempt to copy [first, last] begins; the one before, if it is under way, never counts."""

    VERB: ClassVar[int] = 44
    token: int
    number: int
    first: LSN
    last: LSN


@dataclass(frozen=True, slots=True)
class CommitCopy:
    """The copy of an attempt counts."""

    VERB: ClassVar[int] = 45
    token: int
    number: int
    attempt: int
    copy: SegmentCopy


@dataclass(frozen=True, slots=True)
class EndCopy:
    """An attempt is over: its copy never counts."""

    VERB: ClassVar[int] = 46
    token: int
    number: int
    attempt: int


@dataclass(frozen=True, slots=True)
class RemoveCopies:
    """Copies that end at an LSN or before count no more: they are deleted."""

    VERB: ClassVar[int] = 47
    token: int
    number: int
    last: LSN


RoleCommand: TypeAlias = AcquireUpkeep | RenewUpkeep | ReleaseUpkeep
StreamUpkeepCommand: TypeAlias = BeginTrim | BeginCopy | CommitCopy | EndCopy | RemoveCopies
UpkeepCommand: TypeAlias = RoleCommand | StreamUpkeepCommand


def upkeep_fields(command: UpkeepCommand) -> list[Any]:
    """What stands behind the verb."""
    match command:
        case AcquireUpkeep(owner, lease_us, token, beats):
            return [owner, lease_us, token, beats]
        case RenewUpkeep(token, did):
            return [token, did]
        case ReleaseUpkeep(token):
            return [token]
        case BeginTrim(token, number, lsn, cause, expect):
            return [token, number, int(lsn), int(cause), expect]
        case BeginCopy(token, number, first, last):
            return [token, number, int(first), int(last)]
        case CommitCopy(token, number, attempt, copy):
            return [token, number, attempt, copy.row()]
        case EndCopy(token, number, attempt):
            return [token, number, attempt]
        case RemoveCopies(token, number, last):
            return [token, number, int(last)]


def decode_upkeep(verb: int, fields: list[Any]) -> UpkeepCommand:
    """The command of a verb; ValueError or CommandRefused for anything else."""
    if verb == AcquireUpkeep.VERB:
        owner, lease_us, token, beats = fields
        lease = number_field(lease_us, 1, LEASE_US_MAX)
        return AcquireUpkeep(
            owner_field(owner), lease, number_field(token, 0, NUMBER_MAX), number_field(beats, 0, BEATS_MAX)
        )
    token = number_field(fields[0] if fields else None, 1, NUMBER_MAX)
    if verb == RenewUpkeep.VERB:
        _, did = fields
        return RenewUpkeep(token, did_field(did))
    if verb == ReleaseUpkeep.VERB:
        (_,) = fields
        return ReleaseUpkeep(token)
    _, number, *rest = fields
    number = stream_number(number)
    if verb == BeginTrim.VERB:
        lsn, cause, (at, offset) = rest
        return BeginTrim(token, number, lsn_field(lsn), TrimCause(cause), version_field(at, offset))
    if verb == BeginCopy.VERB:
        first, last = rest
        return BeginCopy(token, number, lsn_field(first), lsn_field(last))
    if verb == CommitCopy.VERB:
        attempt, row = rest
        return CommitCopy(token, number, attempt_field(attempt), SegmentCopy.from_row(row))
    if verb == EndCopy.VERB:
        (attempt,) = rest
        return EndCopy(token, number, attempt_field(attempt))
    if verb == RemoveCopies.VERB:
        (last,) = rest
        return RemoveCopies(token, number, lsn_field(last))
    raise refuse(Status.NOTSUPPORTED, "a verb of namespaces expected")


def lsn_field(raw: Any) -> LSN:
    """An LSN that a record may have."""
    return LSN(number_field(raw, 1, LSN_MAX - 1))


def attempt_field(raw: Any) -> int:
    """The number of an attempt to copy."""
    return number_field(raw, 1, NUMBER_MAX)


def did_field(raw: Any) -> str:
    """What a holder did last."""
    if type(raw) is not str or len(raw.encode()) > DID_BYTES_MAX:
        raise ValueError(f"a text of up to {DID_BYTES_MAX} bytes expected")
    return raw
