"""What the command lines of all programs have in common."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ldbench import cli as ldbench
from client.cli import cat, tail, write
from client.cli.positions import Anchor, parse_position
from client.cluster_file import CLUSTER_VARIABLE
from ldquery import main as query
from ldquery.ctl import main as ctl
from server.dev import dev_cluster

PROGRAMS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "ldcat": (cat.parser, ["1"]),
    "ldtail": (tail.parser, ["1"]),
    "ldwrite": (write.parser, ["1"]),
    "ldctl": (ctl.parser, ["status"]),
    "ldquery": (query.parser, []),
}
every_program = pytest.mark.parametrize("name", PROGRAMS)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No file is named, and the user's own directory is empty."""
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@every_program
def test_the_option_comes_before_the_variable_and_that_before_the_users_file(
    name: str, monkeypatch: pytest.MonkeyPatch, nothing_is_set: Path
) -> None:
    parser, words = PROGRAMS[name]
    own = nothing_is_set / "logdevice" / "cluster.toml"
    own.parent.mkdir()
    own.touch()
    assert parser().parse_args(words).config == str(own)
    monkeypatch.setenv(CLUSTER_VARIABLE, "variable.toml")
    assert parser().parse_args(words).config == "variable.toml"
    assert parser().parse_args(["-c", "option.toml", *words]).config == "option.toml"
    assert parser().parse_args([*words, "-c", "option.toml"]).config == "option.toml"


@every_program
def test_without_any_cluster_file_a_line_says_where_to_name_one(
    name: str, capsys: pytest.CaptureFixture[str], nothing_is_set: Path
) -> None:
    parser, words = PROGRAMS[name]
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words)
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"give -c FILE, set {CLUSTER_VARIABLE}, or have one at {nothing_is_set}/logdevice/cluster.toml" in said


MAINS: dict[str, Callable[[list[str]], int]] = {
    "ldcat": cat.main,
    "ldtail": tail.main,
    "ldwrite": write.main,
    "ldctl": ctl.main,
    "ldquery": query.main,
}


@every_program
def test_a_cluster_file_that_cannot_be_read_is_named_once(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = PROGRAMS[name][1] or ["SELECT 1"]
    for path, why in ((tmp_path / "none.toml", "No such file or directory"), (tmp_path, "Is a directory")):
        assert MAINS[name](["-c", str(path), *words]) == 2
        assert capsys.readouterr().err == f"{name}: INVALID_CONFIG: cannot read {path}: {why}\n"


@every_program
def test_the_version_needs_no_cluster(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        PROGRAMS[name][0]().parse_args(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"{name} 0.")


@pytest.mark.parametrize("name", [*PROGRAMS, "ld-dev-cluster"])
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_the_shell_reads(
    name: str, shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    parser = dev_cluster.parser if name == "ld-dev-cluster" else PROGRAMS[name][0]
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["--print-completion", shell])
    assert caught.value.code == 0
    script = capsys.readouterr().out
    assert name in script
    assert "version" in script
    if shutil.which(shell) is None:
        return  # nobody here reads it
    (tmp_path / "script").write_text(script)
    got = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True, timeout=60, check=False)
    assert (got.returncode, got.stderr) == (0, "")


def test_a_completion_that_nobody_reads_to_its_end_meets_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "ldquery.ctl.main", "--print-completion", "bash"]
        got = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writing)
    assert got.stderr == ""


@pytest.mark.parametrize(
    ("parser", "words", "meant"),
    [
        (ctl.parser, ["staus"], "status"),
        (ctl.parser, ["log", "list"], "logs"),
        (ctl.parser, ["logs", "lst"], "list"),
        (dev_cluster.parser, ["wip", "N0"], "wipe"),
        (ldbench.parser, ["comapre"], "compare"),
        (query.parser, ["--format", "tabel"], "table"),
    ],
)
def test_a_mistyped_verb_is_told_with_the_nearest(
    parser: Callable[[], Any], words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words)
    assert caught.value.code == 2
    assert f"; did you mean {meant}? (choose from " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("parser", "words", "said"),
    [
        (cat.parser, ["-c", "x", "1", "--formt", "json"], "there is no option --formt; did you mean --format?"),
        (cat.parser, ["-c", "x", "1", "--form", "json"], "there is no option --form; did you mean --format?"),
        (cat.parser, ["-c", "x", "1", "--t", "5s"], "there is no option --t; did you mean --timeout?"),
        (ctl.parser, ["logs", "make", "/a", "--par"], "there is no option --par; did you mean --parents?"),
        (ctl.parser, ["status", "--josn"], "there is no option --josn; did you mean --json?"),
        (ctl.parser, ["logs", "status", "--jsn=1"], "there is no option --jsn; did you mean --json?"),
        (ctl.parser, ["status", "--xyzzy"], "there is no option --xyzzy"),
        (ctl.parser, ["status", "5"], "nothing is expected where '5' stands"),
    ],
)
def test_a_mistyped_option_is_told_with_the_nearest(
    parser: Callable[[], Any], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {said}")


def test_a_verb_like_no_other_is_told_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ctl.parser().parse_args(["xyzzy"])
    assert "there is no 'xyzzy' (choose from status, stop, " in capsys.readouterr().err


def test_options_of_ldctl_stand_before_the_verb_or_behind_it() -> None:
    words = ["-c", "a.toml", "--json", "--timeout", "3s", "--token-file", "t"]
    for line in ([*words, "logs", "list"], ["logs", "list", *words], [*words[:3], "logs", "list", *words[3:]]):
        got = ctl.parser().parse_args(line)
        assert (got.config, got.json, got.timeout, got.token_file) == ("a.toml", True, 3.0, "t")
    got = ctl.parser().parse_args(["-c", "a.toml", "logs", "list"])
    assert (got.json, got.timeout, got.token_file) == (False, None, None)


def test_a_time_may_be_counted_back_from_now() -> None:
    hour = 3_600_000_000
    before = parse_position("-0s").value
    arguments = cat.parser().parse_args(["-c", "c", "1", "--from", "-1.5h", "-0v"])
    after = parse_position("-0s").value
    assert arguments.start.anchor is Anchor.TIME
    assert before - hour * 3 // 2 <= arguments.start.value <= after - hour * 3 // 2
    assert (arguments.null, arguments.verbose) == (True, True)
    trim = ctl.parser().parse_args(["-c", "c", "trim", "1", "-7d"])
    assert trim.to.anchor is Anchor.TIME


def test_a_number_below_zero_is_no_option() -> None:
    assert dev_cluster.parser().parse_args(["kill", "-1"]).node == -1


@every_program
def test_minutes_may_be_written_as_m(name: str) -> None:
    parser, words = PROGRAMS[name]
    assert parser().parse_args(["-c", "c", *words, "--timeout", "5m"]).timeout == 300.0


@pytest.mark.parametrize("program", [cat, tail])
def test_minutes_are_counted_back_in_a_word_of_its_own(program: Any) -> None:
    before = parse_position("-0s").value
    start = program.parser().parse_args(["-c", "c", "--from", "-5m", "1"]).start
    assert 0 <= start.value - (before - 300_000_000) < 60_000_000
    assert ctl.parser().parse_args(["-c", "c", "trim", "1", "-5m"]).to.anchor is Anchor.TIME


@pytest.mark.parametrize("option", ["-n", "--last", "--lines"])
def test_ldcat_says_who_prints_the_last_records(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([option, "5", "1"], ["1", option, "5"]):
        with pytest.raises(SystemExit) as caught:
            cat.parser().parse_args(["-c", "c", *words])
        assert caught.value.code == 2
        assert f"there is no {option} here: the last records are printed by ldtail" in capsys.readouterr().err
    assert "--last" not in cat.parser().format_help()


def test_ldtail_says_that_it_counts_over_all_logs() -> None:
    assert "of all logs together" in " ".join(tail.parser().format_help().split())


@pytest.mark.parametrize("text", ["-1fortnight", "-h"])
def test_a_time_counted_back_in_no_unit_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        cat.parser().parse_args(["-c", "c", "1", f"--from={text}"])
