"""`spark.read.format("logdevice")`: logs and streams behind one name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.spark.options import refusal
from client.spark.packages import check_packages
from client.spark.plain_errors import told_plainly
from client.spark.source import LogDeviceSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class LogAndStreamSource(LogDeviceSource):
    """Logs of a LogDevice cluster as a table, and streams: what begins with ``stream:`` is the path of one."""

    @told_plainly
    def schema(self) -> StructType:
        """The columns that follow from the options. Whether the stream exists is looked for when it is read."""
        from streams.spark.options import StreamOptions, is_stream

        if not is_stream(self.options):
            return super().schema()
        check_packages()
        from client.spark.schema import source_schema
        from streams.spark.reader import TXID

        return source_schema(StreamOptions.of(self.options, streaming=None).source, [TXID])

    @told_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Of one batch query."""
        from streams.spark.options import StreamOptions, is_stream

        if not is_stream(self.options):
            return super().reader(schema)
        check_packages()
        from client.spark.schema import chosen_schema
        from streams.spark.reader import TXID, StreamTableReader

        options = StreamOptions.of(self.options)
        return StreamTableReader(options, chosen_schema(schema, options.source, [TXID]))

    @told_plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Of one streaming query."""
        from streams.spark.options import StreamOptions, is_stream

        if not is_stream(self.options):
            return super().streamReader(schema)
        check_packages()
        from client.spark.schema import chosen_schema
        from streams.spark.batches import StreamBatches
        from streams.spark.reader import TXID

        options = StreamOptions.of(self.options, streaming=True)
        return StreamBatches(options, chosen_schema(schema, options.source, [TXID]))

    @told_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Of one batch write to logs."""
        self._refuse_stream("written from Spark: use its writers")
        return super().writer(schema, overwrite)

    @told_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Of one streaming write to logs."""
        self._refuse_stream("written from Spark: use its writers")
        return super().streamWriter(schema, overwrite)

    def _refuse_stream(self, what: str) -> None:
        from streams.spark.options import is_stream

        if is_stream(self.options):
            raise refusal(f"a stream cannot be {what}")
