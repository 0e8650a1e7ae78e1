"""A shard promises to refuse an old writer, loses power, and does not know of its promise any more.

There: BookKeeper without a journal, or with one that was lost: the fence is gone after an unclean restart, the old writer gets its entry
acknowledged beyond the end at which recovery has closed the ledger. https://github.com/apache/bookkeeper/blob/master/site3/website/src/pages/bps/BP-46-run-without-journal.md
(first scenario).

Here: SEALED is sent when the seal is synced, and a soft seal is in the same synced batch as the first STORE that sets it, so a shard that comes
back refuses what it had promised to refuse.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Sealed, Stored
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation
from tests.unit.storage_node.fakes import ShardDriver, lsn, seal, stores


def play() -> None:
    shard = ShardDriver()
    shard.turn(*stores([lsn(3, 1)]))
    shard.turn(seal(3))
    sealed = shard.take_one(Sealed)
    assert [row.status for row in sealed.logs] == [Status.OK]
    shard.power_cut()
    shard.turn(*stores([lsn(3, 2)]))
    answer = shard.take_one(Stored)
    if answer.status is not Status.PREEMPTED:
        raise Violation(f"epoch 3 was sealed; a STORE of it after a crash is answered {answer.status.name}")


def play_soft_seal() -> None:
    shard = ShardDriver()
    shard.turn(*stores([lsn(3, 1)]))
    shard.turn(*stores([lsn(4, 1)]))
    assert [answer.status for answer in shard.take(Stored)] == [Status.OK] * 2
    shard.power_cut()
    shard.turn(*stores([lsn(3, 2)]))
    answer = shard.take_one(Stored)
    if answer.status is not Status.PREEMPTED:
        raise Violation(f"epoch 4 was answered; a STORE of epoch 3 after a crash is answered {answer.status.name}")


def test_a_seal_that_was_answered_holds_after_a_power_cut() -> None:
    play()


def test_a_soft_seal_holds_after_a_power_cut() -> None:
    play_soft_seal()


@pytest.mark.parametrize("fault", ["seal_not_persisted", "sync_skipped", "seal_check_skipped"])
def test_the_schedule_notices_a_seal_that_is_forgotten(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()


def test_the_schedule_notices_a_soft_seal_that_is_ignored() -> None:
    with FAULTS["soft_seal_ignored"].planted(), pytest.raises(Violation):
        play_soft_seal()
