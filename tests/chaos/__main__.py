"""``python -m tests.chaos --seconds 600``: chaos with real processes; several rounds with ``--rounds``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from storage_node.log_store.settings import STORE_KINDS
from tests.chaos.run import run_chaos


def main() -> int:
    """0: all rounds went well."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of faults (processes run as they like)")
    parser.add_argument("--seconds", type=float, default=60, help="how long things break, in each round")
    parser.add_argument("--interval", type=float, default=1.5, help="seconds between faults, on average")
    parser.add_argument("--rounds", type=int, default=1, help="further rounds take the seeds that follow")
    parser.add_argument("--store", choices=STORE_KINDS, default=STORE_KINDS[0], help="what shards are stored in")
    parser.add_argument("--kills", type=int, default=0, help="nothing but SIGKILL of nodes, until there were so many")
    parser.add_argument(
        "--regions",
        type=lambda text: text.split(","),
        default=[],
        metavar="REGION,REGION,...",
        help="nodes stand in these, which are killed, cut off from each other and slow to reach; takes root",
    )
    parser.add_argument("--story", action="store_true", help="tell what was done and when")
    arguments = parser.parse_args()
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        with tempfile.TemporaryDirectory(prefix="logdevice-chaos-") as directory:
            outcome = asyncio.run(
                run_chaos(
                    Path(directory),
                    seed=seed,
                    seconds=arguments.seconds,
                    interval=arguments.interval,
                    store=arguments.store,
                    kills=arguments.kills,
                    regions=arguments.regions,
                )
            )
        if arguments.story:
            print("\n".join(outcome.story))
        print(f"seed {seed}: {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
