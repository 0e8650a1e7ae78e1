"""The checks can fail: deliberate faults that a few seeds catch. ``make deliberate`` looks for all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage_node.store import StoreHandler
from tests.simulation.deliberate import FAULTS, hunt
from tests.simulation.deliberate_fault import DeliberateFault, MisplacedFaultError

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 40
"""Far more than any of the faults below takes: each is caught by every third seed or so, whatever the swarm is made of."""
QUICK = (
    "acknowledged_one_store_early",
    "bridge_forgotten",
    "copyset_one_short",
    "doubtful_frame_repeated",
    "lng_too_high",
    "missing_is_hole",
    "preempted_entry_acknowledged",
    "release_before_recovery",
    "release_beyond_lng",
    "seal_check_skipped",
)
BY_HISTORIES = ("bridge_forgotten", "missing_is_hole", "doubtful_frame_repeated", "previous_lsn_dropped")


@pytest.mark.parametrize("name", QUICK)
def test_a_few_seeds_catch_the_fault(name: str) -> None:
    assert hunt(FAULTS[name], range(SEEDS_MAX)) is not None


def test_histories_alone_catch_faults_when_no_assertion_is_left() -> None:
    command = [sys.executable, "-O", "-m", "tests.simulation.deliberate", *BY_HISTORIES, "--seeds", str(SEEDS_MAX)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(BY_HISTORIES)
    assert all("Violation: log " in line for line in lines), done.stdout


def test_a_fault_that_nothing_catches_is_reported(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    command = [
        sys.executable,
        "-m",
        "tests.simulation.deliberate",
        "bridge_forgotten",
        "--seeds",
        "0",
        "--report",
        report,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT CAUGHT by 0 seeds" in done.stdout
    assert "| `bridge_forgotten` | recovery writes no bridge | usual | 0 | none | `nothing` |" in report.read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_planted_where_it_says_and_leaves_no_trace(fault: DeliberateFault) -> None:
    before = [vars(target)[name] for target, name in fault.places]
    with fault.planted():
        for (target, name), original in zip(fault.places, before, strict=True):
            assert vars(target)[name] is not original
    assert [vars(target)[name] for target, name in fault.places] == before


def test_a_fault_whose_target_was_renamed_fails_loudly() -> None:
    fault = DeliberateFault("gone", "nothing", lambda original: original, ((StoreHandler, "on_stores"),))
    with pytest.raises(MisplacedFaultError, match="on_stores"), fault.planted():
        pass
