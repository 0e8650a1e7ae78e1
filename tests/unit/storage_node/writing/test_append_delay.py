"""How long appends take beside the usual."""

from __future__ import annotations

from logdevice_py.core.units import SECOND, Micros
from storage_node.writing.append_delay import AppendDelay


class DelayDriver:
    """Fifty batches with STOREs a second."""

    def __init__(self) -> None:
        self.delay = AppendDelay()
        self.now = Micros(0)

    def appends(self, took: int, seconds: float, *, slow: int = 0, rebuilding: bool = False) -> int:
        """Of ten batches one takes `slow`, if that is given; returns what is said in the end."""
        for number in range(int(seconds * 50)):
            self.now = Micros(self.now + SECOND // 50)
            if rebuilding:
                self.delay.note_rebuilding(self.now)
            self.delay.note(slow if slow and number % 10 == 0 else took, self.now)
        return self.delay.percent(self.now)


def test_without_appends_there_is_nothing_to_give_way_to() -> None:
    driver = DelayDriver()
    assert driver.delay.percent(driver.now) == 0
    driver.appends(5_000, 1)
    assert driver.delay.percent(Micros(driver.now + 9 * SECOND)) == 100
    assert driver.delay.percent(Micros(driver.now + 11 * SECOND)) == 0


def test_too_few_appends_say_nothing_of_their_delay() -> None:
    driver = DelayDriver()
    for _ in range(30):
        driver.now = Micros(driver.now + SECOND)
        driver.delay.note(1_000_000, driver.now)
    assert driver.delay.recent_us is None
    assert driver.delay.percent(driver.now) == 100


def test_what_rebuilding_does_to_appends_does_not_become_the_usual() -> None:
    driver = DelayDriver()
    assert driver.appends(4_000, 30) == 100
    assert driver.appends(14_000, 600, rebuilding=True) == 300
    assert driver.appends(4_000, 2) == 100


def test_it_is_the_slowest_tenth_that_counts() -> None:
    driver = DelayDriver()
    driver.appends(4_000, 30)
    assert driver.appends(4_000, 2, slow=14_000, rebuilding=True) == 300


def test_the_usual_follows_what_is_measured_in_calm_and_faster_down_than_up() -> None:
    driver = DelayDriver()
    driver.appends(4_000, 10)
    assert driver.appends(14_000, 2) > 200
    assert driver.appends(14_000, 60) == 100
    assert driver.appends(4_000, 2) > 33
    assert 95 <= driver.appends(4_000, 30) <= 100


def test_the_usual_falls_while_rebuilding_too_when_there_is_less_to_do() -> None:
    driver = DelayDriver()
    driver.appends(14_000, 30)
    assert driver.appends(4_000, 1, rebuilding=True) < 40
    assert driver.appends(4_000, 300, rebuilding=True) >= 95


def test_after_rebuilding_the_first_windows_do_not_count_for_calm() -> None:
    driver = DelayDriver()
    driver.appends(4_000, 30)
    driver.appends(104_000, 5, rebuilding=True)
    usual = driver.delay.usual_us
    driver.appends(104_000, 0.9)
    assert driver.delay.usual_us == usual


def test_differences_below_a_millisecond_are_noise() -> None:
    driver = DelayDriver()
    driver.appends(100, 30)
    assert driver.appends(300, 2, rebuilding=True) < 150
