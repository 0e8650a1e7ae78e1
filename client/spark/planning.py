"""What is read, fixed once: for every log its first and last LSN, cut into partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from client.client import Client
from client.spark.options import Bound, Place, SourceOptions, logs_named
from client.spark.ranges import Cut, LogRange, cut
from client.spark.survey import oldest, survey
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status

_LOGS_AT_ONCE: Final = 32
_SKEW_US: Final = 60_000_000
"""How far the clocks of two sequencers of a log may differ when filters on timestamps are to find all rows."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """What filters leave of a plan."""

    logs: frozenset[int] | None = None
    """None: all."""
    lo: int = 0
    hi: int = LSN_MAX
    """LSNs, inclusive."""
    since: int | None = None
    until: int | None = None
    """Timestamps, Unix UTC microseconds, inclusive."""


@dataclass(frozen=True, slots=True)
class Extent:
    """[lo, hi] of a log, inclusive; empty when `hi` is smaller."""

    log: LogId
    lo: int
    hi: int
    tail: int = field(compare=False)


def chosen_logs(client: Client, options: SourceOptions) -> list[LogId]:
    """The logs that the options name.

    Raises:
        LogDeviceError: NOTFOUND, INVALID_PARAM.
    """
    return logs_named(options.logs, client.config.logs)


async def tail_of(client: Client, log: LogId, options: SourceOptions) -> int:
    """The last LSN of a log that can be read.

    Raises:
        LogDeviceError: nobody could say in time; the text names the log.
    """
    try:
        return int(await client.tail_lsn(log, timeout=options.request_timeout_us / 1e6))
    except LogDeviceError as error:
        raise _of_log(client, log, error) from None


def _of_log(client: Client, log: LogId, error: LogDeviceError) -> LogDeviceError:
    name = client.config.logs.name(log)
    return LogDeviceError(
        error.status,
        f"log {log} ({name}): {error.detail or error}",
        retriable=error.retriable,
        maybe_applied=error.maybe_applied,
    )


async def start_of(client: Client, log: LogId, bound: Bound, tail: int) -> int:
    """The first LSN of a range."""
    match bound.place:
        case Place.OLDEST:
            return await oldest(client, log, tail) if tail else LSN_OLDEST
        case Place.TAIL:
            return tail + 1
        case Place.LSN:
            return max(bound.value, LSN_OLDEST)
        case Place.TIME:
            return int(await client.find_time(log, bound.value))


async def end_of(client: Client, log: LogId, bound: Bound, tail: int) -> int:
    """The last LSN of a range: not above the tail, so that every action sees the same."""
    match bound.place:
        case Place.OLDEST:
            return 0
        case Place.TAIL:
            return tail
        case Place.LSN:
            return min(bound.value, tail)
        case Place.TIME:
            return min(int(await client.find_time(log, bound.value)) - 1, tail)


async def extents(client: Client, options: SourceOptions, restriction: Restriction) -> list[Extent]:
    """What is to be read of each log.

    Raises:
        LogDeviceError: a log does not exist or did not answer.
    """
    logs = [log for log in chosen_logs(client, options) if restriction.logs is None or log in restriction.logs]
    starts = options.start.by_log(client.config.logs)
    ends = options.end.by_log(client.config.logs)
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def extent(log: LogId) -> Extent:
        async with turns:
            tail = await tail_of(client, log, options)
            try:
                async with asyncio.timeout(options.read_timeout_us / 1e6):
                    lo = await start_of(client, log, starts.get(log, options.start.default), tail)
                    hi = await end_of(client, log, ends.get(log, options.end.default), tail)
                    lo, hi = max(lo, restriction.lo), min(hi, restriction.hi)
                    if restriction.since is not None and lo <= hi:
                        lo = max(lo, int(await client.find_time(log, restriction.since - _SKEW_US)))
                    if restriction.until is not None and lo <= hi:
                        hi = min(hi, int(await client.find_time(log, restriction.until + _SKEW_US + 1)) - 1)
            except TimeoutError:
                raise LogDeviceError(
                    Status.TIMEDOUT, f"log {log}: its first and last LSN could not be found within readTimeout"
                ) from None
            return Extent(log, lo, hi, tail)

    return await asyncio.gather(*(extent(log) for log in logs))


async def plan(client: Client, options: SourceOptions, restriction: Restriction) -> list[Cut]:
    """The partitions of a batch read.

    Raises:
        LogDeviceError: a log does not exist or did not answer.
    """
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)

    async def sized(extent: Extent) -> LogRange:
        group = client.config.logs.group(extent.log)
        path = "" if group is None else group.path
        async with turns:
            try:
                async with asyncio.timeout(options.read_timeout_us / 1e6):
                    segments = await survey(client, extent.log, extent.lo, extent.hi)
            except TimeoutError:
                segments = ()  # sizes are a matter of balance only
        return LogRange(extent.log, path, extent.lo, extent.hi, segments)

    wanted = [each for each in await extents(client, options, restriction) if each.lo <= each.hi]
    ranges = await asyncio.gather(*(sized(each) for each in wanted))
    return cut(ranges, bytes_max=options.partition_bytes_max, partitions_min=options.min_partitions)
