"""Words of a log, counted with Spark.

The demo's log is kept, and served again, by

    make demo DEMO_FLAGS="--keep /tmp/ld"
    ld-dev-cluster up --dir /tmp/ld

It has 3 logs; the demo's lines are in log 1. Put others into log 2, and count:

    ldwrite -c /tmp/ld/cluster.toml 2 < README.md
    python examples/spark_words.py /tmp/ld/cluster.toml --log 1 --other-log 2 --parquet /tmp/words --counts-to 3
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from logdevice_py.spark import proofs


def words_of(records: DataFrame) -> DataFrame:
    """A row for each word of each record."""
    text = F.lower(F.col("payload").cast("string"))
    return records.select("log_id", "lsn", F.explode(F.split(text, r"\W+")).alias("word")).where("word <> ''")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count the words of a log.")
    parser.add_argument("cluster", help="the cluster file")
    parser.add_argument("--log", default="1", help="id or path (default: 1)")
    parser.add_argument("--other-log", help="also count the words that both logs have")
    parser.add_argument("--parquet", help="write the counts to this directory")
    parser.add_argument("--counts-to", help="follow the log to its tail as a stream and append the counts to this log")
    given = parser.parse_args(arguments)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("words of a log").getOrCreate()
    if spark.conf.get("spark.sql.shuffle.partitions") == "200":
        spark.conf.set("spark.sql.shuffle.partitions", "8")  # Spark's default is for more words than these

    def logs(names: str, **options: str) -> DataFrame:
        return spark.read.format("logdevice").option("cluster", given.cluster).options(**options).load(names)

    # A DataFrame is planned once: each action below sees the log as it was then.
    records = logs(given.log, includeProof="true")
    counts = words_of(records.where("record_type = 'RECORD'")).groupBy("word").count()
    for row in counts.orderBy(F.desc("count"), "word").limit(10).collect():
        print(f"{row['count']:>8} {row['word']}")

    # Every task accounts for its range: which LSNs were records, which were gaps and why.
    for log, proof in proofs(records).items():
        print(
            f"log {log}: {proof.records} records in {proof.entries} entries, {proof.first} to {proof.last}, lost: {proof.lost()}"
        )

    if given.other_log is not None:
        others = words_of(logs(given.other_log)).groupBy("word").count().withColumnRenamed("count", "others")
        print(f"{counts.join(others, 'word').count()} words are in both logs")

    if given.parquet is not None:
        counts.write.mode("overwrite").parquet(given.parquet)
        print(f"{spark.read.parquet(given.parquet).count()} different words in {given.parquet}")

    if given.counts_to is not None:
        # The stream's place is kept in the checkpoint; each count that changed becomes a record. Spark runs a micro-batch again that was
        # cut short, so it is a job of its own name: what is in the log already is left out. Nothing of it is older than this moment.
        started = datetime.now(UTC).isoformat()
        with tempfile.TemporaryDirectory() as checkpoint:

            def append(batch: DataFrame, number: int) -> None:
                rows = batch.select(F.to_json(F.struct("word", "count")).alias("payload"))
                sink = rows.write.format("logdevice").mode("append").option("cluster", given.cluster)
                sink.options(jobId=f"{checkpoint} {number}", since=started).save(given.counts_to)

            stream = spark.readStream.format("logdevice").option("cluster", given.cluster).load(given.log)
            query = (
                words_of(stream)
                .groupBy("word")
                .count()
                .writeStream.outputMode("update")
                .foreachBatch(append)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        print(f"log {given.counts_to} has {logs(given.counts_to).count()} counts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
