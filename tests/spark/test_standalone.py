"""On a standalone Spark cluster, with our wheel and nothing else of ours on its workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import RunningCluster
from tests.spark.standalone import Standalone, environment, python_without, standalone, wheel
from tests.spark.test_killed_tasks import fill, positions, run_job, stored

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
        phases="where,speculate",
    )
    assert "error" not in says, says
    assert ours.name in says["where"][0]
    assert positions(says["speculate"]) == rows
    assert stored(own_cluster, 7) == Counter(f"row {number}" for number in range(4000))


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
