"""Who sends what: single-copy delivery while shards do their work, and what to do when they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from client.read.gap_detection import GapDetector
from client.read.metrics import ReadMetrics
from client.read.named_timers import NamedTimers
from client.read.read_set import ReadPosition, ReadSet
from client.read.sender_state import Sender, SenderStatus
from client.read.settings import ReadSettings
from client.read.slow_shards import SlowShards
from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Rng, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros


class FailOver:
    """Decides when a stream rewinds, and with which filter.

    `StallWatch` says when a stream got no further for `single_copy_failover_us`. With single-copy delivery a shard that fails is counted as down; the others send in its place. When they could not hold an entry among
    them, or an entry is missing although everyone passed it, all send everything. After a while shards that keep up are trusted again.
    """

    def __init__(
        self,
        position: ReadPosition,
        read_set: ReadSet,
        timers: NamedTimers,
        narrow: Callable[[], bool],
        *,
        single_copy: bool,
        settings: ReadSettings,
        rng: Rng,
        metrics: ReadMetrics,
    ) -> None:
        """
        Args:
            narrow: lets the shards look to the end of the window only; whether they looked further before.
        """
        self._position = position
        self._read_set = read_set
        self._timers = timers
        self._narrow = narrow
        self._wants_single_copy = single_copy
        self._settings = settings
        self._rng = rng
        self._metrics = metrics
        self.rewind_due = False
        """A rewind is decided and not done yet."""
        self._all_send_all = not single_copy
        self._rewound_at: Micros | None = None
        self._trust_delays = self._new_trust_delays()
        self._failed = False
        """A shard failed since the last rewind."""
        self._trusted_at = Micros(0)
        self._slow = SlowShards(settings, metrics)

    def _new_trust_delays(self) -> Iterator[int]:
        settings = self._settings
        return backoff(self._rng, initial_us=settings.single_copy_retry_us, max_us=settings.single_copy_retry_us_max)

    def enter_interval(self, detector: GapDetector, now: Micros) -> None:
        """Begin to read from other shards: no failure is held against them, and the first one leads to a rewind at once."""
        self._slow.enter(self._read_set.senders.values())
        self._all_send_all = not self._wants_single_copy
        self.rewind(detector, now)
        self._all_send_all = not self._wants_single_copy
        self._rewound_at = None

    def failed(self, sender: Sender) -> None:
        """With single-copy delivery others must send what this shard should have sent."""
        if self._read_set.single_copy and not sender.down:
            self._count_down(sender)
            self.want_rewind()

    def _count_down(self, sender: Sender) -> None:
        sender.down = True
        self._failed = True
        self._metrics.failovers += 1

    def on_peer_down(self, peer: PeerId, now: Micros) -> bool:
        """A connection broke or could not be made; whether any shard failed with it."""
        failed = self._read_set.on_peer_down(peer, now)
        for sender in failed:
            self.failed(sender)
        return bool(failed)

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
                if sender.status is SenderStatus.WAITING and not sender.down:
                    self._count_down(sender)
        single_copy = not self._all_send_all and self._suffice(detector)
        if not single_copy:
            self._all_send_all = True
        self._read_set.start_all(now, single_copy=single_copy)
        self._slow.restart(senders, self._position.next, now)
        self._arm_trust(now)

    def _suffice(self, detector: GapDetector) -> bool:
        """Whether those that owe entries could hold one among them; slow shards are taken back for it."""
        read_set = self._read_set
        if detector.can_replicate(sender.shard for sender in read_set.owing()):
            return True
        return self._slow.forgive(read_set.senders.values()) and detector.can_replicate(
            sender.shard for sender in read_set.owing()
        )

    def _arm_trust(self, now: Micros) -> None:
        """See to it that what this rewind leaves out, or asks for beyond the usual, does not stay so for ever."""
        failed, self._failed = self._failed, False
        if failed:
            if now - self._trusted_at >= self._settings.single_copy_retry_us_max:
                self._trust_delays = self._new_trust_delays()
            self._timers.set("trust", now + next(self._trust_delays), self._on_trust)
            return
        in_trouble = (
            self._position.wide
            or (self._wants_single_copy and not self._read_set.single_copy)
            or any(sender.down for sender in self._read_set.senders.values())
        )
        if in_trouble and "trust" not in self._timers:
            self._timers.set("trust", now + self._settings.single_copy_retry_us, self._on_trust)

    def look_for_slow(self, detector: GapDetector, released: Lsn, now: Micros) -> None:
        """At the end of each turn: leave out shards that are much slower than the others."""
        read_set = self._read_set
        if (
            read_set.single_copy
            and self._settings.slow_shard_factor
            and self._slow.look(read_set.senders, detector, self._position.next, released, now)
        ):
            self.want_rewind()

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
        self._trusted_at = now
        still_down = any(sender.down for sender in senders)
        was_wide = self._narrow()
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
