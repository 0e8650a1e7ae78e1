"""As many records as the system takes: a window of records that are under way is kept full."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from benchmarks.ldbench.acknowledgements import NANOSECONDS
from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import Mode
from benchmarks.ldbench.measurement import Case
from benchmarks.ldbench.streams import AppendStream, CallWindow
from benchmarks.ldbench.workload import Scale, SmallestOnly, WorkloadDefaults


async def saturate(streams: Sequence[AppendStream], window: CallWindow, until: int) -> None:
    """Keep the window full until `until` (`time.monotonic_ns`); the streams take turns."""
    clock, call = time.monotonic_ns, window.call_records
    turns = cycle(streams)
    while clock() < until:
        await window.room()
        stream = next(turns)
        await stream.producer.ready()
        stream.send(call, window=window)


async def measure_saturation(bench: WorkloadBench, streams: Sequence[AppendStream]) -> None:
    """Warm up, then the timed part; what was on its way at its end is waited for outside of it."""
    window = bench.window()
    log = bench.acknowledgements
    bench.say("warming up")
    await saturate(streams, window, time.monotonic_ns() + round(bench.case.warmup_seconds * NANOSECONDS))
    bench.say("measuring")
    async with bench.timed():
        began = time.monotonic_ns()
        await saturate(streams, window, began + round(bench.case.seconds * NANOSECONDS))
        ended = time.monotonic_ns()
    for stream in streams:
        await stream.settle()
    records = log.acknowledged(began, ended)
    bench.moved(records)
    bench.throughput(records, (ended - began) / NANOSECONDS)
    bench.latency("append", log.latencies(began, ended))
    bench.series(began, ended)


class WriteSaturation(WorkloadDefaults):
    """One log, one writer."""

    primary = "records_per_s"
    decisive = True

    def __init__(self, name: str, title: str, mode: Mode) -> None:
        self.name = name
        self.title = title
        self.mode = mode

    async def run(self, bench: WorkloadBench) -> None:
        """One stream at full load."""
        assert self.mode is not None
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, self.mode)
        await measure_saturation(bench, [stream])
        await bench.verify({log: stream})


class ManyWriters(SmallestOnly):
    """Several writers to one log."""

    name = "many-writers"
    title = "many writers to one log"
    primary = "records_per_s"
    several_writers = True
    writers = 16

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How many writers."""
        return ({"writers": self.writers},)

    async def run(self, bench: WorkloadBench) -> None:
        """Writers take turns within one window."""
        writers = int(bench.case.parameters["writers"])
        (log,) = await bench.logs(1)
        streams = [await bench.stream(log, Mode.SINGLE, writers=writers) for _ in range(writers)]
        await measure_saturation(bench, streams)
        await bench.verify({log: streams[0]})


class ManyLogs(SmallestOnly):
    """One client that writes to many logs in turn."""

    name = "many-logs"
    title = "one writer to many logs"
    primary = "records_per_s"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How many logs."""
        return ({"logs": 32},)

    def logs(self, case: Case) -> int:
        """As the parameter says."""
        return int(case.parameters["logs"])

    async def run(self, bench: WorkloadBench) -> None:
        """Streams take turns."""
        logs = await bench.logs(self.logs(bench.case))
        streams = {log: await bench.stream(log, Mode.SINGLE, writers=len(logs)) for log in logs}
        await measure_saturation(bench, list(streams.values()))
        await bench.verify(streams)


WORKLOADS = (
    WriteSaturation("append", "concurrent appends, no batching by the application", Mode.SINGLE),
    WriteSaturation("buffered-append", "batching writer, a call for each record", Mode.BUFFERED),
    WriteSaturation("buffered-append-many", "batching writer, lists of records", Mode.BUFFERED_MANY),
    ManyWriters(),
    ManyLogs(),
)
