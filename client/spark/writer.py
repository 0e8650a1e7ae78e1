"""`df.write.format("logdevice")`: rows become records, each at least once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType

from client.spark.options import WRITING, known_options, refusal
from client.spark.source import check_packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

_PAYLOADS: Final = (BinaryType, StringType)
_IDS: Final = (IntegerType, LongType)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where rows go."""

    cluster: str
    """The text of the cluster file."""
    log: int | None
    """None: as the column log_id says."""
    compression: str | None


class AppendedRows(WriterCommitMessage):
    """What a task appended: by log how many records, and the first and last LSN of them."""

    def __init__(self, by_log: dict[int, tuple[int, int, int]]) -> None:
        self.by_log = by_log


def sink_options(given: Mapping[str, Any], schema: StructType, *, overwrite: bool) -> SinkOptions:
    """What a sink is to do with rows of a schema.

    Raises:
        LogDeviceError: INVALID_PARAM, NOTFOUND.
    """
    from client.spark.connection import cluster_text
    from logdevice_py.config.parse import load_cluster

    options = known_options(given, WRITING, "a write", "log")
    if overwrite:
        raise refusal('a log is appended to: use mode("append"); to give up what is there, trim it')
    text = cluster_text(options["cluster"])
    tree = load_cluster(text).logs
    columns = {field.name: field.dataType for field in schema}
    if not isinstance(columns.get("payload"), _PAYLOADS):
        raise refusal("the rows need a column payload, binary or string")
    log = None
    if "log" in options:
        if "log_id" in columns:
            raise refusal("the option log and the column log_id both say where rows go: drop one")
        log = int(tree.find(options["log"]))
    elif not isinstance(columns.get("log_id"), _IDS):
        raise refusal("where do rows go? Give the option log, or a column log_id of int or bigint")
    unused = sorted(columns.keys() - {"payload", "log_id"})
    if unused:
        raise refusal(
            f"a record has no place for the columns {', '.join(unused)}: select payload, and log_id if it says where rows go"
        )
    return SinkOptions(cluster=text, log=log, compression=options.get("compression"))


def _append(batches: Iterator[Any], options: SinkOptions) -> AppendedRows:
    check_packages()
    from client.spark.appending import append_batches

    return AppendedRows(append_batches(batches, options))


class LogDeviceWriter(DataSourceArrowWriter):
    """Of one batch write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Append the rows of a task, in their order for each log; ends when all are acknowledged."""
        return _append(iterator, self._options)


class LogDeviceStreamWriter(DataSourceStreamArrowWriter):
    """Of one streaming write."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """As `LogDeviceWriter.write`; a micro-batch that is tried again appends its rows again."""
        return _append(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: records are in the log once they are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays."""
