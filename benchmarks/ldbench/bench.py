"""What a workload works with: one case, on one running system, with one setting."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from benchmarks.ldbench.acknowledgements import NANOSECONDS, AcknowledgementLog
from benchmarks.ldbench.engine import Consumer, Engine, Mode, RunningEngine, Setting, StartAt
from benchmarks.ldbench.latency import LatencyHistogram
from benchmarks.ldbench.measurement import Case, Measurement
from benchmarks.ldbench.payloads import Content, PayloadPool
from benchmarks.ldbench.resources import ResourceMeter
from benchmarks.ldbench.sampling import StackSampler
from benchmarks.ldbench.streams import AppendStream, CallWindow, read_until
from benchmarks.ldbench.verification import LogVerifier, WriterLedger

_POOLS_BYTES = 256 << 20


class WorkloadBench:
    """Opens streams, times, verifies, and fills in the `Measurement`."""

    def __init__(
        self,
        engine: Engine,
        running: RunningEngine,
        setting: Setting,
        measurement: Measurement,
        *,
        say: Callable[[str], None],
        directory: Path | None = None,
        sampler: StackSampler | None = None,
    ) -> None:
        self.engine = engine
        self.running = running
        self.setting = setting
        self.measurement = measurement
        self.case: Case = measurement.case
        self.say = say
        """Tells the person what is going on."""
        self.directory = directory
        """Of the servers' data; None: they have none."""
        self.acknowledgements = AcknowledgementLog()
        self.meter = ResourceMeter(running.processes)
        self._sampler = sampler
        self._streams: list[AppendStream] = []
        self._consumers: list[Consumer] = []
        self._ledgers: dict[str, list[WriterLedger]] = {}
        self._modes: dict[str, set[Mode]] = {}

    def watch(self, running: RunningEngine) -> None:
        """The timed part is about the servers of another system than that of the run."""
        self.running = running
        self.meter = ResourceMeter(running.processes)

    # What the case says

    @property
    def size(self) -> int:
        """Bytes of a payload."""
        return self.case.payload_bytes

    @property
    def keeps_records(self) -> bool:
        """False for the control, which only acknowledges: nothing can be read back."""
        return getattr(self.engine, "keeps_records", True)

    # Streams

    async def logs(self, count: int) -> list[str]:
        """Fresh logs."""
        return list(await self.running.create_logs(count))

    async def stream(
        self, log: str, mode: Mode, *, writers: int = 1, timeout: float = 30.0, setting: Setting | None = None
    ) -> AppendStream:
        """A writer of a log, one of `writers` of the case: they share the memory for payloads."""
        writer = len(self._streams) + 1
        pool = PayloadPool(
            writer, self.size, Content(self.case.content), limit=min(64 << 20, _POOLS_BYTES // max(1, writers))
        )
        producer = await self.running.producer(log, mode, setting or self.setting, timeout=timeout)
        ledger = WriterLedger(pool)
        stream = AppendStream(producer, ledger, self.acknowledgements)
        self._streams.append(stream)
        self._ledgers.setdefault(log, []).append(ledger)
        self._modes.setdefault(log, set()).add(mode)
        return stream

    def window(self) -> CallWindow:
        """As the setting says."""
        return CallWindow(self.setting, self.size)

    async def consumer(self, log: str, start: StartAt = StartAt.BEGINNING) -> Consumer:
        """A reader, closed with the case."""
        consumer = await self.running.consumer(log, start)
        self._consumers.append(consumer)
        return consumer

    def verifier(self, log: str, *, faults: bool = False) -> LogVerifier:
        """A judge of one reader of a log, from its beginning. Batching writers keep the order whatever the engine says of direct appends.

        Args:
            log: which one.
            faults: servers were broken while it was written.
        """
        ordered = self.engine.ordered or Mode.SINGLE not in self._modes[log]
        if faults:
            ordered = ordered and self.engine.ordered_through_faults
        return LogVerifier(self._ledgers[log], ordered=ordered)

    async def close(self) -> None:
        """Close producers and consumers."""
        for consumer in self._consumers:
            await consumer.close()
        for stream in self._streams:
            await stream.producer.close()
        self._consumers, self._streams = [], []

    # Timing

    @asynccontextmanager
    async def timed(self) -> AsyncIterator[None]:
        """The part that is measured: costs of all processes are those of this block."""
        gc.collect()
        gc.freeze()
        self.meter.start()
        if self._sampler is not None:
            self._sampler.start()
        self.running.sample(True)
        try:
            yield
        finally:
            self.running.sample(False)
            if self._sampler is not None:
                self._sampler.stop()
            roles = await self.meter.stop()
            self.measurement.cost = {role: asdict(cost) for role, cost in roles.items()}
            gc.unfreeze()

    def moved(self, records: int) -> None:
        """What the costs of the timed part were spent on."""
        self.measurement.moved_records += records
        self.measurement.moved_bytes += records * self.size

    def throughput(self, records: int, seconds: float, *, prefix: str = "") -> None:
        """Report records and megabytes a second."""
        self.measurement.figures[f"{prefix}records_per_s"] = records / seconds
        self.measurement.figures[f"{prefix}mb_per_s"] = records * self.size / seconds / 1e6

    def latency(self, name: str, histogram: LatencyHistogram, *, figures: bool = True) -> None:
        """Report latencies under a name; with `figures`, also as the figures of the workload, if anything was timed: no latency is not 0."""
        summary = histogram.summary()
        self.measurement.latency[name] = summary
        self.measurement.histograms[name] = histogram.encode()
        if figures and len(histogram):
            for percentile in ("p50", "p99", "p99.9"):
                self.measurement.figures[f"{percentile}_ms"] = summary[percentile]
            if summary["p50"] > 0:
                self.measurement.figures["p99_over_p50"] = summary["p99"] / summary["p50"]

    def series(self, since: int, until: int) -> None:
        """Report throughput and latency over time."""
        step = NANOSECONDS if until - since >= 5 * NANOSECONDS else NANOSECONDS // 5
        self.measurement.series = self.acknowledgements.series(since, until, step=step)

    def note(self, text: str) -> None:
        """Something that a reader of the report should know."""
        self.measurement.notes.append(text)

    # Verification

    async def verify(self, streams: dict[str, AppendStream], *, faults: bool = False) -> None:
        """Read logs back from their beginning and judge them; reports how fast that went, too.

        Args:
            streams: by log, one that appends a last record, so that what lies behind the others is seen.
            faults: servers were broken, and appends may have failed; their records may be there or not.

        Raises:
            WrongResultError, EngineError.
        """
        for stream in self._streams:
            await stream.settle()
            if not faults:
                stream.raise_failures()
        if not self.keeps_records:
            self.note("nothing is read back: the control keeps nothing")
            return
        self.say("reading back")
        records, began = 0, time.monotonic_ns()
        for log, stream in streams.items():
            await stream.lone()
            consumer = await self.running.consumer(log, StartAt.BEGINNING)
            try:
                verifier = self.verifier(log, faults=faults)
                await read_until(consumer, verifier, verifier.finished)
            finally:
                await consumer.close()
            records += verifier.finish()
            self.measurement.out_of_order += verifier.out_of_order
        seconds = (time.monotonic_ns() - began) / NANOSECONDS
        self.measurement.verified_records += records
        self.measurement.figures["read_records_per_s"] = records / seconds
        self.measurement.figures["read_mb_per_s"] = records * self.size / seconds / 1e6

    def judged(self, verifiers: Sequence[LogVerifier]) -> None:
        """Count what readers of the timed part have verified."""
        for verifier in verifiers:
            self.measurement.verified_records += verifier.finish()
            self.measurement.out_of_order += verifier.out_of_order
