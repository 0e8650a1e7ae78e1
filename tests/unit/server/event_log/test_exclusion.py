"""Which shards new epochs do without."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import HITS
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import RebuildMode, ShardNeedsRebuild
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from server.event_log.exclusion import Exclusion
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


LONG: Final = 10 * SECOND
"""So long the others must have been too few."""


def excluded(state: RebuildingSet, view: View) -> set[ShardId]:
    """When it has been so for long."""
    exclusion = Exclusion()
    exclusion.judge(CONFIG, state, view, Micros(0))
    return set(exclusion.judge(CONFIG, state, view, Micros(LONG)))


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


def test_so_does_one_without_which_the_metadata_logs_cannot_be_written() -> None:
    """N4 could stand in for N1 in the event log, but it keeps no metadata logs, in which each new epoch begins."""
    config = replace(CONFIG, metadata_log=replace(CONFIG.metadata_log, nodeset=tuple(SHARDS[:4])))
    exclusion = Exclusion()
    exclusion.judge(config, set_of(1), View(), Micros(0))
    assert exclusion.judge(config, set_of(1), View(), Micros(LONG)) == set()
    assert exclusion.judge(config, set_of(3), View(), Micros(2 * LONG)) == {SHARDS[3]}


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


def test_so_is_one_whose_disk_failed_and_nobody_can_store_there_either() -> None:
    view = View()
    view.dead = {0}
    view.failed = {SHARDS[3]}
    assert excluded(set_of(3), view) == {SHARDS[3]}
    view.dead, view.failed = set(), {SHARDS[3]}
    assert excluded(set_of(4), view) == {SHARDS[4]}
    view.failed = {SHARDS[1]}
    assert excluded(set_of(4), view) == set(), "N1 and N4 are a rack"


def test_what_drained_shards_hold_is_not_added_to_while_nodes_go_out_of_sight_one_by_one() -> None:
    """As for a node that was taken out of the cluster file and still goes by the old one: N1 and N4, drained, would take what leaves the cluster with them."""
    view, exclusion, state = View(), Exclusion(), set_of(1, 4, mode=RebuildMode.RELOCATE)
    drained = {SHARDS[1], SHARDS[4]}
    assert exclusion.judge(CONFIG, state, view, Micros(0)) == drained
    view.dead = {0}
    for now in range(0, LONG, SECOND):
        assert exclusion.judge(CONFIG, state, view, Micros(now)) == drained
    view.dead = {0, 2, 3}
    view.cut_off = True
    for now in range(LONG, 3 * LONG, SECOND):
        assert exclusion.judge(CONFIG, state, view, Micros(now)) == drained


def test_the_time_begins_again_when_the_others_sufficed_meanwhile() -> None:
    view, exclusion, state = View(), Exclusion(), set_of(3)
    view.dead = {0}
    exclusion.judge(CONFIG, state, view, Micros(0))
    view.dead = set()
    assert exclusion.judge(CONFIG, state, view, Micros(LONG - 1)) == {SHARDS[3]}
    view.dead = {0}
    assert exclusion.judge(CONFIG, state, view, Micros(LONG)) == {SHARDS[3]}
    assert exclusion.judge(CONFIG, state, view, Micros(2 * LONG)) == set()
