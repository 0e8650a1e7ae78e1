"""Who sends what: single-copy delivery while shards do their work, and what to do when they do not."""

from __future__ import annotations

from collections.abc import Iterator

from client.read.gap_detection import GapDetector
from client.read.metrics import ReadMetrics
from client.read.named_timers import NamedTimers
from client.read.read_set import ReadPosition, ReadSet
from client.read.sender_state import Sender, SenderStatus
from client.read.settings import ReadSettings
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Rng, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros


class FailOver:
    """Decides when a stream rewinds, and with which filter.

    With single-copy delivery a shard that fails is counted as down; the others send in its place. When they could not hold an entry among
    them, or an entry is missing although everyone passed it, all send everything. After a while shards that keep up are trusted again.
    """

    def __init__(
        self,
        position: ReadPosition,
        read_set: ReadSet,
        timers: NamedTimers,
        *,
        single_copy: bool,
        settings: ReadSettings,
        rng: Rng,
        metrics: ReadMetrics,
    ) -> None:
        self._position = position
        self._read_set = read_set
        self._timers = timers
        self._wants_single_copy = single_copy
        self._settings = settings
        self._rng = rng
        self._metrics = metrics
        self.rewind_due = False
        """A rewind is decided and not done yet."""
        self._all_send_all = not single_copy
        self._rewound_at: Micros | None = None
        self._trust_delays = self._new_trust_delays()

    def _new_trust_delays(self) -> Iterator[int]:
        settings = self._settings
        return backoff(self._rng, initial_us=settings.single_copy_retry_us, max_us=settings.single_copy_retry_us_max)

    def enter_interval(self) -> None:
        """The stream reads from other shards: nothing is held against them."""
        self._all_send_all = not self._wants_single_copy
        self._rewound_at = None

    def failed(self, sender: Sender) -> None:
        """With single-copy delivery others must send what this shard should have sent."""
        if self._read_set.single_copy and not sender.down:
            sender.down = True
            self._metrics.failovers += 1
            self.want_rewind()

    def fall_back(self) -> None:
        """Everyone is to send everything."""
        self._all_send_all = True
        self.want_rewind()

    def want_rewind(self) -> None:
        """Start anew soon."""
        self.rewind_due = True

    def is_time(self, now: Micros) -> bool:
        """Whether to rewind at this moment; sets a timer when it is too early."""
        if not self.rewind_due:
            return False
        if self._rewound_at is None or now >= self._rewound_at + self._settings.rewind_interval_us:
            return True
        if "rewind" not in self._timers:
            self._timers.set("rewind", self._rewound_at + self._settings.rewind_interval_us)
        return False

    def rewind(self, detector: GapDetector, now: Micros) -> None:
        """Start all shards anew, with a filter that fits who is up."""
        self._timers.cancel("rewind")
        self.rewind_due = False
        self._rewound_at = now
        self._metrics.rewinds += 1
        senders = self._read_set.senders.values()
        if self._wants_single_copy:
            for sender in senders:
                sender.down = sender.down or sender.status is SenderStatus.WAITING
        owing = [sender.shard for sender in self._read_set.owing()]
        single_copy = not self._all_send_all and detector.can_replicate(owing)
        if not single_copy:
            self._all_send_all = True
        self._read_set.start_all(now, single_copy=single_copy)
        in_trouble = self._position.wide or any(sender.down for sender in senders)
        if in_trouble or (self._wants_single_copy and not single_copy):
            self._timers.set("trust", now + next(self._trust_delays), self._on_trust)

    def _on_trust(self, now: Micros) -> None:
        """Count shards as up again that keep up with the others, and go back to single-copy delivery."""
        senders = self._read_set.senders.values()
        healthy = [
            sender
            for sender in senders
            if sender.down and sender.status is SenderStatus.READING and sender.next_lsn >= self._position.next
        ]
        for sender in healthy:
            sender.down = False
        still_down = any(sender.down for sender in senders)
        if not still_down:
            self._trust_delays = self._new_trust_delays()
        was_wide, self._position.wide = self._position.wide, False
        self._all_send_all = not self._wants_single_copy
        if healthy or was_wide or (self._wants_single_copy and not self._read_set.single_copy):
            hit("read_trust_again")
            self.want_rewind()
        elif still_down:
            self._timers.set("trust", now + next(self._trust_delays), self._on_trust)

    def on_stall(self, lsn: Lsn) -> None:
        """`lsn` is released and nobody sent it: count those as down that hold it up and have no reason to."""
        read_set = self._read_set
        if not read_set.single_copy:
            return
        for sender in read_set.owing():
            may_send = sender.status is not SenderStatus.READING or (sender.has_credit and sender.window_high >= lsn)
            if sender.next_lsn <= lsn and may_send:
                hit("read_single_copy_failover")
                self.failed(sender)
