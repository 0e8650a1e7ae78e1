"""The client process of ``benchmarks.append_path``: appends, measures, reads everything back, and prints figures as JSON."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections import deque
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.percentiles import percentile
from client.client import Client
from client.receipt import Receipts
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN

LOG = LogId(1)
SMALL = 100
LARGE = 100_000
CHUNK_BYTES = 200_000
"""Handed to the writer at once."""
CHUNKS = 24
"""Under way at once: 4.8 MB."""


async def lone(client: Client, count: int, payload: bytes) -> dict[str, float]:
    """Direct appends, each after the receipt of the one before."""
    took = []
    append, clock = client.append, time.perf_counter
    for _ in range(count):
        began = clock()
        await append(LOG, payload)
        took.append(clock() - began)
    return {"records": count, "p50_ms": percentile(took, 0.5) * 1e3, "p99_ms": percentile(took, 0.99) * 1e3}


async def stream(client: Client, count: int, payload: bytes) -> dict[str, float]:
    """Records through a BufferedWriter, until the last one is acknowledged."""
    size = len(payload)
    chunk = [payload] * min(count, max(1, CHUNK_BYTES // size))
    async with client.buffered_writer() as writer:
        await writer.append(LOG, payload)  # finds the log
        under_way: deque[Awaitable[Receipts]] = deque()
        acknowledged = 0
        began = time.perf_counter()
        left = count
        while left:
            part = chunk if left >= len(chunk) else chunk[:left]
            await writer.ready()
            under_way.append(writer.append_many(LOG, part))
            left -= len(part)
            if len(under_way) >= CHUNKS:
                acknowledged += len(await under_way.popleft())
        while under_way:
            acknowledged += len(await under_way.popleft())
        took = time.perf_counter() - began
    assert acknowledged == count, (acknowledged, count)
    return {"records": count, "seconds": took}


async def verify(client: Client, first: LSN, payload: bytes, expected: int) -> int:
    """Read everything from `first` to the tail and compare number and content.

    Raises:
        RuntimeError: something is missing, too much, or changed.
    """
    found = 0
    async with client.reader(LOG, start=first, until=await client.tail_lsn(LOG)) as reader:
        while batch := await reader.read(max_records=20_000):
            if any(gap.kind.value == "dataloss" for gap in batch.gaps):
                raise RuntimeError(f"records are lost: {batch.gaps}")
            found += batch.payloads.count(payload)
            if len(batch) != batch.payloads.count(payload):
                raise RuntimeError("a record is not what was appended")
    if found != expected:
        raise RuntimeError(f"{expected} records were acknowledged, {found} can be read")
    return found


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All measures that were asked for."""
    result: dict[str, Any] = {"verified_records": 0}
    gc.collect()
    gc.freeze()
    small, large = (os.urandom(size) if arguments.random else b"x" * size for size in (SMALL, LARGE))
    async with Client(str(arguments.config)) as client:
        if arguments.lone:
            begin = LSN(await client.tail_lsn(LOG) + 1)
            await client.append(LOG, small)
            result["lone"] = await lone(client, arguments.lone, small)
            result["verified_records"] += await verify(client, begin, small, arguments.lone + 1)
        for name, count, payload in (("small", arguments.records, small), ("large", arguments.large, large)):
            if count:
                begin = LSN(await client.tail_lsn(LOG) + 1)
                result[name] = await stream(client, count, payload)
                result["verified_records"] += await verify(client, begin, payload, count + 1)
    return result


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="append_client", description=__doc__)
    parser.add_argument("config", type=Path, help="the cluster file")
    parser.add_argument("--lone", type=int, default=0, help="appends made one at a time")
    parser.add_argument("--records", type=int, default=0, help=f"records of {SMALL} B")
    parser.add_argument("--large", type=int, default=0, help=f"records of {LARGE} B")
    parser.add_argument("--random", action="store_true", help="bytes that cannot be compressed; otherwise all are x")
    arguments = parser.parse_args(argv)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run(arguments))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
