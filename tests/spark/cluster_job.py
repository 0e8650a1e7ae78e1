"""A Spark program that reads, writes and streams logs while its tasks are killed. A test runs it on a Spark cluster and compares what it says.

python cluster_job.py --master MASTER --cluster FILE --says FILE --checkpoint DIR --phases read,job,stream[,speculate]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from logdevice_py.spark import register

ROWS_AT_ONCE = 200
KILLED_AT = 3  # batches


def killed_once(batches: Iterator[Any]) -> Iterator[Any]:
    """The first try of every other task dies with its Python process when some rows have passed."""
    task = TaskContext.get()
    doomed = task is not None and task.attemptNumber() == 0 and task.partitionId() % 2 == 0
    for number, batch in enumerate(batches):
        if doomed and number == KILLED_AT:
            time.sleep(0.3)  # what passed is appended
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def slow_once(batches: Iterator[Any]) -> Iterator[Any]:
    """The first try of task 0 takes so long that Spark runs another beside it."""
    task = TaskContext.get()
    slow = task is not None and task.attemptNumber() == 0 and task.partitionId() == 0
    for number, batch in enumerate(batches):
        if slow and number:
            time.sleep(3)
        yield batch


def with_attempt(through: Callable[[Iterator[Any]], Iterator[Any]]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The same rows, with a column that says which try of the task gave them."""

    def tried(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        attempt = -1 if task is None else task.attemptNumber()
        for batch in through(batches):
            yield batch.append_column("attempt", pa.repeat(pa.scalar(attempt, pa.int32()), batch.num_rows))

    return tried


class Phases:
    """What the program does, each under its name."""

    def __init__(self, spark: SparkSession, cluster: str, checkpoint: str) -> None:
        self._spark = spark
        self._cluster = cluster
        self._checkpoint = checkpoint

    def _load(self, logs: str, **options: Any) -> DataFrame:
        return self._spark.read.format("logdevice").options(cluster=self._cluster, **options).load(logs)

    def _positions(self, through: Callable[[Iterator[Any]], Iterator[Any]]) -> list[Any]:
        frame = self._load("1-3", minPartitions=6).select("log_id", "lsn", "batch_offset", "payload")
        passed = frame.mapInArrow(
            with_attempt(through), StructType([*frame.schema, StructField("attempt", IntegerType())])
        )
        return [list(row) for row in passed.withColumn("payload", F.decode("payload", "UTF-8")).collect()]

    def count(self) -> Any:
        """Records in logs 1 to 3."""
        return self._load("1-3", minPartitions=4).count()

    def read(self) -> Any:
        """Positions and payloads of logs 1 to 3, with tasks killed, and which try of its task gave each."""
        return self._positions(killed_once)

    def speculate(self) -> Any:
        """The same with a task that Spark runs twice at once, and rows into log 7 by such tasks."""
        rows = self._positions(slow_once)
        slow = self._rows(4000).mapInArrow(slow_once, "payload string")
        slow.write.format("logdevice").mode("append").options(cluster=self._cluster, log="7", jobId="slow").save()
        return rows

    def _rows(self, count: int) -> DataFrame:
        return self._spark.range(count).repartition(4).selectExpr("concat('row ', id) AS payload")

    def job(self) -> Any:
        """Rows into logs 4 and 5, with tasks killed, by a job that is then run again."""
        rows = self._rows(8000).selectExpr("payload", "4 + CAST(substring(payload, 5) AS LONG) % 2 AS log_id")
        for _ in range(2):
            killed = rows.mapInArrow(killed_once, "payload string, log_id long")
            killed.write.format("logdevice").mode("append").options(cluster=self._cluster, jobId="rows").save()

    def stream(self) -> Any:
        """Logs 1 to 3 into log 6, with tasks killed."""
        self._stream(killed_once)

    def slow_stream(self) -> Any:
        """The same with tasks that Spark runs twice at once."""
        self._stream(slow_once)

    def _stream(self, through: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        """What goes into log 6 says where it was in logs 1 to 3."""
        source = self._spark.readStream.format("logdevice").options(cluster=self._cluster, maxRecordsPerTrigger=5000)
        placed = F.concat_ws(" ", "log_id", "lsn", "batch_offset", F.decode("payload", "UTF-8")).alias("payload")
        rows = source.load("1-3").select(placed).mapInArrow(through, "payload string")
        sink = rows.writeStream.format("logdevice").options(cluster=self._cluster, log="6")
        query = sink.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()

    def where(self) -> Any:
        """From where the executors import."""

        def files(batches: Iterator[Any]) -> Iterator[Any]:
            import client.spark.source as source

            for batch in batches:
                yield batch.set_column(0, "file", pc.replace_substring_regex(batch[0], ".*", source.__file__))

        return [
            row[0] for row in self._spark.range(1).selectExpr("'' AS file").mapInArrow(files, "file string").collect()
        ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--says", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--phases", required=True)
    given = parser.parse_args()
    spark = (
        SparkSession.builder.master(given.master)
        .appName("tests of logdevice")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_AT_ONCE)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "200ms")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.5")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)  # Spark's own look-up does not see --py-files
    phases = Phases(spark, given.cluster, given.checkpoint)
    says: dict[str, Any] = {}
    try:
        for name in given.phases.split(","):
            started = time.monotonic()
            says[name] = getattr(phases, name)()
            says[f"seconds of {name}"] = round(time.monotonic() - started, 1)
    except Exception as error:  # noqa: BLE001 - told to the test
        says["error"] = str(error)
    Path(given.says).write_text(json.dumps(says))
    spark.stop()


if __name__ == "__main__":
    main()
