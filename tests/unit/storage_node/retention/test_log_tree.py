"""Nothing is deleted of logs of the log tree only because a node has not heard of them, or of how long they are to be kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.log_tree.commands import MakeLogGroup, Remove, Retired
from client.log_tree.view import LogTreeView
from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN_INVALID
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.messages import Started
from storage_node.settings import StorageSettings
from storage_node.shard import Shard
from tests.unit.client.log_tree.trees import Commands
from tests.unit.storage_node.fakes import ME, lsn, start
from tests.unit.storage_node.retention.test_retention import HOUR, Aging

LOG = TREE_LOG_ID_MIN
GRACE = 2 * HOUR


class TreeAging(Aging):
    """A shard of a node with a log tree; the test says what of it the node knows."""

    def __init__(self) -> None:
        self.tree, self.known = Commands(), LogTreeView()
        super().__init__(StorageSettings(removed_logs_grace_us=GRACE, removed_logs_interval_us=HOUR // 6))

    def open(self) -> None:
        self.config = replace(self.config, settings={"log_tree": {"enabled": True}}, run_time_logs=self.known)
        super().open()

    def hear(self) -> None:
        """The node's replica has applied what there is, and its end is confirmed from here on."""
        self.known.take(self.tree.state, is_known=True)
        self.node.on_logs_changed()

    def confirm_for(self, micros: int) -> None:
        """Let time pass in which the replica goes on being current."""
        end = self.now + micros
        while self.now < end:
            self.known.confirmed_at = self.now
            self.pass_time(10 * SECOND)

    @property
    def shard(self) -> Shard:
        """The only one."""
        return self.node.shards[ME].shard


@pytest.fixture
def driver() -> TreeAging:
    return TreeAging()


def test_an_unknown_log_is_kept_and_served(driver: TreeAging) -> None:
    driver.append(lsn(1, 1), LOG)
    driver.pass_time(3 * GRACE)
    assert driver.trim_point(LOG) == LSN_INVALID
    assert not driver.shard.removed
    driver.take(Started)
    driver.turn(start(log=LogId(LOG + 5)))
    assert driver.take_one(Started).status is Status.OK


def test_what_is_removed_goes_after_the_grace_period(driver: TreeAging) -> None:
    driver.tree.make(MakeLogGroup("/a"))
    driver.hear()
    driver.append(lsn(1, 1), LOG)
    driver.tree.apply(Remove("/a"))
    driver.hear()
    driver.pass_time(3 * GRACE)
    assert driver.trim_point(LOG) == LSN_INVALID, "some node may still take appends"
    driver.tree.apply(Retired(LOG))
    driver.hear()
    driver.pass_time(GRACE // 2)
    assert driver.trim_point(LOG) == LSN_INVALID
    driver.pass_time(GRACE)
    assert driver.trim_point(LOG) > lsn(1, 1)


def test_nothing_expires_while_the_tree_is_not_confirmed(driver: TreeAging) -> None:
    driver.tree.make(MakeLogGroup("/a", attributes={"backlog_us": "1h"}))
    driver.hear()
    driver.append(lsn(1, 1), LOG)
    driver.pass_time(4 * HOUR)
    assert driver.trim_point(LOG) == LSN_INVALID
    driver.confirm_for(HOUR // 2)
    assert driver.trim_point(LOG) == lsn(1, 1)


def test_what_is_unknown_is_synced_and_that_is_not_remembered(driver: TreeAging) -> None:
    assert driver.shard.is_sync(LOG)
    driver.tree.make(MakeLogGroup("/a", attributes={"durability": "async"}))
    driver.hear()
    assert not driver.shard.is_sync(LOG)
