"""Where the micro-batches of a stream begin and end. Positions are the next LSN to read, by log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from client.client import Client
from client.encryption import EncryptionKeys
from client.read.batch import RecordBatch
from client.reader import Reader
from client.spark.options import Place, SourceOptions
from client.spark.planning import chosen_logs, group_of, start_of, tail_if_known, tail_of
from client.spark.ranges import Cut, spread
from client.spark.survey import oldest
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status

_LOGS_AT_ONCE: Final = 32
_RECORDS_FIRST: Final = 1_000
_RECORDS_AT_ONCE: Final = 10_000
UNLIMITED: Final = 1 << 62
Positions = dict[int, int]


@dataclass(frozen=True, slots=True)
class Load:
    """How much a micro-batch holds, or may hold."""

    records: int = 0
    bytes: int = 0
    """Of payloads and keys."""

    def plus(self, other: Load) -> Load:
        """Both together."""
        return Load(self.records + other.records, self.bytes + other.bytes)

    def without(self, other: Load) -> Load:
        """What is left."""
        return Load(self.records - other.records, self.bytes - other.bytes)

    def least(self, other: Load) -> Load:
        """What fits both."""
        return Load(min(self.records, other.records), min(self.bytes, other.bytes))

    def divided(self, parts: int) -> Load:
        """One of equal parts, but not nothing."""
        return Load(max(1, self.records // parts), max(1, self.bytes // parts))

    def fits(self, room: Load) -> bool:
        """Whether it is not more in any respect."""
        return self.records <= room.records and self.bytes <= room.bytes

    def is_spent(self) -> bool:
        """As room: nothing more goes in."""
        return self.records <= 0 or self.bytes <= 0


async def tail_positions(client: Client, options: SourceOptions) -> Positions:
    """Behind the last LSN that can be read of each log, but for logs which the cluster file has and a node does not know yet."""
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def tail(log: LogId) -> int | None:
        async with turns:
            return await tail_if_known(client, log, options.request_timeout_us)

    logs = chosen_logs(client, options)
    tails = await asyncio.gather(*map(tail, logs))
    return {log: last + 1 for log, last in zip(logs, tails, strict=True) if last is not None}


async def first_positions(client: Client, options: SourceOptions) -> Positions:
    """Where the options let each log begin."""
    logs = chosen_logs(client, options)
    starts = options.start.of_logs(logs, client.config.logs)
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def begin(log: LogId) -> tuple[int, int]:
        async with turns:
            tail = await tail_of(client, log, options.request_timeout_us)
            bound = starts[log]
            if bound.place is Place.LSN:
                return log, max(1, bound.value)
            try:
                async with asyncio.timeout(options.read_timeout_us / 1e6):
                    return log, await start_of(client, log, bound, tail, approximate=options.time_approximate)
            except TimeoutError:
                raise LogDeviceError(
                    Status.TIMEDOUT, f"log {log}: its first LSN could not be found within readTimeout"
                ) from None

    return dict(await asyncio.gather(*(begin(log) for log in logs)))


async def ranges_between(client: Client, begin: Positions, until: Positions, partitions_min: int = 0) -> list[Cut]:
    """What lies between two offsets, the same pieces each time; a log without a beginning starts behind what was trimmed of it."""
    cuts = []
    for log, behind in sorted(until.items()):
        start = begin.get(log)
        if start is None:
            start = await oldest(client, LogId(log), behind - 1) if behind > 1 else 1
        if start < behind:
            cuts.append(Cut(LogId(log), group_of(client, LogId(log)), start, behind - 1))
    return spread(cuts, partitions_min)


async def bounded_positions(
    client: Client, options: SourceOptions, begin: Positions, end: Positions, most: Load, turn: int
) -> Positions:
    """Where the logs are when `most` is taken from all of them, in equal shares as far as they have so much.

    Records are counted by reading them: entries hold any number, and nobody but the readers knows it. Entries stay whole: an entry
    that exceeds what is left is left for the next micro-batch, but a micro-batch has one entry at least. `turn` says whose: it grows from
    one micro-batch to the next, so that no log with large entries has to wait for ever.
    """
    bounded = {log: begin.get(log, 1) for log in end}
    left, keys = most, options.access.keys()
    waiting = [log for log in sorted(end) if bounded[log] < end[log]]
    first = turn % len(waiting) if waiting else 0
    waiting = waiting[first:] + waiting[:first]
    taken_any = False
    while waiting and not left.is_spent():
        share = left.divided(len(waiting))
        still = []
        for log in waiting:
            if left.is_spent():
                break
            count = EntryCount(share.least(left), one_at_least=not taken_any, sizes=most.bytes < UNLIMITED)
            position = await _count(client, options, keys, log, bounded[log], end[log], count)
            taken_any = taken_any or position > bounded[log]
            if position < end[log] and position > bounded[log]:
                still.append(log)
            bounded[log], left = position, left.without(count.taken)
        waiting = still
    # a log that is not in the offset begins at its oldest LSN, so one of which nothing was taken stays out
    return {log: lsn for log, lsn in bounded.items() if log in begin or lsn > 1}


class EntryCount:
    """Whole entries of one log, as long as they fit."""

    def __init__(self, room: Load, *, one_at_least: bool, sizes: bool) -> None:
        """
        Args:
            room: for how much.
            one_at_least: the first entry is taken whatever it holds.
            sizes: bytes matter, too.
        """
        self.taken = Load()
        """Of whole entries."""
        self._room = room
        self._one_at_least = one_at_least
        self._sizes = sizes
        self._lsn = 0
        self._entry = Load()
        """What was read of the entry at that LSN."""
        self._read = Load()

    def add(self, batch: RecordBatch, whole_to: int) -> int | None:
        """Count a batch; the LSN of the first entry that does not fit, None when all do.

        Args:
            batch: what comes next.
            whole_to: entries above are not read to their end.
        """
        at = 0
        for run in batch.runs:
            part = Load(run.count)
            if self._sizes:
                payloads = batch.payloads[at : at + run.count]
                part = Load(run.count, sum(map(len, filter(None, [*payloads, *(run.keys or ())]))))
            at += run.count
            self._read = self._read.plus(part)
            self._entry = self._entry.plus(part) if run.lsn == self._lsn else part
            self._lsn = run.lsn
            if run.lsn > whole_to:
                break
            if not self.taken.plus(self._entry).fits(self._room) and not self._is_first():
                return run.lsn
            self.taken = self.taken.plus(self._entry)
        return None

    def _is_first(self) -> bool:
        return self._one_at_least and not self.taken.records

    def next_records(self) -> int:
        """How many records to read next; 0: no more fit."""
        if not self._read.records:
            return min(_RECORDS_FIRST, self._room.records)
        left = self._room.without(self._read)
        if left.is_spent():
            return _RECORDS_AT_ONCE if self._is_first() else 0
        mean = self._read.bytes // self._read.records
        return min(_RECORDS_AT_ONCE, left.records, left.bytes // max(1, mean) + 1)


async def _count(
    client: Client,
    options: SourceOptions,
    keys: EncryptionKeys | None,
    log: int,
    first: int,
    behind: int,
    count: EntryCount,
) -> int:
    """How far entries of [first, behind) go: the next LSN."""
    position = first
    async with Reader(client, LogId(log), first, behind - 1, encryption=keys) as reader:
        while records := count.next_records():
            batch = await _read(reader, options, records)
            if not batch:
                return behind
            whole_to = int(reader.proof().last)
            beyond = count.add(batch, whole_to)
            if beyond is not None:
                return beyond
            position = max(position, whole_to + 1)
    return position


async def _read(reader: Reader, options: SourceOptions, records_max: int) -> RecordBatch:
    try:
        async with asyncio.timeout(options.read_timeout_us / 1e6):
            return await reader.read(records_max)
    except TimeoutError:
        raise LogDeviceError(
            Status.TIMEDOUT,
            f"log {reader.log}: nothing came for {options.read_timeout_us / 1e6:g} s (readTimeout), waiting for {reader.waiting_for()}",
        ) from None
