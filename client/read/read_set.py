"""The conversation of a read stream with the shards of one interval: START, WINDOW and STOP, credit, and who failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from client.read.metrics import ReadMetrics
from client.read.reading_order import NO_ORDER, Order, ReadingOrder
from client.read.ready_queue import ReadyQueue
from client.read.sender_state import Sender, SenderStatus
from client.read.settings import ReadSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId, format_shard
from logdevice_py.core.lsn import LSN_INVALID, Lsn, epoch_of, format_lsn
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.marks import hit
from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import Records, ShardGap, Start, Started, StartFlags, Stop, Window

_FAR_BYTES_PER_MS: Final = 100_000
"""What one shard should be able to send, however far away it is."""
_TIER_LAST: Final = 256
"""Of shards that an order does not name."""
_UNORDERED_US: Final = 60_000_000
"""How long a stream goes without an order when a shard does not know what that is: it runs an earlier version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What to read."""

    log: LogId
    stream: int
    """Unique among the streams of this client."""
    first: Lsn
    until: Lsn
    """Inclusive."""
    single_copy: bool = True
    """Each entry is sent by one shard only, as long as shards do not fail."""
    near: bool = True
    """By the nearest of those that have it, where it is known where the reader stands."""
    hedged: bool = False
    """Others are asked for what the shard that should send it does not send in time."""


@dataclass(slots=True)
class ReadPosition:
    """How far a stream is; its read set asks the shards for what follows. Only the stream changes it; its `Delivery` alone moves `next`."""

    next: Lsn
    """The first LSN not delivered."""
    until: Lsn
    """The last LSN to deliver."""
    look_back: Lsn = LSN_INVALID
    """Before anything is delivered: where the shards begin, to find a bridge that lies before the first LSN; 0: at the first LSN."""
    interval: int = -1
    """Which interval of the history is read; -1: none yet."""
    certain_end: Lsn = LSN_INVALID
    """The last LSN that is certain to belong to the present interval."""
    limit: Lsn = LSN_INVALID
    """The last LSN that the shards of the present interval may have."""
    wide: bool = False
    """The shards look up to `limit` rather than to the end of the window: something is missing and the next entry may be far away."""

    @property
    def first(self) -> Lsn:
        """Where the shards begin."""
        return self.look_back or self.next

    def window_high(self, window: int, held_from: Lsn | None) -> Lsn:
        """The last LSN that the shards may send at present.

        Args:
            window: how many LSNs.
            held_from: as in `ReadyQueue`.
        """
        return (
            self.limit if self.wide else Lsn(min(self.limit, max((held_from or self.next) + window - 1, self.next - 1)))
        )


class ReadSet:
    """The shards of one interval as senders of one stream.

    Every START has a filter version of its own, so an answer to an earlier one is told apart, whatever happened in between.
    """

    def __init__(
        self,
        request: ReadRequest,
        position: ReadPosition,
        queue: ReadyQueue,
        *,
        settings: ReadSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        metrics: ReadMetrics,
        order: ReadingOrder | None = None,
    ) -> None:
        """
        Args:
            order: whom of a copyset the stream wants to send; None: who comes first in it.
        """
        self.senders: dict[ShardId, Sender] = {}
        """In order of their ids."""
        self.single_copy = False
        """The last STARTs asked for single-copy delivery."""
        self._request = request
        self._position = position
        self._queue = queue
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._rng = rng
        self._metrics = metrics
        self._version = 0
        self.replication = 0
        """Copies of the interval's entries, when all goes well."""
        self._config_version = 0
        self._share = 0
        self._known_down: list[int] = []
        self._reading_order = order
        self.order: Order = NO_ORDER
        """What the last STARTs said of whom of a copyset is to send."""
        self._unordered_until = Micros(0)

    # The set

    def enter(self, interval: EpochInterval, config: ClusterConfig) -> None:
        """Read from the shards of another interval; those of the old one that are not in it are told to stop."""
        present = frozenset(config.storage_shards())
        self._config_version = interval.config_version
        if self._reading_order is not None:
            self._reading_order.set_config(config)
            self._unordered_until = Micros(0)
        left = self._knows_who_left(config)
        old = self.senders
        self.senders = {}
        for shard in sorted(interval.shards):
            sender = Sender(shard, interval.generation(shard) or Generation(0))
            if shard not in present:
                sender.status, sender.lost = SenderStatus.ABSENT, left
            self.senders[shard] = sender
        for shard, sender in old.items():
            sender.cancel_timer()
            if shard not in self.senders or self.senders[shard].status is SenderStatus.ABSENT:
                self._stop(sender)
        self.replication = interval.copies
        settings = self._settings
        self._share = max(settings.shard_buffer_bytes_min, settings.buffer_bytes // max(1, len(self.senders)))

    def set_config(self, config: ClusterConfig) -> bool:
        """Take which shards are in the cluster file; whether that changed any sender."""
        present = frozenset(config.storage_shards())
        left = self._knows_who_left(config)
        if self._reading_order is not None:
            self._reading_order.set_config(config)
        changed = False
        for shard, sender in self.senders.items():
            if (shard in present) is not (sender.status is SenderStatus.ABSENT):
                if shard not in present and sender.lost is not left:
                    changed, sender.lost = True, left
                continue
            changed = True
            sender.cancel_timer()
            if shard in present:
                sender.status, sender.lost = SenderStatus.IDLE, False
            else:
                hit("read_shard_removed")
                self._stop(sender)
                sender.status, sender.lost = SenderStatus.ABSENT, left
        return changed

    def _knows_who_left(self, config: ClusterConfig) -> bool:
        """Whether shards that are not in the cluster file have left it: in an older one than the nodeset was chosen from they may not be yet."""
        known = config.version >= self._config_version
        if not known:
            hit("read_cluster_file_is_older")
        return known

    @property
    def anyone_reads(self) -> bool:
        """At least one shard took the START and goes on sending."""
        return any(sender.status is SenderStatus.READING for sender in self.senders.values())

    def silent_about(self, lsn: Lsn) -> list[str]:
        """Those that have not spoken of an LSN, for people."""
        return [
            f"{format_shard(shard)} ({sender.status.name.lower()})"
            for shard, sender in self.senders.items()
            if sender.next_lsn <= lsn
        ]

    def waiting_for(self, lsn: Lsn, *, released: Lsn, certain_end: Lsn) -> str:
        """Why an LSN is not there yet, for people."""
        if released < lsn:
            return f"{format_lsn(lsn)} to be written and released"
        if lsn > certain_end:
            return f"the metadata log: the nodeset of epoch {epoch_of(lsn)} is not known yet"
        return f"{format_lsn(lsn)} from " + (", ".join(self.silent_about(lsn)) or "a rewind")

    def owing(self) -> list[Sender]:
        """Those that would have to send under the present filter: neither counted as down, nor left out, nor without data."""
        return [sender for sender in self.senders.values() if not sender.excused]

    def unable_to_tell(self, lsn: Lsn) -> tuple[ShardId, ...]:
        """Those whose silence about an LSN says nothing: they lost data, left the cluster file, or have a copy that cannot be read."""
        return tuple(shard for shard, sender in self.senders.items() if sender.lost or sender.is_unable(lsn))

    # Starting and stopping

    def start_all(self, now: Micros, *, single_copy: bool) -> None:
        """Begin anew at the stream's position, with those left out that are counted as down."""
        self.single_copy = single_copy
        self._known_down = []
        self.order = NO_ORDER
        if single_copy:
            self._known_down = [shard for shard, sender in self.senders.items() if sender.excused]
            if self._reading_order is not None and self.may_order(now):
                self.order = self._reading_order.of(self.senders, now)
        for sender in self.senders.values():
            # What it sent is forgotten, so what it said must be too, even if it cannot be asked again yet.
            sender.next_lsn = self._position.first
            sender.unable.clear()
            if sender.status not in (SenderStatus.WAITING, SenderStatus.ABSENT):
                self.start(sender, now)

    def start(self, sender: Sender, now: Micros) -> None:
        """Send START to one shard."""
        position = self._position
        self._version += 1
        sender.cancel_timer()
        sender.status = SenderStatus.STARTING
        sender.version = self._version
        sender.next_lsn = position.first
        sender.unable.clear()
        sender.received = 0
        sender.asked_at = now
        sender.granted = self._room(sender)
        sender.window_high = position.window_high(self._settings.window_lsns, self._queue.held_from)
        sender.timer = self._timers.at(
            now + self._settings.started_timeout_us, lambda at: self._on_started_timeout(sender, at)
        )
        self._outbox.send(
            sender.peer,
            Start(
                log=self._request.log,
                stream=self._request.stream,
                shard=sender.shard,
                generation=sender.generation,
                first=position.first,
                until=position.limit,
                window_high=sender.window_high,
                bytes_credit=sender.granted,
                flags=int(StartFlags.SINGLE_COPY if self.single_copy else StartFlags.NONE),
                filter_version=sender.version,
                replication=self.replication,
                known_down=self._known_down,
                order=self.order,
            ),
        )

    def stop_all(self) -> None:
        """Close the stream at every shard."""
        for sender in self.senders.values():
            sender.cancel_timer()
            self._stop(sender)
            if sender.status is not SenderStatus.ABSENT:
                sender.status = SenderStatus.IDLE

    def _stop(self, sender: Sender) -> None:
        if sender.status in (SenderStatus.STARTING, SenderStatus.READING):
            self._outbox.send(sender.peer, Stop(log=self._request.log, stream=self._request.stream, shard=sender.shard))

    def _on_started_timeout(self, sender: Sender, now: Micros) -> None:
        hit("read_start_unanswered")
        self.start(sender, now)

    # Connections, and failure of a sender

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection to a node is established: its shards need not wait any longer."""
        for sender in self.senders.values():
            if sender.peer == peer and sender.status is SenderStatus.WAITING and not sender.lost:
                self.start(sender, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> list[Sender]:
        """A connection broke or could not be made; the shards that failed with it."""
        failed = [
            sender
            for sender in self.senders.values()
            if sender.peer == peer and sender.status in (SenderStatus.STARTING, SenderStatus.READING)
        ]
        for sender in failed:
            self.wait(sender, now)
        return failed

    def wait(self, sender: Sender, now: Micros) -> None:
        """The shard failed or refused: ask it again later."""
        sender.cancel_timer()
        sender.status = SenderStatus.WAITING
        settings = self._settings
        pause = min(settings.reconnect_us_max, settings.reconnect_us_min << min(sender.failures, 20))
        pause += self._rng.randrange(pause // 4 + 1)
        sender.failures += 1
        sender.timer = self._timers.at(now + pause, lambda at: self.start(sender, at))

    def violated(self, sender: Sender, now: Micros) -> None:
        """The shard sent what nobody asked for: it is not listened to for a while."""
        self._metrics.protocol_violations += 1
        self._stop(sender)
        self.wait(sender, now)

    def may_order(self, now: Micros) -> bool:
        """Shards are told whom of a copyset is to send, if anybody is preferred."""
        return now >= self._unordered_until

    def first_to_send(self, copyset: Sequence[ShardId]) -> ShardId | None:
        """Who of a copyset has to send under the present filter; None: nobody has."""
        tiers = dict(self.order)
        able = [member for member in copyset if member not in self._known_down]
        return min(able, key=lambda member: tiers.get(member, _TIER_LAST), default=None)

    # What comes in

    def note_started(self, message: Started, now: Micros) -> bool:
        """A shard took the START; False: it goes by another order than the others, and all have to be started anew, for a while without one."""
        if message.ordered or not self.order:
            return True
        hit("read_order_not_known")
        self._unordered_until = Micros(now + _UNORDERED_US)
        return False

    def accept(self, message: Started | Records | ShardGap) -> Sender | None:
        """The sender whose present START a message answers; None when it answers an earlier one."""
        sender = self.senders.get(message.shard)
        if (
            sender is None
            or message.filter_version != sender.version
            or message.log != self._request.log
            or sender.status not in (SenderStatus.STARTING, SenderStatus.READING)
        ):
            self._metrics.stale_messages += 1
            return None
        return sender

    # Credit

    def _share_of(self, sender: Sender) -> int:
        """Most that the shard may have under way or held. One entry after the other may be the same shard's: what it sends has to last until more is asked for."""
        far = sender.round_trip_us * _FAR_BYTES_PER_MS // MILLISECOND
        return max(self._share, min(far, self._settings.far_buffer_bytes // len(self.senders)))

    def _room(self, sender: Sender) -> int:
        return max(0, min(self._share_of(sender) - sender.held, self._settings.buffer_bytes - self._queue.bytes))

    @property
    def room_for_hedges(self) -> int:
        """How many bytes shards may send in place of others: what is left of all shares, such as those of shards that are late."""
        return max(0, sum(self._share - sender.held for sender in self.senders.values()))

    def refresh(self, sender: Sender) -> None:
        """Let the shard send on when enough of what it sent is gone, or the window has moved."""
        if sender.status not in (SenderStatus.STARTING, SenderStatus.READING):
            return
        credit = max(sender.granted, sender.received + self._room(sender))
        high = max(sender.window_high, self._position.window_high(self._settings.window_lsns, self._queue.held_from))
        more = credit - sender.granted
        slid = high > sender.window_high and (
            high - sender.window_high >= self._settings.window_lsns // 2
            or high == self._position.limit
            or sender.window_high < self._position.next
        )
        if more * 4 >= self._share_of(sender) or (more and not sender.has_credit) or slid:
            sender.granted = credit
            sender.window_high = high
            self._outbox.send(
                sender.peer,
                Window(
                    log=self._request.log,
                    stream=self._request.stream,
                    shard=sender.shard,
                    filter_version=sender.version,
                    high=high,
                    bytes_credit=credit,
                ),
            )

    def refresh_all(self) -> None:
        """`refresh` for every shard."""
        for sender in self.senders.values():
            self.refresh(sender)
