"""The open batch of a write stream: records that will share the next frame."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from google_crc32c import value as crc32c

from client.guards import AppendGuard
from client.promise import Promise
from client.settings import WriterSettings
from client.write.frame import ReceiptCollector, Share, Span, StreamFrame
from logdevice_py.core.batch import BATCH_OVERHEAD, BYTES_PER_RECORD, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.record_keys import KEY_OVERHEAD, encode_keys
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import AppendFlags

_STREAM = int(AppendFlags.WRITE_STREAM)
_KEYS = int(AppendFlags.KEYS)
_SYNC = int(AppendFlags.SYNC)
_STREAM_BATCH = int(AppendFlags.WRITE_STREAM | AppendFlags.BATCH)
COMPRESSIONS = {"none": Compression.NONE, "lz4": Compression.LZ4, "zstd": Compression.ZSTD}


class OpenBatch:
    """Records in call order. Per record of an `append_many` nothing is created.

    `BufferedWriter.append` puts records into it without a call, as `add` does, where they leave some room.
    """

    __slots__ = (
        "_compression",
        "_full",
        "_max",
        "_seal",
        "_size_trigger",
        "guard",
        "keys",
        "records",
        "room",
        "spans",
        "synced",
    )

    def __init__(self, settings: WriterSettings, payload_max: int, seal: Seal | None = None) -> None:
        """
        Args:
            seal: encrypts batches; None: they are not encrypted.
        """
        self._seal = seal
        self._compression = COMPRESSIONS[settings.compression]
        self._size_trigger = settings.size_trigger_bytes
        self.records: list[bytes] = []
        self.spans: list[Span] = []
        self.keys: dict[int, bytes] = {}
        """By index, of the records that have one."""
        self.guard: AppendGuard | None = None
        """What its records ask of the end of the log."""
        self.synced = False
        """Some record is to be synced whatever the log's durability; its whole frame is."""
        self.use_limit(payload_max)

    def use_limit(self, payload_max: int) -> None:
        """The log takes payloads up to this length from now on. The batch is empty."""
        assert not self.records
        self._max = payload_max
        self._full = max(1, min(self._size_trigger, payload_max - BATCH_OVERHEAD))
        self.room = self._full
        """Bytes, `BYTES_PER_RECORD` for each record included, at which it is full; below 0 when its last record took more."""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def full(self) -> bool:
        """It should be cut."""
        return self.room <= 0 or len(self.records) >= RECORDS_PER_ENTRY_MAX

    def fits(self, length: int) -> bool:
        """A record of this length may join without breaking the limit of an entry."""
        return self._full - self.room + length + BYTES_PER_RECORD + BATCH_OVERHEAD <= self._max or not self.records

    def fits_whole(self, count: int, size: int) -> bool:
        """Whether so many records of an atomic batch, which take `size` with their keys, may join those that are here."""
        records = self.records
        if not records:
            return True
        within = self._full - self.room + size + BATCH_OVERHEAD <= self._max
        return within and len(records) + count <= RECORDS_PER_ENTRY_MAX

    def takes(self, guard: AppendGuard | None) -> bool:
        """Whether a record with that guard may share the frame; then the guard is that of both."""
        if not self.records or (guard is None and self.guard is None):
            self.guard = guard
            return True
        both = guard if self.guard is None else self.guard.joined(guard)
        if both is None or (self.guard is None and not both.joined(None)):
            return False
        self.guard = both
        return True

    def add(self, payload: bytes, promise: Promise, key: bytes | None = None) -> None:
        """Take one record."""
        if key is not None:
            self.keys[len(self.records)] = key
            self.room -= len(key) + KEY_OVERHEAD
        self.records.append(payload)
        self.spans.append(promise)
        self.room -= len(payload) + BYTES_PER_RECORD

    def add_many(
        self,
        payloads: Sequence[bytes],
        start: int,
        ends: Sequence[int],
        collector: ReceiptCollector,
        keys: Sequence[bytes | None] | None = None,
    ) -> int:
        """Take as many records from `start` on as fill the batch, one at least when it is empty; how many were taken.

        Args:
            payloads: the records.
            start: index of the first to take.
            ends: for each record the bytes up to its end.
            collector: who waits.
            keys: of the records, one each.
        """
        before = ends[start - 1] if start else 0
        # Ends carry BYTES_PER_RECORD a record already: they are what the batch will take.
        stop = bisect_right(ends, before + self.room, start)
        stop = min(max(stop, start + 1), start + RECORDS_PER_ENTRY_MAX - len(self.records), len(payloads))
        if stop == start + 1 and not self.fits(ends[start] - before - BYTES_PER_RECORD):
            return 0
        count = stop - start
        if keys is not None:
            shift = len(self.records) - start
            for index in range(start, stop):
                if (key := keys[index]) is not None:
                    self.keys[index + shift] = key
        self.records.extend(payloads if count == len(payloads) else payloads[start:stop])
        self.spans.append(Share(collector, count))
        self.room -= ends[stop - 1] - before
        return count

    def add_whole(
        self,
        payloads: Sequence[bytes],
        size: int,
        collector: ReceiptCollector,
        keys: Sequence[bytes | None] | None = None,
    ) -> None:
        """Take all records of an atomic batch, which `fits_whole`; they may be more than what is cut otherwise."""
        if keys is not None:
            self.keys.update({at: key for at, key in enumerate(keys, len(self.records)) if key is not None})
        self.records.extend(payloads)
        self.spans.append(Share(collector, len(payloads)))
        self.room -= size

    def cut(self, sequence: int, now: Micros) -> StreamFrame:
        """The frame of all records taken; the batch is empty afterwards."""
        records, spans, keys = self.records, self.spans, self.keys
        size = self._full - self.room - BYTES_PER_RECORD * len(records)
        self.records, self.spans, self.room = [], [], self._full
        payload, flags = records[0], _STREAM
        if self._seal is not None:
            payload, flags = self._seal(encode_batch(records, self._compression), len(records)), _STREAM_BATCH
        elif len(records) > 1 or self._compression is not Compression.NONE:
            batch = encode_batch(records, self._compression)
            if len(records) > 1 or len(batch) < len(payload):
                payload, flags = batch, _STREAM_BATCH
        if self.synced:
            self.synced = False
            flags |= _SYNC
        if keys:
            self.keys = {}
            payload, flags = encode_keys(list(map(keys.get, range(len(records))))) + payload, flags | _KEYS
        frame = StreamFrame(sequence, payload, crc32c(payload), flags, spans, len(records), size, now)
        frame.guard, self.guard = self.guard, None
        return frame


def ends_of(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None = None) -> list[int]:
    """For each record what a batch takes up to its end, its key included."""
    sizes = map(len, payloads) if keys is None else map(_size, payloads, keys)
    return [end + BYTES_PER_RECORD * index for index, end in enumerate(accumulate(sizes), 1)]


def _size(payload: bytes, key: bytes | None) -> int:
    return len(payload) if key is None else len(payload) + len(key) + KEY_OVERHEAD
