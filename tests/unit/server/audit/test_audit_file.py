"""The file of the audit log: what is on disk when, what a crash or a full disk leaves, and how it is kept small."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from logdevice_py.core.status import LogDeviceError, Status
from server.audit.audit_file import AuditFile
from server.audit.audit_log import WriteAuditLine


class WrittenLog:
    """An audit log, and what was told of it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.told: list[tuple[list[int], bool]] = []
        self.failures: list[tuple[int, str]] = []
        self.path = path
        options = {"bytes_max": 1 << 20, "files_max": 3, **options}
        self.file = AuditFile(
            path,
            on_written=lambda tokens, ok: self.told.append((tokens, ok)),
            on_failure=lambda lines, why: self.failures.append((lines, why)),
            **options,
        )

    async def write(self, *lines: str, token: int = 0) -> None:
        self.file.run([WriteAuditLine(token, line) for line in lines])
        while self.file._writing is not None:
            await asyncio.wait([self.file._writing])


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


async def test_lines_are_added_in_order_and_are_for_the_owner_alone(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "N0.jsonl")
    await log.write("1", "2")
    await log.write("3", token=7)
    await log.file.close()
    again = WrittenLog(tmp_path / "N0.jsonl")
    await again.write("4")
    assert lines_of(log.path) == ["1", "2", "3", "4"]
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert log.told == [([7], True)]
    await again.file.close()


async def test_who_waits_is_told_after_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, order = WrittenLog(tmp_path / "a"), list[str]()
    sync = os.fsync

    def syncing(descriptor: int) -> None:
        order.append("sync")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    log.file._on_written = lambda tokens, ok: order.append("told")
    await log.write("nobody waits")
    assert order == []
    await log.write("somebody waits", token=1)
    assert order == ["sync", "told"]
    await log.file.close()


async def test_a_part_of_a_line_that_a_crash_left_stays_alone(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text('{"who": "o')
    log = WrittenLog(path)
    await log.write("next")
    assert lines_of(path) == ['{"who": "o', "next"]
    await log.file.close()


async def test_a_file_that_is_full_gets_a_number_and_old_ones_go(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "a", bytes_max=20)
    for number in range(10):
        await log.write(f"line {number:04}")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "a.1", "a.2"]
    kept = [*lines_of(tmp_path / "a.2"), *lines_of(tmp_path / "a.1"), *lines_of(tmp_path / "a")]
    assert kept == [f"line {number:04}" for number in range(4, 10)]
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    await log.file.close()


async def test_one_file_alone_is_begun_anew(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "a", bytes_max=5, files_max=1)
    for line in ("first", "second"):
        await log.write(line)
    assert lines_of(log.path) == ["second"]
    assert list(tmp_path.iterdir()) == [log.path]
    await log.file.close()


def full(*arguments: Any) -> int:
    raise OSError(28, "No space left on device")


async def test_what_is_perhaps_not_on_disk_is_told_and_nothing_is_added_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = WrittenLog(tmp_path / "a")
    await log.write("before")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        await log.write("lost", token=1)
    assert log.told == [([1], False)]
    assert log.failures == [(1, f"{log.path}: No space left on device")]
    await log.write("after", token=2)
    assert log.told[-1] == ([2], True)
    assert lines_of(log.path) == ["after"]
    assert lines_of(tmp_path / "a.1") == ["before", "lost"]
    await log.file.close()


async def test_what_is_written_in_part_is_told_and_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = WrittenLog(tmp_path / "a")
    await log.write("before")
    write = os.write
    with monkeypatch.context() as patch:
        written = iter((lambda descriptor, data: write(descriptor, data[:3]), full))
        patch.setattr(os, "write", lambda descriptor, data: next(written)(descriptor, data))
        await log.write("lost", token=1)
    assert log.told == [([1], False)]
    assert log.failures == [(1, f"{log.path}: No space left on device")]
    await log.write("after", token=2)
    assert log.told[-1] == ([2], True)
    assert lines_of(log.path) == ["before", "after"]
    assert list(tmp_path.iterdir()) == [log.path]
    await log.file.close()


@pytest.mark.parametrize("calls", [["write"], ["fsync"], ["open"], ["write", "ftruncate"]], ids="+".join)
@pytest.mark.parametrize("bytes_max", [1 << 20, 4])
async def test_a_disk_that_stays_full_takes_no_lines_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str], bytes_max: int
) -> None:
    log = WrittenLog(tmp_path / "a", bytes_max=bytes_max)
    await log.write("before")
    with monkeypatch.context() as patch:
        for call in calls:
            patch.setattr(os, call, full)
        if calls == ["open"]:
            await log.file.close()
        for token in range(1, 11):
            await log.write("lost", token=token)
    assert [ok for _, ok in log.told] == [False] * 10
    await log.write("after", token=20)
    assert log.told[-1] == ([20], True)
    lines = [line for path in tmp_path.iterdir() for line in lines_of(path)]
    assert "before" in lines
    assert "after" in lines_of(log.path)
    await log.file.close()


async def test_a_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(LogDeviceError, match="audit_file") as caught:
        WrittenLog(tmp_path / "a")
    assert caught.value.status is Status.INVALID_CONFIG


async def test_while_the_disk_does_not_keep_up_lines_are_left_out_for_which_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.audit.audit_file._WAITING_MAX", 2)
    log = WrittenLog(tmp_path / "a")
    log.file.run([WriteAuditLine(0, "1"), WriteAuditLine(0, "2"), WriteAuditLine(0, "3"), WriteAuditLine(5, "4")])
    await log.write()
    assert lines_of(log.path) == ["1", "2", "4"]
    assert log.failures == [(1, "the disk does not keep up")]
    assert log.told == [([5], True)]
    await log.file.close()
