"""How the direct appends of one turn are put into frames."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from google_crc32c import value as crc32c

from client.settings import ClientSettings
from logdevice_py.core.batch import BATCH_OVERHEAD, BYTES_PER_RECORD, encode_batch
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.record_keys import KEY_OVERHEAD, encode_keys
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.protocol.messages import AppendFlags

_BATCH = int(AppendFlags.BATCH)
_KEYS = int(AppendFlags.KEYS)
_NO_KEYS: Mapping[int, bytes] = {}


def cut_frames(
    payloads: Sequence[bytes],
    settings: ClientSettings,
    payload_max: int,
    *,
    batching: bool = True,
    keys: Mapping[int, bytes] = _NO_KEYS,
) -> Iterator[tuple[int, int, bytes, int, int]]:
    """Frames for records of one log, in order: (first record, behind the last, payload, its crc32c, flags).

    Neighbouring small records share a frame; a large one has its own. Without batching (logs that give each record an LSN of its own) all
    have their own. `keys` are those of records that have one, by index. What records share stays within `payload_max`, which the log takes.
    """
    room = min(settings.coalesced_frame_bytes, payload_max - BATCH_OVERHEAD)
    small = settings.coalesce_bytes if batching else 0
    if small and not keys and max(map(len, payloads)) < small:
        yield from _small_frames(payloads, room)
        return
    first = size = 0
    for index, payload in enumerate(payloads):
        length = len(payload) + (len(keys[index]) + KEY_OVERHEAD if index in keys else 0)
        taken = length + BYTES_PER_RECORD
        if index > first and (length >= small or size + taken > room or index - first >= RECORDS_PER_ENTRY_MAX):
            yield whole_frame(payloads, first, index, keys)
            first, size = index, 0
        size += taken
        if length >= small:
            yield whole_frame(payloads, first, index + 1, keys)
            first, size = index + 1, 0
    if first < len(payloads):
        yield whole_frame(payloads, first, len(payloads), keys)


def _small_frames(payloads: Sequence[bytes], room: int) -> Iterator[tuple[int, int, bytes, int, int]]:
    """Of records that are all small, without looking at each."""
    ends = [end + BYTES_PER_RECORD * count for count, end in enumerate(accumulate(map(len, payloads)), 1)]
    first, count = 0, len(payloads)
    while first < count:
        before = ends[first - 1] if first else 0
        last = min(max(bisect_right(ends, before + room, first), first + 1), first + RECORDS_PER_ENTRY_MAX)
        yield whole_frame(payloads, first, last)
        first = last


def whole_frame(
    payloads: Sequence[bytes],
    first: int,
    last: int,
    keys: Mapping[int, bytes] = _NO_KEYS,
    seal: Seal | None = None,
) -> tuple[int, int, bytes, int, int]:
    """One frame, as in `cut_frames`, of all records from `first` on, before `last`. seal: encrypts them; their keys are not."""
    flags, payload = 0, payloads[first]
    if last - first > 1 or seal is not None:
        flags, payload = _BATCH, encode_batch(payloads if last - first == len(payloads) else payloads[first:last])
        if seal is not None:
            payload = seal(payload, last - first)
    if keys:
        own = list(map(keys.get, range(first, last)))
        if any(key is not None for key in own):
            flags, payload = flags | _KEYS, encode_keys(own) + payload
    return first, last, payload, crc32c(payload), flags
