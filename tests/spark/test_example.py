"""The example script does what it says."""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import ROOT, RunningCluster
from tests.spark.test_batch import load, write


def example() -> Any:
    spec = spec_from_file_location("spark_words", Path(ROOT) / "examples" / "spark_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_words_of_a_log_are_counted_joined_and_appended(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(cluster, 19, [b"one fish two fish", b"red Fish blue fish"] * 10)
    write(cluster, 20, [b"fish and chips"])
    parquet = str(tmp_path / "words")
    arguments = [cluster.file, "--log", "19", "--other-log", "20", "--parquet", parquet, "--counts-to", "21"]
    assert example().main(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["40", "fish"]
    assert "log 19: 20 records" in " ".join(printed)
    assert "1 words are in both logs" in printed
    assert spark.read.parquet(parquet).count() == 5
    told = [json.loads(bytes(row.payload)) for row in load(spark, cluster, "21").collect()]
    assert {row["word"]: row["count"] for row in told} == {"one": 10, "two": 10, "red": 10, "blue": 10, "fish": 40}
