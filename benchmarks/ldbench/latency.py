"""Latencies as HDR histograms: three significant digits from a microsecond to ten minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hdrh.histogram import HdrHistogram

PERCENTILES: Final[Mapping[str, float]] = {
    "p50": 50.0,
    "p90": 90.0,
    "p99": 99.0,
    "p99.9": 99.9,
    "p99.99": 99.99,
}
_LOWEST_US, _HIGHEST_US, _DIGITS = 1, 600_000_000, 3


class LatencyHistogram:
    """Nanoseconds in, milliseconds out; kept in microseconds."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(_LOWEST_US, _HIGHEST_US, _DIGITS)

    def record(self, nanoseconds: int, count: int = 1) -> None:
        """`count` records that took so long. Above ten minutes counts as ten minutes."""
        self._histogram.record_value(max(_LOWEST_US, min(_HIGHEST_US, round(nanoseconds / 1000))), count)

    def merge(self, other: LatencyHistogram) -> None:
        """Add what another one holds."""
        self._histogram.add(other._histogram)

    def __len__(self) -> int:
        return int(self._histogram.get_total_count())

    def percentile_ms(self, percentile: float) -> float:
        """Milliseconds at a percentile; 0 when nothing was recorded."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1e3

    def summary(self) -> dict[str, float]:
        """Milliseconds: `PERCENTILES`, mean and max; and how many."""
        found = {name: self.percentile_ms(value) for name, value in PERCENTILES.items()}
        found["max"] = float(self._histogram.get_max_value()) / 1e3
        found["mean"] = float(self._histogram.get_mean_value()) / 1e3
        found["count"] = float(len(self))
        return found

    def encode(self) -> str:
        """As other tools for HDR histograms read it: compressed, base64."""
        encoded = self._histogram.encode()
        return encoded.decode("ascii") if isinstance(encoded, bytes) else str(encoded)

    @classmethod
    def decode(cls, text: str) -> LatencyHistogram:
        """Of what `encode` made."""
        made = cls()
        made._histogram = HdrHistogram.decode(text)
        return made
