"""The streams of a namespace as a replicated state: names, attributes, truncation, ends and owners.

Rules that `docs/decisions/0013-streams.md` gives reasons for and that hold here:

1. Numbers from the log: `next_number` only grows, and no number is given twice. The log of a stream is made at a path that follows from its number.
2. A name is taken by `CreateStream` and free from `DeleteStream` on, whatever becomes of the logs.
3. Apply reads nothing else: what attributes mean is judged by whoever proposes.
4. Leases only choose who tries: a token is given once, and always a greater one.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from client.guards import START, Position
from client.log_tree.commands import Attributes, checked_attributes, pack_attributes
from client.replica.applied_state import StateKind
from client.replica.commands import StateVersion, decode_snapshot, number_field, refuse, version_field
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_MAX
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from streams.commands import (
    AcquireStream,
    CreateStream,
    DeleteStream,
    EndStream,
    ReleaseStream,
    RenameStream,
    RenewLease,
    StreamCreated,
    StreamDeleted,
    StreamEnded,
    TruncateStream,
    UntruncateStream,
    decode,
)
from streams.fields import log_field, position_field, stream_number
from streams.leases import Lease, holder_of, lease_field, lease_row, seen_of
from streams.names import checked_name, is_below
from streams.upkeep.commands import RoleCommand, UpkeepCommand
from streams.upkeep.state import COPY_SIZE, StreamUpkeep, UpkeepRole

KIND_NAME: Final = "namespace"
SIZE_MAX: Final = 48 << 20
"""Bytes of a snapshot at most, about: more is refused. A state that has no snapshot could never be trimmed."""
_STREAM_SIZE: Final = 400
"""Bytes of a stream in a snapshot besides its name and attributes, at most."""
_FORMAT: Final = 1
_NO_LOG: Final = LogId(0)
_TIME_MIN: Final = Timestamp(-(1 << 63))
_TIME_MAX: Final = Timestamp((1 << 63) - 1)
TRUNCATIONS_MAX: Final = 8
"""That are remembered of a stream."""


class StreamPhase(enum.IntEnum):
    """How far a stream is; the numbers stand in snapshots."""

    CREATING = 1  # it has its name; its log may be missing
    LIVE = 2
    DELETING = 3  # its name is free; its log may take appends


@dataclass(slots=True, eq=False)
class StreamEntry:
    """One stream."""

    number: int
    """Given once; the path of its log follows from it."""
    name: str
    attributes: Attributes
    """As `StreamAttributes.mapping` makes them."""
    log_attributes: Attributes
    """Its log is made with these."""
    version: StateVersion
    """Of the command that changed its name, truncation or end last; what owners do does not count."""
    phase: StreamPhase = StreamPhase.CREATING
    log: LogId = _NO_LOG
    min_active: Position = START
    """Everything before is truncated. Readers begin here at the earliest."""
    truncations: tuple[tuple[Position, Timestamp], ...] = ()
    """Positions up to which it was truncated, ascending, the last of them `min_active`, and when: by the clock of whoever sequenced the command. Of many,
    some are left out: what they truncated counts from the next one on."""
    ending: bool = False
    """It is to end: nobody owns it any more, and its log is ended, or somebody has to."""
    ended: LSN | None = None
    """It ends for ever, and holds no record above."""
    lease: Lease | None = None
    """None: nobody owns it."""
    last_token: int = 0
    """The greatest that was given."""
    upkeep: StreamUpkeep = StreamUpkeep()  # noqa: RUF009 (it never changes)
    """What is trimmed and copied."""


@dataclass(slots=True)
class NamespaceChanges:
    """What changed since somebody cleared this. Not part of the state."""

    streams: dict[int, None] = field(default_factory=dict)
    """Numbers."""


class NamespaceState:
    """What the commands to a namespace amount to."""

    def __init__(self) -> None:
        self.next_number = 1
        """The first that was never given."""
        self.streams: dict[int, StreamEntry] = {}
        """Those that exist, also while they are created or deleted, by number, in order."""
        self.role = UpkeepRole()
        """Who trims and copies."""
        self.changes = NamespaceChanges()
        self._names: dict[str, StreamEntry] = {}
        """Of those that are not being deleted."""
        self._size = 0
        """Of what a snapshot holds, about. Follows from the state, as what is refused depends on it."""

    # Looking

    def find(self, name: str) -> StreamEntry | None:
        """The stream of a name."""
        return self._names.get(name)

    def below(self, directory: str) -> Iterator[StreamEntry]:
        """Streams in a directory and below it, in the order in which they were created."""
        return (entry for entry in self.streams.values() if self._has_name(entry) and is_below(entry.name, directory))

    def deleting(self) -> list[int]:
        """Numbers of streams of which the logs are to be removed."""
        return [number for number, entry in self.streams.items() if entry.phase is StreamPhase.DELETING]

    @staticmethod
    def _has_name(entry: StreamEntry) -> bool:
        return entry.phase is not StreamPhase.DELETING

    # Commands

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """Change the state: as `StateMachine.apply`. Results: of `CreateStream` and `DeleteStream` the number; of `AcquireStream` the token."""
        wanted = decode(command)
        match wanted:
            case CreateStream():
                return self._create(wanted, at)
            case StreamCreated():
                self._created(wanted)
            case RenameStream():
                self._rename(wanted, at)
            case DeleteStream():
                return self._delete(wanted, at)
            case StreamDeleted():
                self._deleted(wanted)
            case TruncateStream():
                self._truncate(wanted, at, time)
            case UntruncateStream():
                self._untruncate(wanted, at, time)
            case EndStream():
                self._end(wanted, at)
            case StreamEnded():
                self._ended(wanted, at)
            case AcquireStream():
                return self._acquire(wanted)
            case RenewLease():
                self._renew(wanted)
            case ReleaseStream():
                self._release(wanted)
            case _:
                return self._keep_up(wanted, time)
        return b""

    # Names

    def _create(self, wanted: CreateStream, at: StateVersion) -> bytes:
        self._check_free(wanted.name)
        if self.next_number > NUMBER_MAX:
            raise refuse(Status.NOSPC, "the numbers of streams are used up")
        entry = StreamEntry(self.next_number, wanted.name, wanted.attributes, wanted.log_attributes, at)
        self._take_size(_size_of(entry))
        self.next_number += 1
        self.streams[entry.number] = self._names[entry.name] = entry
        self._note(entry)
        return _packed(entry.number)

    def _created(self, wanted: StreamCreated) -> None:
        entry = self._existing(wanted.number)
        if entry.log not in (_NO_LOG, wanted.log):
            raise refuse(Status.CONFLICT, f"stream {entry.name} has log {entry.log}, not {wanted.log}")
        entry.log, entry.phase = wanted.log, StreamPhase.LIVE
        self._note(entry)

    def _rename(self, wanted: RenameStream, at: StateVersion) -> None:
        entry = self._named(wanted.name, wanted.expect)
        self._check_free(wanted.to)
        self._take_size(len(wanted.to) - len(entry.name))
        del self._names[entry.name]
        entry.name, entry.version = wanted.to, at
        self._names[entry.name] = entry
        self._note(entry)

    def _delete(self, wanted: DeleteStream, at: StateVersion) -> bytes:
        entry = self._named(wanted.name, wanted.expect)
        del self._names[entry.name]
        entry.phase, entry.version, entry.lease = StreamPhase.DELETING, at, None
        self._note(entry)
        return _packed(entry.number)

    def _deleted(self, wanted: StreamDeleted) -> None:
        entry = self.streams.get(wanted.number)
        if entry is None or entry.phase is not StreamPhase.DELETING:
            raise refuse(Status.NOTFOUND, f"no stream of number {wanted.number} is being deleted")
        del self.streams[entry.number]
        self._size -= _size_of(entry)
        self._note(entry)

    # Truncation and end

    def _truncate(self, wanted: TruncateStream, at: StateVersion, time: Timestamp) -> None:
        entry = self._live(wanted.number)
        if wanted.position <= entry.min_active:
            raise refuse(
                Status.CONFLICT,
                f"stream {entry.name} is truncated up to {entry.min_active}, not before {wanted.position}",
            )
        entry.min_active, entry.version = wanted.position, at
        entry.truncations = _thinned((*entry.truncations, (wanted.position, max(time, _last_time(entry)))))
        self._note(entry)

    def _untruncate(self, wanted: UntruncateStream, at: StateVersion, time: Timestamp) -> None:
        entry = self._live(wanted.number)
        begins = entry.upkeep.readable_from
        if START < entry.min_active <= begins:
            raise refuse(Status.CONFLICT, f"what was truncated of stream {entry.name} is trimmed, up to {begins}")
        entry.truncations = () if begins == START else ((begins, max(time, _last_time(entry))),)
        entry.min_active, entry.version = begins, at
        self._note(entry)

    def _end(self, wanted: EndStream, at: StateVersion) -> None:
        entry = self._live(wanted.number)
        if entry.ending:
            return
        if wanted.token or entry.lease is not None:
            self._lease_of(entry, wanted.token)
        entry.ending, entry.lease, entry.version = True, None, at
        self._note(entry)

    def _ended(self, wanted: StreamEnded, at: StateVersion) -> None:
        entry = self._live(wanted.number)
        if not entry.ending:
            raise refuse(Status.CONFLICT, f"nobody ends stream {entry.name}")
        if entry.ended is not None:
            return
        entry.ended, entry.version = wanted.last, at
        self._note(entry)

    # Owners

    def _acquire(self, wanted: AcquireStream) -> bytes:
        entry = self._live(wanted.number)
        if (wanted.token, wanted.beats) != seen_of(entry.lease):
            who = holder_of(entry.lease)
            raise refuse(
                Status.CONFLICT, f"the owner of stream {entry.name} is {who}, and showed life since it was looked at"
            )
        if entry.ending:
            raise refuse(Status.ENDED, f"stream {entry.name} was ended")
        if entry.last_token >= NUMBER_MAX:
            raise refuse(Status.NOSPC, "the tokens of the stream are used up")
        entry.last_token += 1
        entry.lease = Lease(wanted.owner, entry.last_token, wanted.lease_us)
        self._note(entry)
        return _packed(entry.last_token)

    def _renew(self, wanted: RenewLease) -> None:
        entry = self._live(wanted.number)
        entry.lease = self._lease_of(entry, wanted.token).renewed()
        self._note(entry)

    def _release(self, wanted: ReleaseStream) -> None:
        entry = self._live(wanted.number)
        self._lease_of(entry, wanted.token)
        entry.lease = None
        self._note(entry)

    @staticmethod
    def _lease_of(entry: StreamEntry, token: int) -> Lease:
        lease = entry.lease
        if lease is None or lease.token != token:
            asked = f"the one with token {token}" if token else "the caller"
            raise refuse(Status.FENCED, f"the owner of stream {entry.name} is {holder_of(lease)}, not {asked}")
        return lease

    # Upkeep

    def _keep_up(self, wanted: UpkeepCommand, time: Timestamp) -> bytes:
        if isinstance(wanted, RoleCommand):
            return self.role.judged(wanted, time)
        self.role.check(wanted.token)
        entry = self._live(wanted.number)
        changed = entry.upkeep.judged(wanted, entry)
        self._take_size((len(changed.copies) - len(entry.upkeep.copies)) * COPY_SIZE)
        entry.upkeep = changed
        self._note(entry)
        return _packed(changed.attempts)

    # What commands share

    def _check_free(self, name: str) -> None:
        if name in self._names:
            raise refuse(Status.EXISTS, f"there is a stream {name}")

    def _named(self, name: str, expect: StateVersion | None) -> StreamEntry:
        entry = self._names.get(name)
        if entry is None:
            raise refuse(Status.NOTFOUND, f"there is no stream {name}")
        if expect is not None and entry.version != expect:
            raise refuse(Status.VERSION_MISMATCH, f"stream {name} has version {entry.version}, not {expect}")
        return entry

    def _existing(self, number: int) -> StreamEntry:
        entry = self.streams.get(number)
        if entry is None or entry.phase is StreamPhase.DELETING:
            raise refuse(Status.NOTFOUND, f"the stream of number {number} was deleted")
        return entry

    def _live(self, number: int) -> StreamEntry:
        entry = self._existing(number)
        if entry.phase is not StreamPhase.LIVE:
            raise refuse(Status.NOTFOUND, f"stream {entry.name} is not created whole yet")
        return entry

    def _take_size(self, grown: int) -> None:
        if grown > 0 and self._size + grown > SIZE_MAX:
            raise refuse(
                Status.NOSPC, f"the namespace would take more than {SIZE_MAX} bytes: delete what is not needed"
            )
        self._size += grown

    def _note(self, entry: StreamEntry) -> None:
        self.changes.streams[entry.number] = None

    # Snapshots

    def encode(self) -> bytes:
        """For a snapshot."""
        rows = [_row(entry) for entry in self.streams.values()]
        role = self.role.row()
        packed: bytes = msgpack.packb([_FORMAT, self.next_number, rows, *([role] if role else [])])
        return packed

    @classmethod
    def decode(cls, data: bytes) -> NamespaceState:
        """From `encode`; ValueError for anything else."""
        return decode_snapshot(data, "namespace", cls._decoded)

    @classmethod
    def _decoded(cls, raw: Any) -> NamespaceState:
        if type(raw) is not list or len(raw) not in (3, 4) or raw[0] != _FORMAT or type(raw[2]) is not list:
            raise ValueError(f"a namespace of format {_FORMAT} expected")
        made = cls()
        made.next_number = number_field(raw[1], 1, NUMBER_MAX + 1)
        if len(raw) == 4:
            made.role = UpkeepRole.from_row(raw[3])
        last = 0
        for row in raw[2]:
            entry = _entry(row)
            if not last < entry.number < made.next_number or (made._has_name(entry) and entry.name in made._names):
                raise ValueError("streams in order of their numbers, with names of their own, expected")
            last = entry.number
            made.streams[entry.number] = entry
            if made._has_name(entry):
                made._names[entry.name] = entry
            made._size += _size_of(entry)
        return made


def _size_of(entry: StreamEntry) -> int:
    attributes = len(pack_attributes(entry.attributes)) + len(pack_attributes(entry.log_attributes))
    return _STREAM_SIZE + len(entry.name) + attributes + len(entry.upkeep.copies) * COPY_SIZE


def _last_time(entry: StreamEntry) -> Timestamp:
    return entry.truncations[-1][1] if entry.truncations else _TIME_MIN


def _thinned(truncations: tuple[tuple[Position, Timestamp], ...]) -> tuple[tuple[Position, Timestamp], ...]:
    """If there are too many truncations, leave out one: that which another followed soonest."""
    if len(truncations) <= TRUNCATIONS_MAX:
        return truncations
    spans = [after[1] - before[1] for before, after in itertools.pairwise(truncations)]
    shortest = spans.index(min(spans))
    return truncations[:shortest] + truncations[shortest + 1 :]


def _packed(number: int) -> bytes:
    packed: bytes = msgpack.packb(number)
    return packed


def _sorted(attributes: Attributes) -> Attributes:
    return {key: attributes[key] for key in sorted(attributes)}


def _row(entry: StreamEntry) -> list[Any]:
    return [
        entry.number,
        entry.name,
        _sorted(entry.attributes),
        _sorted(entry.log_attributes),
        *entry.version,
        int(entry.phase),
        entry.log,
        [[*position, time] for position, time in entry.truncations],
        entry.ending,
        entry.ended,
        lease_row(entry.lease),
        entry.last_token,
        *([] if (upkeep := entry.upkeep.row()) is None else [upkeep]),
    ]


def _entry(row: Any) -> StreamEntry:
    if type(row) is not list:
        raise ValueError("a stream expected")
    number, name, attributes, log_attributes, lsn, offset, phase, log, *rest = row
    truncated, ending, ended, lease, last_token, *upkeep = rest
    if type(ending) is not bool or type(truncated) is not list or len(truncated) > TRUNCATIONS_MAX:
        raise ValueError("a flag and truncations expected")
    truncations = tuple(
        (position_field(at, within), Timestamp(number_field(time, _TIME_MIN, _TIME_MAX)))
        for at, within, time in truncated
    )
    if any(after[0] <= before[0] or after[1] < before[1] for before, after in itertools.pairwise(truncations)):
        raise ValueError("truncations in order expected")
    entry = StreamEntry(
        stream_number(number),
        checked_name(name),
        checked_attributes(attributes),
        checked_attributes(log_attributes),
        version_field(lsn, offset),
        StreamPhase(phase),
        _NO_LOG if log == _NO_LOG else log_field(log),
        truncations[-1][0] if truncations else START,
        truncations,
        ending,
        None if ended is None else LSN(number_field(ended, 0, LSN_MAX - 1)),
        None,
        number_field(last_token, 0, NUMBER_MAX),
    )
    # one that is being deleted may have none: it was deleted before its log was made
    if entry.phase is not StreamPhase.DELETING and (entry.log == _NO_LOG) is (entry.phase is StreamPhase.LIVE):
        raise ValueError("a log for each stream that is created expected")
    if upkeep:
        (kept,) = upkeep
        entry.upkeep = StreamUpkeep.from_row(kept)
    entry.lease = lease_field(lease, entry.last_token)
    return entry


NAMESPACE: Final = StateKind(KIND_NAME, NamespaceState, NamespaceState.decode)
