"""Each kind of store does the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyarrow import fs

from indexlog.local_store import LocalStore, open_store
from indexlog.stores import ArrowStore, FileStore, MemoryStore
from logdevice_py.core.status import LogDeviceError


def _arrow(directory: Path) -> ArrowStore:
    return ArrowStore(fs.LocalFileSystem(), str(directory))


@pytest.fixture(params=[lambda _: MemoryStore(), LocalStore, _arrow], ids=["memory", "local", "arrow"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    make: Callable[[Path], FileStore] = request.param
    return make(tmp_path)


def test_a_file_is_there_whole_once_it_is_written(store: FileStore) -> None:
    with store.create("1/a.parquet") as file:
        file.write(b"hello")
    with store.create("2/b") as file:
        file.write(b"")
    assert sorted(store.list()) == [("1/a.parquet", 5), ("2/b", 0)]
    with store.open("1/a.parquet") as opened:
        assert opened.read() == b"hello"
    store.delete("1/a.parquet")
    store.delete("1/a.parquet")
    assert store.list() == [("2/b", 0)]
    with pytest.raises(FileNotFoundError):
        store.open("1/a.parquet")


def test_a_file_that_is_not_finished_has_no_name(store: FileStore) -> None:
    with pytest.raises(RuntimeError), store.create("1/a") as file:  # noqa: PT012
        file.write(b"hello")
        raise RuntimeError
    assert store.list() == []


def test_a_url_names_a_store(tmp_path: Path) -> None:
    opened = open_store(f"file://{tmp_path}/a%20b")
    assert isinstance(opened, LocalStore)
    assert opened.root == tmp_path / "a b"
    for url in ("file://host/a", "file:a", "file:///a?b", "what://a", "", "/a"):
        with pytest.raises(LogDeviceError, match="INVALID_PARAM: the store"):
            open_store(url)


def test_what_a_killed_process_left_is_listed_as_its_own(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with store.create("1/a"):
        ((name, size),) = store.list()
        assert name.startswith("1/.unfinished-")
        assert size == 0
