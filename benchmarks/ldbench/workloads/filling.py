"""Fills a log with records that are to be read."""

from __future__ import annotations

from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import Engine, Mode, Setting
from benchmarks.ldbench.streams import AppendStream, CallWindow

SMALLEST = 100
"""Bytes of the records that the amount to be read is given in."""
FEWEST = 20


def fastest_mode(engine: Engine) -> tuple[Mode, Setting]:
    """How an engine takes many records best, with the first setting."""
    for mode in (Mode.BUFFERED_MANY, Mode.BUFFERED):
        if settings := engine.settings(mode):
            return mode, settings[0]
    return Mode.SINGLE, engine.settings(Mode.SINGLE)[0]


def records_to_read(bench: WorkloadBench) -> int:
    """As the case says for records of 100 B; larger records: as many bytes."""
    wanted = int(bench.case.parameters["records"])
    return max(FEWEST, wanted * SMALLEST // max(SMALLEST, bench.size))


async def open_fast(bench: WorkloadBench, log: str) -> tuple[AppendStream, CallWindow]:
    """A stream in the fastest mode, and its window."""
    mode, setting = fastest_mode(bench.engine)
    return await bench.stream(log, mode, setting=setting), CallWindow(setting, bench.size)


async def append_records(stream: AppendStream, window: CallWindow, records: int) -> None:
    """Append so many and wait until all are acknowledged.

    Raises:
        EngineError: an append failed.
    """
    left = records
    while left:
        await window.room()
        await stream.producer.ready()
        count = min(left, window.call_records)
        stream.send(count, window=window)
        left -= count
    await stream.settle()
    stream.raise_failures()


async def fill(bench: WorkloadBench, log: str, records: int) -> AppendStream:
    """Append so many records and wait for them; the stream, for more of the same writer."""
    bench.say(f"writing {records:,} records to be read")
    stream, window = await open_fast(bench, log)
    await append_records(stream, window, records)
    return stream
