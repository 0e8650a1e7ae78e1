"""`spark.read.format("indexlog")`: the documents of all indexes of an index log, as of one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from client.spark.packages import check_packages
from client.spark.plain_errors import told_plainly

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from indexlog.spark.options import IndexOptions
    from indexlog.spark.planning import PlannedRead


class IndexLogSource(DataSource):
    """Documents as rows. What it takes is imported when it is used: Spark loads this class in many processes."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return "indexlog"

    @told_plainly
    def schema(self) -> StructType:
        """The columns: always the same ones. Whether there is an index log is looked for when it is read."""
        check_packages()
        from indexlog.spark.options import IndexOptions
        from indexlog.spark.schema import DOCUMENTS

        IndexOptions.of(self.options)
        return DOCUMENTS

    @told_plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """Of one batch query; a schema that names some of the columns spares the others."""
        check_packages()
        from indexlog.spark.options import IndexOptions
        from indexlog.spark.schema import chosen

        return IndexLogReader(IndexOptions.of(self.options), chosen(schema))


class PlannedPartition(InputPartition):
    """What one task reads."""

    def __init__(self, read: PlannedRead) -> None:
        super().__init__(read)


class IndexLogReader(DataSourceReader):
    """Of one DataFrame. Spark plans a DataFrame once, so all its actions see the same state, while the files of that are kept."""

    def __init__(self, options: IndexOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @told_plainly
    def partitions(self) -> Sequence[InputPartition]:
        """The plan, with the state and the last LSN of each raw log fixed."""
        from client.client import Client
        from client.spark.connection import planning_client
        from indexlog.index_log import IndexLog
        from indexlog.spark.planning import plan_read

        options = self._options

        async def plan(client: Client) -> list[PlannedRead]:
            async with IndexLog(client, options.path) as log:
                return await log.run(plan_read(lambda: log.state, log.store, options))

        with planning_client(options.cluster, options.access) as client:
            return [PlannedPartition(read) for read in client.run(plan)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A function of the partition alone: a task that is tried again gives the same rows."""
        check_packages()
        if not isinstance(partition, PlannedPartition):
            return iter(())  # Spark's stand-in for a plan without partitions
        return self._rows(partition.value)

    def _rows(self, read: PlannedRead) -> Iterator[Any]:
        from client.spark.schema import arrow_schema
        from indexlog.local_store import open_store
        from indexlog.spark.planning import documents_of, read_piece

        wanted, store = arrow_schema(self._schema), open_store(read.store)
        for piece in read.pieces:
            for table in read_piece(store, read.serial, piece):
                yield documents_of(table, piece.index, wanted)
