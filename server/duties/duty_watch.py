"""Whether this node is to see to something for the cluster, and whether there is anything to see to.

A duty belongs to the node that sequences the log in which it stands what is wanted, or would sequence it, as that node itself sees the cluster.

1. A wrong view costs work, never more: two nodes may see to the same at a time, and for a moment nobody may. What they do has to bear that.
2. Whoever gets a duty looks once. After that it looks again when something was appended to the log: nothing runs while nothing is wanted.
3. What was appended while the work went on is not missed: the log's end is noted before the work begins.
4. Work that failed is tried again, ever more slowly; a duty that is lost ends its work at once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from logdevice_py.core.ids import LOG_TREE_DELTAS, MAINTENANCE_DELTAS, LogId
from logdevice_py.core.lsn import Lsn

RETRY_SECONDS_MIN: Final = 5.0
RETRY_SECONDS_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Duty:
    """Something that one node sees to."""

    name: str
    """What, for people and for the worker."""
    log: LogId
    """In which it stands what is wanted."""


MAINTENANCES: Final = Duty("maintenances", MAINTENANCE_DELTAS)
JANITORS: Final = Duty("janitors", LOG_TREE_DELTAS)
"""A stream is made with a log of the tree, so its log tells of each new one."""


class DutyStep(enum.Enum):
    """What the node does about a duty now."""

    NOTHING = "nothing"
    BEGIN = "begin"
    END = "end"


class DutyWatch:
    """One duty, as one node sees it. Times are seconds of any clock that only goes forward."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.is_working = False
        """The work is under way."""
        self.trouble = ""
        """Why it failed the last time; empty: it did not."""
        self._looked_at: Lsn | None = None
        self._failures = 0
        self._not_before = 0.0

    def look(self, *, is_mine: bool, end: Lsn, now: float) -> DutyStep:
        """What is to be done. After BEGIN the work is under way until `ended`.

        Args:
            is_mine: the duty belongs to this node.
            end: up to where the log goes, as far as this node knows; 0: it does not sequence it.
        """
        if not is_mine:
            self._looked_at, self._failures, self._not_before, self.trouble = None, 0, 0.0, ""
            return DutyStep.END if self.is_working else DutyStep.NOTHING
        if self.is_working or now < self._not_before or (self._looked_at is not None and end <= self._looked_at):
            return DutyStep.NOTHING
        self._looked_at = end
        self.is_working = True
        return DutyStep.BEGIN

    def ended(self, trouble: str, now: float) -> None:
        """The work has ended: nothing is left to do (empty), or it failed."""
        self.is_working = False
        self.trouble = trouble
        if not trouble:
            self._failures = 0
            return
        self._looked_at = None
        self._not_before = now + min(RETRY_SECONDS_MAX, RETRY_SECONDS_MIN * 2**self._failures)
        self._failures += 1
