"""Commands of whoever trims and copies the streams of a namespace. All of them show its token, so that a former one changes nothing."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from client.replica.command_set import CommandField, Version, integer, member
from client.replica.commands import number_field
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN, LSN_MAX
from streams.fields import BEATS_MAX, LEASE_US_MAX, StreamNumber, owner_field
from streams.upkeep.segment_copy import SegmentCopy

DID_BYTES_MAX: Final = 256


class TrimCause(enum.IntEnum):
    """Why records are trimmed; the numbers stand in commands."""

    TRUNCATED = 1  # they were truncated long enough ago
    EXPIRED = 2  # their segment was completed long enough ago


def lsn_field(raw: Any) -> LSN:
    """An LSN that a record may have."""
    return LSN(number_field(raw, 1, LSN_MAX - 1))


def did_field(raw: Any) -> str:
    """What a holder did last."""
    if type(raw) is not str or len(raw.encode()) > DID_BYTES_MAX:
        raise ValueError(f"a text of up to {DID_BYTES_MAX} bytes expected")
    return raw


HoldersToken: TypeAlias = Annotated[int, integer(1, NUMBER_MAX)]
RecordLsn: TypeAlias = Annotated[LSN, CommandField(lsn_field)]
Attempt: TypeAlias = Annotated[int, integer(1, NUMBER_MAX)]


@dataclass(frozen=True, slots=True)
class AcquireUpkeep:
    """Become the one who trims and copies, with the next token, if the lease is as it was seen."""

    VERB: ClassVar[int] = 40
    owner: Annotated[str, CommandField(owner_field)]
    lease_us: Annotated[int, integer(1, LEASE_US_MAX)]
    """How long others wait for a sign of life before they take over."""
    token: Annotated[int, integer(0, NUMBER_MAX)] = 0
    """Of the holder that was seen; 0: there was none."""
    beats: Annotated[int, integer(0, BEATS_MAX)] = 0
    """Its signs of life so far."""


@dataclass(frozen=True, slots=True)
class RenewUpkeep:
    """A sign of life, and what was done last."""

    VERB: ClassVar[int] = 41
    token: HoldersToken
    did: Annotated[str, CommandField(did_field)] = ""
    """Empty: as before."""


@dataclass(frozen=True, slots=True)
class ReleaseUpkeep:
    """The holder needs the role no more."""

    VERB: ClassVar[int] = 42
    token: HoldersToken


@dataclass(frozen=True, slots=True)
class BeginTrim:
    """Everything up to an LSN is trimmed from now on: nobody takes it back."""

    VERB: ClassVar[int] = 43
    token: HoldersToken
    number: StreamNumber
    lsn: RecordLsn
    cause: Annotated[TrimCause, member(TrimCause)]
    expect: Version
    """Of the stream: it was not truncated, nor a truncation taken back, since this was decided."""


@dataclass(frozen=True, slots=True)
class BeginCopy:
    """An attempt to copy [first, last] begins; the one before, if it is under way, never counts."""

    VERB: ClassVar[int] = 44
    token: HoldersToken
    number: StreamNumber
    first: RecordLsn
    last: RecordLsn


@dataclass(frozen=True, slots=True)
class CommitCopy:
    """The copy of an attempt counts."""

    VERB: ClassVar[int] = 45
    token: HoldersToken
    number: StreamNumber
    attempt: Attempt
    copy: Annotated[SegmentCopy, CommandField(SegmentCopy.from_row, SegmentCopy.row)]


@dataclass(frozen=True, slots=True)
class EndCopy:
    """An attempt is over: its copy never counts."""

    VERB: ClassVar[int] = 46
    token: HoldersToken
    number: StreamNumber
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class RemoveCopies:
    """Copies that end at an LSN or before count no more: they are deleted."""

    VERB: ClassVar[int] = 47
    token: HoldersToken
    number: StreamNumber
    last: RecordLsn


RoleCommand: TypeAlias = AcquireUpkeep | RenewUpkeep | ReleaseUpkeep
StreamUpkeepCommand: TypeAlias = BeginTrim | BeginCopy | CommitCopy | EndCopy | RemoveCopies
UpkeepCommand: TypeAlias = RoleCommand | StreamUpkeepCommand
