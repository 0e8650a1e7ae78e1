"""What is known to be wrong with the copies that a shard should hold of one log, until it is repaired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import backoff
from logdevice_py.core.units import MILLISECOND, Micros
from storage_node.log_state import LogState
from storage_node.lsn_ranges import Range, remove_range
from storage_node.shard import Shard

RETRY_FIRST: Final = 500 * MILLISECOND
"""After an attempt; each one that repairs nothing doubles it."""


class LogDamage:
    """The unreadable and missing ranges of one log, its dirty ranges (`LogState.dirty`), and when they are repaired next."""

    __slots__ = ("_delays", "counted", "missing", "not_before", "noted", "state", "unreadable", "waits_for")

    def __init__(self, state: LogState) -> None:
        self.state = state
        self.unreadable: list[Range] = []
        """Something is stored there that cannot be read."""
        self.missing: list[Range] = []
        """Others hold copies that name this shard, which has none."""
        self.noted = False
        """Something was noted that no attempt has looked for yet."""
        self.not_before = Micros(0)
        """When it is worth to try again."""
        self.waits_for: str | None = None
        """What the last attempt lacked, for people."""
        self.counted = (0, 0)
        """Ranges, and whether there are dirty ones, as the metrics have them."""
        self._delays: Iterator[int] | None = None

    @property
    def empty(self) -> bool:
        """Nothing is left."""
        return not self.unreadable and not self.missing and self.state.dirty is None

    def forget_trimmed(self) -> None:
        """What is trimmed needs no repair."""
        trimmed = self.state.trim_point
        for ranges in (self.unreadable, self.missing):
            if ranges and ranges[0][0] <= trimmed:
                remove_range(ranges, Lsn(0), trimmed)
        self.state.forget_dirty(Lsn(0), trimmed)

    def next_delay(self, shard: Shard) -> int:
        """How long to wait until the next attempt."""
        if self._delays is None:
            longest = max(RETRY_FIRST, shard.settings.repair_retry_max_us)
            self._delays = backoff(shard.rng, initial_us=RETRY_FIRST, max_us=longest)
        return next(self._delays)

    def made_progress(self) -> None:
        """Something was repaired: the next delay is the first one again."""
        self._delays = None
