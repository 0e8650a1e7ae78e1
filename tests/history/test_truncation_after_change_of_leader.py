"""A replica that missed a change of leader truncates its end, and truncates too much.

There: a Kafka follower truncated its log to its own high watermark when it restarted or the leader changed. The high watermark lags behind
what is acknowledged, so acknowledged records were deleted; if that follower then became leader, they were lost.
https://cwiki.apache.org/confluence/display/KAFKA/KIP-101+-+Alter+Replication+Protocol+to+use+Leader+Epoch+rather+than+High+Watermark+for+Truncation

Here: a shard that missed the recovery of an epoch asks the others how that epoch ended, and deletes only what lies above the LNG that
recovery agreed on. Up to there everything is on full copysets, this shard's copies included; what lies above was brought to full copysets
among the shards that took part. While nobody answers it deletes nothing.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import node_peer
from logdevice_py.core.lsn import Epoch, Esn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.protocol.messages import EpochEnd, EpochRecoveryMetadata, GetEpochRecoveryMetadata
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation
from tests.unit.storage_node.fakes import SYNC_LOG, ShardDriver, interval, lsn, release, stores

RECOVERED_LNG = 3


def play() -> None:
    shard = ShardDriver()
    held = [lsn(1, esn) for esn in range(1, 6)]
    shard.turn(*stores(held))
    # its own release pointer, like a follower's high watermark, is far behind
    shard.turn(release(lsn(1, 1)))
    shard.turn(release(lsn(2, 1)))
    if shard.readers:
        shard.tell_history([interval()])
    questions = shard.take(GetEpochRecoveryMetadata)
    shard.advance(10 * SECOND)
    if shard.stored() != held:
        raise Violation(f"nobody has answered, and of {held} only {shard.stored()} are left")
    for question in questions:
        row = EpochEnd(Epoch(1), Status.OK, Epoch(1), Esn(RECOVERED_LNG), Esn(5), lsn(1, 5), Timestamp(0), 1)
        answer = EpochRecoveryMetadata(request_id=question.request_id, shard=question.shard, log=SYNC_LOG, epochs=[row])
        shard.turn((node_peer(question.shard), answer))
    if shard.stored() != held[:RECOVERED_LNG]:
        raise Violation(f"up to {RECOVERED_LNG} everything is acknowledged; left are {shard.stored()}")
    assert shard.log().last_released == lsn(2, 1)


def test_a_shard_that_missed_a_recovery_deletes_only_what_lies_above_its_lng() -> None:
    play()


@pytest.mark.parametrize("fault", ["purge_from_the_start", "purge_skipped", "release_before_purge"])
def test_the_schedule_notices_a_shard_that_deletes_too_much_or_too_little(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
