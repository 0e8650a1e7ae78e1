"""Words that shells complete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.cli import cat
from client.cli.options import Words
from client.cluster_file import CLUSTER_VARIABLE
from ldquery.ctl import main as ctl
from logdevice_py.core.status import LogDeviceError
from logdevice_py.programs import own_program
from server.completion import words_of
from server.dev import dev_cluster

CLUSTER = """
name = "typed"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:1"
[defaults]
replicate = "node:1"
[nodes.N0]
host = "127.0.0.1"
port = 1000
[nodes.N7]
host = "127.0.0.1"
port = 1001
[logs."/team"]
durability = "async"
[logs."/team/clicks"]
ids = 7
[logs."/team/billing"]
ids = "100..102"
[logs."/many"]
ids = "1000..999999"
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    return file


@pytest.mark.parametrize(
    ("kind", "typed", "words"),
    [
        (Words.LOGS, "/team/", ["/team/clicks", *(f"/team/billing/{place}" for place in (1, 2, 3))]),
        (Words.LOGS, "/m", [f"/many/{place}" for place in range(1, 51)]),
        (Words.LOGS, "/many/77777", ["/many/77777", *(f"/many/77777{digit}" for digit in range(10))]),
        (Words.LOGS, "7", ["7", *(str(log) for log in range(7000, 7099))]),
        (Words.LOGS, "10", ["100", "101", "102", *(str(log) for log in range(1000, 1097))]),
        (Words.LOGS, "0", []),
        (Words.LOGS, "x", []),
        (Words.PATHS, "", ["/team", "/team/clicks", "/team/billing", "/many"]),
        (Words.LOGS_AND_PATHS, "/team/b", ["/team/billing", *(f"/team/billing/{place}" for place in (1, 2, 3))]),
        (Words.NODES, "", ["N0", "N7"]),
        (Words.NODES_AND_ALL, "", ["all", "N0", "N7"]),
        (Words.SETTINGS, "sequencer.gray", ["sequencer.graylist"]),
    ],
)
def test_words_are_those_of_the_cluster_that_begin_as_typed(
    kind: Words, typed: str, words: list[str], cluster: Path
) -> None:
    assert words_of(kind, typed, ["ldctl", "-c", str(cluster)]) == words


def test_settings_that_nodes_only_take_at_their_start_are_not_offered() -> None:
    assert "storage.retention_margin" not in words_of(Words.SETTINGS, "", [])
    assert "storage.scrub_bytes_per_s" in words_of(Words.SETTINGS, "", [])


@pytest.mark.parametrize(
    "line",
    [
        ["ldcat", "-c", "{file}"],
        ["ldcat", "--config={file}", "7"],
        ["ldcat", "--config", "=", "{file}"],
        ["ldcat", "-c", "nowhere.toml", "-c", "'{file}'"],
        ["ldcat", "-c", "~/cluster.toml"],
        ["ld-dev-cluster", "--dir", "{directory}", "stop"],
    ],
)
def test_the_command_line_names_the_cluster_file(
    line: list[str], cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(cluster.parent))
    words = [word.format(file=cluster, directory=cluster.parent) for word in line]
    assert words_of(Words.NODES, "N7", words) == ["N7"]


def test_the_variable_names_it_where_the_command_line_does_not(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert words_of(Words.NODES, "", ["ldcat"]) == []
    monkeypatch.setenv(CLUSTER_VARIABLE, str(cluster))
    assert words_of(Words.NODES, "", ["ldcat"]) == ["N0", "N7"]


def test_what_cannot_be_read_completes_nothing_and_says_nothing(cluster: Path) -> None:
    cluster.write_text("no cluster")
    with pytest.raises(LogDeviceError):
        words_of(Words.NODES, "", ["-c", str(cluster)])
    for words in (["logs", "", "-c", str(cluster)], ["logs", "", "-c", "/nowhere"], ["what", ""], ["logs"], []):
        command = own_program("ldquery.ctl.main", "--complete-words", *words)
        got = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (got.stdout, got.stderr) == ("", ""), words


def test_nobody_who_types_waits_for_the_code_of_clients_and_nodes() -> None:
    code = "import sys, json, server.completion; print(json.dumps(sorted(sys.modules)))"
    root = Path(__file__).parents[3]
    modules = json.loads(
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, cwd=root).stdout
    )
    assert not {"asyncio", "client.client", "server.node", "ldquery.session", "pyarrow"} & set(modules)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("parser", "program", "line", "words"),
    [
        (ctl.parser, "ldctl", ["-c", "{file}", "trim", "/team/c"], ["/team/clicks"]),
        (ctl.parser, "ldctl", ["trim", "-c", "{file}", "/team/c"], ["/team/clicks"]),
        (ctl.parser, "ldctl", ["-c", "{file}", "settings", "set", "all", "sequencer.gra"], ["sequencer.graylist"]),
        (ctl.parser, "ldctl", ["-c", "{file}", "stop", ""], ["N0", "N7"]),
        (ctl.parser, "ldctl", ["-c", "{file}", "logs", "delete", "/m"], ["/many"]),
        (ctl.parser, "ldctl", ["-c", "/nowhere", "trim", "/team/c"], []),
        (cat.parser, "ldcat", ["-c", "{file}", "7", "10"], [str(log) for log in (100, 101, 102, *range(1000, 1097))]),
        (dev_cluster.parser, "ld-dev-cluster", ["--dir", "{directory}", "wipe", "N"], ["N0", "N7"]),
    ],
)
def test_bash_completes_words_of_the_cluster(
    parser: Callable[[], Any],
    program: str,
    line: list[str],
    words: list[str],
    cluster: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--print-completion", "bash"])
    script = capsys.readouterr().out
    installed = cluster.parent / "bin"
    installed.mkdir()
    (installed / program).write_text(
        f'#!/bin/sh\nexec {" ".join(own_program("ldquery.ctl.main"))} "$@"\n', encoding="utf-8"
    )
    (installed / program).chmod(0o755)
    typed = [program, *(word.format(file=cluster, directory=cluster.parent) for word in line)]
    quoted = " ".join(f"'{word}'" for word in typed)
    function = f"_shtab_{program.replace('-', '_')}"
    script += f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(line)}; {function}; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
    got = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{installed}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (got.stdout.split(), got.stderr) == (words, "")
