"""Runs a campaign: shows how far it is, keeps its file up to date, and goes on with one that was interrupted."""

from __future__ import annotations

import argparse
import hashlib
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from server.sim_faults.nemesis import CATALOG
from tests.simulation.campaign import Campaign, InOrder
from tests.simulation.marks_elsewhere import MARKS_ELSEWHERE
from tests.simulation.run_mode import campaign_mode
from tests.simulation.search import ROOT, SOURCES, SeedResult, declared_marks, run_many

_SAVE_EVERY = 20.0
"""Seconds of real time."""


def run_campaign(arguments: argparse.Namespace) -> tuple[Campaign, SeedResult | None]:
    """Run it to its end, to the first failure or until it is interrupted; the seed that failed, if it stopped there."""
    file = arguments.resume or arguments.report
    path = None if file is None else Path(file)
    campaign = _resumed(Path(arguments.resume)) if arguments.resume else _begun(arguments)
    began, saved, before = time.monotonic(), time.monotonic(), campaign.elapsed
    failed: SeedResult | None = None
    in_order = InOrder(campaign.next_seed)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    signal.signal(signal.SIGTERM, _interrupt)
    results = run_many(
        range(campaign.next_seed, campaign.first + campaign.runs),
        mode=campaign_mode,
        tail=arguments.tail,
        jobs=arguments.jobs,
        keep_going=arguments.keep_going,
    )
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("seeds", total=campaign.runs, completed=campaign.counted)
            for result in results:
                if result.failure and not arguments.keep_going:
                    failed = result
                    break
                if result.failure:
                    print(f"{campaign_mode(result.seed).replay(result.seed)}: {result.cause}", flush=True)
                for each in in_order.put(result):
                    campaign.add(each)
                progress.update(task, completed=campaign.counted)
                campaign.elapsed = before + time.monotonic() - began
                if path is not None and time.monotonic() > saved + _SAVE_EVERY:
                    campaign.save(path)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    finally:
        results.close()
    if failed is not None:
        campaign.failures[failed.seed] = failed.cause
    if path is not None:
        campaign.save(path)
    return campaign, failed


def print_campaign(campaign: Campaign) -> bool:
    """What it has shown; whether that is all that it has to show."""
    shortfalls = campaign.shortfalls()
    print(f"seeds that reached each of {len(campaign.marks)} marks, the rarest first, and the first such seed")
    for count, mark, example in campaign.mark_rows():
        print(f"{count:8} {mark}  {example}")
    print(f"{len(MARKS_ELSEWHERE)} more marks are left to tests that are named in marks_elsewhere.py")
    print("seeds in which a kind of fault was caused, and in which it did something to somebody")
    for caused, effective, kind in campaign.fault_rows():
        print(f"{caused:8} {effective:6} {kind}")
    print("\n".join(campaign.summary()))
    print(
        "\n".join(
            ["short of what a campaign has to show:", *(f"  {text}" for text in shortfalls)]
            if shortfalls
            else ["passed"]
        )
    )
    return not shortfalls


def _begun(arguments: argparse.Namespace) -> Campaign:
    return Campaign(
        commit=_commit(),
        sources=_sources(),
        command="python -m tests.simulation " + shlex.join(sys.argv[1:]),
        first=arguments.seed or 0,
        runs=arguments.runs,
        marks=sorted(set(declared_marks()) - set(MARKS_ELSEWHERE)),
        kinds={kind.name: kind.counted_as for kind in CATALOG.values()},
    )


def _resumed(path: Path) -> Campaign:
    campaign = Campaign.load(path)
    if campaign.sources != _sources():
        sys.exit(f"{path} is of other sources ({campaign.commit}): its seeds are other runs; go there, or begin anew")
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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
