"""What earlier tries of a task appended to a log, found by reading it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

from client.client import Client
from client.spark.naming import WriteName
from client.spark.rows import Rows
from client.takeover import recovered, stored_frames
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX, LSN, Epoch, Lsn, compose_lsn, epoch_of
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

_LOOKS_BACK_US: Final = (10_000_000, 300_000_000, 3_600_000_000, 86_400_000_000)
"""How far before the last record one looks first, and then."""
_SKEW_US: Final = 60_000_000
"""How far the clocks of a log's sequencers and of who says when the work began may differ."""
_MOVES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class EarlierTries:
    """What a log holds of a task, below an epoch in which nobody has begun to go on with it yet."""

    view: Epoch
    stored: Counter[bytes]
    """How often each record is there, by digest."""
    partitions: int = 0
    """Bit n: partition n of this micro-batch or job has records here."""


async def earlier_tries(
    client: Client, log: LogId, name: WriteName, *, since: int | None, min_epoch: int, timeout_us: Micros
) -> EarlierTries:
    """Look for them.

    Args:
        client: an open client.
        log: where.
        name: the task.
        since: Unix UTC microseconds: the work that the task belongs to began then or later; None: nobody knows.
        min_epoch: makes the log move on when it is in an earlier epoch, and with that shuts out tries under way.
        timeout_us: how long this may take.

    Raises:
        LogDeviceError: DATALOSS (a part of what is to be read is lost), TIMEDOUT, or a retriable status.
    """
    try:
        async with asyncio.timeout(timeout_us / 1e6):
            for _ in range(_MOVES_MAX):
                state = await recovered(client, log, min_epoch=min_epoch, timeout_us=timeout_us)
                until = max(state.last_released, compose_lsn(Epoch(state.epoch - 1), ESN_MAX))
                stored, newest, partitions = await _look(client, log, name, int(until), state.tail_timestamp, since)
                if newest < state.epoch:
                    return EarlierTries(state.epoch, stored, partitions)
                min_epoch = state.epoch + 1  # somebody has the stream in this epoch
    except TimeoutError:
        pass
    raise LogDeviceError(
        Status.TIMEDOUT,
        f"log {log}: what earlier tries appended could not be read within {timeout_us / 1e6:g} s (readTimeout)",
        maybe_applied=False,
    )


async def _look(
    client: Client, log: LogId, name: WriteName, until: int, tail_us: int, since: int | None
) -> tuple[Counter[bytes], int, int]:
    """Records of the task by digest, the last epoch with any, and which partitions have some; backwards, as far as there may be some."""
    stored: Counter[bytes] = Counter()
    newest, partitions, behind = 0, 0, until + 1
    if epoch_of(Lsn(until)) == 0:
        return stored, newest, partitions  # nothing was ever written
    bound = 1 if since is None else int(await client.find_time(log, since - _SKEW_US))
    for back in (*_LOOKS_BACK_US, None):
        first = bound if back is None else max(bound, int(await client.find_time(log, max(0, tail_us - back))))
        if first >= behind:
            if first == bound:
                break
            continue
        found = await stored_frames(client, log, first, behind - 1, name.is_sibling)
        if found.lost:
            raise LogDeviceError(
                Status.DATALOSS,
                f"log {log}: something from {LSN(first)} to {LSN(behind - 1)} is lost: it cannot be told what earlier tries appended",
            )
        for frame in found.frames:
            partition = name.partition_of(frame.writer)
            if partition is not None:
                partitions |= 1 << partition
            if name.is_own(frame.writer):
                stored.update(Rows(*frame.records()).digests())
                newest = max(newest, epoch_of(frame.lsn))
        behind = first
        if first == bound or any(name.is_of_earlier_batch(frame.writer) for frame in found.frames):
            break
    return stored, newest, partitions
