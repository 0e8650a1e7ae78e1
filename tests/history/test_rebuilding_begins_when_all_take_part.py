"""A cluster is upgraded, node by node, to a version that rebuilds unless it is told not to. Nodes of the version before keep no event log.

There: a controller that is upgraded first takes for lost what nodes of the version before cannot tell it, and counts what they hold as gone.

Here: nodes say in gossip that they take part. As long as a living one does not, nobody is declared lost, nothing that is used for the first time waits for the event
log, and a node that goes back to the version before counts as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND
from server.node import Node
from server.node_settings import NodeSettings
from server.simulation.machines import SimNode, SimPromise
from tests.history.stage import LOG, Stage
from tests.history.test_failed_disk import check_whole, is_rebuilt, known, shard_of, until_all_know

NODES = 5
GRACE = 5 * SECOND
SOON = f"""
[settings.sequencer]
store_timeout_initial_us = "20ms"
store_timeout_max_us = "100ms"
unroutable_us = "100ms"
graylist_us = "200ms"
probe_retry_us = "200ms"
[settings.rebuilding]
supervision_us = "200ms"
retry_us_max = "1s"
self_initiated_grace_period_us = "{GRACE}us"
"""


@pytest.fixture
def earlier() -> Iterator[set[int]]:
    """The nodes that are of the version before when they are started."""
    found: set[int] = set()

    def start(node: int, instance: Any, config: Any, settings: NodeSettings, *rest: Any, **others: Any) -> Node:
        if node in found:
            raw = {**config.settings, "rebuilding": {"enabled": False}}
            config, settings = replace(config, settings=raw), NodeSettings.of(raw)
        return Node(node, instance, config, settings, *rest, **others)  # type: ignore[arg-type]

    with mock.patch("server.simulation.node.Node", start):
        yield found


def restart(stage: Stage, node: SimNode) -> None:
    node.crash(machine=False)
    node.start()
    stage.run(2 * SECOND)


@pytest.mark.parametrize("first", range(NODES))
def test_an_upgrade_goes_on_without_waiting_for_the_event_log(earlier: set[int], first: int) -> None:
    """Each node is the first one to be upgraded in one run, also the one where the event log would be sequenced. A log is used for the first time after each step."""
    earlier.update(range(NODES))
    stage = Stage(nodes=NODES, replicate="node:3", extra=SOON)
    client = stage.client()
    stage.acknowledged(client)
    for step in range(NODES):
        node = (first + step) % NODES
        earlier.discard(node)
        restart(stage, stage.node(node))
        stage.acknowledged(client)
        assert first_append(stage, LogId(2 + step)) < 2 * SECOND
    stage.run_until("an event log that all have read", lambda: all(map(has_read, stage.cluster.nodes.values())))
    assert all(not state.shards for state in known(stage))
    stage.finish()


def first_append(stage: Stage, log: LogId) -> int:
    """Use a log for the first time: how long that takes."""
    client, outcome = stage.client(), list[SimPromise]()
    began = stage.cluster.scheduler.now
    client.event(lambda now: client.session.append(log, b"first", SimPromise(outcome.append), 60 * SECOND))
    stage.run_until("a first append", lambda: bool(outcome))
    assert outcome[0].error is None, outcome[0].error
    return stage.cluster.scheduler.now - began


def has_read(node: SimNode) -> bool:
    return node.root is not None and node.root.rebuilding is not None and node.root.rebuilding.replica.caught_up


def rebuilt_node() -> tuple[Stage, SimNode]:
    """A node that died, and of which the others have re-replicated everything."""
    stage = Stage(nodes=NODES, replicate="node:2", extra=SOON)
    stage.acknowledged(stage.client())
    node = stage.node(3)
    node.crash(machine=True)
    until_all_know(stage, "a dead node that is rebuilt", is_rebuilt(shard_of(node)))
    return stage, node


def test_nobody_is_lost_while_a_living_node_takes_no_part(earlier: set[int]) -> None:
    earlier.add(1)
    stage = Stage(nodes=NODES, replicate="node:2", extra=SOON)
    records = [stage.acknowledged(stage.client()) for _ in range(20)]
    dead = stage.node(4)
    dead.crash(machine=True)
    stage.run(4 * GRACE)
    assert all(not state.shards for state in known(stage))
    earlier.clear()
    restart(stage, stage.node(1))
    until_all_know(stage, "a dead node that is rebuilt", is_rebuilt(shard_of(dead)))
    check_whole(stage, records, dead)
    stage.finish()


def test_a_rebuilt_node_that_goes_back_to_the_version_before_counts_as_it_is(earlier: set[int]) -> None:
    stage, node = rebuilt_node()
    earlier.add(3)
    node.start()
    until_all_know(stage, "a shard that is used again", lambda state: not state.shards)
    stage.finish()


def test_a_node_of_the_version_before_that_leads_stops_nothing(earlier: set[int]) -> None:
    """It has the lowest index and declares nothing; when it is upgraded it leads, and dead nodes are rebuilt."""
    earlier.add(0)
    stage = Stage(nodes=NODES, replicate="node:2", extra=SOON)
    stage.acknowledged(stage.client())
    dead = stage.node(2)
    dead.crash(machine=True)
    stage.run(2 * GRACE)
    earlier.clear()
    restart(stage, stage.node(0))
    until_all_know(stage, "a dead node that is rebuilt", is_rebuilt(shard_of(dead)))
    stage.finish()


def test_what_disks_held_that_were_replaced_before_is_re_replicated(earlier: set[int]) -> None:
    """The event log is empty when nodes begin to keep it; generations tell what was lost in the years before."""
    earlier.update(range(NODES))
    stage = Stage(nodes=NODES, replicate="node:3", extra=SOON)
    records = [stage.acknowledged(stage.client()) for _ in range(20)]
    replaced = [stage.node(0), stage.node(1)]
    for node in replaced:
        node.crash(machine=True)
        node.wipe()
        node.start()
        stage.run(10 * SECOND)
    earlier.clear()
    for each in stage.others():
        restart(stage, each)
    for node in replaced:
        until_all_know(stage, "a replaced disk that is rebuilt", is_rebuilt(shard_of(node)))
    for record in records:
        assert record.position is not None
        assert stage.cluster.intact_copies(LOG, Lsn(record.position[0])) >= 3
    assert all(not entry.flags for state in known(stage) for entry in state.shards.values())
    stage.finish()


def test_it_ends_when_a_person_turns_it_off_and_begins_again(earlier: set[int]) -> None:
    """What the event log said before is read again: a node that was rebuilt, and has come back meanwhile, is used."""
    stage, node = rebuilt_node()
    earlier.update(range(NODES))
    for each in stage.others(node):
        restart(stage, each)
    node.start()
    stage.run(5 * SECOND)
    assert not known(stage)
    stage.acknowledged(stage.client())
    earlier.clear()
    for each in stage.others():
        restart(stage, each)
    stage.run_until("an event log that all have read", lambda: all(map(has_read, stage.cluster.nodes.values())))
    until_all_know(stage, "a shard that is used again", lambda state: not state.shards)
    stage.finish()
