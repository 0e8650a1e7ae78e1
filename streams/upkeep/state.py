"""Who trims and copies, and what of each stream is trimmed and copied: a part of the namespace's state.

Rules that `docs/decisions/0019-upkeep.md` gives reasons for:

1. What shows another token than the holder's changes nothing.
2. Nothing is trimmed before `trimming_to` says so, and truncations are not taken back below it.
3. With `cold` nothing but what is truncated is trimmed before a committed copy has it.
4. A copy counts if its attempt is the last one that began, and is not over.
5. Whatever is not copied yet and not trimmed is copied next: copies leave nothing out.
6. Nothing is deleted but of attempts that were over when it was decided: who has lost the role, and does not know, may delete late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgpack

from client.guards import START, Position
from client.replica.commands import number_field, refuse
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_MAX
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from streams.leases import Lease, holder_of, lease_field, lease_row, seen_of
from streams.upkeep.commands import (
    AcquireUpkeep,
    BeginCopy,
    BeginTrim,
    CommitCopy,
    EndCopy,
    ReleaseUpkeep,
    RemoveCopies,
    RenewUpkeep,
    RoleCommand,
    StreamUpkeepCommand,
    TrimCause,
    did_field,
)
from streams.upkeep.segment_copy import SegmentCopy

if TYPE_CHECKING:
    from streams.state import StreamEntry

COPY_SIZE: Final = 700
"""Bytes of a committed copy in a snapshot, at most."""
_CLOCKS_DIFFER_US: Final = 10_000_000
"""By which nobody is called silent, by the clock of whoever looks."""
_NEVER: Final = Timestamp(0)
_NOWHERE: Final = LSN(LSN_INVALID)
_INT64: Final = 1 << 63


@dataclass(slots=True)
class UpkeepRole:
    """The role of a namespace's janitor: one at a time."""

    lease: Lease | None = None
    """None: nobody trims or copies."""
    last_token: int = 0
    """The greatest that was given."""
    at: Timestamp = _NEVER
    """Of the last sign of life, by the clock of whoever sequenced it: what ages are counted from."""
    did: str = ""
    """What was done last."""

    def is_silent(self, now: Timestamp) -> bool:
        """Whether somebody has the role and shows no life for longer than its lease: it died, and nobody has taken over. For people: who takes over
        counts signs of life, not times."""
        return self.lease is not None and now - self.at > self.lease.lease_us + _CLOCKS_DIFFER_US

    def check(self, token: int) -> None:
        """Refuse what does not show the holder's token."""
        if self.lease is None or self.lease.token != token:
            raise refuse(Status.FENCED, f"the janitor is {holder_of(self.lease)}, not the one with token {token}")

    def judged(self, wanted: RoleCommand, time: Timestamp) -> bytes:
        """Apply a command for the role; the token of who acquires it."""
        match wanted:
            case AcquireUpkeep():
                return self._acquire(wanted, time)
            case RenewUpkeep():
                self.check(wanted.token)
                assert self.lease is not None
                self.lease = self.lease.renewed()
                # not the greatest time: a clock that was wrong once counts no longer
                self.at, self.did = time, wanted.did or self.did
            case ReleaseUpkeep():
                self.check(wanted.token)
                self.lease = None
        return b""

    def _acquire(self, wanted: AcquireUpkeep, time: Timestamp) -> bytes:
        if (wanted.token, wanted.beats) != seen_of(self.lease):
            raise refuse(Status.CONFLICT, "the janitor changed, or showed life, since it was looked at")
        if self.last_token >= NUMBER_MAX:
            raise refuse(Status.NOSPC, "the tokens of the role are used up")
        self.last_token += 1
        self.lease = Lease(wanted.owner, self.last_token, wanted.lease_us)
        self.at = time
        packed: bytes = msgpack.packb(self.last_token)
        return packed

    def row(self) -> list[Any] | None:
        """For a snapshot; None: nobody ever had the role."""
        if not self.last_token:
            return None
        return [lease_row(self.lease), self.last_token, self.at, self.did]

    @classmethod
    def from_row(cls, row: Any) -> UpkeepRole:
        """From `row`; ValueError for anything else."""
        held, last_token, at, did = row
        role = cls(
            None,
            number_field(last_token, 1, NUMBER_MAX),
            Timestamp(number_field(at, -_INT64, _INT64 - 1)),
            did_field(did),
        )
        role.lease = lease_field(held, role.last_token)
        return role


def attempt_token(attempt: int) -> str:
    """What the folder of an attempt is called."""
    return f"a{attempt}"


@dataclass(frozen=True, slots=True)
class AttemptsUpTo:
    """The tokens of the first attempts of a stream: thousands, which are not listed."""

    last: int

    def __contains__(self, token: object) -> bool:
        if not isinstance(token, str) or not token[1:].isdecimal():
            return False
        attempt = int(token[1:])
        return token == attempt_token(attempt) and 1 <= attempt <= self.last


@dataclass(frozen=True, slots=True)
class StreamUpkeep:
    """What is trimmed and copied of a stream. Never changes: commands make another one."""

    trimming_to: LSN = _NOWHERE
    """Everything up to it is trimmed, or somebody has to trim it; 0: nothing."""
    copied_to: LSN = _NOWHERE
    """Everything up to it was copied, or had been trimmed when copying went on behind it; 0: nothing."""
    copies: tuple[SegmentCopy, ...] = ()
    """Those that count, in order."""
    attempts: int = 0
    """How many began."""
    copying: tuple[LSN, LSN] | None = None
    """What the last one copies; None: it is over."""

    @property
    def readable_from(self) -> Position:
        """Where readers can begin at the earliest, in copies or in the log; `START`: nothing is gone."""
        begins = LSN(self.trimming_to + 1)
        for each in reversed(self.copies):
            if each.copy.first < begins <= each.copy.last + 1:
                begins = each.copy.first
        return START if begins <= LSN.OLDEST else Position(begins, 0)

    @property
    def over(self) -> AttemptsUpTo:
        """Attempts that committed what they copied, or never will."""
        return AttemptsUpTo(self.attempts - (self.copying is not None))

    @property
    def next_first(self) -> LSN:
        """Where the next copy begins."""
        return LSN(max(self.copied_to, self.trimming_to) + 1)

    def judged(self, wanted: StreamUpkeepCommand, entry: StreamEntry) -> StreamUpkeep:
        """How it is after a command of the janitor, or CommandRefused."""
        match wanted:
            case BeginTrim():
                return self._trim(wanted, entry)
            case BeginCopy():
                if "cold" not in entry.attributes or not self.next_first == wanted.first <= wanted.last:
                    text = (
                        f"stream {entry.name} is copied from {self.next_first} on, not {wanted.first} to {wanted.last}"
                    )
                    raise refuse(Status.CONFLICT, text)
                if self.attempts >= NUMBER_MAX:
                    raise refuse(Status.NOSPC, "the numbers of attempts are used up")
                return replace(self, attempts=self.attempts + 1, copying=(wanted.first, wanted.last))
            case CommitCopy():
                return self._commit(wanted, entry)
            case EndCopy():
                self._check_attempt(wanted.attempt)
                return replace(self, copying=None)
            case RemoveCopies():
                kept = tuple(each for each in self.copies if each.copy.last > wanted.last)
                return replace(self, copies=kept)

    def _trim(self, wanted: BeginTrim, entry: StreamEntry) -> StreamUpkeep:
        if wanted.expect != entry.version:
            raise refuse(Status.VERSION_MISMATCH, f"stream {entry.name} has version {entry.version}")
        if wanted.lsn <= self.trimming_to:
            raise refuse(Status.CONFLICT, f"stream {entry.name} is trimmed up to {self.trimming_to}")
        if wanted.lsn < entry.min_active.lsn:
            return replace(self, trimming_to=wanted.lsn)
        if wanted.cause is TrimCause.TRUNCATED:
            raise refuse(
                Status.CONFLICT, f"stream {entry.name} is truncated up to {entry.min_active}, not {wanted.lsn}"
            )
        if "cold" in entry.attributes and wanted.lsn > self.copied_to:
            raise refuse(Status.CONFLICT, f"no cold copy of stream {entry.name} has {wanted.lsn}")
        return replace(self, trimming_to=wanted.lsn)

    def _commit(self, wanted: CommitCopy, entry: StreamEntry) -> StreamUpkeep:
        self._check_attempt(wanted.attempt)
        copy = wanted.copy.copy
        if (copy.log, copy.token, (copy.first, copy.last)) != (entry.log, attempt_token(wanted.attempt), self.copying):
            raise refuse(Status.CONFLICT, f"this is not what attempt {wanted.attempt} was to copy")
        return replace(self, copies=(*self.copies, wanted.copy), copied_to=copy.last, copying=None)

    def _check_attempt(self, attempt: int) -> None:
        if self.copying is None or attempt != self.attempts:
            raise refuse(Status.FENCED, f"attempt {attempt} is over")

    def row(self) -> list[Any] | None:
        """For a snapshot; None: nothing is trimmed or copied."""
        if self == StreamUpkeep():
            return None
        copying = None if self.copying is None else [int(each) for each in self.copying]
        rows = [each.row() for each in self.copies]
        return [int(self.trimming_to), int(self.copied_to), rows, self.attempts, copying]

    @classmethod
    def from_row(cls, row: Any) -> StreamUpkeep:
        """From `row`; ValueError for anything else."""
        trimming_to, copied_to, rows, attempts, copying = row
        if type(rows) is not list:
            raise ValueError("copies expected")
        copies = tuple(SegmentCopy.from_row(each) for each in rows)
        lsns = [_lsn(each) for each in (trimming_to, copied_to)]
        span = None
        if copying is not None:
            first, last = copying
            span = (_lsn(first), _lsn(last))
        return cls(lsns[0], lsns[1], copies, number_field(attempts, 0, NUMBER_MAX), span)


def _lsn(raw: Any) -> LSN:
    return LSN(number_field(raw, 0, LSN_MAX - 1))
