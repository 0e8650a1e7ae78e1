"""A file is replaced as a whole, durably, and nothing else stays behind."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from logdevice_py.runtime.durable_file import remove_written, write_durably


class Crash(BaseException):
    """The process ends here: nothing is tidied up."""


@pytest.fixture
def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Ends a write before the file is renamed."""

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "no process does it")

    def write(alone: bool) -> None:
        with monkeypatch.context() as patch:

            def ends(*_: object) -> None:
                patch.setattr(os, "unlink", fails)
                raise Crash

            patch.setattr(os, "replace", ends)
            with pytest.raises(Crash):
                write_durably(tmp_path / "instance", "unfinished", alone=alone)

    return write


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_crashes_left_of_a_file_with_one_writer_goes_with_the_next_write(
    tmp_path: Path, crash: Callable[[bool], None]
) -> None:
    (tmp_path / ".instance-original").write_text("somebody's own")
    write_durably(tmp_path / "instance", "1", alone=True)
    for _ in range(3):
        crash(True)
    assert len(names(tmp_path)) == 3
    assert (tmp_path / "instance").read_text() == "1"
    write_durably(tmp_path / "instance", "2", alone=True)
    assert names(tmp_path) == [".instance-original", "instance"]
    assert (tmp_path / "instance").read_text() == "2"


def test_what_others_may_be_writing_is_left_alone(tmp_path: Path, crash: Callable[[bool], None]) -> None:
    crash(False)
    [unfinished] = names(tmp_path)
    write_durably(tmp_path / "instance", "1")
    write_durably(tmp_path / "instance", "2", alone=True)
    assert names(tmp_path) == sorted([unfinished, "instance"])


def test_what_a_crash_left_goes_with_the_file(tmp_path: Path, crash: Callable[[bool], None]) -> None:
    (tmp_path / "instance2").write_text("another")
    write_durably(tmp_path / "instance", "1", alone=True)
    crash(True)
    remove_written(tmp_path / "instance")
    assert names(tmp_path) == ["instance2"]
    remove_written(tmp_path / "instance")


@pytest.mark.parametrize("alone", [False, True])
def test_a_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    write_durably(tmp_path / "instance", "1", alone=alone)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(tmp_path / "instance", "2", alone=alone)
    assert names(tmp_path) == ["instance"]
    assert (tmp_path / "instance").read_text() == "1"


@pytest.mark.parametrize("alone", [False, True])
def test_the_file_is_synced_before_it_is_renamed_and_its_directory_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    done = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        done.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")

    def renamed(source: str, target: Path) -> None:
        replace(source, target)
        done.append("renamed")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_durably(tmp_path / "instance", "1", alone=alone)
    assert done == ["file", "renamed", "directory"]


@pytest.mark.parametrize("alone", [False, True])
def test_who_could_read_it_can_go_on_reading_it(tmp_path: Path, alone: bool) -> None:
    path = tmp_path / "instance"
    write_durably(path, "1", alone=alone)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    write_durably(path, "2", alone=alone)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
