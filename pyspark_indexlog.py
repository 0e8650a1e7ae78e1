"""Spark looks for modules of such a name and finds the source in them: ``spark.read.format("indexlog")`` needs no registration."""

from logdevice_py.spark import IndexLogSource as DefaultSource

__all__ = ["DefaultSource"]
