"""``ld-dev-cluster`` in the hands of somebody who types the wrong thing: one line that says what is wrong, never a traceback."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.read.items import Record
from client.sync import SyncClient
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.dev_cluster import main, make_config
from server.dev.supervisor import write_cluster_file
from tests.forked import run_program


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that fails says."""
    assert main(list(arguments)) in (1, 2)
    text = capsys.readouterr().err
    assert text.startswith("ld-dev-cluster: ")
    assert text.count("\n") == 1, text
    return text


class Up:
    """A foreground ``ld-dev-cluster up``."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server.dev.dev_cluster", "up", "--dir", str(directory), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready ")

    def end(self) -> str:
        """Stop it; what it said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=60)[1]


def command_of(directory: Path, *arguments: str) -> str:
    """What a command prints that succeeds."""
    done = run_program("server.dev.dev_cluster", *arguments, "--dir", directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def wait_until_well(directory: Path) -> None:
    """Until nothing is short of copies, as the status says."""
    deadline = time.monotonic() + 60
    while (status := main(["status", "--dir", str(directory)])) != 0:
        assert time.monotonic() < deadline, status


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("running") / "c"
    up = Up(directory, "--nodes", "2", "--logs", "1")
    up.wait_until_ready()
    yield directory
    text = up.end()
    assert f"console http://{layout.node_host(directory, NodeId(0))}:{layout.ADMIN_PORT}/\n" in text
    assert "Traceback" not in text
    assert up.process.returncode == 0


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A cluster of three nodes, none of which runs."""
    directory = tmp_path / "c"
    directory.mkdir()
    write_cluster_file(
        directory, make_config(directory, nodes=3, logs=2, replicate="node:2", racks=1, epoch_store=None)
    )
    return directory


@pytest.mark.parametrize(
    "command", ["status", "add", "kill", "stop", "start", "pause", "resume", "remove", "restart", "wipe"]
)
def test_commands_say_where_no_cluster_is_and_where_one_does_not_run(
    command: str, stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = [] if command in ("status", "add") else ["0"]
    assert "there is no cluster in" in said(capsys, command, *node, "--dir", str(tmp_path / "nowhere"))
    assert "does not run" in said(capsys, command, *node, "--dir", str(stopped))
    layout.control_token(stopped).write_text("of one that was killed")
    assert "does not run" in said(capsys, command, *node, "--dir", str(stopped))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--nodes", "4"], "--nodes 4 (it has 3)"),
        (["--logs", "1"], "--logs 1 (it has 2)"),
        (["--replicate", "node:3"], "--replicate node:3 (it has node:2)"),
        (["--racks", "2"], "--racks 2 (it has 1)"),
        (["--durability", "async"], "--durability async (it has sync)"),
        (["--rebuilding"], "--rebuilding (it is off)"),
        (["--epoch-store", "zookeeper://localhost:1"], "--epoch-store zookeeper://localhost:1 (it has sqlite"),
        (["--nodes", "4", "--logs", "2", "--racks", "3"], "--nodes 4 (it has 3), --racks 3 (it has 1)."),
        (["--replicate", "three"], "'three' is no scope"),
    ],
)
def test_options_that_contradict_the_cluster_that_is_there_are_refused(
    options: list[str], says: str, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in said(capsys, "up", "--dir", str(stopped), *options)


def test_a_copied_cluster_is_not_started_beside_the_one_that_it_is_a_copy_of(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(stopped, tmp_path / "copy")
    assert f"was made for {stopped}" in said(capsys, "up", "--dir", str(tmp_path / "copy"))


def test_a_file_or_a_broken_cluster_is_named(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "file is no directory" in said(capsys, "up", "--dir", str(tmp_path / "file"))
    layout.cluster_file(stopped).write_text("version =")
    assert f"{layout.cluster_file(stopped)}: not valid TOML" in said(capsys, "up", "--dir", str(stopped))


def test_a_second_up_finds_the_first(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "runs in" in (text := said(capsys, "up", "--dir", str(running)))
    assert "already" in text
    assert main(["status", "--dir", str(running)]) == 0, "the first one goes on"
    assert "--nodes 9 (it has 2)" in said(capsys, "up", "--dir", str(running), "--nodes", "9")


def test_nodes_are_named_with_and_without_their_letter(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for node in ("7", "N7", "-1"):
        assert f"there is no node {node.removeprefix('N')}; there are 0, 1" in said(
            capsys, "kill", node, "--dir", str(running)
        )
    assert "there is no region one; there are dev. A node is written like N0" in said(
        capsys, "kill", "one", "--dir", str(running)
    )
    with pytest.raises(SystemExit):
        main(["restart", "one", "--dir", str(running)])
    assert "'one' is no node: write it like N0, or 0" in capsys.readouterr().err
    assert "is running already" in said(capsys, "start", "N1", "--dir", str(running))


def test_a_node_that_lost_its_directory_comes_back_and_says_so(
    running: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kill", "1", "--dir", str(running)]) == 0
    for command in ("kill", "stop", "pause", "resume"):
        assert "node 1 is not running" in said(capsys, command, "1", "--dir", str(running))
    shutil.rmtree(layout.node_directory(running, NodeId(1)))
    assert main(["start", "1", "--dir", str(running)]) == 0
    assert "begins empty, as a new generation" in capsys.readouterr().out


@pytest.mark.slow
def test_a_node_that_is_wiped_begins_empty_and_what_it_held_is_stored_again(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    begins = "the data of N1:S0 is gone: it begins empty, as a new generation"
    up = Up(directory, "--nodes", "3", "--logs", "1", "--replicate", "node:2")
    up.wait_until_ready()
    try:
        with SyncClient(str(layout.cluster_file(directory))) as client:
            lsns = [client.append(1, b"x" * number).lsn for number in range(10)]
        assert begins in command_of(directory, "wipe", "1")
        wait_until_well(directory)
        with SyncClient(str(layout.cluster_file(directory))) as client, client.reader(1, until=lsns[-1]) as reader:
            assert [len(item.payload) for item in reader if isinstance(item, Record)] == list(range(10))
    finally:
        text = up.end()
    assert f"N1: {begins}" in text, "on the terminal of up, too"


def serves(directory: Path, node: int) -> bool:
    """Whether a node takes connections, and requests, at this moment."""
    with socket.create_connection((layout.node_host(directory, NodeId(node)), layout.NODE_PORT), timeout=10):
        pass
    url = f"http://{layout.node_host(directory, NodeId(node))}:{layout.ADMIN_PORT}/v1/ready"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bool(answer.status == 200)


@pytest.mark.parametrize("again", [["start"], ["restart"], ["wipe"]], ids=lambda words: words[0])
def test_a_node_that_was_started_serves_when_the_command_returns(running: Path, again: list[str]) -> None:
    if again == ["start"]:
        command_of(running, "kill", "1")
    assert "N1 started" in command_of(running, *again, "1")
    assert serves(running, 1)


def test_a_node_that_cannot_start_is_told_of(running: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command_of(running, "stop", "1")
    with socket.create_server((layout.node_host(running, NodeId(1)), layout.NODE_PORT)):
        text = said(capsys, "start", "1", "--dir", str(running))
    assert "N1 ended again; " in text
    assert "Address already in use" in text
    command_of(running, "restart", "N1")
    assert serves(running, 1)


def test_logs_of_nodes_are_shown_together_and_followed(running: Path) -> None:
    shown = command_of(running, "logs", "-n", "1000")
    times = [line[:23] for line in shown.splitlines() if line[:1].isdigit()]
    assert times == sorted(times)
    assert " N0 INFO serving at" in shown
    assert " N1 INFO serving at" in shown
    assert " N1 " not in command_of(running, "logs", "N0")
    assert len(command_of(running, "logs", "N1", "-n", "1").splitlines()) == 1
    following = subprocess.Popen(
        [sys.executable, "-m", "server.dev.dev_cluster", "logs", "0", "-f", "-n", "1", "--dir", str(running)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    try:
        assert " N0 " in following.stdout.readline(), "what was there; from here on it follows"
        with layout.node_log(running, NodeId(0)).open("a") as log:
            log.write("2026-01-01 00:00:00,000 N0 INFO something new\nTraceback\n")
        assert following.stdout.readline() == "2026-01-01 00:00:00,000 N0 INFO something new\n"
        assert following.stdout.readline() == "N0: Traceback\n"
    finally:
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
        following.stdout.close()


def test_logs_say_who_has_none(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no cluster in" in said(capsys, "logs", "--dir", str(tmp_path / "nowhere"))
    assert "the nodes have logged nothing" in said(capsys, "logs", "--dir", str(stopped))
    layout.node_log(stopped, NodeId(0)).write_text("x\n")
    assert "N2 has logged nothing" in said(capsys, "logs", "2", "--dir", str(stopped))


def test_when_no_node_can_start_up_ends_and_says_why(stopped: Path) -> None:
    taken = [socket.create_server((layout.node_host(stopped, NodeId(n)), layout.NODE_PORT)) for n in range(3)]
    up = Up(stopped)
    _, text = up.process.communicate(timeout=60)
    for each in taken:
        each.close()
    assert up.process.returncode == 1
    assert "every node ended" in text
    address = f"{layout.node_host(stopped, NodeId(1))}:{layout.NODE_PORT}"
    assert f"ends with: logdeviced: cannot listen at {address}: Address already in use" in text
    assert "Traceback" not in text
