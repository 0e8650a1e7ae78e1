"""A node takes a damaged entry at the end of its log for one that was never written, and the others believe it.

There: in Kafka a broker that found a damaged message truncated its log there; when it led the partition, the others truncated theirs, too.
https://www.usenix.org/conference/fast17/technical-sessions/presentation/ganesan

Here: a shard says of which LSNs its copy is damaged. For recovery it has neither stored them nor not stored them: where only it and shards without a copy
have answered, recovery waits for the others.
"""

from __future__ import annotations

import pytest

from server.simulation.faults.moments import last_copies
from tests.history.stage import LOG, Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation


def play() -> None:
    stage = Stage(nodes=3, replicate="node:2")
    attempt, (rotten, away) = stage.acknowledged_elsewhere()

    def damage() -> None:
        (disk,) = rotten.disks.values()
        key, _, lsn = last_copies(disk, LOG)[-1]
        assert attempt.position == (lsn, 0)
        disk.flip(key, 8 * disk.length_of(key) - 1)

    stage.recover_while_away(rotten, away, damage)


def test_recovery_waits_for_a_sound_copy() -> None:
    play()


def test_the_schedule_notices_a_recovery_that_takes_damage_for_absence() -> None:
    with FAULTS["damage_taken_for_absence"].planted(), pytest.raises(Violation):
        play()
