"""Spark looks for modules of such a name and finds the source in them: ``spark.read.format("logdevice")`` needs no registration."""

from logdevice_py.spark import LogDeviceSource as DefaultSource

__all__ = ["DefaultSource"]
