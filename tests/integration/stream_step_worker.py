"""A process that keeps a namespace's streams up, or writes to a stream as its owner, and kills itself at one of its steps: `CLUSTER ROLE STEP FIRST`; STEP -1: at none.

Steps are before each command to the namespace, after each thing that the janitor or the store of its copies tells of, and before and after each append.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from typing import Any
from unittest.mock import patch

from client.client import Client
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from streams.upkeep import janitor as upkeep

WRITTEN = 6
"""Records of an owner."""


class Fate:
    """Counts steps, and kills the process at one of them."""

    def __init__(self, step: int) -> None:
        self._left = step

    def step(self, *told: object) -> None:
        """One more."""
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


FATE = Fate(-1)


async def keep_up(namespace: Namespace) -> None:
    """Two rounds of the janitor: what the first one trims the second one tells."""
    async with upkeep.Janitor(namespace, lease="300ms", on_step=FATE.step) as janitor:
        for _ in range(2):
            await janitor.round()
        assert janitor.failures == {}, janitor.failures


async def own(namespace: Namespace, first: int) -> None:
    """Write as the owner, and say what is acknowledged."""
    stream = await namespace.open("ledger")
    async with stream.exclusive_writer(owner=f"worker {os.getpid()}", lease="300ms") as writer:
        for number in range(first, first + WRITTEN):
            FATE.step()
            print("begun", number, flush=True)
            await writer.write(b"%d" % number)
            print("stored", number, flush=True)
            FATE.step()


async def work(cluster: str, role: str, first: int) -> None:
    """Do it, up to the step."""
    propose = Namespace.propose

    async def counted(self: Namespace, *arguments: Any, **options: Any) -> Any:
        FATE.step()
        outcome = await propose(self, *arguments, **options)
        FATE.step()
        return outcome

    with (
        patch.object(Namespace, "propose", counted),
        patch.object(upkeep, "ColdStore", partial(ColdStore, on_step=FATE.step)),
    ):
        async with Client(cluster) as client, Namespace(client) as namespace:
            await (keep_up(namespace) if role == "janitor" else own(namespace, first))


def main() -> None:
    """The program."""
    global FATE
    cluster, role, step, first = sys.argv[1:]
    FATE = Fate(int(step))
    asyncio.run(work(cluster, role, int(first)))
