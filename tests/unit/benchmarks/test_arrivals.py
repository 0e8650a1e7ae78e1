"""The schedule of an open loop."""

import itertools
import random
import statistics

import pytest

from benchmarks.ldbench.arrivals import poisson_arrivals


def test_arrivals_come_at_the_rate_and_as_a_poisson_process() -> None:
    times = poisson_arrivals(1_000, 50, random.Random(1))
    assert abs(len(times) - 50_000) < 4 * 50_000**0.5
    assert list(times) == sorted(times)
    assert times[-1] < 50_000_000_000
    gaps = [after - before for before, after in itertools.pairwise(times)]
    # of exponential gaps the deviation is the mean, and e to the -1 are longer than it
    mean = statistics.fmean(gaps)
    assert statistics.pstdev(gaps) == pytest.approx(mean, rel=0.03)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.01)


def test_a_seed_repeats_its_schedule() -> None:
    one, two, other = (poisson_arrivals(100, 5, random.Random(seed)) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_a_rate_is_needed() -> None:
    with pytest.raises(ValueError, match="above 0"):
        poisson_arrivals(0, 1, random.Random(1))
