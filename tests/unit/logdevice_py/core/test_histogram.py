"""Durations are counted to a quarter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.core.histogram import BUCKETS, Histogram, bucket_of, end_of, longer_than

DURATIONS = st.integers(0, 1 << 38)


@given(DURATIONS)
def test_a_bucket_ends_above_what_it_counts_by_a_quarter_at_most(micros: int) -> None:
    bucket = bucket_of(micros)
    assert 0 <= bucket < BUCKETS
    assert micros < end_of(bucket) <= max(micros + 1, micros * 5 / 4)


@given(DURATIONS, DURATIONS)
def test_longer_durations_are_never_counted_in_an_earlier_bucket(one: int, other: int) -> None:
    assert (bucket_of(one) <= bucket_of(other)) == (one <= other) or bucket_of(one) == bucket_of(other)


def test_edges_that_are_powers_of_two_begin_a_bucket() -> None:
    for power in range(3, 30):
        assert bucket_of((1 << power) - 1) + 1 == bucket_of(1 << power)


@given(st.lists(DURATIONS, min_size=1))
def test_as_many_took_longer_as_was_asked_for(durations: list[int]) -> None:
    histogram = Histogram()
    for each in durations:
        histogram.note(each)
    assert (sum(histogram.counts), histogram.total) == (len(durations), sum(durations))
    median = longer_than(histogram.counts, 0.5)
    assert sum(each >= median for each in durations) <= len(durations) / 2
    assert max(durations) < longer_than(histogram.counts, 0.0)


def test_what_a_jump_of_the_wall_clock_makes_of_a_duration_is_counted_as_the_longest() -> None:
    histogram = Histogram()
    histogram.note(1 << 62)
    assert histogram.counts[-1] == 1
