"""What breaks while a task reads changes nothing of what it gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from client.client import Client
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import load, write

RECORDS = 80_000
PATIENCE = 60.0


def test_the_sequencers_node_dies_in_the_middle_of_a_task(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    payloads = [number.to_bytes(8, "big") * 125 for number in range(RECORDS)]  # several times what a reader buffers
    written = write(cluster, 24, payloads, at_once=2000)
    begun, killed = tmp_path / "begun", tmp_path / "killed"

    def wait_for_the_kill(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 0:
                begun.touch()
                deadline = time.monotonic() + PATIENCE
                while not killed.exists():
                    assert time.monotonic() < deadline, "nobody was killed"
                    time.sleep(0.01)
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
        deadline = time.monotonic() + PATIENCE
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
    assert [(row.lsn, row.batch_offset) for row in rows] == written
    assert [bytes(row.number) for row in rows] == [payload[:8] for payload in payloads]
    assert {row.size for row in rows} == {1000}
