"""What is forked is a process as any other: tests of programs rely on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import forked

SLEEPS = ("timeit", "-n", "1", "-r", "1", "import time; time.sleep(60)")


def test_a_program_has_input_output_errors_and_a_status(tmp_path: Path) -> None:
    done = forked.run_program("json.tool", "--compact", given=b'{"a": 1}')
    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"a":1}\n', b"")
    large = b"[%s]" % b",".join([b"1234567"] * 100_000)  # more than pipes hold
    assert forked.run_program("json.tool", "--compact", given=large).stdout == large + b"\n"
    done = forked.run_program("json.tool", given=b"no")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"Expecting value" in done.stderr
    (tmp_path / "here").write_text("[]")
    assert forked.run_program("json.tool", "here", directory=tmp_path).stdout == b"[]\n"


def test_a_program_has_its_own_environment() -> None:
    environment = {**os.environ, "COLUMNS": "40"}
    wide, narrow = (
        forked.run_program("json.tool", "--help", environment=each).stdout
        for each in ({**environment, "COLUMNS": "400"}, environment)
    )
    assert len(narrow.splitlines()) > len(wide.splitlines())
    path = ("timeit", "-n", "1", "-r", "1", "import sys; print(sys.path)")
    for place, other in (("/elsewhere", "/nowhere"), ("/nowhere", "/elsewhere")):
        said = forked.run_program(*path, environment={**environment, "PYTHONPATH": place}).stdout.decode()
        assert place in said
        assert other not in said


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run_program(*SLEEPS, timeout=0.2)


async def test_a_process_is_signalled_and_tells_how_it_ended(tmp_path: Path) -> None:
    with (tmp_path / "said").open("wb") as output:
        ended = await forked.fork("json.tool", "nowhere", output=output.fileno())
        killed = await forked.fork(*SLEEPS, output=output.fileno())
    assert await ended.wait() != 0
    assert "nowhere" in (tmp_path / "said").read_text()
    with pytest.raises(ProcessLookupError):
        ended.kill()
    assert killed.returncode is None
    assert os.getsid(killed.pid) == killed.pid
    killed.terminate()
    assert await killed.wait() == -15
    assert killed.returncode == -15
