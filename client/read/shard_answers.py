"""What shards send to a read stream: how far they have looked, and what they hold."""

from __future__ import annotations

from collections.abc import Callable

from client.read.current_interval import CurrentInterval
from client.read.delivery import Delivery
from client.read.fail_over import FailOver
from client.read.hedging import Hedging
from client.read.metrics import ReadMetrics
from client.read.missing_entries import MissingEntries
from client.read.nodeset_lookup import NodesetLookup
from client.read.read_set import ReadPosition, ReadSet
from client.read.sender_state import ENTRY_WORK, Sender, SenderStatus
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import GapReason, Records, ShardGap, Started


class ShardAnswers:
    """Notes what a shard says with its sender, hands its copies on, and counts a shard as failed that is damaged or sends what nobody asked for."""

    __slots__ = (
        "_delivery",
        "_fail_over",
        "_hedging",
        "_interval",
        "_lookup",
        "_mark",
        "_metrics",
        "_missing",
        "_on_refused",
        "_position",
        "_read_set",
        "listens",
        "refused",
    )

    def __init__(
        self,
        position: ReadPosition,
        read_set: ReadSet,
        delivery: Delivery,
        lookup: NodesetLookup,
        interval: CurrentInterval,
        missing: MissingEntries,
        fail_over: FailOver,
        metrics: ReadMetrics,
        mark: Callable[[], None],
        on_refused: Callable[[], None],
        hedging: Hedging | None = None,
    ) -> None:
        """
        Args:
            mark: called when something may have become deliverable.
            on_refused: called when a node says that this client may not read the log.
        """
        self.refused = False
        """The last node that said something of it does not let this client read the log."""
        self.listens = False
        """The stream reads; whatever comes while it does not is dropped."""
        self._position = position
        self._read_set = read_set
        self._delivery = delivery
        self._lookup = lookup
        self._interval = interval
        self._missing = missing
        self._fail_over = fail_over
        self._metrics = metrics
        self._mark = mark
        self._on_refused = on_refused
        self._hedging = hedging

    def _sender(self, message: Started | Records | ShardGap) -> Sender | None:
        if not self.listens:
            return None
        self._mark()
        return self._read_set.accept(message)

    def on_started(self, message: Started, now: Micros) -> None:
        """A shard took a START, or refused it."""
        sender = self._sender(message)
        if sender is None:
            return
        if message.status is Status.OK:
            sender.cancel_timer()
            sender.status = SenderStatus.READING
            sender.lost = self.refused = False
            sender.note_round_trip(now)
            if self._hedging is not None:
                self._hedging.note_round_trip(sender, now)
            if not self._read_set.note_started(message, now):
                self._fail_over.want_rewind()
            self._lookup.note_released(message.last_released, now)
        else:
            is_lost = message.status is Status.REBUILDING
            if is_lost and (not sender.lost or sender.written_off):
                sender.lost_at = now
            sender.lost = is_lost
            self._read_set.wait(sender, now)
            self._interval.write_off()
            self._fail_over.failed(sender)
        self._interval.note_lost(sender)
        if message.status is Status.ACCESS:
            self.refused = True
            self._on_refused()

    def on_records(self, message: Records, now: Micros) -> None:
        """A shard sent entries."""
        sender = self._sender(message)
        if sender is None:
            return
        images, at, size = message.images, 0, len(message.images)
        metrics, position, lookup, delivery = self._metrics, self._position, self._lookup, self._delivery
        sender.failures = 0
        sender.work += size + ENTRY_WORK * len(message.entries)
        metrics.entries_received += len(message.entries)
        metrics.bytes_received += size
        if self._hedging is not None:
            self._hedging.earn(len(message.entries), size)
        for lsn, length in message.entries:
            end = at + length
            allowed = sender.has_credit and sender.next_lsn <= lsn <= sender.window_high and end <= size
            if not allowed or sender.status is not SenderStatus.READING:
                hit("read_unasked_records")
                self._on_violation(sender, now)
                return
            image = images if length == size else images[at:end]
            at = end
            sender.received += length
            sender.next_lsn = Lsn(lsn + 1)
            if lsn > lookup.released:
                lookup.note_released(Lsn(lsn), now)
            if lsn < position.next:
                metrics.duplicate_copies += 1
                if position.look_back:
                    self._missing.note_before(sender, Lsn(lsn), image)
                continue
            try:
                delivery.take_copy(sender, Lsn(lsn), image)
            except CorruptEntryError:
                hit("read_corrupt_copy")
                metrics.corrupt_copies += 1
                self._missing.note_unable(sender, Lsn(lsn), Lsn(lsn))
                self._fail_over.failed(sender)

    def on_gap(self, message: ShardGap, now: Micros) -> None:
        """A shard said how far it has looked."""
        sender = self._sender(message)
        if sender is None:
            return
        if message.first > sender.next_lsn:
            hit("read_gap_leaves_lsns_out")
            self._on_violation(sender, now)
            return
        sender.failures = 0
        last, delivery = message.last, self._delivery
        trimmed = message.reason == GapReason.TRIM
        self._lookup.note_released(message.last_released if trimmed else max(last, message.last_released), now)
        if trimmed:
            delivery.trim_point = max(delivery.trim_point, last)
        elif message.reason in (GapReason.UNDER_REPLICATED, GapReason.CHECKSUM_FAIL):
            self._missing.note_unable(sender, message.first, last)
            if message.reason == GapReason.CHECKSUM_FAIL:
                self._fail_over.failed(sender)
        if last >= sender.next_lsn:
            sender.next_lsn = Lsn(last + 1)

    def _on_violation(self, sender: Sender, now: Micros) -> None:
        """A shard sent what it must not send, or what it sent before is lost: its node could not reach this one a moment ago."""
        self._read_set.violated(sender, now)
        self._fail_over.failed(sender)
