"""Trims raw logs as far as they are dealt, and old enough for readers that follow them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from indexlog.index_log import IndexLog
from indexlog.places import raw_group
from logdevice_py.core.lsn import LSN, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import utc_datetime


async def trim_raw_logs(log: IndexLog, *, keep: float) -> dict[int, LSN]:
    """Trim what is dealt of each raw log, and all of those that are dealt whole and not written to any more.

    It goes for good, also for `verify`. A reader whose token needs it gets `PageExpired`.

    Args:
        log: the index log.
        keep: what is younger than so many seconds, by the index log's clock, stays: longer than readers that follow it are away, or read one moment.

    Returns:
        Of each raw log, up to which LSN nothing is kept.

    Raises:
        LogDeviceError: as `Client.trim` and `Client.find_time`.
    """
    before = utc_datetime(log.now()) - timedelta(seconds=keep)
    # only what the confirmed manifest says is dealt is in containers for good
    await log.manifest.current()
    dealt: list[tuple[int, int | None]] = [*sorted(log.state.dealt.items())]
    dealt += [(raw, None) async for raw in _earlier(log)]
    points = await asyncio.gather(*(_trim(log, raw, lsn, before) for raw, lsn in dealt))
    return {raw: point for (raw, _), point in zip(dealt, points, strict=True)}


async def _earlier(log: IndexLog) -> AsyncIterator[int]:
    """The raw logs of generations that are dealt whole."""
    for number in range(log.state.generations[0].number):
        try:
            group = await log.client.get_log_group(raw_group(log.path, number))
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND:  # somebody removed it
                raise
            continue
        for raw in group.logs:
            yield raw


async def _trim(log: IndexLog, raw: int, dealt: int | None, before: datetime) -> LSN:
    client = log.client
    if dealt is None:
        dealt = await client.tail_lsn(raw)
    until = LSN(min(dealt, await client.find_time(raw, before) - 1)) if dealt >= LSN_OLDEST else LSN(0)
    if until >= LSN_OLDEST:
        await client.trim(raw, until)
    return until
