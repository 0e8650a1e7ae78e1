"""What a store answers of its directory and partitions."""

from __future__ import annotations

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import DirectoryResult, LogSpan, ReadDirectory
from storage_node.log_store.partitions import NEVER, Partitions


def answer_directory(directory: Directory, partitions: Partitions, request: ReadDirectory) -> DirectoryResult:
    """Execute a `ReadDirectory`."""
    if request.spans_of is not None:
        return DirectoryResult(Status.OK, spans=_spans(directory, partitions, request.spans_of))
    highest_through = directory.highest_through
    found = [(log, highest_through(log, through)) for log, through in request.logs]
    return DirectoryResult(Status.OK, partitions.expiry(), partitions.newest_record(), found)


def _spans(directory: Directory, partitions: Partitions, wanted: tuple[LogId, Lsn, Lsn]) -> list[LogSpan]:
    spans = []
    for (number, first, last), size in directory.sized(*wanted):
        if number == keys.UNPARTITIONED:
            spans.append(LogSpan(first, last, Timestamp(0), NEVER, size))
        else:
            partition = partitions[number]
            spans.append(LogSpan(first, last, partition.oldest, partition.newest, size))
    return spans
