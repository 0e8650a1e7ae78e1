"""A fixed set of seeds: what they stand for changes with the code, so a failure is replayed at the same commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.run import Failure, run_seed

SEEDS = range(100)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_repeated_or_stuck(seed: int) -> None:
    try:
        run_seed(seed)
    except Failure as failure:
        last = "\n".join(failure.trace.last()[-30:])
        pytest.fail(f"{last}\n{failure}\n{type(failure.__cause__).__name__}: {failure.__cause__}")


def test_a_seed_gives_the_same_run_again_also_in_another_process() -> None:
    digests = {run_seed(8).digest}
    program = "from tests.simulation.run import run_seed; print(run_seed(8).digest)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1, digests
