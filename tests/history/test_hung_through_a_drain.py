"""A sequencer stalls while a shard is emptied, and goes on in its old epoch.

There: whoever moves data off a machine has to fence those who may still write there, or their writes go with the machine.

Here: the log was never written to, so no donor looks at it. Another node takes it to another epoch before the drain is done; where that is left out, as
here, a shard that is emptied refuses records from before its last look on, and its disk says so: the shard refuses as well when it has just
started and has not read the event log.
"""

from __future__ import annotations

from unittest import mock

import pytest

from client.read.release_lookup import ReleaseLookup
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import EVENT_LOG_DELTAS, Generation, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.event_log.events import RebuildMode, ShardNeedsRebuild, encode_event
from logdevice_py.placement.sequencer_locator import locate_sequencer
from sequencer.sequencer import SequencerPhase
from server.simulation.machines import SimMachines, SimNode, SimNodeState, SimPromise
from tests.history.stage import LOG, Stage, config_text
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation

NODES = 5
REBUILDS = """
[settings.sequencer]
store_timeout_initial_us = "20ms"
store_timeout_max_us = "100ms"
unroutable_us = "100ms"
graylist_us = "200ms"
probe_retry_us = "200ms"
[settings.rebuilding]
enabled = true
supervision_us = "200ms"
retry_us_max = "1s"
self_initiated_grace_period_us = "0s"
"""
FIRST = Generation(1)


def is_drained(cluster: SimMachines, shard: ShardId) -> bool:
    """Whether all nodes that run know that the shard is empty."""
    sets = [
        node.root.rebuilding.set
        for node in cluster.nodes.values()
        if node.state is SimNodeState.RUNNING and node.root is not None and node.root.rebuilding is not None
    ]
    return all(shard in state.shards and state.shards[shard].restored == FIRST for state in sets)


def drain(stage: Stage, node: SimNode) -> None:
    """Until every node knows that it is done."""
    [shard] = node.disks
    candidates = tuple((each, FIRST) for each in stage.cluster.config.storage_shards())
    event = ShardNeedsRebuild(shard, FIRST, RebuildMode.RELOCATE, candidates, True, "schedule")
    client = stage.client()
    client.event(
        lambda now: client.session.append(EVENT_LOG_DELTAS, encode_event(event), SimPromise(lambda done: None))
    )
    stage.run_until("a drain", lambda: is_drained(stage.cluster, shard))


def is_active(node: SimNode) -> bool:
    """Whether the node has an epoch of the log."""
    root = None if node.root is None else node.root.sequencer
    return root is not None and LOG in root.sequencers and root.sequencers[LOG].state is SequencerPhase.ACTIVE


def play() -> None:
    # where readers ask when it is due, and not at once when others seem dead: the old sequencer hears of the drain only after it has written
    asked_later = mock.patch.object(ReleaseLookup, "on_nodes_dead", return_value=None)
    with FAULTS["idle_logs_left_alone"].planted(), FAULTS["drain_leaves_idle_logs"].planted(), asked_later:
        play_while_idle_logs_are_left_alone()


def play_while_idle_logs_are_left_alone() -> None:
    config = load_cluster(config_text(NODES, "node:2", REBUILDS))
    old_id = locate_sequencer(LOG, config, lambda node: True)
    assert old_id is not None
    stage = Stage(nodes=NODES, replicate="node:2", extra=REBUILDS, only_sequencing=[old_id])
    old, client = stage.node(old_id), stage.client()
    client.event(lambda now: client.session.sequencers.tail_lsn(LOG, SimPromise(lambda done: None), now))
    # from the moment at which it has the epoch: no shard has heard of the log as yet
    while not is_active(old):
        stage.run(20)
    # it stalls, cut off from all; the client hears nobody else
    for node in stage.others(old):
        for one, another in ((client, node), (old, node)):
            stage.block(one, another)
            stage.block(node, one)
    old.pause()
    emptied, other, *rest = stage.others(old)
    drain(stage, emptied)
    # the emptied node starts anew, and hears of the drain only later
    emptied.crash(machine=True)
    for node in rest:
        stage.block(node, emptied)
        stage.block(emptied, node)
    emptied.start_if_down()
    stage.run(200 * MILLISECOND)
    for node in (emptied, other):
        stage.unblock(old, node)
        stage.unblock(node, old)
    old.resume()
    late = stage.append(client)
    stage.run(20 * SECOND)
    stage.take_out(emptied)
    if late.position is not None and stage.cluster.intact_copies(LOG, Lsn(late.position[0])) < 2:
        raise Violation("of an acknowledged record a copy went with a node that was drained")
    whole = stage.finish()
    assert late.payload in [payload for _, _, payload in whole.records]


def test_what_it_appends_then_is_stored_elsewhere() -> None:
    play()


@pytest.mark.parametrize("fault", ["drained_shard_takes_records", "drain_mark_not_written"])
def test_the_schedule_notices_shards_that_go_on_to_take_records(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play()
