"""The checks can fail: deliberate faults that a few seeds catch. ``make deliberate`` looks for all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from storage_node.writing.store import StoreHandler
from tests.simulation.deliberate import FAULTS, line_of, main, table_of
from tests.simulation.deliberate_fault import DeliberateFault, MisplacedFaultError
from tests.simulation.deliberate_hunt import Hunt, look_for

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 40
"""Far more than any of the faults below takes: each is caught by every third seed or so, whatever the swarm is made of."""
QUICK = (
    "acknowledged_one_store_early",
    "bridge_forgotten",
    "clients_share_a_number",
    "copyset_one_short",
    "doubtful_frame_repeated",
    "introduction_not_awaited",
    "lng_too_high",
    "missing_is_hole",
    "never_clean",
    "preempted_entry_acknowledged",
    "release_before_recovery",
    "release_beyond_lng",
    "stream_frame_out_of_order",
)
BY_HISTORIES = ("bridge_forgotten", "missing_is_hole", "doubtful_frame_repeated", "previous_lsn_dropped")


def _takes_what(broken: Callable[..., Any], original: Callable[..., Any]) -> bool:
    """Whether a function can be called in each way in which another one can, but for giving what has to be given by its name."""
    taken, given = signature(broken), signature(original).parameters.values()
    named = {each.name: None for each in given if each.kind is Parameter.KEYWORD_ONLY}
    options = {
        each.name: None
        for each in given
        if each.kind is Parameter.POSITIONAL_OR_KEYWORD and each.default is not Parameter.empty
    }
    places = [
        each for each in given if each.kind is Parameter.POSITIONAL_OR_KEYWORD or each.kind is Parameter.POSITIONAL_ONLY
    ]
    try:
        taken.bind(*[None] * len(places), **named)
        taken.bind(*[None] * (len(places) - len(options)), **named, **options)
    except TypeError:
        return False
    return True


PLANTED = {
    f"{fault.name} at {name}": (fault.change(vars(target)[name]), vars(target)[name])
    for fault in FAULTS.values()
    for target, name in fault.places
    if isinstance(vars(target)[name], FunctionType)
}


@pytest.mark.parametrize(("broken", "original"), PLANTED.values(), ids=PLANTED)
def test_what_is_planted_can_be_called_like_what_it_replaces(broken: Any, original: FunctionType) -> None:
    assert not isinstance(broken, FunctionType) or _takes_what(broken, original), signature(original)


@pytest.mark.parametrize("name", QUICK)
def test_a_few_seeds_catch_the_fault(name: str) -> None:
    assert look_for(FAULTS[name], 0, SEEDS_MAX).catch is not None


@pytest.mark.slow
def test_histories_alone_catch_faults_when_no_assertion_is_left() -> None:
    command = [sys.executable, "-O", "-m", "tests.simulation.deliberate", *BY_HISTORIES, "--seeds", str(SEEDS_MAX)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(BY_HISTORIES)
    assert all("Violation: log " in line for line in lines), done.stdout


def test_a_fault_that_nothing_catches_is_reported() -> None:
    nothing = Hunt("bridge_forgotten", 3, 7.0)
    assert "NOT CAUGHT in 3 runs (7 s)" in line_of(nothing)
    assert "| `bridge_forgotten` | recovery writes no bridge | usual | 3 | none | `nothing` |" in table_of([nothing])


def test_seeds_that_are_left_out_do_not_count_as_runs(tmp_path: Path) -> None:
    """None of these seeds has the profile that the fault asks for."""
    report = tmp_path / "report.md"
    done = deliberate("rank_ignored", "--likely", "--seeds", "8", "--report", str(report))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NOT LOOKED FOR" in done.stdout
    assert "| usual | 0 | none |" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds", "0"], "'0' is not a number from 1 on"),
        (["--seeds", "-4"], "'-4' is not a number from 1 on"),
        (["--jobs", "0"], "'0' is not a number from 1 on"),
        (["--report", "/no/such/directory/table.md"], "No such file or directory"),
        (["--report", "."], "is a directory"),
    ],
)
def test_arguments_that_mean_nothing_are_refused_before_any_seed(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["deliberate", "bridge_forgotten", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err.splitlines()[-1]


def deliberate(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation.deliberate", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


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
