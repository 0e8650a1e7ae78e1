"""One member of a group: what it does when time passes and when the group changes. Events in, effects out.

Rules that `docs/decisions/0016-groups.md` gives reasons for:

1. Lease: records are handed out only within a part of the time to live since the proposal of the last heartbeat that was applied. Nobody expels the
   member before that time is over.
2. Expel by waiting: a member is expelled by another one that saw no heartbeat of it for its time to live, by its own monotonic clock, and whose own
   heartbeats were meanwhile proposed and applied, some of them one behind the other. So a pause of the one who waits, or of the log, expels nobody.
3. Finish: a stream that another member is to get is handed over when all that was handed out of it is done.
4. Beat on: a heartbeat that was due while the one before was under way follows as soon as that is answered. So heartbeats are as far apart as the log is slow, and
   not up to twice that: whoever waits to expel waits for three of his own.
5. Force: an heir takes a stream after the owner's time to finish, counted from when the heir saw that it is to move.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from client.guards import START, Position
from logdevice_py.core.ids import LogId
from logdevice_py.core.machine import Rng
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from streams.subscriptions.commands import (
    NONCE_BYTES,
    Beat,
    Expel,
    HandOver,
    Join,
    Leave,
    Operation,
    OperationAnswer,
)
from streams.subscriptions.state import GroupMember, GroupStream, SubscriptionState

BEATS_PER_TTL: Final = 4
_BEATS_WAITED: Final = BEATS_PER_TTL - 1
"""Of the one who waits."""
_RANKS_MAX: Final = 4
_RANKS_PER_TTL: Final = 16


class MemberStage(enum.Enum):
    """How far a member is."""

    JOINING = enum.auto()  # proposed that it joins
    JOINED = enum.auto()  # belongs to the group
    LEAVING = enum.auto()  # proposed that it leaves
    ENDED = enum.auto()  # does nothing any more
    REPLACED = enum.auto()  # another one of its name joined; does nothing any more


@dataclass(frozen=True, slots=True)
class ProposeOperation:
    """Propose it; `on_answer` or `on_failure` says what came of it."""

    operation: Operation


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Begin to read a stream behind its checkpoint."""

    stream: str
    log: LogId
    token: int
    checkpoint: Position | None
    """None: nothing was ever committed."""


@dataclass(frozen=True, slots=True)
class CloseStream:
    """Read it no more."""

    stream: str
    token: int


MemberEffect: TypeAlias = ProposeOperation | OpenStream | CloseStream


@dataclass(slots=True)
class _Held:
    """A stream that is read."""

    token: int
    handed_out: Position = START
    done: Position = START
    is_open: bool = False
    """`OpenStream` was said."""
    is_to_move: bool = False
    over_proposed: bool = False
    """The hand-over was proposed, and nothing is known of it."""


@dataclass(slots=True)
class _Seen:
    """The last heartbeat of another member."""

    nonce: bytes
    beat: int
    at: Micros
    """When it was seen."""
    beats: int
    """How many heartbeats of the one who waits were applied by then."""
    expel_proposed: bool = False


class MemberMachine:
    """One member, from joining to leaving.

    Args:
        group: the name of the subscription.
        name: of the member.
        ttl_us: after so long without a heartbeat others may expel it.
        handover_us: how long it may take to finish a stream that another member is to get.
    """

    def __init__(self, group: str, name: str, *, ttl_us: int, handover_us: int, rng: Rng) -> None:
        self.group = group
        self.name = name
        self.stage = MemberStage.JOINING
        self.joins = 0
        """How often it joined; more than once: it was expelled."""
        self._ttl_us = ttl_us
        self._handover_us = handover_us
        self._rng = rng
        self._nonce = b""
        self._nonces: set[bytes] = set()
        """All that it ever had: a late copy of an earlier `Join` is nobody else."""
        self._effects: list[MemberEffect] = []
        self._under_way: dict[Operation, Micros] = {}
        """When each was proposed."""
        self._beat_at = Micros(0)
        """When the next heartbeat is due."""
        self._is_beat_due = False
        """A heartbeat was due while the one before was under way."""
        self._beats = 0
        """Heartbeats that were applied."""
        self._lease_until = Micros(0)
        self._held: dict[str, _Held] = {}
        self._seen: dict[str, _Seen] = {}
        self._inherits: dict[str, tuple[int, Micros]] = {}
        """Streams that this member is to get: the owner's token, and when they may be taken."""
        self._group: SubscriptionState | None = None

    # What the shell asks

    def take_effects(self) -> list[MemberEffect]:
        """What is to be done, in order; asked for after each event."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def has_ended(self) -> bool:
        """It does nothing any more."""
        return self.stage in (MemberStage.ENDED, MemberStage.REPLACED)

    @property
    def lease_until(self) -> Micros:
        """Records are handed out before."""
        return self._lease_until

    @property
    def held(self) -> dict[str, int]:
        """The tokens of the streams that it reads."""
        return {stream: held.token for stream, held in self._held.items()}

    def may_hand_out(self, stream: str, token: int, now: Micros) -> bool:
        """Whether records of this assignment may go to the application."""
        held = self._held.get(stream)
        return held is not None and held.token == token and not held.is_to_move and now < self._lease_until

    def next_timer(self) -> Micros:
        """When `on_timer` has something to do, unless there is another event before."""
        times = [self._beat_at]
        if self.stage is MemberStage.JOINED:
            times += [at for _, at in self._inherits.values()]
            times += [self._overdue_at(name, seen) for name, seen in self._seen.items() if self._may_expel(seen)]
        return min(times)

    # Life

    def start(self, now: Micros) -> None:
        """Join. The state must be caught up."""
        self._join(now)

    def leave(self, now: Micros) -> None:
        """Stop reading, and let others have the streams."""
        if self.stage in (MemberStage.JOINING, MemberStage.JOINED):
            self._close_all()
            self.stage = MemberStage.LEAVING
            self._propose(Leave(self.group, self.name, self._nonce), now)

    def _join(self, now: Micros) -> None:
        self.joins += 1
        self.stage = MemberStage.JOINING
        self._nonce = self._rng.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        self._nonces.add(self._nonce)
        self._lease_until = Micros(0)
        self._seen.clear()
        self._propose_join(now)

    def _propose_join(self, now: Micros) -> None:
        self._beat_at = Micros(now + self._ttl_us // BEATS_PER_TTL)
        self._propose(Join(self.group, self.name, self._nonce, self._ttl_us, self._handover_us), now)

    def _propose(self, operation: Operation, now: Micros) -> None:
        if operation not in self._under_way:
            self._under_way[operation] = now
            self._effects.append(ProposeOperation(operation))

    def _close_all(self) -> None:
        for stream, held in self._held.items():
            self._effects.append(CloseStream(stream, held.token))
        self._held.clear()
        self._inherits.clear()

    # Events

    def on_state(self, group: SubscriptionState | None, now: Micros) -> None:
        """The group is so at present; called for the latest state only."""
        self._group = group
        if self.has_ended:
            return
        member = None if group is None else group.members.get(self.name)
        if member is None or member.nonce != self._nonce:
            self._on_absent(member, now)
            return
        if self.stage is MemberStage.JOINING:
            self.stage = MemberStage.JOINED
        if self.stage is MemberStage.JOINED:
            assert group is not None
            self._watch_members(group, now)
            self._follow_streams(group, now)

    def _on_absent(self, there: GroupMember | None, now: Micros) -> None:
        if self.stage is MemberStage.JOINED:
            self._on_lost(there, now)
        elif self.stage is MemberStage.LEAVING and not any(type(each) is Join for each in self._under_way):
            self.stage = MemberStage.ENDED

    def _on_lost(self, there: GroupMember | None, now: Micros) -> None:
        self._close_all()
        if there is not None and there.nonce not in self._nonces:
            hit("group_member_is_replaced")
            self.stage = MemberStage.REPLACED
        else:
            hit("group_member_was_expelled")
            self._join(now)

    def on_answer(self, operation: Operation, answer: OperationAnswer, now: Micros) -> None:
        """What an operation came to; `on_state` was called with a state that has it."""
        proposed = self._under_way.pop(operation, None)
        if self.has_ended or proposed is None:
            return
        match operation:
            case Join():
                self._on_joined(operation, answer, proposed, now)
            case Beat():
                if answer is OperationAnswer.OK and operation.nonce == self._nonce:
                    self._on_beat(proposed)
                self._beat_if_due(now)
            case Leave():
                self.stage = MemberStage.ENDED
            case HandOver():
                self._on_handed_over(operation)
            case Expel():
                if (seen := self._seen.get(operation.member)) is not None and answer is not OperationAnswer.OK:
                    seen.expel_proposed = False

    def _on_joined(self, operation: Join, answer: OperationAnswer, proposed: Micros, now: Micros) -> None:
        if operation.nonce != self._nonce or answer is not OperationAnswer.OK:
            return
        self._on_beat(proposed)
        if self.stage is MemberStage.JOINING:  # it was in the group, and is no more
            there = None if self._group is None else self._group.members.get(self.name)
            self._on_lost(there, now)

    def _on_beat(self, proposed: Micros) -> None:
        self._beats += 1
        self._lease_until = max(self._lease_until, Micros(proposed + self._ttl_us * 7 // 8))

    def _on_handed_over(self, operation: HandOver) -> None:
        held = self._held.get(operation.stream)
        if held is not None and held.token == operation.token:
            held.over_proposed = False

    def on_failure(self, operation: Operation, now: Micros) -> None:
        """Nothing is known of what came of it. It is proposed again when it is due."""
        self._under_way.pop(operation, None)
        if isinstance(operation, HandOver):
            self._on_handed_over(operation)
        elif isinstance(operation, Expel) and (seen := self._seen.get(operation.member)) is not None:
            seen.expel_proposed = False
        elif isinstance(operation, Leave):
            self.stage = MemberStage.ENDED  # others will see that it is gone
        elif isinstance(operation, Beat):
            self._beat_if_due(now)

    def on_timer(self, now: Micros) -> None:
        """Time has passed."""
        if self.has_ended:
            return
        if now >= self._beat_at:
            self._beat(now)
        if self.stage is MemberStage.JOINED:
            self._expel_overdue(now)
            self._force_overdue(now)

    def _beat(self, now: Micros) -> None:
        self._beat_at = Micros(now + self._ttl_us // BEATS_PER_TTL)
        self._is_beat_due = False
        if self.stage is MemberStage.JOINED:
            beat = Beat(self.group, self.name, self._nonce)
            self._is_beat_due = beat in self._under_way
            self._propose(beat, now)
            for stream, held in self._held.items():
                self._hand_over_if_done(stream, held, now)
        elif self.stage is MemberStage.JOINING:
            self._propose_join(now)

    def _beat_if_due(self, now: Micros) -> None:
        if self._is_beat_due and self.stage is MemberStage.JOINED:
            self._beat(now)

    # Other members

    def _watch_members(self, group: SubscriptionState, now: Micros) -> None:
        for name in [name for name in self._seen if name not in group.members]:
            del self._seen[name]
        for name, member in group.members.items():
            if name == self.name:
                continue
            seen = self._seen.get(name)
            if seen is None or (seen.nonce, seen.beat) != (member.nonce, member.beat):
                self._seen[name] = _Seen(member.nonce, member.beat, now, self._beats)

    def _overdue_at(self, name: str, seen: _Seen) -> Micros:
        """Members of higher rank wait a little longer, so that not all propose the same."""
        assert self._group is not None
        member = self._group.members.get(name)
        ttl_us = self._ttl_us if member is None else member.ttl_us
        rank = min(sum(other < self.name for other in self._seen if other != name), _RANKS_MAX)
        return Micros(seen.at + ttl_us + rank * ttl_us // _RANKS_PER_TTL)

    def _may_expel(self, seen: _Seen) -> bool:
        """Heartbeats of this member went through meanwhile, so one of the other member would have."""
        return not seen.expel_proposed and self._beats - seen.beats >= _BEATS_WAITED

    def _expel_overdue(self, now: Micros) -> None:
        for name, seen in self._seen.items():
            if self._may_expel(seen) and now >= self._overdue_at(name, seen):
                hit("group_member_expels")
                seen.expel_proposed = True
                self._propose(Expel(self.group, name, seen.nonce, seen.beat), now)

    # Streams

    def _follow_streams(self, group: SubscriptionState, now: Micros) -> None:
        for stream, held in list(self._held.items()):
            shared = group.streams.get(stream)
            if shared is None or shared.owner != self.name or shared.token != held.token:
                del self._held[stream]
                self._effects.append(CloseStream(stream, held.token))
        inherits: dict[str, tuple[int, Micros]] = {}
        for stream, shared in group.streams.items():
            if shared.owner == self.name:
                self._follow_own(group, stream, shared, now)
            elif shared.heir == self.name and shared.owner is not None:
                known = self._inherits.get(stream)
                if known is None or known[0] != shared.token:
                    known = (shared.token, Micros(now + group.members[shared.owner].handover_us))
                inherits[stream] = known
        self._inherits = inherits

    def _follow_own(self, group: SubscriptionState, stream: str, shared: GroupStream, now: Micros) -> None:
        held = self._held.get(stream)
        if held is None:
            held = self._held[stream] = _Held(shared.token)
        held.is_to_move = shared.heir is not None or held.over_proposed
        if not held.is_open and not held.is_to_move:
            held.is_open = True
            checkpoint = group.checkpoints.get(stream)
            at = None if checkpoint is None else checkpoint.position
            self._effects.append(OpenStream(stream, shared.log, shared.token, at))
        self._hand_over_if_done(stream, held, now)

    def _hand_over_if_done(self, stream: str, held: _Held, now: Micros) -> None:
        if held.is_to_move and not held.over_proposed and held.done >= held.handed_out:
            held.over_proposed = True
            self._propose(HandOver(self.group, stream, held.token), now)

    def _force_overdue(self, now: Micros) -> None:
        for stream, (token, at) in list(self._inherits.items()):
            if now >= at:
                self._inherits[stream] = (token, Micros(now + self._ttl_us))  # when nothing is known of it by then
                hit("group_heir_takes_a_stream")
                self._propose(HandOver(self.group, stream, token, forced=True), now)

    def on_handed_out(self, stream: str, token: int, last: Position) -> None:
        """Records up to here went to the application."""
        held = self._held.get(stream)
        if held is not None and held.token == token:
            held.handed_out = max(held.handed_out, last)

    def on_done(self, stream: str, token: int, last: Position, now: Micros) -> None:
        """The application is done with them, and has committed that where it belongs."""
        held = self._held.get(stream)
        if held is not None and held.token == token:
            held.done = max(held.done, last)
            self._hand_over_if_done(stream, held, now)
