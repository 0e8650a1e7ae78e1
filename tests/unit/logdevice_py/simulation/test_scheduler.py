from __future__ import annotations

from logdevice_py.simulation.scheduler import Scheduler


def test_what_goes_round_in_circles_at_one_instant_ends_at_the_limit_of_events() -> None:
    scheduler = Scheduler()

    def again() -> None:
        scheduler.after(0, again)

    again()
    assert scheduler.run_until(1000, events_max=50)
    assert (scheduler.events, scheduler.now) == (51, 0)


def test_the_limit_of_events_counts_from_the_beginning() -> None:
    scheduler = Scheduler()
    for when in range(10):
        scheduler.at(when, lambda: None)
    assert not scheduler.run_until(4, events_max=5)
    assert scheduler.run_until(20, events_max=5)
    assert scheduler.events == 6
