"""The read stream against a model of shards, with thousands of random histories."""

from __future__ import annotations

import os

import pytest

from client.read.items import Gap, GapKind
from tests.simulation import deliberate_client
from tests.simulation.deliberate_fault import FAULTS
from tests.unit.client.read.model import World

SEEDS = int(os.environ.get("READ_STREAM_SEEDS", "400"))
_GROUPS = 4


def run(
    seed: int,
    *,
    crashes: bool = False,
    wipes: bool = False,
    corruption: bool = False,
    trims: bool = False,
    losses: bool = False,
    hedged: bool = False,
    liars: bool = False,
) -> World:
    world = World(seed, hedged=hedged, liars=liars)
    rng = world.rng
    if corruption and rng.random() < 0.5:
        for _ in range(rng.randint(1, 10)):
            world.corrupt()
    for _ in range(rng.randint(20, 250)):
        world.step()
        event = rng.random()
        if event < 0.1:
            world.release()
        elif event < 0.13 and crashes:
            node = rng.randrange(world.node_count)
            if world.up[node]:
                world.crash(node)
            elif node not in world.gone:
                world.restart(node)
        elif event < 0.135 and wipes:
            world.wipe(rng.randrange(world.node_count))
        elif event < 0.15 and corruption:
            world.corrupt()
        elif event < 0.16 and trims:
            world.trim()
        elif event < 0.165 and losses:
            node = rng.randrange(world.node_count)
            if node not in world.gone:
                rng.choice([world.forget, world.remove])(node)
    world.end_faults()
    world.finish()
    return world


@pytest.mark.parametrize("group", range(_GROUPS))
def test_without_faults_everything_is_delivered_and_nothing_is_lost(group: int) -> None:
    for seed in range(group, SEEDS, _GROUPS):
        world = run(seed)
        world.check_items(certain=True)
        assert not any(type(item) is Gap and item.kind is GapKind.DATALOSS for item in world.items), seed


@pytest.mark.parametrize("group", range(_GROUPS))
def test_crashes_and_lost_connections_lose_nothing(group: int) -> None:
    for seed in range(group, SEEDS, _GROUPS):
        world = run(10_000 + seed, crashes=True)
        world.check_items(certain=True)
        assert not any(type(item) is Gap and item.kind is GapKind.DATALOSS for item in world.items), seed


@pytest.mark.parametrize("group", range(_GROUPS))
def test_loss_is_reported_only_where_no_copy_is_left(group: int) -> None:
    for seed in range(group, SEEDS, _GROUPS):
        run(20_000 + seed, crashes=True, wipes=True, corruption=True).check_items(certain=False)


@pytest.mark.parametrize("group", range(_GROUPS))
def test_trimming_beside_everything_else(group: int) -> None:
    for seed in range(group, SEEDS, _GROUPS):
        run(30_000 + seed, crashes=True, wipes=True, corruption=True, trims=True).check_items(certain=False)


@pytest.mark.parametrize("group", range(_GROUPS))
def test_shards_that_forget_or_leave_the_cluster(group: int) -> None:
    for seed in range(group, SEEDS, _GROUPS):
        run(40_000 + seed, crashes=True, corruption=True, trims=True, losses=True).check_items(certain=False)


@pytest.mark.parametrize("liars", [False, True], ids=["honest", "arbitrary answers"])
@pytest.mark.parametrize("group", range(_GROUPS))
def test_hedges_change_nothing_of_what_is_delivered_or_called_lost(group: int, liars: bool) -> None:
    """The proof of a reader that hedges is that of the log, whatever shards answer to hedges."""
    hedges = entries = 0
    for seed in range(group, SEEDS // 4, _GROUPS):
        world = run(50_000 + seed, crashes=True, hedged=True, liars=liars)
        world.check_items(certain=True)
        assert not any(type(item) is Gap and item.kind is GapKind.DATALOSS for item in world.items), seed
        plain = World(50_000 + seed)
        plain.end_faults()
        plain.finish()
        plain.check_items(certain=True)
        assert world.stream.proof() == plain.stream.proof(), seed
        hedges += world.metrics.hedges_sent
        entries += world.metrics.hedge_entries
    assert hedges > 0
    assert entries > 0


@pytest.mark.parametrize("group", range(_GROUPS))
def test_hedges_beside_everything_else(group: int) -> None:
    for seed in range(group, SEEDS // 4, _GROUPS):
        world = run(
            60_000 + seed, crashes=True, wipes=True, corruption=True, trims=True, hedged=True, liars=seed % 2 > 0
        )
        world.check_items(certain=False)
        world = run(70_000 + seed, crashes=True, corruption=True, losses=True, hedged=True, liars=seed % 2 > 0)
        world.check_items(certain=False)


def test_a_reader_that_counts_what_shards_say_to_hedges_is_caught() -> None:
    def run_some() -> None:
        for seed in range(40):
            world = run(50_000 + seed, crashes=True, hedged=True, liars=True)
            world.check_items(certain=True)
            assert not any(type(item) is Gap and item.kind is GapKind.DATALOSS for item in world.items), seed

    run_some()
    with FAULTS[deliberate_client.hedge_gaps_counted.__name__].planted(), pytest.raises(AssertionError):
        run_some()
