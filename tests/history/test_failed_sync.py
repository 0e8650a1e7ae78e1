"""A sync fails once, the next one works, and what the first should have written is gone.

There: fsync reports an error once and marks the pages clean; PostgreSQL took the success of the next call for durability of all that had been
written before. https://lwn.net/Articles/752063/, https://www.usenix.org/conference/atc20/presentation/rebello

Here: a failed write or sync is final. The shard answers FAILED to all that waited for the sync and to all that comes later, until it is opened
again, which then counts as an end of a run in which unsynced data may be lost.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Stored
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation
from tests.unit.storage_node.fakes import ShardDriver, lsn, stores


def play() -> None:
    shard = ShardDriver()
    shard.turn(*stores([lsn(1, 1)]))
    shard.disk.fail_sync = True
    shard.turn(*stores([lsn(1, 2)]))
    shard.disk.fail_sync = False
    shard.turn(*stores([lsn(1, 3)]))
    acknowledged = [answer.lsn for answer in shard.take(Stored) if answer.status is Status.OK]
    shard.power_cut()
    missing = sorted(set(acknowledged) - set(shard.stored()))
    if missing:
        raise Violation(f"{missing} were answered OK and are gone")
    if lsn(1, 3) in acknowledged:
        raise Violation("the shard goes on after a failed sync")
    shard.turn(*stores([lsn(1, 4)]))
    assert shard.take_one(Stored).status is Status.OK


def test_nothing_is_answered_ok_that_a_failed_sync_covered_or_that_came_after_it() -> None:
    play()


@pytest.mark.parametrize("fault", ["failed_sync_taken_for_success", "sync_skipped"])
def test_the_schedule_notices_a_shard_that_goes_on(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
