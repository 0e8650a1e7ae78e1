"""Reads a log from its beginning and prints what it gets, a JSON array a line: ``["record", lsn, offset, payload, time]`` or ``["gap", kind, lo, hi]``. It runs
with earlier versions of the package, too: public names only.

``python reader.py CLUSTER_FILE LOG`` reads up to the tail; ``follow`` behind it goes on until SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

from logdevice_py import LSN, Client, Gap


async def read(file: str, log: int, follow: bool) -> None:
    async with Client(file) as client:
        until = LSN.MAX if follow else await client.tail_lsn(log, timeout=60)
        async with client.reader(log, start=LSN.OLDEST, until=until) as reader:
            async for item in reader:
                if isinstance(item, Gap):
                    found: list[object] = ["gap", item.kind.name, int(item.lo), int(item.hi)]
                else:
                    found = ["record", int(item.lsn), item.batch_offset, item.payload.decode(), time.monotonic()]
                print(json.dumps(found), flush=follow)


async def main(file: str, log: int, follow: bool) -> None:
    reading = asyncio.create_task(read(file, log, follow))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
    try:
        await reading
    except asyncio.CancelledError:
        if not follow:
            raise


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["follow"]))
