"""How the direct appends of one turn are put into frames."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from google_crc32c import value as crc32c

from client.settings import ClientSettings
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.protocol.messages import AppendFlags

_BATCH = int(AppendFlags.BATCH)


def cut_frames(
    payloads: Sequence[bytes], settings: ClientSettings, *, batching: bool = True
) -> Iterator[tuple[int, int, bytes, int, int]]:
    """Frames for records of one log, in order: (first record, behind the last, payload, its crc32c, flags).

    Neighbouring small records share a frame; a large one has its own. Without batching (logs that give each record an LSN of its own) all
    have their own.
    """
    small = settings.coalesce_bytes if batching else 0
    if small and max(map(len, payloads)) < small:
        yield from _small_frames(payloads, settings.coalesced_frame_bytes)
        return
    full = settings.coalesced_frame_bytes
    first = size = 0
    for index, payload in enumerate(payloads):
        length = len(payload)
        if index > first and (length >= small or size + length > full or index - first >= RECORDS_PER_ENTRY_MAX):
            yield _frame(payloads, first, index)
            first, size = index, 0
        size += length
        if length >= small:
            yield _frame(payloads, first, index + 1)
            first, size = index + 1, 0
    if first < len(payloads):
        yield _frame(payloads, first, len(payloads))


def _small_frames(payloads: Sequence[bytes], full: int) -> Iterator[tuple[int, int, bytes, int, int]]:
    """Of records that are all small, without looking at each."""
    ends = list(accumulate(map(len, payloads)))
    first, count = 0, len(payloads)
    while first < count:
        before = ends[first - 1] if first else 0
        last = min(max(bisect_right(ends, before + full, first), first + 1), first + RECORDS_PER_ENTRY_MAX)
        yield _frame(payloads, first, last)
        first = last


def _frame(payloads: Sequence[bytes], first: int, last: int) -> tuple[int, int, bytes, int, int]:
    if last - first == 1:
        return first, last, payloads[first], crc32c(payloads[first]), 0
    batch = encode_batch(payloads if last - first == len(payloads) else payloads[first:last])
    return first, last, batch, crc32c(batch), _BATCH
