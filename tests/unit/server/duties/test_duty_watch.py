"""When the work of a duty begins and ends."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.core.ids import MAINTENANCE_DELTAS
from logdevice_py.core.lsn import Lsn
from server.duties.duty_watch import RETRY_SECONDS_MAX, Duty, DutyStep, DutyWatch

BEGIN, END, NOTHING = DutyStep.BEGIN, DutyStep.END, DutyStep.NOTHING


class Watched:
    def __init__(self) -> None:
        self.watch = DutyWatch(Duty("chores", MAINTENANCE_DELTAS))
        self.now = 0.0

    def look(self, end: int = 0, *, is_mine: bool = True) -> DutyStep:
        self.now += 1
        return self.watch.look(is_mine=is_mine, end=Lsn(end), now=self.now)


def test_whoever_gets_a_duty_looks_once_and_again_when_something_was_appended() -> None:
    watched = Watched()
    assert watched.look(is_mine=False) is NOTHING
    assert watched.look() is BEGIN
    assert watched.look() is NOTHING, "it is under way"
    watched.watch.ended("", watched.now)
    assert watched.look() is NOTHING, "nothing new"
    assert watched.look(7) is BEGIN
    assert watched.look(9) is NOTHING
    watched.watch.ended("", watched.now)
    assert watched.look(9) is BEGIN, "9 came while it was under way, perhaps after its last look"
    watched.watch.ended("", watched.now)
    assert watched.look(9) is NOTHING


def test_a_duty_that_is_lost_ends_and_one_that_comes_back_is_looked_at() -> None:
    watched = Watched()
    assert watched.look(7) is BEGIN
    assert watched.look(7, is_mine=False) is END
    watched.watch.ended("it was ended", watched.now)
    assert watched.look(7, is_mine=False) is NOTHING
    assert watched.look(0) is BEGIN, "who had it meanwhile may have left something"


def test_what_fails_is_tried_again_ever_more_slowly() -> None:
    watched, apart = Watched(), []
    for _ in range(12):
        since = watched.now
        while watched.look(7) is NOTHING:
            pass
        apart.append(watched.now - since)
        watched.watch.ended("no", watched.now)
    assert watched.watch.trouble == "no"
    assert apart[1] < apart[2] < apart[3]
    assert max(apart) <= RETRY_SECONDS_MAX + 1
    while watched.look(7) is NOTHING:
        pass
    watched.watch.ended("", watched.now)
    assert (watched.watch.trouble, watched.look(8)) == ("", BEGIN)


def test_were_the_end_noted_after_the_work_something_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = DutyWatch.ended

    def ended(self: Any, trouble: str, now: float) -> None:
        original(self, trouble, now)
        self._looked_at = Lsn(9 if self._looked_at else 0)

    monkeypatch.setattr(DutyWatch, "ended", ended)
    with pytest.raises(AssertionError, match="9 came while"):
        test_whoever_gets_a_duty_looks_once_and_again_when_something_was_appended()
