"""Faults of the store in memory, and that no schedule of them gives an epoch twice."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import given as generated
from hypothesis import strategies as st

from epoch_store.interface import Operation, ReadMetadata, Result
from epoch_store.memory import Fault, MemoryCells, MemoryEpochStore
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import Status
from tests.epoch_stores import LOG, given, identity, next_epoch


class OperationOrder:
    """Runs what is scheduled in an order of its own."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._calls: list[Callable[[], None]] = []

    def add(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def run(self) -> None:
        while self._calls:
            self._calls.pop(self._rng.randrange(len(self._calls)))()


def run_with(fault: Fault, *operations: Operation) -> tuple[list[Result], MemoryCells]:
    scheduler, cells = OperationOrder(1), MemoryCells()
    answers: list[list[Result]] = []
    MemoryEpochStore(cells, identity(), scheduler.add, lambda operation: fault).submit(operations, answers.append)
    assert not answers
    scheduler.run()
    assert len(answers) == 1
    return answers[0], cells


def test_a_refused_operation_changes_nothing_and_says_so() -> None:
    results, cells = run_with(Fault.REFUSED, next_epoch())
    assert results == [Result(Status.AGAIN)]
    assert not cells.cells


def test_a_lost_answer_and_a_lost_request_look_the_same_to_the_caller() -> None:
    applied, with_answer_lost = run_with(Fault.ANSWER_LOST, next_epoch())
    not_applied, with_request_lost = run_with(Fault.EXPIRED, next_epoch())
    assert applied == not_applied == [Result(Status.TIMEDOUT, maybe_applied=True)]
    assert (len(with_answer_lost.cells), len(with_request_lost.cells)) == (1, 0)


def test_a_read_without_answer_is_simply_asked_again() -> None:
    for fault in (Fault.ANSWER_LOST, Fault.EXPIRED, Fault.REFUSED):
        assert run_with(fault, ReadMetadata(LOG))[0] == [Result(Status.AGAIN)]


def test_what_is_under_way_when_a_store_is_closed_may_have_been_applied() -> None:
    cells, calls = MemoryCells(), list[Callable[[], None]]()
    store = MemoryEpochStore(cells, identity(), calls.append)
    answers: list[list[Result]] = []
    store.submit([next_epoch(), ReadMetadata(LOG)], answers.append)
    calls.pop()()
    store.close()
    calls.pop()()
    assert answers == [[Result(Status.SHUTDOWN, maybe_applied=True), Result(Status.SHUTDOWN)]]


@generated(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 30))
def test_no_epoch_is_given_twice_whatever_is_lost_and_reordered(seed: int, nodes: int, activations: int) -> None:
    rng, scheduler, cells = random.Random(seed), OperationOrder(seed), MemoryCells()

    def fault(operation: Operation) -> Fault:
        return rng.choice(list(Fault))

    answers: list[list[Result]] = []
    stores = [MemoryEpochStore(cells, identity(node), scheduler.add, fault) for node in range(nodes)]
    for _ in range(activations):
        node = rng.randrange(nodes)
        acceptable = rng.choice([None, rng.randrange(1, 5)])
        stores[node].submit([next_epoch(node=NodeId(node), acceptable=acceptable)], answers.append)
    scheduler.run()
    assert len(answers) == activations
    epochs = [given(result) for (result,) in answers if result.status is Status.OK]
    assert len(epochs) == len(set(epochs))
    assert all(epoch <= len(answers) for epoch in epochs)
