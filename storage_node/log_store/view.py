"""What a store holds, for those who look at it. They change nothing, and take in that it changes between two looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from storage_node.log_store.directory import Directory
from storage_node.log_store.metrics import RocksDBMetrics
from storage_node.log_store.partitions import Partitions
from storage_node.log_store.wanted import Wants


class ExtentFacts(NamedTuple):
    """What an extent holds, for those who look."""

    number: int
    first_block: int
    last_block: int
    size: int
    used: int
    copies: int
    partitions: tuple[int, ...]
    state: str
    """``head``, ``closed`` (its rows are in memory), ``indexed``, ``moved`` (holds copies that were taken out of others)"""


@dataclass(frozen=True, slots=True)
class StoreView:
    """An open store."""

    directory: Directory
    partitions: Partitions
    size_of: Callable[[int], int]
    """About how many bytes a partition takes in files and memtables; 0 of one that is gone."""
    superseded: Callable[[LogId, Lsn, Lsn, Wants | None], list[tuple[Lsn, bytes]]]
    """The copies (LSN, image) of a log within a range that do not count, because there is one of higher rank at their LSN; none where
    something is damaged. Copies of the same LSN come by ascending rank. Bodies that are not wanted, or cannot be read, may be missing."""
    measure: Callable[[], RocksDBMetrics | None]
    """What the database says of itself; None: there is none."""
    spare: Callable[[], int]
    """How many bytes its file system takes before copies that rebuilding brings are refused, as measured last."""
    extents: Callable[[], list[ExtentFacts]] = list
    """What each extent holds, ascending; none of a store that has none."""

    def stored_bytes(self) -> int:
        """About how many bytes all partitions take."""
        return sum(self.size_of(partition.number) for partition in self.partitions)
