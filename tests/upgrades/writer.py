"""Appends to a log until SIGTERM, and notes what came of it, a JSON array a line: ``["ok", number, lsn, offset, microseconds]``, ``["unknown", number, text]``
or ``["failed", number, text]``. It runs with earlier versions of the package, too: public names only.

``python writer.py CLUSTER_FILE LOG direct|buffered``
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

from logdevice_py import Client, LogDeviceError

PAUSE = 0.01
"""Seconds between appends."""


def say(*what: object) -> None:
    print(json.dumps(what), flush=True)


async def main(file: str, log: int, way: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    number = 0
    async with Client(file) as client, client.buffered_writer() as writer:
        appends = writer if way == "buffered" else client
        while not stop.is_set():
            number += 1
            begin = time.monotonic()
            while True:
                try:
                    receipt = await appends.append(log, f"{way} {number}".encode())
                except LogDeviceError as error:
                    if error.maybe_applied:
                        say("unknown", number, str(error))
                    elif error.retriable and not stop.is_set():
                        say("failed", number, str(error))
                        await asyncio.sleep(PAUSE)
                        continue
                    else:
                        say("failed", number, str(error))
                else:
                    say("ok", number, int(receipt.lsn), receipt.batch_offset, int((time.monotonic() - begin) * 1e6))
                break
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
