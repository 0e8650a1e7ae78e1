"""The segments of a log: its non-empty epochs, and what each holds."""

from __future__ import annotations

import datetime as dt
import enum
from dataclasses import dataclass
from typing import Final

from client.look_up.epochs_request import KnownEpochs
from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary, SummaryFlags
from logdevice_py.core.lsn import ESN_MIN, LSN, LSN_INVALID, Epoch, Lsn, compose_lsn, epoch_of
from logdevice_py.core.units import Timestamp, utc_datetime

_NOWHERE: Final = LSN(LSN_INVALID)
_COUNTED: Final = int(SummaryFlags.COUNTED)
_AUTHORITATIVE: Final = int(SummaryFlags.AUTHORITATIVE)


class SegmentState(enum.Enum):
    """How much is known of a segment."""

    IN_PROGRESS = "in progress"  # its sequencer still appends to it
    COMPLETED = "completed"  # nothing of it changes any more
    UNKNOWN = "unknown"  # it is over, and no shard that answered knows what it holds, perhaps nothing


_COMPLETED: Final = SegmentState.COMPLETED


@dataclass(slots=True, repr=False)
class LogSegment:
    """A non-empty epoch of a log. What is trimmed of it counts."""

    epoch: int
    state: SegmentState
    first_lsn: LSN
    """No record of the segment lies before it. Of a log that rolls or is guarded, its first record."""
    last_lsn: LSN | None
    """Its last record so far; None: unknown."""
    entries: int | None
    """LSNs with records. This and the following are None where they are not known, as in logs that do not roll and are not guarded."""
    records: int | None
    bytes: int | None
    """Of bodies as they are stored, one copy each."""
    first_timestamp: Timestamp | None
    last_timestamp: Timestamp | None
    """Of its last record."""
    completed: Timestamp | None
    """When it was decided what it holds, by the clock of the node that recovered it."""
    first_txid: int | None
    """The first transaction id; None: there is none, or it is not known."""
    last_txid: int | None
    lost: int
    """LSNs of which nothing was readable when the segment was completed."""
    authoritative: bool
    """False: too many shards had lost their data when it was completed, and more may be missing."""
    trimmed_to: LSN
    """The trim point if it lies within the segment; 0: nothing of the segment is trimmed."""

    @property
    def began(self) -> dt.datetime | None:
        """The time of its first record, in UTC."""
        return None if self.first_timestamp is None else utc_datetime(self.first_timestamp)

    def __repr__(self) -> str:
        last = "?" if self.last_lsn is None else str(self.last_lsn)
        records = "" if self.records is None else f", {self.records} records, {self.bytes} bytes"
        return f"<LogSegment {self.first_lsn}..{last}: {self.state.value}{records}>"


def completed_segment(epoch: Epoch, summary: EpochSummary, trim_point: Lsn) -> LogSegment:
    """By what recovery left."""
    flags, _, first, last, entries, lost, records, size, began, ended, completed, first_txid, last_txid = summary
    base = epoch << 32
    segment = LogSegment(
        epoch,
        _COMPLETED,
        LSN(base | (first or 1)),
        LSN(base | last),
        entries or None,
        records,
        size,
        began,
        ended,
        completed or None,
        first_txid or None,
        last_txid or None,
        lost,
        flags & _AUTHORITATIVE != 0,
        LSN(trim_point) if trim_point >> 32 == epoch else _NOWHERE,
    )
    if not flags & _COUNTED:
        segment.records = segment.bytes = segment.first_timestamp = None
    return segment


def unknown_segment(epoch: Epoch, trim_point: Lsn) -> LogSegment:
    """Of an epoch of which nobody says how it ended."""
    return LogSegment(
        epoch,
        SegmentState.UNKNOWN,
        LSN(compose_lsn(epoch, ESN_MIN)),
        *(None, None, None, None, None, None, None, None, None),
        0,
        False,
        LSN(trim_point if trim_point >> 32 == epoch else LSN_INVALID),
    )


def listed_segments(known: KnownEpochs, first: Epoch, start: Lsn) -> list[LogSegment]:
    """The completed segments from epoch `first` on that end at `start` or later."""
    trim_point, summaries = known.trim_point, known.summaries
    found, passed = [], max(trim_point, start - 1)
    epoch: Epoch
    for epoch in range(max(first, epoch_of(trim_point)), known.covered + 1):  # type: ignore[assignment]
        summary = summaries.get(epoch)
        if summary is None:
            found.append(unknown_segment(epoch, trim_point))
        elif (last := summary[3]) and (epoch << 32 | last) > passed:
            found.append(completed_segment(epoch, summary, trim_point))
    return found


@dataclass(frozen=True, slots=True)
class EpochInProgress:
    """What a log's sequencer says of the epoch in progress."""

    epoch: Epoch
    tail: Lsn
    """The last LSN that can be read."""
    timestamp: Timestamp
    """Of the last record."""
    counts: EpochCounts | None
    """Of what is fully replicated; None: it is not counted."""

    def segment(self, trim_point: Lsn) -> LogSegment | None:
        """The segment in progress; None: there is nothing in it, or all is trimmed."""
        if self.tail >> 32 != self.epoch or not self.tail & 0xFFFFFFFF or self.tail <= trim_point:
            return None
        counts = self.counts
        return LogSegment(
            self.epoch,
            SegmentState.IN_PROGRESS,
            LSN(compose_lsn(self.epoch, ESN_MIN)),
            LSN(self.tail),
            self.tail & 0xFFFFFFFF,
            None if counts is None else counts.records,
            None if counts is None else counts.size,
            None if counts is None else counts.begin,
            self.timestamp,
            None,
            None if counts is None else counts.first_transaction or None,
            None if counts is None else counts.last_transaction or None,
            0,
            True,
            LSN(trim_point if trim_point >> 32 == self.epoch else LSN_INVALID),
        )
