"""What is read, fixed once: for every log its first and last LSN, cut into partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from client.client import Client
from client.spark.options import Bound, Place, SourceOptions, check_order, logs_named
from client.spark.ranges import Cut, LogRange, Segment, cut, share_of
from client.spark.sizes import size_between, sized
from client.spark.survey import oldest, survey
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_LOGS_AT_ONCE: Final = 32
_UNKNOWN_LOG_US: Final = 200_000
"""After so long a node is asked again for a log that it does not know yet."""
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


async def tail_of(client: Client, log: LogId, timeout_us: Micros) -> int:
    """The last LSN of a log of the cluster file that can be read. A node that has an older file does not know the log yet: it is asked again.

    Raises:
        LogDeviceError: nobody could say in time; the text names the log.
    """
    deadline = client.now() + timeout_us
    while True:
        try:
            return int(await client.tail_lsn(log, timeout=max(1, deadline - client.now()) / 1e6))
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND or client.now() + _UNKNOWN_LOG_US >= deadline:
                raise _of_log(client, log, error) from None
        await asyncio.sleep(_UNKNOWN_LOG_US / 1e6)


async def tail_if_known(client: Client, log: LogId, timeout_us: Micros) -> int | None:
    """The same without asking again; None: the node does not know the log yet.

    Raises:
        LogDeviceError: nobody could say in time; the text names the log.
    """
    try:
        return int(await client.tail_lsn(log, timeout=timeout_us / 1e6))
    except LogDeviceError as error:
        if error.status is Status.NOTFOUND:
            return None
        raise _of_log(client, log, error) from None


async def any_answers(client: Client, logs: list[LogId], timeout_us: Micros) -> None:
    """Wait for the tails of logs; that of one is enough.

    Raises:
        LogDeviceError: of none of them, why not of the first.
    """
    outcomes = await asyncio.gather(*(tail_of(client, log, timeout_us) for log in logs), return_exceptions=True)
    failures = [each for each in outcomes if isinstance(each, BaseException)]
    if failures and len(failures) == len(outcomes):
        raise failures[0]


def _of_log(client: Client, log: LogId, error: LogDeviceError) -> LogDeviceError:
    name = client.config.log_name(log)
    return LogDeviceError(
        error.status,
        f"log {log} ({name}): {error.detail or error}",
        retriable=error.retriable,
        maybe_applied=error.maybe_applied,
    )


async def start_of(client: Client, log: LogId, bound: Bound, tail: int, *, approximate: bool) -> int:
    """The first LSN of a range; `approximate`: one by time may be too early."""
    match bound.place:
        case Place.OLDEST:
            return await oldest(client, log, tail) if tail else LSN_OLDEST
        case Place.TAIL:
            return tail + 1
        case Place.LSN:
            return max(bound.value, LSN_OLDEST)
        case Place.TIME:
            return int(await client.find_time(log, bound.value, approximate=approximate))


async def end_of(client: Client, log: LogId, bound: Bound, tail: int, *, approximate: bool) -> int:
    """The last LSN of a range: not above the tail, so that every action sees the same; `approximate`: one by time may be too early."""
    match bound.place:
        case Place.OLDEST:
            return 0
        case Place.TAIL:
            return tail
        case Place.LSN:
            return min(bound.value, tail)
        case Place.TIME:
            return min(int(await client.find_time(log, bound.value, approximate=approximate)) - 1, tail)


async def extents(client: Client, options: SourceOptions, restriction: Restriction) -> list[Extent]:
    """What is to be read of each log.

    Raises:
        LogDeviceError: INVALID_PARAM (a range ends before it begins); a log does not exist or did not answer.
    """
    chosen = chosen_logs(client, options)
    starts = options.start.of_logs(chosen, client.config.logs)
    ends = options.end.of_logs(chosen, client.config.logs)
    for log in chosen:
        check_order(log, starts[log], ends[log])
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)
    rough = options.time_approximate

    async def extent(log: LogId) -> Extent:
        async with turns:
            tail = await tail_of(client, log, options.request_timeout_us)
            try:
                async with asyncio.timeout(options.read_timeout_us / 1e6):
                    lo = await start_of(client, log, starts[log], tail, approximate=rough)
                    hi = await end_of(client, log, ends[log], tail, approximate=rough)
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

    return await asyncio.gather(*(extent(log) for log in chosen if restriction.logs is None or log in restriction.logs))


async def plan(client: Client, options: SourceOptions, restriction: Restriction) -> list[Cut]:
    """The partitions of a batch read. Only logs that are to be cut are looked into.

    Raises:
        LogDeviceError: a log does not exist or did not answer.
    """
    found = await extents(client, options, restriction)
    return await cuts_of(client, options, {each: group_of(client, each.log) for each in found})


async def cuts_of(client: Client, options: SourceOptions, groups: Mapping[Extent, str]) -> list[Cut]:
    """The partitions of what is to be read, each with the path that its rows name. Empty extents have none."""
    turns = asyncio.Semaphore(_LOGS_AT_ONCE)
    seconds = options.request_timeout_us / 1e6

    async def size(extent: Extent) -> int | None:
        async with turns, _in_time(seconds):
            return await size_between(client, extent.log, extent.lo, extent.hi, extent.tail, seconds)
        return None

    async def segments(extent: Extent, whole: int | None) -> tuple[Segment, ...]:
        if whole is not None and whole <= share:
            return (Segment(extent.lo, extent.hi, whole),)
        async with turns, _in_time(options.read_timeout_us / 1e6):
            return await sized(
                client, extent.log, await survey(client, extent.log, extent.lo, extent.hi), whole, seconds
            )
        return ()

    wanted = [each for each in groups if each.lo <= each.hi]
    sizes = await asyncio.gather(*map(size, wanted))
    most, least = options.partition_bytes_max, options.min_partitions
    share = share_of([each or 0 for each in sizes], bytes_max=most, partitions_min=least)
    found = await asyncio.gather(*map(segments, wanted, sizes))
    ranges = [
        LogRange(each.log, groups[each], each.lo, each.hi, parts) for each, parts in zip(wanted, found, strict=True)
    ]
    return cut(ranges, bytes_max=most, partitions_min=least)


@asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    """Sizes are a matter of balance only: what takes too long is left undone."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        pass


def group_of(client: Client, log: LogId) -> str:
    """The path of the log's group; empty for a log that is not in the cluster file."""
    group = client.config.group(log)
    return "" if group is None else group.path
