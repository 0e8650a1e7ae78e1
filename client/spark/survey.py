"""Where the entries of a range of a log are, found by looking into it here and there.

The cluster can be asked how many bytes a stretch of time holds, not at which LSNs they are. A survey reads a few entries at chosen places: it
finds how far the ESNs of past epochs go, when entries were appended, and how large they are. What it says is an estimate; it decides where
partitions are cut and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import Final

from client.client import Client
from client.read.items import Gap, GapKind
from client.reader import Reader
from client.spark.ranges import Segment
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX

_EPOCHS_MAX: Final = 32
"""So many epochs of a range are looked into; each stands for its neighbours when there are more."""
_PLACES: Final = (3, 8)
"""Within one epoch, fewest and most."""
_ENTRIES_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Sample:
    """The first entry at or behind a place, and what follows it."""

    lsn: int
    bytes_per_lsn: float
    timestamp: int
    """Unix UTC microseconds."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of an epoch, or a few epochs."""

    segment: Segment
    since: int
    """When its first entry was appended, Unix UTC microseconds."""


async def sample(client: Client, log: LogId, lsn: int, last: int) -> Sample | None:
    """Look into a log at `lsn`; None when nothing is there up to `last`."""
    settings = dataclasses.replace(client.read_settings, buffer_bytes=64 << 10, window_lsns=16)
    async with Reader(client, log, lsn, last, settings=settings) as reader:
        while taken := await reader.read_entries(_ENTRIES_AT_ONCE):
            headers = [item[0] for item in taken if not isinstance(item, Gap)]
            if headers:
                first, proof = headers[0], reader.proof()
                return Sample(int(first.lsn), max(1.0, proof.bytes / proof.entries), int(first.timestamp))
    return None


async def oldest(client: Client, log: LogId, tail: int) -> int:
    """The first LSN that was not trimmed."""
    settings = dataclasses.replace(client.read_settings, buffer_bytes=64 << 10, window_lsns=16)
    first = 1
    async with Reader(client, log, first, tail, settings=settings) as reader:
        while taken := await reader.read_entries(1):
            for item in taken:
                if not isinstance(item, Gap):
                    return first
                if item.kind is GapKind.TRIM:
                    first = int(item.hi) + 1
    return first


async def survey(client: Client, log: LogId, lo: int, hi: int) -> tuple[Stretch, ...]:
    """Where the entries of [lo, hi] are, ascending; `hi` is not above the tail."""
    first = await sample(client, log, lo, hi)
    if first is None:
        return ()
    begin, end = first.lsn >> 32, hi >> 32
    epochs = range(begin, end + 1)
    if len(epochs) > _EPOCHS_MAX:
        stride = -(-len(epochs) // _EPOCHS_MAX)
        return await _by_epochs(client, log, first.lsn, hi, range(begin, end + 1, stride))
    places = min(_PLACES[1], max(_PLACES[0], _EPOCHS_MAX // len(epochs)))
    found = await asyncio.gather(*(_epoch(client, log, epoch, first.lsn, hi, places) for epoch in epochs))
    return tuple(stretch for stretches in found for stretch in stretches)


async def _epoch(client: Client, log: LogId, epoch: int, lo: int, hi: int, places: int) -> list[Stretch]:
    """The entries of one epoch within [lo, hi]."""
    start = max(lo, epoch << 32 | 1)
    if hi >> 32 == epoch:
        last = hi
    else:
        found = await sample(client, log, start, epoch << 32 | ESN_MAX)
        if found is None:
            return []
        start = found.lsn
        last = await _last_of(client, log, start)
    width = last - start + 1
    starts = sorted({start + width * place // places for place in range(places)})
    ends = [place - 1 for place in starts[1:]] + [last]
    samples = await asyncio.gather(*(sample(client, log, place, last) for place in starts))
    return [
        Stretch(Segment(place, behind, (behind - place + 1) * found.bytes_per_lsn), found.timestamp)
        for place, behind, found in zip(starts, ends, samples, strict=True)
        if found is not None
    ]


async def _last_of(client: Client, log: LogId, start: int) -> int:
    """About the last entry of the epoch in which `start` is an entry: not behind it, and an eighth of the epoch short at most."""
    end = start | ESN_MAX

    async def is_there(distance: int) -> bool:
        return start + distance <= end and await sample(client, log, start + distance, end) is not None

    low, step = 0, 8
    while await is_there(step):
        low, step = step, step * 8
    high = step
    while high - low > max(4, low // 8):
        middle = (low + high) // 2
        if await is_there(middle):
            low = middle
        else:
            high = middle
    return start + low


async def _by_epochs(client: Client, log: LogId, lo: int, hi: int, epochs: range) -> tuple[Stretch, ...]:
    """A stretch for several epochs, as large as the first of them lets expect."""
    found = await asyncio.gather(*(_epoch(client, log, epoch, lo, hi, _PLACES[0]) for epoch in epochs))
    stretches: list[Stretch] = []
    for epoch, looked_into in zip(epochs, found, strict=True):
        if looked_into:
            size = sum(each.segment.bytes for each in looked_into) * epochs.step
            start = max(lo, epoch << 32 | 1)
            last = min(hi, (epoch + epochs.step - 1) << 32 | ESN_MAX)
            stretches.append(Stretch(Segment(start, last, size), looked_into[0].since))
    return tuple(stretches)
