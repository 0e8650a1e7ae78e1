"""What a log that was removed from the cluster file holds goes after a grace period, which no clock shortens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.logs import LogTree
from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import ESN_MAX, LSN_INVALID
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Stored, TrimPoints
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import ME, SHARDS, SYNC_LOG, THREE_COPIES, ShardDriver, lsn, start, told
from tests.unit.storage_node.retention.test_retention import HOUR, KEPT_FOR_EVER, Aging

PASS = HOUR // 6
GRACE = 4 * HOUR
END = lsn(1, ESN_MAX)
"""With the rest of the epoch, which would look lost otherwise."""


class Removing(Aging):
    def __init__(self) -> None:
        self.file: Any = None
        super().__init__(StorageSettings(removed_logs_grace_us=GRACE, removed_logs_interval_us=PASS))

    def open(self) -> None:
        if self.file is None:
            super().open()
        else:
            ShardDriver.open(self)

    def put_logs(self, first: int, last: int) -> None:
        """The cluster file has these logs; the node has not read it."""
        logs = LogTree.build(defaults={"replication": THREE_COPIES}, groups=[("/all", first, last, {})])
        fields = {
            name: getattr(self.config, name)
            for name, field in self.config.__dataclass_fields__.items()
            if field.init and name != "logs"
        }
        self.config = self.file = type(self.config)(**fields, logs=logs)

    def set_logs(self, first: int, last: int) -> None:
        """The node reads a cluster file with these logs."""
        self.put_logs(first, last)
        self.node.on_config(self.config, self.now)

    def start_again(self, down: int, *, power_cut: bool = False) -> None:
        """The process ends, in order or not, and begins again; the file is as it was."""
        if power_cut:
            self.disk.crash()
        else:
            self.node.shut_down(self.now)
            self.turn()
            self.store.close()
        self.now = Micros(self.now + down)
        self.open()


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


@pytest.mark.parametrize("batches", range(8))
def test_a_power_cut_while_it_goes_leaves_nothing_that_looks_lost(driver: Removing, batches: int) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    before = driver.disk.unsynced
    driver.hold = True
    driver.pass_time(4 * PASS)
    assert driver.stored() == []
    driver.hold = False
    driver.put_logs(1, 100)
    driver.power_cut(before + batches)
    assert driver.stored() == [lsn(1, 1), lsn(1, 2)] or driver.trim_point() == END


def test_a_log_that_comes_back_counts_from_nothing(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    driver.set_logs(1, 100)
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    assert len(driver.stored()) == 2
    driver.pass_time(4 * PASS)
    assert driver.stored() == []


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_log_that_came_back_while_the_shard_was_down_counts_from_nothing(driver: Removing, power_cut: bool) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    driver.put_logs(1, 100)
    driver.start_again(HOUR, power_cut=power_cut)
    driver.set_logs(50, 100)
    driver.pass_time(GRACE - PASS)
    assert len(driver.stored()) == 2
    driver.pass_time(4 * PASS)
    assert driver.stored() == []


def test_a_file_that_is_older_than_the_one_of_another_node_says_nothing_about_logs(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.view.config_version = driver.config.version + 1
    driver.pass_time(2 * GRACE)
    assert len(driver.stored()) == 2
    driver.view.config_version = driver.config.version
    driver.pass_time(GRACE)
    assert len(driver.stored()) == 2, "counted from here on"
    driver.pass_time(4 * PASS)
    assert driver.stored() == []


def test_a_log_that_came_back_elsewhere_just_before_its_time_was_over_keeps_what_it_got_meanwhile(
    driver: Removing,
) -> None:
    """This node hears of the file a moment later, from another one."""
    driver.set_logs(50, 100)
    while not driver.log(SYNC_LOG).seal_epoch:
        driver.pass_time(PASS)
    driver.view.config_version = driver.config.version + 1
    driver.pass_time(2 * PASS)
    assert len(driver.stored()) == 2
    driver.view.config_version = driver.config.version
    driver.set_logs(1, 100)
    driver.pass_time(GRACE + 4 * PASS)
    assert len(driver.stored()) == 2
    assert driver.trim_point() == LSN_INVALID


def test_what_a_log_gets_in_a_later_epoch_while_it_is_about_to_go_is_ended_first_as_well(driver: Removing) -> None:
    driver.set_logs(50, 100)
    while not driver.log(SYNC_LOG).seal_epoch:
        driver.pass_time(PASS)
    driver.append(lsn(2, 1), released=False)
    driver.pass_time(PASS)
    assert len(driver.stored()) == 3
    driver.pass_time(2 * PASS)
    assert driver.stored() == []
    assert driver.trim_point() == lsn(2, ESN_MAX)


def test_what_is_deleted_stays_ended_though_the_disk_refused_the_seal_first(driver: Removing) -> None:
    driver.set_logs(50, 100)
    while not driver.log(SYNC_LOG).seal_epoch:
        driver.disk.overloaded = True
        driver.pass_time(PASS)
    driver.disk.overloaded = False
    while driver.stored():
        driver.pass_time(PASS)
    driver.pass_time(PASS)
    driver.power_cut()
    assert driver.trim_point() == END
    driver.set_logs(1, 100)
    driver.sent.clear()
    driver.append(lsn(1, 3), released=False)
    assert driver.take_one(Stored).status is Status.PREEMPTED


def test_news_of_a_newer_file_ends_the_pass_that_is_under_way(driver: Removing) -> None:
    driver.settings = replace(driver.settings, retention_logs_per_turn=1)
    driver.restart()
    driver.set_logs(200, 300)
    logs = (SYNC_LOG, KEPT_FOR_EVER)
    while not all(driver.log(log).seal_epoch for log in logs):
        driver.pass_time(PASS)
    while all(driver.stored(log) for log in logs):
        driver.advance(100)
    driver.view.config_version = driver.config.version + 1
    driver.pass_time(PASS)
    assert sum(bool(driver.stored(log)) for log in logs) == 1


def test_who_does_not_hear_most_others_cannot_know_whether_its_file_is_old(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.view.is_isolated = True
    driver.pass_time(2 * GRACE)
    assert len(driver.stored()) == 2


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


def test_a_log_that_was_deleted_and_comes_back_goes_on_behind_its_trim_point(driver: Removing) -> None:
    driver.set_logs(50, 100)
    driver.pass_time(GRACE + 4 * PASS)
    driver.set_logs(1, 100)
    driver.append(lsn(2, 1), SYNC_LOG)
    driver.turn(start())
    kinds = [each[0] if isinstance(each, tuple) else each for each in told(driver)]
    assert kinds[0] == "TRIM"
    assert driver.trim_point() > LSN_INVALID


@pytest.mark.parametrize("told_by_another", [False, True])
def test_a_sequencer_that_stalled_cannot_go_on_below_what_was_deleted(driver: Removing, told_by_another: bool) -> None:
    driver.set_logs(50, 100)
    if told_by_another:
        points = TrimPoints(shard=ME, sender=SHARDS[1], wall=driver.clock(), logs=[(SYNC_LOG, END)])
        driver.turn((PeerId(1), points))
    else:
        driver.pass_time(GRACE + 4 * PASS)
    assert driver.trim_point() == END
    driver.power_cut()
    driver.set_logs(1, 100)
    driver.sent.clear()
    driver.append(lsn(1, 3), released=False)
    assert driver.take_one(Stored).status is Status.PREEMPTED
    driver.append(lsn(2, 1), released=False)
    assert driver.take_one(Stored).status is Status.OK


def test_a_trim_point_that_another_shard_tells_of_a_log_in_use_seals_nothing(driver: Removing) -> None:
    points = TrimPoints(shard=ME, sender=SHARDS[1], wall=driver.clock(), logs=[(SYNC_LOG, END)])
    driver.turn((PeerId(1), points))
    driver.sent.clear()
    driver.append(lsn(1, 3), released=False)
    assert driver.take_one(Stored).status is Status.OK
