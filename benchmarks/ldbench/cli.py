"""``ldbench``: measures logdevice_py beside other log systems on this machine, and shows and compares reports."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import math
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.ldbench.append_tracing import TraceOrder, trace, trace_log
from benchmarks.ldbench.append_waterfall import as_text as waterfall_text
from benchmarks.ldbench.compare import changes, remarks, render_changes
from benchmarks.ldbench.engine import DurabilityClass, EngineError, Mode
from benchmarks.ldbench.engines import MODULES, load_engine
from benchmarks.ldbench.environment import describe_environment
from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.markdown import markdown
from benchmarks.ldbench.measurement import BenchReport, Measurement
from benchmarks.ldbench.payloads import HEADER, Content
from benchmarks.ldbench.plots import plot_all
from benchmarks.ldbench.sampling import self_time
from benchmarks.ldbench.servers import FETCHERS
from benchmarks.ldbench.servers import main as servers_main
from benchmarks.ldbench.session import BenchSession, case_line
from benchmarks.ldbench.summary import CaseResult, decisive_failures, summarise
from benchmarks.ldbench.table import WIDTH, as_text, render
from benchmarks.ldbench.workload import SCALES, Scale
from benchmarks.ldbench.workloads import all_workloads
from client.cli.options import ProgramParser, version_option
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import parse_duration, parse_size
from storage_node.log_store.settings import STORE_KINDS

REPORT: Final = "report.json"
TABLE: Final = "report.txt"
MARKDOWN: Final = "report.md"
_INTERRUPTED: Final = 130


class ProgressDisplay:
    """A bar with what happens, and a line for each run that is over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TimeElapsedColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task: TaskID = self._progress.add_task("looking for what is installed", total=None)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """While the block runs."""
        with self._progress:
            yield

    def planned(self, runs: int) -> None:
        """Sets the length of the bar."""
        self._progress.update(self._task, total=runs)

    def doing(self, text: str) -> None:
        """Beside the bar."""
        self._progress.update(self._task, description=text)

    def measured(self, measurement: Measurement, primary: str) -> None:
        """A line of its own."""
        self._progress.advance(self._task)
        line = case_line(measurement.case, measurement, primary, FIGURES[primary].unit)
        self._console.print(line, style="red" if measurement.error is not None else None, markup=False, highlight=False)

    def said(self, text: str) -> None:
        """A line of its own."""
        self._console.print(text, style="yellow", markup=False, highlight=False)


def _names(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = list(dict.fromkeys(name.strip() for name in text.split(",")))
        wrong = [repr(name) for name in names if name not in allowed]
        if wrong:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(wrong)}, but {', '.join(allowed)}")
        return names

    return parse


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) if part.isdecimal() else parse_size(part) for part in map(str.strip, text.split(","))]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if min(sizes) < HEADER.size:
        raise argparse.ArgumentTypeError(f"a payload needs {HEADER.size} bytes at least, by which it is recognised")
    return list(dict.fromkeys(sizes))


def _count(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return parse


def _seconds(*, zero: bool) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not zero):
            raise argparse.ArgumentTypeError(f"{text!r} is no time: give seconds{'' if zero else ' above 0'}, like 2.5")
        return seconds

    return parse


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = ProgramParser(prog="ldbench", description=(__doc__ or "").replace("``", ""))
    version_option(made)
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure, and write a report")
    run.add_argument("--scale", choices=list(SCALES), default="short", help="how much is measured (default: short)")
    run.add_argument(
        "--engines", type=_names([*MODULES]), help=f"comma-separated, of {', '.join(MODULES)} (default: all)"
    )
    workloads = list(all_workloads())
    run.add_argument(
        "--workloads", type=_names(workloads), help="comma-separated; `ldbench list` shows them (default: all)"
    )
    run.add_argument("--sizes", type=_sizes, help="payload sizes, comma-separated bytes, like 100,1000 or 1KiB")
    run.add_argument("--content", type=_names([each.value for each in Content]), help="random, compressible or both")
    run.add_argument("--durability", type=_names([each.value for each in DurabilityClass]), help="sync, async or both")
    run.add_argument("--rounds", type=_count(1), help="how often everything is repeated, systems taking turns")
    run.add_argument("--seconds", type=_seconds(zero=False), help="of the timed part of a run")
    run.add_argument("--warmup", type=_seconds(zero=True), help="seconds before the timed part")
    run.add_argument("--repeats", type=_count(1), help="faults in a run of a failover workload")
    run.add_argument("--idle-logs", type=_count(5), metavar="LOGS", help="of idle-logs; a fifth of them with ZooKeeper")
    run.add_argument(
        "--written",
        type=parse_size,
        metavar="SIZE",
        help="what is written first where servers of `steady` are not fresh",
    )
    run.add_argument("--copies", type=_count(1), default=3, help="of each record (default: 3)")
    run.add_argument(
        "--sync-delay", type=_duration, default=0, help="every sync of a server takes this much longer, like 2ms"
    )
    run.add_argument("--profile", action="store_true", help="sample the stacks of our processes into OUTPUT/profiles")
    run.add_argument(
        "--directory", type=Path, help="on the disk to be measured (default: the system's for temporary files)"
    )
    results = Path(f"benchmarks/results/{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}")
    run.add_argument("--output", type=Path, default=results, help="of the report (default: benchmarks/results/TIME)")
    commands.add_parser("list", help="workloads and systems, and what is installed")
    fetch = commands.add_parser("fetch", help="get the servers of the other systems; `run` does not")
    fetch.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FETCHERS)} (default: all)")
    show = commands.add_parser("show", help="a report as tables")
    show.add_argument("report", type=Path, help="report.json")
    table = commands.add_parser("table", help="goals and ratios of a report as tables in Markdown")
    table.add_argument("report", type=Path, help="report.json")
    plot = commands.add_parser("plot", help="a report as pictures beside it")
    plot.add_argument("report", type=Path, help="report.json")
    compare = commands.add_parser("compare", help="what changed from one report to another")
    compare.add_argument("before", type=Path, metavar="A.json")
    compare.add_argument("after", type=Path, metavar="B.json")
    compare.add_argument("--all", action="store_true", help="also what did not change")
    follow = commands.add_parser("trace", help="where appends spend their time, hop by hop")
    follow.add_argument("--appends", type=_count(1), default=500, help="how many are followed (default: 500)")
    follow.add_argument(
        "--rate", type=_seconds(zero=True), default=0.0, help="appends a second (default: one at a time)", metavar="R"
    )
    follow.add_argument("--size", type=_count(1), default=100, help="bytes of a record (default: 100)")
    follow.add_argument("--durability", choices=[each.value for each in DurabilityClass], default="sync")
    follow.add_argument("--copies", type=_count(1), default=3, help="of each record (default: 3)")
    follow.add_argument("--store", choices=STORE_KINDS, default=STORE_KINDS[0], help="what shards are stored in")
    follow.add_argument("--fill", type=parse_size, default=0, metavar="SIZE", help="so much is written just before")
    follow.add_argument("--cluster", type=Path, metavar="FILE", help="of a cluster that runs; default: one of its own")
    follow.add_argument("--log", type=_count(1), metavar="LOG", help="of that cluster: takes the appends")
    follow.add_argument("--directory", type=Path, help="on the disk to be measured")
    follow.add_argument("--output", type=Path, default=results, help="of trace.txt, trace.svg and trace.json")
    profile = commands.add_parser("profile", help="where the time went, by files that --profile wrote")
    profile.add_argument("stacks", type=Path, nargs="+")
    profile.add_argument("--by", choices=("file", "function"), default="function")
    profile.add_argument("--rows", type=_count(1), default=25)
    return made


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    arguments = parser().parse_args(argv)
    try:
        match arguments.command:
            case "run":
                directory = (arguments.directory or Path(tempfile.gettempdir())).resolve()
                if not directory.is_dir():
                    raise ValueError(
                        f"--directory {directory} is no directory: make it first, on the disk to be measured"
                    )
                arguments.output.mkdir(parents=True, exist_ok=True)
                return asyncio.run(_run(arguments, directory))
            case "trace":
                _trace(arguments)
            case "list":
                _list()
            case "fetch":
                return servers_main(["fetch", *arguments.names])
            case "show":
                report = BenchReport.load(arguments.report)
                _console().print(render(report, _results(report), _titles()))
            case "table":
                report = BenchReport.load(arguments.report)
                print(markdown(report, _results(report)), end="")
            case "plot":
                report = BenchReport.load(arguments.report)
                for path in plot_all(_results(report), arguments.report.parent / "plots"):
                    print(path)
            case "compare":
                before, after = (_results(BenchReport.load(path)) for path in (arguments.before, arguments.after))
                _compare(before, after, everything=arguments.all)
            case _:
                _profile(arguments)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        print(f"ldbench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("ldbench: cut short", file=sys.stderr)
        return _INTERRUPTED
    return 0


def _console() -> Console:
    """As wide as the terminal; wide enough for the tables where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH)


def _results(report: BenchReport) -> list[CaseResult]:
    return summarise(report, {name: workload.primary for name, workload in all_workloads().items()})


def _titles() -> dict[str, str]:
    return {name: f"{name}: {workload.title}" for name, workload in all_workloads().items()}


def _compare(before: Sequence[CaseResult], after: Sequence[CaseResult], *, everything: bool) -> None:
    found, notes = changes(before, after), remarks(before, after)
    if not found and not notes:
        raise ValueError("both reports are empty")
    if not {result.case.key for result in before} & {result.case.key for result in after}:
        raise ValueError(
            "the reports have no case in common; cases are the same when workload, size, content, durability, sync delay and "
            "parameters are: `ldbench show` lists those of a report"
        )
    table = render_changes(found, everything=everything)
    if table.row_count:
        _console().print(table)
    unchanged = sum(change.verdict == "same" for change in found)
    print(f"{len(found)} figures compared, {unchanged} of them unchanged or within the noise")
    for note in notes:
        print(note)


def _scale(arguments: argparse.Namespace) -> Scale:
    scale = SCALES[arguments.scale]
    given = {
        "sizes": arguments.sizes and tuple(arguments.sizes),
        "contents": arguments.content and tuple(arguments.content),
        "durabilities": arguments.durability and tuple(arguments.durability),
        "rounds": arguments.rounds,
        "seconds": arguments.seconds,
        "warmup_seconds": arguments.warmup,
        "repeats": arguments.repeats,
        "idle_logs": arguments.idle_logs,
        "steady_bytes": arguments.written,
    }
    return dataclasses.replace(scale, **{name: value for name, value in given.items() if value is not None})


async def _run(arguments: argparse.Namespace, directory: Path) -> int:
    output: Path = arguments.output
    workloads = all_workloads()
    chosen = {name: workloads[name] for name in arguments.workloads or workloads}
    console = Console(stderr=True)
    display = ProgressDisplay(console)
    report = BenchReport(
        command=["ldbench", *sys.argv[1:]], environment=await asyncio.to_thread(describe_environment, directory)
    )
    session = BenchSession(
        scale=_scale(arguments),
        engines=arguments.engines or list(MODULES),
        workloads=chosen,
        directory=directory,
        report_path=output / REPORT,
        report=report,
        display=display,
        copies=arguments.copies,
        sync_delay_us=arguments.sync_delay,
        profile=arguments.profile,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, session.cut_short)
    with display.shown():
        await session.run()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
    if report.complete and not report.measurements:
        reasons = [f"{name}: {info.unavailable}" for name, info in report.engines.items() if info.unavailable]
        raise ValueError(f"nothing was measured: {'; '.join([*reasons, *report.skipped])}")
    results = _results(report)
    tables = render(report, results, _titles())
    (output / TABLE).write_text(as_text(tables))
    (output / MARKDOWN).write_text(markdown(report, results))
    _console().print(tables)
    plots = plot_all(results, output / "plots")
    console.print(f"{REPORT}, {TABLE}, {MARKDOWN} and {len(plots)} plots were written into {output}", highlight=False)
    if not report.complete:
        return _INTERRUPTED
    return 1 if decisive_failures(report) else 0


def _trace(arguments: argparse.Namespace) -> None:
    order = TraceOrder(
        appends=arguments.appends,
        size=arguments.size,
        rate=arguments.rate,
        copies=arguments.copies,
        durability=arguments.durability,
        store=arguments.store,
        fill_bytes=arguments.fill,
    )
    if arguments.cluster is not None and arguments.log is None:
        raise ValueError("--cluster: name a log that takes the appends: --log 7")
    with (
        tempfile.TemporaryDirectory(prefix="ldbench-", dir=arguments.directory) as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        try:
            if arguments.cluster is None:
                report = runner.run(trace(order, Path(directory)))
            else:
                report = runner.run(trace_log(order, arguments.cluster, arguments.log))
        except (EngineError, LogDeviceError) as error:
            raise ValueError(str(error)) from error
    for path in report.save(arguments.output):
        print(path, file=sys.stderr)
    print(waterfall_text(report.waterfall, report.title()), end="")


def _list() -> None:
    print("Workloads")
    for workload in all_workloads().values():
        print(f"  {workload.name:<22} {workload.title} [{workload.primary}]")
    print("Systems")
    for name in MODULES:
        engine = load_engine(name)
        if isinstance(engine, str):
            print(f"  {name:<22} cannot be measured: {engine}")
            continue
        print(f"  {name:<22} {engine.title}")
        for mode in Mode:
            for setting in engine.settings(mode):
                print(f"  {'':<22}   {mode.value}: {setting.name}: {setting.description}")


def _profile(arguments: argparse.Namespace) -> None:
    for path in arguments.stacks:
        print(path)
        for name, share in self_time(path.read_text(), by_file=arguments.by == "file")[: arguments.rows]:
            print(f"  {share:6.1%}  {name}")


if __name__ == "__main__":
    sys.exit(main())
