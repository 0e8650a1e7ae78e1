"""The shards that have copies of the end of an epoch leave the cluster, one after the other and without having been drained.

There: a bridge is a record like others, so that its last copy takes the proof along that nothing was written behind it.

Here: every shard that took part in the recovery knows how the epoch ended, and tells readers and later recoveries of it.
"""

from __future__ import annotations

import pytest

from client.read.items import Gap, GapKind
from logdevice_py.core.lsn import ESN_MAX, Lsn, compose_lsn
from logdevice_py.core.units import SECOND
from server.simulation.machines import SimNode
from storage_node.log_store import keys
from tests.history.stage import LOG, Stage
from tests.history.test_nodes_removed_one_by_one import PAUSE, are_settled
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Attempt, Violation

NODES = 11


def holders(stage: Stage, lsn: Lsn) -> set[int]:
    """The nodes whose disks have a copy."""
    first, behind = keys.data_bounds(LOG, lsn, lsn)
    return {
        node.id
        for node in stage.cluster.nodes.values()
        if any(first <= key < behind for disk in node.disks.values() for key in disk.rows)
    }


def take_out(stage: Stage, node: SimNode) -> None:
    stage.take_out(node)
    stage.run(PAUSE)
    stage.run_until("logs that leave", lambda: are_settled(stage))


def play(seed: int, epoch: int, *, record_is_lost: bool = False) -> list[Gap]:
    """Of the epoch every copy of its end goes: behind the last record of epoch 1, or that of epoch 2, in which nothing is written. Returns what a
    reader of everything takes for lost."""
    stage = Stage(nodes=NODES, replicate="node:3", seed=seed)
    stage.history.loses = record_is_lost
    appended = stage.acknowledged(stage.client())
    stage.run(SECOND)
    record = stage.copysets[appended.payload]
    take_out(stage, stage.sequencer)
    bridge = compose_lsn(epoch, 2 if epoch == 1 else 1)
    if epoch == 2:
        take_out(stage, stage.node(min(node.id for node in stage.others() if node.id not in record)))
    ends = holders(stage, bridge)
    leave = ends | record if record_is_lost else ends
    assert len(ends) == 3
    assert record_is_lost or record - leave, "the schedule keeps a copy of the record"
    for node in sorted(leave):
        if stage.node(node).root is not None:
            take_out(stage, stage.node(node))
    return read(stage, appended)


def play_at_once() -> list[Gap]:
    """All nodes that have a copy of the record leave before the epoch is recovered: nobody can say what it held."""
    stage = Stage(nodes=NODES, replicate="node:3")
    stage.history.loses = True
    appended = stage.acknowledged(stage.client())
    stage.run(SECOND)
    for node in sorted(stage.copysets[appended.payload]):
        stage.take_out(stage.node(node))
    stage.run(PAUSE)
    return read(stage, appended)


def read(stage: Stage, appended: Attempt) -> list[Gap]:
    last = stage.acknowledged(stage.client())
    stage.run(SECOND)
    assert last.position is not None
    seen = stage.read(last.position[0])
    assert {payload for _, _, payload in seen.records} <= {appended.payload, last.payload}
    return [gap for gap in seen.gaps if gap.kind is GapKind.DATALOSS]


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_behind_the_end_is_told_as_lost(seed: int, epoch: int) -> None:
    assert play(seed, epoch) == []


@pytest.mark.parametrize("epoch", [1, 2])
def test_what_is_lost_before_the_end_is_told_as_lost(epoch: int) -> None:
    record = compose_lsn(1, 1)
    assert [(gap.lo, gap.hi) for gap in play(1, epoch, record_is_lost=True)] == [(record, record)]


def test_of_an_epoch_of_which_nobody_can_say_how_it_ended_everything_is_told_as_lost() -> None:
    assert [(gap.lo, gap.hi) for gap in play_at_once()] == [(compose_lsn(1, 1), compose_lsn(1, ESN_MAX))]


@pytest.mark.parametrize("epoch", [1, 2])
def test_the_schedule_notices_ends_that_are_not_told(epoch: int) -> None:
    with FAULTS["ends_untold"].planted(), pytest.raises(Violation, match="DATALOSS"):
        play(1, epoch)


def test_the_schedule_notices_losses_that_are_hidden() -> None:
    with FAULTS["ends_without_proof"].planted():
        assert play_at_once() == []
