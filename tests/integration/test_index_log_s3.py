"""An index log whose files are objects of an S3 server of another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyarrow import fs

from benchmarks.index_log import MemoryIndexLog
from indexlog.delta import delta_target, export_steps
from indexlog.jobs import collect_job, merge_job
from indexlog.local_store import open_store
from indexlog.paging import IndexPage, PageExpired, read_page
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification, fold
from indexlog.spark.options import IndexOptions
from indexlog.stores import ArrowStore
from tests.integration.test_cold_copies import s3_server, s3_url

_ = s3_server


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a folder of its own in a bucket."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    return s3_url(request, monkeypatch, tmp_path.name)


def objects(url: str) -> list[str]:
    """All objects below a folder, whatever they are for."""
    system, root = fs.FileSystem.from_uri(url)
    return [each.path.removeprefix(f"{root}/") for each in system.get_file_info(fs.FileSelector(root, recursive=True))]


def test_objects_are_files_of_a_store(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, ArrowStore)
    assert store.list() == []
    with store.create("1/a-1.parquet") as file:
        file.write(b"hello")
    with pytest.raises(RuntimeError), store.create("1/b") as file:  # noqa: PT012
        file.write(b"hello")
        raise RuntimeError
    assert store.list() == [("1/a-1.parquet", 5)]
    with store.open("1/a-1.parquet") as opened:
        assert opened.read() == b"hello"
    store.delete("1/a-1.parquet")
    store.delete("1/a-1.parquet")
    assert (store.list(), objects(url)) == ([], [])
    with pytest.raises(FileNotFoundError):
        store.open("1/a-1.parquet")


def test_dealing_merging_reading_and_collecting_go_on_objects(url: str) -> None:
    """All jobs and readers, on raw logs that are lists."""
    log = MemoryIndexLog(open_store(url.replace("?", "/store?")), 2)
    written: dict[str, dict[str, list[Modification]]] = {}

    def write(*records: LogRecord) -> None:
        log.write(records)
        for each in records:
            written.setdefault(each.index, {}).setdefault(each.docid, []).append(each.change)

    def page(index: str, token: str | None = None) -> IndexPage:
        return log.run(read_page(lambda: log.state, log.store, index, token))

    def documents(index: str) -> dict[str, Modification]:
        found: dict[str, list[Modification]] = {}
        now = page(index)
        while True:
            for docid, change in now.rows():
                found.setdefault(docid, []).append(change)
            if now.next_token is None:
                return {docid: left for docid, changes in found.items() if (left := fold(changes)) is not None}
            now = page(index, now.next_token)

    def check() -> None:
        assert len(written) == 3
        for index, of_index in written.items():
            assert documents(index) == {docid: left for docid, all_ in of_index.items() if (left := fold(all_))}

    for step in range(3):
        for number in range(step, 60, step + 1):
            change = Modification(number % 4 > 0, {"n": f"{number}"}, {step: 1.0})
            write(LogRecord(f"index-{number % 3}", f"doc-{number:02}", change))
        write(LogRecord("index-0", f"doc-{3 * step:02}", Modification(True)))
        log.deal()
        check()
        if step:
            log.run(merge_job(lambda: log.state, log.store, ALL_AT_ONCE, index="index-1"))
    before = page("index-0")
    log.optimize(ALL_AT_ONCE)
    check()
    garbage = len(log.store.list()) - 3
    assert garbage >= 3
    assert log.run(collect_job(lambda: log.state, log.store, 1)).files == garbage
    assert {path for path, _ in log.store.list()} == set(log.state.paths())
    assert len(objects(url.replace("?", "/store?"))) == 3, "and nothing besides"
    with pytest.raises(PageExpired):
        page("index-0", before.token)
    check()

    table = url.replace("?", "/table?")
    options = IndexOptions("", "/indexlog", (), True, 1 << 20, 1 << 20)
    for version in range(2):
        write(LogRecord("index-2", f"late-{version}", Modification(True, {})))
        done = log.run(export_steps(lambda: log.state, log.store, options, table))
        assert done.version == version
    target, storage = delta_target(table)
    rows: list[dict[str, Any]] = deltalake.DeltaTable(target, storage_options=storage).to_pyarrow_table().to_pylist()
    expected = {(index, docid) for index in written for docid in documents(index)}
    assert {(row["index"], row["docid"]) for row in rows} == expected
    assert len(rows) == len(expected) == done.documents
