"""When the disk runs full, the oldest partitions go first; readers are told, and nothing that is not released goes."""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND
from storage_node.log_store.settings import LogStoreSettings
from tests.unit.storage_node.fakes import SYNC_LOG, lsn, release, start, told
from tests.unit.storage_node.retention.test_retention import KEPT_FOR_EVER, MARGIN, PART, Aging

PERCENT = 20


class Filling(Aging):
    """A shard whose disk fills; log 90 has no backlog."""

    def open(self) -> None:
        self.store_settings = LogStoreSettings(partition_duration_us=PART, space_retention_percent=PERCENT)
        super().open()

    def fill(self, partitions: int) -> None:
        """Each log gets an entry in each partition."""
        for esn in range(1, partitions + 1):
            self.append(lsn(1, esn), KEPT_FOR_EVER)
            self.append(lsn(1, esn), LogId(91))
            self.pass_time(PART)
        self.append(lsn(1, partitions + 1), KEPT_FOR_EVER)

    def leave_free(self, size: int) -> None:
        """So many bytes below the limit are free."""
        self.disk.free = self.disk.total * PERCENT // 100 - size

    def first_kept(self, log: LogId = KEPT_FOR_EVER) -> int:
        return min(self.stored(log)) & 0xFFFFFFFF


@pytest.fixture
def driver() -> Filling:
    made = Filling()
    made.fill(6)
    return made


def test_nothing_goes_while_there_is_enough_space(driver: Filling) -> None:
    driver.leave_free(0)
    driver.pass_time(2 * MARGIN)
    assert driver.first_kept() == 1
    assert driver.node.metrics.space_trims == 0


def test_no_more_partitions_go_than_are_needed_and_the_oldest_first(driver: Filling) -> None:
    driver.leave_free(1)
    driver.pass_time(2 * MARGIN)
    assert driver.first_kept() == driver.first_kept(LogId(91)) == 2
    assert driver.trim_point(KEPT_FOR_EVER) == lsn(1, 1)
    assert driver.node.metrics.space_trims == 2
    assert driver.node.metrics.retention_trims == 0


def test_it_goes_on_as_long_as_space_does_not_come_back_but_never_takes_the_latest(driver: Filling) -> None:
    for _ in range(10):
        driver.leave_free(1)
        driver.pass_time(MARGIN)
    assert driver.stored(KEPT_FOR_EVER) == [lsn(1, 7)]
    assert driver.stored(LogId(91)) == []


def test_readers_are_told(driver: Filling) -> None:
    driver.leave_free(1)
    driver.pass_time(11 * SECOND)
    driver.turn(start(log=KEPT_FOR_EVER))
    assert told(driver)[:2] == [("TRIM", Lsn(1), lsn(1, 1)), lsn(1, 2)]


def test_what_is_not_released_stays_and_the_next_partition_goes(driver: Filling) -> None:
    driver.append(lsn(1, 1), SYNC_LOG, released=False)
    for _ in range(10):
        driver.leave_free(1)
        driver.pass_time(MARGIN)
    assert driver.stored(SYNC_LOG) == [lsn(1, 1)]
    driver.turn(release(lsn(1, 1)))


def test_a_full_disk_that_is_not_asked_to_trim_anything_keeps_everything() -> None:
    driver = Aging()
    driver.append(lsn(1, 1), KEPT_FOR_EVER)
    driver.pass_time(PART)
    driver.append(lsn(1, 2), KEPT_FOR_EVER)
    driver.disk.free = 0
    driver.pass_time(10 * MARGIN)
    assert len(driver.stored(KEPT_FOR_EVER)) == 2
