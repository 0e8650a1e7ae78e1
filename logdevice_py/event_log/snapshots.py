"""Which snapshot of the event log to begin with. Anybody may have written one, so the log is believed before any snapshot:

1. Needed: a snapshot is asked only for what the log does not have any more. Where the log has every event, no snapshot counts.
2. Earliest: of those that go as far as the log is trimmed the earliest state counts, and of equal ones the one that was written first. The log is
   trimmed up to the state of an honest snapshot, which is there by then; what the others say is in the log itself.
3. Possible: a snapshot that goes further than the log counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.event_log.rebuilding_set import RebuildingSet


@dataclass(slots=True)
class SnapshotChoice:
    """Looks through all snapshots, in the order in which they stand in their log."""

    needed: Lsn
    """As far as events are gone from the log."""
    _earliest: RebuildingSet | None = None
    """Of those that go as far as is needed."""
    _latest: RebuildingSet | None = None
    """Of the others."""
    _found: list[tuple[Lsn, Lsn]] = field(default_factory=list)

    def offer(self, snapshot: bytes, lsn: Lsn) -> None:
        """Look at the next one."""
        try:
            state = RebuildingSet.decode(snapshot)
        except CorruptEntryError:
            hit("event_log_snapshot_is_none")
            return
        self._found.append((state.version, lsn))
        if state.version >= self.needed:
            if self._earliest is None or state.version < self._earliest.version:
                self._earliest = state
        elif self._latest is None or state.version > self._latest.version:
            self._latest = state

    def choose(self, tail: Lsn, state: RebuildingSet) -> RebuildingSet:
        """The state to go on with.

        Args:
            tail: of the event log, asked for after the last snapshot was read.
            state: what is known without snapshots.
        """
        if state.version >= self.needed:
            return state
        found = self._earliest
        if found is not None and found.version > tail:
            hit("event_log_snapshot_of_the_future")
            found = None
        if found is None:
            # it is not there yet; meanwhile as much as is known
            found = self._latest
        return state if found is None or found.version <= state.version else found

    def removable(self, tail: Lsn, written: Lsn) -> tuple[Lsn, Lsn]:
        """Up to where events and snapshots can be trimmed by the node that wrote the one at `written`: snapshots before the one that goes furthest, of
        those that are possible."""
        newest = max((each for each in self._found if each[0] <= tail), default=(LSN_INVALID, LSN_INVALID))[1]
        return LSN_INVALID, Lsn(newest - 1) if LSN_INVALID < newest <= written else LSN_INVALID
