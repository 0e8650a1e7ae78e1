"""What a script leaves behind that used a cluster inside itself."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from server.dev.local_cluster import LocalCluster
from server.dev.scratch import ScratchDirectory

SCRIPT = """
import asyncio
from logdevice_py import LocalCluster

async def main():
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        await client.append(1, b"hello")
        print(cluster.directory, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def gone(path: Path) -> None:
    async with asyncio.timeout(60):  # a shell does it once the script is gone, on a machine that may be busy
        while path.exists():  # noqa: ASYNC110 - another process deletes it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
async def test_a_script_that_is_ended_by_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    script = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SCRIPT),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert script.stdout is not None
    directory = Path((await script.stdout.readline()).decode().strip())
    assert directory.parent == tmp_path.resolve()
    assert (directory / "n0").is_dir()
    script.send_signal(number)
    assert await script.wait() != 0
    await gone(directory)
    assert list(tmp_path.iterdir()) == []


async def test_a_cluster_that_ends_in_order_leaves_nothing_and_one_in_a_named_directory_everything(
    tmp_path: Path,
) -> None:
    async with LocalCluster(nodes=1) as cluster:
        assert cluster.directory.is_dir()
    assert not cluster.directory.exists()
    async with LocalCluster(nodes=1, directory=tmp_path / "kept"):
        pass
    assert (tmp_path / "kept" / "n0").is_dir()


def test_a_cluster_that_nobody_starts_leaves_nothing() -> None:
    cluster = LocalCluster(nodes=1)
    directory = cluster.directory
    assert directory.is_dir()
    del cluster
    assert not directory.exists()


def test_removing_twice_is_harmless() -> None:
    scratch = ScratchDirectory("logdevice-test-")
    (scratch.path / "file").touch()
    scratch.remove()
    assert not scratch.path.exists()
    scratch.remove()
