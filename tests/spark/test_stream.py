"""Logs as streams: each record in one micro-batch, also over restarts from the checkpoint."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from logdevice_py.config.logs import LogTree
from server.dev.supervisor import write_cluster_file
from tests.integration.process_cluster import ProcessCluster
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import write


@pytest.fixture(scope="module")
def broken_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """One that is restarted and changed."""
    running = RunningCluster(tmp_path_factory.mktemp("broken"), nodes=3, logs=4, replicate="node:2", racks=1)
    yield running
    running.stop()


class Batches:
    """What the micro-batches of the runs held."""

    def __init__(self, spark: SparkSession, cluster: RunningCluster, checkpoint: Path) -> None:
        self._spark, self._cluster, self._checkpoint = spark, cluster, checkpoint
        self.sizes: list[int] = []
        self.partitions: list[int] = []
        """How many each micro-batch had."""
        self.positions: list[tuple[int, int, int]] = []
        self.progress: list[Any] = []
        """What Spark tells of each micro-batch."""

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("log_id", "lsn", "batch_offset").collect()
        self.partitions.append(frame.rdd.getNumPartitions())
        self.sizes.append(len(rows))
        self.positions += [tuple(row) for row in rows]

    def start(self, logs: str, *, trigger: dict[str, Any], **options: Any) -> StreamingQuery:
        """A query."""
        source = self._spark.readStream.format("logdevice").options(cluster=self._cluster.file, logs=logs, **options)
        sink = source.load().writeStream.foreachBatch(self._take)
        return sink.option("checkpointLocation", str(self._checkpoint)).trigger(**trigger).start()

    def run(self, logs: str, **options: Any) -> None:
        """Everything that is available."""
        query = self.start(logs, trigger={"availableNow": True}, **options)
        assert query.awaitTermination(100)
        self.progress += query.recentProgress


def test_a_stream_takes_what_is_there_in_bounded_batches_and_goes_on_where_it_stopped(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    batches = Batches(spark, cluster, tmp_path / "checkpoint")
    many, few = [b"%03d" % number for number in range(600)], [b"%03d" % number for number in range(100)]
    written = {(11, *position) for position in write(cluster, 11, many, at_once=50)}
    written |= {(12, *position) for position in write(cluster, 12, few, at_once=50)}
    batches.run("11,12", maxRecordsPerTrigger=250)
    assert len(batches.sizes) >= 3
    assert all(0 < size <= 250 for size in batches.sizes)
    assert sorted(batches.positions) == sorted(written)
    # Spark tells how far the stream is, and how far it could be
    source = batches.progress[0]["sources"][0]
    done, there = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
    assert done.keys() == there.keys() == {"11", "12"}
    assert int(done["11"]) < int(there["11"])
    assert sum(each["numInputRows"] for each in batches.progress) == 700

    written |= {(11, *position) for position in write(cluster, 11, [b"later"] * 50)}
    written |= {(13, *position) for position in write(cluster, 13, [b"a log that came later"] * 70)}
    batches.run("11-13")
    assert sorted(batches.positions) == sorted(written)


@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint_when_the_cluster_was_down_in_between(
    spark: SparkSession, broken_cluster: RunningCluster, tmp_path: Path
) -> None:
    batches = Batches(spark, broken_cluster, tmp_path / "checkpoint")
    written = {
        (log, *position) for log in (1, 2) for position in write(broken_cluster, log, [b"before"] * 500, at_once=50)
    }
    batches.run("1,2", maxRecordsPerTrigger=300)
    nodes = sorted(int(node) for node in broken_cluster.nodes.supervisor.children)
    broken_cluster.also(lambda cluster: cluster.kill(*nodes))
    broken_cluster.also(lambda cluster: cluster.start(*nodes))
    written |= {
        (log, *position) for log in (1, 2) for position in write(broken_cluster, log, [b"after"] * 500, at_once=50)
    }
    batches.run("1,2", maxRecordsPerTrigger=300)
    assert len({position[1] >> 32 for position in batches.positions}) > 1
    assert sorted(batches.positions) == sorted(written)


@pytest.mark.slow
def test_micro_batches_are_bounded_by_bytes_and_cut_into_tasks(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    batches = Batches(spark, cluster, tmp_path / "checkpoint")
    written = [(29, *position) for position in write(cluster, 29, [b"x" * 1000] * 200, at_once=4)]
    batches.run("29", maxBytesPerTrigger="64KiB", minPartitions=3)
    assert batches.positions == written
    assert len(batches.sizes) >= 200_000 // (64 << 10)
    assert all(0 < size <= (64 << 10) // 1000 for size in batches.sizes)
    assert max(batches.partitions) >= 3


def test_a_log_that_is_added_to_a_group_is_read_by_the_running_query(
    spark: SparkSession, broken_cluster: RunningCluster, tmp_path: Path
) -> None:
    batches = Batches(spark, broken_cluster, tmp_path / "checkpoint")
    written = [(3, *position) for position in write(broken_cluster, 3, [b"first"] * 5)]
    others = '{"1": "tail", "2": "tail"}'
    query = batches.start("/logs", trigger={"processingTime": "100 milliseconds"}, startingLsn=others)

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + 60
        while len(batches.positions) < count:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, f"{len(batches.positions)} of {count} records came"
            time.sleep(0.05)

    try:
        wait_for(5)
        added = grow(broken_cluster)
        written += [(added, *position) for position in write(broken_cluster, added, [b"of a later log"] * 7)]
        wait_for(12)
    finally:
        query.stop()
    assert sorted(batches.positions) == sorted(written)


def grow(cluster: RunningCluster) -> int:
    """One log more in the group /logs; its id."""

    async def work(nodes: ProcessCluster) -> int:
        config = nodes.supervisor.config
        (group,) = config.logs.groups
        tree = LogTree.build(
            defaults=config.logs.defaults, groups=[(group.path, group.lo, group.hi + 1, group.overrides)]
        )
        write_cluster_file(nodes.directory, dataclasses.replace(config, version=config.version + 1, logs=tree))
        return int(group.hi) + 1

    return cluster.also(work)
