"""What the simulator can be told, and what is refused before anything runs: an argument that would do nothing is an error."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NoReturn

from storage_node.log_store.settings import STORE_KINDS
from tests.simulation.features import DRAWN
from tests.simulation.report_file import why_not_writable
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import DEVOTIONS


class Kind(Enum):
    """What is to be done. The value says so to who asked for something that does not go with it."""

    REPLAY = "one seed (without --runs)"
    SEARCH = "--runs"
    CAMPAIGN = "a campaign"
    RESUMED = "--resume, which goes on as the campaign began"


_EVERY_KIND = frozenset({"tail"})
_MODE = frozenset({"loss", "rebuild", "features", "store"})
_MANY_SEEDS = frozenset({"jobs", "keep_going", "shrink_seconds"})
_CHOSEN = frozenset({"marks", "devoted"})
_TAKES = {
    Kind.REPLAY: _EVERY_KIND | _MODE | {"seed", "trace", "only", "without"},
    Kind.SEARCH: _EVERY_KIND | _MODE | _MANY_SEEDS | _CHOSEN | {"seed", "runs"},
    Kind.CAMPAIGN: _EVERY_KIND | _MANY_SEEDS | {"seed", "runs", "campaign", "report", "features", "store"},
    Kind.RESUMED: _EVERY_KIND | _MANY_SEEDS | {"campaign", "resume"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Of the command line; what was not given has its default."""

    seed: int = 0
    runs: int = 1
    loss: bool = False
    rebuild: bool = False
    features: bool = False
    store: str | None = None
    trace: bool = False
    without: frozenset[int] | None = None
    only: frozenset[int] | None = None
    tail: int = 40
    marks: bool = False
    devoted: str = ""
    campaign: bool = False
    report: Path | None = None
    resume: Path | None = None
    jobs: int | None = None
    keep_going: bool = False
    shrink_seconds: int = 300
    kind: Kind = Kind.REPLAY

    @property
    def mode(self) -> RunMode:
        """Of the seeds, unless a campaign chooses."""
        if self.features:
            return RunMode.FEATURES
        return RunMode.LOSS if self.loss else RunMode.REBUILDING if self.rebuild else RunMode.USUAL


class CommandLine:
    """``python -m tests.simulation``."""

    def __init__(self, description: str | None) -> None:
        self._parser = _parser(description)

    def parse(self, words: Sequence[str] | None = None) -> Arguments:
        """The words, by default those of the process; ends it when they are not all of use."""
        given = vars(self._parser.parse_args(words))
        kind = _kind(given)
        if kind is None:
            self.refuse("a campaign takes --campaign and --runs (RUNS=n CAMPAIGN=1), or --resume (RESUME=file)")
        if "features" in given and (left_out := given.keys() & {"only", "without"}):
            self.refuse(f"--{left_out.pop()}: not with --features, whose applications choose when faults end")
        if "devoted" in given:
            applications = "features" in given
            if given["devoted"] not in (DRAWN if applications else DEVOTIONS):
                self.refuse(f"--devoted {given['devoted']}: {'not with' if applications else 'only with'} --features")
        if given.get("devoted") == "removals" and "rebuild" not in given:
            self.refuse("--devoted removals: with --rebuild only, without it nodes are not drained")
        if given.get("devoted") == "moves" and "loss" in given:
            self.refuse("--devoted moves: not with --loss, in which nodes stay where they are")
        if "features" in given and "store" in given:
            self.refuse("--store: not with --features, whose applications make their clusters themselves")
        useless = [f"--{name.replace('_', '-')}" for name in given if name not in _TAKES[kind]]
        if useless:
            self.refuse(f"{', '.join(useless)}: not with {kind.value}")
        return Arguments(kind=kind, **given)

    def refuse(self, text: str) -> NoReturn:
        """End the process."""
        self._parser.error(text)


def _kind(given: dict[str, object]) -> Kind | None:
    if "resume" in given:
        return Kind.RESUMED
    if "campaign" in given or "report" in given:
        return Kind.CAMPAIGN if "campaign" in given and "runs" in given else None
    return Kind.SEARCH if "runs" in given else Kind.REPLAY


def positive(text: str) -> int:
    """A number of things of which there must be one."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return value


def report_path(text: str) -> Path:
    """A file that can be written."""
    path = Path(text)
    reason = why_not_writable(path)
    if reason is not None:
        raise argparse.ArgumentTypeError(reason)
    return path


def _json_path(text: str) -> Path:
    path = Path(text)
    if path.suffix == ".md":
        raise argparse.ArgumentTypeError(
            f"{path} is where the Markdown goes beside the JSON: name the JSON, as {path.stem}.json"
        )
    report_path(str(path.with_suffix(".md")) if path.name else text)
    return report_path(text)


def _indexes(text: str) -> frozenset[int]:
    try:
        return frozenset(int(each) for each in text.split(",") if each.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are no indexes of faults; those are numbers, as 3,5,8") from None


def _parser(description: str | None) -> argparse.ArgumentParser:
    # what is not given is left out of what is parsed, so that it is known what was
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        usage="%(prog)s [--seed N [--only 3,5,8]] | --runs N [--campaign [--report FILE]] | --resume FILE; --help: all options",
        description=description,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--seed", type=int, help="run this seed; with --runs the first one")
    parser.add_argument("--runs", type=positive, help="run so many seeds, in processes of their own")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--loss", action="store_true", help="destroy more than is tolerated: every loss must be told")
    mode.add_argument(
        "--rebuild",
        action="store_true",
        help="lose nodes for good and empty others: what they held must be stored again",
    )
    mode.add_argument(
        "--features",
        action="store_true",
        help="run applications of guards, batches, strict order, segments, groups, replicas, streams and the log tree",
    )
    parser.add_argument("--store", choices=STORE_KINDS, help="what shards are stored in")
    parser.add_argument("--trace", action="store_true", help="print every event of the one seed as it happens")
    faults = parser.add_mutually_exclusive_group()
    faults.add_argument("--without", type=_indexes, help="indexes of faults to leave out, as 3,5,8")
    faults.add_argument("--only", type=_indexes, help="indexes of faults to keep; all others are left out")
    parser.add_argument("--tail", type=int, help="how many of the last events a failure prints")
    parser.add_argument("--marks", action="store_true", help="print how many seeds took each rare branch")
    parser.add_argument(
        "--devoted",
        choices=sorted({*DEVOTIONS, *DRAWN}),
        metavar="WHAT",
        help=f"with --runs: so many of the seeds that are devoted to this: {', '.join(sorted(DEVOTIONS))}; with --features that run this: "
        f"{', '.join(sorted(DRAWN))}",
    )
    parser.add_argument(
        "--campaign",
        action="store_true",
        help="with --runs: every mark must be reached and every fault have an effect; of 10 seeds 1 loses more than is tolerated and 2 rebuild",
    )
    parser.add_argument(
        "--report", type=_json_path, metavar="FILE", help="write what the campaign has shown, as JSON and as Markdown"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="go on with the campaign of this report, of the same sources"
    )
    parser.add_argument("--jobs", type=positive, help="how many processes; all cores unless given")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--shrink-seconds", type=int, help="time for finding the fewest faults; 0: do not")
    return parser
