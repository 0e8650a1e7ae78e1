"""What a log that was removed from the cluster file holds goes after a grace period, which no clock shortens."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.config.logs import LogTree
from logdevice_py.core.lsn import ESN_MAX, LSN_INVALID
from logdevice_py.core.units import Micros
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import SYNC_LOG, THREE_COPIES, lsn, start, told
from tests.unit.storage_node.test_retention import HOUR, KEPT_FOR_EVER, Aging

PASS = HOUR // 6
GRACE = 4 * HOUR
END = lsn(1, ESN_MAX)
"""With the rest of the epoch, which would look lost otherwise."""


class Removing(Aging):
    def __init__(self) -> None:
        self.groups: list[Any] = []
        super().__init__(StorageSettings(removed_logs_grace_us=GRACE, removed_logs_interval_us=PASS))

    def set_logs(self, first: int, last: int) -> None:
        """The cluster file has these logs."""
        logs = LogTree.build(defaults={"replication": THREE_COPIES}, groups=[("/all", first, last, {})])
        fields = {
            name: getattr(self.config, name)
            for name, field in self.config.__dataclass_fields__.items()
            if field.init and name != "logs"
        }
        self.config = type(self.config)(**fields, logs=logs)
        self.node.on_config(self.config, self.now)

    def start_again(self, down: int) -> None:
        """The process ends in order and begins again; the file is as it was."""
        config = self.config
        self.restart()
        self.now = Micros(self.now + down)
        self.open()
        self.config = config
        self.node.on_config(config, self.now)


@pytest.fixture
def driver() -> Removing:
    made = Removing()
    made.append(lsn(1, 1))
    made.append(lsn(1, 2), released=False)
    made.append(lsn(1, 1), KEPT_FOR_EVER)
    made.pass_time(PASS)
    return made


def test_a_removed_log_goes_when_the_grace_period_is_over_and_others_stay(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    assert len(driver.stored()) == 2
    driver.pass_time(4 * PASS)
    assert driver.stored() == []
    assert driver.stored(KEPT_FOR_EVER) == [lsn(1, 1)]
    assert driver.node.metrics.removed_logs == 1
    assert driver.trim_point() == END, "also what was not released goes: nobody will recover it"
    driver.power_cut()
    assert driver.trim_point() == END


def test_a_log_that_comes_back_counts_from_nothing(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    driver.set_logs(1, 100)
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    assert len(driver.stored()) == 2
    driver.pass_time(4 * PASS)
    assert driver.stored() == []


@pytest.mark.parametrize("hours", [-1000, 1000])
def test_a_wall_clock_that_jumps_does_not_shorten_the_period(driver: Removing, hours: int) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(2 * PASS)
    driver.ahead = hours * HOUR
    driver.append(lsn(1, 2), KEPT_FOR_EVER)
    driver.pass_time(GRACE - 4 * PASS)
    assert len(driver.stored()) == 2


def test_time_for_which_the_shard_was_down_does_not_count_and_what_was_counted_does(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - 2 * PASS)
    driver.start_again(1000 * HOUR)
    driver.pass_time(PASS)
    assert len(driver.stored()) == 2
    driver.pass_time(GRACE // 2)
    assert driver.stored() == []


def test_a_log_that_was_given_up_and_comes_back_goes_on_behind_its_trim_point(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE + 4 * PASS)
    driver.set_logs(1, 100)
    driver.append(lsn(2, 1), SYNC_LOG)
    driver.turn(start())
    kinds = [each[0] if isinstance(each, tuple) else each for each in told(driver)]
    assert kinds[0] == "TRIM"
    assert driver.trim_point() > LSN_INVALID
