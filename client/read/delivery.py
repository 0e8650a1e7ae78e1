"""Where a read stream goes on: each LSN is delivered once, in order, as an entry or as part of a gap."""

from __future__ import annotations

from typing import Final

from client.read.decoding import ends_log, rank_of, verify_image
from client.read.items import DataLoss, Gap, GapKind
from client.read.metrics import ReadMetrics
from client.read.read_buffer import Buffered, ReadBuffer
from client.read.read_set import ReadPosition
from client.read.ready_queue import ReadyQueue
from client.read.sender_state import Sender
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX, LSN, LSN_INVALID, LSN_MAX, Lsn, compose_lsn, epoch_of
from logdevice_py.core.marks import hit

_HOLE: Final = int(EntryFlags.HOLE)
_BRIDGE: Final = int(EntryFlags.BRIDGE)


class Delivery:
    """Puts what is next into the queue, and keeps copies that came before their turn. Nothing else moves the stream's `next`."""

    __slots__ = ("_log", "_metrics", "_position", "_queue", "buffer", "log_ended", "trim_point")

    def __init__(self, log: LogId, position: ReadPosition, queue: ReadyQueue, metrics: ReadMetrics) -> None:
        self._log = log
        self._position = position
        self._queue = queue
        self._metrics = metrics
        self.buffer = ReadBuffer(metrics)
        """Of copies above the next LSN."""
        self.log_ended = False
        """Nothing follows what was delivered, for ever."""
        self.trim_point: Lsn = LSN_INVALID
        """The greatest one that a shard has told."""

    def take_copy(self, sender: Sender, lsn: Lsn, image: bytes) -> None:
        """A shard sent a copy of an entry that was not delivered. Of several, the one of the highest rank counts.

        Raises:
            CorruptEntryError: the copy is damaged.
        """
        buffer, position = self.buffer, self._position
        other = buffer.get(lsn)
        if other is not None and len(image) >= 8 and rank_of(image) <= other.header.rank:
            self._metrics.duplicate_copies += 1
            return
        header = verify_image(self._log, lsn, image)
        copy = buffer.hold(header, image, sender)
        if lsn == position.next and lsn <= position.certain_end and lsn <= position.until and lsn > self.trim_point:
            if other is not None:
                buffer.pop(lsn)
                buffer.let_go(other)
            self.deliver(lsn, copy)
        elif buffer.put(lsn, copy):
            hit("read_higher_rank")
            self._metrics.duplicate_copies += 1

    def deliver(self, lsn: Lsn, copy: Buffered) -> None:
        """Go on with a copy of the next entry, which is not in the buffer any more."""
        position = self._position
        assert lsn == position.next, (lsn, position.next)
        flags = copy.header.flags
        if flags & _HOLE:
            self.buffer.let_go(copy)
            if flags & _BRIDGE:
                self.bridge_epoch(lsn)
            else:
                self.gap(GapKind.HOLE, lsn)
            return
        self._queue.put_entry(copy)
        position.next = Lsn(lsn + 1)
        position.look_back = LSN_INVALID
        if copy.header.extensions and ends_log(copy.header):
            hit("read_end_of_log")
            self.log_ended = True
            if position.until == LSN_MAX:  # who follows the log; who named another end gets what was asked for
                position.until = lsn

    def bridge_epoch(self, lsn: Lsn) -> None:
        """From this LSN on its epoch holds nothing."""
        self.gap(GapKind.BRIDGE, compose_lsn(epoch_of(lsn) + 1, 0))

    def lose(self, last: Lsn, loss: DataLoss) -> None:
        """Everything up to `last` is lost, or what of it belongs to the epoch of the next LSN: the ESN 0 of the next one is a BRIDGE whoever reads it."""
        hit("read_dataloss" if loss.authoritative else "read_dataloss_not_authoritative")
        self._metrics.gaps_dataloss += 1
        self.gap(GapKind.DATALOSS, min(last, compose_lsn(epoch_of(self._position.next), ESN_MAX)), loss)

    def gap(self, kind: GapKind, last: int, loss: DataLoss | None = None) -> None:
        """Up to `last` there is no entry, at most up to where the stream reads."""
        position = self._position
        last = min(last, position.until)
        assert last >= position.next, (kind, last, position.next)
        self._queue.put_gap(Gap(kind, LSN(position.next), LSN(last), loss))
        position.next = Lsn(last + 1)
        position.look_back = LSN_INVALID
        # Trimmed entries, and what a shard that breaks the rules may have sent from behind a bridge.
        self.buffer.drop_below(position.next)
