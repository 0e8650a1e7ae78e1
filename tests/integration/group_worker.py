"""A member of a group as a process: ``python -m tests.integration.group_worker CLUSTER_FILE NAME DIRECTORY``.

What it makes of the records goes to a file for each stream, which takes nothing with a token below the greatest one that it has seen.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from client.client import Client
from logdevice_py.core.status import LogDeviceError, Status
from streams.subscriptions.group import Group, GroupBatch
from streams.subscriptions.subscriptions import Subscriptions

COMMANDS, SNAPSHOTS = 1, 2
GROUP = "billing"
WORK_SECONDS = 0.005


def write_line(path: Path, batch: GroupBatch, began: float, member: str) -> None:
    """Append what was handled, unless a greater token was here before; then that is told."""
    with path.open("a+") as sink:
        fcntl.flock(sink, fcntl.LOCK_EX)
        sink.seek(0)
        greatest = max((json.loads(line)["token"] for line in sink.readlines()[-1:]), default=0)
        line = {
            "token": max(batch.token, greatest),
            "late": batch.token < greatest,
            "member": member,
            "pid": os.getpid(),
            "numbers": [int(record.payload) for record in batch.records.records()],
            "began": began,
            "ended": time.monotonic(),
        }
        sink.write(json.dumps(line) + "\n")
        sink.flush()


async def work(file: str, name: str, directory: Path) -> None:
    """Until it is killed."""
    async with (
        Client(file) as client,
        Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions,
        Group(subscriptions, GROUP).member(name, max_records=50) as member,
    ):
        async for batch in member:
            began = time.monotonic()
            await asyncio.sleep(WORK_SECONDS)
            write_line(directory / batch.stream, batch, began, name)
            try:
                await member.commit(batch)
            except LogDeviceError as error:
                if error.status is not Status.FENCED and not error.retriable:
                    raise


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells ignore in what they put in the background
    with suppress(KeyboardInterrupt):
        asyncio.run(work(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
