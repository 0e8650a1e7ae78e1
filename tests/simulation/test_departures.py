"""What is held against copies of nodes that left."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from logdevice_py.core.ids import Generation, NodeId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.event_log.events import DonorFlags, RebuildMode, ShardIsRebuilt, ShardNeedsRebuild, ShardTookRecords
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from tests.simulation.departures import Departures

DRAINED, STAYS = shard_id(NodeId(0)), shard_id(NodeId(1))
ONE = Generation(1)


@pytest.mark.parametrize("is_used_again", [False, True])
def test_what_a_drained_shard_got_when_it_was_used_again_counts(is_used_again: bool) -> None:
    state = RebuildingSet()
    candidates = ((DRAINED, ONE), (STAYS, ONE))
    state.apply(ShardNeedsRebuild(DRAINED, ONE, RebuildMode.RELOCATE, candidates, True, ""), Lsn(1))
    for donor in (DRAINED, STAYS):
        state.apply(ShardIsRebuilt(donor, ONE, state.round, DonorFlags.NONE), Lsn(2 + donor))
    departures = Departures(SimpleNamespace(), SimpleNamespace(rng=random.Random(1)), SimpleNamespace())  # type: ignore[arg-type]
    departures._sets = lambda: [state]  # type: ignore[method-assign]
    if is_used_again:
        state.apply(ShardTookRecords(DRAINED, ONE, state.shards[DRAINED].since), Lsn(state.version + 1))
    came = departures.came_to()
    assert (came.rebuilt, came.emptied) == (({}, frozenset()) if is_used_again else ({DRAINED: ONE}, {DRAINED}))
