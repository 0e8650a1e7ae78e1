"""One Spark session and one cluster of node processes for all tests of the Spark source."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import SparkSession

from client.client import Client
from client.spark.connection import cluster_text
from tests.integration.process_cluster import ProcessCluster, process_cluster

T = TypeVar("T")
ROOT = str(Path(__file__).parents[2])


class RunningCluster:
    """A cluster of processes, looked after by a loop in a thread of its own: tests and Spark block theirs."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster of the test", daemon=True)
        self._thread.start()
        self._context = process_cluster(directory, **options)
        self.nodes: ProcessCluster = self._on_loop(self._context.__aenter__())

    def _on_loop(self, work: Coroutine[Any, Any, T], timeout: float = 120) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    @property
    def file(self) -> str:
        """The cluster file."""
        return self.nodes.file

    @property
    def text(self) -> str:
        """What it says, as tasks get it."""
        return cluster_text(self.file)

    def do(self, work: Callable[[Client], Coroutine[Any, Any, T]], timeout: float = 120) -> T:
        """Run `work` with a client of its own."""

        async def with_client() -> T:
            async with Client(self.file) as client:
                return await work(client)

        return self._on_loop(with_client(), timeout)

    def also(self, work: Callable[[ProcessCluster], Coroutine[Any, Any, T]]) -> T:
        """Do something to the nodes."""
        return self._on_loop(work(self.nodes))

    def stop(self) -> None:
        """End all processes; fails when one of them ended by itself."""
        try:
            self._on_loop(self._context.__aexit__(None, None, None))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = RunningCluster(tmp_path_factory.mktemp("cluster"), nodes=3, logs=33, replicate="node:2", racks=1)
    yield running
    running.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """One whose logs nobody else uses."""
    directory = tmp_path / "own"
    directory.mkdir()
    running = RunningCluster(directory, nodes=3, logs=24, replicate="node:2", racks=1)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    session = (
        SparkSession.builder.master("local[2,2]")  # a task is tried twice
        .appName("logdevice")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # it lives for minutes
        .config(
            "spark.python.authenticate.socketTimeout", "60s"
        )  # a busy machine takes longer than 15 s to start a Python
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
