"""Operations that wait: many become one command, of the commits of a stream the latest, in order."""

from __future__ import annotations

import pytest

from client.replica.commands import CommandOutcome, StateVersion
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from streams.subscriptions import operation_queue
from streams.subscriptions.commands import (
    OPERATIONS_MAX,
    AddStreams,
    Beat,
    Commit,
    Delete,
    Operation,
    OperationAnswer,
    decode,
)
from streams.subscriptions.operation_queue import Judged, OperationQueue
from tests.unit.client.replica.fakes import Answer as FakePromise
from tests.unit.streams.subscriptions.operations import GROUP, at, nonce

VERSION = StateVersion(Lsn(9), 0)


def test_of_the_commits_of_a_stream_the_latest_is_proposed() -> None:
    queue, promises = OperationQueue(), [FakePromise() for _ in range(4)]
    queue.add(Commit(GROUP, "s1", at(1)), promises[0])
    queue.add(Commit(GROUP, "s2", at(7)), promises[1])
    queue.add(Commit(GROUP, "s1", at(3)), promises[2])
    queue.add(Commit(GROUP, "s1", at(3, 1)), promises[3])
    assert decode(queue.next_command()) == [Commit(GROUP, "s1", at(3, 1)), Commit(GROUP, "s2", at(7))]
    queue.settle(CommandOutcome(VERSION, True, bytes([OperationAnswer.OK, OperationAnswer.FENCED])))
    assert [promise._result.answer for promise in promises] == [
        OperationAnswer.OK,
        OperationAnswer.FENCED,
        OperationAnswer.OK,
        OperationAnswer.OK,
    ]
    assert promises[0]._result == Judged(OperationAnswer.OK, VERSION)
    assert (queue.operations, queue.merged, queue.commands) == (4, 2, 1)
    assert queue.is_idle


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Commit(GROUP, "s1", at(3)), Commit(GROUP, "s1", at(2))),
        (Commit(GROUP, "s1", at(3), VERSION), Commit(GROUP, "s1", at(4))),
        (Commit(GROUP, "s1", at(3)), Commit(GROUP, "s1", at(4), VERSION)),
        (Commit(GROUP, "s1", at(3), token=1), Commit(GROUP, "s1", at(4), token=2)),
        (Commit(GROUP, "s1", at(3)), Commit(GROUP, "s1", at(4), reset=True)),
        (Commit(GROUP, "s1", at(3), reset=True), Commit(GROUP, "s1", at(4))),
        (Commit(GROUP, "s1", at(3)), Commit("other", "s1", at(4))),
    ],
)
def test_what_may_be_judged_differently_stands_by_itself(first: Commit, second: Commit) -> None:
    queue = OperationQueue()
    queue.add(first, None)
    queue.add(second, None)
    assert decode(queue.next_command()) == [first, second]


def test_commits_do_not_overtake_one_that_is_not_merged() -> None:
    queue = OperationQueue()
    commits = [Commit(GROUP, "s1", at(3)), Commit(GROUP, "s1", at(2), reset=True), Commit(GROUP, "s1", at(4))]
    for each in commits:
        queue.add(each, None)
    assert decode(queue.next_command()) == commits


@pytest.mark.parametrize("between", [Delete(GROUP), Delete(GROUP, "s1"), Beat(GROUP, "m1", nonce(1))], ids=repr)
def test_a_commit_stays_behind_what_is_no_commit(between: Operation) -> None:
    queue = OperationQueue()
    operations = [Commit(GROUP, "s1", at(3)), between, Commit(GROUP, "s1", at(4))]
    for each in operations:
        queue.add(each, None)
    queue.add(Commit(GROUP, "s1", at(5)), None)
    assert decode(queue.next_command()) == [*operations[:2], Commit(GROUP, "s1", at(5))]


def test_a_command_is_bounded_and_what_is_left_follows() -> None:
    queue = OperationQueue()
    beats = [Beat(GROUP, f"m{number}", nonce(number)) for number in range(OPERATIONS_MAX + 5)]
    for each in beats:
        queue.add(each, None)
    assert decode(queue.next_command()) == beats[:OPERATIONS_MAX]
    assert not queue.is_idle
    queue.fail(RuntimeError())
    assert decode(queue.next_command()) == beats[OPERATIONS_MAX:]
    queue.fail(RuntimeError())
    large = AddStreams(GROUP, [("s" * 250 + f"{number:04}", 1) for number in range(1000)])
    queue.add(large, None)
    queue.add(large, None)
    assert decode(queue.next_command()) == [large]


def test_a_commit_behind_one_that_is_under_way_is_not_merged_into_it() -> None:
    queue, later = OperationQueue(), FakePromise()
    queue.add(Commit(GROUP, "s1", at(1)), None)
    queue.next_command()
    queue.add(Commit(GROUP, "s1", at(2)), later)
    queue.settle(CommandOutcome(VERSION, True, bytes([OperationAnswer.OK])))
    assert not later.done()
    assert decode(queue.next_command()) == [Commit(GROUP, "s1", at(2))]


def test_failures_reach_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, promises = OperationQueue(), [FakePromise() for _ in range(3)]
    queue.add(Commit(GROUP, "s1", at(1)), promises[0])
    queue.add(Commit(GROUP, "s1", at(2)), promises[1])
    queue.next_command()
    queue.add(Commit(GROUP, "s1", at(3)), promises[2])
    error = LogDeviceError(Status.TIMEDOUT)
    queue.fail(error)
    assert [promise.error for promise in promises] == [error, error, None]
    queue.fail_all(error)
    assert promises[2].error is error
    assert len(queue) == 0
    monkeypatch.setattr(operation_queue, "WAITING_MAX", 1)
    queue.add(Beat(GROUP, "a", nonce(1)), None)
    with pytest.raises(LogDeviceError) as raised:
        queue.add(Beat(GROUP, "a", nonce(1)), None)
    assert raised.value.status is Status.NOBUFS
