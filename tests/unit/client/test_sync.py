"""Clients without a loop of their own, in programs that end."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from client import sync
from logdevice_py.core.status import LogDeviceError, Status

CLUSTER = """
name = "ends"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:1"
[defaults]
replicate = "node:1"
[nodes.N0]
host = "127.0.0.1"
port = 1
[logs."/team/clicks"]
ids = 7
"""
# finalizers of other packages come first in many programs: theirs, and ours with them, then run last
PROGRAM = """
import sys, threading, weakref
class Other: pass
other = Other()
if sys.argv[2] == "late":
    weakref.finalize(other, int)
from logdevice_py import SyncClient
client = SyncClient(sys.argv[1])
reader = client.reader(7)
if sys.argv[3] == "waiting":
    threading.Thread(target=reader.read, daemon=True).start()
print("end")
"""


@pytest.mark.parametrize("finalizers", ["early", "late"])
@pytest.mark.parametrize("thread", ["none", "waiting"])
def test_a_client_that_is_not_closed_leaves_nothing_behind_at_the_end(
    finalizers: str, thread: str, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CLUSTER)
    got = subprocess.run(
        [sys.executable, "-X", "dev", "-c", PROGRAM, file, finalizers, thread],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    told = [line for line in got.stderr.splitlines() if "SHUTDOWN" not in line and "Task" in line]
    assert (got.returncode, got.stdout, told) == (0, "end\n", []), got.stderr
    if thread == "none":
        assert got.stderr == ""


def test_what_would_wait_for_itself_in_the_thread_of_the_clients_is_refused() -> None:
    background = sync.Background()

    async def answer() -> int:
        return 1

    async def callback() -> int:
        return background.run(answer())

    with pytest.raises(LogDeviceError, match="call the client from a thread of your own") as caught:
        background.submit(callback()).result(timeout=10)
    assert caught.value.status is Status.INVALID_PARAM
    assert background.run(answer()) == 1, "the thread goes on"


class ForgottenWriter:
    """A writer, or a client, that is closed; with an error, or never."""

    def __init__(self, error: LogDeviceError | None = None, *, hangs: bool = False) -> None:
        self.closed = False
        self._error = error
        self._hangs = hangs

    async def close(self) -> None:
        if self._hangs:
            await asyncio.get_running_loop().create_future()
        if self._error is not None:
            raise self._error
        self.closed = True


@pytest.mark.parametrize("hangs", [False, True])
async def test_records_of_a_forgotten_client_do_not_depend_on_another_of_its_writers(
    hangs: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sync, "LAST_FLUSH", 0.01)
    first = ForgottenWriter(LogDeviceError(Status.CONFLICT, "1 record was not acknowledged"), hangs=hangs)
    second, client = ForgottenWriter(), ForgottenWriter()
    writers: list[Any] = [first, second]
    forgotten: Any = client
    with caplog.at_level(logging.WARNING):
        await sync.flush_and_close(forgotten, writers)
    assert second.closed
    assert client.closed
    (told,) = caplog.messages
    assert ("it took more than 0.01 s" if hangs else "1 record was not acknowledged") in told
