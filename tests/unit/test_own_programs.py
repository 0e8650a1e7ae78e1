"""Our processes are started from our files, whatever lies in the working directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from logdevice_py.programs import own_program

ROOT = Path(__file__).parents[2]
MODULE_STARTED = re.compile(r'^.*"-m".*$', re.MULTILINE)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which somebody left modules of the names of ours and of Python's."""
    for name in (
        "client",
        "ldquery",
        "logdevice_py",
        "server",
        "storage_node",
        "benchmarks",
        "logging",
        "ctypes",
        "typing",
    ):
        (tmp_path / f"{name}.py").write_text(f"print('{name} ran'); raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_program_of_ours_runs_no_file_of_the_working_directory(hostile: Path) -> None:
    for pythonpath in ("", str(hostile)):
        if pythonpath:
            for name in ("logging", "ctypes", "typing"):  # who puts these in the path wants them
                (hostile / f"{name}.py").unlink()
        command = own_program("server.die_with_parent", os.getpid(), sys.executable, "-P", "-c", "print('became it')")
        environment = {**os.environ, "PYTHONPATH": pythonpath}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "became it\n"), done.stderr


@pytest.mark.parametrize(
    "package", ["logdevice_py", "client", "epoch_store", "sequencer", "storage_node", "ldquery", "server", "benchmarks"]
)
def test_no_process_is_started_from_the_working_directory(package: str) -> None:
    texts = {path: path.read_text() for path in (ROOT / package).rglob("*.py")}
    assert texts
    unsafe = [
        f"{path}: {match[0].strip()}: use own_program"
        for path, text in texts.items()
        for match in MODULE_STARTED.finditer(text)
        if not any(safe in text[max(0, match.start() - 80) : match.end()] for safe in ('"-P"', '"-I"'))
    ]
    assert unsafe == []
