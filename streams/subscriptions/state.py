"""Subscriptions as a replicated state: checkpoints of streams, and groups whose members share streams.

Rules that `docs/decisions/0016-groups.md` gives reasons for:

1. Checkpoints do not fall, unless `reset` is said.
2. Tokens rise: each assignment of a stream to a member has a token that no assignment had before, in no group.
3. Fenced: of a stream that a member owns, nothing but the token of this assignment commits.
4. One owner: a stream has at most one. An heir gets it by the owner's hand-over, after the owner's time, or when the owner is gone.
5. No clock: whether a member is dead is said by whoever waited, together with the number of the last heartbeat that he saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgpack

from client.guards import Position
from client.replica.applied_state import StateKind
from client.replica.commands import NOTHING, StateVersion, decode_snapshot, number_field, version_field
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Timestamp
from streams.fields import position_field
from streams.subscriptions.assignment import assign
from streams.subscriptions.commands import (
    LOG_MAX,
    TOKEN_MAX,
    TTL_US_MAX,
    AddStreams,
    Beat,
    Commit,
    Delete,
    Expel,
    HandOver,
    Join,
    Leave,
    Operation,
    OperationAnswer,
    RemoveStreams,
    decode,
    name_field,
    nonce_field,
)

KIND_NAME: Final = "subscriptions"
SIZE_MAX: Final = 48 << 20
"""Bytes of a snapshot at most, about: more is refused. A state that has no snapshot could never be trimmed."""
MEMBERS_MAX: Final = 1000
"""Of one group."""
_ROW_SIZE: Final = 60
"""Bytes of a row of a snapshot besides its name, at most."""
_FORMAT: Final = 1
_TIME_MAX: Final = (1 << 63) - 1


class Checkpoint:
    """How far a subscription is in a stream."""

    __slots__ = ("commits", "position", "time", "version")

    def __init__(self, position: Position, version: StateVersion, time: Timestamp, commits: int) -> None:
        self.position = position
        """The last record that is handled, with all before it."""
        self.version = version
        """Of the command that committed it."""
        self.time = time
        """Of that command, given by the sequencer."""
        self.commits = commits
        """How often the position was committed, as far as commits were not coalesced."""


class GroupStream:
    """A stream that members share."""

    __slots__ = ("heir", "log", "owner", "token")

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.owner: str | None = None
        """The member that handles it."""
        self.token = 0
        """Of its assignment to the owner, or to the last one; 0: it had none."""
        self.heir: str | None = None
        """The member that is to get it from the owner."""


class GroupMember:
    """A member of a group."""

    __slots__ = ("beat", "handover_us", "nonce", "ttl_us")

    def __init__(self, nonce: bytes, beat: int, ttl_us: int, handover_us: int) -> None:
        self.nonce = nonce
        """Tells it from others of the same name."""
        self.beat = beat
        """The number of its heartbeats."""
        self.ttl_us = ttl_us
        self.handover_us = handover_us


class SubscriptionState:
    """One subscription: its checkpoints, and the group that shares it, if there is one."""

    __slots__ = ("checkpoints", "members", "streams")

    def __init__(self) -> None:
        self.checkpoints: dict[str, Checkpoint] = {}
        self.streams: dict[str, GroupStream] = {}
        self.members: dict[str, GroupMember] = {}


class SubscriptionsState:
    """What the commands to the subscriptions amount to."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, SubscriptionState] = {}
        self.next_token = 1
        """Of the next assignment."""
        self._size = 0
        """Of what a snapshot holds, about. Follows from the state, as what is refused depends on it."""

    # Commands

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """Judge each operation: as `StateMachine.apply`. The result has an `OperationAnswer` for each."""
        return bytes([self._judge(operation, at, time) for operation in decode(command)])

    def _judge(self, operation: Operation, at: StateVersion, time: Timestamp) -> OperationAnswer:
        match operation:
            case Commit():
                return self._commit(operation, at, time)
            case AddStreams():
                return self._add_streams(operation)
            case Join():
                return self._join(operation)
        found = self.subscriptions.get(operation.subscription)
        if found is None:
            return OperationAnswer.NOTFOUND
        match operation:
            case Beat():
                return self._beat(operation, found)
            case HandOver():
                return self._hand_over(operation, found)
            case Leave():
                return self._leave(operation, found)
            case Expel():
                return self._expel(operation, found)
            case RemoveStreams():
                return self._remove_streams(operation, found)
            case Delete():
                return self._delete(operation, found)

    # Checkpoints

    def _commit(self, wanted: Commit, at: StateVersion, time: Timestamp) -> OperationAnswer:
        name, stream = wanted.subscription, wanted.stream
        found = self.subscriptions.get(name)
        shared = None if found is None else found.streams.get(stream)
        before = None if found is None else found.checkpoints.get(stream)
        if self._is_fenced(shared, wanted):
            return OperationAnswer.FENCED
        if wanted.expect is not None and wanted.expect != (NOTHING if before is None else before.version):
            return OperationAnswer.VERSION_MISMATCH
        if before is None:
            grown = _ROW_SIZE + _length(stream) + (_ROW_SIZE + _length(name) if found is None else 0)
            if not self._grow(grown):
                return OperationAnswer.NOSPC
            found = self._made(name)
            found.checkpoints[stream] = Checkpoint(wanted.position, at, time, 1)
        elif wanted.position < before.position and not wanted.reset:
            return OperationAnswer.FALLS
        else:
            before.position, before.version, before.time = wanted.position, at, time
            before.commits += 1
        if shared is not None and shared.owner is not None and not wanted.token:
            self._take_token(shared)  # whoever has it begins anew, at the position that was set
        return OperationAnswer.OK

    @staticmethod
    def _is_fenced(shared: GroupStream | None, wanted: Commit) -> bool:
        owned = shared is not None and shared.owner is not None
        if wanted.token:
            return not owned or shared is None or shared.token != wanted.token
        return owned and not wanted.reset

    def _delete(self, wanted: Delete, found: SubscriptionState) -> OperationAnswer:
        if wanted.stream is None:
            if found.members:
                return OperationAnswer.NOTEMPTY
            self._size -= _sized(wanted.subscription, found)
            del self.subscriptions[wanted.subscription]
            return OperationAnswer.OK
        if wanted.stream in found.streams:
            return OperationAnswer.NOTEMPTY
        before = found.checkpoints.get(wanted.stream)
        if before is None:
            return OperationAnswer.NOTFOUND
        if wanted.expect is not None and wanted.expect != before.version:
            return OperationAnswer.VERSION_MISMATCH
        del found.checkpoints[wanted.stream]
        self._size -= _ROW_SIZE + _length(wanted.stream)
        self._forget_empty(wanted.subscription, found)
        return OperationAnswer.OK

    # Streams of groups

    def _add_streams(self, wanted: AddStreams) -> OperationAnswer:
        found = self.subscriptions.get(wanted.subscription)
        new = []
        grown = _ROW_SIZE + _length(wanted.subscription) if found is None else 0
        for stream, log in wanted.streams:
            shared = None if found is None else found.streams.get(stream)
            if shared is None:
                new.append((stream, log))
                grown += _ROW_SIZE + _length(stream)
            elif shared.log != log:
                return OperationAnswer.EXISTS
        if not self._grow(grown):
            return OperationAnswer.NOSPC
        found = self._made(wanted.subscription)
        for stream, log in new:
            found.streams[stream] = GroupStream(LogId(log))
        if new:
            self._share(found)
        return OperationAnswer.OK

    def _remove_streams(self, wanted: RemoveStreams, found: SubscriptionState) -> OperationAnswer:
        gone = [stream for stream in dict.fromkeys(wanted.streams) if stream in found.streams]
        for stream in gone:
            del found.streams[stream]
            self._size -= _ROW_SIZE + _length(stream)
        if not gone:
            return OperationAnswer.NOTFOUND
        self._share(found)
        self._forget_empty(wanted.subscription, found)
        return OperationAnswer.OK

    # Members

    def _join(self, wanted: Join) -> OperationAnswer:
        found = self.subscriptions.get(wanted.subscription)
        before = None if found is None else found.members.get(wanted.member)
        if before is not None and before.nonce == wanted.nonce:
            return OperationAnswer.OK
        if found is not None and before is None and len(found.members) >= MEMBERS_MAX:
            return OperationAnswer.NOSPC
        grown = _ROW_SIZE + _length(wanted.subscription) if found is None else 0
        if not self._grow(grown + (_ROW_SIZE + _length(wanted.member) if before is None else 0)):
            return OperationAnswer.NOSPC
        found = self._made(wanted.subscription)
        found.members[wanted.member] = GroupMember(wanted.nonce, 0, wanted.ttl_us, wanted.handover_us)
        if before is not None:  # the earlier one may still run: what it had is given anew
            for shared in found.streams.values():
                if shared.owner == wanted.member:
                    self._give(shared, shared.heir or wanted.member)
        self._share(found)
        return OperationAnswer.OK

    @staticmethod
    def _beat(wanted: Beat, found: SubscriptionState) -> OperationAnswer:
        member = found.members.get(wanted.member)
        if member is None or member.nonce != wanted.nonce:
            return OperationAnswer.FENCED
        member.beat += 1
        return OperationAnswer.OK

    def _leave(self, wanted: Leave, found: SubscriptionState) -> OperationAnswer:
        member = found.members.get(wanted.member)
        if member is None or member.nonce != wanted.nonce:
            return OperationAnswer.NOTFOUND
        self._remove(wanted.subscription, found, wanted.member)
        return OperationAnswer.OK

    def _expel(self, wanted: Expel, found: SubscriptionState) -> OperationAnswer:
        member = found.members.get(wanted.member)
        if member is None or member.nonce != wanted.nonce:
            return OperationAnswer.NOTFOUND
        if member.beat != wanted.beat:
            return OperationAnswer.VERSION_MISMATCH
        self._remove(wanted.subscription, found, wanted.member)
        return OperationAnswer.OK

    def _remove(self, name: str, found: SubscriptionState, gone: str) -> None:
        del found.members[gone]
        self._size -= _ROW_SIZE + _length(gone)
        for shared in found.streams.values():
            if shared.heir == gone:
                shared.heir = None
            elif shared.owner == gone:
                if shared.heir is None:
                    shared.owner = None
                else:
                    self._give(shared, shared.heir)
        self._share(found)
        self._forget_empty(name, found)

    def _hand_over(self, wanted: HandOver, found: SubscriptionState) -> OperationAnswer:
        shared = found.streams.get(wanted.stream)
        if shared is None:
            return OperationAnswer.NOTFOUND
        if shared.owner is None or shared.token != wanted.token:
            return OperationAnswer.FENCED
        if shared.heir is None and wanted.forced:
            return OperationAnswer.NO_HEIR
        self._give(shared, shared.heir or shared.owner)
        return OperationAnswer.OK

    # Assignments

    def _share(self, found: SubscriptionState) -> None:
        """Streams that nobody has get an owner; of those that are to move, the owner is asked to finish."""
        holders = {stream: shared.heir or shared.owner for stream, shared in found.streams.items()}
        for stream, member in sorted(assign(holders, found.members).items()):
            shared = found.streams[stream]
            if shared.owner is None:
                self._give(shared, member)
            else:
                shared.heir = None if member == shared.owner else member

    def _give(self, shared: GroupStream, member: str) -> None:
        """An assignment, with a token of its own."""
        shared.owner, shared.heir = member, None
        self._take_token(shared)

    def _take_token(self, shared: GroupStream) -> None:
        shared.token = self.next_token
        self.next_token += 1

    # Size

    def _made(self, name: str) -> SubscriptionState:
        found = self.subscriptions.get(name)
        if found is None:
            found = self.subscriptions[name] = SubscriptionState()
        return found

    def _forget_empty(self, name: str, found: SubscriptionState) -> None:
        if not (found.checkpoints or found.streams or found.members):
            del self.subscriptions[name]
            self._size -= _ROW_SIZE + _length(name)

    def _grow(self, size: int) -> bool:
        """Take so many bytes; False: there is no room."""
        if size > 0 and self._size + size > SIZE_MAX:
            return False
        self._size += size
        return True

    # Snapshots

    def encode(self) -> bytes:
        """In order of names: equal states have equal bytes."""
        rows = []
        for name in sorted(self.subscriptions):
            each = self.subscriptions[name]
            members = sorted(each.members)
            number = {member: index for index, member in enumerate(members)}
            checkpoints = [
                [stream, *found.position, *found.version, found.time, found.commits]
                for stream, found in sorted(each.checkpoints.items())
            ]
            streams = [
                [
                    stream,
                    shared.log,
                    shared.token,
                    None if shared.owner is None else number[shared.owner],
                    None if shared.heir is None else number[shared.heir],
                ]
                for stream, shared in sorted(each.streams.items())
            ]
            joined = [
                [member, found.nonce, found.beat, found.ttl_us, found.handover_us]
                for member, found in sorted(each.members.items())
            ]
            rows.append([name, checkpoints, streams, joined])
        packed: bytes = msgpack.packb([_FORMAT, self.next_token, rows])
        return packed

    @classmethod
    def decode(cls, data: bytes) -> SubscriptionsState:
        """From `encode`; ValueError for anything else."""
        return decode_snapshot(data, "state of subscriptions", cls._decoded)

    @classmethod
    def _decoded(cls, raw: Any) -> SubscriptionsState:
        format_, next_token, rows = raw
        if type(raw) is not list or format_ != _FORMAT:
            raise ValueError(f"subscriptions of format {_FORMAT} expected")
        made = cls()
        made.next_token = number_field(next_token, 1, TOKEN_MAX)
        for name, checkpoints, streams, members in rows:
            found = SubscriptionState()
            _read(checkpoints, found.checkpoints, _checkpoint)
            _read(members, found.members, _member)
            _read(streams, found.streams, _stream_of(sorted(found.members), made.next_token))
            if not (found.checkpoints or found.streams or found.members) or name in made.subscriptions:
                raise ValueError("a subscription with something in it expected, once")
            made.subscriptions[name_field(name)] = found
            made._size += _sized(name, found)
        return made


def _length(name: str) -> int:
    return len(name.encode())


def _sized(name: str, found: SubscriptionState) -> int:
    names: Iterable[str] = (name, *found.checkpoints, *found.streams, *found.members)
    return sum(_ROW_SIZE + _length(each) for each in names)


def _read(rows: Any, into: dict[str, Any], made: Callable[..., Any]) -> None:
    """Rows, each of a name and what it is of, in order of the names."""
    if type(rows) is not list:
        raise ValueError("an array expected")
    last = ""
    for name, *fields in rows:
        if name_field(name) <= last:
            raise ValueError("rows in order of their names expected")
        into[name] = made(*fields)
        last = name


def _checkpoint(lsn: Any, offset: Any, at_lsn: Any, at_offset: Any, time: Any, commits: Any) -> Checkpoint:
    position = position_field(lsn, offset)
    stamp = Timestamp(number_field(time, -_TIME_MAX, _TIME_MAX))
    return Checkpoint(position, version_field(at_lsn, at_offset), stamp, number_field(commits, 1, TOKEN_MAX))


def _member(nonce: Any, beat: Any, ttl_us: Any, handover_us: Any) -> GroupMember:
    return GroupMember(
        nonce_field(nonce),
        number_field(beat, 0, TOKEN_MAX),
        number_field(ttl_us, 1, TTL_US_MAX),
        number_field(handover_us, 0, TTL_US_MAX),
    )


def _stream_of(members: list[str], next_token: int) -> Callable[..., GroupStream]:
    def member(number: Any) -> str | None:
        return None if number is None else members[number_field(number, 0, len(members) - 1)]

    def read(log: Any, token: Any, owner: Any, heir: Any) -> GroupStream:
        made = GroupStream(LogId(number_field(log, 1, LOG_MAX)))
        made.token = number_field(token, 0, next_token - 1)
        made.owner, made.heir = member(owner), member(heir)
        if made.heir is not None and made.owner in (None, made.heir):
            raise ValueError("an heir of another owner expected")
        return made

    return read


SUBSCRIPTIONS: Final = StateKind(KIND_NAME, SubscriptionsState, SubscriptionsState.decode)
