"""What breaks while a task reads changes nothing of what it gives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from client.client import Client
from tests.spark import great_read
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import load, write

RECORDS = 80_000
TIMEOUT = 60.0


def test_the_sequencers_node_dies_in_the_middle_of_a_task(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    payloads = [number.to_bytes(8, "big") * 125 for number in range(RECORDS)]  # several times what a reader buffers
    written = write(cluster, 24, payloads, at_once=2000)
    begun, killed = tmp_path / "begun", tmp_path / "killed"

    def wait_for_the_kill(batches: Iterator[Any]) -> Iterator[Any]:
        first = next(batches)
        begun.touch()
        deadline = time.monotonic() + TIMEOUT
        while not killed.exists():
            assert time.monotonic() < deadline, "nobody was killed"
            time.sleep(0.01)
        for batch in (first, *batches):
            payload = batch["payload"]
            columns = [batch["lsn"], batch["batch_offset"], pc.binary_slice(payload, 0, 8), pc.binary_length(payload)]
            yield pa.RecordBatch.from_arrays(columns, names=["lsn", "batch_offset", "number", "size"])

    frame = load(spark, cluster, "24", maxBytesPerPartition="1GiB")
    assert frame.rdd.getNumPartitions() == 1
    slow = frame.mapInArrow(wait_for_the_kill, "lsn long, batch_offset int, number binary, size int")

    async def node_of(client: Client) -> int:
        return int((await client.sequencer(24)).node)

    node = cluster.do(node_of)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(slow.collect)
        deadline = time.monotonic() + TIMEOUT
        while not begun.exists():
            assert time.monotonic() < deadline, "the task did not begin"
            assert not reading.done(), reading.result()
            time.sleep(0.01)
        cluster.also(lambda nodes: nodes.kill(node))
        try:
            killed.touch()
            rows = reading.result(120)
        finally:
            cluster.also(lambda nodes: nodes.start(node))
            cluster.also(lambda nodes: nodes.acquainted())  # a trim needs every shard
    assert [(row.lsn, row.batch_offset) for row in rows] == written
    assert [bytes(row.number) for row in rows] == [payload[:8] for payload in payloads]
    assert {row.size for row in rows} == {1000}


@pytest.mark.slow
def test_records_that_are_trimmed_while_plans_are_made_are_told_or_are_not_part_of_the_plan(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    positions = write(cluster, 25, [b"%04d" % number * 50 for number in range(1000)], at_once=20)
    lsns = sorted({lsn for lsn, _ in positions})
    assert load(spark, cluster, "25").count() == len(positions)  # Spark's workers are there

    async def trim_all_but_the_last(client: Client) -> None:
        for lsn in lsns[:-1]:
            await client.trim(25, lsn)
            await asyncio.sleep(0.1)

    with ThreadPoolExecutor() as pool:
        trimming = pool.submit(cluster.do, trim_all_but_the_last)
        outcomes = []
        while True:
            last = trimming.done()
            started = time.monotonic()
            try:
                rows = load(spark, cluster, "25").select("lsn", "batch_offset").collect()
            except Exception as error:
                outcomes.append("told")
                if "was trimmed" not in str(error):
                    raise
            else:
                outcomes.append("read")
                found = [(row.lsn, row.batch_offset) for row in rows]
                assert sorted(found) == positions[len(positions) - len(found) :]
            assert time.monotonic() - started < TIMEOUT
            if last:
                break
        trimming.result()
    assert outcomes[-1] == "read"
    assert [row.lsn for row in rows] == [lsn for lsn, _ in positions if lsn == lsns[-1]]


@pytest.mark.slow
def test_many_records_over_epochs_are_the_same_with_a_node_killed_and_with_a_failover(
    spark: SparkSession, own_cluster: RunningCluster
) -> None:
    logs = range(1, 5)
    written = great_read.write_records(own_cluster, logs, 40_000, epochs=2)
    for read in (great_read.with_a_node_killed, great_read.with_a_failover):
        found, left = read(spark, own_cluster, logs, minPartitions=8)
        assert left > 0
        assert found == written
