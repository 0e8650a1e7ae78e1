"""Maintenances at random under load on simulated clusters, with nodes that die beside them; rules left out, caught."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ldquery.maintenance import manager
from logdevice_py import SimulationFailed
from tests.simulation.deliberate_fault import DeliberateFault
from tests.simulation.maintenances import random_maintenances
from tests.slow import quick

SEEDS = range(500)
HUNTED_MAX = 10
CLUSTER: dict[str, Any] = {
    "nodes": 5,
    "logs": 2,
    "replicate": "node:2",
    "rebuilding": True,
    "maintenances": True,
    "virtual_seconds": 3000,
}


@pytest.mark.parametrize("seed", quick(SEEDS, 2))
def test_nothing_becomes_unavailable_that_was_promised(simulate: Callable[..., Any], seed: int) -> None:
    options = {**CLUSTER, "replicate": ("node:2", "node:3")[seed % 2]}
    kept = simulate(random_maintenances, seed=seed, **options)
    assert sum(map(len, kept.acknowledged.values())) > 50


def nothing_is_checked(original: Any) -> Any:
    return lambda config, found, state, wanted: []


def _first(error: BaseException | None) -> BaseException | None:
    """What made a group of tasks end."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


BROKEN = (
    DeliberateFault("maintenances_unchecked", "no maintenance is checked", nothing_is_checked, ((manager, "why_not"),)),
)


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)
def test_a_few_seeds_catch_a_rule_of_maintenances_that_is_left_out(
    simulate: Callable[..., Any], fault: DeliberateFault
) -> None:
    caught = ""
    with fault.planted():
        for seed in range(HUNTED_MAX):
            try:
                simulate(random_maintenances, seed=seed, **CLUSTER)
            except SimulationFailed as failed:
                caught = str(_first(failed.__cause__))
                break
    assert re.search("rule [123]", caught), caught
