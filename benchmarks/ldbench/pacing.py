"""Records at the moments of a schedule, whatever the system does."""

from __future__ import annotations

import random
import time

from benchmarks.ldbench.arrivals import NANOSECONDS, poisson_arrivals
from benchmarks.ldbench.precise_timer import PreciseTimer
from benchmarks.ldbench.streams import AppendStream, CallWindow


async def pace(
    stream: AppendStream,
    rate: float,
    seconds: float,
    *,
    window: CallWindow,
    seed: int = 1,
    noted: list[int] | None = None,
) -> tuple[int, int]:
    """Append with Poisson arrivals; the moments at which the schedule began and ended.

    Arrivals that are due at the same time are handed over in one call. When the window is full they wait, and that wait counts as latency.

    Args:
        stream: where to.
        rate: records a second.
        seconds: for how long.
        window: of records under way.
        seed: of the schedule.
        noted: gets the intended moment of each record, in the order in which they are handed over.
    """
    arrivals = poisson_arrivals(rate, seconds, random.Random(seed))
    timer = PreciseTimer()
    try:
        clock, at, count = time.monotonic_ns, 0, len(arrivals)
        start = clock()
        while at < count:
            await timer.until(start + arrivals[at])
            await window.room()
            passed = clock() - start
            first = at
            limit = min(count, at + max(1, window.records_max - window.records))
            while at < limit and arrivals[at] <= passed:
                at += 1
            if at > first:
                moments = [start + moment for moment in arrivals[first:at]]
                if noted is not None:
                    noted += moments
                stream.send_arrivals(moments, window=window)
        end = start + round(seconds * NANOSECONDS)
        await timer.until(end)
        return start, end
    finally:
        timer.close()
