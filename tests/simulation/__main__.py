"""``python -m tests.simulation --seed 7`` replays one run, ``--runs 2000`` looks for one that fails, on all cores."""

from __future__ import annotations

import statistics
import sys
import traceback
from collections import Counter
from collections.abc import Iterable

from server.simulation.faults.attacks import ATTACKS
from tests.simulation.campaign import fault_lines
from tests.simulation.campaign_run import run_campaign
from tests.simulation.command_line import Arguments, CommandLine, Kind
from tests.simulation.features import FeatureFailure, run_features, seeds_with
from tests.simulation.marks_elsewhere import MARKS_ELSEWHERE
from tests.simulation.operators import kinds_of_faults
from tests.simulation.run import Failure, planned_faults, run_seed
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import devoted_seeds
from tests.simulation.search import SeedResult, declared_marks
from tests.simulation.seed_loop import INTERRUPTED, run_all
from tests.simulation.shrinking import shrink


def main() -> int:
    """0: all runs went well; 1: not; 130: interrupted."""
    command_line = CommandLine(__doc__)
    arguments = command_line.parse()
    try:
        if arguments.kind is Kind.REPLAY:
            return _replay(arguments, command_line)
        if arguments.kind is Kind.SEARCH:
            return _search(arguments)
        return run_campaign(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _replay(arguments: Arguments, command_line: CommandLine) -> int:
    seed = arguments.seed
    if arguments.mode is RunMode.FEATURES:
        return _replay_features(arguments)
    disabled = _left_out(arguments, command_line)
    try:
        outcome = run_seed(
            seed,
            echo=print if arguments.trace else None,
            disabled=disabled,
            mode=arguments.mode,
            store=arguments.store,
        )
    except Failure as failure:
        cause = failure.__cause__
        assert cause is not None
        if not arguments.trace:
            print("\n".join(failure.trace.last()[-arguments.tail :]))
        print("".join(traceback.format_exception(cause)))
        print(failure)
        print(f"seed {seed} hash {failure.trace.digest()}")
        return 1
    print(outcome.scenario)
    print(f"{outcome.acknowledged} acknowledged, {outcome.lost} declared lost, {outcome.epochs} epochs")
    print("faults caused: " + (", ".join(f"{count} {kind}" for kind, count in outcome.caused.items()) or "none"))
    print(f"seed {seed} hash {outcome.digest}")
    return 0


def _replay_features(arguments: Arguments) -> int:
    seed, replay = arguments.seed, RunMode.FEATURES.replay(arguments.seed)
    try:
        outcome = run_features(seed, echo=print if arguments.trace else None, replay=replay)
    except FeatureFailure as failure:
        print("".join(traceback.format_exception(failure.__cause__)))
        print(failure)
        return 1
    print(outcome.plan)
    print(f"{outcome.epochs} epochs of one log at most")
    print("faults caused: " + (", ".join(f"{count} {kind}" for kind, count in outcome.caused.items()) or "none"))
    print(f"seed {seed} hash {outcome.digest}")
    return 0


def _left_out(arguments: Arguments, command_line: CommandLine) -> frozenset[int]:
    """Indexes of faults."""
    named = arguments.without if arguments.only is None else arguments.only
    if named is None:
        return frozenset()
    everything = frozenset(planned.index for planned in planned_faults(arguments.seed, arguments.mode))
    if unknown := sorted(named - everything):
        told = f"faults 0 to {len(everything) - 1}" if everything else "no faults"
        command_line.refuse(f"seed {arguments.seed} has {told}, not {', '.join(map(str, unknown))}")
    return named if arguments.only is None else everything - named


def _search(arguments: Arguments) -> int:
    results: list[SeedResult] = []

    def add(result: SeedResult) -> int:
        results.append(result)
        return len(results)

    seeds: Iterable[int] = range(arguments.seed, arguments.seed + arguments.runs)
    if arguments.devoted and arguments.features:
        seeds = seeds_with(arguments.devoted, arguments.seed, arguments.runs)
    elif arguments.devoted:
        seeds = devoted_seeds(arguments.devoted, arguments.seed, arguments.runs, arguments.mode)
    ending = run_all(
        seeds,
        arguments.runs,
        add,
        arguments,
        mode=lambda seed: arguments.mode,
        keep_going=arguments.keep_going,
        store=arguments.store,
    )
    if ending.failed is not None:
        results.append(ending.failed)
        if not ending.interrupted:
            shrink(ending.failed.seed, arguments.mode, arguments.shrink_seconds, arguments.store)
    if ending.interrupted or ending.killed:
        print(f"partial: {len(results)} of {arguments.runs} seeds")
    _summarize(results, arguments)
    return ending.status(good=not any(result.failure for result in results))


def _summarize(results: list[SeedResult], arguments: Arguments) -> None:
    good = [result for result in results if not result.failure]
    if good:
        print(
            f"{len(good)} of {len(results)} seeds went well; medians: "
            f"{statistics.median(result.acknowledged for result in good):.0f} acknowledged records, "
            f"{statistics.median(result.epochs for result in good):.0f} epochs, "
            f"{statistics.median(sum(result.caused.values()) for result in good):.0f} faults, "
            f"{statistics.median(result.took for result in good):.2f} s of processor time"
        )
        if arguments.mode is RunMode.LOSS:
            print(f"{sum(result.lost > 0 for result in good)} seeds lost acknowledged records, and were told so")
    if arguments.marks:
        _print_marks(results)
    causes = Counter(result.cause for result in results if result.failure)
    if causes:
        print(f"failed: {sorted(result.seed for result in results if result.failure)}")
    for cause, count in causes.most_common():
        print(f"  {count} x {cause}")


def _print_marks(results: list[SeedResult]) -> None:
    declared = {name: path for name, path in declared_marks().items() if name not in MARKS_ELSEWHERE}
    reached = Counter(name for result in results for name in result.marks)
    print(
        f"{len(declared)} marks, {sum(not reached[name] for name in declared)} reached by none of {len(results)} seeds"
    )
    for name in sorted(declared, key=lambda name: (reached[name], name)):
        print(f"{reached[name]:8} {name}  ({declared[name]})")
    print(f"{len(MARKS_ELSEWHERE)} more marks are left to tests that are named in marks_elsewhere.py")
    rows = (
        (
            sum(result.caused.get(kind, 0) > 0 for result in results),
            sum(result.effects.get(counted_as, 0) > 0 for result in results),
            kind,
        )
        for kind, counted_as in kinds_of_faults().items()
    )
    print("\n".join(fault_lines(rows)))
    for attack in ATTACKS.values():
        tried = sum(result.effects.get(attack.counted_as, 0) > 0 for result in results)
        print(f"{tried:8} {attack.counted_as}")


if __name__ == "__main__":
    sys.exit(main())
