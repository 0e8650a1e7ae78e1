"""``python -m tests.fuzz --seconds 60``: coverage-guided fuzzing of every decoder, one target after the other, and what it found."""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.checking import Finding, check
from tests.fuzz.corpus import committed, distil
from tests.fuzz.targets import TARGETS

_DONE = re.compile(r"#\d+\s+(?:INITED|NEW|REDUCE|pulse|RELOAD|DONE)\s+cov: (\d+) ft: (\d+)")
_EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")
_ENDED_BY_FUZZER = re.compile(r"ERROR: libFuzzer: ([^\n]*)")


@dataclass
class Outcome:
    """What the fuzzer did with one target."""

    target: str
    executions: int = 0
    branches_before: int = 0
    """Reached by seeds and corpus."""
    branches: int = 0
    findings: list[Finding] = field(default_factory=list)
    trouble: str = ""
    """Why the fuzzer ended early."""


def _fuzz(name: str, seconds: int, seed: int, corpus: Path, directory: Path) -> Outcome:
    """Run the worker, then check again without instrumentation what it took for findings."""
    findings = directory / "findings"
    work = corpus / name
    for path in (findings, work):
        path.mkdir(parents=True, exist_ok=True)
    for data in (*TARGETS[name].seeds(), *committed(name)):
        (work / hashlib.sha1(data).hexdigest()).write_bytes(data)
    command = [sys.executable, "-m", "tests.fuzz.worker", name, "--seconds", str(seconds), "--seed", str(seed)]
    command += ["--corpus", str(work), "--findings", str(findings)]
    ended = subprocess.run(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=directory,
        check=False,
    )
    outcome = Outcome(name)
    branches = [int(match[1]) for match in _DONE.finditer(ended.stderr)]
    if branches:
        outcome.branches_before, outcome.branches = branches[0], branches[-1]
    executed = _EXECUTED.search(ended.stderr)
    if executed is None:
        stopped = _ENDED_BY_FUZZER.search(ended.stderr)
        outcome.trouble = stopped[1] if stopped else ended.stderr[-600:]
        for path in directory.glob("*-*"):  # libFuzzer's own: the input of a timeout, of too much memory, of a crash
            if path.is_file():
                outcome.findings.append(Finding(name, "fuzzer", path.name, outcome.trouble, path.read_bytes()))
    else:
        outcome.executions = int(executed[1])
    for path in sorted(findings.iterdir()):
        finding = check(TARGETS[name], path.read_bytes())
        if finding is not None and all(finding.key != other.key for other in outcome.findings):
            outcome.findings.append(finding)
    return outcome


def _report(outcome: Outcome, keep: Path) -> None:
    print(
        f"{outcome.target:<13} {outcome.executions:>10} {outcome.branches_before:>9} {outcome.branches:>9} {len(outcome.findings):>9}",
        flush=True,
    )
    if outcome.trouble:
        print(f"  the fuzzer ended: {outcome.trouble}")
    for finding in outcome.findings:
        keep.mkdir(parents=True, exist_ok=True)
        path = keep / f"{finding.target}-{hashlib.sha1(finding.data).hexdigest()[:12]}"
        path.write_bytes(finding.data)
        print(f"  {finding.kind}: {finding.where} ({len(finding.data)} bytes in {path})", flush=True)


def main() -> int:
    """0: nothing was found; 1: something was; 2: atheris is not installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together; each gets 2 at least")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=int(time.monotonic()), help="of the mutations")
    parser.add_argument(
        "--corpus", type=Path, default=Path(".fuzz/corpus"), help="where inputs are kept from run to run"
    )
    parser.add_argument("--findings", type=Path, default=Path(".fuzz/findings"), help="where findings are kept")
    parser.add_argument("--input", type=Path, help="run one input of the target and say what comes of it")
    parser.add_argument("--distil", action="store_true", help="choose anew what of the corpus is committed")
    arguments = parser.parse_args()
    names = arguments.target or list(TARGETS)
    if arguments.input is not None:
        finding = check(TARGETS[names[0]], arguments.input.read_bytes())
        print("nothing" if finding is None else f"{finding.kind}: {finding.where}\n{finding.text}")
        return 0 if finding is None else 1
    if arguments.distil:
        for name in names:
            print(f"{name:<13} {distil(TARGETS[name], arguments.corpus / name)}")
        return 0
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("atheris is not installed: make fuzz installs it, or pip install -e '.[test,fuzz]'", file=sys.stderr)
        return 2
    print(
        f"seed {arguments.seed}\n{'target':<13} {'executions':>10} {'branches':>9} {'reached':>9} {'findings':>9}",
        flush=True,
    )
    total = Outcome("all")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="logdevice-fuzz-") as directory:
            seconds = max(2, arguments.seconds // len(names))
            outcome = _fuzz(name, seconds, arguments.seed, arguments.corpus.resolve(), Path(directory))
        _report(outcome, arguments.findings)
        total.executions += outcome.executions
        total.branches_before += outcome.branches_before
        total.branches += outcome.branches
        total.findings += outcome.findings
        total.trouble = total.trouble or outcome.trouble
    print(f"{'all':<13} {total.executions:>10} {total.branches_before:>9} {total.branches:>9} {len(total.findings):>9}")
    return 1 if total.findings or total.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
