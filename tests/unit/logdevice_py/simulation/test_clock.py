"""Clocks of simulated machines."""

from __future__ import annotations

import pytest

from logdevice_py.core.units import SECOND
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.scheduler import Scheduler


class TestDrift:
    def test_a_change_of_rate_makes_the_clock_neither_jump_nor_go_back(self) -> None:
        scheduler = Scheduler()
        clock = SimClock(scheduler, offset=77, rate_ppm=100)
        shown = clock.monotonic()
        for rate in (50_000, -50_000, 0, 100):
            scheduler.run_until(scheduler.now + SECOND)
            before = clock.monotonic()
            clock.set_rate(rate)
            assert clock.monotonic() == before > shown
            shown = before

    @pytest.mark.parametrize("rate", [-50_000, -100, 0, 100, 50_000])
    def test_a_deadline_is_met_within_two_microseconds(self, rate: int) -> None:
        scheduler = Scheduler()
        clock = SimClock(scheduler, offset=1_000_003)
        scheduler.run_until(SECOND)
        clock.set_rate(rate)
        deadline = clock.monotonic() + 1_234_567
        scheduler.run_until(clock.true_time(deadline))
        assert deadline <= clock.monotonic() <= deadline + 2
