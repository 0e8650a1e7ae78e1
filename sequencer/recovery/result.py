"""What the recovery of a log came to."""

from __future__ import annotations

import bisect
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import Epoch, Esn, Lsn, epoch_of, esn_of
from logdevice_py.metadata.epoch_metadata import TailRecord


class RecoveryOutcome(enum.Enum):
    """How a recovery ended."""

    OK = "ok"  # every epoch below the one recovered for is clean
    PREEMPTED = "preempted"  # a sequencer of a later epoch took over


class Found(enum.Enum):
    """What recovery knows of one LSN."""

    ENTRY = "entry"  # it holds an entry, for ever
    HOLE = "hole"  # it holds none, for ever: an append that may have got it is certainly not applied
    UNKNOWN = "unknown"  # it was not looked at, or too many shards had lost their data


@dataclass(frozen=True, slots=True)
class EpochContents:
    """What one epoch holds after its recovery."""

    epoch: Epoch
    lng: Esn
    """Everything up to here is an entry."""
    entries: tuple[Esn, ...]
    """Ascending: the ESNs above `lng` that hold an entry."""
    lost: frozenset[Esn]
    """ESNs of which nothing certain is known although the recovery was authoritative."""
    tail: Esn
    """Greatest ESN that holds an entry, 0 if none."""
    authoritative: bool

    @property
    def nothing(self) -> bool:
        """It is certain that the epoch holds no entry at all."""
        return self.authoritative and not (self.tail or self.lng or self.entries or self.lost)

    def find(self, esn: Esn) -> Found:
        """What the ESN holds."""
        if 0 < esn <= self.lng:
            return Found.ENTRY
        at = bisect.bisect_left(self.entries, esn)
        if at < len(self.entries) and self.entries[at] == esn:
            return Found.ENTRY
        return Found.HOLE if self.authoritative and esn not in self.lost else Found.UNKNOWN


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The end of a `LogRecovery`."""

    log: LogId
    next_epoch: Epoch
    outcome: RecoveryOutcome
    tail: TailRecord | None = None
    """OK: the last entry of the epochs below `next_epoch`; None if the log never held any."""
    epochs: tuple[EpochContents, ...] = ()
    """OK: the epochs that this recovery recovered and those that it followed, ascending. Earlier ones are not known."""
    preempted_by_epoch: Epoch = field(default=Epoch(0))
    """PREEMPTED: the seal epoch that holds: the sequencer that set it is in the epoch above."""
    preempted_by_node: NodeId = field(default=NodeId(-1))
    """PREEMPTED: who set it; -1 when not known."""

    @property
    def authoritative(self) -> bool:
        """No epoch was recovered from shards that had lost their data."""
        return all(epoch.authoritative for epoch in self.epochs)


def find(epochs: Sequence[EpochContents], lsn: Lsn) -> Found:
    """What an LSN holds, for a redirected append that may have got it. `epochs`: of the recovery of all that is below the current one."""
    wanted = epoch_of(lsn)
    for recovered in epochs:
        if recovered.epoch == wanted:
            return recovered.find(esn_of(lsn))
    return Found.UNKNOWN
