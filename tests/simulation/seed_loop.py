"""Runs seeds side by side while somebody looks on: how far it is, what failed, Ctrl-C, and processes that are killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.command_line import Arguments
from tests.simulation.run_mode import RunMode
from tests.simulation.search import SeedResult, WorkerKilledError, run_many
from tests.simulation.workers import kill_workers

INTERRUPTED = 130
"""Exit status, as of a program that SIGINT ends."""
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


@dataclass(slots=True)
class Ending:
    """How it ended; all seeds were run when nothing of this is so."""

    failed: SeedResult | None = None
    """It stopped at this one."""
    interrupted: bool = False
    killed: bool = False
    """A process that ran seeds was killed."""

    def status(self, *, good: bool) -> int:
        """Of the process.

        Args:
            good: what came of the seeds is as it must be.
        """
        if self.interrupted:
            return INTERRUPTED
        return 1 if self.killed or self.failed is not None or not good else 0


class Interruption:
    """As long as the context lasts, the first Ctrl-C or SIGTERM asks for an end, and the next one kills the processes that run seeds."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        # after an end was asked for, what is left is to tell what came of it, and more of the same must not cut that short
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.asked else before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            kill_workers()
            return
        self.asked = True
        # not by print, which may be what was interrupted
        os.write(2, b"\ninterrupted: waits for the seeds that are running; once more ends them at once\n")


def run_all(
    seeds: Iterable[int],
    count: int,
    add: Callable[[SeedResult], int],
    arguments: Arguments,
    *,
    mode: Callable[[int], RunMode],
    keep_going: bool,
    already: int = 0,
    store: str | None = None,
) -> Ending:
    """Run seeds to their end, to the first failure unless `keep_going`, or until it is interrupted.

    Args:
        seeds: are asked for one by one, when a process is free.
        count: of seeds.
        add: gets each result that it does not stop at, and says how many seeds are counted by then.
        mode: in which mode to run a seed.
        already: how many seeds before these are counted.
        store: as of `run_seed`.
    """
    ending = Ending()
    console = Console(stderr=True)
    with (
        Interruption() as interruption,
        Progress(*_COLUMNS, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("seeds", total=already + count, completed=already)
        results = run_many(
            seeds,
            mode=mode,
            tail=arguments.tail,
            store=store,
            jobs=arguments.jobs,
            keep_going=keep_going,
            is_stopping=lambda: interruption.asked,
        )
        with closing(results):
            try:
                for result in results:
                    if result.failure and not keep_going:
                        ending.failed = result
                        break
                    if result.failure:
                        print(f"{mode(result.seed).replay(result.seed, store=store)}: {result.cause}", flush=True)
                    progress.update(task, completed=add(result))
            except WorkerKilledError as error:
                ending.killed = True
                if not interruption.asked:
                    print(error, file=sys.stderr, flush=True)
        ending.interrupted = interruption.asked
    if ending.failed is not None:
        print(ending.failed.failure, flush=True)
    return ending
