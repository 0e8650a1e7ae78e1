"""A moderate, steady load: what appends and their deliveries take where no queue is long enough to hide behind, on servers that were just started and on
servers that have just taken gigabytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.ldbench.acknowledgements import NANOSECONDS, AcknowledgementLog
from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import Mode, StartAt
from benchmarks.ldbench.measurement import Case
from benchmarks.ldbench.pacing import pace
from benchmarks.ldbench.payloads import Content, PayloadPool
from benchmarks.ldbench.streams import AppendStream, CallWindow, read_until
from benchmarks.ldbench.verification import WriterLedger
from benchmarks.ldbench.workload import OUR_ENGINES, Scale, SmallestOnly
from benchmarks.ldbench.workloads.filling import append_records, fastest_mode
from benchmarks.ldbench.workloads.reading import ClosingRecord, deliveries

FRESH: Final = "fresh"
WRITTEN: Final = "written"
_RATE: Final = 500
_OUR_RATES: Final = (100, 2_000, 10_000)
_FILLING_SIZE: Final = 10_000
_IN_MEMORY_MAX: Final = 500_000_000
"""Bytes that are written first to a system that keeps all of it in memory, with every copy."""


class Steady(SmallestOnly):
    """Poisson arrivals at a fixed rate, from the intended moment to the acknowledgement, and to a reader at the tail."""

    name = "steady"
    title = "500 appends a second: delivery at the tail, and acknowledgement; fresh servers, and after gigabytes were written"
    primary = "p50_ms"
    group = "steady"
    mode: Mode | None = None
    fresh = True
    rates: tuple[int, ...] = (_RATE,)

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """Fresh servers first: later cases run on the same."""
        fresh = [{"rate": rate, "servers": FRESH} for rate in self.rates]
        written = [{"rate": rate, "servers": WRITTEN, "written": scale.steady_bytes} for rate in self.rates]
        return fresh + written

    def logs(self, case: Case) -> int:
        """One more for what is written first."""
        return 2

    async def run(self, bench: WorkloadBench) -> None:
        """A reader at the tail beside a paced writer. Deliveries are in the order of the appends."""
        rate = float(bench.case.parameters["rate"])
        if bench.case.parameters["servers"] == WRITTEN:
            await _write(bench, int(bench.case.parameters["written"]))
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, Mode.SINGLE)
        verifier, consumer = bench.verifier(log), await bench.consumer(log, StartAt.TAIL)
        moments: list[int] = []
        batches: list[tuple[int, int]] = []
        closing = ClosingRecord(stream)
        ends: list[tuple[int, int]] = []

        async def write() -> None:
            window = bench.window()
            window.call_records = 1
            await pace(stream, rate, bench.case.warmup_seconds, window=window, seed=0, noted=moments)
            bench.say("measuring")
            async with bench.timed():
                ends.append(await pace(stream, rate, bench.case.seconds, window=window, noted=moments))
                await stream.settle()
            await closing.append()

        writing = asyncio.create_task(write())
        try:
            await read_until(
                consumer, verifier, closing.seen_by(verifier), on_batch=lambda at, count: batches.append((at, count))
            )
        except BaseException:
            writing.cancel()
            raise
        await writing
        ((began, ended),) = ends
        stream.raise_failures()
        delivered = deliveries(batches, moments)
        bench.judged([verifier])
        appended = bench.acknowledgements.latencies(began, ended)
        bench.moved(len(appended))
        bench.latency("intended append to delivery", delivered.latencies(began, ended))
        bench.latency("append from the intended moment", appended, figures=False)
        if len(appended):
            bench.measurement.figures["append_p50_ms"] = appended.percentile_ms(50)
            bench.measurement.figures["append_p99_ms"] = appended.percentile_ms(99)
        bench.measurement.series = delivered.series(began, ended, step=NANOSECONDS // 5)


class SteadyRates(Steady):
    """The same at rates below and above."""

    name = "steady-rates"
    title = "the same at 100, 2,000 and 10,000 appends a second"
    engines: frozenset[str] | None = OUR_ENGINES
    rates = _OUR_RATES


async def _write(bench: WorkloadBench, size: int) -> None:
    """So many bytes to a log of their own, in records of 10 KB, the fastest way."""
    if getattr(bench.engine, "in_memory", False) and size > _IN_MEMORY_MAX:
        bench.note(f"{_IN_MEMORY_MAX / 1e6:,.0f} MB were written first, not {size / 1e6:,.0f}: it keeps all in memory")
        size = _IN_MEMORY_MAX
    bench.say(f"writing {size / 1e6:,.0f} MB first")
    (log,) = await bench.logs(1)
    mode, setting = fastest_mode(bench.engine)
    pool = PayloadPool(1, _FILLING_SIZE, Content(bench.case.content), limit=64 << 20)
    producer = await bench.running.producer(log, mode, setting)
    try:
        stream = AppendStream(producer, WriterLedger(pool), AcknowledgementLog())
        await append_records(stream, CallWindow(setting, _FILLING_SIZE), max(1, size // _FILLING_SIZE))
    finally:
        await producer.close()


WORKLOADS = (Steady(), SteadyRates())
