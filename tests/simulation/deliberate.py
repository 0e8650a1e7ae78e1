"""``python -m tests.simulation.deliberate``: plants each deliberate fault and looks for the first seed of the swarm that catches it.

A catch is a failed check: an assertion of the code, or a violation of what must hold in the cluster or of what applications may see. Any
other exception means that the fault itself is wrong, and is not hidden. With ``-O`` nothing but the histories of applications is checked:
assertions are gone then, and nobody looks at what nodes send.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation import deliberate_client, deliberate_recovery, deliberate_sequencer, deliberate_storage
from tests.simulation.deliberate_fault import FAULTS, DeliberateFault
from tests.simulation.history import Violation
from tests.simulation.invariants import Invariants
from tests.simulation.run import Failure, run_seed

CATALOGUES = (deliberate_storage, deliberate_sequencer, deliberate_recovery, deliberate_client)
"""Importing them fills `FAULTS`."""
SEEDS_MAX = 500
ROOT = Path(__file__).parents[2]


def _watch_silently(original: Callable[..., None]) -> Callable[..., None]:
    def watch(self: Invariants, node: Any, effects: list[Any]) -> None:
        for effect in effects:
            with suppress(AssertionError):
                original(self, node, [effect])

    return watch


NOBODY_WATCHES = DeliberateFault(
    "nobody_watches", "what nodes send is not checked", _watch_silently, ((Invariants, "watch"),)
)


class WrongFaultError(Exception):
    """With the fault planted the code raises something that is no failed check."""


@dataclass(frozen=True, slots=True)
class Catch:
    """How a fault was caught."""

    seed: int
    runs: int
    by: str
    """The first line of what failed."""


def hunt(fault: DeliberateFault, seeds: Iterable[int]) -> Catch | None:
    """Run the swarm with the fault planted until a seed catches it that passes without; None when none does."""
    for runs, seed in enumerate(seeds, start=1):
        by = _failure(fault, seed)
        if by is not None and _passes(fault, seed):
            return Catch(seed, runs, by)
    return None


def _failure(fault: DeliberateFault, seed: int) -> str | None:
    """What fails with the fault planted; None: nothing."""
    histories_only = not __debug__
    with fault.planted(), NOBODY_WATCHES.planted() if histories_only else nullcontext():
        try:
            run_seed(seed, loses=fault.loses)
        except Failure as failure:
            cause = failure.__cause__
            if cause is None:
                raise
            if not isinstance(cause, Violation if histories_only else AssertionError):
                raise WrongFaultError(f"{fault.name}, seed {seed}: {first_line(cause)}") from cause
            return first_line(cause)
    return None


def _passes(fault: DeliberateFault, seed: int) -> bool:
    """In the same mode, without any fault planted."""
    try:
        run_seed(seed, loses=fault.loses)
    except Failure:
        return False
    return True


def first_line(error: BaseException) -> str:
    """What failed: the message, or where the assertion stands when it has none."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return str(error)
    code = traceback.tb_frame.f_code
    where = f"{Path(code.co_filename).stem}.{code.co_name}"
    text = str(error).partition("\n")[0]
    if type(error) is not AssertionError:
        return f"{type(error).__name__}: {text}"
    return f"assertion in {where}" + (f": {text}" if text else "")


def main() -> int:
    """0: every fault was caught; 1: some were not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.deliberate", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all if none is given")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="look at so many seeds")
    parser.add_argument("--first", type=int, default=0, help="begin with this seed")
    parser.add_argument(
        "--jobs", type=int, default=1, help="so many faults at the same time, each in a process of its own"
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
    if arguments.jobs > 1 and len(chosen) > 1:
        return _in_processes(chosen, arguments)
    missed = 0
    for fault in chosen:
        began = time.monotonic()
        try:
            catch = hunt(fault, range(arguments.first, arguments.first + arguments.seeds))
        except WrongFaultError as error:
            missed += 1
            print(f"{fault.name:36} IS WRONG: {error}", flush=True)
            continue
        took = f"{time.monotonic() - began:.0f} s"
        if catch is None:
            missed += 1
            print(f"{fault.name:36} NOT CAUGHT by {arguments.seeds} seeds ({took}): {fault.breaks}")
        else:
            print(f"{fault.name:36} seed {catch.seed:4}, {catch.runs:3} runs, {took:>5}: {catch.by[:150]}")
        sys.stdout.flush()
    return 1 if missed else 0


def _in_processes(chosen: list[DeliberateFault], arguments: argparse.Namespace) -> int:
    def run(fault: DeliberateFault) -> int:
        command = [sys.executable, *(["-O"] if not __debug__ else []), "-m", "tests.simulation.deliberate", fault.name]
        command += ["--seeds", str(arguments.seeds), "--first", str(arguments.first)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr, end="", flush=True)
        return done.returncode

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return max(pool.map(run, chosen))


if __name__ == "__main__":
    sys.exit(main())
