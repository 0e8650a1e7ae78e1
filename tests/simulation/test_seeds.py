"""A fixed set of seeds, and some that follow from the commit, so that each commit tries others. ``make sim RUNS=n`` tries more.

What a seed stands for changes with the code, so a failure is replayed at the same commit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.marks_elsewhere import MARKS_ELSEWHERE
from tests.simulation.run import Failure, run_seed
from tests.simulation.run_mode import RunMode, campaign_mode
from tests.simulation.search import declared_marks, fewest
from tests.slow import quick

ROOT = Path(__file__).parents[2]
FIXED = range(12)
LOSSES = range(4)
REBUILDINGS = (0, 2)
OF_COMMIT = 12


def seeds_of_commit() -> list[int]:
    """Seeds from the commit id; none outside a repository."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return []
    first = 1_000_000 + int(done.stdout[:8], 16)
    return list(range(first, first + OF_COMMIT))


def check(seed: int, mode: RunMode = RunMode.USUAL) -> None:
    try:
        run_seed(seed, mode=mode)
    except Failure as failure:
        last = "\n".join(failure.trace.last()[-30:])
        pytest.fail(f"{last}\n{failure}\n{type(failure.__cause__).__name__}: {failure.__cause__}")


@pytest.mark.parametrize("seed", quick(FIXED, 4))
def test_nothing_is_lost_repeated_or_stuck(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", quick(seeds_of_commit(), 4))
def test_nothing_is_lost_repeated_or_stuck_with_seeds_of_this_commit(seed: int) -> None:
    check(seed, campaign_mode(seed))


@pytest.mark.parametrize("seed", quick(LOSSES, 2))
def test_what_is_lost_is_declared_lost_and_nothing_else(seed: int) -> None:
    check(seed, RunMode.LOSS)


@pytest.mark.parametrize("seed", REBUILDINGS)
def test_what_departed_nodes_held_is_stored_again(seed: int) -> None:
    check(seed, RunMode.REBUILDING)


@pytest.mark.parametrize("seed", [8, pytest.param(11, marks=pytest.mark.slow)])
def test_a_seed_gives_the_same_run_again_also_in_another_process(seed: int) -> None:
    digests = {run_seed(seed).digest}
    program = f"from tests.simulation.run import run_seed; print(run_seed({seed}).digest)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1, digests


def test_the_fewest_faults_are_those_without_which_it_does_not_fail() -> None:
    assert fewest(range(40), lambda kept: {3, 17, 31} <= set(kept)) == [3, 17, 31]
    assert fewest(range(5), lambda kept: True) == []


def test_the_marks_of_the_sources_are_found() -> None:
    marks = declared_marks()
    assert marks["recovery_second_wave"] == "sequencer/recovery/mutator.py"
    assert "purge_skips_unknown_epoch" in marks


@pytest.mark.slow
def test_marks_that_no_seed_need_reach_are_reached_by_the_tests_that_are_named() -> None:
    assert set(MARKS_ELSEWHERE) <= set(declared_marks())
    tests = sorted({test for _, test in MARKS_ELSEWHERE.values()})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.simulation.mark_recorder", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, reached = done.stdout.partition("marks reached:")
    assert set(MARKS_ELSEWHERE) <= set(reached.split())
