"""Where the records of a log reach a timestamp: by the partitions' bounds first, then by halving the one partition that is left.

Timestamps grow with the LSNs of a log as far as the clocks of its sequencers agree; where they do not, an answer is some place at which
the timestamp is passed.
"""

from __future__ import annotations

from collections.abc import Callable

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import ReadResult, ReadShard, TimeRange
from storage_node.log_store.partitions import Partitions

_NOBODY = ShardId(0)


def find_time(
    read: Callable[[ReadShard], ReadResult],
    directory: Directory,
    partitions: Partitions,
    log: LogId,
    timestamp: Timestamp,
    first: Lsn,
    last: Lsn,
) -> TimeRange:
    """Search the copies that count of a log in [first, last]."""
    found = TimeRange(Status.OK, Lsn(first - 1), Lsn(last + 1))
    for partition, low, high in directory.overlapping(log, first, last):
        if partition != keys.UNPARTITIONED and partitions[partition].newest < timestamp:
            # nothing in it is as new; its end is looked for only if the answer lies right behind it
            found.before = high
            continue
        _halve(read, log, timestamp, low, high, found)
        if found.status is not Status.OK or found.reached <= last:
            break
    return found


def _halve(
    read: Callable[[ReadShard], ReadResult], log: LogId, timestamp: Timestamp, low: Lsn, high: Lsn, found: TimeRange
) -> None:
    """Narrow `found` by what is stored in [low, high]."""
    while low <= high:
        middle = Lsn((low + high) // 2)
        result = read(ReadShard(0, _NOBODY, log, middle, high, 1, 1))
        if result.status is not Status.OK or (result.corrupt and not result.entries):
            found.status = Status.FAILED
            return
        if not result.entries:
            high = Lsn(middle - 1)
            continue
        lsn, image = result.entries[0]
        if parse_header(image).timestamp < timestamp:
            found.before = lsn
            low = Lsn(lsn + 1)
        else:
            found.reached = lsn
            high = Lsn(middle - 1)
