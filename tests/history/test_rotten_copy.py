"""A node takes a damaged entry at the end of its log for one that was never written, and the others believe it.

There: in Kafka a broker that found a damaged message truncated its log there; when it led the partition, the others truncated theirs, too.
https://www.usenix.org/conference/fast17/technical-sessions/presentation/ganesan

Here: a shard says of which LSNs its copy is damaged. For recovery it has neither stored them nor not stored them: where only it and shards without a copy
have answered, recovery waits for the others.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import MILLISECOND, SECOND
from server.simulation.faults.moments import last_copies
from tests.history.stage import LOG, Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    client = stage.client()
    while True:
        attempt = stage.acknowledged(client)
        sequencer = stage.sequencer
        holders = stage.copysets[attempt.payload]
        if sequencer.id not in holders:
            break
    rotten, away = (stage.node(node) for node in sorted(holders))
    # one has it damaged; the other one has it and is not to be had while the epoch is recovered
    for node in (rotten, away, sequencer):
        node.crash(machine=False)
    (disk,) = rotten.disks.values()
    key, _, lsn = last_copies(disk, LOG)[-1]
    assert attempt.position == (lsn, 0)
    disk.flip(key, 8 * disk.length_of(key) - 1)
    stage.run(10 * MILLISECOND)
    for node in (rotten, sequencer):
        node.start()
    stage.append(stage.client())
    stage.run(8 * SECOND)
    away.start()
    stage.run(5 * SECOND)
    stage.finish()


def test_recovery_waits_for_a_sound_copy() -> None:
    play()


def test_the_schedule_notices_a_recovery_that_takes_damage_for_absence() -> None:
    with FAULTS["damage_taken_for_absence"].planted(), pytest.raises(Violation):
        play()
