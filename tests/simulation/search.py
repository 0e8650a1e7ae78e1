"""Runs many seeds in processes of their own, and finds the fewest faults with which a run still fails."""

from __future__ import annotations

import gc
import os
import re
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

from server.simulation.faults.nemesis import PlannedFault
from tests.simulation.features import FeatureFailure, run_features
from tests.simulation.run import Failure, run_seed
from tests.simulation.run_mode import RunMode
from tests.simulation.workers import worker_pool

ROOT = Path(__file__).parents[2]
SOURCES = (
    "logdevice_py",
    "sequencer",
    "storage_node",
    "client",
    "streams",
    "epoch_store",
    "ldquery",
    "server",
    "indexlog",
)
"""Packages of which the simulator runs something."""
_NOT_SIMULATED = ("epoch_store/zookeeper.py", "epoch_store/sqlite.py")
"""The simulator has an epoch store of its own."""


@dataclass(slots=True)
class SeedResult:
    """Of one seed, small enough to be sent between processes."""

    seed: int
    text: str
    """What to print of it in one line."""
    took: float
    """Seconds of processor time."""
    failure: str = ""
    """Why it failed, with the last events; empty when it went well."""
    cause: str = ""
    acknowledged: int = 0
    epochs: int = 0
    lost: int = 0
    virtual: int = 0
    """Microseconds that passed in the run."""
    silent: bool = False
    """See `RunOutcome`."""
    caused: dict[str, int] = field(default_factory=dict)
    effects: dict[str, int] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)


def run_one(seed: int, mode: RunMode, tail: int, store: str | None = None) -> SeedResult:
    """Run a seed, and put what came of it into a result; `store` as of `run_seed`."""
    began = time.process_time()
    if mode is RunMode.FEATURES:
        return _run_features(seed, began)
    try:
        outcome = run_seed(seed, mode=mode, store=store)
    except Failure as failure:
        cause = failure.__cause__
        assert cause is not None
        last = "\n".join(failure.trace.last()[-tail:])
        trace = "".join(traceback.format_exception(cause))
        return SeedResult(
            seed,
            str(failure),
            time.process_time() - began,
            f"{last}\n{trace}\n{failure}",
            f"{type(cause).__name__}: {str(cause)[:160]}",
        )
    what, slowest = max(outcome.calm_after.items(), key=lambda item: item[1])
    took = time.process_time() - began
    lost = f"{outcome.lost} declared lost, " if mode is RunMode.LOSS else ""
    text = (
        f"{outcome.scenario}: {outcome.acknowledged} acknowledged, {lost}{outcome.epochs} epochs, "
        f"{sum(outcome.caused.values())} faults, {outcome.events} events, "
        f"calm after {slowest / 1e6:.1f} s ({what}), hash {outcome.digest}, {took:.1f} s"
    )
    return SeedResult(
        seed,
        text,
        took,
        acknowledged=outcome.acknowledged,
        epochs=outcome.epochs,
        lost=outcome.lost,
        virtual=outcome.virtual,
        silent=outcome.silent,
        caused=outcome.caused,
        effects=outcome.effects,
        marks=outcome.marks,
    )


def _run_features(seed: int, began: float) -> SeedResult:
    try:
        outcome = run_features(seed, replay=RunMode.FEATURES.replay(seed))
    except FeatureFailure as failure:
        cause = failure.__cause__
        trace = "".join(traceback.format_exception(cause))
        return SeedResult(
            seed,
            str(failure),
            time.process_time() - began,
            f"{trace}\n{failure}",
            f"{type(cause).__name__}: {str(cause)[:160]}",
        )
    took = time.process_time() - began
    faults = sum(outcome.caused.values())
    return SeedResult(
        seed,
        f"{outcome.plan}: {outcome.epochs} epochs, {faults} faults, hash {outcome.digest}, {took:.1f} s",
        took,
        epochs=outcome.epochs,
        virtual=outcome.virtual,
        caused=outcome.caused,
        effects=outcome.effects,
        marks=outcome.marks | {f"application {name}" for name in outcome.plan.features},
    )


def _run_in_process(seed: int, mode: RunMode, tail: int, store: str | None) -> SeedResult:
    result = run_one(seed, mode, tail, store)
    gc.collect()  # the machines of a run refer to each other, and the collector leaves what is old alone for hundreds of seeds
    return result


class WorkerKilledError(Exception):
    """Something killed a process that ran seeds: the kernel, perhaps, for want of memory."""

    def __init__(self, seeds: Sequence[int]) -> None:
        super().__init__(
            "a process that ran seeds was killed (by the kernel for want of memory?) while these were under way: "
            + ", ".join(map(str, seeds))
        )


def run_many(
    seeds: Iterable[int],
    *,
    mode: Callable[[int], RunMode],
    tail: int = 60,
    store: str | None = None,
    jobs: int | None = None,
    keep_going: bool = False,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Generator[SeedResult, None, None]:
    """The results as they come; ends after the first failure unless `keep_going`.

    Args:
        mode: in which mode to run a seed.
        store: as of `run_seed`.
        is_stopping: whether to begin no more seeds; those that run come to their end.

    Raises:
        WorkerKilledError: after all results that there are.
    """
    waiting = iter(seeds)
    count = jobs or os.cpu_count() or 1
    with worker_pool(count) as pool:
        running: dict[Future[SeedResult], int] = {}
        while True:
            if is_stopping():
                running = {future: seed for future, seed in running.items() if not future.cancel()}
            while not is_stopping() and len(running) < 2 * count and (seed := next(waiting, None)) is not None:
                running[_submitted(pool, seed, mode(seed), tail, store)] = seed
            if not running:
                return
            wait(running, return_when=FIRST_COMPLETED)
            done = [future for future in running if future.done()]
            lost = [future for future in done if isinstance(future.exception(), BrokenProcessPool)]
            for future in sorted(set(done) - set(lost), key=running.__getitem__):
                del running[future]
                result = future.result()
                yield result
                if result.failure and not keep_going:
                    return
            if lost:  # seeds are begun in their order, one in each process
                raise WorkerKilledError(sorted(running.values())[:count])


def _submitted(pool: ProcessPoolExecutor, seed: int, mode: RunMode, tail: int, store: str | None) -> Future[SeedResult]:
    try:
        return pool.submit(_run_in_process, seed, mode, tail, store)
    except BrokenProcessPool as error:  # as if it had been there when the pool broke
        future: Future[SeedResult] = Future()
        future.set_exception(error)
        return future


def fewest(indexes: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A subset with which it still fails and of which nothing can be left out: delta debugging.

    Args:
        indexes: all of them; with all it fails.
        fails: whether it fails with a subset.
    """
    kept, parts = list(indexes), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[start : start + size] for start in range(0, len(kept), size)]
        for chunk in chunks:
            rest = [index for index in kept if index not in chunk]
            if fails(rest):
                kept, parts = rest, max(2, parts - 1)
                break
        else:
            if parts >= len(kept):
                return kept
            parts = min(len(kept), 2 * parts)
    return [] if kept and fails([]) else kept


def fewest_faults(
    seed: int, mode: RunMode, *, seconds: float, store: str | None = None
) -> tuple[list[PlannedFault], bool]:
    """The fewest faults with which the seed fails for the same reason, and whether that took no longer than so many seconds."""
    deadline = time.monotonic() + seconds
    try:
        run_seed(seed, mode=mode, store=store)
    except Failure as failure:
        plan, kind = list(failure.plan), _kind(failure)
    else:
        raise AssertionError(f"seed {seed} does not fail")
    everything = {planned.index for planned in plan}
    in_time = True

    def fails(kept: Sequence[int]) -> bool:
        nonlocal in_time
        if time.monotonic() > deadline:
            in_time = False
            return False
        try:
            run_seed(seed, mode=mode, disabled=everything - set(kept), store=store)
        except Failure as failure:
            return _kind(failure) == kind
        return False

    kept = fewest(sorted(everything), fails)
    return [planned for planned in plan if planned.index in kept], in_time


def _kind(failure: Failure) -> str:
    """What kind of failure it is: numbers and names differ from run to run."""
    return re.sub(r"[^A-Za-z ]*\d[^ ]*", "#", f"{type(failure.__cause__).__name__} {failure.__cause__}")[:60]


def declared_marks() -> dict[str, str]:
    """The names of all coverage marks in what the simulator runs, and the file that each is in."""
    found: dict[str, str] = {}
    for package in SOURCES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name in _NOT_SIMULATED or name == "logdevice_py/core/marks.py":
                continue
            for call in re.finditer(r"\bhit\(\s*((?:\"[a-z0-9_]+\"|[^()\"])+)\)", path.read_text(encoding="utf-8")):
                for mark in re.findall(r"\"([a-z0-9_]+)\"", call[1]):
                    found[mark] = name
    return found
