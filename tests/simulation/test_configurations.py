"""A stored configuration under operators and faults, on simulated clusters; rules left out, caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.configurations import changed_configurations
from tests.simulation.deliberate import FAULTS
from tests.simulation.deliberate_configuration import APPLICATION
from tests.simulation.deliberate_hunt import look_for
from tests.slow import quick

SEEDS = range(300)
HUNTED_MAX = 20
CLUSTER: dict[str, Any] = {
    "nodes": 4,
    "logs": 2,
    "racks": 2,
    "replicate": "node:2",
    "stored_configuration": True,
    "virtual_seconds": 1500,
}
OF_CONFIGURATIONS = sorted(
    (fault.name for fault in FAULTS.values() if fault.likely == APPLICATION),
    key="older_configuration_taken".__eq__,  # last: it takes a dozen seeds
)


@pytest.mark.parametrize("seed", quick(SEEDS, 2))
def test_nodes_follow_what_operators_store(simulate: Callable[..., Any], seed: int) -> None:
    found = simulate(changed_configurations, seed=seed, faults="all", **CLUSTER)
    assert found.logs


@pytest.mark.parametrize("name", quick(OF_CONFIGURATIONS, 1))
def test_a_few_seeds_catch_a_rule_that_is_left_out(name: str) -> None:
    assert look_for(FAULTS[name], 0, HUNTED_MAX).catch is not None
