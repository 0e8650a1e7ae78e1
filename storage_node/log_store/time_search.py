"""Where the records of a log reach a timestamp: by the partitions' bounds first, then by searching the one that is left.

Timestamps grow with the LSNs of a log as far as the clocks of its sequencers agree; where they do not, an answer is some place at which
the timestamp is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from storage_node.log_store import keys
from storage_node.log_store.directory import Directory
from storage_node.log_store.interface import ReadResult, ReadShard, TimeRange
from storage_node.log_store.partitions import Partitions

_NOBODY: Final = ShardId(0)
_BLOCK_BYTES: Final = 16 << 10
_BLOCK_ENTRIES: Final = 64


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
        oldest = partitions[partition].oldest if partition != keys.UNPARTITIONED else timestamp
        _narrow(read, log, timestamp, oldest, low, high, found)
        if found.status is not Status.OK or found.reached <= last:
            break
    return found


def _narrow(
    read: Callable[[ReadShard], ReadResult],
    log: LogId,
    timestamp: Timestamp,
    oldest: Timestamp,
    low: Lsn,
    high: Lsn,
    found: TimeRange,
) -> None:
    """Narrow `found` by what is stored in [low, high], where no record is older than `oldest`.

    Each step reads from disk, so every other one looks where the timestamp would be if records came evenly, which they mostly do, and looks at
    as many entries as a block holds. The others halve what is left, so that the number of steps is bounded.
    """
    newest, width, guess = timestamp, 0, False
    while low <= high:
        middle = Lsn((low + high) // 2)
        if guess and oldest < timestamp < newest:
            expected = low + (high - low) * (timestamp - oldest) // (newest - oldest)
            middle = Lsn(max(low, expected - width // 2))
        guess = not guess
        result = read(ReadShard(0, _NOBODY, log, middle, high, _BLOCK_BYTES, _BLOCK_ENTRIES))
        if result.status is not Status.OK or result.corrupt:
            found.status = Status.FAILED
            return
        if not result.entries:
            high = Lsn(middle - 1)
            continue
        stamps = [parse_header(image).timestamp for _, image in result.entries]
        width = result.entries[-1][0] - middle
        reached = next((at for at, stamp in enumerate(stamps) if stamp >= timestamp), len(stamps))
        if reached:
            found.before, oldest = result.entries[reached - 1][0], stamps[reached - 1]
            low = Lsn(found.before + 1)
        else:
            high = Lsn(middle - 1)
        if reached < len(stamps):
            found.reached, newest = result.entries[reached][0], stamps[reached]
            if reached:
                return
