"""What a client remembers of the completed segments of logs: nothing of them changes any more, but how much is trimmed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from client.look_up.segments import LogSegment, SegmentState
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, LSN_OLDEST, Epoch, Lsn
from logdevice_py.core.units import Timestamp

REMEMBERED_MAX: Final = 200_000
"""Segments of all logs together."""
_NOWHERE: Final = LSN(LSN_INVALID)


@dataclass(frozen=True, slots=True)
class Span:
    """Where to look for something."""

    first: Lsn
    """It does not lie before."""
    last: Lsn | None
    """It does not lie behind; None: it does if anywhere, behind all completed segments that tell."""


class ClosedSegments:
    """The completed segments of one log whose epochs lie from one through another, ascending."""

    __slots__ = ("_ends", "_segments", "covered", "since", "times_ascend")

    def __init__(self, since: Epoch) -> None:
        self.since = since
        self.covered = Epoch(since - 1)
        """The last epoch of which everything is known."""
        self.times_ascend = True
        """No segment has a record that is older than one of a segment before."""
        self._segments: list[LogSegment] = []
        self._ends: list[Lsn] = []
        """The last LSN of each."""

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, listed: Sequence[LogSegment], covered: Epoch) -> None:
        """Take what was listed of the epochs through `covered`, from the first that is not known or an earlier one on: up to a segment of which nobody
        could say how it ended, for perhaps somebody can later."""
        for segment in listed:
            if segment.state is not SegmentState.COMPLETED or segment.last_lsn is None:
                covered = Epoch(segment.epoch - 1)
                break
            if segment.epoch > self.covered:
                self._add(segment)
        self.covered = max(self.covered, covered)

    def _add(self, segment: LogSegment) -> None:
        assert segment.last_lsn is not None
        last = self._segments[-1].last_timestamp if self._segments else None
        if segment.first_timestamp is None or segment.last_timestamp is None or (last or 0) > segment.first_timestamp:
            self.times_ascend = False
        self._segments.append(replace(segment, trimmed_to=_NOWHERE) if segment.trimmed_to else segment)
        self._ends.append(Lsn(segment.last_lsn))

    def forget(self, trim_point: Lsn) -> None:
        """Drop those that are trimmed whole."""
        trimmed = bisect_left(self._ends, trim_point + 1)
        del self._segments[:trimmed]
        del self._ends[:trimmed]

    def after(self, start: Lsn, trim_point: Lsn) -> list[LogSegment]:
        """Those that end at `start` or later, and behind the trim point."""
        found = self._segments[bisect_left(self._ends, max(start, trim_point + 1)) :]
        if found and found[0].epoch == trim_point >> 32:
            found[0] = replace(found[0], trimmed_to=LSN(trim_point))
        return found

    def span_of_transaction(self, txid: int) -> Span:
        """Where the first record with this transaction id or a greater one lies. Ids never fall."""
        return self._span(lambda segment: segment.last_txid, txid)

    def span_of_time(self, timestamp: Timestamp) -> Span:
        """Where the first record that is not older lies."""
        return self._span(lambda segment: segment.last_timestamp, timestamp) if self.times_ascend else _ANYWHERE

    def _span(self, last_of: Callable[[LogSegment], int | None], wanted: int) -> Span:
        """By the last value of each segment, which do not fall; some segments may have none, and tell nothing."""
        segments = self._segments

        def next_known(begin: int) -> int | None:
            return next((index for index in range(begin, len(segments)) if last_of(segments[index]) is not None), None)

        low, high = 0, len(segments)
        while low < high:
            middle = (low + high) // 2
            at = next_known(middle)
            if at is not None and (last_of(segments[at]) or 0) < wanted:
                low = at + 1
            else:
                high = middle
        at = next_known(low)
        known_before = low and last_of(segments[low - 1]) is not None
        first = Lsn(self._ends[low - 1] + 1) if known_before else LSN_OLDEST
        return Span(first, None if at is None else self._ends[at])


_ANYWHERE: Final = Span(LSN_OLDEST, None)


class RememberedSegments:
    """The closed segments of the logs of one client."""

    __slots__ = ("_logs",)

    def __init__(self) -> None:
        self._logs: dict[LogId, ClosedSegments] = {}
        """By how long ago they were asked for."""

    def of(self, log: LogId) -> ClosedSegments | None:
        """Of a log; None: nothing is known."""
        return self._logs.get(log)

    def since(self, log: LogId, epoch: Epoch) -> ClosedSegments:
        """Of a log, to be added to: what is known if it begins with the epoch or before, else nothing yet."""
        known = self._logs.pop(log, None)
        if known is None or known.since > epoch:
            known = ClosedSegments(epoch)
        self._logs[log] = known
        return known

    def shrink(self) -> None:
        """Forget those that were asked for longest ago, where there are too many."""
        total = sum(map(len, self._logs.values()))
        while total > REMEMBERED_MAX and len(self._logs) > 1:
            total -= len(self._logs.pop(next(iter(self._logs))))
