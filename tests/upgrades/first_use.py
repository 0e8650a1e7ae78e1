"""Appends a record to a log that nobody used before: ``python first_use.py CLUSTER_FILE LOG``. The first epoch of a log waits for more than later ones do.
It runs with earlier versions of the package, too: public names only."""

from __future__ import annotations

import asyncio
import sys

from logdevice_py import Client


async def main(file: str, log: int) -> None:
    async with Client(file) as client:
        await client.append(log, b"first")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
