"""Files of a database are cut down bit by bit; what still has another name is left whole."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from storage_node.log_store.rocksdb import gradual_deletion
from storage_node.log_store.rocksdb.gradual_deletion import PIECE, GradualDeletion

SIZE = 3 * PIECE + 1000


class Database:
    def __init__(self, path: Path) -> None:
        self.path = path / "db"
        self.names = path / "deleting"
        self.path.mkdir()

    def put(self, name: str, size: int = SIZE) -> Path:
        file = self.path / name
        file.write_bytes(b"x" * size)
        return file

    def deletion(self) -> GradualDeletion:
        return GradualDeletion(str(self.path), str(self.names))


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(gradual_deletion, "_LINGER", 0.2)
    return Database(tmp_path)


def until_gone(names: Path) -> None:
    deadline = time.monotonic() + 30
    while os.listdir(names):
        assert time.monotonic() < deadline, os.listdir(names)
        time.sleep(0.01)


def until_the_thread_ends() -> None:
    for thread in threading.enumerate():
        if thread.name == "log-store-deletion":
            thread.join(30)
            assert not thread.is_alive()


def test_a_file_that_is_deleted_goes_piece_by_piece_and_its_space_is_known_until_then(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    truncate = os.ftruncate

    def note(descriptor: int, size: int) -> None:
        sizes.append(size)
        truncate(descriptor, size)

    monkeypatch.setattr(os, "ftruncate", note)
    file = database.put("000012.blob")
    deletion = database.deletion()
    with deletion.instead():
        file.unlink()
        assert deletion.bytes_left >= SIZE
    until_gone(database.names)
    deletion.close()
    assert sizes == [SIZE - PIECE, SIZE - 2 * PIECE, SIZE - 3 * PIECE, 0]
    assert deletion.bytes_left == 0


def test_files_that_stay_lose_nothing_but_the_second_name(database: Database) -> None:
    kept = database.put("000013.blob")
    gone = database.put("000014.sst")
    deletion = database.deletion()
    with deletion.instead():
        gone.unlink()
        assert kept.stat().st_nlink == 2
    until_gone(database.names)
    deletion.close()
    assert kept.stat().st_nlink == 1
    assert kept.read_bytes() == b"x" * SIZE


def test_a_file_to_which_somebody_gave_a_name_of_his_own_stays_whole(database: Database, tmp_path: Path) -> None:
    file = database.put("000015.blob")
    os.link(file, tmp_path / "backup")
    deletion = database.deletion()
    with deletion.instead():
        file.unlink()
    until_gone(database.names)
    deletion.close()
    assert (tmp_path / "backup").read_bytes() == b"x" * SIZE


def test_small_files_and_those_that_are_no_tables_get_no_second_name(database: Database) -> None:
    database.put("000016.sst", 100)
    database.put("000017.log")
    deletion = database.deletion()
    with deletion.instead():
        assert os.listdir(database.names) == []
    deletion.close()


def test_what_was_left_when_a_run_ended_is_gone_on_with(database: Database) -> None:
    gone, kept = database.put("000018.blob"), database.put("000019.blob")
    deletion = database.deletion()
    deletion.close()
    with deletion.instead():  # nothing is done any more: the process is about to end
        gone.unlink()
    assert sorted(os.listdir(database.names)) == ["000018.blob", "000019.blob"]
    again = database.deletion()
    until_gone(database.names)
    again.close()
    assert kept.read_bytes() == b"x" * SIZE


def test_one_drop_after_the_other(database: Database) -> None:
    deletion = database.deletion()
    for number in range(3):
        file = database.put(f"{number:06d}.blob")
        with deletion.instead():
            file.unlink()
        until_gone(database.names)
        if number == 1:
            until_the_thread_ends()
    deletion.close()


def test_nothing_is_done_for_a_store_that_drops_nothing(database: Database) -> None:
    deletion = database.deletion()
    assert not database.names.exists()
    assert deletion.bytes_left == 0
    deletion.close()


def test_without_free_descriptors_it_goes_on_when_there_are_some(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def refuse(_: object) -> None:
        if threading.current_thread() is not threading.main_thread():
            refused.set()
        raise OSError(errno.EMFILE, "Too many open files")

    named, unnamed = database.put("000020.blob"), database.put("000021.blob")
    deletion = database.deletion()
    with deletion.instead():
        pass
    with monkeypatch.context() as none_free:
        none_free.setattr(os, "listdir", refuse)
        assert refused.wait(30), "the thread finds none"
        assert deletion.bytes_left == 0, "it cannot be told"
    with deletion.instead():
        named.unlink()
    until_the_thread_ends()
    with monkeypatch.context() as none_free:
        none_free.setattr(os, "scandir", refuse)
        with deletion.instead():
            unnamed.unlink()
    assert os.listdir(database.names) == [], "it goes at once"
    deletion.close()
