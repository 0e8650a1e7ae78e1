"""A report as tables in Markdown: goals and whether they are met, and all ratios."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.goals import GOALS, GoalJudgement, Verdict, conditions, figure_name, judge
from benchmarks.ldbench.measurement import BenchReport
from benchmarks.ldbench.summary import OURS, CaseResult, EngineResult
from benchmarks.ldbench.table import environment_lines, ratio_text, spread_text

_TITLES: Final = {"jetstream": "JetStream", "redis": "Redis", "kafka": "Kafka", "bookkeeper": "BookKeeper"}


def markdown(report: BenchReport, results: Sequence[CaseResult]) -> str:
    """The whole page part: where it was measured, then for each durability class and content the goals and the ratios."""
    peers = [name for name in report.engines if name != OURS]
    lines = [*(f"{line}  " for line in environment_lines(report.environment)), ""]
    if report.command:
        lines += [f"`{' '.join(report.command)}`, rounds: {_rounds(report)}", ""]
    for name, info in report.engines.items():
        if info.unavailable is not None:
            lines.append(f"  - {name}: not measured, {info.unavailable}")
        else:
            versions = ", ".join(f"{package} {version}" for package, version in info.versions.items())
            means = "; ".join(f"{durability}: {text}" for durability, text in info.acknowledgement.items())
            lines.append(f"  - {info.title or name} ({versions}). An acknowledgement: {means}")
    # sorting keeps the order within each kind
    for _, members in groupby(
        sorted(results, key=lambda result: conditions(result.case)), lambda r: conditions(r.case)
    ):
        chosen = list(members)
        title = _conditions_text(chosen[0])
        lines += ["", f"**{title}, goals**", "", *_goals(chosen, peers), ""]
        lines += [f"**{title}, all ratios**", "", *_ratios(chosen, peers)]
    return "\n".join(lines) + "\n"


def _rounds(report: BenchReport) -> int:
    return max((each.round for each in report.measurements), default=0)


def _conditions_text(result: CaseResult) -> str:
    case = result.case
    delay = f", every sync {case.sync_delay_us / 1000:g} ms slower" if case.sync_delay_us else ""
    return f"Durability {case.durability}, {case.content} bytes{delay}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*columns: str) -> list[str]:
    return [_row(columns), f"|{'---|' * len(columns)}"]


def _titles(peers: Sequence[str]) -> list[str]:
    return [_TITLES.get(name, name) for name in peers]


def _goals(results: Sequence[CaseResult], peers: Sequence[str]) -> list[str]:
    lines = _head("workload", "ours", *_titles(peers), "times better", "goal", "met")
    for goal in GOALS:
        found = judge(goal, results)
        lines.append(
            _row(
                [
                    goal.title,
                    _ours(found),
                    *(_peer(found, name) for name in peers),
                    _times(found),
                    goal.text(),
                    _met(found),
                ]
            )
        )
    return lines


def _ours(found: GoalJudgement) -> str:
    if found.ours is None:
        return ""
    figures = dict.fromkeys((found.goal.figure, *found.goal.limits, *found.goal.judged_if))
    return ", ".join(_figure(found.ours, figure, named=at > 0) for at, figure in enumerate(figures))


def _figure(result: EngineResult, figure: str, *, named: bool) -> str:
    name = f"{figure_name(figure)} " if named else ""
    spread = result.spread(figure)
    return f"{name}{spread_text(spread)} {FIGURES[figure].unit}" if spread is not None else f"{name}not measured"


def _peer(found: GoalJudgement, name: str) -> str:
    if name not in found.peers:
        return ""
    workload, result = found.peers[name]
    by = f" ({workload})" if workload not in found.goal.workloads else ""
    return f"{spread_text(result.spread(found.goal.figure))}{by}"


def _times(found: GoalJudgement) -> str:
    return ", ".join(f"{_TITLES.get(name, name)} {ratio_text(ratios)}" for name, ratios in found.ratios.items())


def _met(found: GoalJudgement) -> str:
    if found.verdict is Verdict.MET:
        return "yes"
    return f"**{found.verdict.value}**: {'; '.join(found.reasons)}"


def _ratios(results: Sequence[CaseResult], peers: Sequence[str]) -> list[str]:
    lines = _head("workload", "by", "ours", *(part for title in _titles(peers) for part in (title, "times better")))
    for result in results:
        case = result.case
        kind = f" {case.content} {case.durability}"
        cells = []
        for name in peers:
            engine = result.engines.get(name)
            cells += [_cell(engine, result.primary), ratio_text(result.ratios(name))]
        lines.append(
            _row(
                [
                    case.key.replace(kind, "", 1).replace(f" sync+{case.sync_delay_us}us", ""),
                    f"{figure_name(result.primary)} {FIGURES[result.primary].unit}".strip(),
                    _cell(result.engines.get(OURS), result.primary),
                    *cells,
                ]
            )
        )
    return lines


def _cell(engine: EngineResult | None, figure: str) -> str:
    if engine is None:
        return ""
    spread = engine.spread(figure)
    if spread is not None:
        return spread_text(spread)
    return "void" if engine.errors else ""
