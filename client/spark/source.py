"""`spark.read.format("logdevice")`: what Spark asks a data source for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from client.spark.packages import check_packages
from client.spark.plain_errors import told_plainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class LogDeviceSource(DataSource):
    """Logs of a LogDevice cluster as a table. What it takes is imported when it is used: Spark loads this class in many processes."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return "logdevice"

    @told_plainly
    def schema(self) -> StructType:
        """The columns that follow from the options. Called by ``load``, so that a log which does not exist is told there."""
        check_packages()
        from client.spark.connection import check_logs
        from client.spark.options import SourceOptions
        from client.spark.schema import source_schema

        options = SourceOptions.lenient(self.options)
        check_logs(options)
        return source_schema(options)

    @told_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Of one batch query."""
        check_packages()
        from client.spark.options import SourceOptions
        from client.spark.reader import LogDeviceReader, PushdownReader
        from client.spark.schema import chosen_schema

        options = SourceOptions.of(self.options)
        chosen = chosen_schema(schema, options)
        return PushdownReader(options, chosen) if options.pushdown else LogDeviceReader(options, chosen)

    @told_plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of one streaming query."""
        check_packages()
        from client.spark.options import SourceOptions
        from client.spark.schema import chosen_schema
        from client.spark.stream import LogDeviceStreamReader

        options = SourceOptions.of(self.options, streaming=True)
        return LogDeviceStreamReader(options, chosen_schema(schema, options))

    @told_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of one batch write."""
        check_packages()
        from client.spark.writer import LogDeviceWriter, contact, sink_options

        options = sink_options(self.options, schema, overwrite=overwrite)
        contact(options)
        return LogDeviceWriter(options)

    @told_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Of one streaming write."""
        check_packages()
        from client.spark.writer import LogDeviceStreamWriter, sink_options

        return LogDeviceStreamWriter(sink_options(self.options, schema, overwrite=overwrite, streaming=True))
