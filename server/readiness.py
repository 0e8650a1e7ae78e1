"""Waits until a cluster takes appends."""

from __future__ import annotations

import asyncio
from pathlib import Path

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status

_CONCURRENT = 200


async def wait_until_writable(cluster_file: Path, *, timeout: float) -> None:
    """Return when every log of the cluster has an active sequencer whose earlier epochs are recovered.

    Raises:
        LogDeviceError: TIMEDOUT, naming a log that is not writable.
    """
    waiting: set[LogId] = set()
    async with Client(str(cluster_file)) as client:
        limit = asyncio.Semaphore(_CONCURRENT)

        async def one(log: LogId) -> None:
            async with limit:
                while True:
                    try:
                        await client.tail_lsn(log)
                        break
                    except LogDeviceError as error:
                        if not error.retriable:
                            raise
            waiting.discard(log)

        waiting.update(client.config.logs.ids())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(one(log) for log in sorted(waiting)))
        except TimeoutError:
            raise LogDeviceError(
                Status.TIMEDOUT,
                f"{len(waiting)} logs are not writable after {timeout:.0f} s, for example {min(waiting)}",
            ) from None
