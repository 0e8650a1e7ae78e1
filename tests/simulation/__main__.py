"""``python -m tests.simulation --seed 7`` replays one run, ``--runs 2000`` looks for one that fails, on all cores."""

from __future__ import annotations

import argparse
import statistics
import sys
import traceback
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from server.sim_faults.nemesis import CATALOG
from tests.simulation.campaign_run import print_campaign, run_campaign
from tests.simulation.marks_elsewhere import MARKS_ELSEWHERE
from tests.simulation.run import Failure, run_seed
from tests.simulation.run_mode import RunMode, campaign_mode
from tests.simulation.search import SeedResult, declared_marks, fewest_faults, run_many


def main() -> int:
    """0: all runs went well; 1: not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="run this seed; with --runs the first one")
    parser.add_argument("--runs", type=int, default=None, help="run so many seeds, in processes of their own")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--loss",
        dest="mode",
        action="store_const",
        const=RunMode.LOSS,
        default=RunMode.USUAL,
        help="destroy more than is tolerated: every loss must be told",
    )
    mode.add_argument(
        "--rebuild",
        dest="mode",
        action="store_const",
        const=RunMode.REBUILDING,
        help="lose nodes for good and empty others: what they held must be stored again",
    )
    parser.add_argument("--trace", action="store_true", help="print every event of the one seed as it happens")
    parser.add_argument("--without", default="", help="indexes of faults to leave out, as 3,5,8")
    parser.add_argument("--only", default=None, help="indexes of faults to keep; all others are left out")
    parser.add_argument("--tail", type=int, default=40, help="how many of the last events a failure prints")
    parser.add_argument("--marks", action="store_true", help="print how many seeds took each rare branch")
    parser.add_argument(
        "--campaign",
        action="store_true",
        help="with --runs: every mark must be reached and every fault have an effect; of 10 seeds 1 loses more than is tolerated and 2 rebuild",
    )
    parser.add_argument("--report", metavar="FILE", help="write what the campaign has shown, as JSON and as Markdown")
    parser.add_argument("--resume", metavar="FILE", help="go on with the campaign of this report, of the same sources")
    parser.add_argument("--jobs", type=int, default=None, help="how many processes; all cores unless given")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--shrink-seconds", type=int, default=300, help="time for finding the fewest faults; 0: do not")
    arguments = parser.parse_args()
    if arguments.resume or (arguments.campaign and arguments.runs):
        return _campaign(arguments)
    if arguments.campaign or arguments.report:
        parser.error("a campaign takes --campaign and --runs, or --resume")
    if arguments.runs is None:
        return _replay(arguments)
    return _search(arguments)


def _replay(arguments: argparse.Namespace) -> int:
    seed = arguments.seed or 0
    disabled = {int(text) for text in arguments.without.split(",") if text}
    if arguments.only is not None:
        disabled = set(range(100_000)) - {int(text) for text in arguments.only.split(",") if text}
    try:
        outcome = run_seed(seed, echo=print if arguments.trace else None, disabled=disabled, mode=arguments.mode)
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


def _search(arguments: argparse.Namespace) -> int:
    first = arguments.seed or 0
    seeds = range(first, first + arguments.runs)
    results: list[SeedResult] = []
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for result in run_many(
            seeds,
            mode=lambda seed: arguments.mode,
            tail=arguments.tail,
            jobs=arguments.jobs,
            keep_going=arguments.keep_going,
        ):
            results.append(result)
            progress.advance(task)
            if result.failure:
                progress.stop()
                replay = f"{arguments.mode.replay(result.seed)}: {result.cause}"
                print(replay if arguments.keep_going else result.failure, flush=True)
    failed = [result for result in results if result.failure]
    if failed and not arguments.keep_going and arguments.shrink_seconds:
        _shrink(failed[0].seed, arguments.mode, arguments.shrink_seconds)
    _summarize(results, arguments)
    return 1 if failed else 0


def _campaign(arguments: argparse.Namespace) -> int:
    campaign, failed = run_campaign(arguments)
    if failed is not None:
        print(failed.failure, flush=True)
        if arguments.shrink_seconds:
            _shrink(failed.seed, campaign_mode(failed.seed), arguments.shrink_seconds)
    return 0 if print_campaign(campaign) else 1


def _shrink(seed: int, mode: RunMode, seconds: float) -> None:
    faults, in_time = fewest_faults(seed, mode, seconds=seconds)
    print("fails with these faults" + (":" if in_time else " (there was no time to try for fewer):"))
    print("\n".join(f"  {text}" for text in faults) or "  none")
    only = ",".join(text.split(":")[0] for text in faults)
    print(f"replay: {mode.replay(seed)} SIM_FLAGS='--only \"{only}\"'")


def _summarize(results: list[SeedResult], arguments: argparse.Namespace) -> None:
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
    print("seeds in which a kind of fault was caused, and in which it did something to somebody")
    for kind in CATALOG.values():
        caused = sum(result.caused.get(kind.name, 0) > 0 for result in results)
        effective = sum(result.effects.get(kind.counted_as, 0) > 0 for result in results)
        print(f"{caused:8} {effective:6} {kind.name}")


if __name__ == "__main__":
    sys.exit(main())
