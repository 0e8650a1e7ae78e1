"""A node answers before it has synced, loses power, and takes part as if nothing were missing.

There: in Kafka a broker that lost unsynced records with its machine came back and led the partition while another replica still had them.
https://www.redpanda.com/blog/why-fsync-is-needed-for-data-safety-in-kafka-or-non-byzantine-protocols

Here: a log may be declared to count a copy as stored before it is synced. A shard notes that it answered so, and after a power cut it is authoritative
for none of the epochs in which entries may be missing; the other copies decide.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import SECOND
from tests.history.stage import Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2", extra='durability = "async"')
    client = stage.client()
    for _ in range(10):
        stage.acknowledged(client)
    # every shard has noted that it answers before it syncs, and has synced that
    stage.run(2 * SECOND)
    _, (cut, away) = stage.acknowledged_elsewhere()

    def lose_what_was_not_synced() -> None:
        for disk in cut.disks.values():
            disk.crash(surviving=0)

    stage.recover_while_away(cut, away, lose_what_was_not_synced)


def test_a_shard_that_lost_what_it_had_not_synced_is_not_authoritative_for_it() -> None:
    play()


def test_the_schedule_notices_a_shard_that_claims_what_it_lost() -> None:
    with FAULTS["loss_not_admitted"].planted(), pytest.raises(Violation):
        play()
