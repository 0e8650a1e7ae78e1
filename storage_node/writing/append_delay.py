"""How long the STOREs of appends take to reach a shard's disk, beside what they take while nothing is rebuilt."""

from __future__ import annotations

from typing import Final

from logdevice_py.core.units import SECOND, Micros

_WINDOW_US: Final = SECOND // 2
_SAMPLES_MIN: Final = 20
"""Fewer say nothing of the slowest tenth."""
_SAMPLES_MAX: Final = 512
_WINDOW_US_MAX: Final = 5 * SECOND
"""Where appends are so rare that a window does not get its samples within this time, nothing is said of them."""
_IDLE_US: Final = 10 * SECOND
_CALM_US: Final = SECOND
"""After rebuilding has touched the shard, its traces are gone within this time."""
_SLACK_US: Final = 1_000
"""Differences below a millisecond are noise."""
_FALL: Final = 1 / 8
_RISE: Final = 1 / 16
_FALL_DISTURBED: Final = 1 / 16
PERCENT_MAX: Final = 10_000


class AppendDelay:
    """Of one shard: the slowest tenth of its batches with STOREs, from their turn's end until they are on disk.

    What is usual is learned while rebuilding leaves the shard alone, and follows what is measured faster down than up. While copies are stored
    again it can only fall: what rebuilding does to appends must not come to be taken for usual.
    """

    __slots__ = (
        "_began",
        "_last_append",
        "_last_rebuilding",
        "_measured_at",
        "_samples",
        "_windows",
        "recent_us",
        "usual_us",
    )

    def __init__(self) -> None:
        self.recent_us: int | None = None
        """What nine tenths of the batches of the last window did not take; None: too few to tell."""
        self.usual_us: float | None = None
        """The same without rebuilding; None: not known yet."""
        self._samples: list[int] = []
        self._windows = 0
        self._began = Micros(0)
        self._measured_at = Micros(0)
        self._last_append: Micros | None = None
        self._last_rebuilding: Micros | None = None

    def note(self, took: int, now: Micros) -> None:
        """A batch with STOREs took so long."""
        if not self._samples or now - self._began > _WINDOW_US_MAX:
            self._samples.clear()
            self._began = now
        self._last_append = now
        if len(self._samples) < _SAMPLES_MAX:
            self._samples.append(took)
        if now - self._began >= _WINDOW_US and len(self._samples) >= _SAMPLES_MIN:
            self._close_window(now)

    def note_rebuilding(self, now: Micros) -> None:
        """Rebuilding has the shard read or write something."""
        self._last_rebuilding = now

    def percent(self, now: Micros) -> int:
        """How long appends take beside the usual, 100: as always; 0: there are none."""
        if self._last_append is None or now - self._last_append > _IDLE_US:
            return 0
        if self.recent_us is None or self.usual_us is None or now - self._measured_at > _WINDOW_US_MAX:
            return 100
        return min(PERCENT_MAX, max(1, int(100 * (self.recent_us + _SLACK_US) / (self.usual_us + _SLACK_US))))

    def _close_window(self, now: Micros) -> None:
        self._samples.sort()
        recent = self.recent_us = self._samples[len(self._samples) * 9 // 10]
        self._samples.clear()
        self._measured_at = now
        if self.usual_us is None:
            self.usual_us = float(recent)
            return
        calm = self._last_rebuilding is None or self._began - self._last_rebuilding > _CALM_US
        if calm:
            self._windows += 1
            share = max(
                1 / (self._windows + 1), _FALL if recent < self.usual_us else _RISE
            )  # the first ones count alike
        else:
            share = _FALL_DISTURBED if recent < self.usual_us else 0.0
        self.usual_us += (recent - self.usual_us) * share
