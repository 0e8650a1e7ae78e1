"""What is to be copied, trimmed and deleted of a stream: follows from its state, the segments of its log, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.look_up.segments import LogSegment, SegmentState
from logdevice_py.core.lsn import ESN_MAX, LSN, LSN_INVALID, compose_lsn
from logdevice_py.core.units import Timestamp
from streams.attributes import StreamAttributes
from streams.upkeep.commands import TrimCause

if TYPE_CHECKING:
    from streams.state import StreamEntry


@dataclass(frozen=True, slots=True)
class FinishedSegment:
    """A segment to which nothing is added."""

    first: LSN
    last: LSN
    completed: Timestamp | None
    """At the latest; None: nobody knows, and no later segment tells."""
    segment: LogSegment


def finished_segments(segments: Sequence[LogSegment], ended: LSN | None) -> list[FinishedSegment]:
    """Those of a log that are over; the last one of a stream that has ended is. In order.

    Of one of which it is not known when it was completed, it is known that the next one was completed later.
    """
    found: list[FinishedSegment] = []
    later: Timestamp | None = None
    for segment in reversed(segments):
        completed, last = segment.completed, _end_of(segment)
        if segment.state is SegmentState.IN_PROGRESS:
            if ended is None or last < ended:
                continue  # the stream goes on, or ended after its segments were asked for: they do not tell what was added meanwhile
            completed = segment.last_timestamp
        later = later if completed is None else completed
        found.append(FinishedSegment(segment.first_lsn, last, later, segment))
    found.reverse()
    return found


def next_to_copy(entry: StreamEntry, finished: Sequence[FinishedSegment]) -> FinishedSegment | None:
    """The first segment that no copy has. What is truncated and not trimmed yet is copied as well: it may be had back."""
    first = entry.upkeep.next_first
    return next((each for each in finished if each.last >= first and each.completed is not None), None)


def next_trim(
    entry: StreamEntry, attributes: StreamAttributes, segments: Sequence[LogSegment], now: Timestamp
) -> tuple[LSN, TrimCause] | None:
    """Up to where the log is to be trimmed; None: nowhere further."""
    expired = _expired(attributes, finished_segments(segments, entry.ended), now)
    truncated = LSN(LSN_INVALID)
    if attributes.truncated_retention_us is not None:
        for position, time in entry.truncations:
            if time + attributes.truncated_retention_us <= now:
                truncated = _within(position.lsn - 1, segments)
    if attributes.cold is not None and expired > entry.upkeep.copied_to:
        # what is truncated needs no copy
        expired = min(expired, max(entry.upkeep.copied_to, _within(entry.min_active.lsn - 1, segments)))
    to, cause = max((truncated, TrimCause.TRUNCATED), (expired, TrimCause.EXPIRED))
    return (to, cause) if to > entry.upkeep.trimming_to else None


def _expired(attributes: StreamAttributes, finished: Sequence[FinishedSegment], now: Timestamp) -> LSN:
    """The end of the last segment that is older than `ttl`, with all before."""
    found = LSN(LSN_INVALID)
    if attributes.ttl_us is not None:
        for each in finished:
            if each.completed is None or each.completed + attributes.ttl_us > now:
                break
            found = each.last
    return found


def _within(lsn: int, segments: Sequence[LogSegment]) -> LSN:
    """The last LSN up to this one that a segment has: behind the end of an epoch nobody trims."""
    found = LSN(LSN_INVALID)
    for each in segments:
        if each.first_lsn <= lsn:
            found = LSN(min(lsn, _end_of(each)))
    return found


def _end_of(segment: LogSegment) -> LSN:
    """Its last record; where nobody knows it, the end of its epoch."""
    return LSN(compose_lsn(segment.first_lsn.epoch, ESN_MAX)) if segment.last_lsn is None else segment.last_lsn


def copies_to_remove(entry: StreamEntry, attributes: StreamAttributes, now: Timestamp) -> LSN | None:
    """Up to where copies are older than `cold_ttl`; None: none is."""
    found = None
    if attributes.cold_ttl_us is not None:
        for each in entry.upkeep.copies:
            if each.completed + attributes.cold_ttl_us > now:
                break
            found = each.copy.last
    return found
