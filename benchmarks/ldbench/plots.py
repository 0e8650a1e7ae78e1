"""Pictures of a report: figures by system, throughput and latency over time, latency against load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.summary import CaseResult

_SIZE: Final = (9.0, 5.0)
_DPI: Final = 110


def plot_all(results: Sequence[CaseResult], directory: Path) -> list[Path]:
    """PNG files in a directory, which is made; the paths. ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    made = []
    for result in results:
        name = "-".join(result.case.key.replace("=", "").split())
        if any(engine.measurements for engine in result.engines.values()):
            made.append(_bars(result, directory / f"{name}.png"))
        if any(each.series for engine in result.engines.values() for each in engine.measurements):
            made.append(_over_time(result, directory / f"{name}-over-time.png"))
    return made + _latency_against_load(results, directory)


def _figure(rows: int = 1) -> tuple[Any, Any]:
    from matplotlib import pyplot

    return pyplot.subplots(rows, 1, figsize=(_SIZE[0], _SIZE[1] * (1 if rows == 1 else 1.4)), sharex=rows > 1)


def _save(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
    return path


def _bars(result: CaseResult, path: Path) -> Path:
    """The primary figure of each system; the whiskers are the range of the rounds."""
    figure, axes = _figure()
    for engine in result.engines.values():
        spread = engine.spread(result.primary)
        if spread is not None:
            whiskers = [[spread.median - spread.low], [spread.high - spread.median]]
            axes.bar(f"{engine.engine}\n{engine.setting}", spread.median, yerr=whiskers, capsize=4)
    axes.set_ylabel(f"{result.primary} [{FIGURES[result.primary].unit}]")
    axes.set_title(result.case.key)
    return _save(figure, path)


def _over_time(result: CaseResult, path: Path) -> Path:
    """The last round of each system."""
    figure, (above, below) = _figure(2)
    positive = False
    for engine in result.engines.values():
        for each in engine.measurements[-1:]:
            if each.series:
                above.plot(each.series["t"], each.series["records_per_s"], label=engine.engine)
                below.plot(each.series["t"], [value or None for value in each.series["p99_ms"]], label=engine.engine)
                positive = positive or any(each.series["p99_ms"])
    above.set_ylabel("records/s")
    above.set_title(result.case.key)
    above.legend()
    below.set_ylabel("p99 latency [ms]")
    if positive:
        below.set_yscale("log")
    below.set_xlabel("seconds")
    return _save(figure, path)


def _latency_against_load(results: Sequence[CaseResult], directory: Path) -> list[Path]:
    """One picture for each family of cases that differ in their load only."""
    families: dict[str, list[CaseResult]] = {}
    for result in results:
        if "load" in result.case.parameters:
            family = result.case.key.replace(f" load={result.case.parameters['load']}", "")
            families.setdefault(family, []).append(result)
    made = []
    for family, members in families.items():
        figure, axes = _figure()
        for name in dict.fromkeys(name for member in members for name in member.engines):
            points = sorted(
                (offered.median, latency.median)
                for member in members
                if name in member.engines
                and (offered := member.engines[name].spread("offered_per_s")) is not None
                and (latency := member.engines[name].spread("p99_ms")) is not None
            )
            if points:
                axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
        axes.set_xlabel("offered records/s")
        axes.set_ylabel("p99 latency [ms]")
        axes.set_yscale("log")
        axes.set_title(family)
        axes.legend()
        made.append(_save(figure, directory / f"{'-'.join(family.split())}-latency-against-load.png"))
    return made
