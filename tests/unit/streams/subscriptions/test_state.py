"""Subscriptions as a state: what operations do, what they refuse, that tokens rise, and that a snapshot is the state."""

from __future__ import annotations

from collections import Counter

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from client.replica.commands import NOTHING, CommandRefused, StateVersion
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from streams.subscriptions import state as state_module
from streams.subscriptions.commands import (
    AddStreams,
    Beat,
    Commit,
    Delete,
    Expel,
    HandOver,
    Join,
    OperationAnswer,
    decode,
    encode,
)
from streams.subscriptions.state import SubscriptionsState
from tests.unit.streams.subscriptions.operations import GROUP, Operations, at, nonce


@pytest.fixture
def group() -> Operations:
    return Operations()


# Checkpoints


def test_a_position_does_not_fall_unless_that_is_said(group: Operations) -> None:
    assert group.commit("s1", 5) is OperationAnswer.OK
    assert group.commit("s1", 5) is OperationAnswer.OK
    assert group.commit("s1", 4) is OperationAnswer.FALLS
    assert group.commit("s2", 4) is OperationAnswer.OK
    assert group.commit("s1", 4, reset=True) is OperationAnswer.OK
    checkpoint = group.state.subscriptions[GROUP].checkpoints["s1"]
    assert (checkpoint.position, checkpoint.version, checkpoint.commits) == (at(4), group.version, 3)
    assert checkpoint.time == group.lsn * 1000


def test_a_commit_that_expects_another_version_is_refused(group: Operations) -> None:
    assert group.one(Commit(GROUP, "s1", at(5), StateVersion(Lsn(1), 0))) is OperationAnswer.VERSION_MISMATCH
    assert group.one(Commit(GROUP, "s1", at(5), NOTHING)) is OperationAnswer.OK
    first = group.version
    assert group.one(Commit(GROUP, "s1", at(6), NOTHING)) is OperationAnswer.VERSION_MISMATCH
    assert group.one(Commit(GROUP, "s1", at(6), first)) is OperationAnswer.OK
    assert group.one(Commit(GROUP, "s1", at(7), first)) is OperationAnswer.VERSION_MISMATCH


def test_operations_of_a_command_are_judged_one_by_one(group: Operations) -> None:
    answers = group.do(
        Commit(GROUP, "s1", at(5)), Commit(GROUP, "s1", at(4)), Commit(GROUP, "s2", at(4)), Delete(GROUP, "s3")
    )
    assert answers == [OperationAnswer.OK, OperationAnswer.FALLS, OperationAnswer.OK, OperationAnswer.NOTFOUND]


def test_deleting(group: Operations) -> None:
    group.commit("s1", 5)
    version = group.version
    group.commit("s2", 5)
    assert group.one(Delete(GROUP, "s1", group.version)) is OperationAnswer.VERSION_MISMATCH
    assert group.one(Delete(GROUP, "s1", version)) is OperationAnswer.OK
    assert group.one(Delete(GROUP, "s1")) is OperationAnswer.NOTFOUND
    assert group.one(Delete(GROUP, "s2")) is OperationAnswer.OK
    assert not group.state.subscriptions
    group.commit("s1", 5)
    group.add("s1")
    assert group.one(Delete(GROUP, "s1")) is OperationAnswer.NOTEMPTY
    group.join("a")
    assert group.one(Delete(GROUP)) is OperationAnswer.NOTEMPTY
    group.leave("a")
    assert group.one(Delete(GROUP)) is OperationAnswer.OK
    assert group.one(Delete(GROUP)) is OperationAnswer.NOTFOUND
    assert group.state._size == 0


def test_a_state_that_no_snapshot_can_hold_is_refused(group: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SIZE_MAX", 300)
    assert group.commit("s1", 1) is OperationAnswer.OK
    assert group.commit("s2", 1) is OperationAnswer.OK
    assert group.commit("s3" + "x" * 100, 1) is OperationAnswer.NOSPC
    assert group.one(AddStreams(GROUP, [("s1", 1), ("s2", 2)])) is OperationAnswer.NOSPC
    assert group.join("a" * 100) is OperationAnswer.NOSPC
    assert group.commit("s1", 2) is OperationAnswer.OK


# Groups


def test_streams_are_shared_and_move_when_their_owner_has_finished(group: Operations) -> None:
    group.add("s1", "s2", "s3", "s4")
    assert set(group.owners().values()) == {None}
    group.join("a")
    assert group.owners() == dict.fromkeys(["s1", "s2", "s3", "s4"], "a")
    group.join("b")
    assert set(group.owners().values()) == {"a"}
    heirs = [name for name in ("s1", "s2", "s3", "s4") if group.stream(name).heir == "b"]
    assert len(heirs) == 2
    tokens = {name: group.stream(name).token for name in heirs}
    group.finish()
    assert Counter(group.owners().values()) == {"a": 2, "b": 2}
    assert all(group.stream(name).token > token for name, token in tokens.items())


def test_only_the_token_of_the_assignment_commits(group: Operations) -> None:
    group.add("s1")
    assert group.commit("s1", 1) is OperationAnswer.OK  # nobody has it
    assert group.commit("s1", 2, token=1) is OperationAnswer.FENCED
    group.join("a")
    old = group.stream("s1").token
    assert group.commit("s1", 2, token=old) is OperationAnswer.OK
    assert group.commit("s1", 3) is OperationAnswer.FENCED
    assert group.commit("s1", 3, token=old + 1) is OperationAnswer.FENCED
    group.expel("a")
    assert group.commit("s1", 3, token=old) is OperationAnswer.FENCED
    group.join("b")
    assert group.commit("s1", 3, token=old) is OperationAnswer.FENCED
    assert group.commit("s1", 3, token=group.stream("s1").token) is OperationAnswer.OK
    last = group.stream("s1").token
    group.remove("s1")
    assert group.commit("s1", 4, token=last) is OperationAnswer.FENCED
    group.add("s1")
    assert group.stream("s1").token > last


def test_who_resets_a_stream_fences_its_owner(group: Operations) -> None:
    group.add("s1", "s2")
    group.join("a")
    group.join("b")
    moving = next(name for name in ("s1", "s2") if group.stream(name).heir)
    old = group.stream(moving).token
    group.commit(moving, 9, token=old)
    assert group.commit(moving, 3, reset=True) is OperationAnswer.OK
    assert group.commit(moving, 9, token=old) is OperationAnswer.FENCED
    assert (group.stream(moving).owner, group.stream(moving).heir) == ("a", "b")
    assert group.commit(moving, 2, token=group.stream(moving).token, reset=True) is OperationAnswer.OK


def test_expelling_names_the_last_heartbeat(group: Operations) -> None:
    group.join("a")
    assert group.one(Expel(GROUP, "a", nonce(2), 0)) is OperationAnswer.NOTFOUND
    assert group.one(Beat(GROUP, "a", nonce(2))) is OperationAnswer.FENCED
    assert group.one(Beat(GROUP, "a", nonce(1))) is OperationAnswer.OK
    assert group.one(Expel(GROUP, "a", nonce(1), 0)) is OperationAnswer.VERSION_MISMATCH
    assert group.one(Expel(GROUP, "a", nonce(1), 1)) is OperationAnswer.OK
    assert group.one(Beat(GROUP, "a", nonce(1))) is OperationAnswer.NOTFOUND


def test_a_member_of_the_same_name_replaces_the_earlier_one(group: Operations) -> None:
    group.add("s1", "s2")
    group.join("a")
    tokens = {name: group.stream(name).token for name in ("s1", "s2")}
    assert group.join("a") is OperationAnswer.OK  # the same one again
    assert group.stream("s1").token == tokens["s1"]
    group.join("a", 2)
    assert group.owners() == {"s1": "a", "s2": "a"}
    assert all(group.stream(name).token > token for name, token in tokens.items())
    assert group.one(Beat(GROUP, "a", nonce(1))) is OperationAnswer.FENCED


def test_who_gets_a_stream_when_owner_or_heir_dies(group: Operations) -> None:
    group.add("s1", "s2")
    group.join("a")
    group.join("b")
    moving = next(name for name in ("s1", "s2") if group.stream(name).heir)
    token = group.stream(moving).token
    group.expel("b")  # the heir
    assert (group.stream(moving).owner, group.stream(moving).heir, group.stream(moving).token) == ("a", None, token)
    assert group.one(HandOver(GROUP, moving, token, forced=True)) is OperationAnswer.NO_HEIR
    assert group.one(HandOver(GROUP, moving, token)) is OperationAnswer.OK  # had finished already: begins anew
    assert group.stream(moving).owner == "a"
    assert group.one(HandOver(GROUP, moving, token)) is OperationAnswer.FENCED
    group.join("b")
    group.expel("a")  # the owner
    assert group.owners() == {"s1": "b", "s2": "b"}


def test_an_heir_can_force_it(group: Operations) -> None:
    group.add("s1", "s2")
    group.join("a")
    group.join("b")
    moving = next(name for name in ("s1", "s2") if group.stream(name).heir)
    old = group.stream(moving).token
    assert group.one(HandOver(GROUP, moving, old, forced=True)) is OperationAnswer.OK
    assert group.stream(moving).owner == "b"
    assert group.commit(moving, 1, token=old) is OperationAnswer.FENCED


def test_streams_with_another_log_are_refused(group: Operations) -> None:
    group.add("s1")
    assert group.one(AddStreams(GROUP, [("s2", 2), ("s1", 1)])) is OperationAnswer.EXISTS
    assert "s2" not in group.state.subscriptions[GROUP].streams
    assert group.remove("s9") is OperationAnswer.NOTFOUND


def test_a_group_has_a_bounded_number_of_members(group: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "MEMBERS_MAX", 1)
    group.join("a")
    assert group.join("b") is OperationAnswer.NOSPC
    assert group.join("a", 2) is OperationAnswer.OK


# Hostile bytes


@pytest.mark.parametrize(
    "raw",
    [
        [2, [[6, "g", "a", nonce(1)]]],
        [1, []],
        [1, [[6, "g", "a", nonce(1)]] * 257],
        [1, [[99, "g"]]],
        [1, [[6, "g", "", nonce(1)]]],
        [1, [[6, "g", "a" * 256, nonce(1)]]],
        [1, [[6, "g", "a", b"short"]]],
        [1, [[6, "g", "a"]]],
        [1, [[1, "g", "s", -1, 0, None, 0, False]]],
        [1, [[1, "g", "s", 1, 0, [1], 0, False]]],
        [1, [[1, "g", "s", 1, 0, None, 0, 1]]],
        [1, [[1, "g", "s", True, 0, None, 0, False]]],
        [1, [[3, "g", [["s", 1], ["s", 2]]]]],
        [1, [[3, "g", []]]],
        [1, [[[], "g"]]],
        [1, [7]],
        [1],
        {},
        7,
    ],
)
def test_what_is_no_command_is_refused(group: Operations, raw: object) -> None:
    with pytest.raises(CommandRefused):
        group.state.apply(msgpack.packb(raw), StateVersion(Lsn(1), 0), Timestamp(0))
    assert group.state.encode() == SubscriptionsState().encode()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_decoded(data: bytes) -> None:
    with pytest.raises(CommandRefused):
        decode(data)
    with pytest.raises(ValueError, match=r"."):
        SubscriptionsState.decode(data)


# All together


class AnyOrder(RuleBasedStateMachine):
    """Whatever is done in whatever order."""

    MEMBERS = st.sampled_from(["a", "b", "c", "d"])
    STREAMS = st.sampled_from([f"s{number}" for number in range(7)])

    def __init__(self) -> None:
        super().__init__()
        self.group = Operations()
        self.tokens: set[int] = set()
        self.owned: dict[str, tuple[str, int, bytes]] = {}
        self.positions: dict[str, int] = {}

    def known(self) -> bool:
        return GROUP in self.group.state.subscriptions

    @rule(member=MEMBERS, number=st.integers(1, 3))
    def join(self, member: str, number: int) -> None:
        self.group.join(member, number)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        if self.known() and member in self.group.state.subscriptions[GROUP].members:
            self.group.leave(member)

    @rule(streams=st.sets(STREAMS, min_size=1))
    def add(self, streams: set[str]) -> None:
        self.group.add(*sorted(streams))

    @rule(stream=STREAMS)
    def remove(self, stream: str) -> None:
        self.group.remove(stream)

    @rule(stream=STREAMS, forced=st.booleans())
    def hand_over(self, stream: str, forced: bool) -> None:
        if self.known() and (shared := self.group.state.subscriptions[GROUP].streams.get(stream)) and shared.token:
            self.group.one(HandOver(GROUP, stream, shared.token, forced))

    @rule(stream=STREAMS, lsn=st.integers(1, 9), token=st.integers(0, 40), reset=st.booleans())
    def commit(self, stream: str, lsn: int, token: int, reset: bool) -> None:
        shared = self.group.state.subscriptions[GROUP].streams.get(stream) if self.known() else None
        owned = shared is not None and shared.owner is not None
        valid = shared is not None and owned and shared.token == token if token else not owned or reset
        if self.group.commit(stream, lsn, token, reset) is OperationAnswer.OK:
            assert valid
            assert reset or lsn >= self.positions.get(stream, 0)
            self.positions[stream] = lsn

    @invariant()
    def balanced_with_rising_tokens_and_whole_in_a_snapshot(self) -> None:
        state = self.group.state
        assert SubscriptionsState.decode(state.encode()).encode() == state.encode()
        assert SubscriptionsState.decode(state.encode())._size == state._size
        found = state.subscriptions.get(GROUP)
        if found is None:
            self.positions.clear()
            return
        counts = dict.fromkeys(found.members, 0)
        for name, shared in found.streams.items():
            if found.members:
                assert shared.owner in found.members
                assert shared.heir is None or (shared.heir in found.members and shared.heir != shared.owner)
                counts[shared.heir or shared.owner] += 1  # type: ignore[index]
                now = (shared.owner or "", shared.token, found.members[shared.owner or ""].nonce)
                before = self.owned.get(name)
                if before != now:
                    assert before is None or shared.token > before[1]
                    assert shared.token not in self.tokens, "a token is given twice"
                    self.tokens.add(shared.token)
                    self.owned[name] = now
            else:
                assert shared.owner is None
        if counts:
            assert max(counts.values()) - min(counts.values()) <= 1


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_commands_survive_their_bytes() -> None:
    operations = [
        Commit(GROUP, "s1", at(5, 3), StateVersion(Lsn(4), 2), 7, True),
        Delete(GROUP, "s1", NOTHING),
        Delete(GROUP),
        AddStreams(GROUP, [("s1", 1)]),
        Join(GROUP, "a", nonce(1), 5, 6),
        HandOver(GROUP, "s1", 4, True),
    ]
    assert decode(encode(operations)) == operations
