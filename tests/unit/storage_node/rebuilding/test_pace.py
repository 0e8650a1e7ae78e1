"""The pace of donors, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.settings import RebuildingSettings
from storage_node.rebuilding.pace import AppendPressure, DonorPace

MB = 1 << 20
OWN, OTHER = shard_id(NodeId(0)), shard_id(NodeId(1))
SETTINGS = RebuildingSettings(rate_limit_bytes=32 * MB, rate_min_bytes=MB)
Feel = Callable[[int], int]
"""How long appends take on the other shard at a rate, in percent."""


class PaceDriver:
    """A donor with eight logs that has always something to store, on another shard and its own."""

    def __init__(self, settings: RebuildingSettings = SETTINGS) -> None:
        self.timers = TimerQueue()
        self.pressure = AppendPressure()
        self.own = 0
        self.now = Micros(1_000_000_000)
        self.pace = DonorPace(OWN, lambda _: self.own, self.pressure, settings, self.timers)
        self.done = 0

    def _work(self, size: int, feel: Feel) -> None:
        def begin(now: Micros) -> None:
            self.done += size
            self.pressure.hear(OTHER, feel(self.pace.rate), now)
            self.timers.at(now + 2_000, lambda _: self._work(self.pace.piece_bytes, feel))

        self.pace.admit(size, begin, self.now)

    def begin(self, feel: Feel) -> None:
        for _ in range(8):
            self._work(self.pace.piece_bytes, feel)

    def run(self, seconds: float) -> float:
        """Bytes a second that were stored meanwhile."""
        before, until = self.done, self.now + int(seconds * SECOND)
        while (deadline := self.timers.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.timers.advance(self.now)
        self.now = Micros(until)
        return (self.done - before) / seconds


def test_without_appends_it_is_at_its_limit_within_three_seconds_and_in_large_pieces() -> None:
    driver = PaceDriver()
    driver.begin(lambda _: 0)
    driver.run(3)
    assert driver.run(10) == pytest.approx(32 * MB, rel=0.03)
    assert driver.pace.piece_bytes > 4 * SETTINGS.busy_chunk_bytes
    assert driver.pace.explain() == "no appends"


def test_appends_that_do_not_notice_let_it_grow_to_its_limit_in_small_pieces() -> None:
    driver = PaceDriver()
    driver.begin(lambda _: 100)
    assert driver.run(1) < 2.5 * MB
    driver.run(20)
    assert driver.run(5) == pytest.approx(32 * MB, rel=0.03)
    assert driver.pace.piece_bytes == SETTINGS.busy_chunk_bytes


@pytest.mark.parametrize("bearable", [3, 8, 20])
def test_it_takes_about_what_appends_bear(bearable: int) -> None:
    driver = PaceDriver()
    driver.begin(lambda rate: 100 + 20 * rate // (bearable * MB))
    driver.run(40)
    assert bearable * 0.6 <= driver.run(20) / MB <= bearable * 1.1


def test_a_rate_that_is_not_used_does_not_grow() -> None:
    driver = PaceDriver()
    driver.own = 100
    for _ in range(1000):
        driver.pace.admit(1000, lambda _: None, driver.now)
        driver.run(0.05)
    assert driver.pace.rate == MB


def test_it_goes_on_at_its_minimum_however_long_appends_take_and_says_why() -> None:
    driver = PaceDriver()
    driver.begin(lambda _: 900)
    driver.run(10)
    assert driver.run(10) == pytest.approx(MB, rel=0.03)
    assert driver.pace.explain() == "at its minimum: appends take 900 % of the usual at N1:S0"


def test_it_gives_way_within_three_seconds_of_appends_coming_and_goes_back_when_they_end() -> None:
    driver = PaceDriver()
    load = [0]
    driver.begin(lambda _: load[0])
    driver.run(5)
    load[0] = 400
    driver.run(3)
    assert driver.pace.rate == MB
    load[0] = 0
    driver.run(5)
    assert driver.pace.rate == 32 * MB


def test_what_the_own_shard_feels_counts_too() -> None:
    driver = PaceDriver()
    driver.own = 400
    driver.begin(lambda _: 0)
    driver.run(5)
    assert driver.pace.rate == MB
    assert "N0:S0" in driver.pace.explain()


def test_a_shard_that_it_no_longer_works_with_is_forgotten() -> None:
    driver = PaceDriver()
    driver.pressure.hear(shard_id(NodeId(2)), 400, driver.now)
    driver.begin(lambda _: 0)
    driver.run(4)
    assert driver.pace.rate == MB
    driver.run(5)
    assert driver.pace.rate == 32 * MB


def test_a_limit_below_the_minimum_holds() -> None:
    driver = PaceDriver(RebuildingSettings(rate_limit_bytes=MB // 4, rate_min_bytes=MB))
    driver.begin(lambda _: 900)
    driver.run(1)
    assert driver.run(20) == pytest.approx(MB / 4, rel=0.05)


def test_nothing_is_saved_up_and_order_is_kept() -> None:
    driver = PaceDriver()
    begun: list[tuple[str, int]] = []

    def admit(name: str, size: int) -> None:
        driver.pace.admit(size, lambda now: begun.append((name, now)), driver.now)

    admit("a", MB)
    start = driver.now
    admit("b", 0)
    driver.run(0.4)
    assert begun == [("a", start)]
    driver.run(100)
    assert [name for name, _ in begun] == ["a", "b"]
    start = driver.now
    for name in "cd":
        admit(name, MB)
    assert [name for name, _ in begun] == ["a", "b", "c"]


def test_what_is_stopped_is_forgotten() -> None:
    driver = PaceDriver()
    driver.begin(lambda _: 0)
    driver.run(2)
    driver.pace.stop()
    done = driver.done
    assert driver.pace.rate == MB
    driver.pace.admit(MB, lambda _: None, driver.now)
    driver.pace.admit(MB, lambda _: None, driver.now)
    driver.pace.stop()
    driver.timers.advance(Micros(driver.now + 1))
    assert driver.done == done


def test_work_that_stops_the_donor_while_it_begins_does_no_harm() -> None:
    driver = PaceDriver()
    begun: list[int] = []
    driver.pace.admit(MB, lambda _: driver.pace.stop(), driver.now)
    driver.run(5)
    driver.pace.admit(MB, begun.append, driver.now)
    assert begun
