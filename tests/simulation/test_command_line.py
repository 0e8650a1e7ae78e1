"""What the simulator can be told: what is refused, what comes out of a run that is ended, and that nothing stays behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logdevice_py.simulation.trace import Trace
from tests.simulation import search
from tests.simulation.command_line import CommandLine, Kind
from tests.simulation.features import draw_features, seeds_with
from tests.simulation.run import Failure, planned_faults
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import devoted_seeds, draw

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.simulation"]
SOON = 60.0
"""Seconds of real time."""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--runs 0", "'0' is not a number from 1 on"),
        ("--runs -3", "'-3' is not a number from 1 on"),
        ("--runs 0 --campaign", "'0' is not a number from 1 on"),
        ("--runs 2 --jobs 0", "'0' is not a number from 1 on"),
        ("--runs 2 --jobs -1", "'-1' is not a number from 1 on"),
        ("--only garbage", "'garbage' are no indexes of faults"),
        ("--without 1;2", "'1;2' are no indexes of faults"),
        ("--only 1 --without 2", "not allowed with argument"),
        ("--campaign --trace", "a campaign takes --campaign and --runs"),
        ("--runs 2 --report x.json", "a campaign takes --campaign and --runs"),
        ("--runs 2 --trace", "--trace: not with --runs"),
        ("--runs 2 --only 1", "--only: not with --runs"),
        ("--runs 2 --without 1", "--without: not with --runs"),
        ("--seed 1 --jobs 2 --marks --keep-going", "--jobs, --marks, --keep-going: not with one seed"),
        ("--runs 2 --features --store extents", "--store: not with --features"),
        ("--runs 2 --features --devoted regions", "--devoted regions: not with --features"),
        ("--runs 2 --devoted index_logs", "--devoted index_logs: only with --features"),
        ("--runs 2 --devoted removals", "--devoted removals: with --rebuild only"),
        ("--runs 2 --loss --devoted moves", "--devoted moves: not with --loss"),
        ("--runs 2 --devoted nothing", "invalid choice: 'nothing'"),
        ("--seed 1 --devoted regions", "--devoted: not with one seed"),
        ("--runs 2 --campaign --devoted regions", "--devoted: not with a campaign"),
        ("--runs 2 --campaign --loss", "--loss: not with a campaign"),
        ("--runs 2 --campaign --rebuild", "--rebuild: not with a campaign"),
        ("--resume x.json --runs 2 --seed 1", "--runs, --seed: not with --resume"),
        ("--resume x.json --report y.json", "--report: not with --resume"),
        ("--runs 2 --campaign --report x.md", "x.md is where the Markdown goes"),
        ("--runs 2 --campaign --report no/such/folder/x.json", "No such file or directory"),
        ("--runs 2 --campaign --report .", ". is a directory"),
    ],
)
def test_what_would_do_nothing_is_refused_in_a_line(
    words: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        CommandLine("").parse(words.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_what_goes_together_is_taken(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    parse = CommandLine("").parse
    assert (parse([]).kind, parse([]).seed, parse([]).mode) == (Kind.REPLAY, 0, RunMode.USUAL)
    assert parse(["--only", "3,5", "--trace", "--loss"]).only == {3, 5}
    assert parse(["--only", ""]).only == frozenset()
    assert parse(["--runs", "5", "--rebuild", "--marks"]).mode is RunMode.REBUILDING
    assert parse(["--runs", "5", "--campaign", "--report", str(report)]).report == report
    assert parse(["--resume", str(report), "--campaign", "--jobs", "2"]).kind is Kind.RESUMED


def test_seeds_that_are_devoted_to_something_are_found() -> None:
    found = list(devoted_seeds("regions", 100, 3))
    assert len(found) == 3
    assert [seed for seed in range(100, found[-1] + 1) if draw(seed).distances] == found
    found = list(seeds_with("index_logs", 100, 3))
    assert [seed for seed in range(100, found[-1] + 1) if "index_logs" in draw_features(seed).features] == found
    done = run("--seed", "100", "--runs", "1", "--devoted", "hedges", "--jobs", "1", "--marks")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 seeds went well" in done.stdout
    assert "1 read_hedge_sent" in done.stdout


def test_a_fault_that_a_seed_does_not_have_is_told_with_those_it_has() -> None:
    done = run("--seed", "7", "--only", "999")
    assert done.returncode == 2
    last = len(planned_faults(7, RunMode.USUAL)) - 1
    assert done.stderr.splitlines()[-1].endswith(f"seed 7 has faults 0 to {last}, not 999")


def test_the_command_that_repeats_a_run_names_the_faults_that_were_left_out() -> None:
    assert RunMode.USUAL.replay(7) == "make sim SEED=7"
    assert RunMode.LOSS.replay(7, only=[5, 3]) == "make sim SEED=7 LOSS=1 SIM_FLAGS='--only \"3,5\"'"
    assert RunMode.USUAL.replay(7, only=[]) == "make sim SEED=7 SIM_FLAGS='--only \"\"'"
    assert RunMode.USUAL.replay(7, without=[1]) == "make sim SEED=7 SIM_FLAGS='--without \"1\"'"
    assert RunMode.LOSS.replay(7, store="extents") == "make sim SEED=7 LOSS=1 STORE=extents"


def test_a_kind_of_store_reaches_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []

    def run_seed(seed: int, *, mode: RunMode, store: str | None) -> None:
        asked.append(store)
        raise Failure(draw(seed), 0, Trace(), [], mode, (), store) from AssertionError("fails")

    monkeypatch.setattr(search, "run_seed", run_seed)
    arguments = CommandLine(None).parse(["--runs", "5", "--store", "extents"])
    result = search.run_one(7, RunMode.REBUILDING, 5, arguments.store)
    assert asked == ["extents"]
    assert result.text.endswith("replay: make sim SEED=7 REBUILD=1 STORE=extents")


def test_a_run_that_fails_without_some_of_its_faults_is_told_with_what_repeats_it() -> None:
    plan = planned_faults(7, RunMode.USUAL)
    for disabled, flags in (({1}, '--without "1"'), ({each.index for each in plan[1:]}, '--only "0"')):
        failure = Failure(draw(7), 0, Trace(), plan, RunMode.USUAL, disabled)
        assert str(failure).endswith(f"replay: make sim SEED=7 SIM_FLAGS='{flags}'")


def test_a_file_that_is_no_campaign_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("[]", encoding="utf-8")
    done = run("--resume", str(path))
    assert done.returncode == 1
    assert done.stderr == f"{path} is no report of a campaign: its JSON is no object\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_is_told_what_ended(number: signal.Signals) -> None:
    with many_seeds() as (process, workers):
        process.send_signal(number)
        out, err = process.communicate(timeout=SOON)
        assert process.returncode == 130
        assert "waits for the seeds that are running" in err
        assert "Traceback" not in err
        ended = int(out.partition("partial: ")[2].split()[0])
        assert f"{ended} of {ended} seeds went well" in out
        assert until(lambda: not any(map(lives, workers)))


def test_who_interrupts_twice_does_not_wait() -> None:
    with many_seeds() as (process, workers):
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        process.communicate(timeout=SOON)
        assert process.returncode == 130
        assert until(lambda: not any(map(lives, workers)))


@pytest.mark.slow
def test_processes_that_run_seeds_end_with_the_one_that_is_killed() -> None:
    with many_seeds() as (process, workers):
        process.kill()
        process.wait()
        assert until(lambda: not any(map(lives, workers)))


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_runs_a_seed_costs_no_results(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with many_seeds("--campaign", "--report", str(report), "--keep-going") as (process, workers):
        subprocess.run(["kill", "-9", str(workers[0])], check=True)
        out, err = process.communicate(timeout=SOON)
        assert process.returncode == 1
        assert "was killed (by the kernel for want of memory?) while these were under way" in err
        assert "Traceback" not in err
        assert "partial: " in out
        assert "seeds that reached each of" not in out
        kept = json.loads(report.read_text(encoding="utf-8"))
        assert kept["keep_going"]
        assert f"partial: {kept['counted']} of 500 seeds" in out


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def many_seeds(*words: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """The simulator at many seeds, and the processes that run them."""
    command = [*COMMAND, "--runs", "500", "--jobs", "2", "--seed", "7", *words]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert until(lambda: len(workers_of(process.pid)) == 2)
        workers = workers_of(process.pid)
        assert until(lambda: all(seconds(worker) > 2 for worker in workers)), "they do not run seeds"
        yield process, workers
    finally:
        process.kill()
        process.communicate()


def workers_of(parent: int) -> list[int]:
    """Without the tracker of resources that multiprocessing has beside them."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def lives(process: int) -> bool:
    try:
        return state(process)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def seconds(process: int) -> float:
    """Of processor time."""
    fields = state(process)
    return (int(fields[11]) + int(fields[12])) / 100


def state(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SOON
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
