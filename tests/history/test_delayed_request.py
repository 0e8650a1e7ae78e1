"""A request of an earlier leader arrives late, when a later one is at work already.

There: requests of Kafka's transaction protocol named no epoch of the transaction, so one that was lost and came late was taken for a part of
the next transaction. Jepsen met it in Bufstream, https://jepsen.io/analyses/bufstream-0.1.0, and Kafka fixes it with KIP-890,
https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense

Here: every STORE names its epoch in its LSN, and the first STORE of a later epoch leaves a soft seal that refuses the earlier one, before any
recovery has come by. A recovery names its seal epoch, and is refused when a later one has sealed.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import PeerId
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Mutated, Stored
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation
from tests.unit.storage_node.fakes import ShardDriver, lsn, recovery_store, seal, stores


def play_store() -> None:
    shard = ShardDriver()
    shard.turn(*stores([lsn(1, 1)]))
    shard.turn(*stores([lsn(2, 1)]))
    shard.take(Stored)
    shard.turn(*stores([lsn(1, 2)]))
    answer = shard.take_one(Stored)
    if answer.status is not Status.PREEMPTED or lsn(1, 2) in shard.stored():
        raise Violation(f"epoch 2 has begun here, and a STORE of epoch 1 is answered {answer.status.name}")


def play_recovery() -> None:
    shard = ShardDriver()
    shard.turn(*stores([lsn(1, 1)]))
    shard.turn(seal(1))
    shard.turn(seal(4))
    shard.turn((PeerId(3), recovery_store(lsn(1, 2), 2)))
    answer = shard.take_one(Mutated)
    if answer.status is not Status.PREEMPTED or lsn(1, 2) in shard.stored():
        raise Violation(f"a later recovery has sealed, and an earlier one's STORE is answered {answer.status.name}")


def test_a_late_store_of_an_earlier_epoch_is_refused() -> None:
    play_store()


def test_a_late_store_of_an_earlier_recovery_is_refused() -> None:
    play_recovery()


def test_the_schedule_notices_a_shard_that_takes_late_stores() -> None:
    with FAULTS["soft_seal_ignored"].planted(), pytest.raises(Violation):
        play_store()


def test_the_schedule_notices_a_shard_that_takes_late_recoveries() -> None:
    with FAULTS["later_recovery_ignored"].planted(), pytest.raises(Violation):
        play_recovery()
