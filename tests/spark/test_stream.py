"""Logs as streams: each record in one micro-batch, also over restarts from the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import write


class Batches:
    """What the micro-batches of the runs held."""

    def __init__(self, spark: SparkSession, cluster: RunningCluster, checkpoint: Path) -> None:
        self._spark, self._cluster, self._checkpoint = spark, cluster, checkpoint
        self.sizes: list[int] = []
        self.positions: list[tuple[int, int, int]] = []

    def run(self, logs: str, **options: Any) -> None:
        """Everything that is available."""

        def take(frame: DataFrame, number: int) -> None:
            rows = frame.select("log_id", "lsn", "batch_offset").collect()
            self.sizes.append(len(rows))
            self.positions += [tuple(row) for row in rows]

        source = self._spark.readStream.format("logdevice").options(cluster=self._cluster.file, logs=logs, **options)
        query = (
            source.load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)


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

    written |= {(11, *position) for position in write(cluster, 11, [b"later"] * 50)}
    written |= {(13, *position) for position in write(cluster, 13, [b"a log that came later"] * 70)}
    batches.run("11-13")
    assert sorted(batches.positions) == sorted(written)
    batches.run("11-13")
    assert sorted(batches.positions) == sorted(written)


def test_a_stream_goes_on_from_its_checkpoint_when_the_cluster_was_down_in_between(
    spark: SparkSession, own_cluster: RunningCluster, tmp_path: Path
) -> None:
    batches = Batches(spark, own_cluster, tmp_path / "checkpoint")
    written = {
        (log, *position) for log in (1, 2) for position in write(own_cluster, log, [b"before"] * 500, at_once=50)
    }
    batches.run("1,2", maxRecordsPerTrigger=300)
    nodes = sorted(int(node) for node in own_cluster.nodes.supervisor.children)
    own_cluster.also(lambda cluster: cluster.kill(*nodes))
    own_cluster.also(lambda cluster: cluster.start(*nodes))
    written |= {
        (log, *position) for log in (1, 2) for position in write(own_cluster, log, [b"after"] * 500, at_once=50)
    }
    batches.run("1,2", maxRecordsPerTrigger=300)
    assert len({position[1] >> 32 for position in batches.positions}) > 1
    assert sorted(batches.positions) == sorted(written)
