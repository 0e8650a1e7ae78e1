"""``python -m tests.simulation.many_maintenances``: random maintenances under load until there were so many, and what they came to.

Each seed is a cluster of its own, with operators, writers and deaths (`tests/simulation/maintenances.py`), which checks that nothing that was promised becomes unavailable.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import Final

from logdevice_py import SimulationFailed
from server.simulation.cluster import simulate
from tests.simulation.maintenances import random_maintenances
from tests.simulation.test_maintenances import CLUSTER

ASKED_FOR: Final = ("granted", "drained", "not granted", "NOTFOUND", "CONFLICT", "VERSION_MISMATCH")
"""What a maintenance comes to; those that are forgotten were granted or drained before. What was refused at once, as the node was in another one, does not count."""


def main(arguments: list[str]) -> int:
    """The program; its exit status."""
    options = argparse.ArgumentParser(prog="python -m tests.simulation.many_maintenances", description=__doc__)
    options.add_argument(
        "--count", type=int, default=500, help="so many maintenances that operators ask for, at least (default 500)"
    )
    options.add_argument("--seed", type=int, default=0, help="the first one (default 0)")
    chosen = options.parse_args(arguments)
    outcomes: Counter[str] = Counter()
    appends, longest, seed, began, failed = 0, 0.0, chosen.seed, time.monotonic(), list[int]()
    while sum(outcomes[name] for name in ASKED_FOR) < chosen.count:
        try:
            kept = simulate(random_maintenances, seed=seed, **{**CLUSTER, "replicate": ("node:2", "node:3")[seed % 2]})
        except SimulationFailed as error:
            failed.append(seed)
            print(f"seed {seed} failed: {error}", flush=True)
            if len(failed) > 3:
                break
        else:
            outcomes += kept.outcomes
            appends += sum(map(len, kept.acknowledged.values()))
            longest = max(longest, kept.longest)
        seed += 1
    asked = sum(outcomes[name] for name in ASKED_FOR)
    of = ", ".join(f"{name} {outcomes[name]}" for name in (*ASKED_FOR, "forgotten"))
    print(
        f"{asked} maintenances in {seed - chosen.seed} clusters: {of}; {outcomes['EXISTS']} were refused at once, as the node was in another one; "
        f"beside them {outcomes['died']} nodes died"
    )
    print(
        f"{appends} appends were acknowledged, and read in the end; the longest took {longest:.1f} s of simulated time"
    )
    print(
        f"{'nothing became unavailable that was promised' if not failed else f'seeds that failed: {failed}'}; {time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
