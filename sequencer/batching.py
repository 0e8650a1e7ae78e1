"""Which frames become one entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from google_crc32c import value as crc32c

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core.batch import decode_batch, unpacked_size
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX, ConstituentFlags
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId
from logdevice_py.core.record_keys import encode_keys, split_keys
from sequencer.frames import Frame, SplitAppend

_STREAM: Final = int(ConstituentFlags.WRITE_STREAM)
_BATCH: Final = int(ConstituentFlags.BATCH)
_KEYS: Final = int(ConstituentFlags.KEYS)


UNPACKED_MAX: Final = 16 << 20
"""Bytes that the frames of a shared entry may declare to unpack to, together. A reader unpacks an entry as a whole: hundreds of small frames that stand for 64 MiB each would
take all of its memory."""


class OpenEntry:
    """The frames of one log that arrived since the last entry was cut. All of them are frames of write streams, or none is."""

    __slots__ = ("alone", "bytes", "frames", "records", "stream", "unpacked")

    def __init__(self, stream: bool, *, alone: bool = False) -> None:
        """`alone`: nothing joins the first frame."""
        self.alone = alone
        self.frames: list[Frame] = []
        self.records = 0
        self.bytes = 0
        self.unpacked = 0
        self.stream = stream

    def add(self, frame: Frame) -> None:
        """Take a frame that `fits`."""
        self.frames.append(frame)
        self.records += frame.records
        self.bytes += len(frame.payload)
        self.unpacked += unpacked_size(frame.payload, frame.flags)

    def fits(self, frame: Frame, attributes: LogAttributes) -> bool:
        """Whether the frame may share the entry: same kind, and the entry stays below the largest payload, number of records and size of the
        unpacked records."""
        return (
            not self.alone
            and bool(frame.flags & _STREAM) is self.stream
            and self.bytes + len(frame.payload) <= attributes.max_payload_bytes
            and self.records + frame.records <= RECORDS_PER_ENTRY_MAX
            and self.unpacked + unpacked_size(frame.payload, frame.flags) <= UNPACKED_MAX
        )


def is_worth_packing(frames: Sequence[Frame]) -> bool:
    """Whether clients left more than half of the bytes unpacked."""
    sizes = [(len(frame.payload), unpacked_size(frame.payload, frame.flags)) for frame in frames]
    return 2 * sum(size for size, unpacked in sizes if unpacked <= size) > sum(size for size, _ in sizes)


def is_batched(log: LogId, attributes: LogAttributes) -> bool:
    """Whether frames of the log may share an entry at all."""
    return attributes.sequencer_batching and log <= USER_LOG_ID_MAX


def compression_of(log: LogId, attributes: LogAttributes) -> Compression:
    """How entries of the log are packed. Internal logs are not: nodes of an earlier version read them, too."""
    return attributes.batching_compression if log <= USER_LOG_ID_MAX else Compression.NONE


def is_split(frame: Frame) -> bool:
    """Whether a frame of a log without batching must be taken apart. A write stream's frame is kept whole: its writer finds it again by its number.
    So is an atomic batch: readers must see all of it or nothing."""
    return bool(frame.flags & _BATCH) and not (frame.flags & _STREAM or frame.atomic)


def split(frame: Frame) -> list[Frame]:
    """A frame for each record of a batch; they are answered together.

    Raises:
        CorruptEntryError: the payload does not hold what it declares.
    """
    payload, keys = frame.payload, None
    if frame.flags & _KEYS:
        keys, payload = split_keys(payload, frame.records)
    records = decode_batch(payload, frame.records)
    group = SplitAppend(len(records))
    frames = [
        Frame(
            record,
            1,
            crc32c(record),
            0,
            peer=frame.peer,
            request_id=frame.request_id,
            split=group,
            store_flags=frame.store_flags,
        )
        for record in records
    ]
    for part, key in zip(frames, keys or (), strict=keys is not None):
        if key is not None:
            part.payload = encode_keys([key]) + part.payload
            part.crc = crc32c(part.payload)
            part.flags = _KEYS
    return frames
