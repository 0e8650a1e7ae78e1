"""Index logs on simulated clusters that break; rules left out, caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from indexlog.records import LogRecord, Modification
from tests.simulation import deliberate_index_log
from tests.simulation.deliberate_fault import FAULTS
from tests.simulation.deliberate_hunt import failure_with, look_for
from tests.simulation.features import run_features
from tests.simulation.index_log_history import Boundary, ExpiredToken, IndexLogHistory, RawPlace, ReadIndex, WrittenStep
from tests.simulation.index_logs import INDEXES, troubled_index_log
from tests.slow import quick

SEEDS_MAX = 12
SELDOM = frozenset({"later_floor_holds"})
"""Caught by other tests: docs/deliberate-faults.md."""
FAULTS_OF_INDEX_LOGS = [fault.name for fault in FAULTS.values() if fault.likely == deliberate_index_log.APPLICATION]
QUICK = ("tokens_given_again",)
"""Caught by nearly every seed."""


@pytest.mark.parametrize("seed", quick(range(10), 1))
def test_pages_are_what_raw_logs_hold_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    history = simulate(
        troubled_index_log, seed=seed, nodes=5, logs=1, log_tree=True, faults="all", virtual_seconds=1000
    )
    shown = history.summary()
    assert shown["acknowledged"] > 20
    assert shown["Deal"] > 3
    assert shown["killed"] > 3
    assert len(history.reads) > 4 * len(INDEXES)


@pytest.mark.slow
def test_runs_show_what_they_are_for(simulate: Callable[..., Any]) -> None:
    shown: dict[str, int] = {}
    for seed in range(6):
        history = simulate(troubled_index_log, seed=seed, nodes=3, logs=1, log_tree=True, virtual_seconds=1000)
        for name, count in history.summary().items():
            shown[name] = shown.get(name, 0) + count
        shown["expired"] = shown.get("expired", 0) + len(history.expired)
    for name in ("Replace", "DropIndex", "EndGeneration", "PREEMPTED", "store failed", "expired", "pages"):
        assert shown[name] > 0, (name, shown)


@pytest.mark.slow
def test_a_seed_of_index_logs_gives_the_same_run_again() -> None:
    first, second = (run_features(3, only=deliberate_index_log.APPLICATION) for _ in range(2))
    assert first.digest == second.digest


@pytest.mark.parametrize("name", QUICK)
def test_nearly_every_seed_catches_a_rule_that_is_left_out(name: str) -> None:
    assert any(failure_with(FAULTS[name], seed) for seed in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAULTS_OF_INDEX_LOGS if name not in SELDOM])
def test_a_few_seeds_catch_a_rule_that_is_left_out(name: str) -> None:
    hunt = look_for(FAULTS[name], 0, SEEDS_MAX)
    assert hunt.wrong == ""
    assert hunt.catch is not None, f"{FAULTS[name].breaks}, and nothing shows it"


# The checks themselves


def step(number: int, *, deleted: bool = False) -> LogRecord:
    return LogRecord("books", "a", Modification(deleted, {"n": str(number)}, {}, {}, number))


def place(lsn: int, generation: int = 0) -> RawPlace:
    return RawPlace(generation, 7 + generation, lsn, 0)


def written(*numbers: int, acknowledged: bool = True) -> IndexLogHistory:
    """One after the other, by one writer."""
    history = IndexLogHistory()
    for number in numbers:
        history.written[number] = WrittenStep(1, step(number), history.event())
        if acknowledged:
            history.written[number].acknowledged = history.event()
    return history


def read(history: IndexLogHistory, lsn: int, number: int) -> None:
    """A reader that begins now and finds the document as `number` left it, up to an LSN of generation 0."""
    found = {"a": Modification(False, {"n": str(number)}, {}, {}, number)}
    history.reads.append(ReadIndex("books", history.event(), 1, Boundary(0, {7: lsn}), found))


def test_a_history_that_is_right_passes() -> None:
    history = written(1, 2)
    read(history, 5, 2)
    history.check({place(4): step(1), place(5): step(2), place(6): None})


@pytest.mark.parametrize(
    ("lsn", "number", "raw", "text"),
    [
        (5, 1, {4: 1, 5: 2}, "rule 2: index books in state 1: a is"),
        (4, 1, {4: 1, 5: 2}, "rule 2: modification 2 was acknowledged before and not read"),
        (5, 2, {5: 2}, "rule 6: modification 1 is lost"),
        (5, 1, {4: 2, 5: 1}, "rule 6: .* modification 1 was acknowledged before one began"),
        (5, 2, {4: 1, 5: 2, 6: 2}, "rule 6: modification 2 is at .* and at"),
    ],
)
def test_a_history_that_is_wrong_does_not(lsn: int, number: int, raw: dict[int, int], text: str) -> None:
    history = written(1, 2)
    read(history, lsn, number)
    with pytest.raises(AssertionError, match=text):
        history.check({place(at): step(each) for at, each in raw.items()})


@pytest.mark.parametrize(
    ("serial", "undealt", "text"),
    [
        (3, 1, "rule 3: a token of state 3, and of generations from 0 on expired, 1 is not dealt, 0 was forgotten"),
        (None, 1, "rule 3: a token of generations from 0 on expired, 1 is not dealt"),
    ],
)
def test_a_token_that_expires_too_early_is_told(serial: int | None, undealt: int, text: str) -> None:
    history = written(1)
    history.generations = {7: 0, 8: 1}
    history.expired.append(ExpiredToken(serial, (7, 8), undealt))
    with pytest.raises(AssertionError, match=text):
        history.check({place(1): step(1)})


@pytest.mark.parametrize("serial", [3, None])
def test_a_token_expires_when_its_raw_logs_and_those_after_them_are_dealt_whole(serial: int | None) -> None:
    history = written(1)
    history.generations = {7: 0, 8: 1}
    history.expired.append(ExpiredToken(serial, (7, 8), 2))
    history.check({place(1): step(1)})
