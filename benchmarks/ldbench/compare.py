"""Two reports side by side: what became better, what worse, and what may be noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.statistics_of_runs import Spread
from benchmarks.ldbench.summary import CaseResult, EngineResult
from benchmarks.ldbench.table import amount, spread_text

COMPARED = ("p50_ms", "p99_ms", "read_records_per_s")
"""Besides the primary figure."""
FLOOR = 0.05
"""Changes below this share are not worth a word, however narrow the ranges are."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one system in one case, in two reports."""

    case: str
    engine: str
    figure: str
    before: Spread
    after: Spread

    @property
    def gain(self) -> float:
        """How many times better it is afterwards; 1 is the same."""
        ratio = self.after.median / self.before.median if self.before.median else 1.0
        return ratio if FIGURES[self.figure].higher_is_better else 1 / ratio if ratio else 1.0

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or ``same`` when the ranges overlap or little changed. With one round each, nothing is known of the noise."""
        if abs(self.gain - 1) < FLOOR:
            return "same"
        if self.before.count == 1 or self.after.count == 1:
            return "better?" if self.gain > 1 else "worse?"
        if self.before.overlaps(self.after):
            return "same"
        return "better" if self.gain > 1 else "worse"


def changes(before: Sequence[CaseResult], after: Sequence[CaseResult]) -> list[Change]:
    """Of everything that both reports have."""
    earlier = {result.case.key: result for result in before}
    found = []
    for result in after:
        old = earlier.get(result.case.key)
        if old is None:
            continue
        for name, engine in result.engines.items():
            if name not in old.engines:
                continue
            for figure in dict.fromkeys((result.primary, *COMPARED)):
                was, is_ = old.engines[name].spread(figure), engine.spread(figure)
                if was is not None and is_ is not None:
                    found.append(Change(result.case.key, name, figure, was, is_))
    return found


def remarks(before: Sequence[CaseResult], after: Sequence[CaseResult]) -> list[str]:
    """What `changes` cannot tell, in words: measurements that only one of the reports has, void ones, and timed parts of unequal length."""
    earlier, later = _engines(before), _engines(after)
    found = []
    for (case, name), old in earlier.items():
        new = later.get((case, name))
        if new is not None and bool(old.measurements) != bool(new.measurements):
            void, which = (new, "second") if old.measurements else (old, "first")
            why = void.errors[0].splitlines()[0] if void.errors else "nothing measured"
            found.append(f"{name}, {case}: void in the {which} report: {why}")
    for which, some, others in (("first", earlier, later), ("second", later, earlier)):
        if alone := len(some.keys() - others.keys()):
            found.append(f"only in the {which} report: {alone} of {len(some)} pairs of case and system")
    seconds = {result.case.key: result.case.seconds for result in before}
    unequal = {
        (seconds[result.case.key], result.case.seconds)
        for result in after
        if seconds.get(result.case.key, result.case.seconds) != result.case.seconds
    }
    found += [f"timed parts of {was:g} s are compared with those of {is_:g} s" for was, is_ in sorted(unequal)]
    return found


def _engines(results: Sequence[CaseResult]) -> dict[tuple[str, str], EngineResult]:
    return {(result.case.key, name): engine for result in results for name, engine in result.engines.items()}


def render_changes(found: Sequence[Change], *, everything: bool = False) -> Table:
    """As a table; without `everything`, only what changed."""
    table = Table(title="Changes", title_justify="left")
    for column in ("case", "system", "figure", "before", "after", "times better", "verdict"):
        table.add_column(column, overflow="fold")
    for change in found:
        if everything or change.verdict != "same":
            table.add_row(
                change.case,
                change.engine,
                change.figure,
                spread_text(change.before),
                spread_text(change.after),
                amount(change.gain),
                change.verdict,
            )
    return table
