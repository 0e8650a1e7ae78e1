"""A node cannot read the metadata of a stream, calls the stream an orphan, and deletes its data.

There: in NATS JetStream a damaged snapshot on a minority of nodes made such a node judge streams as orphaned, delete them, and, once it
led, have the others delete them too. https://jepsen.io/analyses/nats-2.12.1

Here: missing metadata prove nothing. A shard deletes only what a recovery that is known to have ended has decided against, or what was
trimmed. Without the history of a log it waits, or asks everybody, and what nobody knows about stays.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import node_peer
from logdevice_py.core.lsn import Epoch, Esn, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.protocol.messages import EpochEnd, EpochRecoveryMetadata, GetEpochRecoveryMetadata
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation
from tests.unit.storage_node.fakes import SYNC_LOG, ShardDriver, lsn, release, stores


def play(*, complete: bool) -> None:
    """`complete`: the metadata log was read to its end and is empty; else too many of its shards have lost their data."""
    shard = ShardDriver()
    held = [lsn(1, esn) for esn in range(1, 4)]
    shard.turn(*stores(held))
    shard.turn(release(lsn(2, 1)))
    shard.tell_history([], complete=complete)
    shard.advance(10 * SECOND)
    for question in shard.take(GetEpochRecoveryMetadata):
        row = EpochEnd(Epoch(1), Status.NOTREADY, Epoch(0), Esn(0), Esn(0), Lsn(0), Timestamp(0), 0)
        answer = EpochRecoveryMetadata(request_id=question.request_id, shard=question.shard, log=SYNC_LOG, epochs=[row])
        shard.turn((node_peer(question.shard), answer))
    if shard.stored() != held:
        raise Violation(f"the metadata are missing, and of {held} only {shard.stored()} are left")
    shard.power_cut()
    if shard.stored() != held:
        raise Violation(f"after a restart only {shard.stored()} are left")


@pytest.mark.parametrize("complete", [True, False])
def test_nothing_is_deleted_because_metadata_are_missing(complete: bool) -> None:
    play(complete=complete)


@pytest.mark.parametrize("complete", [True, False])
def test_the_schedule_notices_a_shard_that_deletes_orphans(complete: bool) -> None:
    with FAULTS["orphans_deleted"].planted(), pytest.raises(Violation):
        play(complete=complete)
