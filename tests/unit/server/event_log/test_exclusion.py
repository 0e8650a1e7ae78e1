"""Which shards new epochs do without."""

from __future__ import annotations

from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import HITS
from logdevice_py.event_log.events import RebuildMode, ShardNeedsRebuild
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from server.event_log.exclusion import excluded_shards
from tests.simulation.cluster_plan import ClusterPlan, NodePlan
from tests.unit.server.event_log.test_event_writer import View

SHARDS = [shard_id(NodeId(node)) for node in range(5)]
CONFIG = load_cluster(
    ClusterPlan(
        replicate="rack:3",
        racks=3,
        attributes={},
        nodes={node: NodePlan(["sequencer", "storage"], node % 3) for node in range(5)},
        settings=["[settings.rebuilding]", "enabled = true"],
    ).render()
)
"""N0 and N3 are the first rack, N1 and N4 the second one, N2 the third one."""


def set_of(*lost: int, mode: RebuildMode = RebuildMode.RESTORE) -> RebuildingSet:
    state = RebuildingSet()
    for node in lost:
        event = ShardNeedsRebuild(
            SHARDS[node], Generation(1), mode, tuple((each, Generation(1)) for each in SHARDS), True, ""
        )
        state.apply(event, Lsn(state.version + 1))
    return state


def excluded(state: RebuildingSet, view: View) -> set[ShardId]:
    return set(excluded_shards(CONFIG, state, view))


def test_lost_and_drained_shards_are_left_out_until_they_have_a_later_generation() -> None:
    view = View()
    assert excluded(set_of(3), view) == {SHARDS[3]}
    assert excluded(set_of(3, mode=RebuildMode.RELOCATE), view) == {SHARDS[3]}
    view.generations[SHARDS[3]] = 2
    assert excluded(set_of(3), view) == set()


def test_one_that_is_back_takes_records_where_the_event_log_cannot_be_written_without_it() -> None:
    view = View()
    view.dead = {0}
    assert excluded(set_of(3), view) == set()
    assert excluded(set_of(0, 3), view) == {SHARDS[0]}


def test_so_does_a_drained_one() -> None:
    view = View()
    view.dead = {0}
    before = HITS["drained_shard_takes_records"]
    assert excluded(set_of(3, mode=RebuildMode.RELOCATE), view) == set()
    assert HITS["drained_shard_takes_records"] == before + 1


def test_a_dead_one_is_left_out_all_the_same() -> None:
    view = View()
    view.dead = {0, 3}
    assert excluded(set_of(3), view) == {SHARDS[3]}
