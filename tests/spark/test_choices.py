"""What options choose of a log: columns, text, how exact times are, and how the range is cut."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import load, restart_sequencer, write


def test_columns_and_text_also_of_a_view_of_sql(spark: SparkSession, cluster: RunningCluster) -> None:
    write(cluster, 30, ["zwölf".encode(), b"{}"])
    frame = load(spark, cluster, "30", columns="payload, batch_offset", payloadFormat="utf8")
    assert frame.dtypes == [("payload", "string"), ("batch_offset", "int")]
    assert sorted(frame.collect()) == [("zwölf", 0), ("{}", 1)]
    given = f"cluster '{cluster.file}', logs '30', payloadFormat 'utf8', columns 'payload'"
    spark.sql(f"CREATE TEMPORARY VIEW records USING logdevice OPTIONS ({given})")
    assert sorted(spark.sql("SELECT * FROM records").collect()) == [("zwölf",), ("{}",)]
    write(cluster, 30, [b"\xff"])
    with pytest.raises(Exception, match=r"log 30: record 0 of e\d+n\d+ is not UTF-8"):
        load(spark, cluster, "30", payloadFormat="utf8").collect()


def test_times_that_are_approximate_begin_no_later_than_exact_ones(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    for _ in range(2):
        write(cluster, 31, [b"%d" % number for number in range(100)], at_once=10)
    rows = load(spark, cluster, "31").orderBy("lsn", "batch_offset").collect()
    when = rows[100].timestamp.replace(tzinfo=UTC).isoformat()

    def between(**options: Any) -> set[Any]:
        frame = load(spark, cluster, "31", timeAccuracy="approximate", **options)
        return {(row.lsn, row.batch_offset) for row in frame.collect()}

    exact = {(row.lsn, row.batch_offset) for row in rows if row.timestamp >= rows[100].timestamp}
    since, until = between(startingTimestamp=when), between(endingTimestamp=when)
    assert exact <= since
    assert not since & until
    assert since | until == {(row.lsn, row.batch_offset) for row in rows}


@pytest.mark.slow
def test_partitions_hold_about_the_same_over_epochs_and_small_logs_are_not_cut(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    # 3 MB in epochs of 1 to 6 parts
    for parts in (1, 6, 3):
        write(cluster, 32, [b"x" * 1000] * (300 * parts), at_once=5)
        restart_sequencer(cluster, 32)
    sizes = [
        row["count"]
        for row in load(spark, cluster, "32", maxBytesPerPartition="300KiB")
        .groupBy(F.spark_partition_id())
        .count()
        .collect()
    ]
    assert sum(sizes) == 3000
    # what a second wave of STOREs left on a busy machine counts, too: twice as much at most
    assert 8 <= len(sizes) <= 20
    assert max(sizes) <= 1.5 * 3000 / len(sizes)
    assert load(spark, cluster, "32").rdd.getNumPartitions() == 1
