"""One append at a time on an idle system: what an acknowledgement takes."""

from __future__ import annotations

import time

from benchmarks.ldbench.acknowledgements import NANOSECONDS
from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import Mode
from benchmarks.ldbench.workload import WorkloadDefaults


class LoneAppend(WorkloadDefaults):
    """Each append waits for the one before."""

    name = "lone-append"
    title = "one append at a time"
    primary = "p50_ms"
    group = "latency"
    mode = None

    async def run(self, bench: WorkloadBench) -> None:
        """For as long as the case says."""
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, Mode.SINGLE)
        clock = time.monotonic_ns
        until = clock() + round(bench.case.warmup_seconds * NANOSECONDS)
        while clock() < until:
            await stream.lone()
        bench.say("measuring")
        async with bench.timed():
            began = clock()
            until = began + round(bench.case.seconds * NANOSECONDS)
            while clock() < until:
                await stream.lone()
            ended = clock()
        log_of = bench.acknowledgements
        bench.moved(log_of.acknowledged(began, ended))
        bench.throughput(log_of.acknowledged(began, ended), (ended - began) / NANOSECONDS)
        bench.latency("append", log_of.latencies(began, ended))
        bench.series(began, ended)
        await bench.verify({log: stream})


WORKLOADS = (LoneAppend(),)
