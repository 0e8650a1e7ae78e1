"""Clients without a loop of their own, in programs that end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
