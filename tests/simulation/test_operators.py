"""Operators who move nodes to other racks, and take out drained ones."""

from __future__ import annotations

import copy
import random
from collections import Counter
from types import SimpleNamespace

import pytest

from logdevice_py.config.parse import load_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.units import Micros
from logdevice_py.simulation.scheduler import Scheduler
from server.simulation.damage import DamageBudget
from server.simulation.machines import SimMachines
from tests.simulation.cluster_plan import ClusterPlan, NodePlan
from tests.simulation.operators import NodeMover
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import draw

SEEDS = range(100)


def plan(racks: str = "0120", **fields: str) -> ClusterPlan:
    nodes = {number: NodePlan(["sequencer", "storage"], int(rack)) for number, rack in enumerate(racks)}
    return ClusterPlan("rack:2", 3, {}, nodes, **fields)  # type: ignore[arg-type]


def shards(*nodes: int) -> set[int]:
    return {shard_id(NodeId(node)) for node in nodes}


def test_what_a_moved_shard_holds_may_be_beside_what_any_rack_holds() -> None:
    budget = DamageBudget(load_cluster(plan().render()), [ReplicationProperty.parse("rack:2")])
    assert budget.move(shards(3))
    assert budget.take_shards(shards(0))
    assert not budget.take_shards(shards(3))


def test_shards_are_not_moved_apart_when_more_was_lost_than_racks_may_lose() -> None:
    budget = DamageBudget(load_cluster(plan().render()), [ReplicationProperty.parse("rack:2")])
    assert budget.take_shards(shards(0, 3))
    assert not budget.move(shards(3))
    assert budget.damaged == shards(0, 3)
    assert budget.move(shards(1))


def test_nodes_are_moved_only_as_far_as_records_find_racks() -> None:
    assert plan("0012").holds_copies({2, 3}) is False
    assert plan("0012").holds_copies({3}) is True
    disabled = plan("0012")
    disabled.nodes[2].state = "disabled"
    assert disabled.holds_copies({3}) is False


def mover(made: ClusterPlan, seed: int) -> NodeMover:
    cluster = SimMachines(load_cluster(made.render()), seed, scheduler=Scheduler())
    run = SimpleNamespace(
        plan=made,
        cluster=cluster,
        rng=random.Random(seed),
        histories={},
        operated=Counter(),
        departed=tuple,
        move=lambda moved: True,
    )
    return NodeMover(run, "m1")  # type: ignore[arg-type]


@pytest.mark.parametrize(("metadata", "effect"), [("", "refused_move"), ("node:3", "move_nodes")])
def test_nodes_that_keep_metadata_logs_spread_over_racks_stay_where_they_are(metadata: str, effect: str) -> None:
    app = mover(plan("012012", metadata_replicate=metadata), 1)
    before = copy.deepcopy(app.run.plan.nodes)
    for _ in range(20):
        app.act(Micros(0))
    assert app.cluster.fault_effects[effect]
    assert (app.run.plan.nodes == before) is (effect == "refused_move")


def test_a_fair_share_of_the_runs_has_them() -> None:
    usual = [draw(seed) for seed in SEEDS]
    rebuilding = [draw(seed, RunMode.REBUILDING) for seed in SEEDS]
    losing = [draw(seed, RunMode.LOSS) for seed in SEEDS]
    assert not any(each.move_interval or each.removals for each in losing)
    assert not any(each.removals for each in usual)
    assert 30 < sum(each.removals for each in rebuilding) < 70
    assert all(each.unused_logs and each.log_ends for each in rebuilding if each.removals)
    for drawn in (usual, rebuilding):
        moving = [each for each in drawn if each.move_interval]
        assert 5 < len(moving) < 30
        assert all("rack" in each.plan.replicate for each in moving)
        assert all(each.plan.metadata_replicate or each.plan.metadata_nodeset for each in moving)
