"""A cluster of three nodes in two racks grows, and loses two of the three, one after the other: of what was written first, the nodesets have no place for another copy in the rack of the
first, and some of it lies on none of the three in the end.

There: copies of a fragment go only to where its ensemble is changed in the metadata of the ledger, which BookKeeper's recovery tool does before readers may look there. A replica that has
cached the ensemble asks bookies that are gone. https://bookkeeper.apache.org/docs/admin/autorecovery

Here: the log's sequencer widens the nodesets of earlier epochs with its next one, donors store when that is in the metadata log, and who has read a narrower nodeset reads it again before
a loss is told (`logdevice_py/metadata/widening.py`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.read.read_stream import ReadStreamState
from logdevice_py.config.cluster import ShardState
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.units import SECOND
from server.simulation.machines import SimNode
from tests.history.stage import LOG, Stage
from tests.history.test_failed_disk import SOON, is_rebuilt, shard_of, until_all_know
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Attempt, Violation

NODES = 6
FIRST_NODES = 3
LOST = (1, 0)
"""The first is alone in its rack, the second is not."""
THIRD = NodeId(2)
RECORDS = 20


def grow(stage: Stage, writable: int) -> None:
    """So many nodes take records, as a cluster file says that everybody has at once."""
    before = stage.cluster.config
    nodes = {
        node: replace(each, shard_state=ShardState.READ_WRITE if node < writable else ShardState.DISABLED)
        for node, each in before.nodes.items()
    }
    config = stage.cluster.config = replace(before, version=before.version + 1, nodes=nodes)
    for each in stage.cluster.nodes.values():
        each.take_config(config)
    for client in stage.cluster.clients:
        client.take_config(config)


def begin() -> tuple[Stage, list[Attempt]]:
    """Some records on three nodes, and some on six."""
    stage = Stage(nodes=NODES, replicate="rack:2", locations=("rack0", "rack1"), extra=SOON)
    grow(stage, FIRST_NODES)
    stage.run(SECOND)
    client = stage.client()
    records = [stage.acknowledged(client) for _ in range(RECORDS)]
    assert {node for each in records for node in stage.copysets[each.payload]} == set(range(FIRST_NODES))
    grow(stage, NODES)
    stage.run(5 * SECOND)
    return stage, [*records, *(stage.acknowledged(client) for _ in range(RECORDS))]


def lose(stage: Stage, number: int) -> SimNode:
    node = stage.node(NodeId(number))
    node.crash(machine=True)
    node.wipe()
    node.retired = True
    until_all_know(stage, f"the rebuild of N{number}", is_rebuilt(shard_of(node)))
    return node


def play() -> None:
    stage, records = begin()
    client = stage.client()
    last = records[-1].position
    assert last is not None
    seen, reader = stage.reader(client, LSN_OLDEST, last[0])
    while reader.stream.state is not ReadStreamState.READING:
        stage.run(20)
    # it knows the nodesets of now, and until both are lost it hears of the third node alone, which says what it has, and that the others are lost and rebuilt
    others = stage.others(stage.node(THIRD))
    for node in others:
        stage.block(node, client)
        stage.block(client, node)
    for number in LOST:
        stage.take_out(lose(stage, number))
    stage.run(10 * SECOND)
    assert not reader.finished
    for node in others:
        stage.unblock(node, client)
        stage.unblock(client, node)
    stage.run_until(f"a reader that began before ({reader.stream.waiting_for()})", lambda: reader.finished)
    assert [payload for _, _, payload in seen.records] == [each.payload for each in records]
    for each in records:
        assert each.position is not None
        copies = stage.cluster.intact_copies(LOG, each.position[0])
        if copies < 2:
            raise Violation(f"{copies} copies of an acknowledged record")
    stage.finish()


def test_every_record_is_back_to_full_copies_and_readers_go_on() -> None:
    play()


@pytest.mark.parametrize("fault", ["loss_by_older_nodesets", "nodesets_stay_narrow"])
def test_the_schedule_notices(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
