"""Runs a campaign: keeps its file up to date, goes on with one that was interrupted, and prints what came of it."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.simulation.campaign import Campaign, InOrder, NoCampaignError, fault_lines
from tests.simulation.command_line import Arguments
from tests.simulation.features import FEATURES, kinds_for_applications
from tests.simulation.marks_elsewhere import MARKS_ELSEWHERE
from tests.simulation.operators import kinds_of_faults
from tests.simulation.report_file import ReportFiles, why_not_writable
from tests.simulation.search import ROOT, SOURCES, SeedResult, declared_marks
from tests.simulation.seed_loop import run_all
from tests.simulation.shrinking import shrink

_SAVE_EVERY = 20.0
"""Seconds of real time."""


def run_campaign(arguments: Arguments) -> int:
    """Run it to its end, to the first failure or until it is interrupted; the exit status."""
    campaign = _begun(arguments) if arguments.resume is None else _resumed(arguments.resume)
    campaign.keep_going |= arguments.keep_going
    path = arguments.resume or arguments.report
    files = ReportFiles()
    began, saved, before = time.monotonic(), time.monotonic(), campaign.elapsed
    in_order = InOrder(campaign.next_seed)

    def add(result: SeedResult) -> int:
        nonlocal saved
        for each in in_order.put(result):
            campaign.add(each)
        campaign.elapsed = before + time.monotonic() - began
        if path is not None and time.monotonic() > saved + _SAVE_EVERY:
            files.write(campaign.texts(path))
            saved = time.monotonic()
        return campaign.counted

    seeds = range(campaign.next_seed, campaign.first + campaign.runs)
    ending = run_all(
        seeds,
        len(seeds),
        add,
        arguments,
        mode=campaign.mode,
        keep_going=campaign.keep_going,
        already=campaign.counted,
        store=campaign.store or None,
    )
    if ending.failed is not None:
        campaign.failures[ending.failed.seed] = ending.failed.cause
    if path is not None:
        files.write(campaign.texts(path))
    if ending.failed is not None and not ending.interrupted:
        shrink(ending.failed.seed, campaign.mode(ending.failed.seed), arguments.shrink_seconds, campaign.store or None)
    _print_campaign(campaign)
    return ending.status(good=not campaign.shortfalls() and files.up_to_date)


def _print_campaign(campaign: Campaign) -> None:
    """What it has shown, and what it is short of. A part shows too little for its tables to mean much: they are in the report."""
    if campaign.is_complete:
        print(f"seeds that reached each of {len(campaign.marks)} marks, the rarest first, and the first such seed")
        for count, mark, example in campaign.mark_rows():
            print(f"{count:8} {mark}  {example}")
        print(f"{len(MARKS_ELSEWHERE)} more marks are left to tests that are named in marks_elsewhere.py")
        print("\n".join(fault_lines(campaign.fault_rows())))
    print("\n".join(campaign.summary()))
    shortfalls = campaign.shortfalls()
    print("short of what a campaign has to show:" if shortfalls else "passed")
    for text in shortfalls:
        print(f"  {text}")


def _begun(arguments: Arguments) -> Campaign:
    return Campaign(
        commit=_commit(),
        sources=_sources(),
        command="python -m tests.simulation " + shlex.join(sys.argv[1:]),
        first=arguments.seed,
        runs=arguments.runs,
        marks=[f"application {name}" for name in FEATURES]
        if arguments.features
        else sorted(set(declared_marks()) - set(MARKS_ELSEWHERE)),
        kinds=kinds_for_applications() if arguments.features else kinds_of_faults(),
        features=arguments.features,
        store=arguments.store or "",
    )


def _resumed(path: Path) -> Campaign:
    try:
        campaign = Campaign.load(path)
    except NoCampaignError as error:
        sys.exit(f"{path} is no report of a campaign: {error}")
    if campaign.sources != _sources():
        sys.exit(f"{path} is of other sources ({campaign.commit}): its seeds are other runs; go there, or begin anew")
    for each in campaign.texts(path):
        if (reason := why_not_writable(each)) is not None:
            sys.exit(reason)
    # a seed that stopped it is run again
    campaign.failures = {seed: cause for seed, cause in campaign.failures.items() if seed < campaign.next_seed}
    return campaign


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "HEAD") or "unknown") + (" + changes" if git("status", "--porcelain") else "")


def _sources() -> str:
    digest = hashlib.sha256()
    for folder in (*SOURCES, "tests/simulation"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
