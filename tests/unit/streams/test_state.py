"""The streams of a namespace as a state: preconditions, and what follows from the commands alone."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.guards import START, Position
from client.replica.commands import CommandRefused, StateVersion, refusal
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from streams.commands import (
    AcquireStream,
    CreateStream,
    DeleteStream,
    EndStream,
    NamespaceCommand,
    ReleaseStream,
    RenameStream,
    RenewLease,
    StreamCreated,
    StreamDeleted,
    StreamEnded,
    TruncateStream,
    UntruncateStream,
    decode,
    encode,
)
from streams.state import TRUNCATIONS_MAX, NamespaceState, StreamPhase

LOG = LogId(TREE_LOG_ID_MIN)


class Applied:
    """A state, and commands that are applied to it one after the other."""

    def __init__(self) -> None:
        self.state = NamespaceState()
        self.at = 0

    def __call__(self, command: NamespaceCommand, *, time: int = 0) -> bytes:
        self.at += 1
        return self.state.apply(encode(command), StateVersion(Lsn(self.at), 0), Timestamp(time))

    def refused(self, command: NamespaceCommand) -> Status:
        """The status with which a command is refused, which changes nothing."""
        before = self.state.encode()
        with pytest.raises(CommandRefused) as raised:
            self(command)
        assert self.state.encode() == before
        return refusal(str(raised.value))[0]


def position(esn: int, offset: int = 0) -> Position:
    return Position(LSN(compose_lsn(1, esn)), offset)


@pytest.fixture
def applied() -> Applied:
    """One live stream, `a`, of number 1."""
    applied = Applied()
    assert msgpack.unpackb(applied(CreateStream("a", {"txid": "writer"}, {"backlog": "0us"}))) == 1
    applied(StreamCreated(1, LOG))
    return applied


def test_a_name_is_taken_from_creation_to_deletion(applied: Applied) -> None:
    assert applied.refused(CreateStream("a")) is Status.EXISTS
    assert msgpack.unpackb(applied(CreateStream("b"))) == 2
    assert applied.refused(RenameStream("a", "b")) is Status.EXISTS
    assert applied.refused(RenameStream("c", "d")) is Status.NOTFOUND
    applied(RenameStream("a", "c"))
    assert msgpack.unpackb(applied(CreateStream("a"))) == 3
    assert msgpack.unpackb(applied(DeleteStream("c"))) == 1
    applied(CreateStream("c"))
    assert applied.state.deleting() == [1]
    applied(StreamDeleted(1))
    assert applied.refused(StreamDeleted(1)) is Status.NOTFOUND
    assert sorted(entry.name for entry in applied.state.below("")) == ["a", "b", "c"]


def test_numbers_are_not_given_twice(applied: Applied) -> None:
    applied(DeleteStream("a"))
    applied(StreamDeleted(1))
    assert msgpack.unpackb(applied(CreateStream("a"))) == 2
    # whoever still creates the first one learns that it is gone
    assert applied.refused(StreamCreated(1, LOG)) is Status.NOTFOUND


def test_a_stream_can_be_used_when_it_has_its_log(applied: Applied) -> None:
    applied(CreateStream("b"))
    entry = applied.state.find("b")
    assert entry is not None
    assert entry.phase is StreamPhase.CREATING
    for command in (TruncateStream(2, position(1)), EndStream(2), AcquireStream(2, "x", 1)):
        assert applied.refused(command) is Status.NOTFOUND
    applied(StreamCreated(2, LogId(LOG + 1)))
    applied(StreamCreated(2, LogId(LOG + 1)))  # by two that helped
    assert applied.refused(StreamCreated(2, LOG)) is Status.CONFLICT
    assert entry.phase is StreamPhase.LIVE


def test_changes_of_another_version_are_refused(applied: Applied) -> None:
    entry = applied.state.find("a")
    assert entry is not None
    old = entry.version
    applied(RenameStream("a", "b", old))
    assert applied.refused(RenameStream("b", "c", old)) is Status.VERSION_MISMATCH
    assert applied.refused(DeleteStream("b", old)) is Status.VERSION_MISMATCH
    applied(DeleteStream("b", entry.version))


def test_truncations_go_forward_and_are_undone_as_a_whole(applied: Applied) -> None:
    entry = applied.state.find("a")
    assert entry is not None
    applied(TruncateStream(1, position(5, 2)), time=100)
    assert applied.refused(TruncateStream(1, position(5, 2))) is Status.CONFLICT
    assert applied.refused(TruncateStream(1, position(5, 1))) is Status.CONFLICT
    applied(TruncateStream(1, position(6)), time=90)  # another sequencer's clock
    assert entry.min_active == position(6)
    assert entry.truncations == ((position(5, 2), 100), (position(6), 100))
    applied(UntruncateStream(1))
    assert (entry.min_active, entry.truncations) == (START, ())


def test_of_many_truncations_those_are_forgotten_that_the_next_follows_soonest(applied: Applied) -> None:
    entry = applied.state.find("a")
    assert entry is not None
    for number in range(1, 200):
        applied(TruncateStream(1, position(number)), time=number * 1000 + number % 7)
        assert entry.truncations[-1][0] == entry.min_active == position(number)
    assert len(entry.truncations) == TRUNCATIONS_MAX
    # none counts from before it was made
    assert all(time >= at.esn * 1000 for at, time in entry.truncations)


def test_owners_follow_each_other_by_token(applied: Applied) -> None:
    entry = applied.state.find("a")
    assert entry is not None
    assert msgpack.unpackb(applied(AcquireStream(1, "one", 10))) == 1
    assert applied.refused(AcquireStream(1, "two", 10)) is Status.CONFLICT
    applied(RenewLease(1, 1))
    # it showed life since it was looked at
    assert applied.refused(AcquireStream(1, "two", 10, 1, 0)) is Status.CONFLICT
    assert msgpack.unpackb(applied(AcquireStream(1, "two", 10, 1, 1))) == 2
    assert applied.refused(RenewLease(1, 1)) is Status.FENCED
    assert applied.refused(ReleaseStream(1, 1)) is Status.FENCED
    applied(ReleaseStream(1, 2))
    assert entry.lease is None
    assert applied.refused(RenewLease(1, 2)) is Status.FENCED
    assert msgpack.unpackb(applied(AcquireStream(1, "one", 10))) == 3


def test_only_the_owner_ends_a_stream_that_is_owned(applied: Applied) -> None:
    entry = applied.state.find("a")
    assert entry is not None
    assert applied.refused(StreamEnded(1, LSN(7))) is Status.CONFLICT
    applied(AcquireStream(1, "one", 10))
    assert applied.refused(EndStream(1)) is Status.FENCED
    assert applied.refused(EndStream(1, 2)) is Status.FENCED
    applied(EndStream(1, 1))
    assert applied.refused(AcquireStream(1, "two", 10)) is Status.ENDED
    applied(StreamEnded(1, LSN(7)))
    applied(StreamEnded(1, LSN(8)))  # by another one that helped, and asked later
    applied(EndStream(1))
    assert entry.ended == 7


NAMES = st.sampled_from(["a", "b", "c/d"])
NUMBERS = st.integers(1, 4)
TOKENS = st.integers(1, 4)
COMMANDS: st.SearchStrategy[NamespaceCommand] = st.one_of(
    st.builds(CreateStream, NAMES, st.just({"ttl_us": 7, "cold": "file:///x"}), st.just({"replicate": "node:1"})),
    st.builds(StreamCreated, NUMBERS, st.integers(LOG, LOG + 3).map(LogId)),
    st.builds(RenameStream, NAMES, NAMES),
    st.builds(DeleteStream, NAMES),
    st.builds(StreamDeleted, NUMBERS),
    st.builds(TruncateStream, NUMBERS, st.builds(position, st.integers(1, 9), st.integers(0, 2))),
    st.builds(UntruncateStream, NUMBERS),
    st.builds(EndStream, NUMBERS, st.integers(0, 2)),
    st.builds(StreamEnded, NUMBERS, st.integers(0, 9).map(LSN)),
    st.builds(AcquireStream, NUMBERS, st.sampled_from(["x", "y"]), st.just(5), st.integers(0, 3), st.integers(0, 1)),
    st.builds(RenewLease, NUMBERS, TOKENS),
    st.builds(ReleaseStream, NUMBERS, TOKENS),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMANDS, max_size=40), st.integers(0, 40))
def test_a_state_goes_on_from_its_snapshot_as_if_nothing_had_been(commands: list[NamespaceCommand], cut: int) -> None:
    whole, parted = NamespaceState(), NamespaceState()
    tokens: dict[int, int] = {}
    for index, command in enumerate(commands):
        assert decode(encode(command)) == command
        if index == cut:
            parted = NamespaceState.decode(parted.encode())
        outcomes = []
        for state in (whole, parted):
            before = state.encode()
            try:
                outcomes.append(state.apply(encode(command), StateVersion(Lsn(index + 1), 0), Timestamp(index)))
            except CommandRefused as error:
                outcomes.append(str(error).encode())
                assert state.encode() == before
        assert outcomes[0] == outcomes[1]
        assert whole.encode() == parted.encode()
        names = [entry.name for entry in whole.below("")]
        assert len(set(names)) == len(names)
        assert all(whole.find(entry.name) is entry for entry in whole.below(""))
        assert all(number < whole.next_number for number in whole.streams)
        for number, entry in whole.streams.items():
            assert entry.last_token >= tokens.get(number, 0)
            tokens[number] = entry.last_token
    assert whole._size == parted._size == NamespaceState.decode(whole.encode())._size


WORDS = st.recursive(
    st.integers(-(1 << 63), (1 << 64) - 1) | st.binary(max_size=4) | st.none() | st.text(max_size=4), st.lists
)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | WORDS.map(msgpack.packb))
def test_what_is_no_command_is_refused(data: bytes) -> None:
    state = NamespaceState()
    with pytest.raises(CommandRefused):
        state.apply(data, StateVersion(Lsn(1), 0), Timestamp(0))
    assert state.encode() == NamespaceState().encode()


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMANDS, max_size=10), st.data())
def test_what_is_no_snapshot_is_refused(commands: list[NamespaceCommand], data: st.DataObject) -> None:
    state = NamespaceState()
    for index, command in enumerate(commands):
        with contextlib.suppress(CommandRefused):
            state.apply(encode(command), StateVersion(Lsn(index + 1), 0), Timestamp(index))
    encoded = bytearray(state.encode())
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError, msgpack.UnpackException):
        NamespaceState.decode(bytes(encoded))
