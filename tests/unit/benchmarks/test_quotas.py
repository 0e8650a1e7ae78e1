"""What the benchmark of quotas makes of what it saw."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quotas import WINDOW, most_in_a_window


@given(st.lists(st.tuples(st.floats(0, 40), st.integers(1, 9)), max_size=30))
def test_most_in_any_ten_seconds(taken: list[tuple[float, int]]) -> None:
    windows = [sum(size for at, size in taken if end - WINDOW < at <= end) for end, _ in taken]
    assert most_in_a_window(taken) == max(windows, default=0)
