"""`df.write.format("logdevice")` and the streaming sink: rows become records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType

from client.spark.access import ClusterAccess
from client.spark.options import STREAM_WRITING, WRITING, known_options, once_options, refusal
from client.spark.packages import check_packages
from client.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark import TaskContext
    from pyspark.sql.types import StructType

    from client.spark.appending import TaskAppends
    from client.spark.naming import WriteName

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_BYTES: Final = (BinaryType, StringType)
_IDS: Final = (IntegerType, LongType)
_LOGS_ASKED: Final = 3
"""Where rows go to many logs: the first ones of so many groups; one that answers is enough."""


class AppendedRows(WriterCommitMessage):
    """What a task appended."""

    def __init__(self, appended: TaskAppends) -> None:
        self.appended = appended


def check_partitions(messages: Sequence[WriterCommitMessage | None]) -> None:
    """That no log holds records of partitions which have no rows for it: these are rows of another partition, which may have appended them again.

    Spark tells nobody the number of partitions before all tasks have ended, and a task without rows for a log does not look into it.

    Args:
        messages: one for each partition.

    Raises:
        LogDeviceError: INVALID_PARAM: before, it was written with other partitions.
    """
    stored: dict[int, int] = {}
    present: dict[int, int] = {}
    for each in messages:
        if isinstance(each, AppendedRows) and each.appended.partition is not None:
            for log, partitions in each.appended.partitions.items():
                stored[log] = stored.get(log, 0) | partitions
                present[log] = present.get(log, 0) | 1 << each.appended.partition
    other = sorted(log for log, partitions in stored.items() if partitions & ~present[log])
    if other:
        raise refusal(
            f"this write has {len(messages)} partitions; it was begun before with others. Rows may be twice in the logs "
            f"{', '.join(map(str, other))}: only the same rows in the same partitions are appended once"
        )


def sink_options(
    given: Mapping[str, Any], schema: StructType, *, overwrite: bool, streaming: bool = False
) -> SinkOptions:
    """What a sink is to do with rows of a schema.

    Raises:
        LogDeviceError: INVALID_PARAM, NOTFOUND.
    """
    from client.spark.connection import cluster_text
    from client.write.batching import COMPRESSIONS

    known, what = (STREAM_WRITING, "a streaming write") if streaming else (WRITING, "a write")
    options = known_options(given, known, what, "log")
    once = once_options(options)
    if not streaming and once.since is not None and once.job is None:
        raise refusal("since is given without a jobId: only what is appended once is looked for")
    if options.get("keysfile", "").strip() and (once.exact if streaming else once.job is not None):
        which = "with delivery=atLeastOnce" if streaming else "without a jobId"
        raise refusal(f"keysFile: rows that are encrypted are appended at least once: write them {which}")
    if options.get("compression", "none") not in COMPRESSIONS:
        raise refusal(f"compression is {options['compression']!r}; it must be one of {', '.join(COMPRESSIONS)}")
    if overwrite and streaming:
        raise refusal(
            'a log is appended to, so there is no outputMode("complete"): append a changing aggregate from foreachBatch, with a jobId'
        )
    if overwrite:
        raise refusal('a log is appended to: use mode("append"); to delete what is there, trim it')
    text = cluster_text(options["cluster"])
    columns = {field.name: field.dataType for field in schema}
    if not isinstance(columns.get("payload"), _BYTES):
        raise refusal("the rows need a column payload, binary or string")
    if "key" in columns and not isinstance(columns["key"], _BYTES):
        raise refusal(f"the column key is {columns['key'].simpleString()}; the keys of records are binary or string")
    log = None
    if "log" in options:
        if "log_id" in columns:
            raise refusal("the option log and the column log_id both say where rows go: drop one")
        text, log = _found_log(options["log"], text, _access(options))
    elif not isinstance(columns.get("log_id"), _IDS):
        raise refusal("where do rows go? Give the option log, or a column log_id of int or bigint")
    unused = sorted(columns.keys() - {"payload", "key", "log_id"})
    if unused:
        raise refusal(
            f"a record has no place for the columns {', '.join(unused)}: select payload, key if rows have keys, and log_id if it says where they go"
        )
    return SinkOptions(
        cluster=text,
        access=_access(options),
        log=log,
        compression=options.get("compression"),
        job=once.job,
        exact=once.exact,
        since=_began(options.get("checkpointlocation")) if once.since is None else once.since,
        read_timeout_us=once.read_timeout_us,
        request_timeout_us=once.request_timeout_us,
    )


def _found_log(name: str, text: str, access: ClusterAccess) -> tuple[str, int]:
    """The text of a configuration that has the log, and its id. Nodes are asked only where the text that was given does not have it."""
    from client.spark.connection import planning_client
    from logdevice_py.config.parse import load_cluster
    from logdevice_py.config.render import render_cluster
    from logdevice_py.core.status import LogDeviceError, Status

    try:
        return text, int(load_cluster(text).logs.find(name))
    except LogDeviceError as error:
        if error.status is not Status.NOTFOUND:
            raise
    with planning_client(text, access) as client:
        return render_cluster(client.config), int(client.config.logs.find(name))


def _access(given: Mapping[str, str]) -> ClusterAccess:
    access = ClusterAccess.of(given)
    keys = access.keys()
    if keys is not None:
        keys.writing()  # what cannot encrypt fails here rather than in each task
    return access


def _began(checkpoint: str | None) -> int | None:
    """When a query was first started, Unix UTC microseconds, if the driver's Python sees its checkpoint as files."""
    if checkpoint is None:
        return None
    path = Path(re.sub(r"^file:/+", "/", checkpoint)) / "metadata"
    try:
        return path.stat().st_mtime_ns // 1000
    except OSError:
        return None


def contact(options: SinkOptions) -> None:
    """See that the cluster answers: tasks would try for minutes, each of them several times.

    Raises:
        LogDeviceError: no log answered within the request timeout.
    """
    from client.spark.planning import any_answers
    from client.sync import SyncClient
    from logdevice_py.config.parse import load_cluster
    from logdevice_py.core.ids import LogId

    config = load_cluster(options.cluster)
    asked = [group.lo for group in config.logs.groups[:_LOGS_ASKED]] if options.log is None else [options.log]
    with SyncClient(config, name="spark planning", identity=options.access.identity()) as client:
        client.run(lambda inner: any_answers(inner, list(map(LogId, asked)), options.request_timeout_us))


def _append(batches: Iterator[Any], options: SinkOptions, name: WriteName | None) -> AppendedRows:
    from client.spark.appending import append_batches

    return AppendedRows(append_batches(batches, options, name))


def _task() -> TaskContext:
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        raise refusal("rows are written outside of a task of Spark's: they cannot be written exactly once")
    return task


class LogDeviceWriter(DataSourceArrowWriter):
    """Of one batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append the rows of a task, in their order for each log; ends when all are acknowledged."""
        check_packages()
        from client.spark.naming import WriteName

        job = self._options.job
        return _append(iterator, self._options, None if job is None else WriteName.of_job(job, _task().partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Records are in the log once they are acknowledged; it is left to see that they are those of an earlier run, too.

        Raises:
            LogDeviceError: as `check_partitions`.
        """
        check_packages()
        check_partitions(messages)


class LogDeviceStreamWriter(DataSourceStreamArrowWriter):
    """Of one streaming write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """As `LogDeviceWriter.write`; rows that an earlier try of the micro-batch appended are left out."""
        check_packages()
        from client.spark.naming import WriteName

        name = None
        if self._options.exact:
            task = _task()
            query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
            if query is None or batch is None:
                raise refusal(f"Spark does not tell the task {_QUERY} and {_BATCH}: write with delivery=atLeastOnce")
            name = WriteName.of_query(query, int(batch), task.partitionId())
        return _append(iterator, self._options, name)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As `LogDeviceWriter.commit`."""
        check_packages()
        check_partitions(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays; the next try finds it."""
