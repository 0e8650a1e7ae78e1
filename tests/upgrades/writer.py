"""Appends to a log until SIGTERM, and notes what came of it, a JSON array a line: ``["ok", number, lsn, offset, microseconds, due]``, ``["unknown", number, text, due]``
or ``["failed", number, text, due]``. Microseconds count from when the append was due, in seconds of the monotonic clock: one that waits for the append before it is late
as well. It runs with earlier versions of the package, too: public names only.

``python writer.py CLUSTER_FILE LOG direct|buffered RATE``: so many appends are due in a second, each begun when it is due and the one before it is answered.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time

from logdevice_py import Client, LogDeviceError

PAUSE = 0.01
"""Seconds until a refused append is tried again."""


def say(*what: object) -> None:
    print(json.dumps(what), flush=True)


async def main(file: str, log: int, way: str, rate: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    number = 0
    async with Client(file) as client, client.buffered_writer() as writer:
        appends = writer if way == "buffered" else client
        due = 0.0
        while not stop.is_set():
            # the first one waits for connections; those behind it are not late for that
            due = due + 1 / rate if number > 1 else time.monotonic()
            number += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            while True:
                try:
                    receipt = await appends.append(log, f"{way} {number}".encode())
                except LogDeviceError as error:
                    if error.maybe_applied:
                        say("unknown", number, str(error), due)
                    elif error.retriable and not stop.is_set():
                        say("failed", number, str(error), due)
                        await asyncio.sleep(PAUSE)
                        continue
                    else:
                        say("failed", number, str(error), due)
                else:
                    late = int((time.monotonic() - due) * 1e6)
                    say("ok", number, int(receipt.lsn), receipt.batch_offset, late, due)
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
