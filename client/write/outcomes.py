"""What becomes of the records of a write stream: told to who waits for them, and counted for their writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.request_history import describe_timeout
from client.write.context import StreamOwner
from client.write.frame import FrameFate, StreamFrame
from client.write.frame_queue import FrameQueue
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_INVALID
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros


class FrameOutcomes:
    """The frames of a stream, and what is told of them: each record has one outcome. The frame of records that failed stays until its own fate
    is certain."""

    __slots__ = ("_log", "_owner", "frames", "last_lsn")

    def __init__(self, log: LogId, owner: StreamOwner) -> None:
        self._log: Final = log
        self._owner: Final = owner
        self.frames = FrameQueue(self._complete)
        self.last_lsn = LSN_INVALID
        """The greatest position of an acknowledged frame."""

    def _complete(self, frame: StreamFrame) -> None:
        assert frame.position is not None
        self.last_lsn = max(self.last_lsn, frame.position.lsn)
        metrics = self._owner.metrics
        metrics.frames_acknowledged += 1
        if not frame.failed:
            metrics.records_acknowledged += frame.records
            self._owner.has_outcome(self._log, frame, None)
            if frame.markers:
                self.frames.hand_back_markers(frame)
            frame.acknowledge()

    def fail(self, frame: StreamFrame, error: LogDeviceError) -> None:
        """The records of a frame failed. Nothing happens when they had before."""
        if frame.failed:
            return
        frame.failed = True
        self._owner.has_outcome(self._log, frame, error)
        self._owner.on_failed(frame.records, error)
        if frame.markers:
            self.frames.hand_back_markers(frame)
        frame.fail(error)

    def fail_overtaken(self) -> None:
        """No outcome is unknown: what is not stored would come behind a later frame if it was sent, and fails."""
        stored = self.frames.last_acknowledged()
        for frame in self.frames:
            if frame.sequence < stored and frame.fate is FrameFate.QUEUED:
                detail = "a later frame is stored without it"
                self.fail(frame, LogDeviceError(Status.ABORTED, detail, maybe_applied=False))

    def fail_all(self, status: Status, detail: str, *, retriable: bool | None) -> None:
        """Nothing is in flight, and whatever has no position fails."""
        for frame in self.frames:
            if frame.fate is not FrameFate.ACKED:
                doubt = frame.fate is FrameFate.UNKNOWN
                self.fail(frame, LogDeviceError(status, detail, retriable=retriable, maybe_applied=doubt))
        self.frames.finish_acknowledged()

    def refuse(self, error: LogDeviceError) -> None:
        """Nobody takes anything any more: records without an outcome fail with this error."""
        for frame in self.frames:
            if not frame.failed and frame.fate is not FrameFate.ACKED:
                unknown = frame.fate is not FrameFate.QUEUED
                self.fail(frame, LogDeviceError(error.status, error.detail, maybe_applied=unknown))
        self.frames.drop_queued()

    def expire(self, explain: Callable[[Micros], str], now: Micros) -> None:
        """Records that could not be placed in time fail; `explain` says what they waited for."""
        limit = self._owner.settings.timeout_us
        if not limit:
            return
        why = ""
        for frame in self.frames:
            if now - frame.cut_at < limit:
                break
            if not frame.failed and frame.fate is not FrameFate.ACKED:
                marks.hit("stream_times_out")
                certain = frame.fate is FrameFate.QUEUED
                why = why or describe_timeout(limit, explain(now))
                self.fail(frame, LogDeviceError(Status.TIMEDOUT, why, maybe_applied=not certain))
        # Whatever the stream waits for: it may take for ever, and records that failed are not counted any more.
        self.frames.drop_queued()
