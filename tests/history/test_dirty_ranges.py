"""A machine goes down before its disk has what it answered, and comes back: what it lost it gets from the others, and says so no sooner.

There: LogDevice marks the time ranges in which a node that was cut off may lack records, and rebuilds them.

Here: ranges of LSNs are marked, per log; the shard asks the others for the copies whose copyset names it, and the mark goes when all that could be
missing must have been among the answers.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import NodeId, node_of
from logdevice_py.core.units import MILLISECOND, SECOND
from server.simulation.machines import SimNode
from storage_node.log_store.keys import data_bounds
from tests.history.stage import LOG, Stage
from tests.simulation.deliberate import FAULTS
from tests.simulation.end_state import check_copies
from tests.simulation.history import Violation
from tests.simulation.invariants import Invariants

LOSES = 'durability = "async"'
LONG_STORE_TIMEOUTS = LOSES + '\n[settings.sequencer]\nstore_timeout_min_us = "30s"\nstore_timeout_max_us = "60s"'


class DirtyStage:
    """Shards are cut off at will; what they hold and say is checked all the time."""

    def __init__(self, extra: str = LOSES) -> None:
        self.stage = Stage(nodes=4, replicate="node:3", extra=extra)
        self.invariants = Invariants(self.stage.cluster, [LOG])
        self.client = self.stage.client()
        for _ in range(10):
            self.stage.acknowledged(self.client)
        # every shard has noted that it answers before it syncs, and has synced that
        self.stage.run(2 * SECOND)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.stage.acknowledged(self.client)

    def holders(self) -> list[SimNode]:
        """Nodes that do not sequence the log."""
        return self.stage.others(self.stage.sequencer)

    def cut_off(self, *nodes: SimNode) -> None:
        """They lose all that is not synced, and stay down."""
        for node in nodes:
            node.crash(machine=False)
            for disk in node.disks.values():
                disk.crash(surviving=0)

    def stored(self, node: SimNode) -> int:
        """How many rows of the log a node has."""
        [disk] = node.disks.values()
        return len(list(disk.rows.irange(*data_bounds(LOG, 0, 2**63), (True, False))))  # type: ignore[arg-type]

    def copyset_of_latest(self) -> set[NodeId]:
        """Where the latest wave of the latest entry is to be."""
        entries = self.invariants.logs[LOG].entries
        copysets = entries[max(entries)].copysets
        return {node_of(shard) for shard in copysets[max(copysets)]}

    def dirty(self, node: SimNode) -> object:
        """The marks of a node's shard."""
        assert node.root is not None
        assert node.root.storage is not None
        [machines] = node.root.storage.shards.values()
        return machines.shard.logs[LOG].dirty

    def finish(self) -> None:
        """All dirty ranges are repaired, and everything is where it belongs."""
        stage = self.stage
        stage.finish()
        for node in stage.cluster.nodes.values():
            stage.run_until(f"{node.name} is repaired", lambda node=node: self.dirty(node) is None)  # type: ignore[misc]
        self.invariants.dirty.check(LOG)
        check_copies(stage.cluster, self.invariants.logs[LOG], (), 0)


def play_one() -> None:
    """One shard is cut off while its log's sequencer goes on, in the same epoch."""
    scene = DirtyStage()
    cut = scene.holders()[0]
    scene.append(20)
    before = scene.stored(cut)
    scene.cut_off(cut)
    assert scene.stored(cut) < before
    cut.start()
    scene.stage.run(100 * MILLISECOND)
    scene.append(5)
    scene.finish()


def play_unreleased() -> None:
    """The shard is cut off when it has answered and two others have not, and is back before they do."""
    scene = DirtyStage(extra=LONG_STORE_TIMEOUTS)
    stage = scene.stage
    sequencer, cut = stage.sequencer, scene.holders()[0]
    held_back = stage.others(sequencer, cut)
    while True:
        for node in held_back:
            stage.block(node, sequencer)
        attempt = stage.append(scene.client)
        stage.run(20 * MILLISECOND)
        if sequencer.id not in scene.copyset_of_latest():
            break
        for node in held_back:
            stage.unblock(node, sequencer)
        stage.run_until("an append", lambda attempt=attempt: attempt.position is not None)  # type: ignore[misc]
    scene.cut_off(cut)
    cut.start()
    stage.run(2 * SECOND)
    for node in held_back:
        stage.unblock(node, sequencer)
    stage.run(SECOND)
    assert attempt.position is not None
    scene.finish()


def play_two() -> None:
    """Two shards of each copyset are cut off together; the third, which has everything, is away until they have asked the others."""
    scene = DirtyStage()
    first, second, third = scene.holders()
    scene.append(20)
    third.crash(machine=False)
    scene.cut_off(first, second)
    first.start()
    second.start()
    scene.stage.run(6 * SECOND)
    assert scene.dirty(first) is not None, "somebody who may have the only copy is away"
    third.start()
    scene.finish()


PLAYS = {"one": play_one, "unreleased": play_unreleased, "two": play_two}


@pytest.mark.parametrize("play", PLAYS)
def test_what_is_lost_in_a_power_cut_is_here_again(play: str) -> None:
    PLAYS[play]()


@pytest.mark.parametrize(
    ("fault", "play"),
    [
        ("mark_begins_too_late", "one"),
        ("mark_goes_too_soon", "two"),
        ("repaired_without_copies", "one"),
        ("dirty_shard_is_authoritative", "two"),
        ("mark_ends_too_early", "unreleased"),
    ],
)
def test_the_schedules_notice_marks_that_lie(fault: str, play: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        PLAYS[play]()
