"""An index log whose files are objects of an S3 server of another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyarrow import fs

from indexlog.delta import delta_target, export_delta
from indexlog.index_log import IndexLog, make_index_log
from indexlog.local_store import open_store
from indexlog.paging import PageExpired
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification
from indexlog.stores import ArrowStore
from indexlog.verifying import verify
from server.dev.local_cluster import LocalCluster
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


async def test_dealing_merging_reading_and_collecting_go_on_objects(url: str) -> None:
    async with LocalCluster(nodes=3, replicate="node:2", log_tree=True) as cluster, cluster.client() as client:
        await make_index_log(client, f"{url.replace('?', '/store?')}", raw_logs=2)
        async with IndexLog(client) as log, log.writer() as writer:
            body = {"body": "x" * 1_000}

            async def write(step: int) -> None:
                sent = [
                    LogRecord(
                        f"index-{number % 3}", f"doc-{number:02}", Modification(number % 4 > 0, body, {step: 1.0})
                    )
                    for number in range(step, 60, step + 1)
                ]
                await writer.bulk(sent)
                await writer.delete("index-0", f"doc-{3 * step:02}")

            async def check() -> None:
                reports = [report async for report in verify(log)]
                assert len(reports) == 3
                assert [report for report in reports if report.trouble] == []

            for step in range(3):
                await write(step)
                await log.deal()
                await check()
                if step:
                    await log.optimize(ALL_AT_ONCE, index="index-1")
            page = await log.read_page("index-0")
            await log.optimize(ALL_AT_ONCE)
            await check()
            before = len(log.store.list())
            assert (await log.collect(grace=-1)).files == before - len(set(log.state.paths()))
            assert {path for path, _ in log.store.list()} == set(log.state.paths())
            assert len(objects(f"{url.replace('?', '/store?')}")) == 3, "and nothing besides"
            with pytest.raises(PageExpired):
                await log.read_page("index-0", page.token)
            await check()

            table = url.replace("?", "/table?")
            for _ in range(2):
                await writer.put("index-2", "late", {})
                done = await export_delta(log, table)
            target, options = delta_target(table)
            rows: list[dict[str, Any]] = (
                deltalake.DeltaTable(target, storage_options=options).to_pyarrow_table().to_pylist()
            )
            expected = {(index, docid) for index in log.state.indexes for docid in await log.documents(index)}
            assert {(row["index"], row["docid"]) for row in rows} == expected
            assert (len(rows), done.version) == (len(expected), 1)
