"""Streams as DataFrames: the records that the stream's own readers deliver, with their transaction ids, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import cold_copies, cold_stream
from client.client import Client
from client.guards import Position
from logdevice_py.spark import LogDeviceSource
from streams.namespace import Namespace
from streams.records import TxId
from streams.upkeep.janitor import copy_now
from tests.spark.conftest import RunningCluster

PATH = "/streams/team/orders"


@pytest.fixture(scope="module")
def tree_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """With a namespace, in which ``team/orders`` has records of transaction ids 10, 20, 20, ... in entries of three, two of them truncated."""
    directory = tmp_path_factory.mktemp("tree")
    settings = {"log_tree": {"enabled": True}}
    running = RunningCluster(directory, nodes=3, logs=1, replicate="node:2", racks=1, settings=settings)

    async def fill(client: Client) -> None:
        async with Namespace(client, "/streams") as namespace:
            orders = await namespace.create("team/orders", txid="writer")
            async with orders.writer() as writer:
                for number in range(10, 500, 30):
                    txids = [number, number + 10, number + 10]
                    receipts = await writer.write_many([b"%d" % each for each in txids], txids=txids)
            assert len({receipt.position.lsn for receipt in receipts}) == 1, "they share an entry"
            second = [record async for record in orders.reader(until="tail")][2]
            await orders.truncate(second.position)
            by_time = await namespace.create("by-time")
            async with by_time.writer() as writer:
                for number in range(5):
                    await writer.write(b"%d" % number)
            await namespace.create("empty")

    running.do(fill)
    yield running
    running.stop()


def load(spark: SparkSession, cluster: RunningCluster, path: str = PATH, **options: Any) -> DataFrame:
    return spark.read.format("logdevice").options(cluster=cluster.file, **options).load(f"stream:{path}")


def rows(frame: DataFrame) -> list[tuple[int, int, int | None, bytes]]:
    chosen = frame.select("lsn", "batch_offset", "txid", "payload").orderBy("lsn", "batch_offset")
    return [(row.lsn, row.batch_offset, row.txid, bytes(row.payload)) for row in chosen.collect()]


def delivered(
    cluster: RunningCluster, name: str, start: Position | TxId | None = None
) -> list[tuple[int, int, int | None, bytes | None]]:
    """What a reader of the stream gives."""

    async def work(client: Client) -> Any:
        async with Namespace(client, "/streams") as namespace:
            stream = await namespace.open(name)
            async with stream.reader(start or stream.oldest, until="tail") as reader:
                return [(*record.position, record.txid, record.payload) async for record in reader]

    found: list[tuple[int, int, int | None, bytes | None]] = cluster.do(work)
    return found


def test_a_stream_is_what_its_readers_deliver(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    frame = load(spark, tree_cluster)
    assert frame.columns[-1] == "txid"
    found = rows(frame)
    assert found == delivered(tree_cluster, "team/orders")
    assert [txid for _, _, txid, _ in found[:3]] == [20, 40, 50], (
        "what is truncated, within an entry too, is passed over"
    )
    assert {row.log_group for row in frame.select("log_group").distinct().collect()} == {PATH}


def test_however_it_is_cut_each_record_is_there_once(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    frame = load(spark, tree_cluster, minPartitions=5)
    assert frame.rdd.getNumPartitions() > 1
    assert rows(frame) == delivered(tree_cluster, "team/orders")


@pytest.mark.parametrize(("first", "last"), [(80, 170), (75, 175), (1, 20), (481, 9999), (9999, 99999), (171, 189)])
def test_transaction_ids_bound_what_is_read(
    spark: SparkSession, tree_cluster: RunningCluster, first: int, last: int
) -> None:
    found = rows(load(spark, tree_cluster, startingTxid=first, endingTxid=last))
    every = delivered(tree_cluster, "team/orders")
    assert found == [row for row in every if row[2] is not None and first <= row[2] <= last]


def test_one_bound_may_be_a_position(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    every = delivered(tree_cluster, "team/orders")
    middle = every[20][0]
    found = rows(load(spark, tree_cluster, startingLsn=middle, endingTxid=2**63 - 1))
    assert found == [row for row in every if row[0] >= middle]


def test_times_are_transaction_ids_where_nobody_gives_them(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    every = delivered(tree_cluster, "by-time")
    assert rows(load(spark, tree_cluster, "/streams/by-time")) == every
    second = every[1][2]
    assert second is not None
    found = rows(load(spark, tree_cluster, "/streams/by-time", startingTxid=second))
    assert found == delivered(tree_cluster, "by-time", TxId(second)), "as a reader that begins there"
    assert found == every[1:]


def test_columns_are_chosen_and_gaps_are_rows(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    frame = load(spark, tree_cluster, columns="txid,payload,record_type", includeGaps="true", payloadFormat="utf8")
    assert frame.columns == ["txid", "payload", "record_type"]
    found = [(row.txid, row.payload) for row in frame.where("record_type = 'RECORD'").collect()]
    assert sorted(found) == sorted((row[2], (row[3] or b"").decode()) for row in delivered(tree_cluster, "team/orders"))


def test_an_empty_stream_has_no_rows(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    assert rows(load(spark, tree_cluster, "/streams/empty")) == []
    assert rows(load(spark, tree_cluster, "/streams/empty", startingTxid=7)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/streams/nobody", "there is no stream nobody in /streams"),
        ("/nowhere/orders", "there is no stream /nowhere/orders: no part of the path is a namespace"),
    ],
)
def test_a_stream_that_does_not_exist_is_told(
    spark: SparkSession, tree_cluster: RunningCluster, path: str, text: str
) -> None:
    with pytest.raises(Exception, match=text):
        load(spark, tree_cluster, path).collect()


def test_a_streaming_query_has_each_record_in_one_micro_batch(
    spark: SparkSession, tree_cluster: RunningCluster, tmp_path: Path
) -> None:
    sizes: list[int] = []
    taken: list[tuple[int, int, int | None, bytes]] = []

    def take(frame: DataFrame, number: int) -> None:
        found = rows(frame)
        sizes.append(len(found))
        taken.extend(found)

    def run(**options: Any) -> None:
        source = spark.readStream.format("logdevice").options(cluster=tree_cluster.file, **options)
        sink = source.load("stream:/streams/followed").writeStream.foreachBatch(take)
        query = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    async def write(client: Client, first: int, count: int) -> None:
        async with Namespace(client, "/streams") as namespace:
            if first == 1:
                await namespace.create("followed", txid="writer")
            stream = await namespace.open("followed")
            async with stream.writer() as writer:
                for number in range(first, first + count, 3):
                    txids = [number, number + 1, number + 2]
                    await writer.write_many([b"%d" % each for each in txids], txids=txids)

    tree_cluster.do(lambda client: write(client, 1, 30))
    run(startingTxid=2, maxRecordsPerTrigger=10)
    assert len(sizes) >= 3
    assert max(sizes) <= 10
    tree_cluster.do(lambda client: write(client, 31, 15))
    run(startingTxid=2)
    expected = delivered(tree_cluster, "followed", TxId(2))
    assert len(expected) == 44
    assert taken == expected, "it begins within an entry"
    run(startingTxid=2)
    assert len(taken) == 44


def test_a_stream_is_not_written(spark: SparkSession, tree_cluster: RunningCluster) -> None:
    options = {"cluster": tree_cluster.file, "path": f"stream:{PATH}"}
    source = LogDeviceSource(options)
    with pytest.raises(Exception, match="a stream cannot be written from Spark"):
        source.writer(source.schema(), overwrite=False)
    with pytest.raises(Exception, match="endingTxid is not for streaming queries"):
        LogDeviceSource({**options, "endingTxid": "5"}).streamReader(source.schema())


def test_a_cold_stream_has_one_proof_for_its_writer_its_readers_and_spark(
    spark: SparkSession, tree_cluster: RunningCluster, tmp_path: Path
) -> None:
    async def write_and_copy(client: Client) -> list[cold_stream.RecordProof]:
        payloads = cold_copies.make_payloads(1000, 500, "random", 1)
        async with Namespace(client, "/streams") as namespace:
            stream, written = await cold_stream.write_stream(
                namespace, "cold", f"file://{tmp_path}", payloads, times=6, segment_bytes=1 << 20
            )
            await copy_now(namespace, stream.number)
            await cold_stream.trim_copied(namespace, stream)
            return [written, await cold_stream.read_by_client(stream, 700)]

    written, read = tree_cluster.do(write_and_copy)
    assert (written.records, written.payload_bytes) == (3000, 3_000_000)
    frame = cold_stream.load_stream(spark, tree_cluster.file, "/streams/cold")
    assert written == read == cold_stream.read_by_spark(frame)

    payload, last = F.col("payload"), F.max("lsn")
    (chosen,) = frame.select(last).collect()[0]
    wrong = F.concat(F.lit(b"?"), F.substring(payload, 2, 10_000))
    is_wrong = (F.col("lsn") == chosen) & (F.col("batch_offset") == 0)
    damaged = cold_stream.read_by_spark(frame.withColumn("payload", F.when(is_wrong, wrong).otherwise(payload)))
    assert (damaged.records, damaged.payload_bytes) == (written.records, written.payload_bytes)
    assert damaged != written, "one byte differs of what Spark gives to whoever asks"

    cold_stream.change_a_byte(tmp_path)
    with pytest.raises(Exception, match="does not have the hash of its name"):
        cold_stream.read_by_spark(frame)
