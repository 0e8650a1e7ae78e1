"""What one change of leader decided is decided again by a second one right behind it, which finds more, and replicas differ for good.

There: in Kafka two leaders in quick succession could leave a follower with records that the others do not have, as nobody compared where each leader's
records end.
https://cwiki.apache.org/confluence/display/KAFKA/KIP-279%3A+Fix+log+divergence+between+leader+and+follower+after+fast+leader+fail+over

Here: a recovery ends the epoch with a bridge. Another recovery of the same epoch, by a node that does not know that the first one came to its end, may meet
a shard that the first one did not: what lies behind the bridge was acknowledged to nobody and becomes a hole, on that shard and in its memory as well.
"""

from __future__ import annotations

from typing import Any

import pytest

from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import Cleaned
from server.simulation.machines import SimNode
from tests.history.stage import LOG, Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation

SEEDS = (2, 6, 7)
"""Who has copies of what is a matter of chance, and so is which shard is clean first."""


def _first_clean(stage: Stage) -> tuple[SimNode, SimNode]:
    """Run until a shard tells a node that recovers the log that the epoch is clean; both nodes."""
    found: list[tuple[SimNode, SimNode]] = []

    def watch(node: SimNode, effects: list[Any]) -> None:
        for effect in effects:
            if type(effect) is Send and type(effect.message) is Cleaned and 0 <= effect.to != int(node.id):
                rows = effect.message.logs
                if any(row.log == LOG and row.status is Status.OK for row in rows):
                    found.append((node, stage.cluster.machine(effect.to)))

    stage.cluster.watchers.append(watch)
    scheduler = stage.cluster.scheduler
    end = scheduler.now + 60 * SECOND
    while not found:
        assert scheduler.now < end, "nobody recovers the log"
        scheduler.run_until(scheduler.now + MILLISECOND // 50)  # before the epoch store knows
    stage.cluster.watchers.remove(watch)
    return found[0]


def play(seed: int) -> None:
    stage = Stage(nodes=4, replicate="node:2", seed=seed)
    client = stage.client()
    first = stage.acknowledged(client)
    assert first.position is not None
    # both begin where the epoch will end, and hear nobody until it was recovered twice
    followers = [stage.client(), stage.client()]
    for follower in followers:
        stage.follow(follower, Lsn(first.position[0] + 1))
    stage.run(SECOND)
    for follower in followers:
        for node in stage.others():
            stage.block(node, follower)
    old = stage.sequencer
    holder, *others = stage.others(old)
    # only one shard gets what is appended now; what the sequencer stores itself is lost with its machine
    for node in others:
        stage.block(old, node)
    stage.block(holder, old)
    old.disk_settings.hanging = True
    for _ in range(12):
        stage.append(client)
        stage.run(25 * MILLISECOND)
    old.crash(machine=True)
    old.disk_settings.hanging = False
    for node in stage.others(holder):
        stage.block(node, holder)
        stage.block(holder, node)
    for node in others:
        stage.unblock(old, node)
    old.start()
    stage.append(stage.client())
    clean, recovering = _first_clean(stage)
    for node in {clean, recovering}:
        node.crash(machine=False)
    # one shard knows how the epoch ended and is away; another one holds more of it
    for node in stage.others(holder):
        stage.unblock(node, holder)
        stage.unblock(holder, node)
    stage.run(100 * MILLISECOND)
    recovering.start()
    stage.acknowledged(stage.client())
    stage.run(10 * SECOND)
    clean.start()
    stage.run(SECOND)
    stage.acknowledged(stage.client())
    stage.run(5 * SECOND)
    # a reader takes the copy of highest rank of those that it hears of in time: each of these hears one shard first
    for follower, heard in zip(followers, (holder, clean), strict=True):
        stage.unblock(heard, follower)
    stage.run(5 * SECOND)
    stage.finish()


def play_all() -> None:
    for seed in SEEDS:
        play(seed)


def test_a_second_recovery_decides_as_the_first_one_did() -> None:
    play_all()


@pytest.mark.parametrize("fault", ["entries_behind_bridge_kept", "first_copy_kept"])
def test_the_schedule_notices_what_lies_behind_the_bridge(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation, match="a reader was told"):
        play_all()
