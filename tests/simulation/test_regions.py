"""Seeds of the swarm whose nodes stand in regions: copies in several of them, latencies, regions that are lost or cut off."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from logdevice_py.config.location import Scope
from server.simulation.faults.nemesis import CATALOG
from tests.simulation.deliberate import FAULTS
from tests.simulation.run import Failure, run_seed
from tests.simulation.scenario import Scenario, draw
from tests.slow import quick

REGIONAL = {kind.name for kind in CATALOG.values() if kind.regional}
HUNTED_MAX = 6


def scenarios() -> Iterator[Scenario]:
    """Those with regions, in the order of their seeds."""
    return (scenario for scenario in map(draw, count(100)) if scenario.distances)


def test_what_is_drawn() -> None:
    found = list(islice(scenarios(), 6))
    assert {name for scenario in found for name in scenario.faults} & REGIONAL
    assert any(Scope.REGION in dict(scenario.config.log(1).replication.factors) for scenario in found)  # type: ignore[arg-type, union-attr]
    for scenario in found:
        regions = {node.location.region for node in scenario.config.nodes.values()}
        assert len(regions) == scenario.plan.regions > 1
        pairs = {(one, two) for one in range(len(regions)) for two in range(len(regions)) if one != two}
        assert set(scenario.distances) == pairs
    assert not any(draw(seed).distances for seed in range(40)), "tests name seeds below"


@pytest.mark.parametrize("place", quick(range(60), 1))
def test_regions_that_are_lost_cut_off_and_far_away(place: int) -> None:
    scenario = next(islice(scenarios(), place, None))
    assert run_seed(scenario.seed).acknowledged


@pytest.mark.slow
def test_a_few_seeds_catch_copies_that_lie_in_one_region() -> None:
    def hunt() -> None:
        for scenario in islice(scenarios(), HUNTED_MAX):
            run_seed(scenario.seed)

    with FAULTS["copyset_in_one_region"].planted(), pytest.raises(Failure):
        hunt()
