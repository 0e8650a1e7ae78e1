"""Many records over several logs and epochs, read as DataFrames while a node dies and while sequencers fail over; and how long reading takes.

python -m tests.spark.great_read --records 2000000
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from client.client import Client
from tests.spark.conftest import RunningCluster

SIZE = 100
HEAD = 20
AT_ONCE = 5000
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Sums:
    """Of all records, whatever their order."""

    records: int = 0
    numbers: int = 0
    """Every payload begins with one."""
    digests: int = 0
    """60 bits of each record's payload and position."""

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.records + other.records, self.numbers + other.numbers, self.digests + other.digests)


def payload_of(number: int) -> bytes:
    """A record."""
    return b"%0*d" % (HEAD, number) + b"." * (SIZE - HEAD)


def digest_of(payload: bytes, log: int, lsn: int, offset: int) -> int:
    """Of a record at its position."""
    return int(hashlib.md5(payload + b"/%d/%d/%d" % (log, lsn, offset)).hexdigest()[:15], 16)


def sums_of(frame: DataFrame) -> Sums:
    """What a DataFrame holds, by Spark's own functions."""
    position = F.concat_ws("/", F.lit(""), "log_id", "lsn", "batch_offset")
    digest = F.conv(F.substring(F.md5(F.concat("payload", F.encode(position, "UTF-8"))), 1, 15), 16, 10)
    number = F.substring(F.decode("payload", "UTF-8"), 1, HEAD)
    row = frame.select(
        F.count("*").alias("records"),
        F.sum(number.cast("decimal(20,0)")).alias("numbers"),
        F.sum(digest.cast("decimal(20,0)")).alias("digests"),
    ).first()
    assert row is not None
    return Sums(row["records"], int(row["numbers"] or 0), int(row["digests"] or 0))


def write_records(cluster: RunningCluster, logs: range, records: int, epochs: int) -> Sums:
    """Records by BufferedWriter; between two parts every node is restarted, so every log goes on in another epoch."""
    share = records // len(logs) // epochs

    async def part(client: Client, log: int, start: int) -> Sums:
        total = Sums()
        async with client.buffered_writer() as writer:
            for first in range(start, start + share, AT_ONCE):
                numbers = range(first, min(first + AT_ONCE, start + share))
                payloads = [payload_of(number) for number in numbers]
                await writer.ready()
                receipts = await writer.append_many(log, payloads)
                digests = map(digest_of, payloads, [log] * len(payloads), receipts.lsns(), receipts.batch_offsets())
                total += Sums(len(payloads), sum(numbers), sum(digests))
        return total

    async def all_logs(client: Client, epoch: int) -> Sums:
        parts = [part(client, log, (epoch * len(logs) + index) * share) for index, log in enumerate(logs)]
        return sum(await asyncio.gather(*parts), Sums())

    total = Sums()
    for epoch in range(epochs):
        if epoch:
            restart_all(cluster)
        total += cluster.do(lambda client, epoch=epoch: all_logs(client, epoch), timeout=3600)  # type: ignore[misc]
    return total


def restart_all(cluster: RunningCluster) -> None:
    """Each node in turn."""
    for node in sorted(cluster.nodes.supervisor.children):
        cluster.also(lambda nodes, node=int(node): nodes.kill(node))  # type: ignore[misc]
        cluster.also(lambda nodes, node=int(node): nodes.start(node))  # type: ignore[misc]


def epochs_of(cluster: RunningCluster, logs: range) -> dict[int, int]:
    """In which each log is."""

    async def work(client: Client) -> dict[int, int]:
        return {log: (await client.sequencer(log)).epoch for log in logs}

    return cluster.do(work)


def node_of(cluster: RunningCluster, log: int) -> int:
    """Who sequences it."""

    async def work(client: Client) -> int:
        return int((await client.sequencer(log)).node)

    return cluster.do(work)


def load(spark: SparkSession, cluster: RunningCluster, logs: range, **options: Any) -> DataFrame:
    """The logs as a table."""
    names = f"{logs[0]}-{logs[-1]}"
    return spark.read.format("logdevice").options(cluster=cluster.file, **options).load(names)


def sums_while(
    spark: SparkSession, frame: DataFrame, at_work: Callable[[], None], tasks_done: int = 1
) -> tuple[Sums, int]:
    """What a frame holds when something happens while its tasks run, and how many tasks had not ended by then."""
    tracker = spark.sparkContext.statusTracker()
    group = f"read {time.monotonic_ns()}"
    partitions = frame.rdd.getNumPartitions()

    def read() -> Sums:
        spark.sparkContext.setJobGroup(group, "sums")
        return sums_of(frame)

    def done() -> int:
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(group)
            for stage in (tracker.getJobInfo(job) or _NO_JOB).stageIds
        ]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        deadline = time.monotonic() + TIMEOUT
        while done() < tasks_done:
            assert time.monotonic() < deadline, "no task ends"
            assert not reading.done(), reading.result()
            time.sleep(0.02)
        left = partitions - done()
        at_work()
        return reading.result(1200), left


class _NoJob:
    stageIds: Sequence[int] = ()


_NO_JOB = _NoJob()


def with_a_node_killed(spark: SparkSession, cluster: RunningCluster, logs: range, **options: Any) -> tuple[Sums, int]:
    """A node dies while tasks read, and stays away until they are done."""
    node = node_of(cluster, logs[0])
    frame = load(spark, cluster, logs, **options)
    try:
        return sums_while(spark, frame, lambda: cluster.also(lambda nodes: nodes.kill(node)))
    finally:
        cluster.also(lambda nodes: nodes.start(node))


def with_a_failover(spark: SparkSession, cluster: RunningCluster, logs: range, **options: Any) -> tuple[Sums, int]:
    """The sequencer of the last log dies while tasks read, and another node goes on with the log in another epoch: it takes a record."""
    log = logs[-1]
    node = node_of(cluster, log)
    before = epochs_of(cluster, logs)[log]
    frame = load(spark, cluster, logs, **options)

    def fail_over() -> None:
        cluster.also(lambda nodes: nodes.kill(node))

        async def append(client: Client) -> None:
            async with client.buffered_writer() as writer:
                await writer.append(log, payload_of(0))

        cluster.do(append)

    try:
        found = sums_while(spark, frame, fail_over)
        assert node_of(cluster, log) != node
        assert epochs_of(cluster, logs)[log] > before
        return found
    finally:
        cluster.also(lambda nodes: nodes.start(node))


async def read_by_client(file: str, logs: range, ends: dict[int, int]) -> int:
    """All logs at once by readers of one client."""

    async def one(client: Client, log: int) -> int:
        count = 0
        async with client.reader(log, until=ends[log]) as reader:
            while batch := await reader.read(65_536):
                count += len(batch)
        return count

    async with Client(file) as client:
        return sum(await asyncio.gather(*(one(client, log) for log in logs)))


def times(spark: SparkSession, cluster: RunningCluster, logs: range, rounds: int, directory: Path) -> dict[str, Any]:
    """Seconds of a full scan: by the client's readers in one process, by Spark of the logs, by Spark of a Parquet file of the same rows."""
    columns = ["log_id", "lsn", "batch_offset", "timestamp", "payload"]

    async def tails(client: Client) -> dict[int, int]:
        return {log: int(await client.tail_lsn(log)) for log in logs}

    ends = cluster.do(tails)
    until = json.dumps({str(log): str(lsn) for log, lsn in ends.items()})
    parquet = str(directory / "rows.parquet")
    load(spark, cluster, logs, endingLsn=until).select(*columns).write.parquet(parquet)

    def scan(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def planned() -> DataFrame:
        frame = load(spark, cluster, logs, endingLsn=until).select(*columns)
        frame.rdd.getNumPartitions()
        return frame

    kinds: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
        "client": (lambda: None, lambda _: asyncio.run(read_by_client(cluster.file, logs, ends))),
        "spark": (lambda: None, lambda _: scan(load(spark, cluster, logs, endingLsn=until).select(*columns))),
        "spark, planned before": (planned, scan),
        "parquet": (lambda: spark.read.parquet(parquet), scan),
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (prepare, work) in kinds.items():
            given = prepare()
            started = time.perf_counter()
            work(given)
            seconds[name].append(time.perf_counter() - started)
    size = sum(each.stat().st_size for each in Path(parquet).glob("*.parquet"))
    return {
        "seconds": {name: [round(each, 2) for each in taken] for name, taken in seconds.items()},
        "median": {name: round(statistics.median(taken), 2) for name, taken in seconds.items()},
        "parquet bytes": size,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Read many records with Spark while nodes fail, and measure it.")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--logs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("killed", "failover", "times"), help="one part of it")
    given = parser.parse_args(arguments)
    logs = range(1, given.logs + 1)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    failed = False
    with tempfile.TemporaryDirectory() as directory:
        cluster = RunningCluster(Path(directory), nodes=4, logs=given.logs, replicate="node:2", racks=1)
        try:
            started = time.perf_counter()
            written = write_records(cluster, logs, given.records, given.epochs)
            epochs = epochs_of(cluster, logs)
            print(f"written: {written} in {time.perf_counter() - started:.1f} s, epochs {epochs}", flush=True)
            options = {"maxBytesPerPartition": "8MiB"}
            reads = {"killed": with_a_node_killed, "failover": with_a_failover}
            for name, read in reads.items():
                if given.only not in (None, name):
                    continue
                started = time.perf_counter()
                found, left = read(spark, cluster, logs, **options)
                same = "equal" if found == written else f"DIFFERENT: {found}"
                failed |= found != written or left <= 0
                print(f"{name} with {left} tasks to go: {same}, {time.perf_counter() - started:.1f} s", flush=True)
            if given.only in (None, "times"):
                print(json.dumps(times(spark, cluster, logs, given.rounds, Path(directory)), indent=1))
        finally:
            cluster.stop()
            spark.stop()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
