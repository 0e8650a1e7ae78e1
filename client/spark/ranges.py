"""Cutting ranges of LSNs into partitions of about equal size. Pure arithmetic: sizes may be estimates, the cuts are exact all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX


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


def share_of(sizes: Sequence[float], *, bytes_max: int, partitions_min: int) -> float:
    """How large one partition is to be: a log of that size or less is not cut."""
    total = sum(sizes)
    share = min(bytes_max, total / partitions_min) if partitions_min > len(sizes) and total else bytes_max
    return max(1.0, share)  # estimates may be next to nothing


def cut(ranges: Sequence[LogRange], *, bytes_max: int, partitions_min: int) -> list[Cut]:
    """Each range in one or more pieces: no LSN in two, none left out.

    Args:
        ranges: what to read.
        bytes_max: what one piece should hold at most, as far as the estimates are right.
        partitions_min: how many pieces there should be in all; fewer come out when there are not so many LSNs with something in them.
    """
    share = share_of([each.bytes for each in ranges], bytes_max=bytes_max, partitions_min=partitions_min)
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


def spread(whole: Sequence[Cut], partitions_min: int) -> list[Cut]:
    """Ranges in so many pieces or more, and the same ones whenever that is asked: nothing but the ranges decides.

    The LSNs of the last epoch of a range are cut evenly. Where the epochs before it end cannot be told from the range, so what lies in them stays
    one piece.
    """
    count = -(-partitions_min // len(whole)) if whole else 0
    if count <= 1:
        return list(whole)
    pieces = []
    for each in whole:
        last = max(each.lo, each.hi & ~ESN_MAX)
        width = each.hi - last + 1
        starts = sorted({last + width * piece // count for piece in range(count)} | {each.lo})
        ends = [start - 1 for start in starts[1:]] + [each.hi]
        pieces += [Cut(each.log, each.group, lo, hi) for lo, hi in zip(starts, ends, strict=True)]
    return pieces
