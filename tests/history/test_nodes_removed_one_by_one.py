"""Nodes leave the cluster file one after the other while nobody uses a log.

There: an epoch that was never closed cannot be told from one that lost its records once too many of its nodes are gone.

Here: the log was in use, then lies idle, and the node that sequenced it is the first to go. The node that the log is located at from then on
takes it to another epoch, which proves the last one empty while enough of its shards are there. So no reader is told of a loss that was none.
"""

from __future__ import annotations

import pytest

from logdevice_py.core.units import SECOND
from server.simulation.machines import SimNode, SimPromise
from tests.history.stage import LOG, Stage
from tests.history.test_hung_through_a_drain import REBUILDS, drain, is_active
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Violation

NODES = 7
PAUSE = 3 * SECOND
"""Between two nodes that leave: as long as the last one is waited for that an operator's tool waits for."""


def are_settled(stage: Stage) -> bool:
    """What an operator's tool waits for before it removes a further node."""
    roots = [node.root for node in stage.cluster.nodes.values()]
    return all(
        root is not None and root.sequencer is not None and root.sequencer.idle_logs.departures_handled
        for root in roots
    )


def check_end(stage: Stage, records: int) -> None:
    """A reader of everything; `LogHistory` takes a loss of what was never written for a violation."""
    last = stage.acknowledged(stage.client())
    stage.run(SECOND)
    assert last.position is not None
    seen = stage.read(last.position[0])
    assert len(seen.records) == records + 1


def those_that_leave(stage: Stage, first: SimNode, kept: set[int], count: int) -> list[SimNode]:
    return [first, *[node for node in stage.others(first) if node.id not in kept][: count - 1]]


def forget_sequencers(stage: Stage) -> None:
    """All nodes start anew: nobody sequences anything."""
    for node in stage.cluster.nodes.values():
        node.crash(machine=False)
    for node in stage.cluster.nodes.values():
        node.start()
    stage.run(5 * SECOND)


def play(*, is_restarted: bool) -> None:
    """Without drains: of the only record one copy stays."""
    stage = Stage(nodes=NODES, replicate="node:3")
    appended = stage.acknowledged(stage.client())
    stage.run(SECOND)
    first = stage.sequencer
    if is_restarted:
        forget_sequencers(stage)
    kept = {min(stage.copysets[appended.payload] - {first.id})}
    for node in those_that_leave(stage, first, kept, 4):
        stage.take_out(node)
        stage.run(PAUSE)
        stage.run_until("logs that leave", lambda: are_settled(stage))
    check_end(stage, 1)


def has_heard(node: SimNode) -> bool:
    """Whether a shard of the node knows the log."""
    storage = None if node.root is None else node.root.storage
    return storage is not None and any(each.shard.find(LOG) is not None for each in storage.shards.values())


def play_drained() -> None:
    """A log gets its first epoch, and the sequencer ends before any shard hears of the log. Nodes are drained one after the other; then they leave at
    once."""
    # later than it takes to drain nodes that hold next to nothing
    late = REBUILDS.replace("[settings.sequencer]", '[settings.sequencer]\nidle_logs_delay_us = "10s"')
    stage = Stage(nodes=NODES, replicate="node:3", extra=late)
    client = stage.client()
    client.event(lambda now: client.session.sequencers.tail_lsn(LOG, SimPromise(lambda done: None), now))
    while not any(map(is_active, stage.others())):
        stage.run(20)
    client.process.kill(machine=True)
    forget_sequencers(stage)
    stage.run(10 * SECOND)
    assert not any(map(is_active, stage.others()))
    assert not any(map(has_heard, stage.others()))
    gone = stage.others()[:4]
    for node in gone:
        drain(stage, node)
    for node in gone:
        stage.take_out(node)
    stage.run(PAUSE)
    check_end(stage, 0)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_no_loss_is_told_of_an_epoch_in_which_nothing_was_written(is_restarted: bool) -> None:
    play(is_restarted=is_restarted)


def test_nor_when_all_that_leave_were_drained() -> None:
    play_drained()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_schedule_notices_logs_that_nobody_looks_after(is_restarted: bool) -> None:
    with FAULTS["idle_logs_left_alone"].planted(), pytest.raises(Violation):
        play(is_restarted=is_restarted)


@pytest.mark.parametrize("fault", ["idle_logs_left_alone", "drain_leaves_idle_logs"])
def test_the_schedule_notices_drains_that_do_not_wait_for_them(fault: str) -> None:
    with FAULTS[fault].planted(), pytest.raises(Violation):
        play_drained()
