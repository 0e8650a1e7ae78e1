"""``make linearizability``: histories of real processes under SIGKILL, SIGSTOP and cuts, judged by Porcupine.

Each round is a cluster of its own with two logs: of plain appends, and of appends half of which expect what was last. Rounds are run with `strict_order`, which must be
linearizable, and with ``--plain`` without it, which need not be while nodes are cut off from each other: what was found is printed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

from tests.linearizability.rounds import play_round

_CHECKER = Path(__file__).parent / "checker"


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 when every history that must be linearizable is."""
    options = argparse.ArgumentParser(prog="python -m tests.linearizability")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--plain", action="store_true", help="without strict_order; the status tells nothing")
    options.add_argument("--keep", type=Path, help="a directory for the histories")
    chosen = options.parse_args(arguments)
    go = shutil.which("go") or "/usr/local/go/bin/go"
    with tempfile.TemporaryDirectory(prefix="ld-linearizability-") as name:
        directory, files = Path(name), []
        checker = directory / "checker"
        subprocess.run([go, "build", "-o", checker, "."], cwd=_CHECKER, check=True)
        for seed in range(chosen.seed, chosen.seed + chosen.rounds):
            name = f"{'any' if chosen.plain else 'strict'}-{seed}"
            written = [(chosen.keep or directory) / f"{kind}-{name}.json" for kind in ("plain", "chain")]
            # a process each: the kernel takes its time to forget the networks of one
            process = get_context("spawn").Process(
                target=play_round, args=(directory / f"cluster{seed}", seed, chosen.seconds, not chosen.plain, written)
            )
            process.start()
            process.join()
            if process.exitcode:
                return 2
            files += written
        status = subprocess.run([checker, *files], check=False).returncode
    return 0 if chosen.plain else status


if __name__ == "__main__":
    sys.exit(main())
