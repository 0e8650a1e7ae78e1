"""A member as a machine: when it expels, hands over, takes and stops, with time and the group under the test's hand."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from logdevice_py.core.units import Micros
from streams.subscriptions.commands import Beat, Expel, HandOver, Join, Leave, Operation, OperationAnswer
from streams.subscriptions.member import (
    CloseStream,
    MemberMachine,
    MemberStage,
    OpenStream,
    ProposeOperation,
)
from tests.unit.streams.subscriptions.operations import GROUP, Operations, at

TTL = 1_000_000
HANDOVER = 3_000_000
BEAT = TTL // 4


class Members:
    """A group of machines, whose operations are applied at once unless the test holds them back."""

    def __init__(self) -> None:
        self.group = Operations()
        self.now = Micros(1_000_000)
        self.machines: dict[str, MemberMachine] = {}
        self.open: dict[str, dict[str, int]] = {}
        """Tokens by member and stream."""
        self.stopped: set[str] = set()
        """Members whose process gets no processor."""
        self.held: list[tuple[MemberMachine, Operation]] | None = None
        """Operations that are under way; None: none waits."""
        self.proposed: list[Operation] = []

    def join(self, name: str, key: str | None = None) -> MemberMachine:
        """Another one."""
        rng = random.Random(len(self.machines) + self.now)
        machine = MemberMachine(GROUP, name, ttl_us=TTL, handover_us=HANDOVER, rng=rng)
        self.machines[key or name] = machine
        self.open[key or name] = {}
        machine.start(self.now)
        self.settle()
        return machine

    def settle(self) -> None:
        """Until nobody has anything to do at this moment."""
        busy = True
        while busy:
            done = [self._run(key) for key in self.machines if key not in self.stopped]
            busy = any(done)

    def _run(self, key: str) -> bool:
        machine = self.machines[key]
        machine.on_state(self.group.state.subscriptions.get(GROUP), self.now)
        if not machine.has_ended and machine.next_timer() <= self.now:
            machine.on_timer(self.now)
        effects = machine.take_effects()
        for effect in effects:
            match effect:
                case ProposeOperation(operation):
                    self.proposed.append(operation)
                    if self.held is None:
                        self.apply(machine, operation)
                    else:
                        self.held.append((machine, operation))
                case OpenStream(stream, _, token, _):
                    self.open[key][stream] = token
                case CloseStream(stream, token):
                    if self.open[key].get(stream) == token:
                        del self.open[key][stream]
        return bool(effects)

    def apply(self, machine: MemberMachine, operation: Operation) -> OperationAnswer:
        """Apply an operation of a member, and tell it."""
        [answer] = self.group.do(operation)
        machine.on_state(self.group.state.subscriptions.get(GROUP), self.now)
        machine.on_answer(operation, answer, self.now)
        return answer

    def release(self) -> None:
        """Apply what was held back."""
        held, self.held = self.held or [], None
        for machine, operation in held:
            self.apply(machine, operation)
        self.settle()

    def run(self, micros: int) -> None:
        """Let time pass."""
        end = self.now + micros
        self.settle()
        while True:
            times = [
                machine.next_timer()
                for key, machine in self.machines.items()
                if key not in self.stopped and not machine.has_ended
            ]
            if not times or min(times) > end:
                self.now = Micros(end)
                self.settle()
                return
            assert min(times) > self.now, "a timer that nothing is done about"
            self.now = min(times)
            self.settle()

    def owners(self) -> dict[str, str | None]:
        """By stream."""
        return self.group.owners()


@pytest.fixture
def members() -> Members:
    made = Members()
    made.group.add("s1", "s2", "s3", "s4")
    return made


def test_a_member_gets_all_and_shares_with_the_next(members: Members) -> None:
    members.join("a")
    assert set(members.open["a"]) == {"s1", "s2", "s3", "s4"}
    members.join("b")
    # nothing was handed out, so the streams move at once
    assert (len(members.open["a"]), len(members.open["b"])) == (2, 2)
    assert not set(members.open["a"]) & set(members.open["b"])


def test_what_was_handed_out_is_finished_first(members: Members) -> None:
    a = members.join("a")
    for stream, token in a.held.items():
        a.on_handed_out(stream, token, at(5))
        assert a.may_hand_out(stream, token, members.now)
    members.join("b")
    assert set(members.owners().values()) == {"a"}
    moving = [stream for stream in a.held if members.group.stream(stream).heir]
    assert not any(a.may_hand_out(stream, a.held[stream], members.now) for stream in moving)
    first, second = moving
    a.on_done(first, a.held[first], at(4), members.now)
    members.settle()
    assert members.owners()[first] == "a"
    a.on_done(first, a.held[first], at(5), members.now)
    members.settle()
    assert (members.owners()[first], members.owners()[second]) == ("b", "a")
    members.run(HANDOVER + BEAT)  # the heir's time
    assert members.owners()[second] == "b"
    assert second in members.open["b"]
    assert second not in members.open["a"]


def test_a_move_that_is_not_wanted_any_more(members: Members) -> None:
    a = members.join("a")
    for stream, token in a.held.items():
        a.on_handed_out(stream, token, at(5))
    b = members.join("b")
    moving = [stream for stream in a.held if members.group.stream(stream).heir]
    assert moving
    b.leave(members.now)
    members.settle()
    assert all(a.may_hand_out(stream, a.held[stream], members.now) for stream in moving)
    assert b.stage is MemberStage.ENDED


def test_a_stream_that_was_never_opened_is_opened_when_it_stays(members: Members) -> None:
    a = members.join("a")
    members.held = []
    b = members.join("b")
    members.release()
    assert b.stage is MemberStage.JOINED
    members.held = []
    members.group.remove("s1")
    members.group.add("s1")
    members.settle()
    for machine, operation in members.held:
        machine.on_failure(operation, members.now)
    members.held = None
    b.leave(members.now)
    members.settle()
    members.run(BEAT)
    assert set(members.open["a"]) == {"s1", "s2", "s3", "s4"}
    assert all(a.may_hand_out(stream, token, members.now) for stream, token in members.open["a"].items())


def test_the_dead_are_expelled_after_their_time(members: Members) -> None:
    members.join("a")
    members.join("b")
    members.run(TTL)
    members.stopped.add("b")
    members.run(TTL - BEAT - 1)
    assert set(members.owners().values()) == {"a", "b"}
    members.run(BEAT + BEAT)
    assert set(members.owners().values()) == {"a"}
    assert len(members.open["a"]) == 4


def test_a_member_that_was_paused_hands_out_nothing_and_joins_again(members: Members) -> None:
    members.join("a")
    b = members.join("b")
    stream, token = next(iter(b.held.items()))
    b.on_handed_out(stream, token, at(9))
    assert b.may_hand_out(stream, token, members.now)
    members.stopped.add("b")
    members.run(TTL * 7 // 8)
    assert not b.may_hand_out(stream, token, members.now)
    assert set(members.owners().values()) == {"a", "b"}  # before anybody takes over
    members.run(TTL)
    assert set(members.owners().values()) == {"a"}
    members.stopped.clear()
    members.settle()
    assert b.joins == 2
    assert b.stage is MemberStage.JOINED
    b.on_done(stream, token, at(9), members.now)  # too late, and harmless
    members.run(TTL)
    assert (len(members.open["a"]), len(members.open["b"])) == (2, 2)
    assert members.open["b"].get(stream) != token


def test_who_was_paused_expels_nobody(members: Members) -> None:
    a = members.join("a")
    members.join("b")
    members.run(TTL)
    members.stopped.add("a")
    members.run(TTL // 2 + BEAT)  # too short for the others
    members.stopped.clear()
    members.proposed.clear()
    # a has seen nothing of b for longer than it would wait; its first event is a timer
    members.now = Micros(members.now + BEAT)
    a.on_timer(members.now)
    members.settle()
    members.run(3 * TTL)
    assert not any(isinstance(each, Expel) for each in members.proposed)


def test_when_the_log_was_away_nobody_is_expelled(members: Members) -> None:
    members.join("a")
    members.join("b")
    members.run(TTL)
    members.held = []
    members.run(5 * TTL)
    assert not any(isinstance(operation, Expel) for _, operation in members.held)
    a = members.machines["a"]
    assert not any(a.may_hand_out(stream, token, members.now) for stream, token in a.held.items())
    members.release()
    members.run(3 * TTL)
    assert not any(isinstance(each, Expel) for each in members.proposed)
    assert set(members.owners().values()) == {"a", "b"}


def test_not_all_expel_at_once(members: Members) -> None:
    for name in ("a", "b", "c", "d"):
        members.join(name)
    members.run(TTL)
    members.proposed.clear()
    members.stopped.add("b")
    members.run(2 * TTL)
    assert len([each for each in members.proposed if isinstance(each, Expel)]) == 1


def test_another_one_of_its_name_takes_over(members: Members) -> None:
    first = members.join("a")
    second = members.join("a", key="again")
    assert first.stage is MemberStage.REPLACED
    assert second.stage is MemberStage.JOINED
    assert not members.open["a"]
    assert len(members.open["again"]) == 4
    first.on_timer(members.now)
    first.leave(members.now)
    assert first.take_effects() == []


def test_a_late_copy_of_its_own_join_is_nobody_else(members: Members) -> None:
    a = members.join("a")
    join = next(each for each in members.proposed if isinstance(each, Join))
    members.group.expel("a")
    members.settle()
    assert a.joins == 2
    members.group.do(join)
    members.settle()
    assert a.stage is MemberStage.JOINED
    assert a.joins == 3


def test_joining_is_proposed_again_when_nothing_is_known_of_it(members: Members) -> None:
    members.held = []
    a = members.join("a")
    [(_, join)] = members.held
    a.on_failure(join, members.now)
    members.held = None
    members.run(BEAT)
    assert a.stage is MemberStage.JOINED


def test_hand_overs_and_heartbeats_are_proposed_again(members: Members) -> None:
    a = members.join("a")
    for stream, token in a.held.items():
        a.on_handed_out(stream, token, at(5))
    members.join("b")
    members.held = []
    for stream, token in a.held.items():
        a.on_done(stream, token, at(5), members.now)
    members.run(BEAT)
    lost = [operation for machine, operation in members.held if machine is a]
    assert {type(each) for each in lost} == {HandOver, Beat}
    for operation in lost:
        a.on_failure(operation, members.now)
    members.held = None
    members.run(BEAT)
    assert (len(members.open["a"]), len(members.open["b"])) == (2, 2)


def test_leaving(members: Members) -> None:
    a = members.join("a")
    members.join("b")
    a.leave(members.now)
    members.settle()
    assert a.stage is MemberStage.ENDED
    assert set(members.owners().values()) == {"b"}
    b = members.machines["b"]
    members.held = []
    b.leave(members.now)
    members.settle()
    [(_, leave)] = [each for each in members.held if isinstance(each[1], Leave)]
    assert not members.open["b"]
    b.on_failure(leave, members.now)
    assert b.has_ended


def test_streams_that_are_removed_or_reset_are_closed(members: Members) -> None:
    a = members.join("a")
    members.group.remove("s1")
    old = a.held["s2"]
    members.group.commit("s2", 3, reset=True)
    opened: list[Any] = []
    a.on_state(members.group.state.subscriptions[GROUP], members.now)
    opened = a.take_effects()
    token = members.group.stream("s2").token
    assert opened == [
        CloseStream("s1", opened[0].token),
        CloseStream("s2", old),
        OpenStream("s2", 3, token, at(3)),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_in_whatever_order(members: Members, seed: int) -> None:
    """Members stop, go on, join and leave; nobody may hand out with a token below one that another one had."""
    rng = random.Random(seed)
    names = ["a", "b", "c", "d", "e"]
    greatest: dict[str, int] = {}
    handed_out = 0
    for _ in range(100):
        what, name = rng.random(), rng.choice(names)
        known = members.machines.get(name)
        if known is None or known.has_ended:
            members.stopped.discard(name)
            members.join(name)
        elif what < 0.1:
            members.stopped.add(name)
        elif what < 0.3:
            members.stopped.discard(name)
        elif what < 0.35 and name not in members.stopped:
            known.leave(members.now)
        elif what < 0.4:
            members.held = [] if members.held is None else members.held
        elif members.held is not None:
            members.release()
        members.run(rng.randrange(TTL // 2))
        for key, machine in members.machines.items():
            for stream, token in machine.held.items():
                if machine.may_hand_out(stream, token, members.now):
                    handed_out += 1
                    assert token >= greatest.get(stream, 0), f"{key} hands out {stream} behind a fence"
                    greatest[stream] = token
                    if rng.random() < 0.5:
                        machine.on_handed_out(stream, token, at(rng.randrange(1, 100)))
                    if rng.random() < 0.7:
                        machine.on_done(stream, token, at(100), members.now)
    assert handed_out
    members.stopped.clear()
    if members.held is not None:
        members.release()
    members.run(4 * HANDOVER)
    live = [machine for machine in members.machines.values() if machine.stage is MemberStage.JOINED]
    counts = sorted(len(machine.held) for machine in live)
    assert sum(counts) == (4 if live else 0)
    assert not counts or counts[-1] - counts[0] <= 1


def test_where_the_log_is_slow_heartbeats_follow_each_other_at_once(members: Members) -> None:
    a = members.join("a")
    members.held = []
    proposed = []
    for _ in range(4):
        while not members.held:
            members.run(1000)
        proposed.append(members.now)
        members.run(BEAT + BEAT // 2)  # that is how long a command takes
        [(_, operation)] = members.held
        assert isinstance(operation, Beat)
        members.held = []
        members.apply(a, operation)
        members.settle()
    apart = [later - earlier for earlier, later in pairwise(proposed)]
    assert apart == [BEAT + BEAT // 2] * 3


def test_a_heartbeat_of_which_nothing_is_known_is_followed_by_another(members: Members) -> None:
    a = members.join("a")
    members.held = []
    members.run(2 * BEAT)
    [(_, operation)] = members.held
    members.held = []
    a.on_failure(operation, members.now)
    members.settle()
    assert [type(operation) for _, operation in members.held] == [Beat]


def test_a_dead_member_is_expelled_as_soon_as_three_slow_heartbeats_went_through(members: Members) -> None:
    members.join("a")
    members.join("b")
    members.stopped.add("b")
    died, command = members.now, 260_000
    under_way: list[tuple[MemberMachine, Operation]] = []
    members.held, ends = [], 0
    while "b" in members.group.state.subscriptions[GROUP].members:
        members.run(1000)
        if under_way and members.now >= ends:  # one command at a time, which takes so long
            for machine, operation in under_way:
                members.apply(machine, operation)
            under_way = []
            members.settle()
        if not under_way and members.held:
            under_way, members.held, ends = members.held, [], members.now + command
    assert members.now - died < 1_400_000
