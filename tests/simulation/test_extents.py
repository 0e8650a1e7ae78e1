"""The store in extents under whole clusters: the very object of production, on the simulated disk, beneath the swarm's faults and checks."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.run import Failure, run_seed
from tests.simulation.run_mode import RunMode

SEEDS = (8,)


def outcome_of(seed: int, mode: RunMode = RunMode.USUAL) -> Counter[str]:
    """What faults and rare branches came up."""
    try:
        outcome = run_seed(seed, mode=mode, store="extents")
    except Failure as failure:
        last = "\n".join(failure.trace.last()[-30:])
        pytest.fail(f"{last}\n{failure}\n{type(failure.__cause__).__name__}: {failure.__cause__}")
    return Counter({**outcome.effects, **dict.fromkeys(outcome.marks, 1)})


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_repeated_or_stuck(seed: int) -> None:
    outcome_of(seed)


def test_the_same_seed_takes_the_same_course() -> None:
    one, other = (run_seed(0, store="extents").digest for _ in range(2))
    assert one == other
