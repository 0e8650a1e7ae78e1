"""Records arrive at random, independent of how the system copes; latency counts from when they should have been appended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.ldbench.acknowledgements import NANOSECONDS, AcknowledgementLog
from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.control import control_producer
from benchmarks.ldbench.engine import Mode
from benchmarks.ldbench.pacing import pace
from benchmarks.ldbench.payloads import Content, PayloadPool
from benchmarks.ldbench.streams import AppendStream
from benchmarks.ldbench.verification import WriterLedger
from benchmarks.ldbench.workload import Scale, SmallestOnly
from benchmarks.ldbench.workloads.write_saturation import saturate

HALF: Final = "half"
_SATURATION_SECONDS: Final = 1.0
_LOADS: Final = (1_000, 5_000, 20_000)
_FEW_LOADS: Final = (1_000,)


class OpenLoop(SmallestOnly):
    """Poisson arrivals at a fixed rate, or at half of what the system itself was seen to take a moment before."""

    name = "open-loop"
    title = "appends at random moments; latency from the intended one"
    primary = "p99_ms"
    group = "latency"
    mode = None

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """Loads, records a second."""
        loads = _LOADS if scale.thorough else _FEW_LOADS
        return [*({"load": load} for load in loads), {"load": HALF}]

    async def run(self, bench: WorkloadBench) -> None:
        """The load, then the same on a server that only acknowledges."""
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, Mode.SINGLE)
        rate = bench.case.parameters["load"]
        if rate == HALF:
            rate = await self._half_of_saturation(bench, stream)
            bench.note(f"half of the saturation is {rate:,.0f} records/s")
        window = bench.window()
        window.call_records = 1
        bench.say("warming up")
        await pace(stream, rate, bench.case.warmup_seconds, window=window, seed=0)
        await stream.settle()
        bench.say("measuring")
        async with bench.timed():
            began, ended = await pace(stream, rate, bench.case.seconds, window=window)
            await stream.settle()
        log_of = bench.acknowledgements
        histogram = log_of.latencies(began, ended)
        bench.moved(len(histogram))
        bench.latency("append from the intended moment", histogram)
        bench.measurement.figures["offered_per_s"] = float(rate)
        bench.series(began, ended)
        await self._control(bench, rate)
        await bench.verify({log: stream})

    async def _half_of_saturation(self, bench: WorkloadBench, stream: AppendStream) -> float:
        bench.say("looking for the saturation")
        began = time.monotonic_ns()
        await saturate([stream], bench.window(), began + round(_SATURATION_SECONDS * NANOSECONDS))
        ended = time.monotonic_ns()
        await stream.settle()
        return bench.acknowledgements.acknowledged(began, ended) / ((ended - began) / NANOSECONDS) / 2

    async def _control(self, bench: WorkloadBench, rate: float) -> None:
        bench.say("measuring the control")
        log = AcknowledgementLog()
        pool = PayloadPool(0, bench.size, Content(bench.case.content), limit=1 << 20)
        async with control_producer() as producer:
            stream = AppendStream(producer, WriterLedger(pool), log)
            window = bench.window()
            window.call_records = 1
            await pace(stream, rate, bench.case.warmup_seconds, window=window, seed=0)
            began, ended = await pace(stream, rate, bench.case.seconds, window=window)
            await stream.settle()
        histogram = log.latencies(began, ended)
        bench.latency("control", histogram, figures=False)
        if len(histogram):
            bench.measurement.figures["control_p99_ms"] = histogram.percentile_ms(99)


WORKLOADS = (OpenLoop(),)
