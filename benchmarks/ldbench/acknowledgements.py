"""When records were acknowledged and how long that took, kept cheaply while it happens and evaluated afterwards."""

from __future__ import annotations

from array import array
from collections import defaultdict
from typing import Final

from benchmarks.ldbench.latency import LatencyHistogram

NANOSECONDS: Final = 1_000_000_000


class AcknowledgementLog:
    """One entry for each call that was acknowledged. Moments are nanoseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._began: array[int] = array("q")
        self._ended: array[int] = array("q")
        self._counts: array[int] = array("q")
        self.failed_records = 0

    def add(self, began: int, ended: int, count: int) -> None:
        """`count` records handed over, or intended to be, at `began` were acknowledged at `ended`."""
        self._began.append(began)
        self._ended.append(ended)
        self._counts.append(count)

    def __len__(self) -> int:
        return len(self._counts)

    def acknowledged(self, since: int, until: int) -> int:
        """Records acknowledged in [since, until)."""
        return sum(count for ended, count in zip(self._ended, self._counts, strict=True) if since <= ended < until)

    def latencies(self, since: int, until: int) -> LatencyHistogram:
        """Of records that began in [since, until)."""
        histogram = LatencyHistogram()
        for began, ended, count in zip(self._began, self._ended, self._counts, strict=True):
            if since <= began < until:
                histogram.record(ended - began, count)
        return histogram

    def longest_silence(self, since: int, until: int) -> int:
        """The longest time in [since, until] without an acknowledgement, nanoseconds; the ends count as acknowledgements."""
        longest, last = 0, since
        for ended in sorted(ended for ended in self._ended if since <= ended <= until):
            longest = max(longest, ended - last)
            last = ended
        return max(longest, until - last)

    def series(self, since: int, until: int, *, step: int = NANOSECONDS) -> dict[str, list[float]]:
        """Records a second and latency over time, one row for each `step` nanoseconds of [since, until) that is complete."""
        counts: defaultdict[int, int] = defaultdict(int)
        histograms: defaultdict[int, LatencyHistogram] = defaultdict(LatencyHistogram)
        for began, ended, count in zip(self._began, self._ended, self._counts, strict=True):
            if since <= ended < until:
                at = (ended - since) // step
                counts[at] += count
                histograms[at].record(ended - began, count)
        rows = range((until - since) // step)
        return {
            "t": [at * step / NANOSECONDS for at in rows],
            "records_per_s": [counts[at] * NANOSECONDS / step for at in rows],
            "p50_ms": [histograms[at].percentile_ms(50) for at in rows],
            "p99_ms": [histograms[at].percentile_ms(99) for at in rows],
        }
