"""What the simulator demands of what shards trim by themselves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.units import SECOND
from tests.simulation.invariants import LogModel
from tests.simulation.retention_invariants import RetentionInvariants
from tests.unit.storage_node.fakes import SYNC_LOG, make_config

HOUR = 3600 * SECOND


def test_a_clock_that_was_behind_excuses_early_trims_also_when_its_node_has_left() -> None:
    config = make_config()
    kept = replace(config.log(SYNC_LOG), backlog_us=HOUR)  # type: ignore[type-var]
    watched = SimpleNamespace(settings=config.settings, log=lambda log: kept)
    cluster: Any = SimpleNamespace(config=watched, scheduler=SimpleNamespace(now=0), nodes={})
    invariants = RetentionInvariants(cluster, {})
    for number, skew in ((1, 0), (6, -2 * SECOND)):
        clock = SimpleNamespace(skew=skew, monotonic=lambda: 5)
        node: Any = SimpleNamespace(id=NodeId(number), clock=clock, starts=2, root=None)
        invariants.watch(node)
        if skew:
            continue
        stays = node
    model = LogModel(LogId(SYNC_LOG))
    model.entries[7] = SimpleNamespace(born=0)  # type: ignore[assignment]
    invariants.check_trim(stays, ShardId(1 << 8), model, 7)
    assert model.trim_asked == 7
