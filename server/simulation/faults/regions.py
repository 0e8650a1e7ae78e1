"""Faults of whole regions, and of what passes between them."""

from __future__ import annotations

from itertools import product

from logdevice_py.core.units import SECOND
from server.simulation.faults.catalog import FaultInstance, fault
from server.simulation.faults.network import block_pairs, both_ways
from server.simulation.machines import SimNode


def _pairs(sources: list[SimNode], targets: list[SimNode]) -> list[tuple[int, int]]:
    return [(source.id, target.id) for source, target in product(sources, targets)]


def _others(it: FaultInstance, chosen: list[SimNode]) -> list[SimNode]:
    return [node for region in it.regions() if region is not chosen for node in region if node not in chosen]


@fault("all nodes of a region end at once, and are back after a while", regional=True)
def region_lost(it: FaultInstance) -> None:
    region = it.rng.choice(it.regions())
    for node in region:
        it.crash(node, machine=False)

    def back() -> None:
        for node in region:
            it.restart(node, int(it.rng.random() * SECOND))

    it.later(back, most=it.rng.choice([2, 10, 20]) * SECOND)


@fault("a region and the others do not reach each other", regional=True)
def partition_region(it: FaultInstance) -> None:
    region = it.rng.choice(it.regions())
    block_pairs(it, both_ways(_pairs(region, _others(it, region))))


@fault("nothing of a region reaches the others, or nothing of theirs reaches it; the way back is free", regional=True)
def partition_region_one_way(it: FaultInstance) -> None:
    region = it.rng.choice(it.regions())
    others = _others(it, region)
    block_pairs(it, _pairs(region, others) if it.rng.random() < 0.5 else _pairs(others, region))


@fault("two regions do not reach each other, or one does not reach the other; others reach both", regional=True)
def partition_two_regions(it: FaultInstance) -> None:
    if len(regions := it.regions()) < 2:
        return
    one, two = it.rng.sample(regions, 2)
    pairs = _pairs(one, two)
    block_pairs(it, pairs if it.rng.random() < 0.5 else both_ways(pairs))


@fault("one node of a region does not reach another region", regional=True)
def partition_node_from_region(it: FaultInstance) -> None:
    if len(regions := it.regions()) < 2:
        return
    one, two = it.rng.sample(regions, 2)
    block_pairs(it, _pairs([it.rng.choice(one)], two))
