"""With tasks killed, what is read and written is what it would be without: in one process, and on a Spark cluster with executor processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from client.client import Client
from tests.spark.cluster_job import ROWS_AT_ONCE, Phases
from tests.spark.conftest import ROOT, RunningCluster
from tests.spark.test_batch import write

READ = range(1, 4)
RECORDS = 4000


def run_job(
    command: list[str], environment: dict[str, str], cluster: RunningCluster, directory: Path, **more: str
) -> Any:
    """What the program says."""
    says = directory / "says.json"
    given = {"cluster": cluster.file, "says": str(says), "checkpoint": str(directory / "checkpoint"), **more}
    arguments = [each for name, value in given.items() for each in (f"--{name}", value)]
    job = str(Path(__file__).parent / "cluster_job.py")
    done = subprocess.run(
        [*command, job, *arguments], env=environment, cwd=directory, capture_output=True, check=False, timeout=280
    )
    assert says.exists(), (done.stdout + done.stderr).decode()[-4000:]
    return json.loads(says.read_text())


def positions(read: list[list[Any]]) -> list[list[Any]]:
    """What was read, in order; some of it by tasks that were tried again."""
    assert {row[-1] for row in read} == {0, 1}
    return sorted(row[:-1] for row in read)


def fill(cluster: RunningCluster) -> list[list[Any]]:
    """Records in logs 1 to 3, in entries of 50, and their positions."""
    rows: list[list[Any]] = []
    for log in READ:
        payloads = [f"record {number} of log {log}" for number in range(RECORDS)]
        positions = write(cluster, log, [payload.encode() for payload in payloads], at_once=50)
        rows += [[log, *position, payload] for position, payload in zip(positions, payloads, strict=True)]
    return rows


def placed(rows: list[list[Any]]) -> Counter[str]:
    """The records that the stream makes of them: each says where it comes from."""
    return Counter(f"{log} {int(lsn)} {offset} {payload}" for log, lsn, offset, payload in rows)


def stored(cluster: RunningCluster, *logs: int) -> Counter[str]:
    """Records of logs, counted."""

    async def work(client: Client) -> Counter[str]:
        found: Counter[str] = Counter()
        for log in logs:
            async with client.reader(log, until=await client.tail_lsn(log)) as reader:
                while batch := await reader.read():
                    found.update(payload.decode() for payload in batch.payloads if payload is not None)
        return found

    return cluster.do(work)


@pytest.mark.slow
def test_killed_tasks_change_nothing(spark: SparkSession, own_cluster: RunningCluster, tmp_path: Path) -> None:
    rows = fill(own_cluster)
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    spark.conf.set(key, ROWS_AT_ONCE)
    try:
        phases = Phases(spark, own_cluster.file, str(tmp_path / "checkpoint"))
        assert positions(phases.read()) == rows
        phases.job()
        phases.stream()
    finally:
        spark.conf.set(key, before)
    assert stored(own_cluster, 4, 5) == Counter(f"row {number}" for number in range(8000))
    assert stored(own_cluster, 6) == placed(rows)


@pytest.mark.slow
def test_killed_tasks_change_nothing_in_a_local_cluster(own_cluster: RunningCluster, tmp_path: Path) -> None:
    rows = fill(own_cluster)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ROOT, "PYSPARK_PYTHON": sys.executable}
    says = run_job(
        [sys.executable],
        environment,
        own_cluster,
        tmp_path,
        master="local-cluster[2,1,1024]",
        phases="read,job,stream",
    )
    assert "error" not in says, says
    assert positions(says["read"]) == rows
    assert stored(own_cluster, 4, 5) == Counter(f"row {number}" for number in range(8000))
    assert stored(own_cluster, 6) == placed(rows)
