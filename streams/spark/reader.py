"""Batch reading of a stream: the plan on the driver, a range of the stream's log on an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField

from client.spark.packages import check_packages
from client.spark.plain_errors import told_plainly
from client.spark.reader import LogPartition, task_options
from streams.spark.options import StreamOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from client.read.arrow_columns import Columns
    from client.spark.ranges import Cut
    from streams.attributes import TransactionIds
    from streams.spark.planning import StreamRange

TXID: Final = StructField("txid", LongType(), True)
"""The transaction id of a record; null: it was written to the stream's log without one."""


class StreamPartition(LogPartition):
    """One task's range of a stream's log, and where the rows begin and end in it."""

    def __init__(self, cut: Cut, cluster: str, within: StreamRange) -> None:
        super().__init__(cut, cluster)
        self.within = within


class StreamTableReader(DataSourceReader):
    """Of one DataFrame. Spark plans a DataFrame once, so all its actions see the same end of the stream."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @told_plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The plan, with the stream's log, its first record and its end fixed."""
        from client.spark.connection import planning_client
        from logdevice_py.config.render import render_cluster
        from streams.spark.planning import stream_plan

        with planning_client(self._options.source.cluster, self._options.source.access) as client:
            plan = client.run(lambda inner: stream_plan(inner, self._options))
            text = render_cluster(client.config)
        return [StreamPartition(cut, text, plan.range) for cut in plan.cuts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A function of the partition alone: a task that is tried again gives the same rows."""
        return stream_rows(partition, self._options, self._schema)


def stream_rows(partition: InputPartition, options: StreamOptions, chosen: StructType) -> Iterator[Any]:
    """The Arrow batches of a task."""
    check_packages()
    if not isinstance(partition, StreamPartition):
        return iter(())  # Spark's stand-in for a plan without partitions
    return _rows(partition, options, chosen)


def _rows(partition: StreamPartition, options: StreamOptions, chosen: StructType) -> Iterator[Any]:
    from client.read.arrow_columns import ArrowColumns
    from client.spark.connection import client_for
    from client.spark.schema import arrow_schema
    from client.spark.task import read_range
    from streams.records import within
    from streams.spark.planning import open_reader

    found, cut = partition.within, partition.value
    timeout = options.source.request_timeout_us / 1e6
    # a client that was opened for an earlier task may not know the log yet
    client_for(partition.cluster, options.source.access).run(
        lambda inner: inner.get_log_group(found.log, timeout=timeout)
    )
    schema = arrow_schema(chosen)
    columns = ArrowColumns(schema, cut.log, cut.group, {TXID.name: partial(txid_column, found.kind)})
    return read_range(
        cut,
        schema,
        task_options(partition, options.source),
        columns,
        lambda batch: within(batch, first=found.first, until=found.until),
        partial(open_reader, found) if found.copies else None,
    )


def txid_column(kind: TransactionIds, batch: Columns) -> Any:
    """The transaction id of each record of a batch; those that no BIGINT holds are none."""
    import pyarrow as pa

    from streams.records import txids_of

    return pa.array(txids_of(kind, batch), pa.int64())
