"""Token buckets: how much of something may be done in a while. Exact, in integers; time is an argument.

1. A bucket holds `rate` tokens a second, and never more than it gets in its burst time. It begins empty, at its first use.
2. What costs no more than a full bucket is admitted once there are as many tokens. What costs more is admitted by a full bucket, which then owes the
   rest.
3. So over any time t no more than rate * t is admitted, plus a full bucket, or plus the largest single cost where that is more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from logdevice_py.core.units import SECOND, Micros

BURST_US: Final = 1_000_000
"""What a bucket saves up at most, unless its owner says something else."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What a quota allows; 0 is no limit."""

    bytes_per_s: int = 0
    records_per_s: int = 0
    burst_us: int = BURST_US

    def __bool__(self) -> bool:
        return bool(self.bytes_per_s or self.records_per_s)


class RateSettings:
    """What declarations of quotas say in their settings, as rates."""

    __slots__ = ()

    append_bytes_per_s: int
    append_records_per_s: int
    read_bytes_per_s: int
    read_records_per_s: int
    quota_burst_us: int

    @property
    def appends(self) -> Rates:
        """What may be appended."""
        return Rates(self.append_bytes_per_s, self.append_records_per_s, self.quota_burst_us)

    @property
    def reads(self) -> Rates:
        """What readers may be sent."""
        return Rates(self.read_bytes_per_s, self.read_records_per_s, self.quota_burst_us)


class TokenBucket:
    """So many tokens a second. They are counted in millionths, so that nothing is lost by rounding."""

    __slots__ = ("_at", "_full", "_level", "_rate")

    def __init__(self, rate: int, burst_us: int) -> None:
        assert rate > 0, rate
        assert burst_us > 0, burst_us
        self._rate = rate
        self._full = rate * burst_us
        self._level = 0
        self._at: Micros | None = None

    def _refill(self, now: Micros) -> None:
        if self._at is not None and now > self._at:
            self._level = min(self._full, self._level + self._rate * (now - self._at))
        self._at = now

    def wait(self, cost: int, now: Micros) -> int:
        """Microseconds until so much is admitted, unless something else is before; 0: now."""
        self._refill(now)
        missing = min(cost * SECOND, self._full) - self._level
        return 0 if missing <= 0 else -(-missing // self._rate)

    def spend(self, cost: int) -> None:
        """Take tokens; those that there are not are owed."""
        self._level -= cost * SECOND

    def give_back(self, cost: int) -> None:
        """What was spent was not used."""
        self._level = min(self._full, self._level + cost * SECOND)

    def available(self, now: Micros) -> int:
        """Whole tokens that there are; negative: they are owed."""
        self._refill(now)
        return self._level // SECOND

    def empty(self, now: Micros) -> None:
        """Take what is saved up; what is owed is owed on."""
        self._refill(now)
        self._level = min(self._level, 0)

    def use(self, rate: int, burst_us: int, now: Micros) -> None:
        """Go on at another rate; what is saved up stays, as far as it fits."""
        self._refill(now)
        self._rate, self._full = rate, rate * burst_us
        self._level = min(self._level, self._full)


class Meter:
    """The quota of one log, or of one principal at one node, for appends, reads or look-ups: a bucket of bytes and one of records."""

    __slots__ = ("_bytes", "_records", "rates", "throttled")

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.throttled = 0
        """How often something had to wait, or was refused."""
        self._bytes = _bucket(rates.bytes_per_s, rates.burst_us)
        self._records = _bucket(rates.records_per_s, rates.burst_us)

    def wait(self, size: int, records: int, now: Micros) -> int:
        """Microseconds until both are admitted; 0: now."""
        wait = 0
        if self._bytes is not None:
            wait = self._bytes.wait(size, now)
        if self._records is not None:
            wait = max(wait, self._records.wait(records, now))
        return wait

    def spend(self, size: int, records: int) -> None:
        """It was admitted."""
        if self._bytes is not None:
            self._bytes.spend(size)
        if self._records is not None:
            self._records.spend(records)

    def give_back(self, size: int, records: int) -> None:
        """It was admitted, and in the end was not done."""
        if self._bytes is not None:
            self._bytes.give_back(size)
        if self._records is not None:
            self._records.give_back(records)

    def bytes_available(self, now: Micros) -> int | None:
        """How many there are; None: they are not counted."""
        return None if self._bytes is None else self._bytes.available(now)

    def records_available(self, now: Micros) -> int | None:
        """How many there are; None: they are not counted."""
        return None if self._records is None else self._records.available(now)

    def empty(self, now: Micros) -> None:
        """Take what is saved up."""
        for bucket in (self._bytes, self._records):
            if bucket is not None:
                bucket.empty(now)

    def use(self, rates: Rates, now: Micros) -> None:
        """Go on with other rates. What was not counted before begins empty."""
        self.rates = rates
        self._bytes = _changed(self._bytes, rates.bytes_per_s, rates.burst_us, now)
        self._records = _changed(self._records, rates.records_per_s, rates.burst_us, now)


def _bucket(rate: int, burst_us: int) -> TokenBucket | None:
    return TokenBucket(rate, burst_us) if rate else None


def _changed(bucket: TokenBucket | None, rate: int, burst_us: int, now: Micros) -> TokenBucket | None:
    if bucket is None or not rate:
        return _bucket(rate, burst_us)
    bucket.use(rate, burst_us, now)
    return bucket


def metered(meter: Meter | None, rates: Rates, now: Micros) -> Meter | None:
    """The meter for these rates: the same one where there is one, another one, or None where nothing is limited."""
    if not rates:
        if meter is not None:
            meter.use(rates, now)  # who still waits for it is admitted
        return None
    if meter is None:
        return Meter(rates)
    if meter.rates != rates:
        meter.use(rates, now)
    return meter
