"""`spark.read.format("logdevice")`: what Spark asks a data source for."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_NEEDED: Final = {
    "msgpack": "msgpack",
    "google_crc32c": "google-crc32c",
    "lz4": "lz4",
    "zstandard": "zstandard",
    "sortedcontainers": "sortedcontainers",
    "pyarrow": "pyarrow",
}
"""Packages by the name under which they are imported."""


def check_packages() -> None:
    """That this process can import what reading and writing take.

    Raises:
        ImportError: names every package that is missing, and the Python that misses it.
    """
    missing = [package for name, package in _NEEDED.items() if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the logdevice source needs {', '.join(missing)} in {sys.executable}, the Python of Spark's workers on this machine: "
            "install it there, or ship an environment that has it with --archives"
        )


class LogDeviceSource(DataSource):
    """Logs of a LogDevice cluster as a table. What it takes is imported when it is used: Spark loads this class in many processes."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return "logdevice"

    def schema(self) -> StructType:
        """The columns that follow from the options."""
        check_packages()
        from client.spark.options import SourceOptions
        from client.spark.schema import source_schema

        return source_schema(SourceOptions.lenient(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of one batch query."""
        check_packages()
        from client.spark.options import SourceOptions
        from client.spark.reader import LogDeviceReader, PushdownReader
        from client.spark.schema import chosen_schema

        options = SourceOptions.of(self.options)
        chosen = chosen_schema(schema, options)
        return PushdownReader(options, chosen) if options.pushdown else LogDeviceReader(options, chosen)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of one streaming query."""
        check_packages()
        from client.spark.options import SourceOptions
        from client.spark.schema import chosen_schema
        from client.spark.stream import LogDeviceStreamReader

        options = SourceOptions.of(self.options, streaming=True)
        return LogDeviceStreamReader(options, chosen_schema(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of one batch write."""
        check_packages()
        from client.spark.writer import LogDeviceWriter, contact, sink_options

        options = sink_options(self.options, schema, overwrite=overwrite)
        contact(options)
        return LogDeviceWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Of one streaming write."""
        check_packages()
        from client.spark.writer import LogDeviceStreamWriter, sink_options

        return LogDeviceStreamWriter(sink_options(self.options, schema, overwrite=overwrite, streaming=True))
