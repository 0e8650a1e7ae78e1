"""What is held against copies of nodes that left."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from logdevice_py.core.ids import Generation, NodeId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.event_log.events import DonorFlags, RebuildMode, ShardIsRebuilt, ShardNeedsRebuild, ShardTookRecords
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from server.simulation.machines import SimNode
from tests.simulation.departures import Departures

DRAINED, STAYS = shard_id(NodeId(0)), shard_id(NodeId(1))
ONE = Generation(1)


def departures_told_by(*states: RebuildingSet) -> Departures:
    """Of a cluster in which one node runs for each state."""
    departures = Departures(SimpleNamespace(), SimpleNamespace(rng=random.Random(1)), SimpleNamespace())  # type: ignore[arg-type]
    departures._sets = lambda: list(states)  # type: ignore[method-assign]
    return departures


def after_the_drain() -> RebuildingSet:
    state = RebuildingSet()
    candidates = ((DRAINED, ONE), (STAYS, ONE))
    state.apply(ShardNeedsRebuild(DRAINED, ONE, RebuildMode.RELOCATE, candidates, True, ""), Lsn(1))
    for donor in (DRAINED, STAYS):
        state.apply(ShardIsRebuilt(donor, ONE, state.round, DonorFlags.NONE), Lsn(2 + donor))
    return state


@pytest.mark.parametrize("is_used_again", [False, True])
def test_what_a_drained_shard_got_when_it_was_used_again_counts(is_used_again: bool) -> None:
    state = after_the_drain()
    if is_used_again:
        state.apply(ShardTookRecords(DRAINED, ONE, state.shards[DRAINED].since), Lsn(state.version + 1))
    came = departures_told_by(state).came_to()
    assert (came.rebuilt, came.emptied) == (({}, frozenset()) if is_used_again else ({DRAINED: ONE}, {DRAINED}))


def test_a_drained_node_is_empty_when_all_that_run_know_it_and_somebody_runs() -> None:
    drained: SimNode = SimpleNamespace(disks=[DRAINED])  # type: ignore[assignment]
    knows, has_not_read = after_the_drain(), RebuildingSet()
    assert departures_told_by(knows, knows).is_empty(drained)
    assert not departures_told_by(knows, has_not_read).is_empty(drained)
    assert not departures_told_by().is_empty(drained)
