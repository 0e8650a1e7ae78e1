"""Counts of durations: cheap to add to, good to a quarter, and small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BUCKETS: Final = 160
"""Four to each power of two: microseconds up to some weeks."""


def bucket_of(micros: int) -> int:
    """The bucket in which a duration is counted; the last one for all that are longer, as by clocks that jump."""
    shift = max(0, micros.bit_length() - 3)
    return min(4 * shift + (micros >> shift), BUCKETS - 1)


def end_of(bucket: int) -> int:
    """All durations of a bucket are below that, by a quarter at most."""
    return bucket + 1 if bucket < 8 else (bucket % 4 + 5) << (bucket // 4 - 1)


def longer_than(counts: Sequence[int], share: float) -> int:
    """Microseconds that this share of what was counted took longer than; rounded up by a quarter at most."""
    beyond = int(sum(counts) * share)
    for bucket in range(BUCKETS - 1, -1, -1):
        if counts[bucket] > beyond:
            return end_of(bucket)
        beyond -= counts[bucket]
    raise AssertionError("something must have been counted")


class Histogram:
    """Durations since the process began."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total = 0
        """All durations together, in microseconds."""

    def note(self, micros: int) -> None:
        """Count a duration."""
        self.counts[bucket_of(micros)] += 1
        self.total += micros

    def take(self, counts: Sequence[int]) -> None:
        """Take in what was counted elsewhere; to the total goes what the buckets say."""
        for bucket, count in enumerate(counts):
            if count:
                self.counts[bucket] += count
                self.total += count * end_of(bucket)
