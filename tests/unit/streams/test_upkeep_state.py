"""Who may trim and copy, and what: preconditions in the namespace's state, and what is noticed when one is left out."""

from __future__ import annotations

from collections.abc import Callable

import msgpack
import pytest

from client.guards import START, Position
from client.replica.commands import CommandRefused, StateVersion, refusal
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from streams.cold.copies import ColdCopy
from streams.commands import (
    CreateStream,
    NamespaceCommand,
    StreamCreated,
    TruncateStream,
    UntruncateStream,
    decode,
    encode,
)
from streams.state import NamespaceState
from streams.upkeep.commands import (
    AcquireUpkeep,
    BeginCopy,
    BeginTrim,
    CommitCopy,
    EndCopy,
    ReleaseUpkeep,
    RemoveCopies,
    RenewUpkeep,
    TrimCause,
)
from streams.upkeep.segment_copy import SegmentCopy
from streams.upkeep.state import StreamUpkeep, UpkeepRole, attempt_token

LOG = LogId(TREE_LOG_ID_MIN)
CLUSTER = "36b1105d-e131-4a7a-b688-7cdb5ecf28d2"


def lsn(epoch: int, esn: int) -> LSN:
    return LSN(compose_lsn(epoch, esn))


class Upkept:
    """A state with one stream, number 1, and a janitor with token 1."""

    def __init__(self, *, cold: bool = False) -> None:
        self.state = NamespaceState()
        self.at = 0
        self(CreateStream("a", {"cold": "file:///cold"} if cold else {}))
        self(StreamCreated(1, LOG))
        self(AcquireUpkeep("one", 1_000_000))

    def __call__(self, command: NamespaceCommand, *, time: int = 0) -> bytes:
        self.at += 1
        assert decode(encode(command)) == command
        result = self.state.apply(encode(command), StateVersion(Lsn(self.at), 0), Timestamp(time))
        assert NamespaceState.decode(self.state.encode()).encode() == self.state.encode()
        return result

    def refused(self, command: NamespaceCommand) -> Status:
        before = self.state.encode()
        with pytest.raises(CommandRefused) as raised:
            self(command)
        assert self.state.encode() == before
        return refusal(str(raised.value))[0]

    @property
    def upkeep(self) -> StreamUpkeep:
        return self.state.streams[1].upkeep

    @property
    def min_active(self) -> Position:
        return self.state.streams[1].min_active

    def trim(self, to: LSN, cause: TrimCause = TrimCause.EXPIRED, token: int = 1) -> BeginTrim:
        return BeginTrim(token, 1, to, cause, self.state.streams[1].version)

    def copy(self, first: LSN, last: LSN, attempt: int) -> CommitCopy:
        made = ColdCopy(CLUSTER, LOG, attempt_token(attempt), first, last, "0" * 64, 1, 10, 1, 1, 10, (1 << 64) - 1)
        return CommitCopy(1, 1, attempt, SegmentCopy(made, Timestamp(5), Timestamp(3), None, 7, 9))

    def copied(self, first: LSN, last: LSN) -> None:
        attempt = msgpack.unpackb(self(BeginCopy(1, 1, first, last)))
        self(self.copy(first, last, attempt))


def check_a_second_janitor() -> None:
    upkept = Upkept(cold=True)
    upkept(TruncateStream(1, Position(lsn(2, 5), 0)))
    assert upkept.refused(AcquireUpkeep("two", 1_000_000)) is Status.CONFLICT
    upkept(AcquireUpkeep("two", 1_000_000, 1, 0))
    commands: list[NamespaceCommand] = [
        upkept.trim(lsn(2, 4)),
        BeginCopy(1, 1, LSN.OLDEST, lsn(1, 9)),
        RenewUpkeep(1, "x"),
        ReleaseUpkeep(1),
        RemoveCopies(1, 1, lsn(1, 9)),
        EndCopy(1, 1, 1),
    ]
    for command in commands:
        assert upkept.refused(command) is Status.FENCED
    upkept(BeginCopy(2, 1, LSN.OLDEST, lsn(1, 9)))
    assert upkept.refused(upkept.copy(LSN.OLDEST, lsn(1, 9), 1)) is Status.FENCED
    assert upkept.refused(upkept.trim(lsn(2, 4), token=3)) is Status.FENCED


def check_nothing_is_trimmed_without_a_copy() -> None:
    upkept = Upkept(cold=True)
    assert upkept.refused(upkept.trim(lsn(1, 9))) is Status.CONFLICT
    upkept.copied(LSN.OLDEST, lsn(1, 9))
    assert upkept.refused(upkept.trim(lsn(1, 10))) is Status.CONFLICT
    upkept(upkept.trim(lsn(1, 9)))
    assert upkept.upkeep.trimming_to == lsn(1, 9)
    upkept(TruncateStream(1, Position(lsn(2, 5), 3)))
    assert upkept.refused(upkept.trim(lsn(2, 5), TrimCause.TRUNCATED)) is Status.CONFLICT
    upkept(upkept.trim(lsn(2, 4), TrimCause.TRUNCATED))  # truncated: no copy is needed
    # what was trimmed without one is left out of copies, nothing else
    assert upkept.refused(BeginCopy(1, 1, lsn(1, 10), lsn(3, 1))) is Status.CONFLICT
    assert upkept.refused(BeginCopy(1, 1, lsn(2, 6), lsn(3, 1))) is Status.CONFLICT
    upkept.copied(lsn(2, 5), lsn(3, 1))


def check_untruncate_is_refused_below_what_is_trimmed() -> None:
    upkept = Upkept()
    upkept(TruncateStream(1, Position(lsn(1, 5), 0)))
    upkept(TruncateStream(1, Position(lsn(2, 5), 0)))
    upkept(upkept.trim(lsn(1, 4), TrimCause.TRUNCATED))
    upkept(UntruncateStream(1), time=9)
    assert upkept.min_active == Position(lsn(1, 5), 0)
    assert upkept.refused(UntruncateStream(1)) is Status.CONFLICT
    # decided before a truncation was taken back
    stale = upkept.trim(lsn(1, 4), TrimCause.TRUNCATED)
    upkept(TruncateStream(1, Position(lsn(3, 5), 0)))
    assert upkept.refused(stale) is Status.VERSION_MISMATCH
    upkept(UntruncateStream(1))
    assert upkept.min_active == Position(lsn(1, 5), 0)
    assert upkept.refused(upkept.trim(lsn(3, 4), TrimCause.TRUNCATED)) is Status.CONFLICT


def check_copies_of_attempts_that_are_over() -> None:
    upkept = Upkept(cold=True)
    upkept(BeginCopy(1, 1, LSN.OLDEST, lsn(1, 9)))
    upkept(BeginCopy(1, 1, LSN.OLDEST, lsn(1, 9)))
    assert upkept.refused(upkept.copy(LSN.OLDEST, lsn(1, 9), 1)) is Status.FENCED
    assert upkept.refused(upkept.copy(LSN.OLDEST, lsn(1, 8), 2)) is Status.CONFLICT
    upkept(EndCopy(1, 1, 2))
    assert upkept.refused(upkept.copy(LSN.OLDEST, lsn(1, 9), 2)) is Status.FENCED
    assert upkept.upkeep.copies == ()


def test_which_attempts_are_over() -> None:
    upkept = Upkept(cold=True)
    upkept(BeginCopy(1, 1, LSN.OLDEST, lsn(1, 9)))
    assert attempt_token(1) not in upkept.upkeep.over
    upkept(BeginCopy(1, 1, LSN.OLDEST, lsn(1, 9)))
    assert attempt_token(1) in upkept.upkeep.over
    assert attempt_token(2) not in upkept.upkeep.over
    upkept(EndCopy(1, 1, 2))
    assert attempt_token(2) in upkept.upkeep.over
    others = ["a0", "a3", "a02", "a\u0662", "b1", "2", "a", ""]
    assert [each for each in others if each in upkept.upkeep.over] == []


CHECKS = (
    check_a_second_janitor,
    check_nothing_is_trimmed_without_a_copy,
    check_untruncate_is_refused_below_what_is_trimmed,
    check_copies_of_attempts_that_are_over,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_preconditions(check: Callable[[], None]) -> None:
    check()


def _without_token(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UpkeepRole, "check", lambda self, token: None)


def _without_copy(patch: pytest.MonkeyPatch) -> None:
    judged = StreamUpkeep._trim

    def trim(self: StreamUpkeep, wanted: BeginTrim, entry: object) -> StreamUpkeep:
        try:
            return judged(self, wanted, entry)  # type: ignore[arg-type]
        except CommandRefused as error:
            if "no cold copy" not in str(error):
                raise
            return StreamUpkeep(wanted.lsn)

    patch.setattr(StreamUpkeep, "_trim", trim)


def _untruncated_whatever_is_trimmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamUpkeep, "readable_from", START)


def _any_attempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamUpkeep, "_check_attempt", lambda self, attempt: None)


@pytest.mark.parametrize(
    ("check", "put"),
    list(zip(CHECKS, (_without_token, _without_copy, _untruncated_whatever_is_trimmed, _any_attempt), strict=True)),
    ids=lambda each: each.__name__,
)
def test_each_rule_that_is_left_out_is_noticed(
    check: Callable[[], None], put: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_where_a_stream_can_be_read_from() -> None:
    upkept = Upkept(cold=True)
    upkept.copied(LSN.OLDEST, lsn(1, 9))
    upkept.copied(lsn(1, 10), lsn(2, 9))
    upkept(upkept.trim(lsn(2, 9)))
    assert upkept.upkeep.readable_from == START
    upkept(TruncateStream(1, Position(lsn(2, 3), 0)))
    upkept(UntruncateStream(1))
    assert upkept.min_active == START
    upkept(RemoveCopies(1, 1, lsn(1, 9)))
    assert upkept.upkeep.readable_from == Position(lsn(1, 10), 0)
    assert [each.number for each in upkept.upkeep.copies] == [2]
    upkept(RemoveCopies(1, 1, lsn(2, 9)))
    assert upkept.upkeep.readable_from == Position(lsn(2, 10), 0)


def test_what_the_janitor_did_and_when() -> None:
    upkept = Upkept()
    upkept(RenewUpkeep(1, "trimmed a"), time=7)
    upkept(RenewUpkeep(1), time=5)
    role = upkept.state.role
    assert (role.did, role.at, role.lease and role.lease.beats) == ("trimmed a", 5, 2)
    upkept(ReleaseUpkeep(1))
    assert upkept.state.role.lease is None
    assert msgpack.unpackb(upkept(AcquireUpkeep("two", 5))) == 2
