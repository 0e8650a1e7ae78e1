"""An index log whose dealing and merging are done by Spark's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from runpy import run_path

import pytest
from pyspark.sql import SparkSession

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification
from indexlog.spark.jobs import OnSpark
from indexlog.verifying import verify
from tests.integration.debian import packages
from tests.spark.conftest import ROOT, RunningCluster


@pytest.fixture(scope="module")
def tree_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("tree")
    running = RunningCluster(directory, nodes=3, logs=1, replicate="node:2", racks=1, log_tree=True)
    yield running
    running.stop()


async def _check(log: IndexLog) -> int:
    reports = [report async for report in verify(log)]
    assert [report for report in reports if report.trouble] == []
    return len(reports)


def test_what_sparks_tasks_deal_and_merge_is_what_was_written(
    spark: SparkSession, tree_cluster: RunningCluster, tmp_path: Path
) -> None:
    on_spark = OnSpark(spark, tree_cluster.file)
    written = {section for section, _, _ in packages()} | {"gone"}

    async def work(client: Client) -> None:
        await make_index_log(client, f"file://{tmp_path}/store", raw_logs=2)
        async with IndexLog(client) as log, log.writer() as writer:
            for step in range(2):
                sent = []
                for number, (section, name, fields) in enumerate(packages()):
                    deleted = number % 7 == step
                    change = Modification(deleted, None if deleted else fields, {} if deleted else {step: 1.0})
                    sent.append(await writer.append(LogRecord(section, name, change)))
                    if number % 40 == 39:  # entries of their own: a raw log is cut between two of them
                        await asyncio.gather(*sent)
                        sent.clear()
                await asyncio.gather(*sent)
                await writer.delete("gone", f"doc-{step}")
                dealt = await on_spark.deal(log, bytes_max=8_000)
                assert dealt.records == len(packages()) + 1
                # of each raw log; whether it is cut as well depends on what shards say of its size, which is nothing at first
                assert dealt.containers >= len(log.state.generations[0].logs)
            assert await _check(log) == len(written)
            assert await on_spark.deal(log) == type(dealt)()
            merged = await on_spark.optimize(log, ALL_AT_ONCE)
            assert merged.sorted >= len(log.state.indexes)
            assert "gone" not in log.state.indexes
            assert all(len(parts) == 1 for parts in log.state.indexes.values())
            assert await _check(log) == len(written)
            assert log.state.jobs == {}
            await log.collect(grace=-1)
            assert {path for path, _ in log.store.list()} == set(log.state.paths())

    tree_cluster.do(work, timeout=500)


def test_documents_are_rows_as_of_one_moment(spark: SparkSession, tree_cluster: RunningCluster, tmp_path: Path) -> None:
    path = "/frames"

    async def write(client: Client) -> dict[str, dict[str, Modification]]:
        """An index of several pages, one that is not dealt, and one of few documents."""
        await make_index_log(client, f"file://{tmp_path}/store", path=path, raw_logs=2)
        async with IndexLog(client, path) as log, log.writer() as writer:
            rng = Random(1)
            for number in range(150):
                body = rng.randbytes(50_000).hex()  # sizes are those of what is stored, compressed
                change = Modification(True, {"body": body, "n": str(number)}, {1: number / 2})
                await writer.append(LogRecord("books", f"doc-{number:03}", change))
            await writer.put("songs", "s", {"n": "1"}, categories={"kind": "ü"})
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await writer.delete("books", "doc-007")
            await writer.patch("books", "doc-008", variables={2: 8.0})
            await writer.put("films", "f", {})
            return {index: await log.documents(index) for index in ("books", "films", "songs")}

    async def rewrite(client: Client) -> None:
        async with IndexLog(client, path) as log, log.writer() as writer:
            await writer.put("books", "new", {})
            await writer.delete("songs", "s")
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await log.collect()

    async def collect(client: Client) -> None:
        async with IndexLog(client, path) as log:
            await log.collect(grace=-1)

    expected = tree_cluster.do(write)
    reader = spark.read.format("indexlog").option("cluster", tree_cluster.file)
    frame = reader.option("maxBytesPerPartition", "2MiB").load(path)
    assert frame.rdd.getNumPartitions() >= 3, "a hot index is several tasks"
    tree_cluster.do(rewrite)
    found: dict[str, dict[str, Modification]] = {index: {} for index in expected}
    rows = frame.collect()
    assert rows
    for row in rows:
        written = round(row.timestamp.timestamp() * 1000)
        change = Modification(False, row.fields, row.variables, row.categories, written)
        assert row.docid not in found[row["index"]]
        found[row["index"]][row.docid] = change
    assert found == expected
    few = reader.schema("docid STRING, variables MAP<INT, DOUBLE>").option("indexes", "book*").load(path)
    assert few.where("variables[2] = 8").select("docid").collect() == [("doc-008",)]
    assert few.count() == 150, "without one that was deleted, with one that is new"
    tree_cluster.do(collect)
    with pytest.raises(Exception, match=r"files of state \d+ are not kept any more"):
        frame.collect()


@pytest.mark.slow
def test_the_example_of_analytics_sees_all_documents_of_all_indexes(
    spark: SparkSession, tree_cluster: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether they are optimized, dealt or only written."""
    records = {
        (f"index-{number % 3}", f"doc-{number}"): Modification(
            True, {"by": f"author {number % 2}", "text": f"Word-{number % 5} common, COMMON"}, {0: float(number)}
        )
        for number in range(30)
    }

    async def write(client: Client) -> None:
        await make_index_log(client, f"file://{tmp_path}/store", path="/analysed", raw_logs=2)
        async with IndexLog(client, "/analysed") as log, log.writer() as writer:
            sent = [LogRecord(index, docid, change) for (index, docid), change in records.items()]
            await writer.bulk(sent[:10])
            await writer.put("index-0", "gone", {"by": "nobody"})
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await writer.bulk(sent[10:20])
            await log.deal()
            await writer.bulk(sent[20:])
            await writer.delete("index-0", "gone")

    tree_cluster.do(write)
    main = run_path(str(Path(ROOT) / "examples" / "index_analytics.py"))["main"]
    arguments = [tree_cluster.file, "--path", "/analysed", "--field", "by", "--words", "text"]
    assert main([*arguments, "--parquet", str(tmp_path / "documents")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "30 documents of 3 indexes"
    sums = [sum(range(first, 30, 3)) for first in range(3)]
    assert [line.partition(", newest")[0].split() for line in printed[1:4]] == [
        ["10", f"index-{number},", f"{total}"] for number, total in enumerate(sums)
    ]
    assert [line.split(maxsplit=2) for line in printed[4:6]] == [
        ["3", "indexes,", f"15 documents: author {number}"] for number in range(2)
    ]
    assert [line.split()[-1] for line in printed[6:8]] == ["common", "word"]
    assert printed[6].split()[:3] == ["3", "indexes,", "30"]
    assert spark.read.parquet(str(tmp_path / "documents")).where("index = 'index-1'").count() == 10
