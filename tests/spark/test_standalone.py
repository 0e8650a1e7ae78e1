"""On a standalone Spark cluster, with our wheel and nothing else of ours on its workers."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import RunningCluster
from tests.spark.standalone import Standalone, environment, packed, python_without, standalone, wheel
from tests.spark.test_killed_tasks import fill, placed, positions, run_job, stored

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("spark") / "standalone") as running:
        yield running


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_is_all_that_workers_need_of_us_and_tasks_may_run_twice_at_once(
    spark_cluster: Standalone, ours: Path, own_cluster: RunningCluster, tmp_path: Path
) -> None:
    rows = fill(own_cluster)
    says = run_job(
        spark_cluster.submit(ours),
        environment(python_without(tmp_path / "python")),
        own_cluster,
        tmp_path,
        master=spark_cluster.url,
        phases="where,speculate,slow_stream",
    )
    assert "error" not in says, says
    assert ours.name in says["where"][0]
    assert positions(says["speculate"]) == rows
    assert stored(own_cluster, 7) == Counter(f"row {number}" for number in range(4000))
    assert stored(own_cluster, 6) == placed(rows)


def test_what_the_workers_python_lacks_is_named(
    spark_cluster: Standalone, ours: Path, own_cluster: RunningCluster, tmp_path: Path
) -> None:
    lacking = python_without(tmp_path / "lacking", "msgpack", "lz4")
    says = run_job(
        spark_cluster.submit(ours),
        environment(python_without(tmp_path / "whole"), lacking),
        own_cluster,
        tmp_path,
        master=spark_cluster.url,
        phases="read",
    )
    assert "the logdevice source needs msgpack, lz4 in " in says["error"], says


def test_a_packed_environment_brings_the_packages(
    spark_cluster: Standalone, ours: Path, own_cluster: RunningCluster, tmp_path: Path
) -> None:
    rows = fill(own_cluster)
    needed = ("msgpack", "google_crc32c", "lz4", "zstandard", "pyarrow")
    archive = packed(tmp_path / "packed", *needed)
    unpack = [
        "tar",
        "-xf",
        str(archive),
        "-C",
        str(tmp_path),
        "--one-top-level=env",
    ]  # plans are made beside the driver
    subprocess.run(unpack, check=True)
    says = run_job(
        spark_cluster.submit(ours, archive=archive),
        environment(python_without(tmp_path / "python"), "./env/bin/python"),
        own_cluster,
        tmp_path,
        master=spark_cluster.url,
        phases="count",
    )
    assert says.get("count") == len(rows), says
