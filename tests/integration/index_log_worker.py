"""A process that deals, optimizes or collects, and kills itself before one of its steps: `CLUSTER JOB STEP`; -1: before none."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from client.client import Client
from indexlog.index_log import IndexLog
from indexlog.planning import ALL_AT_ONCE


async def main(cluster: str, job: str, step: int) -> None:
    """Do the job, up to its step."""
    left = step

    def count(effect: object) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    async with Client(cluster) as client, IndexLog(client, on_step=count) as log:
        if job == "deal":
            await log.deal()
        elif job == "optimize":
            await log.optimize(ALL_AT_ONCE)
        else:
            await log.collect(grace=-1)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
