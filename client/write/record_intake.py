"""Where records of a write stream become frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from client.guards import AppendGuard, Guards
from client.promise import Promise
from client.write.batching import OpenBatch, ends_of
from client.write.context import StreamOwner
from client.write.frame import ReceiptCollector
from client.write.frame_queue import FrameQueue
from logdevice_py.core.batch import BYTES_PER_RECORD
from logdevice_py.core.machine import Timer, TimerQueue
from logdevice_py.core.record_keys import KEY_OVERHEAD
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.core.units import Micros

LINGER_US: Final = 10_000
"""Longest wait of a record for others while frames are unacknowledged, when the time trigger is left to the stream."""


class RecordIntake:
    """The open batch of a stream: cut into a frame when it is full, when its time has come, or when somebody wants it."""

    __slots__ = ("_frames", "_on_cut", "_owner", "_timer", "_timers", "batch", "payload_max")

    def __init__(
        self,
        owner: StreamOwner,
        frames: FrameQueue,
        timers: TimerQueue,
        payload_max: int,
        on_cut: Callable[[Micros], None],
        seal: Seal | None = None,
    ) -> None:
        """
        Args:
            owner: whose records these are.
            frames: where frames go.
            timers: the client's.
            payload_max: the longest record, and frame, that the log takes.
            on_cut: called when the batch was cut by its timer, or for another limit.
            seal: encrypts batches; None: they are not encrypted.
        """
        self.payload_max = payload_max
        self._owner = owner
        self._frames = frames
        self._timers = timers
        self._on_cut = on_cut
        self.batch = OpenBatch(owner.settings, payload_max, seal)
        self._timer: Timer | None = None

    def __bool__(self) -> bool:
        return bool(self.batch)

    def append(
        self,
        payload: bytes,
        promise: Promise,
        now: Micros,
        key: bytes | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
    ) -> None:
        """Take one record. The promise gets its `Receipt`."""
        batch = self.batch
        size = len(payload) if key is None else len(payload) + len(key) + KEY_OVERHEAD
        if not batch.fits(size):
            self.cut(now)
        self._guard(guard, now)
        batch.add(payload, promise, key)
        batch.synced = batch.synced or synced
        self._owner.take(1, size)
        if batch.full:
            self.cut(now)

    def append_many(
        self,
        payloads: Sequence[bytes],
        promise: Promise,
        now: Micros,
        keys: Sequence[bytes | None] | None = None,
        *,
        synced: bool = False,
        guards: Guards | None = None,
    ) -> None:
        """Take many records, one at least. The promise gets their `Receipts`."""
        batch = self.batch
        ends = ends_of(payloads, keys)
        collector = ReceiptCollector(promise, len(payloads))
        start = 0
        while start < len(payloads):
            if guards is not None or batch.guard is not None:
                if not batch.fits(ends[start] - (ends[start - 1] if start else 0) - BYTES_PER_RECORD):
                    # First: a frame must not have the guard of a record that goes into the next one.
                    self.cut(now)
                self._guard(None if guards is None else guards.part(start, start + 1), now)
            taken = batch.add_many(payloads, start, ends, collector, keys)
            if taken and guards is not None:
                self._guard(guards.part(start, start + taken), now)
            if taken:
                batch.synced = batch.synced or synced
            start += taken
            if not taken or batch.full or start < len(payloads):
                self.cut(now)
        self._owner.take(len(payloads), ends[-1] - BYTES_PER_RECORD * len(payloads))

    def append_whole(
        self,
        payloads: Sequence[bytes],
        promise: Promise,
        now: Micros,
        keys: Sequence[bytes | None] | None = None,
        *,
        synced: bool = False,
        guards: Guards | None = None,
    ) -> None:
        """Take an atomic batch, which an entry can hold: all of it goes into one frame. The promise gets the `Receipts`."""
        batch, count = self.batch, len(payloads)
        size = ends_of(payloads, keys)[-1]
        if not batch.fits_whole(count, size):
            self.cut(now)
        if guards is not None or batch.guard is not None:
            self._guard(None if guards is None else guards.part(0, count), now)
        batch.add_whole(payloads, size, ReceiptCollector(promise, count), keys)
        batch.synced = batch.synced or synced
        self._owner.take(count, size - BYTES_PER_RECORD * count)
        if batch.full:
            self.cut(now)

    def _guard(self, guard: AppendGuard | None, now: Micros) -> None:
        """The next record has this guard: it may need a frame of its own."""
        if not self.batch.takes(guard):
            self.cut(now)
            self.batch.takes(guard)

    def use_limit(self, payload_max: int, now: Micros) -> None:
        """The log takes payloads up to this length from now on."""
        if payload_max != self.payload_max:
            self.cut(now)
            self.payload_max = payload_max
            self.batch.use_limit(payload_max)
            self._on_cut(now)

    def cut(self, now: Micros) -> None:
        """A frame of what is open, if anything is."""
        if not self.batch:
            return
        self.cancel_timer()
        frame = self.batch.cut(self._frames.next_sequence, now)
        self._frames.put(frame)
        metrics = self._owner.metrics
        metrics.bytes_before_compression += frame.size
        metrics.bytes_of_frames += len(frame.payload)

    def on_turn_end(self, now: Micros) -> None:
        """Cut if it is time, or see to it that it will be."""
        if self.batch:
            trigger = self._owner.settings.time_trigger_us
            if trigger == 0 or (trigger < 0 and not self._frames):
                self.cut(now)
            elif self._timer is None:
                self._timer = self._timers.at(now + (LINGER_US if trigger < 0 else trigger), self._on_timer)

    def on_idle(self, now: Micros) -> None:
        """Every frame is acknowledged: a record that waited for that waits no longer."""
        if self._owner.settings.time_trigger_us < 0:
            self.cut(now)

    def _on_timer(self, now: Micros) -> None:
        self._timer = None
        self.cut(now)
        self._on_cut(now)

    def cancel_timer(self) -> None:
        """The batch is not cut by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
