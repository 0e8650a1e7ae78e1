"""A report digested: for each case the best setting of each system, medians and spreads, and ratios."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.measurement import BenchReport, Case, Measurement
from benchmarks.ldbench.statistics_of_runs import Spread, best_of, ratios_by_round

OURS: Final = "logdevice"


@dataclass(slots=True)
class EngineResult:
    """One system in one case."""

    engine: str
    setting: str
    """The best one."""
    measurements: list[Measurement]
    """Valid ones of that setting."""
    others: dict[str, Spread] = field(default_factory=dict)
    """The primary figure of each setting that was tried, the best included."""
    errors: list[str] = field(default_factory=list)
    """Of void measurements, whatever the setting."""

    def values(self, figure: str) -> dict[int, float]:
        """By round."""
        return {each.round: each.figures[figure] for each in self.measurements if figure in each.figures}

    def spread(self, figure: str) -> Spread | None:
        """Of a figure over the rounds; None when it was not measured."""
        values = list(self.values(figure).values())
        return Spread.of(values) if values else None

    def cost_per_mb(self, column: str, *, client: bool) -> Spread | None:
        """Of the client or of all servers, for a million payload bytes."""
        values = [
            found
            for each in self.measurements
            if each.cost and (found := each.per_mb(column, client=client)) is not None
        ]
        return Spread.of(values) if values else None

    def peak_bytes(self) -> int:
        """Greatest of the servers' memory, all of them together."""
        return max(
            (
                round(sum(cost["peak_bytes"] for role, cost in each.cost.items() if role != "client"))
                for each in self.measurements
            ),
            default=0,
        )


@dataclass(slots=True)
class CaseResult:
    """All systems in one case."""

    case: Case
    primary: str
    engines: dict[str, EngineResult] = field(default_factory=dict)

    def ratios(self, peer: str, *, ours: str = OURS, figure: str | None = None) -> list[float]:
        """How many times better we are than a peer, of each round; empty when one of both is missing."""
        name = figure or self.primary
        if ours not in self.engines or peer not in self.engines:
            return []
        return ratios_by_round(
            self.engines[ours].values(name),
            self.engines[peer].values(name),
            higher_is_better=FIGURES[name].higher_is_better,
        )


def summarise(report: BenchReport, primaries: Mapping[str, str]) -> list[CaseResult]:
    """In the order of the report.

    Args:
        report: what was measured.
        primaries: the figure that decides, by workload.
    """
    cases: dict[str, CaseResult] = {}
    grouped: defaultdict[tuple[str, str], list[Measurement]] = defaultdict(list)
    for measurement in report.measurements:
        case = measurement.case
        if case.workload in primaries:
            cases.setdefault(case.key, CaseResult(case, primaries[case.workload]))
            grouped[case.key, measurement.engine].append(measurement)
    for (key, engine), measurements in grouped.items():
        cases[key].engines[engine] = _result(engine, measurements, cases[key].primary)
    return list(cases.values())


def decisive_failures(report: BenchReport) -> list[Measurement]:
    """Void measurements that leave something unknown: all of ours, and a peer's where none of its settings for the case was measured."""
    known = {(each.case.key, each.engine) for each in report.measurements if each.error is None}
    return [
        each
        for each in report.measurements
        if each.error is not None and (each.engine == OURS or (each.case.key, each.engine) not in known)
    ]


def best_setting(measurements: Iterable[Measurement], primary: str) -> str | None:
    """The name of the setting with the best median of a figure; None when no measurement is valid.

    Of those that were measured most often: one lucky value does not beat the median of many rounds.
    """
    by_setting: defaultdict[str, list[float]] = defaultdict(list)
    for each in measurements:
        if each.error is None and primary in each.figures:
            by_setting[each.setting].append(each.figures[primary])
    most = max(map(len, by_setting.values()), default=0)
    often = {setting: values for setting, values in by_setting.items() if len(values) == most}
    return best_of(often, higher_is_better=FIGURES[primary].higher_is_better)


def _result(engine: str, measurements: list[Measurement], primary: str) -> EngineResult:
    best = best_setting(measurements, primary)
    valid = [each for each in measurements if each.error is None]
    by_setting: defaultdict[str, list[float]] = defaultdict(list)
    for each in valid:
        if primary in each.figures:
            by_setting[each.setting].append(each.figures[primary])
    return EngineResult(
        engine=engine,
        setting=best or "",
        measurements=[each for each in valid if each.setting == best],
        others={setting: Spread.of(values) for setting, values in by_setting.items()},
        errors=[each.error for each in measurements if each.error is not None],
    )
