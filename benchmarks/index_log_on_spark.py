"""``python -m benchmarks.index_log_on_spark``: what the jobs of an index log take on Spark.

Modifications are written into the raw logs of a cluster of processes, two copies of each; then a driver of its own deals and optimizes them on executors that
are processes too (``local-cluster``). Told are: how long tasks ran, each kind of them with its median and its longest one; and the greatest memory of the
driver and of an executor, each with its Java and all of its Pythons together, pages that several of
them share counted for each. ``--hot 0.33`` has one index
hold a third of all documents. It prints JSON, a line for each figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.index_log import IndexLogCluster, Modifications, index_log_cluster, tell
from benchmarks.ldbench.resources import children_of, parse_status
from client.client import Client
from indexlog.index_log import IndexLog
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord
from indexlog.spark.jobs import OnSpark
from logdevice_py.core.units import parse_size
from logdevice_py.programs import own_program
from logdevice_py.spark import register

SAMPLE_SECONDS = 0.1
HOT = "index-00000"
MEGABYTE = 10**6
TASKS_MIN = 4
"""Of a stage with fewer tasks no median is told."""


# Writing


def modifications(given: argparse.Namespace) -> Iterator[LogRecord]:
    """As many as were asked for, about, of which one index has a share of its own."""
    rng = Random(1)
    made = iter(Modifications(given.indexes, given.documents, given.size, 0.02))
    hot_documents = max(1, round(given.documents * given.hot))
    for record in islice(made, max(1, round(given.gigabytes * 10**9 / given.size))):
        if rng.random() < given.hot:
            yield LogRecord(HOT, f"document-{rng.randrange(hot_documents):08}", record.change)
        else:
            yield record


async def write(cluster: IndexLogCluster, given: argparse.Namespace) -> None:
    """All of them."""
    began = time.monotonic()
    async with cluster.log.writer() as writer:
        count = await writer.bulk(modifications(given))
    seconds = time.monotonic() - began
    tell("written", modifications=count, gigabytes=given.gigabytes, copies=2, per_second=round(count / seconds))


# Memory


@dataclass
class MemoryWatch:
    """Looks at the driver and at its executors, again and again."""

    driver: int
    """The number of its process."""
    peaks: dict[str, int] = field(default_factory=dict)
    """The most resident bytes, by what has them; an executor's are those of whichever had most."""

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            self._look()
            await asyncio.sleep(SAMPLE_SECONDS)

    def _look(self) -> None:
        now = {"driver, Python": _resident(self.driver), "driver, Java and what it started": 0}
        for java in children_of(self.driver):
            now["driver, Java and what it started"] += _resident(java)
            for child in children_of(java):
                if b"CoarseGrainedExecutorBackend" not in _command(child):
                    now["driver, Java and what it started"] += _with_children(child)
                    continue
                pythons = _with_children(child) - _resident(child)
                self._note("executor, Java", _resident(child))
                self._note("executor, Pythons", pythons)
                self._note("executor", _resident(child) + pythons)
        for name, size in now.items():
            self._note(name, size)
        self._note("driver", sum(now.values()))

    def _note(self, name: str, size: int) -> None:
        self.peaks[name] = max(self.peaks.get(name, 0), size)


def _resident(process: int) -> int:
    try:
        return parse_status(Path(f"/proc/{process}/status").read_text())[1]
    except OSError:  # it has ended
        return 0


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _with_children(process: int) -> int:
    return _resident(process) + sum(map(_with_children, children_of(process)))


# The driver


class Stages:
    """What Spark's own page says of stages that have ended."""

    def __init__(self, context: Any) -> None:
        self._url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}"
        self._told: set[int] = set()

    def _ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/{path}", timeout=60) as answer:
            return json.load(answer)

    def tell(self, job: str) -> None:
        """Of each stage since the last call, how long its tasks ran."""
        while self._ask("stages?status=active"):
            time.sleep(0.2)  # the page follows a little later
        for stage in sorted(self._ask("stages?status=complete"), key=lambda each: each["stageId"]):
            number = stage["stageId"]
            if number in self._told:
                continue
            self._told.add(number)
            tasks = self._ask(f"stages/{number}/{stage['attemptId']}/taskList?length=1000000")
            seconds = [each["taskMetrics"]["executorRunTime"] / 1000 for each in tasks if each["status"] == "SUCCESS"]
            if len(seconds) >= TASKS_MIN:
                middle, most = median(seconds), max(seconds)
                tell(
                    f"tasks of {job}",
                    tasks=len(seconds),
                    median_s=middle,
                    longest_s=most,
                    longest_to_median=most / middle,
                )


def warm_up(session: SparkSession, tasks: int) -> None:
    """Start the Pythons of all executors, which import what tasks use: that is of a job's beginning, not of its tasks."""

    def load(number: int) -> int:
        from indexlog.spark import tasks as used

        time.sleep(2)  # so that no executor does the work of all
        return number + len(used.MADE_SCHEMA)

    session.sparkContext.parallelize(range(tasks), tasks).map(load).collect()


async def drive(given: argparse.Namespace) -> None:
    """Deal and optimize."""
    session = (
        SparkSession.builder.master(f"local-cluster[{given.executors},1,{given.heap_mb}]")
        .appName("benchmark of index logs")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", f"{given.heap_mb}m")
        .config("spark.executor.memory", f"{given.heap_mb}m")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.ui.retainedTasks", "1000000")
        .config("spark.python.authenticate.socketTimeout", "60s")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    warm_up(session, given.executors)
    stages = Stages(session.sparkContext)
    on_spark = OnSpark(session, given.driver)
    async with Client(given.driver) as client, IndexLog(client) as log:
        for name in ("deal", "optimize"):
            began = time.monotonic()
            done = await (on_spark.deal(log) if name == "deal" else on_spark.optimize(log, ALL_AT_ONCE))
            seconds = time.monotonic() - began
            tell(name, records=done.records, seconds=seconds, per_second=round(done.records / seconds))
            stages.tell(name)
    session.stop()


# The whole


async def measure(given: argparse.Namespace, directory: Path) -> int:
    """Write here, and watch a driver that is a process of its own."""
    async with index_log_cluster(directory, given.raw_logs) as cluster:
        await write(cluster, given)
        process = await asyncio.create_subprocess_exec(
            *own_program("benchmarks.index_log_on_spark", *sys.argv[1:], "--driver", cluster.file),
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
        watch = MemoryWatch(process.pid)
        watching = asyncio.create_task(watch.watch())
        try:
            status = await process.wait()
        finally:
            watching.cancel()
        tell("memory at most", **{f"{name}, MB": size // MEGABYTE for name, size in sorted(watch.peaks.items())})
        return status


def main() -> int:
    """Entry point."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.index_log_on_spark", description=__doc__)
    options.add_argument("--gigabytes", type=float, default=1.0, help="that are written, once (default: 1)")
    options.add_argument("--hot", type=float, default=0.0, help="share of one index of all documents (default: 0)")
    options.add_argument("--size", type=parse_size, default=1000, help="bytes of a document's text (default: 1000)")
    for name, value in (
        ("indexes", 10_000),
        ("documents", 1_000_000),
        ("raw-logs", 4),
        ("executors", 2),
        ("heap-mb", 512),
    ):
        options.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"(default: {value})")
    options.add_argument("--driver", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.driver is not None:
        asyncio.run(drive(given))
        return 0
    with tempfile.TemporaryDirectory(prefix="ld-index-log-") as name:
        return asyncio.run(measure(given, Path(name)))


if __name__ == "__main__":
    sys.exit(main())
