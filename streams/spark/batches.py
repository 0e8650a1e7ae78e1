"""`spark.readStream.format("logdevice").load("stream:/streams/orders")`: micro-batches of a stream, from offsets that say its next record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from client.guards import Position
from client.spark.options import refusal
from client.spark.stream import load_of, read_limit
from logdevice_py.core.lsn import LSN
from streams.spark.options import StreamOptions
from streams.spark.reader import StreamPartition, stream_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from client.sync import SyncClient
    from streams.stream import Stream


def offset_of(log: int, position: Position) -> dict[str, str]:
    """What Spark keeps, as text: JSON's numbers may be doubles."""
    return {"log": str(log), "lsn": str(int(position.lsn)), "batch_offset": str(position.batch_offset)}


def position_of(offset: dict[str, str], log: int) -> Position:
    """The next record.

    Raises:
        LogDeviceError: INVALID_PARAM: the checkpoint is not of this stream.
    """
    try:
        kept, lsn, batch_offset = int(offset["log"]), int(offset["lsn"]), int(offset["batch_offset"])
    except (ValueError, TypeError, KeyError):
        raise refusal(f"the checkpoint holds no offsets of a stream: {json.dumps(offset)[:200]}") from None
    if kept != log:
        raise refusal(
            f"the checkpoint is of another stream of this name, with log {kept}; this one has log {log}: begin with a new checkpoint"
        )
    return Position(LSN(lsn), batch_offset)


class StreamBatches(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of one streaming query; lives on the driver, in a process of its own, and reads on executors."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Position | None = None
        """Where a run over what is available ends."""
        self._opened: tuple[SyncClient, Stream] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """For executors: they have clients of their own."""
        return {**self.__dict__, "_opened": None}

    def _open(self) -> tuple[SyncClient, Stream]:
        """The client and the stream of this process."""
        if self._opened is None:
            from client.sync import SyncClient
            from logdevice_py.config.parse import load_cluster
            from streams.spark.planning import find_stream

            cluster = self._options.source.cluster
            client = SyncClient(
                load_cluster(cluster) if "\n" in cluster else cluster,
                name="spark stream",
                identity=self._options.source.access.identity(),
            )
            try:
                self._opened = client, client.run(lambda inner: find_stream(inner, self._options))
            except BaseException:
                client.close()
                raise
        return self._opened

    def _tail(self) -> Position:
        from streams.spark.planning import behind_tail

        client, stream = self._open()
        return client.run(lambda inner: behind_tail(inner, stream, self._options))

    def initialOffset(self) -> dict[str, str]:
        """Where a query without a checkpoint begins."""
        from streams.spark.planning import first_position

        client, stream = self._open()
        return offset_of(stream.log, client.run(lambda inner: first_position(inner, stream, self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the options say."""
        return read_limit(self._options.source)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """The end of the next micro-batch: the tail, or as far as the limits of records and bytes go."""
        from client.spark.triggers import bounded_positions

        client, stream = self._open()
        begin = position_of(start, stream.log)
        end = max(self._target or self._tail(), begin)
        most = load_of(self._options.source, limit)
        if most is not None and begin < end:
            first, last = {int(stream.log): int(begin.lsn)}, {int(stream.log): int(end.lsn)}
            found = client.run(lambda inner: bounded_positions(inner, self._options.source, first, last, most, 0))
            end = max(begin, Position(LSN(found[stream.log]), 0))
        return offset_of(stream.log, end)

    def reportLatestOffset(self) -> dict[str, str] | None:
        """The tail, for the query's progress."""
        return offset_of(self._open()[1].log, self._tail())

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there at this moment is the end of the run."""
        self._target = self._tail()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """The ranges of the stream's log between the offsets, and of the copies of what it does not have any more."""
        from logdevice_py.config.render import render_cluster
        from streams.spark.planning import plan_between

        client, stream = self._open()
        begin, until = position_of(start, stream.log), position_of(end, stream.log)
        plan = client.run(lambda inner: plan_between(inner, stream, self._options, begin, until))
        text = render_cluster(client.config)
        return [StreamPartition(cut, text, plan.range) for cut in plan.cuts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """A function of the partition alone: a task that is tried again gives the same rows."""
        return stream_rows(partition, self._options, self._schema)

    def commit(self, end: dict[str, str]) -> None:
        """Spark's checkpoint is all that is kept: the cluster knows nothing of a query."""

    def stop(self) -> None:
        """Disconnect."""
        if self._opened is not None:
            client, stream = self._opened
            self._opened = None
            client.run(lambda inner: stream.namespace.close())
            client.close()
