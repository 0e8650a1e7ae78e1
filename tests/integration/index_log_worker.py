"""A process that deals, optimizes or collects, and is killed or stopped before one of its steps: `CLUSTER JOB STEP SIGNAL`.

Steps are those of the job, and those of the store: before a file is made, while it has no name yet, when it has one, before one is deleted. STEP is how many
of them it does before, -1 for all; or the name of a command, for the step that proposes it first.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from client.client import Client
from indexlog.effects import IndexEffect, ProposeCommand
from indexlog.index_log import IndexLog
from indexlog.local_store import LocalStore
from indexlog.planning import ALL_AT_ONCE


class SteppedStore(LocalStore):
    """A directory whose steps are told."""

    def __init__(self, root: Path, on_step: Callable[[], None], *, is_full: bool = False) -> None:
        super().__init__(root)
        self._on_step = on_step
        self._is_full = is_full

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """As `LocalStore`."""
        self._on_step()
        with super().create(path) as file:
            yield file
            self._on_step()
            if self._is_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._on_step()

    def delete(self, path: str) -> None:
        """As `LocalStore`."""
        self._on_step()
        super().delete(path)


class Steps:
    """Counts steps, and sends this process a signal before one."""

    def __init__(self, step: str, number: int) -> None:
        self._left = int(step) if step.lstrip("-").isdecimal() else -1
        self._command = step
        self._signal = number

    def on_effect(self, effect: IndexEffect) -> None:
        """Before a step of the job."""
        if isinstance(effect, ProposeCommand) and type(effect.command).__name__ == self._command:
            self._command = ""
            os.kill(os.getpid(), self._signal)
        self.step()

    def step(self) -> None:
        """Before any step."""
        if self._left == 0:
            os.kill(os.getpid(), self._signal)
        self._left -= 1


async def run(cluster: str, job: str, steps: Steps) -> None:
    """Do the job, up to its step."""
    async with Client(cluster) as client, IndexLog(client, on_step=steps.on_effect) as log:
        own = log.store
        assert isinstance(own, LocalStore)
        log._store = SteppedStore(own.root, steps.step, is_full=job == "deal on a full disk")
        if job.startswith("deal"):
            await log.deal()
        elif job == "optimize":
            await log.optimize(ALL_AT_ONCE)
        else:
            await log.collect(grace=-1)


def main() -> int:
    """The program."""
    cluster, job, step, number = sys.argv[1:]
    asyncio.run(run(cluster, job, Steps(step, signal.Signals[number])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
