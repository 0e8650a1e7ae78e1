"""The programs as a person runs them: processes, pipes, signals, exit statuses."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.forked import run_program

PROGRAMS = Path(sys.executable).parent
LINES = [
    b"plain",
    b"",
    b"carriage return\r",
    b"\r",
    b"invalid utf-8 \xff\xfe\xc3",
    b"nul \x00 inside",
    "grüße 漢字".encode(),
    b"\x1b[31mred\x1b[0m",
    b"x" * 1_000_000,
    b"",
    b"the last one has no newline",
]


SECONDS = 60.0
"""For what takes moments: on two busy cores a Python starts in seconds, and a node stops in some."""


class Cluster:
    """A foreground ``ld-dev-cluster up``."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        command = [str(PROGRAMS / "ld-dev-cluster"), "up", "--dir", str(directory), *options]
        self.up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.up.stdout is not None
        line = self.up.stdout.readline()
        self.ready = line.rstrip("\n")
        if not line:
            assert self.up.stderr is not None
            raise AssertionError(self.up.stderr.read())

    @property
    def file(self) -> str:
        return str(self.directory / "cluster.toml")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A further ``ld-dev-cluster`` command; --dir is given by the caller."""
        done = run_program("server.dev.dev_cluster", *arguments)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def status(self) -> dict[int, dict[str, Any]]:
        """Rows by node."""
        got = self.command("status", "--json", "--dir", str(self.directory))
        rows = {row["node"]: row for row in json.loads(got.stdout)}
        well = all(row["state"] == "running" and not row["troubles"] for row in rows.values())
        assert (got.returncode == 0) == (well and not got.stderr), got.stderr
        return rows

    def processes(self) -> list[int]:
        """Of the nodes."""
        return [row["process"] for row in self.status().values() if row["process"]]

    def end(self, number: signal.Signals) -> int:
        """Send a signal to ``up``; its exit status."""
        self.up.send_signal(number)
        try:
            return self.up.wait(SECONDS)
        finally:
            for stream in (self.up.stdout, self.up.stderr):
                assert stream is not None
                stream.close()


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _all_gone(processes: list[int]) -> bool:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not any(map(_alive, processes)):
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("cli") / "made" / "by up", "--logs", "40")
    yield running
    running.end(signal.SIGKILL)


_next_log = iter(range(1, 40))


@pytest.fixture
def log(cluster: Cluster) -> str:
    """A log that no other test uses."""
    return str(next(_next_log))


MODULES = {
    "ldwrite": "client.cli.write",
    "ldcat": "client.cli.cat",
    "ldtail": "client.cli.tail",
    "ldctl": "ldquery.ctl.main",
}


def run(program: str, cluster: Cluster, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A program from its start to its end; pipes and those that are signalled are made of the installed programs."""
    return run_program(MODULES[program], "--config", cluster.file, *arguments, given=given)


def diagnostics(said: bytes) -> bytes:
    """Standard error of a program, without what it says while it waits for the cluster: after two seconds, which may pass."""
    lines = said.splitlines(keepends=True)
    return b"".join(
        line for line in lines if line.partition(b": ")[2].strip() != b"goes on" and b": waiting for " not in line
    )


def written(cluster: Cluster, log: str, *lines: bytes) -> dict[str, Any]:
    got = run("ldwrite", cluster, log, "--json", given=b"".join(line + b"\n" for line in lines))
    assert got.returncode == 0, got.stderr
    answer: dict[str, Any] = json.loads(got.stdout)
    return answer


class TestWriteAndRead:
    def test_bytes_come_back_as_they_were(self, cluster: Cluster, log: str) -> None:
        got = run("ldwrite", cluster, log, given=b"\n".join(LINES))
        assert (got.returncode, got.stdout) == (0, b"")
        assert f"{len(LINES)} of {len(LINES)} records acknowledged".encode() in got.stderr
        got = run("ldcat", cluster, log)
        assert (got.returncode, diagnostics(got.stderr)) == (0, b"")
        assert got.stdout == b"".join(line + b"\n" for line in LINES)

    def test_records_with_newlines_are_told_apart_by_nul(self, cluster: Cluster, log: str) -> None:
        written(cluster, log, b"one", b"", b"two")
        assert run("ldcat", cluster, log, "-0").stdout == b"one\0\0two\0"

    def test_json_has_one_object_a_record(self, cluster: Cluster, log: str) -> None:
        written(cluster, log, b"text\t\xc3\xbc", b"\xff\r", b"")
        got = run("ldcat", cluster, log, "--format", "json")
        rows = [json.loads(line) for line in got.stdout.decode().splitlines()]
        assert [set(row) for row in rows] == [
            {"log", "lsn", "batch_offset", "timestamp", "payload"},
            {"log", "lsn", "batch_offset", "timestamp", "payload_base64"},
            {"log", "lsn", "batch_offset", "timestamp", "payload"},
        ]
        assert rows[0]["payload"] == "text\tü"
        assert base64.b64decode(rows[1]["payload_base64"]) == b"\xff\r"
        assert [row["batch_offset"] for row in rows] == [0, 1, 2]
        assert rows[0]["timestamp"].endswith("Z")

    def test_the_outcome_of_writing_as_json(self, cluster: Cluster, log: str) -> None:
        outcome = written(cluster, log, b"a", b"bc")
        keys = {
            "records",
            "bytes",
            "acknowledged",
            "synced",
            "failed",
            "in_doubt",
            "seconds",
            "first",
            "last",
            "position",
        }
        assert set(outcome) == keys
        assert (outcome["records"], outcome["acknowledged"], outcome["failed"], outcome["bytes"]) == (2, 2, 0, 3)
        assert outcome["synced"] == 2

    def test_a_range_ends_with_until_included(self, cluster: Cluster, log: str) -> None:
        positions = [written(cluster, log, b"%d" % number)["last"] for number in range(3)]
        assert run("ldcat", cluster, log, "--until", positions[1]).stdout == b"0\n1\n"
        assert run("ldcat", cluster, log, "--from", positions[1]).stdout == b"1\n2\n"
        assert run("ldcat", cluster, log, "--from", positions[1], "--until", positions[1]).stdout == b"1\n"
        assert run("ldcat", cluster, log, "--from", positions[2], "--until", positions[0]).returncode in (0, 2)

    def test_an_empty_log_and_empty_input_are_no_errors(self, cluster: Cluster, log: str) -> None:
        got = run("ldcat", cluster, log)
        assert (got.returncode, got.stdout) == (0, b"")
        got = run("ldwrite", cluster, log, "--json")
        assert got.returncode == 0
        assert json.loads(got.stdout)["records"] == 0

    def test_unknown_logs_are_named_in_one_line(self, cluster: Cluster) -> None:
        for program in ("ldwrite", "ldcat", "ldtail"):
            for name in ("999", "/nowhere"):
                got = run(program, cluster, name)
                assert (got.returncode, got.stdout) == (2, b""), (program, got)
                assert name.encode() in got.stderr
                assert diagnostics(got.stderr).count(b"\n") == 1

    def test_wrong_use_is_explained(self, cluster: Cluster, log: str, tmp_path: Path) -> None:
        for arguments in (["--from", "soon", log], ["--until", "2026-01-01T00:00:00", log], []):
            got = run("ldcat", cluster, *arguments)
            assert got.returncode == 2
            assert b"Traceback" not in got.stderr
        for program in ("ldwrite", "ldcat", "ldtail"):
            missing = str(tmp_path / "none.toml")
            got = run_program(MODULES[program], "-c", missing, log)
            assert got.returncode == 2
            assert missing.encode() in got.stderr
            assert b"Traceback" not in got.stderr

    def test_a_line_that_is_too_long_fails_alone(self, cluster: Cluster, log: str) -> None:
        got = run("ldwrite", cluster, log, "--json", given=b"y" * (3 << 20) + b"\n")
        assert got.returncode == 1
        outcome = json.loads(got.stdout)
        assert (outcome["acknowledged"], outcome["failed"]) == (0, 1)
        assert b"TOOBIG" in got.stderr
        assert b"Traceback" not in got.stderr

    def test_a_reader_of_the_output_that_goes_away_ends_ldcat_quietly(self, cluster: Cluster, log: str) -> None:
        written(cluster, log, *[b"z" * 1000] * 3000)
        command = f"'{PROGRAMS}/ldcat' -c '{cluster.file}' {log} | head -n 1 | wc -c"
        got = subprocess.run(command, shell=True, capture_output=True, timeout=60, check=False)
        assert (got.stdout.strip(), diagnostics(got.stderr)) == (b"1001", b"")

    def test_following_delivers_while_others_write(self, cluster: Cluster, log: str) -> None:
        written(cluster, log, *(b"old %d" % number for number in range(15)))
        command = [PROGRAMS / "ldtail", "-c", cluster.file, log, "-f", "-n", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
            assert tail.stdout is not None
            assert tail.stderr is not None
            try:
                assert [tail.stdout.readline() for _ in range(2)] == [b"old 13\n", b"old 14\n"]
                for number in range(3):
                    written(cluster, log, b"new %d" % number)
                    assert tail.stdout.readline() == b"new %d\n" % number
                tail.send_signal(signal.SIGINT)
                assert tail.wait(SECONDS) == 130
                assert diagnostics(tail.stderr.read()) == b""
            finally:
                tail.kill()

    def test_lines_are_appended_while_the_writer_waits_for_more(self, cluster: Cluster, log: str) -> None:
        command = [PROGRAMS / "ldwrite", "-c", cluster.file, log, "-q"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            assert writer.stdin is not None
            writer.stdin.write(b"first\nsecond begins")
            writer.stdin.flush()
            end = time.monotonic() + SECONDS
            while run("ldcat", cluster, log).stdout != b"first\n":
                assert time.monotonic() < end
            writer.stdin.write(b" and ends\n")
            writer.stdin.close()
            assert writer.wait(SECONDS) == 0
        assert run("ldcat", cluster, log).stdout == b"first\nsecond begins and ends\n"


def contents(cluster: Cluster, log: str) -> tuple[int, str]:
    """How many records a log has, and the hash of their keys and payloads."""
    got = run("ldcat", cluster, log, "--proof")
    assert got.returncode == 0, got.stderr
    proof = json.loads(got.stdout)
    return proof["records"], proof["contents"]


def piped(cluster: Cluster, source: str, reading: str, target: str, writing: str) -> subprocess.CompletedProcess[bytes]:
    """``ldcat SOURCE | ldwrite TARGET``."""
    command = (
        f"'{PROGRAMS}/ldcat' -c '{cluster.file}' {source} {reading} | "
        f"'{PROGRAMS}/ldwrite' -q -c '{cluster.file}' {target} {writing}"
    )
    return subprocess.run(command, shell=True, capture_output=True, timeout=60, check=False)


class TestCopies:
    """A log is copied by a pipe."""

    def test_json_copies_keys_and_payloads_of_any_bytes(self, cluster: Cluster) -> None:
        source, target = str(next(_next_log)), str(next(_next_log))
        chance = random.Random(31)
        rows: list[dict[str, str]] = [{"payload": "no key"}, {"payload": "\u2028", "key": ""}, {"payload": ""}]
        for _ in range(5000):
            row = {"payload_base64": base64.b64encode(chance.randbytes(chance.randrange(40))).decode()}
            if chance.random() < 0.8:
                row["key_base64"] = base64.b64encode(chance.randbytes(chance.randrange(9))).decode()
            rows.append(row)
        given = "".join(json.dumps(row) + "\n" for row in rows).encode()
        got = run("ldwrite", cluster, source, "--format", "json", given=given)
        assert got.returncode == 0, got.stderr
        got = piped(cluster, source, "--format json", target, "--format json")
        assert (got.returncode, diagnostics(got.stderr)) == (0, b"")
        assert contents(cluster, source) == contents(cluster, target)
        assert contents(cluster, source)[0] == len(rows)
        read = [json.loads(line) for line in run("ldcat", cluster, target, "--format", "json").stdout.splitlines()]
        assert [(_bytes(row, "key"), _bytes(row, "payload")) for row in read] == [
            (_bytes(row, "key"), _bytes(row, "payload")) for row in rows
        ]

    def test_nul_keeps_newlines_and_a_delimiter_keeps_keys(self, cluster: Cluster) -> None:
        source, target = str(next(_next_log)), str(next(_next_log))
        got = run("ldwrite", cluster, source, "-0", "-K", ":", given=b"k:a\nb\0no key\0:empty key: and more\0")
        assert got.returncode == 0, got.stderr
        got = piped(cluster, source, "-0 -K '\\t'", target, "-0 -K '\\t'")
        assert (got.returncode, diagnostics(got.stderr)) == (0, b"")
        assert contents(cluster, source) == contents(cluster, target)
        assert run("ldcat", cluster, target, "-0").stdout == b"a\nb\0no key\0empty key: and more\0"

    def test_a_line_that_is_no_record_ends_it_and_is_named(self, cluster: Cluster, log: str) -> None:
        got = run("ldwrite", cluster, log, "--format", "json", given=b'{"payload":"a"}\nnot json\n{"payload":"b"}\n')
        assert got.returncode == 2
        assert b"line 2: it is no JSON" in got.stderr
        assert run("ldcat", cluster, log).stdout == b"a\n"


class TestSeveralLogs:
    """One program reads several logs."""

    def test_records_of_a_pattern_come_in_the_order_of_time(self, cluster: Cluster) -> None:
        one, two = str(next(_next_log)), str(next(_next_log))
        for number in range(3):
            written(cluster, one, b"one %d" % number)
            written(cluster, two, b"two %d" % number)
        names = [f"/logs/{one}", two]
        ordered = b"one 0\ntwo 0\none 1\ntwo 1\none 2\ntwo 2\n"
        assert run("ldcat", cluster, *names).stdout == ordered
        assert sorted(run("ldcat", cluster, *names, "--as-it-comes").stdout.splitlines()) == sorted(
            ordered.splitlines()
        )
        assert run("ldtail", cluster, *names, "--last", "3").stdout == b"two 1\none 2\ntwo 2\n"
        rows = [json.loads(line) for line in run("ldcat", cluster, "/logs/*", "--format", "json").stdout.splitlines()]
        ours = [row["payload"] for row in rows if str(row["log"]) in (one, two)]
        assert "\n".join(ours).encode() + b"\n" == ordered
        proofs = [json.loads(line) for line in run("ldcat", cluster, *names, "--proof").stdout.splitlines()]
        assert [(str(proof["log"]), proof["records"]) for proof in proofs] == [(one, 3), (two, 3)]

    def test_following_delivers_of_each_log_as_it_comes(self, cluster: Cluster) -> None:
        one, two = str(next(_next_log)), str(next(_next_log))
        written(cluster, one, b"old")
        command = [PROGRAMS / "ldtail", "-c", cluster.file, one, two, "-f"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
            assert tail.stdout is not None
            try:
                assert tail.stdout.readline() == b"old\n"
                for log in (two, two, one):
                    written(cluster, log, b"to " + log.encode())
                    assert tail.stdout.readline() == b"to " + log.encode() + b"\n"
                tail.send_signal(signal.SIGINT)
                assert tail.wait(SECONDS) == 130
            finally:
                tail.kill()


def _bytes(row: dict[str, Any], name: str) -> bytes | None:
    if name in row:
        text: str = row[name]
        return text.encode()
    return base64.b64decode(row[f"{name}_base64"]) if f"{name}_base64" in row else None


class TestDevCluster:
    def test_every_command(self, cluster: Cluster, log: str) -> None:
        directory = str(cluster.directory)
        assert cluster.ready == f"ready {cluster.file}"
        assert {row["state"] for row in cluster.status().values()} == {"running"}

        assert cluster.command("kill", "--dir", directory, "2").stdout == "N2 killed\n"
        assert cluster.status()[2]["state"] == "ended by signal 9"
        written(cluster, log, b"without N2")
        got = cluster.command("kill", "2", "--dir", directory)
        assert (got.returncode, got.stderr) == (1, "ld-dev-cluster: node 2 is not running\n")
        assert cluster.command("start", "2", "--dir", directory).returncode == 0
        got = cluster.command("start", "--dir", directory, "2")
        assert got.returncode == 1
        assert "running already" in got.stderr

        assert cluster.command("pause", "1", "--dir", directory).returncode == 0
        assert cluster.status()[1]["state"] == "paused"
        written(cluster, log, b"while N1 sleeps")
        assert cluster.command("resume", "--dir", directory, "1").returncode == 0
        assert cluster.status()[1]["state"] == "running"

        assert cluster.command("stop", "3", "--dir", directory).stdout == "N3 stopped\n"
        assert cluster.status()[3]["state"] == "ended with status 0"
        assert cluster.command("start", "3", "--dir", directory).returncode == 0

        assert cluster.command("add", "--dir", directory).stdout.startswith("N5 added in ")
        assert cluster.status()[5]["state"] == "running"
        written(cluster, log, b"with N5")
        assert "Empty it first" in cluster.command("remove", "5", "--dir", directory).stderr
        assert run("ldctl", cluster, "drain", "N5", "--wait").returncode == 0
        assert cluster.command("remove", "5", "--dir", directory).stdout.startswith("N5 removed")
        assert 5 not in cluster.status()

        got = cluster.command("kill", "77", "--dir", directory)
        assert got.returncode == 2
        assert "there is no node 77" in got.stderr
        table = cluster.command("status", "--dir", directory)
        assert table.stdout.count("\n") == 5
        written(cluster, log, b"after all")
        assert run("ldcat", cluster, log).stdout == b"without N2\nwhile N1 sleeps\nwith N5\nafter all\n"

    def test_commands_to_a_directory_without_cluster_say_so(self, cluster: Cluster, tmp_path: Path) -> None:
        got = cluster.command("status", "--dir", str(tmp_path))
        assert got.returncode == 2
        assert got.stderr.startswith(f"ld-dev-cluster: there is no cluster in {tmp_path}")
        assert "Traceback" not in got.stderr

    def test_a_second_cluster_in_the_same_directory_is_refused(self, cluster: Cluster) -> None:
        got = cluster.command("up", "--dir", str(cluster.directory))
        assert got.returncode == 1
        assert f"a cluster runs in {cluster.directory} already" in got.stderr
        assert {row["state"] for row in cluster.status().values()} == {"running"}

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--nodes", "2", "--replicate", "node:3"],
            ["--replicate", "rack:9"],
            ["--nodes", "0"],
            ["--epoch-store", "what"],
        ],
    )
    def test_what_cannot_be_is_refused_before_anything_is_made(
        self, cluster: Cluster, tmp_path: Path, arguments: list[str]
    ) -> None:
        got = cluster.command("up", "--dir", str(tmp_path / "new"), *arguments)
        assert got.returncode == 2
        assert "Traceback" not in got.stderr
        assert not (tmp_path / "new").exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_nodes_end_with_it_and_after_the_worst_end_data_is_there(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        options = ("--nodes", "3", "--logs", "1", "--replicate", "node:2")
        first = Cluster(tmp_path, *options)
        written(first, "1", b"kept")
        processes = first.processes()
        assert len(processes) == 3
        assert all(map(_alive, processes))
        status = first.end(number)
        assert status == (-number if number == signal.SIGKILL else 0)
        assert _all_gone(processes)
        assert (tmp_path / "control.token").exists() == (number == signal.SIGKILL)
        if number != signal.SIGKILL:
            return
        second = Cluster(tmp_path)
        try:
            assert run("ldcat", second, "1").stdout == b"kept\n"
        finally:
            processes = second.processes()
            second.end(signal.SIGTERM)
        assert _all_gone(processes)


def test_the_demo_reads_back_what_it_wrote(tmp_path: Path) -> None:
    text = tmp_path / "lines"
    text.write_bytes(b"\n".join(b"line %d" % number for number in range(5000)))
    command = [sys.executable, "-m", "server.dev.demo", "--file", str(text), "--keep", str(tmp_path / "kept")]
    got = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=Path(__file__).parents[2], env=os.environ
    )
    assert got.returncode == 0, got.stderr
    assert "every acknowledged record was read back, once, in order" in got.stdout
    again = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2]
    )
    assert again.returncode == 2
    assert "holds a cluster already" in again.stderr
