"""Where the micro-batches of a stream begin and end. Positions are the next LSN to read, by log."""

from __future__ import annotations

import asyncio
from typing import Final

from client.client import Client
from client.read.items import RecordBatch
from client.reader import Reader
from client.spark.options import Bound, Place, SourceOptions
from client.spark.planning import chosen_logs, start_of, tail_of
from client.spark.ranges import Cut
from client.spark.survey import oldest
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status

_LOGS_AT_ONCE: Final = 32
_RECORDS_AT_ONCE: Final = 10_000
Positions = dict[int, int]


async def tail_positions(client: Client, options: SourceOptions) -> Positions:
    """Behind the last LSN that can be read of each log."""
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def behind(log: LogId) -> tuple[int, int]:
        async with turns:
            return log, await tail_of(client, log, options) + 1

    return dict(await asyncio.gather(*(behind(log) for log in chosen_logs(client, options))))


async def first_positions(client: Client, options: SourceOptions) -> Positions:
    """Where the options let each log begin."""
    starts = options.start.by_log(client.config.logs)
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def begin(log: LogId) -> tuple[int, int]:
        async with turns:
            tail = await tail_of(client, log, options)
            bound: Bound = starts.get(log, options.start.default)
            if bound.place is Place.LSN:
                return log, max(1, bound.value)
            try:
                async with asyncio.timeout(options.read_timeout_us / 1e6):
                    return log, await start_of(client, log, bound, tail)
            except TimeoutError:
                raise LogDeviceError(
                    Status.TIMEDOUT, f"log {log}: its first LSN could not be found within readTimeout"
                ) from None

    return dict(await asyncio.gather(*(begin(log) for log in chosen_logs(client, options))))


async def ranges_between(client: Client, begin: Positions, until: Positions) -> list[Cut]:
    """What lies between two offsets; a log without a beginning starts behind what was trimmed of it."""
    cuts = []
    for log, behind in sorted(until.items()):
        start = begin.get(log)
        if start is None:
            start = await oldest(client, LogId(log), behind - 1) if behind > 1 else 1
        if start < behind:
            group = client.config.logs.group(LogId(log))
            cuts.append(Cut(LogId(log), "" if group is None else group.path, start, behind - 1))
    return cuts


async def bounded_positions(
    client: Client, options: SourceOptions, begin: Positions, end: Positions, records_max: int, turn: int
) -> Positions:
    """Where the logs are after `records_max` records, taken from all of them in equal shares as far as they have so many.

    Records are counted by reading them: entries hold any number, and nobody but the readers knows it. Entries stay whole: an entry
    that exceeds what is left is left for the next micro-batch, but a micro-batch has one entry at least. `turn` says whose: it grows from
    one micro-batch to the next, so that no log with large entries has to wait for ever.
    """
    bounded = {log: begin.get(log, 1) for log in end}
    left = records_max
    waiting = [log for log in sorted(end) if bounded[log] < end[log]]
    first = turn % len(waiting) if waiting else 0
    waiting = waiting[first:] + waiting[:first]
    taken_any = False
    while waiting and left > 0:
        share = max(1, left // len(waiting))
        still = []
        for log in waiting:
            if left <= 0:
                break
            position, taken = await _count(
                client, options, log, bounded[log], end[log], min(share, left), not taken_any
            )
            taken_any = taken_any or position > bounded[log]
            if position < end[log] and position > bounded[log]:
                still.append(log)
            bounded[log], left = position, left - taken
        waiting = still
    # a log that is not in the offset begins at its oldest LSN, so one of which nothing was taken stays out
    return {log: lsn for log, lsn in bounded.items() if log in begin or lsn > 1}


async def _count(
    client: Client, options: SourceOptions, log: int, first: int, behind: int, records_max: int, one_at_least: bool
) -> tuple[int, int]:
    """How far whole entries of [first, behind) go with `records_max` records: the next LSN, and the records before it."""
    position, records, read = first, 0, 0
    lsn, of_entry = 0, 0
    async with Reader(client, LogId(log), first, behind - 1) as reader:
        while True:
            room = records_max - read
            if room <= 0:
                if records or not one_at_least:
                    return position, records
                room = _RECORDS_AT_ONCE
            batch = await _read(reader, options, min(room, _RECORDS_AT_ONCE))
            if not batch:
                return behind, records
            read += len(batch)
            whole_to = int(reader.proof().last)
            for run in batch.runs:
                of_entry = of_entry + run.count if run.lsn == lsn else run.count
                lsn = run.lsn
                if lsn > whole_to:
                    break
                if records + of_entry > records_max and (records or not one_at_least):
                    return position, records
                position, records = lsn + 1, records + of_entry
            position = max(position, whole_to + 1)


async def _read(reader: Reader, options: SourceOptions, records_max: int) -> RecordBatch:
    try:
        async with asyncio.timeout(options.read_timeout_us / 1e6):
            return await reader.read(records_max)
    except TimeoutError:
        raise LogDeviceError(
            Status.TIMEDOUT,
            f"log {reader.log}: nothing came for {options.read_timeout_us / 1e6:g} s (readTimeout), waiting for {reader.waiting_for()}",
        ) from None
