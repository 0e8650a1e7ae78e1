"""The segments of a stream: those of its log, and those that are only in cold copies."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from client.guards import Position
from client.look_up.segments import LogSegment, SegmentState
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp, utc_datetime
from streams.upkeep.segment_copy import SegmentCopy

if TYPE_CHECKING:
    from streams.state import StreamEntry


class StreamSegmentState(enum.Enum):
    """What is with a segment."""

    IN_PROGRESS = "in progress"  # records are added to it
    COMPLETED = "completed"  # nothing of it changes any more
    TRUNCATED_IN_PART = "truncated in part"  # readers begin within it
    TRUNCATED = "truncated"  # readers begin behind it; it can be had back until it is trimmed
    COLD = "cold"  # only cold copies have it


@dataclass(slots=True)
class StreamSegment:
    """A segment of a stream: an epoch of its log that holds something. What is truncated or trimmed of it counts. Not frozen: there are thousands."""

    number: int
    """The epoch. Ascending, not without gaps."""
    state: StreamSegmentState
    first: Position
    """No record of it is before."""
    last: Position | None
    """Of its last entry; None: not known."""
    records: int | None
    """This and the following are None where they are not known."""
    bytes: int | None
    """Of bodies as they are stored, one copy each."""
    first_txid: int | None
    last_txid: int | None
    began: Timestamp | None
    """When its first record was sequenced, Unix UTC microseconds, as all times here."""
    ended: Timestamp | None
    """Its last one, so far."""
    completed: Timestamp | None
    """When it was decided what it holds; None also: it is in progress."""
    is_copied: bool
    """A committed cold copy has it."""
    is_exact: bool
    """`records` is how many there are to read: nothing of it is lost or trimmed."""

    def as_json(self) -> dict[str, Any]:
        """For a line of JSON."""

        def time(value: Timestamp | None) -> str | None:
            return None if value is None else utc_datetime(value).isoformat()

        return {
            "number": self.number,
            "state": self.state.value,
            "first": str(self.first),
            "last": None if self.last is None else str(self.last),
            "records": self.records,
            "bytes": self.bytes,
            "first_txid": self.first_txid,
            "last_txid": self.last_txid,
            "began": time(self.began),
            "ended": time(self.ended),
            "completed": time(self.completed),
            "copied": self.is_copied,
        }


_IN_PROGRESS: Final = StreamSegmentState.IN_PROGRESS
_COMPLETED: Final = StreamSegmentState.COMPLETED


def listed_stream_segments(entry: StreamEntry, live: Sequence[LogSegment]) -> list[StreamSegment]:
    """What the namespace and the log know together; `live` as `Client.segments` gives them."""
    numbers = {each.epoch for each in live}
    copied = {each.number for each in entry.upkeep.copies}
    lowest = min(numbers, default=None)
    cold = [
        _cold(entry, each) for each in entry.upkeep.copies if each.copy.records and not _is_live(each.number, lowest)
    ]
    return cold + [_live(entry, each, is_copied=each.epoch in copied) for each in live]


def _is_live(number: int, lowest: int | None) -> bool:
    return lowest is not None and number >= lowest


def _cold(entry: StreamEntry, found: SegmentCopy) -> StreamSegment:
    copy = found.copy
    return StreamSegment(
        found.number,
        _state_of(StreamSegmentState.COLD, copy.first, copy.last, entry.min_active),
        Position(copy.first, 0),
        Position(copy.last, 0),
        copy.records,
        copy.bytes,
        found.first_txid,
        found.last_txid,
        found.began,
        found.ended,
        found.completed,
        True,
        True,
    )


def _live(entry: StreamEntry, segment: LogSegment, *, is_copied: bool) -> StreamSegment:
    first, last, begins = segment.first_lsn, segment.last_lsn, entry.min_active
    if segment.state is SegmentState.IN_PROGRESS and entry.ended is None:
        state = _IN_PROGRESS
    else:
        state = _COMPLETED if first > begins.lsn else _state_of(_COMPLETED, first, last, begins)
    return StreamSegment(
        segment.epoch,
        state,
        Position(first, 0),
        None if last is None else Position(last, 0),
        segment.records,
        segment.bytes,
        segment.first_txid,
        segment.last_txid,
        segment.first_timestamp,
        segment.last_timestamp,
        segment.completed,
        is_copied,
        not (segment.lost or segment.trimmed_to) and segment.authoritative and segment.state is SegmentState.COMPLETED,
    )


def _state_of(state: StreamSegmentState, first: LSN, last: LSN | None, begins: Position) -> StreamSegmentState:
    if last is not None and last < begins.lsn:
        return StreamSegmentState.TRUNCATED
    return StreamSegmentState.TRUNCATED_IN_PART if Position(first, 0) < begins else state


@dataclass(frozen=True, slots=True)
class CountedPart:
    """A part of a stream, and how many records it has."""

    first: Position
    until: Position
    """Not included."""
    records: int | None
    """None: it has to be read."""


def parts_to_count(segments: Sequence[StreamSegment], begin: Position, until: Position) -> list[CountedPart]:
    """Cut what is between two positions into segments that tell how many records they have, and what is to be read."""
    parts: list[CountedPart] = []
    passed: list[StreamSegment] = []  # those behind `at` that do not tell
    at = begin
    for segment in segments:
        last = segment.last
        if not segment.is_exact or segment.records is None or last is None:
            passed.append(segment)
            continue
        behind = Position(LSN(last.lsn + 1), 0)
        if segment.first < begin or behind > until:
            passed.append(segment)
            continue
        _add_unknown(parts, passed, at, segment.first)
        parts.append(CountedPart(segment.first, behind, segment.records))
        at, passed = behind, []
    _add_unknown(parts, passed, at, until)
    return parts


def _add_unknown(parts: list[CountedPart], segments: Sequence[StreamSegment], first: Position, until: Position) -> None:
    """What is between, unless no segment has anything of it."""
    if first < until and any(
        each.first < until and (each.last is None or each.last.lsn >= first.lsn) for each in segments
    ):
        parts.append(CountedPart(first, until, None))
