"""Logs, streams and index logs as Spark DataFrames: ``from logdevice_py.spark import register; register(spark)``, then
``spark.read.format("logdevice")`` and ``spark.read.format("indexlog")``.

Where this package is installed for the driver's Python, Spark finds the sources by itself.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from client.spark import source
from indexlog.spark.source import IndexLogSource
from streams.spark.source import LogAndStreamSource as LogDeviceSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from client.read.proof import Proof

__all__ = ["IndexLogSource", "LogDeviceSource", "proofs", "register"]


def register(spark: "SparkSession") -> None:
    """Make ``format("logdevice")`` and ``format("indexlog")`` known to a session."""
    archive = Path(source.__file__).absolute().parents[2]
    if archive.is_file():
        # from --py-files: the processes beside the driver that plan streams are not told of those
        environment = spark.sparkContext.environment
        environment["PYTHONPATH"] = ":".join(filter(None, [str(archive), environment.get("PYTHONPATH")]))
    spark.dataSource.register(LogDeviceSource)
    spark.dataSource.register(IndexLogSource)


def proofs(frame: "DataFrame") -> "dict[int, Proof]":
    """The proof of each log in a frame that was loaded with ``includeProof``; see `client.spark.proofs.proofs`."""
    from client.spark import proofs as of_frames

    return of_frames.proofs(frame)
