from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from storage_node.log_store.rocksdb.unhurried import BrokenOffError, Unhurried


class Clock:
    """Passes only while somebody works or rests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.rested = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(threading.Event, "wait", lambda _, seconds: self.rest(seconds))

    def work(self, seconds: float) -> None:
        self.now += seconds

    def rest(self, seconds: float) -> None:
        self.now += seconds
        self.rested += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(("percent", "rest_for_each"), [(5, 19), (50, 1), (100, 0)])
def test_work_takes_its_share_of_the_time(clock: Clock, percent: int, rest_for_each: int) -> None:
    work = Unhurried(percent)
    for _ in range(100):
        clock.work(0.001)
        work.rest()
    assert clock.rested == pytest.approx(rest_for_each * 0.1)


def test_small_pieces_are_rested_for_together(clock: Clock) -> None:
    work, rests = Unhurried(5), 0
    for _ in range(99):
        clock.work(0.000_1)
        before = clock.rested
        work.rest()
        rests += clock.rested > before
    assert rests == 33
    assert clock.rested == pytest.approx(19 * 0.0099)


def test_time_before_the_work_does_not_count(clock: Clock) -> None:
    work = Unhurried(5)
    clock.work(60)
    work.begin()
    work.rest()
    assert clock.rested == 0


def test_work_is_broken_off_in_the_middle_of_a_rest() -> None:
    work = Unhurried(1)
    resting = threading.Event()
    ended: list[type[BaseException]] = []

    def run(step: Callable[[], None]) -> None:
        work.begin()
        try:
            while True:
                resting.set()
                step()
        except BrokenOffError as error:
            ended.append(type(error))

    thread = threading.Thread(target=run, args=(work.rest,))
    thread.start()
    resting.wait()
    work.stop()
    thread.join(10)
    assert ended == [BrokenOffError]
