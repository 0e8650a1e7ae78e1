from __future__ import annotations

import math

import pytest

from benchmarks.percentiles import percentile


@pytest.mark.parametrize(("share", "expected"), [(0, 1), (0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (1, 10)])
def test_a_share_of_the_values_does_not_exceed_it(share: float, expected: float) -> None:
    assert percentile(range(10, 0, -1), share) == expected


def test_of_no_values_nothing_is_known() -> None:
    assert math.isnan(percentile([], 0.5))
