"""What a share of measured values does not exceed; `ldbench` keeps histograms instead, which many processes can add up."""

from __future__ import annotations

import math
from collections.abc import Collection


def percentile(values: Collection[float], share: float) -> float:
    """The smallest of the values that at least this share of them, 0 to 1, does not exceed (nearest rank); NaN when there are none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
