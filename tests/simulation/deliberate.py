"""``python -m tests.simulation.deliberate``: plants each deliberate fault and looks for the first seed of the swarm that catches it.

``python -O -m tests.simulation.deliberate`` does so by the histories of applications alone; see `deliberate_hunt`.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool

from tests.simulation import (
    deliberate_client,
    deliberate_configuration,
    deliberate_connections,
    deliberate_dirty,
    deliberate_index_log,
    deliberate_recovery,
    deliberate_requests,
    deliberate_sequencer,
    deliberate_storage,
)
from tests.simulation.command_line import positive, report_path
from tests.simulation.deliberate_fault import FAULTS, DeliberateFault
from tests.simulation.deliberate_hunt import Hunt, look_for
from tests.simulation.report_file import ReportFiles
from tests.simulation.seed_loop import INTERRUPTED
from tests.simulation.workers import worker_pool

CATALOGUES = (
    deliberate_storage,
    deliberate_dirty,
    deliberate_sequencer,
    deliberate_recovery,
    deliberate_client,
    deliberate_requests,
    deliberate_connections,
    deliberate_index_log,
    deliberate_configuration,
)
"""Importing them fills `FAULTS`."""
SEEDS_MAX = 500
BY_MAX = 150
"""Characters of what failed that are shown."""


def main() -> int:
    """0: every fault was caught; 1: some were not; 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.deliberate", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all if none is given")
    parser.add_argument("--seeds", type=positive, default=SEEDS_MAX, help="look at so many seeds")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument(
        "--jobs", type=positive, default=1, help="so many faults at the same time, each in a process of its own"
    )
    parser.add_argument(
        "--likely",
        action="store_true",
        help="of these seeds run only those devoted to what brings the fault out most",
    )
    parser.add_argument(
        "--report", type=report_path, metavar="FILE", help="write a table of them into this file, in markdown"
    )
    parser.add_argument("--list", action="store_true", help="say what there is")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in FAULTS]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}")
    chosen = [FAULTS[name] for name in arguments.names or FAULTS]
    if arguments.list:
        for fault in chosen:
            print(f"{fault.name:36} {fault.breaks}")
        return 0
    hunts: list[Hunt] = []
    files = ReportFiles()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends it as Ctrl-C does
    try:
        for result in _look_for_all(chosen, arguments):
            hunts.append(result)
            print(line_of(result), flush=True)
            if arguments.report is not None:
                files.write({arguments.report: table_of(hunts)})
    except KeyboardInterrupt:
        print(f"interrupted: {len(hunts)} of {len(chosen)} faults were looked for", file=sys.stderr)
        return INTERRUPTED
    except BrokenProcessPool:
        waited = ", ".join(fault.name for fault in chosen[len(hunts) :][: arguments.jobs])
        print(
            f"a process was killed (by the kernel for want of memory?) while it looked for one of {waited}",
            file=sys.stderr,
        )
        return 1
    return 0 if files.up_to_date and all(result.catch is not None for result in hunts) else 1


def _look_for_all(faults: Sequence[DeliberateFault], arguments: argparse.Namespace) -> Iterator[Hunt]:
    """In the order of the faults."""
    how = (arguments.first, arguments.seeds, arguments.likely)
    if arguments.jobs == 1:
        yield from (_look_for_one(fault.name, *how) for fault in faults)
        return
    with worker_pool(arguments.jobs) as pool:
        waiting = [pool.submit(_look_for_one, fault.name, *how) for fault in faults]
        yield from (future.result() for future in waiting)


def _look_for_one(name: str, first: int, seeds: int, likely: bool) -> Hunt:
    return look_for(FAULTS[name], first, seeds, likely=likely)


def line_of(result: Hunt) -> str:
    """For a terminal."""
    took = f"{result.seconds:.0f} s"
    if result.wrong:
        return f"{result.fault:36} IS WRONG: {result.wrong}"
    if not result.runs:
        return f"{result.fault:36} NOT LOOKED FOR: none of the seeds is devoted to {FAULTS[result.fault].likely}"
    if result.catch is None:
        return f"{result.fault:36} NOT CAUGHT in {result.runs} runs ({took}): {FAULTS[result.fault].breaks}"
    catch = result.catch
    return f"{result.fault:36} seed {catch.seed:4}, {result.runs:3} runs, {took:>5}: {catch.by[:BY_MAX]}"


def table_of(hunts: Sequence[Hunt]) -> str:
    """In markdown, with how many were caught."""
    caught = sum(result.catch is not None for result in hunts)
    lines = [
        f"{caught} of {len(hunts)} are caught.",
        "",
        "| Fault | What the code does while it is planted | Mode | Runs | Seed | Caught by |",
        "|---|---|---|---|---|---|",
    ]
    for result in hunts:
        fault = FAULTS[result.fault]
        mode = fault.mode.name.lower()
        seed = str(result.catch.seed) if result.catch else "none"
        by = result.catch.by if result.catch else result.wrong or "nothing"
        lines.append(f"| `{fault.name}` | {fault.breaks} | {mode} | {result.runs} | {seed} | {_cell(by)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """In a cell of a table, as it stands but for the padding of payloads."""
    return "`" + re.sub(r"(\\x00)+", "..", text)[:BY_MAX].replace("`", "'").replace("|", "/") + "`"


if __name__ == "__main__":
    sys.exit(main())
