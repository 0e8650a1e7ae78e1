"""A Spark program that deals or optimizes an index log, as a driver that gets a signal before one of its steps, or with tasks that break.

python index_log_job.py --master MASTER --cluster FILE --path DIR --job deal|optimize [--before STEP --signal KILL|STOP] [--tasks killed|slow|waiting --notes FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from pyspark import TaskContext
from pyspark.sql import SparkSession

from client.client import Client
from indexlog.effects import IndexEffect, ProposeCommand
from indexlog.index_log import IndexLog
from indexlog.local_store import LocalStore, open_store
from indexlog.planning import ALL_AT_ONCE
from indexlog.spark import tasks
from indexlog.spark.jobs import OnSpark
from logdevice_py.spark import register

PLACES: Final = ("before a file", "in a file", "behind a file")
"""Where tasks are killed."""
POLICY: Final = replace(ALL_AT_ONCE, task_bytes=300, own_file_bytes=470)
"""Many tasks, of indexes that share files and of those that do not."""
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SLOW_SECONDS: Final = 600.0
"""Longer than any other attempt takes."""


def java_above() -> int:
    """The executor, above the Python process of a task."""
    process = os.getppid()
    while Path(f"/proc/{process}/comm").read_text().strip() != "java":
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process


class BreakingStore(LocalStore):
    """The store of the first attempt of a task, which is killed or waits where it makes a file."""

    def __init__(self, root: Path, how: str, notes: str) -> None:
        super().__init__(root)
        context = TaskContext.get()
        assert context is not None
        self._how = how
        self._notes = notes
        self._attempt = context.attemptNumber()
        self._task = context.partitionId()

    def _at(self, place: str, path: str) -> None:
        first = self._attempt == 0
        if self._how == "killed" and first and place == PLACES[self._task % 3] and self._task < 6:
            who = "executor" if self._task >= 3 else "worker"
            self._note(f"{who} {place}")
            os.kill(java_above() if who == "executor" else os.getpid(), signal.SIGKILL)
        elif self._how == "slow" and place == PLACES[2]:
            self._note(f"{self._task} {self._attempt} {path}")
            if first and self._task == 0:
                time.sleep(SLOW_SECONDS)  # Spark runs another attempt beside it
        elif self._how == "waiting" and place == PLACES[1]:
            for number in (signal.SIGHUP, signal.SIGTERM):  # from an executor whose driver is gone
                signal.signal(number, signal.SIG_IGN)
            self._note("waits")
            while not Path(f"{self._notes}.go").exists():
                time.sleep(0.1)

    def _note(self, text: str) -> None:
        with open(self._notes, "a", encoding="utf-8") as file:
            file.write(f"{text}\n")

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """As `LocalStore`."""
        self._at(PLACES[0], path)
        with super().create(path) as file:
            yield file
            self._at(PLACES[1], path)
        self._at(PLACES[2], path)


@dataclass(frozen=True, slots=True)
class BreakingContainers:
    """`MakeContainers` with such a store."""

    run: tasks.MakeContainers
    how: str
    notes: str

    def __call__(self, batches: Any) -> Iterator[Any]:
        """Of a partition."""
        with breaking(self.how, self.notes):
            yield from self.run(batches)


@dataclass(frozen=True, slots=True)
class BreakingMerge:
    """`MergeOnExecutor` with such a store."""

    run: tasks.MergeOnExecutor
    how: str
    notes: str

    def __call__(self, task: Any) -> Any:
        """Of a task."""
        with breaking(self.how, self.notes):
            return self.run(task)


@contextmanager
def breaking(how: str, notes: str) -> Iterator[None]:
    """Tasks of this process open such stores."""

    def opened(url: str) -> BreakingStore:
        store = open_store(url)
        assert isinstance(store, LocalStore)
        return BreakingStore(store.root, how, notes)

    tasks.open_store = opened
    try:
        yield
    finally:
        tasks.open_store = open_store


@dataclass(frozen=True, slots=True)
class OnBreakingSpark(OnSpark):
    """Jobs whose tasks break."""

    how: str = ""
    notes: str = ""

    def _make_containers(self, ranges: Any, task: Any, bytes_max: int) -> Any:
        return OnSpark._make_containers(self, ranges, BreakingContainers(task, self.how, self.notes), bytes_max)  # type: ignore[arg-type]

    def _merge(self, chosen: Any, run: Any) -> Any:
        return OnSpark._merge(self, chosen, BreakingMerge(run, self.how, self.notes))  # type: ignore[arg-type]


def signalled_before(step: str, number: signal.Signals) -> Callable[[IndexEffect], None]:
    """This process gets a signal before a step, which is a number or the name of a command."""
    left = int(step) if step.lstrip("-").isdecimal() else -1
    command = step

    def count(effect: IndexEffect) -> None:
        nonlocal left, command
        named = isinstance(effect, ProposeCommand) and type(effect.command).__name__ == command
        if named or left == 0:
            command = ""
            os.kill(os.getpid(), number)
        left -= 1

    return count


async def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Do the job."""
    on_step = signalled_before(given.before, signal.Signals[f"SIG{given.signal}"])
    on_spark = OnBreakingSpark(spark, given.cluster, how=given.tasks, notes=given.notes)
    async with Client(given.cluster) as client, IndexLog(client, given.path, on_step=on_step) as log:
        if given.job == "deal":
            print(await on_spark.deal(log), flush=True)
        else:
            print(await on_spark.optimize(log, POLICY), flush=True)


def main() -> int:
    """The program."""
    options = argparse.ArgumentParser()
    for name, default in (("before", "-1"), ("signal", "KILL"), ("tasks", ""), ("notes", "")):
        options.add_argument(f"--{name}", default=default)
    for name in ("master", "cluster", "path", "job"):
        options.add_argument(f"--{name}", required=True)
    given = options.parse_args()
    spark = (
        SparkSession.builder.master(given.master)
        .appName("tests of index logs")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.executor.extraJavaOptions", SHORT_LIVED)
        .config("spark.python.authenticate.socketTimeout", "60s")
        .config("spark.speculation", "true" if given.tasks == "slow" else "false")
        .config("spark.speculation.interval", "200ms")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.5")
        .config("spark.speculation.minTaskRuntime", "1s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    asyncio.run(run(spark, given))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
