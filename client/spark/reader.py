"""Batch reading: the plan on the driver, the range on an executor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from client.spark.options import SourceOptions
from client.spark.packages import check_packages
from client.spark.plain_errors import told_plainly

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from client.spark.planning import Restriction
    from client.spark.ranges import Cut
    from client.spark.task import TaskOptions


class LogPartition(InputPartition):
    """One task's range."""

    def __init__(self, cut: Cut, cluster: str) -> None:
        super().__init__(cut)
        self.cluster = cluster
        """The text of the cluster file when the plan was made."""


def task_options(partition: LogPartition, options: SourceOptions) -> TaskOptions:
    """What a task needs to know besides its range."""
    from client.spark.task import TaskOptions

    return TaskOptions(
        cluster=partition.cluster,
        access=options.access,
        on_gap=options.on_gap,
        include_gaps=options.include_gaps,
        include_proof=options.include_proof,
        read_timeout_us=options.read_timeout_us,
    )


def read_partition(partition: InputPartition, options: SourceOptions, schema: StructType) -> Iterator[Any]:
    """The Arrow batches of a task."""
    check_packages()
    from client.spark.schema import arrow_schema
    from client.spark.task import read_range

    if not isinstance(partition, LogPartition):
        return iter(())  # Spark's stand-in for a plan without partitions
    return read_range(partition.value, arrow_schema(schema), task_options(partition, options))


class LogDeviceReader(DataSourceReader):
    """Of one DataFrame. Spark plans a DataFrame once, so all its actions see the same end of every log."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @told_plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The plan, with the last LSN of every log fixed."""
        return self._plan(None)

    def _plan(self, restriction: Restriction | None) -> Sequence[InputPartition]:
        from client.spark.connection import planning_client
        from client.spark.planning import Restriction, plan
        from logdevice_py.config.render import render_cluster

        with planning_client(self._options.cluster, self._options.access) as client:
            cuts = client.run(lambda inner: plan(inner, self._options, restriction or Restriction()))
            text = render_cluster(client.config)
        return [LogPartition(cut, text) for cut in cuts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A function of the partition alone: a task that is tried again gives the same rows."""
        return read_partition(partition, self._options, self._schema)


class PushdownReader(LogDeviceReader):
    """With filters on log_id, lsn and timestamp. A class of its own: Spark refuses every query on a reader that takes filters unless its
    setting for that is on."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._restriction: Restriction | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take what narrows the plan; give back what Spark has to apply to the rows."""
        from client.spark.filters import restrict

        self._restriction, rest = restrict(filters, rows_without_lsn=self._options.has_marks)
        return rest

    @told_plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The plan that the filters leave."""
        return self._plan(self._restriction)
