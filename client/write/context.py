"""What write streams share: the machines of their client, and the writer that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from client.append.router import Routes
from client.append.seq_state_request import SeqStateRequests
from client.links import Links
from client.metrics import WriterMetrics
from client.settings import ClientSettings, WriterSettings
from client.write.finder import FrameFinder
from client.write.frame import StreamFrame
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.machine import Rng, TimerQueue
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Micros

RECORD_OVERHEAD: Final = 100
"""Bytes of memory that a record takes beside its own: even empty ones are not free."""


@dataclass(slots=True)
class StreamContext:
    """What the streams of a client share."""

    routes: Routes
    links: Links
    timers: TimerQueue
    rng: Rng
    ids: Iterator[int]
    questions: SeqStateRequests
    finder: FrameFinder
    frames: dict[int, Any]
    """Every APPEND frame of a stream that awaits its answer: request id -> (stream, frame)."""
    probe: Callable[[LogId, NodeId, int, Micros], None]
    """Ask another node than this one where a log is, and this one what it waits for."""
    settings: ClientSettings


def _clear(log: LogId) -> None:
    """Batches are not encrypted."""


class FrameObserver(Protocol):
    """Hears of each frame of a writer when its records have their outcome, and before they are told."""

    def has_outcome(self, log: LogId, frame: StreamFrame, error: LogDeviceError | None) -> None:
        """None: its records are acknowledged."""
        ...


class StreamOwner:
    """What a stream reports to the writer that it belongs to."""

    __slots__ = ("failures", "first_error", "metrics", "observer", "records", "room", "sealer", "settings")

    def __init__(
        self, settings: WriterSettings, metrics: WriterMetrics, sealer: Callable[[LogId], Seal | None] = _clear
    ) -> None:
        self.sealer = sealer
        """What encrypts the batches of a log; it gives None where they are not encrypted."""
        self.settings = settings
        self.metrics = metrics
        self.room = settings.memory_bytes_max
        """Bytes that further records may take, `RECORD_OVERHEAD` for each included. The last record taken may leave it below 0."""
        self.records = 0
        """Taken and neither acknowledged nor failed."""
        self.failures = 0
        """Records that failed since the last flush told it."""
        self.first_error: LogDeviceError | None = None
        self.observer: FrameObserver | None = None
        """Hears of frames; None: nobody does."""

    @property
    def full(self) -> bool:
        """The limit of memory is reached."""
        return self.room <= 0

    @property
    def unacknowledged_bytes(self) -> int:
        """Of the records themselves."""
        return self.settings.memory_bytes_max - self.room - RECORD_OVERHEAD * self.records

    def take(self, records: int, size: int) -> None:
        """Records of that many bytes together were taken."""
        self.room -= size + RECORD_OVERHEAD * records
        self.records += records

    def has_outcome(self, log: LogId, frame: StreamFrame, error: LogDeviceError | None) -> None:
        """The records of a frame were acknowledged, or failed."""
        self.room += frame.size + RECORD_OVERHEAD * frame.records
        self.records -= frame.records
        if self.observer is not None:
            self.observer.has_outcome(log, frame, error)

    def on_failed(self, records: int, error: LogDeviceError) -> None:
        """Remember it for flush and close."""
        self.metrics.records_failed += records
        self.failures += records
        if self.first_error is None or (error.maybe_applied and not self.first_error.maybe_applied):
            self.first_error = error
