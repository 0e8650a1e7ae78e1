"""Finds shards that hold a stream up because they are much slower than the others.

With single-copy delivery all shards go through the log side by side, each sending what is its own to send, so the slowest sets the pace.
A shard *owes* while something is released that it has not spoken of and that it may send. It is slow when all of this holds of the
recent past:

  - the stream waited for it at least half of the time;
  - it owed many times longer than the others did;
  - it also sent many times fewer bytes for each moment that it owed than those others which sent a comparable amount. A shard to which a
    long run of entries belongs owes longer than those that only look at them, however fast it is.

A slow shard is left out for a while, longer each time when that happens again soon, and longer still as long as it does not keep pace. It
goes on sending what would be its own, so that is known.
"""

from __future__ import annotations

from collections.abc import Iterable

from client.read.gap_detection import GapDetector
from client.read.metrics import ReadMetrics
from client.read.sender_state import Sender, SenderStatus
from client.read.settings import ReadSettings
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros

_COMPARABLE = 4
"""A shard that sent at least this fraction of what another one sent tells how fast that one could be."""


class _Pace:
    """What is remembered of one shard."""

    __slots__ = (
        "awaited",
        "awaited_us",
        "begin",
        "free_at",
        "left_out_until",
        "owed_us",
        "owes",
        "penalty_us",
        "work",
        "work_seen",
    )

    def __init__(self) -> None:
        self.owes = False
        """At the last look; so is `awaited`."""
        self.awaited = False
        """It owed the very LSN that the stream had come to."""
        self.owed_us = 0.0
        """How long it owed. Like `awaited_us` and `work` of the recent past, older times count less."""
        self.awaited_us = 0.0
        self.work = 0.0
        """How much it sent."""
        self.work_seen = 0
        """`Sender.work` at the last evaluation."""
        self.begin = 0
        """Where it stood then."""
        self.left_out_until: int | None = None
        """Set while it is left out."""
        self.penalty_us = 0
        """How long it was left out the last time."""
        self.free_at = 0
        """When it was taken back the last time."""

    @property
    def cost(self) -> float:
        """Time owed for each unit of work."""
        return self.owed_us / max(1.0, self.work)


class SlowShards:
    """Watches the senders of one stream while they deliver single copies."""

    def __init__(self, settings: ReadSettings, metrics: ReadMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._paces: dict[ShardId, _Pace] = {}
        self._observed_us = 0.0
        self._looked_at = Micros(0)
        self._evaluate_at = 0
        self._begin = Lsn(0)

    def enter(self, senders: Iterable[Sender]) -> None:
        """The stream reads from another set: what is known of shards that are in both still holds."""
        known, self._paces = self._paces, {}
        for sender in senders:
            pace = self._paces[sender.shard] = known.get(sender.shard) or _Pace()
            pace.work_seen = sender.work
            sender.slow = pace.left_out_until is not None

    def restart(self, senders: Iterable[Sender], position: Lsn, now: Micros) -> None:
        """All senders begin anew at `position`."""
        self._looked_at = now
        self._evaluate_at = now + self._settings.slow_shard_window_us
        self._begin = position
        for sender in senders:
            pace = self._paces[sender.shard]
            pace.owes = pace.awaited = False
            pace.begin = sender.next_lsn

    def forgive(self, senders: Iterable[Sender]) -> bool:
        """Without those left out there are too few: take them back; whether there were any."""
        forgiven = [sender for sender in senders if sender.slow]
        for sender in forgiven:
            self._take_back(sender, self._looked_at)
        return bool(forgiven)

    def look(
        self, senders: dict[ShardId, Sender], detector: GapDetector, position: Lsn, released: Lsn, now: Micros
    ) -> bool:
        """Note who owes; True when another set of shards is to be left out (`Sender.slow`)."""
        elapsed = now - self._looked_at
        self._looked_at = now
        self._observed_us += elapsed
        for shard, sender in senders.items():
            pace = self._paces[shard]
            if pace.owes:
                pace.owed_us += elapsed
                if pace.awaited:
                    pace.awaited_us += elapsed
            pace.awaited = sender.next_lsn <= position <= released
            pace.owes = (
                sender.next_lsn <= released
                and sender.next_lsn <= sender.window_high
                and sender.has_credit
                and sender.status in (SenderStatus.STARTING, SenderStatus.READING)
            )
        if now < self._evaluate_at:
            return False
        self._evaluate_at = now + self._settings.slow_shard_window_us
        return self._evaluate(senders, detector, position, now)

    def _evaluate(self, senders: dict[ShardId, Sender], detector: GapDetector, position: Lsn, now: Micros) -> bool:
        advance, self._begin = position - self._begin, position
        changed = False
        for shard, sender in senders.items():
            pace = self._paces[shard]
            pace.work += sender.work - pace.work_seen
            pace.work_seen = sender.work
            kept_pace = 2 * (sender.next_lsn - pace.begin) >= advance
            pace.begin = sender.next_lsn
            if pace.left_out_until is not None and now >= pace.left_out_until:
                if kept_pace:
                    changed = True
                    self._take_back(sender, now)
                else:
                    self._leave_out(sender, now)
        owing = [sender for sender in senders.values() if not sender.excused]
        slow = [sender for sender in owing if self._is_slow(sender, owing)]
        slow.sort(key=lambda sender: (-self._paces[sender.shard].owed_us, sender.shard))
        for sender in slow:
            if detector.can_replicate(other.shard for other in owing if not other.slow and other is not sender):
                hit("read_slow_shard")
                changed = True
                self._metrics.slow_shards += 1
                self._leave_out(sender, now)
        self._observed_us /= 2
        for pace in self._paces.values():
            pace.owed_us /= 2
            pace.awaited_us /= 2
            pace.work /= 2
        return changed

    def _is_slow(self, sender: Sender, owing: list[Sender]) -> bool:
        factor = self._settings.slow_shard_factor
        pace = self._paces[sender.shard]
        if 2 * pace.awaited_us < self._observed_us:
            return False
        others = [self._paces[other.shard] for other in owing if other is not sender]
        comparable = [other for other in others if other.work * _COMPARABLE >= pace.work]
        if not comparable:
            return False
        return pace.owed_us >= factor * _median([other.owed_us for other in others]) and pace.cost >= factor * _median(
            [other.cost for other in comparable]
        )

    def _leave_out(self, sender: Sender, now: Micros) -> None:
        pace, settings = self._paces[sender.shard], self._settings
        first, longest = settings.slow_shard_penalty_us, settings.slow_shard_penalty_us_max
        if pace.left_out_until is None and now - pace.free_at >= longest:
            pace.penalty_us = 0
        pace.penalty_us = min(longest, max(first, 2 * pace.penalty_us))
        pace.left_out_until = now + pace.penalty_us
        sender.slow = True

    def _take_back(self, sender: Sender, now: Micros) -> None:
        hit("read_slow_shard_taken_back")
        pace = self._paces[sender.shard]
        pace.left_out_until = None
        pace.free_at = now
        sender.slow = False


def _median(values: list[float]) -> float:
    """The greater one of the two in the middle when their number is even."""
    return sorted(values)[len(values) // 2]
