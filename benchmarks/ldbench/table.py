"""A report as tables for people."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.measurement import BenchReport
from benchmarks.ldbench.statistics_of_runs import Spread
from benchmarks.ldbench.summary import OURS, CaseResult, EngineResult

WIDTH: Final = 220
_LATENCIES: Final = ("p50", "p90", "p99", "p99.9", "p99.99", "max")


def amount(value: float) -> str:
    """Three digits or more, no more than are worth reading."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def spread_text(spread: Spread | None) -> str:
    """Median, and the range where there are several rounds."""
    if spread is None:
        return ""
    if spread.count == 1:
        return amount(spread.median)
    return f"{amount(spread.median)} ({amount(spread.low)}..{amount(spread.high)})"


def ratio_text(ratios: Sequence[float]) -> str:
    """Median of the rounds' ratios, and their range."""
    return f"{spread_text(Spread.of(ratios))}x" if ratios else ""


def environment_lines(environment: Mapping[str, Any]) -> list[str]:
    """The machine in words."""
    if not environment:
        return []
    sync = environment["fdatasync_us"]
    return [
        f"{environment['time']}, commit {environment['commit'] or 'unknown'}, Python {environment['python']}",
        f"{environment['cpu']}, {environment['cores']} cores, {environment['memory_bytes'] / 1e9:.1f} GB, "
        f"{environment['kernel']}, load {environment['load'][0]:.2f}",
        f"{environment['file_system']}, fdatasync p50 {sync['p50']:.0f} us, p99 {sync['p99']:.0f} us",
        ", ".join(f"{name} {version}" for name, version in environment["packages"].items()),
    ]


def render(report: BenchReport, results: Sequence[CaseResult], titles: Mapping[str, str]) -> RenderableType:
    """The whole report.

    Args:
        report: what was measured.
        results: the same, digested.
        titles: of workloads, by name.
    """
    parts: list[RenderableType] = [Text("\n".join(environment_lines(report.environment)))]
    if not report.complete:
        parts.append(Text("This run was cut short.", style="bold red"))
    parts.append(_engines(report))
    ratios = _ratios(report, results)
    if ratios is not None:
        parts.append(ratios)
    workloads = dict.fromkeys(result.case.workload for result in results)
    for workload in workloads:
        chosen = [result for result in results if result.case.workload == workload]
        parts.append(_workload(titles.get(workload, workload), chosen))
    parts.append(_settings(results))
    errors = [
        f"{engine.engine}, {result.case.key}: {error.splitlines()[0]}"
        for result in results
        for engine in result.engines.values()
        for error in engine.errors
    ]
    if errors:
        parts.append(Text("Void measurements:\n" + "\n".join(errors), style="red"))
    notes = dict.fromkeys(
        f"{each.engine}, {each.case.key}: {note}" for each in report.measurements for note in each.notes
    )
    if notes:
        parts.append(Text("Notes:\n" + "\n".join(notes)))
    if report.skipped:
        parts.append(Text("Not run:\n" + "\n".join(report.skipped)))
    return Group(*parts)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=number < 2)
    return table


def _engines(report: BenchReport) -> Table:
    table = Table(title="Systems", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("system", "client", "versions", "an acknowledgement means"):
        table.add_column(column, overflow="fold")
    for name, info in report.engines.items():
        means = info.unavailable and f"skipped: {info.unavailable}"
        table.add_row(
            name,
            info.title,
            ", ".join(f"{package} {version}" for package, version in info.versions.items()),
            means or "; ".join(f"{durability}: {text}" for durability, text in info.acknowledgement.items()),
        )
    return table


def _ratios(report: BenchReport, results: Sequence[CaseResult]) -> Table | None:
    peers = [name for name in report.engines if name != OURS and any(name in result.engines for result in results)]
    if not peers:
        return None
    table = _table(
        "Ratios: how many times better logdevice is, median of the rounds (above 1 is better)", "case", "by", *peers
    )
    for result in results:
        found = [result.ratios(peer) for peer in peers]
        if any(found):
            table.add_row(result.case.key, result.primary, *(ratio_text(ratios) for ratios in found))
    return table


def _workload(title: str, results: Sequence[CaseResult]) -> Table:
    figures = [
        name
        for name in FIGURES
        if any(
            name in each.figures
            for result in results
            for engine in result.engines.values()
            for each in engine.measurements
        )
    ]
    # percentiles have columns of their own, and the quotient of two of them needs none
    shown = [name for name in figures if name.removesuffix("_ms") not in (*_LATENCIES, "p99_over_p50")]
    table = _table(
        title,
        "case",
        "system",
        *(f"{name.removesuffix('_ms').replace('_', ' ')}\n{FIGURES[name].unit}" for name in shown),
        *(f"{percentile}\nms" for percentile in _LATENCIES),
        "CPU client\ns/MB",
        "servers\ns/MB",
        "written\nB/B",
        "peak\nMB",
        "verified",
    )
    for result in results:
        for engine in result.engines.values():
            table.add_row(
                result.case.key.partition(" ")[2],
                engine.engine,
                *(spread_text(engine.spread(name)) for name in shown),
                *_latencies(engine),
                _cpu(engine, client=True),
                _cpu(engine, client=False),
                _written(engine),
                amount(engine.peak_bytes() / 1e6) if engine.peak_bytes() else "",
                f"{sum(each.verified_records for each in engine.measurements):,}",
            )
    return table


def _latencies(engine: EngineResult) -> list[str]:
    """Medians over the rounds of the first kind of latency."""
    names = dict.fromkeys(name for each in engine.measurements for name in each.latency)
    for name in names:
        # a round in which nothing was timed has no latency, not one of 0
        rows = [row for each in engine.measurements if (row := each.latency.get(name)) and row.get("count", 1)]
        if not rows:
            break
        return [amount(statistics.median(row[percentile] for row in rows)) for percentile in _LATENCIES]
    return [""] * len(_LATENCIES)


def _cpu(engine: EngineResult, *, client: bool) -> str:
    spent = engine.cost_per_mb("cpu_seconds", client=client)
    return "" if spent is None else amount(spent.median)


def _written(engine: EngineResult) -> str:
    written = engine.cost_per_mb("written_bytes", client=False)
    return "" if written is None else amount(written.median / 1e6)


def _settings(results: Sequence[CaseResult]) -> Table:
    table = Table(title="All settings that were tried", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("case", "system", "by", "settings, the best one first"):
        table.add_column(column, overflow="fold")
    for result in results:
        for engine in result.engines.values():
            if len(engine.others) < 2:
                continue
            names = sorted(engine.others, key=lambda name: name != engine.setting)
            table.add_row(
                result.case.key,
                engine.engine,
                result.primary,
                "; ".join(f"{name}: {spread_text(engine.others[name])}" for name in names),
            )
    return table


def as_text(part: RenderableType) -> str:
    """Plain text, for a file."""
    console = Console(width=WIDTH, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
