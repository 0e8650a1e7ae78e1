"""Looks for the first seed of the swarm that catches a deliberate fault.

A catch is a failed check: an assertion of the code, or a violation of what must hold in the cluster or of what applications may see. Any
other exception means that the fault itself is wrong, and is not hidden. With ``-O`` nothing but the histories of applications counts:
assertions are gone then, nobody looks at what nodes send, and nobody compares disks with the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation import run
from tests.simulation.deliberate_fault import DeliberateFault
from tests.simulation.features import FeatureFailure, run_features
from tests.simulation.history import Violation
from tests.simulation.invariants import Invariants
from tests.simulation.run import Failure, run_seed
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import draw


class WrongFaultError(Exception):
    """With the fault planted the code raises something that is no failed check."""


def _watch_silently(original: Callable[..., None]) -> Callable[..., None]:
    def watch(self: Invariants, node: Any, effects: list[Any]) -> None:
        for effect in effects:
            with suppress(AssertionError):
                original(self, node, [effect])

    return watch


HISTORIES_ALONE = (
    DeliberateFault("nobody_watches", "what nodes send is not checked", _watch_silently, ((Invariants, "watch"),)),
    DeliberateFault(
        "nobody_compares",
        "disks and buffers are not compared with the model",
        lambda original: lambda *arguments: None,
        ((run, "check_bounds"), (run, "check_copies"), (run, "check_clean_epochs")),
    ),
)
"""Planted beside the fault when only histories count."""


@dataclass(frozen=True, slots=True)
class Catch:
    """How a fault was caught."""

    seed: int
    by: str
    """The first line of what failed."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """What came of looking for one fault."""

    fault: str
    runs: int
    """How many seeds were run with the fault."""
    seconds: float
    """Of processor time."""
    catch: Catch | None = None
    wrong: str = ""
    """What is wrong with the fault itself."""


def look_for(fault: DeliberateFault, first: int, seeds: int, *, likely: bool = False) -> Hunt:
    """Run the swarm with the fault planted, in the order of the seeds from `first` on, until one catches it that passes without.

    Args:
        likely: run only seeds that are devoted to what brings the fault out most often.
    """
    began = time.process_time()
    catch, wrong, runs = None, "", 0
    for seed in range(first, first + seeds):
        if likely and not _is_likely(fault, seed):
            continue
        runs += 1
        try:
            by = failure_with(fault, seed)
        except WrongFaultError as error:
            wrong = str(error)
            break
        if by is not None and _passes(fault, seed):
            catch = Catch(seed, by)
            break
    return Hunt(fault.name, runs, time.process_time() - began, catch, wrong)


def failure_with(fault: DeliberateFault, seed: int) -> str | None:
    """What fails with the fault planted; None: nothing."""
    histories_only = not __debug__
    with ExitStack() as planted:
        for each in [fault, *(HISTORIES_ALONE if histories_only else ())]:
            planted.enter_context(each.planted())
        try:
            _run(fault, seed)
        except (Failure, FeatureFailure) as failure:
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
        _run(fault, seed)
    except (Failure, FeatureFailure):
        return False
    return True


def _is_likely(fault: DeliberateFault, seed: int) -> bool:
    """The run is devoted to what brings the fault out. Of applications, only the one that the fault asks for is run, in all seeds."""
    return fault.mode is RunMode.FEATURES or not fault.likely or fault.likely in draw(seed, fault.mode).devoted_to


def _run(fault: DeliberateFault, seed: int) -> None:
    if fault.mode is RunMode.FEATURES:
        run_features(seed, only=fault.likely or None)
    else:
        run_seed(seed, mode=fault.mode)


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
