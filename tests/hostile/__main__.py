"""``python -m tests.hostile --attacks 100 --frames 10000000``: a cluster of five processes, honest clients, and a hostile one with an encoder of its own."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.hostile.run import run_hostile


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """0: nothing that honest clients rely on was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--attacks", type=int, default=100, help="how often each attack is made")
    parser.add_argument("--frames", type=int, default=200_000, help="mutated frames")
    parser.add_argument(
        "--rate", type=float, default=0, help="mutated frames a second at most; 0: as fast as nodes take them"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the size of each attack")
    parser.add_argument(
        "--quiet-seconds", type=float, default=20, help="how long honest clients are measured without the hostile one"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logdevice-hostile-") as directory:
        outcome = asyncio.run(
            run_hostile(
                Path(directory),
                attacks=arguments.attacks,
                frames=arguments.frames,
                rate=arguments.rate,
                scale=arguments.scale,
                quiet_seconds=arguments.quiet_seconds,
                say=_say,
            )
        )
    print(
        f"all acknowledged records were read: {outcome.acknowledged}; {outcome.writers} writers where streams were forged"
    )
    control = outcome.phases[1].percentile(0.99)
    for phase in outcome.phases[2:]:
        print(f"p99 {phase.name}: {phase.percentile(0.99) / control:.2f} times that of the control")
    return 0


if __name__ == "__main__":
    sys.exit(main())
