"""All documents of all indexes as one DataFrame: what the indexes of an index log hold, with Spark.

    apt-cache dumpavail > packages
    python examples/debian_packages.py packages | ldindex -c cluster.toml bulk
    python examples/index_analytics.py cluster.toml --sum 0 --field maintainer --words description

Documents of Debian are packages: variable 0 is the installed size, a maintainer keeps packages of several sections.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def sizes(documents: DataFrame, variable: int) -> DataFrame:
    """A row for each index: its documents, the sum of a variable, and when it was written to last."""
    return documents.groupBy("index").agg(
        F.count("*").alias("documents"),
        F.sum(F.col("variables")[variable]).alias("sum"),
        F.max("timestamp").alias("newest"),
    )


def values(documents: DataFrame, field: str) -> DataFrame:
    """A row for each value of a field: in how many documents it is, and in how many indexes."""
    return (
        documents.select("index", F.col("fields")[field].alias("value"))
        .where("value IS NOT NULL")
        .groupBy("value")
        .agg(F.count("*").alias("documents"), F.countDistinct("index").alias("indexes"))
    )


def words(documents: DataFrame, field: str) -> DataFrame:
    """A row for each word of a field: in how many indexes and documents it is."""
    split = F.array_distinct(F.split(F.lower(F.col("fields")[field]), r"\W+"))
    found = documents.select("index", F.explode(split).alias("word")).where("word <> ''")
    return found.groupBy("word").agg(F.countDistinct("index").alias("indexes"), F.count("*").alias("documents"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="What the indexes of an index log hold.")
    parser.add_argument("cluster", help="the cluster file")
    parser.add_argument("--path", default="/indexlog", help="of the index log in the log tree (default: /indexlog)")
    parser.add_argument("--indexes", default="", help="codes and patterns, like debian-*,books (default: all)")
    parser.add_argument("--sum", type=int, default=0, help="a variable, summed up for each index (default: 0)")
    parser.add_argument("--field", help="a field whose values are counted")
    parser.add_argument("--words", help="a field whose words are counted")
    parser.add_argument("--parquet", help="write the documents to this directory, a folder for each index")
    given = parser.parse_args(arguments)

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("what indexes hold").getOrCreate()
    if spark.conf.get("spark.sql.shuffle.partitions") == "200":
        spark.conf.set("spark.sql.shuffle.partitions", "8")  # Spark's default is for more documents than these

    # Planned once: everything below is of one moment, whatever is written, dealt and merged meanwhile.
    reader = spark.read.format("indexlog").option("cluster", given.cluster).option("indexes", given.indexes)
    documents = reader.load(given.path).cache()
    print(f"{documents.count()} documents of {documents.select('index').distinct().count()} indexes")
    for row in sizes(documents, given.sum).orderBy(F.desc("documents"), "index").limit(10).collect():
        print(f"{row.documents:>8} {row['index']}, {row['sum'] or 0:g}, newest {row.newest:%Y-%m-%d %H:%M:%S}")
    if given.field is not None:
        for row in values(documents, given.field).orderBy(F.desc("indexes"), "value").limit(10).collect():
            print(f"{row.indexes:>8} indexes, {row.documents} documents: {row.value}")
    if given.words is not None:
        for row in (
            words(documents, given.words).orderBy(F.desc("indexes"), F.desc("documents"), "word").limit(10).collect()
        ):
            print(f"{row.indexes:>8} indexes, {row.documents} documents: {row.word}")
    if given.parquet is not None:
        documents.write.mode("overwrite").partitionBy("index").parquet(given.parquet)
    documents.unpersist()
    return 0


if __name__ == "__main__":
    sys.exit(main())
