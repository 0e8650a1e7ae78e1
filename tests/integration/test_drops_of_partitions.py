"""Dropping partitions of a real database: quickly, durably, and whatever a crash leaves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from storage_node.log_store.rocksdb import families as families_module
from storage_node.log_store.rocksdb.families import Families
from storage_node.log_store.rocksdb.options_hurdles import OptionsHurdles
from storage_node.log_store.settings import LogStoreSettings

FIRST = 1_000_000


def filled(path: Path, count: int) -> Families:
    families = Families(str(path), LogStoreSettings())
    for number in range(FIRST, FIRST + count):
        families.create(number)
        families.reader(number).put(b"key", b"value" * 1000)
        families.reader(number).flush()
    return families


def options_files(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.name.startswith("OPTIONS"))


def wait_for_files(path: Path, count: int) -> None:
    """Those of dropped families are deleted in the background."""
    end = time.monotonic() + 60
    while (left := len(list(path.glob("*.sst")))) > count:
        assert time.monotonic() < end, f"{left} files are left"
        time.sleep(0.01)
    assert left == count


def test_no_options_are_written_for_a_drop_and_nothing_is_left_behind(tmp_path: Path) -> None:
    families = filled(tmp_path, 20)
    before = options_files(tmp_path)
    for number in range(FIRST, FIRST + 15):
        families.drop(number)
    assert options_files(tmp_path) == before
    wait_for_files(tmp_path, 5)
    families.create(FIRST + 20)
    assert options_files(tmp_path) != before, "what makes a family writes them as ever"
    families.close(flush=True)
    again = Families(str(tmp_path), LogStoreSettings())
    assert again.partitions() == list(range(FIRST + 15, FIRST + 21))
    assert again.reader(FIRST + 16).get(b"key") == b"value" * 1000
    again.close(flush=True)


def test_hurdles_that_a_crash_left_are_removed_before_the_database_is_opened(tmp_path: Path) -> None:
    families = filled(tmp_path, 2)
    families.close(flush=True)
    hurdles = OptionsHurdles(str(tmp_path))
    standing = hurdles.set_up()
    standing.__enter__()
    assert any(name.endswith(".dbtmp") for name in options_files(tmp_path))
    again = Families(str(tmp_path), LogStoreSettings())
    assert not any(name.endswith(".dbtmp") for name in options_files(tmp_path))
    again.drop(FIRST)
    again.close(flush=True)


def test_hurdles_need_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = filled(tmp_path, 3)
    before = options_files(tmp_path)

    def refuse(*args: object, **options: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr(os, "link", refuse)
    families.drop(FIRST)
    assert options_files(tmp_path) == before
    families.close(flush=True)


def test_another_error_of_a_drop_is_not_swallowed(tmp_path: Path) -> None:
    families = filled(tmp_path, 1)

    class Refusing:
        def drop_column_family(self, name: str) -> None:
            raise families_module.RocksDBError("IO error: the disk is gone")

    database, families.database = families.database, Refusing()
    with pytest.raises(families_module.RocksDBError, match="the disk is gone"):
        families.drop(FIRST)
    families.database = database
    families.close(flush=True)
