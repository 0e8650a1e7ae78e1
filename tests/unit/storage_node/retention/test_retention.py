"""Trim points follow the age of what is stored, and no clock alone can make them hurry."""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.config.logs import LogTree
from logdevice_py.core.ids import LogId, NodeId, PeerId, node_of
from logdevice_py.core.lsn import ESN_MAX, Epoch, Esn, Lsn
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.protocol.messages import TrimPoints
from storage_node.epochs.recovered_epochs import RecoveredEpochs
from storage_node.log_state import LogState
from storage_node.log_store.settings import LogStoreSettings
from storage_node.retention.retention import AgreedClock, beside_bridge
from storage_node.settings import StorageSettings
from storage_node.stored_metadata import RecoveredEpoch
from tests.unit.storage_node.fakes import (
    ME,
    SEQUENCER,
    SYNC_LOG,
    THREE_COPIES,
    ShardDriver,
    image,
    lsn,
    release,
    start,
    store,
    told,
)

HOUR = 3_600 * SECOND
BACKLOG = HOUR
MARGIN = 60 * SECOND
PART = 900 * SECOND
KEPT_LONG = LogId(50)
KEPT_FOR_EVER = LogId(90)
SETTINGS = LogStoreSettings(partition_duration_us=PART)


class Aging(ShardDriver):
    """A shard whose wall clock and monotonic clock can be told apart; log 7 is kept for an hour, log 50 for ten, log 90 for ever."""

    def __init__(self, settings: StorageSettings | None = None, store_settings: LogStoreSettings = SETTINGS) -> None:
        self.ahead = 0
        """By how much the wall clock is wrong."""
        self.hears_others = True
        self.store_settings = store_settings
        self.wall = self.clock
        super().__init__(settings)

    def open(self) -> None:
        logs = LogTree.build(
            defaults={"replication": THREE_COPIES},
            groups=[
                ("/short", 1, 49, {"backlog_us": BACKLOG}),
                ("/long", 50, 59, {"backlog_us": 10 * BACKLOG}),
                ("/ever", 60, 100, {}),
            ],
        )
        self.config = type(self.config)(**{**_fields(self.config), "logs": logs})
        super().open()

    def append(self, position: Lsn, log: LogId = SYNC_LOG, *, stamp: int | None = None, released: bool = True) -> None:
        timestamp = Timestamp(self.now + 100 * HOUR if stamp is None else stamp)
        message = store(position, log=log)
        message.image = image(position, log=log, timestamp=timestamp)
        self.turn((SEQUENCER, message))
        if released:
            self.turn(release(position, log))

    def pass_time(self, micros: int) -> None:
        """Let time pass, second by second as far as the store's upkeep goes."""
        end = self.now + micros
        while self.now < end:
            self.advance(min(30 * SECOND, end - self.now))
            if self.hears_others:
                self.hear_others()
            self.store.maintain(self.clock())

    def clock(self) -> Timestamp:
        return Timestamp(self.now + 100 * HOUR + self.ahead)

    def hear_others(self) -> None:
        """The other nodes tell their clocks, which are right."""
        own = self.node.node
        for shard in self.config.storage_shards():
            if node_of(shard) != own:
                wall = Timestamp(self.now + 100 * HOUR)
                message = TrimPoints(shard=ME, sender=shard, wall=wall, logs=[])
                self.turn((PeerId(node_of(shard)), message))

    def trim_point(self, log: LogId = SYNC_LOG) -> Lsn:
        point = self.log(log).trim_point
        assert isinstance(point, int)
        return Lsn(point)


def _fields(config: Any) -> dict[str, Any]:
    return {
        name: getattr(config, name) for name in config.__dataclass_fields__ if config.__dataclass_fields__[name].init
    }


@pytest.fixture
def driver() -> Aging:
    return Aging()


class TestAge:
    def test_entries_are_trimmed_when_their_partition_is_older_than_the_backlog(self, driver: Aging) -> None:
        driver.append(lsn(1, 1))
        driver.append(lsn(1, 2))
        driver.pass_time(PART)
        driver.append(lsn(1, 3))
        driver.pass_time(BACKLOG - MARGIN)
        driver.append(lsn(1, 4))
        assert driver.trim_point() == 0
        driver.pass_time(3 * MARGIN)
        assert driver.trim_point() == lsn(1, 2)
        assert driver.stored() == [lsn(1, 3), lsn(1, 4)]

    def test_each_log_is_kept_for_its_own_time(self, driver: Aging) -> None:
        for log in (SYNC_LOG, KEPT_LONG, KEPT_FOR_EVER):
            driver.append(lsn(1, 1), log)
        for esn in range(2, 30):
            driver.pass_time(PART)
            driver.append(lsn(1, esn))
        assert driver.trim_point() >= lsn(1, 20)
        assert driver.trim_point(KEPT_LONG) == driver.trim_point(KEPT_FOR_EVER) == 0
        for esn in range(30, 50):
            driver.pass_time(PART)
            driver.append(lsn(1, esn))
        assert driver.trim_point(KEPT_LONG) == lsn(1, 1)
        assert driver.trim_point(KEPT_FOR_EVER) == 0
        assert driver.stored(KEPT_FOR_EVER) == [lsn(1, 1)]
        # the first partition is still needed, those in which only short-lived logs lay are gone
        assert driver.store.partitions[0] == 1_000_000
        assert len(driver.store.partitions) < 10

    def test_so_they_are_where_a_log_that_is_kept_for_ever_needs_every_partition(self) -> None:
        few = LogStoreSettings(partition_duration_us=PART, partitions_soft_max=6, partitions_max=12)
        driver = Aging(store_settings=few)
        for esn in range(1, 81):
            driver.append(lsn(1, esn))
            driver.append(lsn(1, esn), KEPT_FOR_EVER)
            driver.pass_time(PART)
        assert driver.trim_point() >= lsn(1, 60)
        assert driver.trim_point(KEPT_FOR_EVER) == 0
        assert len(driver.store.partitions) < 20

    def test_a_log_that_is_to_be_kept_for_less_is_looked_at_though_nothing_gets_older(self, driver: Aging) -> None:
        for log in (SYNC_LOG, KEPT_LONG):
            driver.append(lsn(1, 1), log)
        driver.pass_time(PART)
        driver.append(lsn(1, 2))
        driver.pass_time(2 * BACKLOG)
        assert (driver.trim_point(), driver.trim_point(KEPT_LONG)) == (lsn(1, 2), 0)
        logs = LogTree.build(
            defaults={"replication": THREE_COPIES}, groups=[("/short", 1, 100, {"backlog_us": BACKLOG})]
        )
        changed = {**_fields(driver.config), "logs": logs, "version": 2}
        driver.node.on_config(type(driver.config)(**changed), driver.now)
        driver.pass_time(3 * MARGIN)
        assert driver.trim_point(KEPT_LONG) == lsn(1, 1)

    def test_readers_are_told_of_what_is_gone(self, driver: Aging) -> None:
        driver.append(lsn(1, 1))
        driver.pass_time(PART)
        driver.append(lsn(1, 2))
        driver.pass_time(BACKLOG)
        driver.append(lsn(1, 3))
        driver.pass_time(3 * MARGIN)
        driver.turn(start())
        assert told(driver) == [("TRIM", Lsn(1), lsn(1, 1)), lsn(1, 2), lsn(1, 3)]

    def test_the_trim_point_is_there_after_a_power_cut(self, driver: Aging) -> None:
        driver.append(lsn(1, 1))
        driver.pass_time(PART)
        driver.append(lsn(1, 2))
        driver.pass_time(BACKLOG)
        driver.append(lsn(1, 3))
        driver.pass_time(3 * MARGIN)
        driver.power_cut()
        assert driver.trim_point() == lsn(1, 1)
        assert driver.stored() == [lsn(1, 2), lsn(1, 3)]

    def test_what_is_not_released_is_kept(self, driver: Aging) -> None:
        driver.append(lsn(1, 1))
        driver.append(lsn(1, 2), released=False)
        for esn in range(1, 10):
            driver.pass_time(PART)
            driver.append(lsn(1, esn), KEPT_FOR_EVER)
        assert driver.trim_point() == lsn(1, 1)
        driver.turn(release(lsn(1, 2)))
        driver.pass_time(MARGIN)
        assert driver.trim_point() == lsn(1, 2)

    def test_many_logs_take_several_turns(self) -> None:
        driver = Aging(StorageSettings(retention_logs_per_turn=7))
        logs = [LogId(number) for number in range(1, 50)]
        for log in logs:
            driver.append(lsn(1, 1), log)
        driver.pass_time(PART)
        driver.append(lsn(1, 2))
        driver.pass_time(BACKLOG)
        driver.append(lsn(1, 3))
        driver.pass_time(3 * MARGIN)
        assert {driver.trim_point(log) for log in logs} == {lsn(1, 1)}

    def test_a_refusing_disk_gets_the_trim_points_again(self, driver: Aging) -> None:
        driver.append(lsn(1, 1))
        driver.pass_time(PART)
        driver.append(lsn(1, 2))
        driver.disk.overloaded = True
        driver.pass_time(BACKLOG + 3 * MARGIN)
        driver.disk.overloaded = False
        driver.pass_time(MARGIN)
        assert driver.stored() == [lsn(1, 2)]
        driver.power_cut()
        assert driver.trim_point() == lsn(1, 1)


class TestBridges:
    """The rest of an epoch whose bridge is trimmed alone would look lost to readers."""

    def state(self, *, released: Lsn, clean: int, bridge: int | None) -> LogState:
        state = LogState(SYNC_LOG)
        state.last_released = released
        state.clean_epoch = Epoch(clean)
        if bridge is not None:
            ended = RecoveredEpoch(Epoch(9), Esn(1), Esn(bridge), lsn(1, 1), Timestamp(0), True)
            state.recovered = RecoveredEpochs()
            state.recovered.put(Epoch(1), ended.encode())
        return state

    def test_the_rest_of_the_epoch_goes_with_its_bridge(self) -> None:
        state = self.state(released=lsn(2, 3), clean=1, bridge=8)
        assert beside_bridge(state, lsn(1, 8)) == lsn(1, ESN_MAX)
        assert beside_bridge(state, lsn(1, 9)) == lsn(1, ESN_MAX)
        assert beside_bridge(state, lsn(1, 7)) == lsn(1, 7)
        assert beside_bridge(state, lsn(2, 2)) == lsn(2, 2)

    def test_a_bridge_that_is_the_tail_stays(self) -> None:
        state = self.state(released=lsn(1, 8), clean=1, bridge=8)
        assert beside_bridge(state, lsn(1, 8)) == lsn(1, 7)

    def test_what_may_be_a_bridge_stays(self) -> None:
        state = self.state(released=lsn(2, 3), clean=1, bridge=None)
        assert beside_bridge(state, lsn(1, 8)) == lsn(1, 7)

    def test_nothing_is_changed_in_an_epoch_that_goes_on(self) -> None:
        state = self.state(released=lsn(1, 8), clean=0, bridge=None)
        assert beside_bridge(state, lsn(1, 8)) == lsn(1, 8)
        assert beside_bridge(state, Lsn(0)) == 0


class TestClocks:
    def write_and_wait(self, driver: Aging, stamp: int | None = None) -> None:
        driver.append(lsn(1, 1), stamp=stamp)
        driver.pass_time(PART)
        driver.append(lsn(1, 2))

    def test_a_node_whose_clock_jumps_ahead_trims_nothing_early(self, driver: Aging) -> None:
        self.write_and_wait(driver)
        driver.ahead = 1_000 * HOUR
        driver.pass_time(BACKLOG - 3 * MARGIN)
        driver.append(lsn(1, 3))
        assert driver.trim_point() == 0

    def test_records_from_a_clock_ahead_are_kept_until_that_time_has_come(self, driver: Aging) -> None:
        self.write_and_wait(driver, driver.now + 105 * HOUR)
        driver.pass_time(5 * HOUR)
        driver.append(lsn(1, 3))
        assert driver.trim_point() == 0
        driver.pass_time(HOUR + 3 * MARGIN)
        assert driver.trim_point() >= lsn(1, 1)

    def test_records_from_a_clock_behind_are_kept_for_as_long_as_others(self, driver: Aging) -> None:
        self.write_and_wait(driver, 5)
        driver.pass_time(BACKLOG - 3 * MARGIN)
        assert driver.trim_point() == 0

    def test_one_record_from_far_ahead_does_not_age_the_others(self, driver: Aging) -> None:
        self.write_and_wait(driver)
        driver.append(lsn(1, 3), stamp=driver.now + 10_000 * HOUR)
        driver.pass_time(BACKLOG - 3 * MARGIN)
        assert driver.trim_point() == 0

    def test_time_while_the_shard_was_down_and_nothing_was_written_does_not_count(self, driver: Aging) -> None:
        self.write_and_wait(driver)
        driver.restart()
        driver.now = Micros(driver.now + 50 * HOUR)
        driver.open()
        driver.pass_time(BACKLOG - 3 * MARGIN)
        assert driver.trim_point() == 0
        driver.append(lsn(1, 3))
        driver.pass_time(3 * MARGIN)
        assert driver.trim_point() >= lsn(1, 1)

    def test_without_news_from_half_of_the_other_nodes_nothing_is_trimmed(self, driver: Aging) -> None:
        driver.hears_others = False
        self.write_and_wait(driver)
        driver.pass_time(10 * BACKLOG)
        driver.append(lsn(1, 3))
        driver.pass_time(3 * MARGIN)
        assert driver.trim_point() == 0
        driver.hears_others = True
        driver.pass_time(3 * MARGIN)
        assert driver.trim_point() >= lsn(1, 1)

    def test_a_node_that_sequences_with_its_own_clock_ahead_trims_nothing_early(self, driver: Aging) -> None:
        self.write_and_wait(driver)
        driver.restart()
        driver.open()
        driver.ahead = 1_000 * HOUR
        driver.append(lsn(1, 3), stamp=driver.clock())
        driver.pass_time(BACKLOG - 3 * MARGIN)
        assert driver.trim_point() == 0

    def test_a_node_whose_clock_was_behind_while_it_wrote_trims_nothing_early(self, driver: Aging) -> None:
        driver.append(lsn(1, 9), KEPT_FOR_EVER)
        driver.pass_time(MARGIN)
        driver.ahead = -20 * HOUR
        driver.append(lsn(1, 1), stamp=driver.clock())
        driver.ahead = -20 * HOUR + PART
        driver.store.maintain(driver.clock())
        driver.pass_time(MARGIN)
        driver.append(lsn(1, 2), stamp=driver.clock())
        driver.ahead = 0
        driver.append(lsn(1, 10), KEPT_FOR_EVER)
        driver.pass_time(BACKLOG - 6 * MARGIN)
        assert driver.trim_point() == 0

    def test_the_agreed_clock_goes_by_half_of_the_others(self) -> None:
        others = {NodeId(1), NodeId(2), NodeId(3)}
        clock = AgreedClock(lambda: Timestamp(10_000), lambda: others)
        clock.observe(Timestamp(10_000), Micros(0))
        clock.hear(NodeId(1), Timestamp(9_000), Micros(0))
        assert clock.read(Micros(0)) == 0
        clock.hear(NodeId(2), Timestamp(500), Micros(0))
        assert clock.read(Micros(10)) == 510
        clock.hear(NodeId(3), Timestamp(600), Micros(10))
        assert clock.read(Micros(20)) == 610
        others.discard(NodeId(1))
        assert clock.read(Micros(20)) == 610

    def test_the_agreed_clock_waits_for_both(self) -> None:
        wall = [Timestamp(100)]
        clock = AgreedClock(lambda: wall[0])
        assert clock.read(Micros(0)) == 0
        clock.observe(Timestamp(50), Micros(0))
        assert clock.read(Micros(10)) == 60
        assert clock.read(Micros(70)) == 100
        clock.observe(Timestamp(40), Micros(70))
        wall[0] = Timestamp(1_000)
        assert clock.read(Micros(70)) == 120
