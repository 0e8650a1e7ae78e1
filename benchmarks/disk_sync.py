"""What a sync costs on this machine: alone, and handed to a thread and back to the event loop."""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.bare_append_path import SWITCH_INTERVAL
from benchmarks.percentiles import percentile

_BLOCK = b"x" * 300


@dataclass(slots=True)
class SyncCost:
    """Microseconds."""

    fdatasync_p50: float
    fdatasync_p99: float
    hop_p50: float
    """From handing a job over to the thread, which appends nothing but syncs, to the callback on the loop."""
    hop_p99: float


def measure_sync(directory: Path, *, delay_us: int = 0, count: int = 1000) -> SyncCost:
    """Append a little to a file and sync it, `count` times in the caller's thread and as often through another one.

    Args:
        directory: on the disk in question.
        delay_us: every sync through the thread takes this much longer.
        count: how often.
    """
    path = directory / "sync-cost"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        plain = []
        for _ in range(count):
            os.write(descriptor, _BLOCK)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            plain.append(time.perf_counter() - began)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            hops = runner.run(_hops(descriptor, delay_us / 1e6, count))
    finally:
        sys.setswitchinterval(interval)
        os.close(descriptor)
        path.unlink()
    return SyncCost(*(percentile(seconds, share) * 1e6 for seconds in (plain, hops) for share in (0.5, 0.99)))


async def _hops(descriptor: int, delay: float, count: int) -> list[float]:
    loop = asyncio.get_running_loop()
    jobs: queue.SimpleQueue[asyncio.Future[None] | None] = queue.SimpleQueue()

    def work() -> None:
        while (future := jobs.get()) is not None:
            if delay:
                time.sleep(delay)
            os.fdatasync(descriptor)
            loop.call_soon_threadsafe(future.set_result, None)

    thread = threading.Thread(target=work)
    thread.start()
    took = []
    for _ in range(count):
        os.write(descriptor, _BLOCK)
        future: asyncio.Future[None] = loop.create_future()
        began = time.perf_counter()
        jobs.put(future)
        await future
        took.append(time.perf_counter() - began)
    jobs.put(None)
    await asyncio.to_thread(thread.join)
    return took
