"""What a store holds, for those who look at it. They change nothing, and take in that it changes between two looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage_node.log_store.directory import Directory
from storage_node.log_store.partitions import Partitions


@dataclass(frozen=True, slots=True)
class StoreView:
    """An open store."""

    directory: Directory
    partitions: Partitions
    size_of: Callable[[int], int]
    """About how many bytes a partition takes in files and memtables; 0 of one that is gone."""

    def stored_bytes(self) -> int:
        """About how many bytes all partitions take."""
        return sum(self.size_of(partition.number) for partition in self.partitions)
