"""Reading: what was written before, what is being written, again and again, and by many readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from benchmarks.ldbench.acknowledgements import NANOSECONDS, AcknowledgementLog
from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import Mode, StartAt
from benchmarks.ldbench.pacing import pace
from benchmarks.ldbench.page_cache import drop_page_cache
from benchmarks.ldbench.resources import CLIENT
from benchmarks.ldbench.streams import AppendStream, read_until
from benchmarks.ldbench.verification import LogVerifier
from benchmarks.ldbench.workload import Scale, SmallestOnly, WorkloadDefaults
from benchmarks.ldbench.workloads.filling import append_records, fill, open_fast, records_to_read

_PACED: Final = 500
_COLD_SIZE_MAX: Final = 100_000
_COLD_RECORDS_MAX: Final = 3_000_000
"""Of 100 B."""
_BACKFILL_RATE: Final = 1_000


class _Reading(WorkloadDefaults):
    group = "read"
    mode: Mode | None = None

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How much is read."""
        return ({"records": scale.read_records},)


class _Tailing(SmallestOnly):
    group = "latency"
    mode: Mode | None = None


class ClosingRecord:
    """Tells readers that nothing follows: a last record, so that none waits for more when it has seen everything."""

    def __init__(self, stream: AppendStream) -> None:
        self._stream = stream
        self._sent = False

    async def append(self) -> None:
        """Append it; everything before is acknowledged. Returns when it is, too."""
        self._sent = True
        self._stream.send(1)
        await self._stream.settle()

    def seen_by(self, verifier: LogVerifier) -> Callable[[], bool]:
        """Whether a reader has it and everything before."""
        return lambda: self._sent and verifier.finished()


def deliveries(batches: Iterable[tuple[int, int]], intended: Sequence[int]) -> AcknowledgementLog:
    """When records reached a reader: `batches` says when how many came, `intended` when each was to be appended, both in the order of the log."""
    delivered, at = AcknowledgementLog(), 0
    for moment, count in batches:
        for began in intended[at : at + count]:
            delivered.add(began, moment, 1)
        at += count
    return delivered


class CatchUpRead(_Reading):
    """One reader reads a whole log, as often as fits into the time."""

    name = "catch-up-read"
    title = "reading what is there, in batches, one reader"
    primary = "records_per_s"

    def sizes(self, scale: Scale) -> Sequence[int]:
        """The smallest, where time is short."""
        return scale.sizes if scale.thorough else [min(scale.sizes)]

    async def run(self, bench: WorkloadBench) -> None:
        """Each pass is judged while it is timed."""
        (log,) = await bench.logs(1)
        stream = await fill(bench, log, records_to_read(bench))
        reads = AcknowledgementLog()
        records, last = 0, 0

        def on_batch(moment: int, count: int) -> None:
            nonlocal last
            reads.add(last, moment, count)
            last = moment

        bench.say("measuring")
        async with bench.timed():
            began = last = time.monotonic_ns()
            until = began + round(bench.case.seconds * NANOSECONDS)
            while records == 0 or time.monotonic_ns() < until:
                verifier = bench.verifier(log)
                consumer = await bench.running.consumer(log, StartAt.BEGINNING)
                try:
                    await read_until(consumer, verifier, verifier.finished, on_batch=on_batch)
                finally:
                    await consumer.close()
                records += verifier.finish()
            ended = time.monotonic_ns()
        bench.measurement.verified_records += records
        bench.moved(records)
        bench.throughput(records, (ended - began) / NANOSECONDS)
        bench.latency("from batch to batch", reads.latencies(began, ended), figures=False)
        bench.measurement.series = reads.series(began, ended, step=NANOSECONDS // 5)
        await bench.verify({log: stream})


class ColdRead(_Reading):
    """As `CatchUpRead`, each pass with a cold page cache. What servers keep in their own memory they keep, so there is more to read."""

    name = "cold-read"
    title = "reading what is there from the disk, in batches, one reader"
    primary = "mb_per_s"

    def sizes(self, scale: Scale) -> Sequence[int]:
        """The largest but for the extreme ones, unless there are no others: filling a disk with small records takes long."""
        return [max((size for size in scale.sizes if size <= _COLD_SIZE_MAX), default=min(scale.sizes))]

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How much is read."""
        return ({"records": min(_COLD_RECORDS_MAX, 10 * scale.read_records)},)

    async def run(self, bench: WorkloadBench) -> None:
        """Dropping the cache is not timed."""
        (log,) = await bench.logs(1)
        stream = await fill(bench, log, records_to_read(bench))
        records, passes, reading, how = 0, 0, 0, "nothing to be dropped"
        bench.say("measuring")
        async with bench.timed():
            while reading < bench.case.seconds * NANOSECONDS:
                if bench.directory is not None:
                    how = await asyncio.to_thread(drop_page_cache, bench.directory)
                verifier = bench.verifier(log)
                began = time.monotonic_ns()
                consumer = await bench.running.consumer(log, StartAt.BEGINNING)
                try:
                    await read_until(consumer, verifier, verifier.finished)
                finally:
                    await consumer.close()
                reading += time.monotonic_ns() - began
                records += verifier.finish()
                passes += 1
        fetched = sum(cost["read_bytes"] for role, cost in bench.measurement.cost.items() if role != CLIENT)
        bench.note(f"{passes} passes, each behind {how}; the servers read {fetched / 1e6:,.1f} MB from the disk")
        bench.measurement.verified_records += records
        bench.moved(records)
        bench.throughput(records, reading / NANOSECONDS)
        await bench.verify({log: stream})


class TailRead(_Tailing):
    """On an idle system, one record at a time: from the call that appends it until a reader at the tail has it."""

    name = "tail-read"
    title = "append to delivery at the tail, idle"
    primary = "p50_ms"

    async def run(self, bench: WorkloadBench) -> None:
        """Each record is judged when it is delivered."""
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, Mode.SINGLE)
        consumer = await bench.consumer(log, StartAt.TAIL)
        verifier = bench.verifier(log)
        delivered = AcknowledgementLog()
        clock = time.monotonic_ns

        async def one() -> None:
            began = clock()
            stream.send(1)
            await read_until(
                consumer, verifier, verifier.finished, on_batch=lambda at, count: delivered.add(began, at, count)
            )
            await stream.settle()

        until = clock() + round(bench.case.warmup_seconds * NANOSECONDS)
        while clock() < until:
            await one()
        bench.say("measuring")
        async with bench.timed():
            began = clock()
            until = began + round(bench.case.seconds * NANOSECONDS)
            while clock() < until:
                await one()
            ended = clock()
        stream.raise_failures()
        bench.judged([verifier])
        bench.moved(delivered.acknowledged(began, ended))
        bench.latency("append to delivery", delivered.latencies(began, ended))
        bench.latency("append", bench.acknowledgements.latencies(began, ended), figures=False)
        bench.measurement.series = delivered.series(began, ended, step=NANOSECONDS // 5)


class ReadYourWrite(_Tailing):
    """At a steady rate: from the moment at which a record should be appended until a reader of the same process has it."""

    name = "read-your-write"
    title = "intended append to delivery at the tail, at a steady rate"
    primary = "p99_ms"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """Records a second."""
        return ({"rate": _PACED},)

    async def run(self, bench: WorkloadBench) -> None:
        """A reader at the tail beside a paced writer. Deliveries are in the order of the appends."""
        rate = float(bench.case.parameters["rate"])
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, Mode.SINGLE)
        consumer = await bench.consumer(log, StartAt.TAIL)
        verifier = bench.verifier(log)
        moments: list[int] = []
        batches: list[tuple[int, int]] = []

        async def write() -> tuple[int, int]:
            window = bench.window()
            window.call_records = 1
            ends = await pace(stream, rate, bench.case.seconds, window=window, noted=moments)
            await stream.settle()
            await closing.append()
            return ends

        closing = ClosingRecord(stream)

        bench.say("measuring")
        async with bench.timed():
            writing = asyncio.create_task(write())
            await read_until(
                consumer,
                verifier,
                closing.seen_by(verifier),
                on_batch=lambda at, count: batches.append((at, count)),
            )
            began, ended = await writing
        stream.raise_failures()
        delivered = deliveries(batches, moments)
        bench.judged([verifier])
        bench.moved(len(moments))
        bench.latency("intended append to delivery", delivered.latencies(began, ended))
        bench.measurement.series = delivered.series(began, ended, step=NANOSECONDS // 5)


class Backfill(SmallestOnly, _Reading):
    """Everything is read again and again while records are appended at a steady rate."""

    name = "backfill"
    title = "full re-reads beside a steady writer"
    primary = "read_records_per_s"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """Half of what is read where nothing is written beside it."""
        return ({"records": scale.read_records // 2},)

    async def run(self, bench: WorkloadBench) -> None:
        """Each re-read ends with what was acknowledged when it began."""
        (log,) = await bench.logs(1)
        stream = await fill(bench, log, records_to_read(bench))
        read, passes = 0, 0
        bench.say("measuring")
        async with bench.timed():
            window = bench.window()
            window.call_records = 1
            writing = asyncio.create_task(pace(stream, _BACKFILL_RATE, bench.case.seconds, window=window))
            reading_began = time.monotonic_ns()
            while not writing.done():
                read += await self._one_pass(bench, log, stream)
                passes += 1
            reading_ended = time.monotonic_ns()
            began, ended = await writing
            await stream.settle()
        bench.note(f"{passes} full re-reads beside {_BACKFILL_RATE:,} appends a second")
        bench.moved(read)
        bench.latency("append", bench.acknowledgements.latencies(began, ended))
        bench.series(began, ended)
        await bench.verify({log: stream})
        bench.measurement.verified_records += read
        bench.throughput(read, (reading_ended - reading_began) / NANOSECONDS, prefix="read_")

    async def _one_pass(self, bench: WorkloadBench, log: str, stream: AppendStream) -> int:
        target = stream.ledger.acknowledged
        verifier = bench.verifier(log)
        await asyncio.sleep(0)  # a reader that need not wait would keep the writer from its turn for ever
        consumer = await bench.running.consumer(log, StartAt.BEGINNING)
        try:
            await read_until(consumer, verifier, lambda: verifier.complete_up_to(target))
        finally:
            await consumer.close()
        return verifier.records


class FanOut(SmallestOnly, _Reading):
    """Several readers at the tail of one log, from the first record to the last."""

    name = "fan-out"
    title = "several readers at the tail of a log that is written to"
    primary = "records_per_s"

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How many readers, and how much they read together."""
        numbers = (1, 10) if scale.thorough else (10,)
        return [{"readers": readers, "records": scale.read_records // 2 // readers} for readers in numbers]

    async def run(self, bench: WorkloadBench) -> None:
        """Until the last reader has everything."""
        (log,) = await bench.logs(1)
        stream, window = await open_fast(bench, log)
        consumers = [await bench.consumer(log, StartAt.BEGINNING) for _ in range(int(bench.case.parameters["readers"]))]
        verifiers = [bench.verifier(log) for _ in consumers]
        closing = ClosingRecord(stream)
        bench.say("measuring")
        async with bench.timed():
            began = time.monotonic_ns()
            async with asyncio.TaskGroup() as tasks:
                for consumer, verifier in zip(consumers, verifiers, strict=True):
                    tasks.create_task(read_until(consumer, verifier, closing.seen_by(verifier)))
                await append_records(stream, window, records_to_read(bench))
                await closing.append()
            ended = time.monotonic_ns()
        bench.judged(verifiers)
        records = sum(verifier.records for verifier in verifiers)
        bench.moved(records)
        bench.throughput(records, (ended - began) / NANOSECONDS)


WORKLOADS = (CatchUpRead(), ColdRead(), TailRead(), ReadYourWrite(), Backfill(), FanOut())
