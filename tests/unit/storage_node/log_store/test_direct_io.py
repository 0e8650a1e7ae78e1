"""Files are written past the page cache where the file system can, and as usual where it cannot."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage_node.log_store.rocksdb.direct_io import takes_direct_io
from storage_node.log_store.rocksdb.families import Families
from storage_node.log_store.settings import LogStoreSettings

_WITH = "Options.use_direct_io_for_flush_and_compaction: 1"
_WITHOUT = "Options.use_direct_io_for_flush_and_compaction: 0"


def _refusing_direct_io() -> Callable[..., int]:
    """`os.open` of a file system that makes the file before it refuses the flag, as Linux has it."""
    usual = os.open

    def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        descriptor = usual(path, flags & ~os.O_DIRECT, *rest, **named)
        if flags & os.O_DIRECT:
            os.close(descriptor)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return descriptor

    return opened


def _log_of(path: Path, settings: LogStoreSettings) -> str:
    Families(str(path), settings).close(flush=False)
    return (path / "LOG").read_text()


def test_a_file_system_that_refuses_is_noticed_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", _refusing_direct_io())
    assert not takes_direct_io(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_directory_in_which_nothing_can_be_created_takes_none() -> None:
    assert not takes_direct_io("/proc")


def test_a_database_goes_past_the_page_cache_where_the_file_system_can(tmp_path: Path) -> None:
    expected = _WITH if takes_direct_io(str(tmp_path)) else _WITHOUT
    assert expected in _log_of(tmp_path, LogStoreSettings())


def test_a_database_opens_on_a_file_system_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", _refusing_direct_io())
    assert _WITHOUT in _log_of(tmp_path, LogStoreSettings())


def test_the_setting_turns_it_off(tmp_path: Path) -> None:
    assert _WITHOUT in _log_of(tmp_path, LogStoreSettings(direct_io=False))
