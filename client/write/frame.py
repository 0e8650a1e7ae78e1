"""One frame of a write stream, and who waits for its records."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from client.guards import AppendGuard
from client.promise import Promise
from client.receipt import Receipt, ReceiptRun, Receipts, receipts
from logdevice_py.core.lsn import LSN, Lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.constituents import ContentMark, content_mark
from logdevice_py.protocol.messages import Durability


class FrameFate(enum.Enum):
    """What is known of a frame."""

    QUEUED = enum.auto()  # certainly stored nowhere
    SENT = enum.auto()  # given to the connection; no answer yet
    UNKNOWN = enum.auto()  # sent in an epoch, and no answer will come
    ACKED = enum.auto()  # its position is known


class FramePosition:
    """Where a frame is in the log."""

    __slots__ = ("batch_offset", "copyset", "durability", "lsn", "timestamp")

    def __init__(
        self, lsn: Lsn, batch_offset: int, timestamp: Timestamp, copyset: tuple[int, ...], durability: Durability
    ) -> None:
        self.lsn = lsn
        self.batch_offset = batch_offset
        self.timestamp = timestamp
        self.copyset = copyset
        self.durability = durability


class ReceiptCollector:
    """Gathers the receipts of one `append_many`, whose records may be spread over several frames."""

    __slots__ = ("_error", "_failed", "_missing", "_runs", "_total", "promise")

    def __init__(self, promise: Promise, total: int) -> None:
        self.promise = promise
        self._total = total
        self._missing = total
        self._failed = 0
        self._runs: list[ReceiptRun] = []
        self._error: LogDeviceError | None = None

    def acknowledged(self, run: ReceiptRun) -> None:
        """The next records have their positions."""
        self._runs.append(run)
        self._count(run.count)

    def failed(self, count: int, error: LogDeviceError) -> None:
        """The next records failed."""
        self._failed += count
        if self._error is None or (error.maybe_applied and not self._error.maybe_applied):
            self._error = error
        self._count(count)

    def _count(self, count: int) -> None:
        self._missing -= count
        if self._missing or self.promise.done():
            return
        if self._error is None:
            self.promise.set_result(Receipts(self._runs))
            return
        error = LogDeviceError(
            self._error.status,
            f"{self._failed} of {self._total} records: {self._error.detail or 'not acknowledged'}",
            retriable=self._error.retriable,
            # Some of the call's records are in the log when not all of them failed.
            maybe_applied=self._error.maybe_applied or self._failed < self._total,
        )
        self.promise.set_exception(error)
        self.promise.exception()  # flush and close raise it too: nobody needs to be warned when it is not awaited here


class Share:
    """The part of an `append_many` that one frame carries."""

    __slots__ = ("collector", "count")

    def __init__(self, collector: ReceiptCollector, count: int) -> None:
        self.collector = collector
        self.count = count

    @property
    def promise(self) -> Promise:
        """Who waits for all records of the `append_many`."""
        return self.collector.promise


Span = Promise | Share
"""Who waits for the next record (a promise) or the next records (a share) of a frame."""


class StreamFrame:
    """Records that travel, are stored and are acknowledged together."""

    __slots__ = (
        "crc",
        "cut_at",
        "failed",
        "fate",
        "flags",
        "guard",
        "markers",
        "payload",
        "position",
        "records",
        "request_id",
        "sent_at",
        "sequence",
        "size",
        "spans",
    )

    def __init__(
        self,
        sequence: int,
        payload: bytes,
        crc: int,
        flags: int,
        spans: Sequence[Span],
        records: int,
        size: int,
        now: int,
    ) -> None:
        self.sequence = sequence
        self.payload = payload
        self.crc = crc
        self.flags = flags
        self.spans = spans
        self.records = records
        self.size = size
        """Bytes of its records before packing."""
        self.guard: AppendGuard | None = None
        """What it asks of the end of the log."""
        self.cut_at = now
        self.sent_at = 0
        self.fate = FrameFate.QUEUED
        self.request_id = 0
        self.position: FramePosition | None = None
        self.failed = False
        """Its records were reported as failed; it is kept only until it is known whether it was stored."""
        self.markers: list[Callable[[], None]] = []
        """Called when its records have their outcome."""

    @property
    def content(self) -> ContentMark:
        """Tells it from what somebody else may have sent with its number."""
        return content_mark(self.flags, self.records, self.crc, self.payload)

    def acknowledge(self) -> None:
        """Give everybody the receipt."""
        position = self.position
        assert position is not None
        lsn, offset = LSN(position.lsn), position.batch_offset
        timestamp, copyset, durability = position.timestamp, position.copyset, position.durability
        if Share not in set(map(type, self.spans)):
            for promise, receipt in zip(
                self.spans, receipts(len(self.spans), lsn, offset, timestamp, copyset, durability), strict=True
            ):
                if not promise.done():  # type: ignore[union-attr]
                    promise.set_result(receipt)  # type: ignore[union-attr]
            self._told()
            return
        for span in self.spans:
            if type(span) is Share:
                span.collector.acknowledged(ReceiptRun(span.count, lsn, offset, timestamp, copyset, durability))
                offset += span.count
            else:
                if not span.done():  # type: ignore[union-attr]
                    span.set_result(Receipt(lsn, offset, timestamp, copyset, durability))  # type: ignore[union-attr]
                offset += 1
        self._told()

    def fail(self, error: LogDeviceError) -> None:
        """Tell everybody why not."""
        for span in self.spans:
            if type(span) is Share:
                span.collector.failed(span.count, error)
            elif not span.done():  # type: ignore[union-attr]
                span.set_exception(error)  # type: ignore[union-attr]
                span.exception()  # type: ignore[union-attr]
        self._told()

    def _told(self) -> None:
        self.spans = ()
        markers, self.markers = self.markers, []
        for marker in markers:
            marker()
