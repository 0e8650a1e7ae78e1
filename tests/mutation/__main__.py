"""``python -m tests.mutation [MODULE ...]``: changes machines one place at a time and counts the changes that no unit test notices.

Of each module a sample is tried, always the same one. Outcomes stay in .mutants: another run goes on where the last one ended, and tries
again what survived. A mutant is known by the code of its function; when that changes it is another mutant.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from tests.mutation.modules import MODULES, Module
from tests.mutation.operators import Mutant, mutants_of, relative
from tests.mutation.report import report
from tests.mutation.session import ROOT, MutationSession, Outcome

STATE = ROOT / ".mutants"
SAMPLE = 60


def mutants(module: Module) -> list[Mutant]:
    """All of the module, in an order of their own that a change elsewhere does not alter."""
    paths = sorted({path for pattern in module.sources for path in ROOT.glob(pattern)})
    found = [each for path in paths for each in mutants_of(relative(path, ROOT), path.read_text())]
    return sorted(found, key=lambda each: sha256(each.name.encode()).digest())


def outcomes(module: Module) -> dict[str, Outcome]:
    """What earlier runs found, by the mutants' names."""
    path = STATE / f"{module.name}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["name"]: Outcome(**row) for row in map(json.loads, lines)}


def run(module: Module, sample: list[Mutant], again: bool, workers: int) -> str:
    """Try what has no outcome yet; the answer says what went wrong, if anything."""
    known = {} if again else outcomes(module)
    wanted = [each for each in sample if each.name not in known or not known[each.name].noticed]
    if not wanted:
        return ""
    STATE.mkdir(exist_ok=True)
    with (STATE / f"{module.name}.jsonl").open("w" if again else "a") as file:

        def note(outcome: Outcome) -> None:
            file.write(json.dumps(asdict(outcome)) + "\n")
            file.flush()
            if not outcome.noticed:
                print(f"{outcome.path}:{outcome.line}: {outcome.result}: {outcome.name}", flush=True)

        session = MutationSession(wanted, workers, note, module.one_of)
        tests = [relative(path, ROOT) for pattern in module.tests for path in sorted(ROOT.glob(pattern))]
        options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
        status = pytest.main([*options, *tests], plugins=[session])
    return session.trouble or ("" if status == pytest.ExitCode.OK else f"pytest ends with {status}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"{', '.join(MODULES)}; all of them without")
    parser.add_argument("--mutants", type=int, default=SAMPLE, help="of each module, 0 for all [%(default)s]")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time [%(default)s]")
    parser.add_argument("--again", action="store_true", help="forget earlier outcomes")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the table and the survivors of all modules, and try nothing"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.modules if name not in MODULES]:
        parser.error(f"there is no module {unknown[0]}: {', '.join(MODULES)}")
    chosen = [MODULES[name] for name in options.modules or MODULES]
    samples = {module.name: mutants(module) for module in chosen}
    totals = {name: len(found) for name, found in samples.items()}
    if options.mutants:
        samples = {name: found[: options.mutants] for name, found in samples.items()}
    if not options.report and len(chosen) > 1:
        # each in a process of its own: a module's tests are collected where no other's have run
        import subprocess

        for module in chosen:
            command = [sys.executable, "-m", "tests.mutation", module.name, "--mutants", str(options.mutants)]
            command += ["--workers", str(options.workers), *(["--again"] if options.again else [])]
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                sys.exit(1)
        return
    if options.report:
        found = {
            name: [known[each.name] for each in samples[name] if each.name in known]
            for name in samples
            for known in [outcomes(MODULES[name])]
        }
        options.report.write_text(report(found, totals))
        return
    module = chosen[0]
    if trouble := run(module, samples[module.name], options.again, options.workers):
        sys.exit(f"{module.name}: {trouble}")
    known = outcomes(module)
    results = Counter(known[each.name].result for each in samples[module.name] if each.name in known)
    tried = sum(results.values()) - results["impossible"]
    noticed = results["killed"] + results["timed out"]
    print(
        f"{module.name}: {noticed} of {tried} noticed, {noticed * 100 / max(tried, 1):.0f} % ({totals[module.name]} in all)"
    )


if __name__ == "__main__":
    main()
