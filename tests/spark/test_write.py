"""DataFrames into logs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import load, write


def test_rows_are_appended_to_the_logs_that_their_column_names(spark: SparkSession, cluster: RunningCluster) -> None:
    frame = spark.range(2000).selectExpr("14 + id % 2 AS log_id", "concat('row ', id) AS payload")
    frame.write.format("logdevice").mode("append").option("cluster", cluster.file).save()
    rows = load(spark, cluster, "14,15").selectExpr("log_id", "string(payload) AS payload").collect()
    assert sorted((row.log_id, row.payload) for row in rows) == sorted(
        (14 + number % 2, f"row {number}") for number in range(2000)
    )


def test_keys_go_with_their_records_and_are_appended_once_with_a_job(
    spark: SparkSession, cluster: RunningCluster
) -> None:
    keys = "CASE id % 3 WHEN 0 THEN concat('key ', id) WHEN 1 THEN '' END AS key"
    frame = spark.range(600).repartition(3).selectExpr("26 + id % 2 AS log_id", "string(id DIV 6) AS payload", keys)
    without = spark.range(50).selectExpr("26L AS log_id", "'none' AS payload", "CAST(NULL AS BINARY) AS key")
    for _ in range(2):
        for job, rows in (("keys", frame), ("no keys", without)):
            rows.write.format("logdevice").mode("append").options(cluster=cluster.file, jobId=job).save()
    found = load(spark, cluster, "26,27").select("log_id", "payload", "key").collect()

    def key(number: int) -> bytes | None:
        return (b"key %d" % number, b"", None)[number % 3]

    expected = Counter((26 + number % 2, b"%d" % (number // 6), key(number)) for number in range(600))
    expected[26, b"none", None] += 50
    assert (
        Counter((row.log_id, bytes(row.payload), None if row.key is None else bytes(row.key)) for row in found)
        == expected
    )


@pytest.mark.slow
def test_a_job_with_another_number_of_partitions_fails(spark: SparkSession, cluster: RunningCluster) -> None:
    def write_rows(job: str, partitions: int) -> None:
        rows = spark.range(0, 10, 1, partitions).selectExpr("CAST(id AS STRING) AS payload")
        rows.write.format("logdevice").mode("append").options(cluster=cluster.file, jobId=job).save("33")

    for _ in range(2):
        write_rows("fewer", 2)
        write_rows("more", 2)
    with pytest.raises(Exception, match="this write has 1 partitions; it was begun before with others"):
        write_rows("fewer", 1)
    with pytest.raises(Exception, match="other tasks may have appended rows"):
        write_rows("more", 3)


def test_rows_that_cannot_become_records_are_refused(spark: SparkSession, cluster: RunningCluster) -> None:
    def write_rows(query: str, mode: str = "append", **options: str) -> None:
        sink = spark.sql(query).write.format("logdevice").mode(mode)
        sink.options(**{"cluster": cluster.file, "log": "16", **options}).save()

    for query, options, text in (
        ("SELECT 'a' AS payload, 1 AS headers", {}, "no place for the columns headers"),
        ("SELECT 'a' AS payload, repeat('k', 5000) AS key", {}, "key 0 of 5000 bytes is too long"),
        ("SELECT CAST(NULL AS STRING) AS payload", {}, "a row has no payload"),
        ("SELECT 'a' AS payload", {"mode": "overwrite"}, "a log is appended to"),
    ):
        with pytest.raises(Exception, match=text):
            write_rows(query, **options)
    assert load(spark, cluster, "16").count() == 0


@pytest.mark.slow
def test_a_stream_from_one_log_to_another(spark: SparkSession, cluster: RunningCluster, tmp_path: Path) -> None:
    write(cluster, 17, [b"%d" % number for number in range(300)])
    source = spark.readStream.format("logdevice").options(cluster=cluster.file, logs="17")
    query = (
        source.load()
        .select("payload")
        .writeStream.format("logdevice")
        .options(cluster=cluster.file, log="18", checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)
    rows = load(spark, cluster, "18").collect()
    assert sorted(int(row.payload) for row in rows) == list(range(300))
