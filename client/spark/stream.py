"""`spark.readStream.format("logdevice")`: micro-batches from offsets that say the next LSN of every log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from client.spark.options import SourceOptions, refusal
from client.spark.reader import LogPartition, read_partition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from client.spark.triggers import Load
    from client.sync import SyncClient


def offset_of(positions: dict[int, int]) -> dict[str, str]:
    """What Spark keeps: LSNs as text, because JSON's numbers may be doubles, in the order of the logs, because Spark compares the text."""
    return {str(log): str(positions[log]) for log in sorted(positions)}


def positions_of(offset: dict[str, str]) -> dict[int, int]:
    """The next LSN by log.

    Raises:
        LogDeviceError: INVALID_PARAM: the checkpoint is not of this source.
    """
    try:
        return {int(log): int(lsn) for log, lsn in offset.items()}
    except (ValueError, TypeError, AttributeError):
        raise refusal(f"the checkpoint holds no offsets of this source: {json.dumps(offset)[:200]}") from None


def read_limit(options: SourceOptions) -> ReadLimit:
    """Of a micro-batch. Spark knows no limit of records and bytes at once: of both it is told the records."""
    records, size = options.trigger_records_max, options.trigger_bytes_max
    if records is not None:
        return ReadMaxRows(records)
    return ReadAllAvailable() if size is None else ReadMaxBytes(size)


def load_of(options: SourceOptions, limit: ReadLimit) -> Load | None:
    """What a micro-batch may hold; None: everything."""
    from client.spark.triggers import UNLIMITED, Load

    if not isinstance(limit, ReadMaxRows | ReadMaxBytes):
        return None
    records, size = options.trigger_records_max or UNLIMITED, options.trigger_bytes_max or UNLIMITED
    if isinstance(limit, ReadMaxRows):
        return Load(limit.max_rows, size)
    return Load(records, limit.max_bytes)


class LogDeviceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of one streaming query; lives on the driver, in a process of its own, and reads on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: dict[int, int] | None = None
        """Where a run over what is available ends."""
        self._client: SyncClient | None = None
        self._turn = 0

    def __getstate__(self) -> dict[str, Any]:
        """For executors: they have clients of their own."""
        return {**self.__dict__, "_client": None}

    def _opened(self) -> SyncClient:
        """The client of this process. It follows the cluster file, when there is one: logs may be added."""
        if self._client is None:
            from client.sync import SyncClient
            from logdevice_py.config.parse import load_cluster

            cluster = self._options.cluster
            self._client = SyncClient(
                load_cluster(cluster) if "\n" in cluster else cluster,
                name="spark stream",
                identity=self._options.access.identity(),
            )
        return self._client

    def initialOffset(self) -> dict[str, str]:
        """Where a query without a checkpoint begins."""
        from client.spark.triggers import first_positions

        return offset_of(self._opened().run(lambda client: first_positions(client, self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options say."""
        return read_limit(self._options)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The end of the next micro-batch: the tails, or as far as the limits of records and bytes go."""
        from client.spark.triggers import bounded_positions, tail_positions

        begin = positions_of(start)
        client, target = self._opened(), self._target
        end = target or client.run(lambda inner: tail_positions(inner, self._options))
        # what a log was read to stays, should its tail be told from an earlier moment, or its name not be among the options any more
        end = {**begin, **{log: max(lsn, begin.get(log, 0)) for log, lsn in end.items()}}
        most, turn = load_of(self._options, limit), self._turn
        if most is not None:
            end = client.run(lambda inner: bounded_positions(inner, self._options, begin, end, most, turn))
            self._turn += 1
        return offset_of(end)

    def reportLatestOffset(self) -> dict[str, str] | None:
        """The tails, for the query's progress."""
        from client.spark.triggers import tail_positions

        return offset_of(self._opened().run(lambda client: tail_positions(client, self._options)))

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there at this moment is the end of the run."""
        from client.spark.triggers import tail_positions

        self._target = self._opened().run(lambda client: tail_positions(client, self._options))

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The ranges of each log that has something between the offsets, the same whenever this is asked. A log that is not in `start` begins at
        its oldest LSN."""
        from client.spark.triggers import ranges_between
        from logdevice_py.config.render import render_cluster

        begin, until = positions_of(start), positions_of(end)
        client = self._opened()
        cuts = client.run(lambda inner: ranges_between(inner, begin, until, self._options.min_partitions))
        text = render_cluster(client.config)
        return [LogPartition(cut, text) for cut in cuts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A function of the partition alone: a task that is tried again gives the same rows."""
        return read_partition(partition, self._options, self._schema)

    def commit(self, end: dict[str, str]) -> None:
        """Spark's checkpoint is all that is kept: the cluster knows nothing of a query."""

    def stop(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None
