"""All nodes of a region are gone for longer than it takes to call a node lost.

There: a cluster manager re-replicates what a data centre held while that is cut off, over links that the failure left narrow, and throws it away when the data centre is
back an hour later.

Here: nothing of a region that is gone as a whole is declared lost, and when its nodes start one after the other each has the time again that it had at first.
"""

from __future__ import annotations

from logdevice_py.core.units import SECOND
from server.simulation.machines import SimNode
from tests.history.stage import Stage
from tests.history.test_failed_disk import check_whole, is_rebuilt, known, shard_of, until_all_know
from tests.history.test_rebuilding_begins_when_all_take_part import GRACE, SOON

REGIONS = 3


def begin() -> tuple[Stage, list[SimNode]]:
    """Six nodes in three regions, and those of one that does not sequence the log."""
    stage = Stage(nodes=6, replicate="node:2", extra=SOON, locations=[f"region{n}...." for n in range(REGIONS)])
    stage.acknowledged(stage.client())
    region = next(each for each in range(REGIONS) if each != stage.sequencer.id % REGIONS)
    return stage, [node for node in stage.others() if node.id % REGIONS == region]


def test_it_is_left_to_a_person_and_comes_back_node_by_node() -> None:
    stage, lost = begin()
    for node in lost:
        node.crash(machine=True)
    stage.run(4 * GRACE)
    assert all(not state.shards for state in known(stage))
    lost[0].start()
    stage.run(GRACE - SECOND)
    assert all(not state.shards for state in known(stage))
    lost[1].start()
    stage.run(2 * GRACE)
    assert all(not state.shards for state in known(stage))
    stage.finish()


def test_a_node_of_it_that_does_not_come_back_with_the_others_is_rebuilt() -> None:
    stage, lost = begin()
    records = [stage.acknowledged(stage.client()) for _ in range(10)]
    for node in lost:
        node.crash(machine=True)
    stage.run(4 * GRACE)
    lost[0].start()
    until_all_know(stage, "a node that is rebuilt", is_rebuilt(shard_of(lost[1])))
    check_whole(stage, records, lost[1])
    stage.finish()
