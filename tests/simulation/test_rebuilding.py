"""Some seeds of clusters that lose nodes for good, or empty them."""

from __future__ import annotations

import pytest

from tests.simulation.run import run_seed


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_departed_nodes_held_is_stored_again(seed: int) -> None:
    run_seed(seed, rebuilds=True)
