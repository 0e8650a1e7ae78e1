"""What a store answers of its directory and partitions."""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import DirectoryResult, LogSpan, ReadDirectory
from storage_node.log_store.partitions import NEVER, Partitions


def answer_directory(
    directory: Directory, partitions: Partitions, request: ReadDirectory, space_end: int
) -> DirectoryResult:
    """Execute a `ReadDirectory`. `space_end`: as in the result."""
    if request.spans_of is not None:
        return DirectoryResult(Status.OK, spans=_spans(directory, partitions, request.spans_of))
    highest_through = directory.highest_through
    found = [(log, highest_through(log, through)) for log, through in request.logs]
    return DirectoryResult(Status.OK, partitions.expiry(), partitions.newest_record(), found, space_end)


def last_to_trim(partitions: Partitions, size_of: Callable[[int], int], wanted: int) -> int:
    """The last of the oldest partitions that hold so many bytes together, as far as partitions are closed; 0: none is wanted, or is closed."""
    end = 0
    for partition in partitions:
        if wanted <= 0 or partition is partitions.latest:
            break
        end = partition.number
        wanted -= size_of(end)
    return end


def _spans(directory: Directory, partitions: Partitions, wanted: tuple[LogId, Lsn, Lsn]) -> list[LogSpan]:
    spans = []
    for (number, first, last), size in directory.sized(*wanted):
        if number == keys.UNPARTITIONED:
            spans.append(LogSpan(first, last, Timestamp(0), NEVER, size))
        else:
            partition = partitions[number]
            spans.append(LogSpan(first, last, partition.oldest, partition.newest, size))
    return spans
