"""The published score: a table by module, and why each survivor is left."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from tests.mutation.session import Outcome

REASONS: Final = Path(__file__).with_name("survivors.txt")
_HEAD: Final = """# Mutation score

Which small changes of a machine do unit tests alone not notice? `make mutants` changes comparisons, boundaries, conditions, numbers, operators
and returned values, and removes statements, one at a time, and runs the unit tests that reach the changed line (`tests/mutation`). Of each
module a sample is tried, always the same one, drawn over the whole module.

```
make mutants                                   # every module, the sample of this page
make mutants MODULE=seal MUTANTS=0             # all of one module
make mutants REPORT=docs/mutants.md            # writes this page from the outcomes in .mutants
```

No mutants are made of texts, annotations, asserts, coverage marks and representations. Mutants that need more than five times the processor
time of the tests count as noticed.
"""


def reasons(path: Path = REASONS) -> dict[str, str]:
    """Why a survivor is left, by its name: lines `= reason`, each followed by the names that it holds for."""
    found: dict[str, str] = {}
    reason = ""
    for line in path.read_text().splitlines():
        if line.startswith("= "):
            reason = line[2:].strip()
        elif line.strip():
            found[line.strip()] = reason
    return found


def report(found: dict[str, list[Outcome]], totals: dict[str, int]) -> str:
    """The page."""
    why = reasons()
    lines = [_HEAD, "| module | mutants | tried | noticed | score |", "|---|---|---|---|---|"]
    survivors: defaultdict[tuple[str, str], list[Outcome]] = defaultdict(list)
    whole: Counter[str] = Counter()
    for name, outcomes in found.items():
        tried = [each for each in outcomes if each.result != "impossible"]
        noticed = sum(each.noticed for each in tried)
        whole.update(mutants=totals[name], tried=len(tried), noticed=noticed)
        lines.append(_row(f"`{name}`", totals[name], len(tried), noticed))
        for each in tried:
            if not each.noticed:
                survivors[name, why.get(each.name, "not explained")].append(each)
    lines.append(_row("all", whole["mutants"], whole["tried"], whole["noticed"]))
    lines += ["", "## What survives, and why", ""]
    for (name, reason), outcomes in survivors.items():
        lines.append(f"**{name}**: {reason}")
        lines += ["", *(f"- `{each.name}`" for each in sorted(outcomes, key=lambda each: each.name)), ""]
    return "\n".join(lines).rstrip() + "\n"


def _row(name: str, mutants: int, tried: int, noticed: int) -> str:
    return f"| {name} | {mutants} | {tried} | {noticed} | {noticed * 100 // max(tried, 1)} % |"
