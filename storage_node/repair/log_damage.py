"""What is known to be damaged or missing of a log at a shard, until it is stored again."""

from __future__ import annotations

from typing import Final

from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import MILLISECOND, Micros
from storage_node.log_state import LogState
from storage_node.lsn_ranges import Range, remove_range

RETRY_FIRST: Final = 500 * MILLISECOND
"""After an attempt; each one that finds nothing doubles it."""


class LogDamage:
    """What is known to be wrong with a log here."""

    __slots__ = ("delay", "missing", "not_before", "state", "unreadable")

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.unreadable: list[Range] = []
        self.missing: list[Range] = []
        self.not_before = Micros(0)
        """When it is worth to try again."""
        self.delay = RETRY_FIRST

    @property
    def empty(self) -> bool:
        """Nothing is left."""
        return not self.unreadable and not self.missing

    def forget_trimmed(self) -> None:
        """What is trimmed needs no repair."""
        for ranges in (self.unreadable, self.missing):
            if ranges and ranges[0][0] <= self.state.trim_point:
                remove_range(ranges, Lsn(0), self.state.trim_point)
