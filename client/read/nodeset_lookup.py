"""Finds out from whom each epoch of a log is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from client.read.epochs import EpochHistory
from client.read.metrics import ReadMetrics
from client.read.named_timers import NamedTimers
from client.read.settings import ReadSettings
from logdevice_py.core.lsn import LSN_INVALID, Epoch, Lsn, epoch_of
from logdevice_py.core.machine import Rng, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval

_PAUSE: Final = "history"
_READINGS_MAX: Final = 3
"""So many readings that may have missed a record count as one that missed none: each has the log's sequencer store the record again, and where too many shards of the metadata log lost what
they had, none will ever be certain."""


class NodesetLookup:
    """Has the history of a log read when it does not reach far enough, once at a time.

    `request` asks the owner of the stream to read it; it must not answer at once.
    """

    def __init__(
        self,
        request: Callable[[Micros], None],
        timers: NamedTimers,
        *,
        settings: ReadSettings,
        rng: Rng,
        metrics: ReadMetrics,
    ) -> None:
        self.history = EpochHistory()
        self.released: Lsn = LSN_INVALID
        """Everything up to here is released, as far as any shard said."""
        self.read_at = Micros(-1)
        """When the last reading began that missed nothing; -1: there was none."""
        self._uncertain = 0
        """Readings since the last that missed nothing."""
        self._wanted_at = Micros(-1)
        """A reading is wanted that begins at this time or later."""
        self._request = request
        self._timers = timers
        self._settings = settings
        self._rng = rng
        self._metrics = metrics
        self._asked: int | None = None
        self._asked_at = Micros(0)
        self._pauses = self._new_pauses()

    def _new_pauses(self) -> Iterator[int]:
        settings = self._settings
        return backoff(self._rng, initial_us=settings.history_retry_us_min, max_us=settings.history_retry_us_max)

    def ask(self, now: Micros) -> None:
        """Have the history read, unless that is under way, or was of no use a moment ago."""
        if self._asked is None and _PAUSE not in self._timers:
            self._asked = epoch_of(self.released)
            self._asked_at = now
            self._metrics.history_reads += 1
            self._request(now)

    def ask_again(self, now: Micros) -> None:
        """As `ask`, but not too often: nobody of the nodeset answers, and the log may have moved on to others."""
        if now >= self._asked_at + self._settings.nodeset_lookup_us:
            self.ask(now)

    def is_later_than(self, evidence: Micros, now: Micros) -> bool:
        """Whether the history was read since something was heard that says that shards lost their data, or that others have it by now. Where it was not, it is
        read: the nodeset may be wider than it was, and who joined it may have what is missing (rule Later history)."""
        if self.read_at >= evidence:
            return True
        self._wanted_at = max(self._wanted_at, evidence)
        self.ask(now)
        return False

    def take(self, intervals: tuple[EpochInterval, ...], certain: Epoch, now: Micros, *, is_whole: bool = True) -> bool:
        """The history that was asked for, which is certain up to an epoch; False when there is none yet, or nobody asked.

        Args:
            is_whole: so many shards have told that no later record can be missing.
        """
        asked, self._asked = self._asked, None
        if asked is None:
            return False
        if not intervals or certain < asked:
            self._timers.set(_PAUSE, now + next(self._pauses), self.ask)
            if not intervals:
                return False
            hit("read_history_in_part")
        else:
            self._pauses = self._new_pauses()
            self._uncertain = 0 if is_whole else self._uncertain + 1
            if is_whole or self._uncertain >= _READINGS_MAX:
                self.read_at = self._asked_at
        if self.read_at < self._wanted_at and _PAUSE not in self._timers:
            self._timers.set(_PAUSE, now + next(self._pauses), self.ask)
        self.history.update(intervals, certain=min(asked, certain))
        return True

    def note_released(self, lsn: Lsn, now: Micros) -> None:
        """A shard knows that everything up to `lsn` is released."""
        if lsn > self.released:
            self.released = lsn
            if epoch_of(lsn) > self.history.certain:
                self.ask(now)
