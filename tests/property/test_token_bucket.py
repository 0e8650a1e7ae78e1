"""What a quota admits in any stretch of time: never more than it says, and no less than it could."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from logdevice_py.core.token_bucket import Meter, Rates
from logdevice_py.core.units import SECOND, Micros

WINDOW = 10 * SECOND
RATES = st.builds(
    Rates,
    bytes_per_s=st.integers(0, 50_000),
    records_per_s=st.integers(0, 500),
    burst_us=st.integers(1_000, 3 * SECOND),
).filter(bool)
DEMANDS = st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 20_000), st.integers(1, 200)), max_size=200)
"""Pause since the demand before, size, records."""
Admitted = list[tuple[int, int, int]]


def admitted_by(meter: Meter, demands: list[tuple[int, int, int]]) -> Admitted:
    """When, and how much."""
    now, found = Micros(7), []
    for pause, size, records in demands:
        now = Micros(now + pause)
        if meter.wait(size, records, now) == 0:
            meter.spend(size, records)
            found.append((int(now), size, records))
    return found


def most_in_a_window(admitted: Admitted, which: int) -> int:
    """Of any ten seconds; those that begin with something are enough."""
    return max(
        (sum(each[which] for each in admitted if begin <= each[0] < begin + WINDOW) for begin, _, _ in admitted),
        default=0,
    )


def allowed(rate: int, burst_us: int, largest: int) -> float:
    """The rate over ten seconds and a twentieth, and a full bucket, or what is larger than that."""
    return 1.05 * rate * WINDOW / SECOND + max(rate * burst_us / SECOND, largest)


@given(RATES, DEMANDS)
def test_no_ten_seconds_admit_more_than_the_rate_and_a_burst(rates: Rates, demands: list[tuple[int, int, int]]) -> None:
    admitted = admitted_by(Meter(rates), demands)
    for which, rate in ((1, rates.bytes_per_s), (2, rates.records_per_s)):
        largest = max((each[which] for each in admitted), default=0)
        assert not rate or most_in_a_window(admitted, which) <= allowed(rate, rates.burst_us, largest)


@given(RATES, DEMANDS)
def test_who_waits_as_long_as_he_is_told_is_admitted_and_no_sooner(
    rates: Rates, demands: list[tuple[int, int, int]]
) -> None:
    meter, now = Meter(rates), Micros(7)
    for pause, size, records in demands:
        now = Micros(now + pause)
        wait = meter.wait(size, records, now)
        if wait:
            assert meter.wait(size, records, Micros(now + wait - 1)) == 1
            now = Micros(now + wait)
        assert meter.wait(size, records, now) == 0
        meter.spend(size, records)


@given(st.integers(1, 50_000), st.integers(1_000, 3 * SECOND), st.integers(1, 60))
@example(1029, 6522, 49)
def test_who_asks_without_end_gets_his_rate(rate: int, burst_us: int, seconds: int) -> None:
    meter, end = Meter(Rates(bytes_per_s=rate, burst_us=burst_us)), seconds * SECOND
    size, now, got = max(1, rate // 100), Micros(0), 0
    while now <= end:
        wait = meter.wait(size, 1, now)
        if not wait:
            meter.spend(size, 1)
            got += size
        now = Micros(now + wait)
    # a piece larger than the bucket waits until that is full, to the next microsecond: what that would have brought is lost
    lost = got // size * rate // SECOND + 1 if size * SECOND > rate * burst_us else 0
    assert rate * seconds - size - lost <= got <= rate * seconds + size


@given(RATES, RATES, DEMANDS, DEMANDS)
def test_a_change_of_rates_gives_nobody_more_than_the_greater_one(
    one: Rates, other: Rates, before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]
) -> None:
    meter = Meter(one)
    admitted = admitted_by(meter, before)
    end = admitted[-1][0] if admitted else 7
    meter.use(other, Micros(max(end, 7 + sum(pause for pause, _, _ in before))))
    now = Micros(max(end, 7 + sum(pause for pause, _, _ in before)))
    for pause, size, records in after:
        now = Micros(now + pause)
        if meter.wait(size, records, now) == 0:
            meter.spend(size, records)
            admitted.append((int(now), size, records))
    rate = max(one.bytes_per_s, other.bytes_per_s)
    if one.bytes_per_s and other.bytes_per_s:
        largest = max((size for _, size, _ in admitted), default=0)
        most = allowed(rate, max(one.burst_us, other.burst_us), largest)
        assert most_in_a_window(admitted, 1) <= most
