"""Cutting ranges of LSNs into partitions of about equal size. Pure arithmetic: sizes may be estimates, the cuts are exact all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logdevice_py.core.ids import LogId


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of LSNs with an estimate of the bytes in it, evenly spread."""

    lo: int
    hi: int
    """Inclusive."""
    bytes: float


@dataclass(frozen=True, slots=True)
class LogRange:
    """What is read of one log, and where its bytes are thought to be."""

    log: LogId
    group: str
    lo: int
    hi: int
    """Inclusive."""
    segments: tuple[Segment, ...] = ()
    """Ascending, within the range; what lies between them is thought to be empty."""

    @property
    def bytes(self) -> float:
        """Estimated."""
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Cut:
    """One partition's share of a log: [lo, hi], both inclusive."""

    log: LogId
    group: str
    lo: int
    hi: int


def cut(ranges: Sequence[LogRange], *, bytes_max: int, partitions_min: int) -> list[Cut]:
    """Each range in one or more pieces: no LSN in two, none left out.

    Args:
        ranges: what to read.
        bytes_max: what one piece should hold at most, as far as the estimates are right.
        partitions_min: how many pieces there should be in all; fewer come out when there are not so many LSNs with something in them.
    """
    total = sum(each.bytes for each in ranges)
    share = min(bytes_max, total / partitions_min) if partitions_min > len(ranges) and total else bytes_max
    share = max(1.0, share)  # estimates may be next to nothing
    return [piece for each in ranges for piece in _pieces(each, max(1, -int(-each.bytes // share)))]


def _pieces(whole: LogRange, count: int) -> list[Cut]:
    starts = [whole.lo]
    goal, passed = whole.bytes / count, 0.0
    for segment in whole.segments:
        width = segment.hi - segment.lo + 1
        while len(starts) < count and passed + segment.bytes >= goal * len(starts):
            part = (goal * len(starts) - passed) / segment.bytes if segment.bytes else 0.0
            at = segment.lo + int(width * min(1.0, max(0.0, part)))
            at = min(at, whole.hi)
            if at <= starts[-1]:
                at = starts[-1] + 1
            if at > segment.hi:
                break
            starts.append(at)
        passed += segment.bytes
    ends = [start - 1 for start in starts[1:]] + [whole.hi]
    return [Cut(whole.log, whole.group, lo, hi) for lo, hi in zip(starts, ends, strict=True)]
