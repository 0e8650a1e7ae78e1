"""``python -m tests.simulation --seed 7`` shows one run, ``--runs 100`` looks for one that fails."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from logdevice_py.core.marks import HITS
from tests.simulation.run import Failure, run_seed


def main() -> int:
    """0: all runs went well; 1: not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="run this seed; with --runs the first one")
    parser.add_argument("--runs", type=int, default=None, help="run so many seeds")
    parser.add_argument("--trace", action="store_true", help="print every event as it happens")
    parser.add_argument("--tail", type=int, default=60, help="how many of the last events a failure prints")
    parser.add_argument("--marks", action="store_true", help="print how often rare branches were taken")
    arguments = parser.parse_args()
    first = arguments.seed or 0
    runs = arguments.runs or 1
    failed: list[int] = []
    causes: Counter[str] = Counter()
    for seed in range(first, first + runs):
        began = time.monotonic()
        try:
            outcome = run_seed(seed, echo=print if arguments.trace else None)
        except Failure as failure:
            failed.append(seed)
            cause = failure.__cause__
            assert cause is not None
            causes[f"{type(cause).__name__}: {str(cause)[:100]}"] += 1
            if not arguments.trace:
                print("\n".join(failure.trace.last()[-arguments.tail :]))
            print("".join(traceback.format_exception(cause)))
            print(failure)
            sys.stdout.flush()
            continue
        what, slowest = max(outcome.calm_after.items(), key=lambda item: item[1])
        print(
            f"{outcome.scenario}: {outcome.acknowledged} acknowledged, {outcome.events} events, calm after {slowest / 1e6:.1f} s ({what}), "
            f"hash {outcome.digest}, {time.monotonic() - began:.1f} s"
        )
        sys.stdout.flush()
    if arguments.marks:
        print("\n".join(f"{count:8} {name}" for name, count in sorted(HITS.items())))
    if failed:
        print(f"{len(failed)} of {runs} seeds failed: {failed}")
        for cause_text, count in causes.most_common():
            print(f"  {count} x {cause_text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
