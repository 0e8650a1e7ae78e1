"""The programs when something is wrong: with the cluster, with their standard streams, with what lies in the path."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import run_program
from tests.integration.test_cli import MODULES, PROGRAMS, SECONDS, Cluster, diagnostics, run, written

READERS = ("ldcat", "ldtail")
ALL = ("ldwrite", *READERS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("trouble"), "--nodes", "3", "--logs", "20", "--replicate", "node:2")
    yield running
    running.end(signal.SIGKILL)


_next_log = iter(range(1, 20))


@pytest.fixture
def log(cluster: Cluster) -> str:
    """A log that no other test uses."""
    return str(next(_next_log))


def changed_file(cluster: Cluster, to: Path, pattern: str, replacement: str) -> str:
    """A copy of the cluster file with other lines."""
    text, count = re.subn(pattern, replacement, Path(cluster.file).read_text(), flags=re.MULTILINE)
    assert count
    to.write_text(text)
    return str(to)


def shell(command: str, cluster: Cluster, log: str) -> subprocess.CompletedProcess[str]:
    """A command line; PROGRAM is the path of the programs with a slash, WHERE the options that name the log."""
    command = command.replace("PROGRAM ", f"{PROGRAMS}/").replace("WHERE", f"-c {cluster.file} {log}")
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )


class TestCluster:
    @pytest.mark.parametrize("program", ALL)
    def test_the_file_of_another_cluster_ends_a_program_at_once(
        self, cluster: Cluster, log: str, tmp_path: Path, program: str
    ) -> None:
        other = changed_file(
            cluster, tmp_path / "other.toml", "^uuid = .*", 'uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"'
        )
        options = ("-c", other, log, "--timeout", "1h")  # what it would be tried for otherwise
        got = run_program(MODULES[program], *options, given=b"x\n")
        assert got.returncode == 2
        assert b"INVALID_CLUSTER: " in got.stderr
        assert f" {other} is not the file of the cluster that answers".encode() in got.stderr

    @pytest.mark.parametrize("program", ALL)
    def test_a_cluster_that_does_not_answer_is_said_and_not_waited_for_without_end(
        self, cluster: Cluster, log: str, tmp_path: Path, program: str
    ) -> None:
        dead = changed_file(cluster, tmp_path / "dead.toml", "^port = .*", "port = 9")
        options = ("-c", dead, log, "--timeout", "4s")  # what it waits for is told after two
        got = run_program(MODULES[program], *options, given=b"x\n")
        assert got.returncode == 4, got.stderr
        note, *_, last = got.stderr.decode().splitlines()
        reach = f"no node of {dead} answers (3 of 3 addresses tried: N0, N1, N2: nobody listens there)"
        # a process that stalls for those two seconds has not tried all of them
        assert note.startswith(f"{program}: waiting for the cluster: no node of {dead} ")
        assert reach in last

    def test_a_log_that_is_removed_ends_those_who_use_it(self, tmp_path: Path) -> None:
        own = Cluster(tmp_path, "--nodes", "1", "--logs", "2", "--replicate", "node:1")
        try:
            written(own, "2", b"old")
            tail = subprocess.Popen(
                [PROGRAMS / "ldtail", "-f", "-c", own.file, "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            writer = subprocess.Popen(
                [PROGRAMS / "ldwrite", "-c", own.file, "2"], stdin=subprocess.PIPE, stderr=subprocess.PIPE
            )
            assert tail.stdout is not None
            assert writer.stdin is not None
            assert tail.stdout.readline() == b"old\n"
            writer.stdin.write(b"new\n")
            writer.stdin.flush()
            assert tail.stdout.readline() == b"new\n"
            text = Path(own.file).read_text().replace("version = 1\n", "version = 2\n").replace("1..2", "1..1")
            Path(f"{own.file}.new").write_text(text)
            os.replace(f"{own.file}.new", own.file)
            for process in (tail, writer):  # the writer's input stays open
                assert process.wait(SECONDS) == 2
                assert process.stderr is not None
                error = process.stderr.read().decode()
                assert f"NOTFOUND: log 2 was removed from {own.file}" in error
                assert "Traceback" not in error
            for stream in (writer.stdin, writer.stderr, tail.stdout, tail.stderr):
                assert stream is not None
                stream.close()
        finally:
            own.end(signal.SIGTERM)


class TestStreams:
    @pytest.mark.parametrize(
        ("command", "status", "error"),
        [
            ("PROGRAM ldcat WHERE >/dev/full", 1, "ldcat: standard output: No space left on device\n"),
            ("PROGRAM ldcat WHERE --proof >/dev/full", 1, "ldcat: standard output: No space left on device\n"),
            ("PROGRAM ldtail WHERE >&-", 1, "ldtail: standard output is closed\n"),
            ("PROGRAM ldcat WHERE --format json | head -n 1 >/dev/null", 0, ""),
            ("PROGRAM ldwrite WHERE <&-", 1, "ldwrite: standard input is closed\n"),
            (
                "PROGRAM ldwrite WHERE --json -q </dev/null >/dev/full",
                1,
                "ldwrite: standard output: No space left on device\n",
            ),
            ("PROGRAM ldwrite WHERE --json </dev/null >&-", 1, "ldwrite: standard output is closed\n"),
            ("PROGRAM ldcat WHERE --from e9n9 2>&- | wc -l", 0, ""),
            ("PROGRAM ldcat WHERE --from e9n9 2>/dev/full", 0, ""),
        ],
    )
    def test_a_stream_that_does_not_work_is_one_line(
        self, cluster: Cluster, command: str, status: int, error: str
    ) -> None:
        written(cluster, "20", *[b"z" * 100] * 1000)
        got = shell(command, cluster, "20")
        assert (got.returncode, diagnostics(got.stderr.encode()).decode()) == (status, error)
        assert got.stdout in ("", "0\n")

    def test_lines_are_written_although_nobody_reads_the_summary(self, cluster: Cluster, log: str) -> None:
        for target in ("2>&-", "2>/dev/full", "0<&0 1>&- 2>&-"):
            assert shell(f"echo x | PROGRAM ldwrite WHERE {target}", cluster, log).returncode == 0
        assert run("ldcat", cluster, log).stdout == b"x\n" * 3


class TestWrite:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_interrupted_writer_stops_in_order_and_tells_what_it_did(
        self, cluster: Cluster, log: str, number: signal.Signals
    ) -> None:
        command = [PROGRAMS / "ldwrite", "-c", cluster.file, log, "--json"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write(b"one\ntwo\n")
            writer.stdin.flush()
            end = time.monotonic() + SECONDS
            while run("ldcat", cluster, log).stdout != b"one\ntwo\n":
                assert time.monotonic() < end
            writer.send_signal(number)
            out, err = writer.communicate(timeout=SECONDS)
        assert (writer.returncode, diagnostics(err)) == (130, b"")
        outcome = json.loads(out)
        assert (outcome["records"], outcome["acknowledged"], outcome["in_doubt"]) == (2, 2, 0)

    def test_lines_before_one_that_is_too_long_are_written_and_none_behind_it(self, cluster: Cluster, log: str) -> None:
        got = run("ldwrite", cluster, log, given=b"one\ntwo\n" + b"y" * (3 << 20) + b"\nfour\n")
        assert got.returncode == 1
        assert b"2 of 3 records acknowledged" in got.stderr
        assert b"TOOBIG: line 3: 3145728 bytes; the log takes 1048576" in got.stderr
        assert run("ldcat", cluster, log).stdout == b"one\ntwo\n"

    def test_an_error_before_the_first_record_comes_without_summary(self, cluster: Cluster) -> None:
        got = run("ldwrite", cluster, "999", "--json", given=b"x\n")
        assert (got.returncode, got.stdout) == (2, b"")
        assert diagnostics(got.stderr) == b"ldwrite: NOTFOUND: there is no log 999\n"


class TestRanges:
    def test_a_range_that_holds_nothing_is_explained(self, cluster: Cluster, log: str) -> None:
        got = run("ldcat", cluster, log, "--from", "e1n1")
        assert (got.returncode, got.stdout) == (0, b"")
        assert diagnostics(run("ldcat", cluster, log).stderr) == b""
        last = written(cluster, log, b"x")["last"]
        for program in READERS:
            got = run(program, cluster, log, "--from", "e9n9")
            text = f"{program}: nothing there: the log ends at {last}\n"
            assert (got.returncode, got.stdout, diagnostics(got.stderr).decode()) == (0, b"", text)
        got = run("ldcat", cluster, log, "--from", "e1n1", "--until", "e1n0")
        assert (got.returncode, diagnostics(got.stderr)) == (0, b"ldcat: nothing there: e1n1 lies behind e1n0\n")


class TestPath:
    @pytest.fixture
    def in_the_way(self, tmp_path: Path) -> dict[str, str]:
        """An environment in which a user's modules are found before ours."""
        for name in ("client", "ldquery", "server", "sequencer", "storage_node", "epoch_store"):
            (tmp_path / f"{name}.py").write_text(f"raise SystemExit('this is not our {name}')")
        return {**os.environ, "PYTHONPATH": str(tmp_path)}

    def test_programs_start_although_modules_of_the_user_have_our_names(
        self, cluster: Cluster, log: str, in_the_way: dict[str, str]
    ) -> None:
        for program in ALL:
            got = subprocess.run(
                [PROGRAMS / program, "-c", cluster.file, log],
                input=b"x\n",
                capture_output=True,
                timeout=60,
                check=False,
                env=in_the_way,
            )
            assert (got.returncode, got.stdout) == (0, b"" if program == "ldwrite" else b"x\n"), got.stderr
        for program in ("ld-dev-cluster", "logdeviced"):
            got = subprocess.run(
                [PROGRAMS / program, "--help"], capture_output=True, timeout=60, check=False, env=in_the_way
            )
            assert got.returncode == 0
            assert program.encode() in got.stdout

    def test_nodes_start_although_modules_of_the_user_have_our_names(
        self, tmp_path: Path, in_the_way: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", in_the_way["PYTHONPATH"])
        own = Cluster(tmp_path / "own", "--nodes", "1", "--logs", "1", "--replicate", "node:1")
        assert own.end(signal.SIGTERM) == 0

    def test_an_application_is_told_what_is_in_the_way(self, in_the_way: dict[str, str]) -> None:
        got = subprocess.run(
            [sys.executable, "-c", "from logdevice_py import Client"],
            cwd=in_the_way["PYTHONPATH"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=in_the_way,
        )
        assert f"Python finds {in_the_way['PYTHONPATH']}/client.py; rename that file" in got.stderr
