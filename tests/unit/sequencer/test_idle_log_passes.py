"""Logs that nobody uses leave shards that departed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from epoch_store.interface import ReadMetadata
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, NodeId, shard_id
from logdevice_py.core.lsn import EPOCH_MIN, Epoch
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, EpochInterval, EpochMetaData
from logdevice_py.protocol.messages import NodeState
from tests.unit.sequencer.fakes import LOG, ME, World, make_config

GONE = NodeId(4)


def without_node(version: int = 2, **options: object) -> ClusterConfig:
    return make_config(4, version=version, **options)  # type: ignore[arg-type]


def interval(since: int, nodes: int = 5) -> EpochInterval:
    config = make_config(5)
    nodeset = tuple((shard_id(NodeId(node)), Generation(1)) for node in range(nodes))
    return EpochInterval(Epoch(since), nodeset, ReplicationProperty.parse("node:3"), 1).labelled(config.location)


def metadata(*intervals: EpochInterval, epoch: int) -> EpochMetaData:
    return EpochMetaData(Epoch(epoch), intervals, True, False, NodeId(2))


def world(stored: EpochMetaData | None = None, *, clean: int = 0, config: ClusterConfig | None = None) -> World:
    made = World(config or make_config(5))
    made.store.metadata[LOG] = metadata(interval(1), epoch=2) if stored is None else stored
    made.store.clean[LOG] = Epoch(clean)
    made.node.on_cluster_state(made.now)
    made.run(2 * SECOND)
    assert LOG not in made.node.sequencers
    assert made.node.idle_logs.departures_handled
    return made


def leave(made: World, config: ClusterConfig | None = None) -> None:
    made.node.on_config(config or without_node(), made.now)
    assert not made.node.idle_logs.departures_handled
    made.run(2 * SECOND)


def test_it_takes_another_epoch_that_recovers_the_last_one() -> None:
    made = world()
    made.recoveries.held = True
    leave(made)
    sequencer = made.node.sequencers[LOG]
    assert (sequencer.epoch, made.recoveries.started[LOG][0]) == (2, 2)
    assert shard_id(GONE) not in made.store.metadata[LOG].current.shards
    assert not made.node.idle_logs.departures_handled
    assert made.node.idle_logs.waiting() == [LOG]
    assert made.node.collect_metrics().logs_leaving_departed_shards == 1
    made.recoveries.finish(LOG, made.now)
    made.run(SECOND)
    assert made.node.idle_logs.departures_handled
    assert made.node.collect_metrics().departures_handled


def test_logs_that_were_never_used_and_those_without_departed_shards_stay_as_they_are() -> None:
    made = world(metadata(interval(1, nodes=4), epoch=2))
    leave(made)
    assert not made.node.sequencers
    assert made.node.idle_logs.departures_handled


def test_those_that_another_node_is_to_sequence_are_not_asked_for() -> None:
    made = world(config=make_config(5, sequencers=(0, 1)))
    made.cluster.states[ME] = NodeState.STARTING
    made.store.operations.clear()
    leave(made, without_node(sequencers=(1,)))
    assert not made.node.sequencers
    assert not any(isinstance(operation, ReadMetadata) for operation in made.store.operations)


def test_a_node_looks_when_logs_come_to_be_located_at_it() -> None:
    made = World(make_config(5, sequencers=(0, 1, 2)))
    for log in range(1, 101):
        made.store.metadata[log] = metadata(interval(1), epoch=2)  # type: ignore[index]
    made.node.on_config(without_node(sequencers=(0, 1, 2)), made.now)
    made.run(2 * SECOND)
    some = set(made.node.sequencers)
    made.cluster.states[NodeId(1)] = made.cluster.states[NodeId(2)] = NodeState.DEAD
    made.node.on_cluster_state(made.now)
    made.run(5 * SECOND)
    assert 0 < len(some) < len(made.node.sequencers) == 100


@pytest.mark.parametrize("how", ["read-only", "excluded", "began anew"])
def test_shards_also_depart_within_the_cluster_file(how: str) -> None:
    made = world()
    if how == "began anew":
        made.cluster.generations[shard_id(GONE)] = Generation(2)
        made.node.on_cluster_state(made.now)
        made.run(2 * SECOND)
    elif how == "excluded":
        leave(made, replace(make_config(5, version=2), excluded=frozenset({shard_id(GONE)})))
    else:
        leave(made, make_config(5, version=2, read_only=[GONE]))
    listed = made.store.metadata[LOG].current
    if how == "read-only":
        # new nodesets list it all the same: another epoch would not help
        assert LOG not in made.node.sequencers
    else:
        assert listed.since == 2
        assert listed.generation(shard_id(GONE)) == {"excluded": None, "began anew": 2}[how]


def test_epochs_that_their_sequencer_did_not_recover_count() -> None:
    stored = metadata(interval(1), interval(2, nodes=4), epoch=3)
    made = world(stored, clean=1)
    leave(made)
    assert LOG not in made.node.sequencers
    made = world(stored)
    leave(made)
    assert made.node.sequencers[LOG].epoch == 3


def test_an_epoch_store_that_does_not_answer_is_asked_again() -> None:
    made = world()
    made.store.failures = [Status.CONNFAILED] * 3
    leave(made)
    made.run(2 * SECOND)
    assert made.node.sequencers[LOG].epoch == 2
    assert made.node.idle_logs.departures_handled


def test_a_change_during_a_pass_begins_another_one() -> None:
    made = world(metadata(interval(1, nodes=5), epoch=2))
    made.store.silent = True
    made.node.on_config(make_config(5, version=2, read_only=[3]), made.now)
    made.run(SECOND + SECOND // 2)
    made.node.on_config(without_node(version=3), made.now)
    made.store.silent = False
    made.run(30 * SECOND)
    assert made.node.sequencers[LOG].epoch == 2
    assert made.node.idle_logs.departures_handled


def test_a_node_with_an_older_cluster_file_than_the_nodeset_judges_nothing() -> None:
    since_then = replace(interval(1), config_version=7)
    made = world(metadata(since_then, epoch=2))
    leave(made)
    assert LOG not in made.node.sequencers


def test_a_log_that_can_have_no_other_nodeset_is_left_alone() -> None:
    history = [replace(interval(since + 1), config_version=since) for since in range(HISTORY_MAX)]
    stored = metadata(*history, epoch=HISTORY_MAX + 1)
    made = world(stored, clean=HISTORY_MAX - 1)
    leave(made, without_node(version=HISTORY_MAX + 1))
    assert LOG not in made.node.sequencers
    assert EPOCH_MIN <= made.store.metadata[LOG].epoch == HISTORY_MAX + 1
