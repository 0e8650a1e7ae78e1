"""Where donors of rebuildings had copies stored of late.

A donor tells the others of a record's new copyset after the copies are stored. Until then nobody but the shard that took one knows that it belongs
there: whoever is asked what a damaged range should hold leaves it out.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND, Micros

_US: Final = 30 * SECOND
"""Longer than a donor waits for all that it has stored and tells."""


class DonatedCopies:
    """The ranges of one shard in which others may not know yet of its copies."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: deque[tuple[LogId, Lsn, Lsn, Micros]] = deque()

    def note(self, log: LogId, first: Lsn, last: Lsn, now: Micros) -> None:
        """A donor had copies from [first, last] stored here."""
        while self._ranges and now - self._ranges[0][3] >= _US:
            self._ranges.popleft()
        self._ranges.append((log, first, last, now))

    def any_in(self, log: LogId, first: Lsn, last: Lsn, now: Micros) -> bool:
        """Whether some in [first, last] may not be known to others yet."""
        return any(log == of and low <= last and first <= high and now - at < _US for of, low, high, at in self._ranges)
