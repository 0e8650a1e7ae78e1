"""Looks now and then whether the frames of a write stream are answered."""

from __future__ import annotations

from collections.abc import Callable

from client.write.context import StreamContext, StreamOwner
from client.write.outcomes import FrameOutcomes
from client.write.stream_epoch import StreamEpoch
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId
from logdevice_py.core.machine import Timer
from logdevice_py.core.units import Micros


class SilenceWatch:
    """For as long as there are frames: fails records that are out of time, and asks after a sequencer that does not answer until it counts as lost."""

    __slots__ = ("_context", "_epoch", "_explain", "_log", "_lost", "_outcomes", "_owner", "_probes", "_timer")

    def __init__(
        self,
        log: LogId,
        epoch: StreamEpoch,
        outcomes: FrameOutcomes,
        context: StreamContext,
        owner: StreamOwner,
        explain: Callable[[Micros], str],
        lost: Callable[[Micros], None],
    ) -> None:
        """
        Args:
            epoch: where frames are sent.
            outcomes: the frames.
            explain: what they wait for, for people.
            lost: called when no answer will come to what is in flight.
        """
        self._log = log
        self._epoch = epoch
        self._outcomes = outcomes
        self._context = context
        self._owner = owner
        self._explain = explain
        self._lost = lost
        self._timer: Timer | None = None
        self._probes = 0

    def begin(self, now: Micros) -> None:
        """There are frames."""
        if self._timer is None:
            self._timer = self._context.timers.at(now + self._context.settings.unanswered_us, self._look)

    def answered(self) -> None:
        """The sequencer was heard of."""
        self._probes = 0

    def stop(self) -> None:
        """Nobody waits for them any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, now: Micros) -> None:
        self._timer = None
        frames = self._outcomes.frames
        if not frames:
            return
        self.begin(now)
        self._outcomes.expire(self._explain, now)
        oldest = frames.oldest_in_flight()
        if oldest is None:
            return
        silent = now - oldest.sent_at
        if silent < self._context.settings.unanswered_us:
            self._probes = 0
            return
        moved = self._context.routes.epoch(self._log) > self._epoch.number
        if moved or silent >= self._owner.settings.silence_us:
            marks.hit("stream_silent_sequencer")
            self._lost(now)
            return
        self._context.probe(self._log, self._epoch.node, self._probes, now)
        self._probes += 1
