"""Other users of the machine can read nothing of a cluster's files, whatever the umask is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.sync import SyncClient
from logdevice_py.core.ids import NodeId
from logdevice_py.runtime.admin_token import token_beside
from server.dev import layout
from server.dev.local_cluster import LocalCluster
from server.private_files import append_to_private, make_private_directory


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Files are open to everybody unless who makes them says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(directory: Path) -> list[str]:
    """Everything in a directory that others may use if they get there."""
    return [f"{mode(path):o} {path}" for path in directory.rglob("*") if not path.is_symlink() and mode(path) & 0o077]


def test_a_development_cluster_makes_files_for_its_owner_alone(tmp_path: Path, open_umask: None) -> None:
    directory = tmp_path / "made" / "cluster"
    command = [
        sys.executable,
        "-m",
        "server.dev.dev_cluster",
        "up",
        "--dir",
        str(directory),
        "--nodes",
        "1",
        "--logs",
        "1",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as up:
        try:
            assert up.stdout is not None
            assert up.stdout.readline().startswith("ready ")
            with SyncClient(str(layout.cluster_file(directory))) as client:
                client.append(1, b"private")
            assert open_to_others(tmp_path) == []
        finally:
            up.terminate()
    assert (directory / "n0" / "shard0").is_dir()
    for path in (layout.cluster_file(directory), token_beside(layout.cluster_file(directory)), directory / "n0.log"):
        assert mode(path) == 0o600
    assert open_to_others(tmp_path) == []


async def test_a_node_closes_its_data_to_others_and_says_so(
    tmp_path: Path, open_umask: None, caplog: pytest.LogCaptureFixture
) -> None:
    data = layout.node_directory(tmp_path, NodeId(0))
    data.mkdir(mode=0o755)
    async with LocalCluster(nodes=1, logs=1, directory=tmp_path) as cluster, cluster.client() as client:
        await client.append(1, b"private")
        assert mode(data) == 0o700, "an application's umask is its own: what is below is not open to others either way"
        assert mode(tmp_path / "cluster.token") == mode(layout.cluster_file(tmp_path)) == 0o600
        assert {mode(path) for path in tmp_path.glob("epochs.sqlite*")} == {0o600}
    assert f"{data} was open to other users (mode 755): it is closed to them now" in caplog.text


def test_a_directory_that_belongs_to_all_is_left_to_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_private_directory(shared)
    assert mode(shared) == 0o1777
    assert "name a directory that is the node's alone" in caplog.text


def test_a_directory_that_cannot_be_closed_is_told(
    tmp_path: Path, open_umask: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    tmp_path.joinpath("data").mkdir(mode=0o755)
    make_private_directory(tmp_path / "data")
    assert "is open to other users (mode 755) and stays so: Operation not permitted" in caplog.text


def test_what_a_node_prints_is_closed_to_others_also_where_it_was_open(tmp_path: Path, open_umask: None) -> None:
    path = tmp_path / "n0.log"
    path.write_text("before\n")
    with append_to_private(path) as file:
        file.write(b"after\n")
    assert (mode(path), path.read_text()) == (0o600, "before\nafter\n")
