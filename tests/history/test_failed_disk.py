"""The disk of a node fails while the node lives: it answers, and sequences, and what it held has a copy less.

There: whoever watches nodes alone takes such a node for whole, and its data stays short of copies until a person looks. Kafka's brokers tell which replicas
are on a failed disk, and nobody stores these again. https://cwiki.apache.org/confluence/display/KAFKA/KIP-112%3A+Handle+disk+failure+for+JBOD

Here: the node says so in gossip, and when it has said so for the grace period the leader declares the shard lost. A shard that is opened again meanwhile is
whole, one that comes back with its data later is used again, a full disk has not failed, and where too many fail at once a person decides.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from server.simulation.machines import SimNode
from tests.history.stage import LOG, Stage
from tests.history.test_hung_through_a_drain import NODES, REBUILDS
from tests.simulation.deliberate import FAULTS
from tests.simulation.history import Attempt, Violation

GRACE = 5 * SECOND
SOON = REBUILDS.replace('self_initiated_grace_period_us = "0s"', f'self_initiated_grace_period_us = "{GRACE}us"')
RECORDS = 20
FIRST = Generation(1)


def begin() -> tuple[Stage, list[Attempt]]:
    """A log with some records, on all nodes."""
    stage = Stage(nodes=NODES, replicate="node:2", extra=SOON)
    client = stage.client()
    return stage, [stage.acknowledged(client) for _ in range(RECORDS)]


def shard_of(node: SimNode) -> ShardId:
    [shard] = node.disks
    return shard


def known(stage: Stage) -> list[RebuildingSet]:
    """What each node knows of the event log."""
    roots = [node.root for node in stage.cluster.nodes.values()]
    return [root.rebuilding.set for root in roots if root is not None and root.rebuilding is not None]


def until_all_know(stage: Stage, what: str, holds: Callable[[RebuildingSet], bool]) -> None:
    stage.run_until(what, lambda: all(map(holds, known(stage))))


def is_rebuilt(shard: ShardId) -> Callable[[RebuildingSet], bool]:
    return lambda state: shard in state.shards and state.shards[shard].restored == FIRST


def fail(stage: Stage, node: SimNode, *, client_appends: bool = True) -> None:
    """The disk of the node fails at its next write."""
    for disk in node.disks.values():
        disk.fail_write = disk.fail_sync = True
    client = stage.client()
    while client_appends and not node.failed:
        stage.acknowledged(client)


def restart(stage: Stage, node: SimNode) -> None:
    """The disk works again, and the node opens it."""
    node.crash(machine=False)
    for disk in node.disks.values():
        disk.fail_write = disk.fail_sync = False
    node.start()


def check_whole(stage: Stage, records: list[Attempt], without: SimNode) -> None:
    """The records have all copies on other nodes."""
    stage.take_out(without)
    for each in records:
        assert each.position is not None
        if stage.cluster.intact_copies(LOG, Lsn(each.position[0])) < 2:
            raise Violation("an acknowledged record is a copy short")


def play() -> None:
    stage, records = begin()
    node = stage.sequencer
    fail(stage, node)
    until_all_know(stage, "a failed disk that is rebuilt", is_rebuilt(shard_of(node)))
    assert stage.sequencer is node, "it goes on to sequence"
    records.append(stage.acknowledged(stage.client()))
    check_whole(stage, records, node)
    stage.finish()


def test_what_it_held_is_re_replicated_while_its_node_sequences_on() -> None:
    play()


def test_the_schedule_notices_a_node_that_does_not_say_so() -> None:
    with FAULTS["failed_disk_untold"].planted(), pytest.raises(Violation):
        play()


def test_a_disk_that_failed_for_a_moment_is_no_loss_when_its_node_is_started_in_time() -> None:
    stage, _ = begin()
    node = stage.others(stage.sequencer)[0]
    fail(stage, node)
    stage.run(GRACE // 2)
    restart(stage, node)
    stage.run(4 * GRACE)
    assert all(not state.shards for state in known(stage))
    stage.finish()


def test_a_shard_that_comes_back_with_its_data_later_is_used_again() -> None:
    stage, records = begin()
    node = stage.others(stage.sequencer)[0]
    shard = shard_of(node)
    fail(stage, node)
    until_all_know(stage, "a failed disk that is rebuilt", is_rebuilt(shard))
    restart(stage, node)
    until_all_know(stage, "a shard that is used again", lambda state: shard not in state.shards)
    other = next(each for each in stage.others(node) if each is not stage.sequencer)
    fail(stage, other)
    until_all_know(stage, "another failed disk that is rebuilt", is_rebuilt(shard_of(other)))
    check_whole(stage, records, other)
    stage.finish()


def test_its_node_may_die_meanwhile() -> None:
    stage, records = begin()
    node = stage.others(stage.sequencer)[0]
    fail(stage, node)
    stage.run(GRACE // 2)
    node.crash(machine=True)
    stage.run_until("a loss", lambda: all(shard_of(node) in state.shards for state in known(stage)))
    until_all_know(stage, "a failed disk that is rebuilt", is_rebuilt(shard_of(node)))
    check_whole(stage, records, node)
    stage.finish()


def test_a_full_disk_has_not_failed() -> None:
    stage, _ = begin()
    node = stage.others(stage.sequencer)[0]
    for disk in node.disks.values():
        disk.taken = disk.total
    for _ in range(RECORDS):
        stage.acknowledged(stage.client())
    stage.run(4 * GRACE)
    assert not node.failed
    assert all(not state.shards for state in known(stage))
    stage.finish()


@pytest.mark.parametrize("count", [3, NODES])
def test_where_too_many_disks_fail_at_once_a_person_decides(count: int) -> None:
    """Of a fault in all kernels, say."""
    stage, _ = begin()
    nodes = stage.others(stage.sequencer)[:count] if count < NODES else stage.others()
    for node in nodes:
        fail(stage, node, client_appends=False)
    client = stage.client()
    for _ in range(RECORDS):
        stage.append(client)
    stage.run_until("disks that fail", lambda: all(node.failed for node in nodes))
    stage.run(4 * GRACE)
    assert all(not state.shards for state in known(stage))
    for node in nodes:
        restart(stage, node)
    stage.run(GRACE)
    stage.finish()


@pytest.mark.slow
def test_with_the_settings_that_nobody_changed_it_is_re_replicated_after_twenty_minutes() -> None:
    stage = Stage(nodes=4, replicate="node:2", extra="[settings.rebuilding]")
    records = [stage.acknowledged(stage.client()) for _ in range(RECORDS)]
    node = stage.sequencer
    fail(stage, node)
    stage.run(19 * 60 * SECOND)
    assert all(not state.shards for state in known(stage))
    stage.run(60 * SECOND)
    until_all_know(stage, "a failed disk that is rebuilt", is_rebuilt(shard_of(node)))
    check_whole(stage, records, node)
    stage.finish()
