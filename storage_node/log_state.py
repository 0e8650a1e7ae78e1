"""What a shard knows of one log, in memory. A node holds hundreds of thousands: slots, and containers only on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from logdevice_py.core.ids import LogId, NodeId, is_metadata_log
from logdevice_py.core.lsn import EPOCH_INVALID, LSN_INVALID, Epoch, Esn, Lsn, epoch_of
from logdevice_py.core.units import Micros
from storage_node.epochs.recovered_epochs import RecoveredEpochs
from storage_node.lsn_ranges import Range, overlaps, remove_range
from storage_node.stored_metadata import SoftSealValue
from storage_node.writing.recent_entries import RecentLogEntries

NO_NODE: Final = NodeId(-1)
NO_SOFT_SEAL: Final = Epoch(-1)
"""Below every soft seal, so that the first STORE of a log writes one: a log without a soft seal has never answered a STORE."""


class ReleaseSubscriber(Protocol):
    """Who waits for a log's release pointer and trim point: read streams."""

    place: int
    """Its index in `LogState.streams`; -1: it is not there."""

    def wake(self) -> None:
        """Something moved that it may have waited for."""

    def awaits(self, image: bytes) -> bool:
        """The reader is to get this entry, which is not released yet, from here."""


class LogState:
    """One log on one shard.

    Everything here advances when a change is accepted, before it is on disk, except what is named durable or clean. That is safe because
    each of these values only makes the shard refuse more (seals, fence) or is a fact about the cluster that holds whatever becomes of the
    local disk (release pointer, LNG, trim point), and nothing is answered before the write that carries it is.
    """

    __slots__ = (
        "clean_epoch",
        "clean_in_flight",
        "dirty",
        "epochs",
        "fence",
        "held_cleans",
        "held_release",
        "highest",
        "last_released",
        "log",
        "read_streams",
        "recent",
        "recovered",
        "replaced",
        "seal_epoch",
        "seal_node",
        "soft_durable",
        "soft_epoch",
        "soft_node",
        "streams",
        "tail",
        "trim_point",
        "unsynced",
        "unsynced_durable",
    )

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.last_released: Lsn = LSN_INVALID
        """Everything up to here may be read; always within the first epoch that is not clean here."""
        self.held_release: Lsn = LSN_INVALID
        """A RELEASE of an epoch before which unclean ones lie: applied when those are purged."""
        self.trim_point: Lsn = LSN_INVALID
        self.seal_epoch: Epoch = EPOCH_INVALID
        self.seal_node: NodeId = NO_NODE
        self.soft_epoch: Epoch = NO_SOFT_SEAL
        self.soft_node: NodeId = NO_NODE
        self.soft_durable: Epoch = NO_SOFT_SEAL
        """The soft seal that is certainly on disk."""
        self.unsynced = False
        self.unsynced_durable = False
        """STOREs of this log may be answered before a sync; the second: and the disk knows it."""
        self.clean_epoch: Epoch = EPOCH_INVALID
        """Local last clean epoch: how this and all earlier ones ended is durably known here."""
        self.clean_in_flight = 0
        """CLEANs whose write is not answered: no purge may begin beside one."""
        self.fence: Epoch = EPOCH_INVALID
        """Epochs up to here were recovered, as a RELEASE or CLEAN has shown: acts as a seal. Never below `clean_epoch`."""
        self.epochs: dict[Epoch, Esn] | None = None
        """LNG by epoch, of every epoch that has something stored and is later than the last clean one or is it."""
        self.recovered: RecoveredEpochs | None = None
        """For peers that missed the recovery."""
        self.highest: Lsn = LSN_INVALID
        """No entry was ever accepted above this LSN."""
        self.tail: bytes | None = None
        """Guarded logs: the header of the last entry that a sequencer stored here, also when it is trimmed."""
        self.dirty: list[Range] | None = None
        """Ranges, ascending, of which a crash may have taken entries that were answered before a sync. What is on disk covers all of them."""
        self.replaced: Range | None = None
        """A range that cannot be read, of which other shards are asked what belongs there: it takes no copies from donors meanwhile."""
        self.recent: RecentLogEntries | None = None
        self.streams: list[ReleaseSubscriber] | None = None
        """Those that wait for the log, in any order, each at its place. Those that wait for their readers are not woken in vain, however many."""
        self.read_streams = 0
        """How many read streams of the log are open."""
        self.held_cleans: dict[Epoch, Callable[[Micros], None]] | None = None
        """CLEANs that wait for earlier epochs to be purged."""

    def note_recovered(self, epoch: Epoch, value: bytes) -> None:
        """It is on disk how the recovery of an epoch ended: an encoded `RecoveredEpoch`."""
        if self.recovered is None:
            self.recovered = RecoveredEpochs()
        self.recovered.put(epoch, value)

    def subscribe(self, stream: ReleaseSubscriber) -> None:
        """Have a stream told of what moves."""
        if self.streams is None:
            self.streams = []
        stream.place = len(self.streams)
        self.streams.append(stream)

    def unsubscribe(self, stream: ReleaseSubscriber) -> None:
        """A stream that has subscribed is told no more. The last one takes its place: one among very many is as quickly removed as a single one."""
        streams = self.streams
        assert streams is not None, "a stream that has a place subscribed"
        last = streams.pop()
        if last is not stream:
            assert streams[stream.place] is stream, "each stream knows its place"
            streams[stream.place] = last
            last.place = stream.place
        stream.place = -1
        if not streams:
            self.streams = None

    @property
    def known_released(self) -> Lsn:
        """Everything up to here is fully replicated and of recovered epochs, as a sequencer said; this shard may still have to purge before it shows it."""
        return max(self.last_released, self.held_release)

    @property
    def immutable_through(self) -> Lsn:
        """Up to here what the log holds never changes: what is released; of metadata logs, whose entries are true whenever they are stored, all of it."""
        return self.highest if is_metadata_log(self.log) else self.last_released

    @property
    def sealed(self) -> Epoch:
        """The epoch up to which STOREs of sequencers are refused, soft seals aside."""
        return self.seal_epoch if self.seal_epoch > self.fence else self.fence

    @property
    def sealed_by(self) -> NodeId:
        """Who set the seal that `sealed` comes from; -1 when it comes from a RELEASE or CLEAN."""
        return self.seal_node if self.seal_epoch >= self.fence else NO_NODE

    @property
    def in_memory_from(self) -> Lsn:
        """Every entry stored at or above this LSN is among the recent entries."""
        return Lsn(self.highest + 1) if self.recent is None else self.recent.complete_from

    def is_dirty(self, first: int, last: int) -> bool:
        """Whether a crash may have taken entries of [first, last]."""
        return self.dirty is not None and overlaps(self.dirty, first, last)

    def dirty_epochs(self) -> tuple[Epoch, Epoch]:
        """The first and the last epoch of which a crash may have taken entries; 0 to 0: none."""
        if self.dirty is None:
            return EPOCH_INVALID, EPOCH_INVALID
        return epoch_of(self.dirty[0][0]), epoch_of(self.dirty[-1][1])

    def forget_dirty(self, first: Lsn, last: Lsn) -> None:
        """A crash took nothing from [first, last], or it is here again, or it is not wanted any more."""
        if self.dirty is not None:
            remove_range(self.dirty, first, last)
            if not self.dirty:
                self.dirty = None

    def soft_seal_value(self) -> SoftSealValue:
        """What is to be written of the soft seal."""
        assert self.soft_epoch > NO_SOFT_SEAL, "nothing to write"
        return SoftSealValue(self.soft_epoch, self.soft_node, self.unsynced)

    def raise_clean_epoch(self, epoch: Epoch) -> None:
        """The epoch and all before it are durably clean here."""
        if epoch > self.clean_epoch:
            self.clean_epoch = epoch
            self.fence = max(self.fence, epoch)

    def check(self) -> None:
        """What must hold between any two events."""
        assert self.fence >= self.clean_epoch, (self.log, self.fence, self.clean_epoch)
        assert self.last_released >> 32 <= self.clean_epoch + 1, (self.log, self.last_released)
        assert self.soft_durable <= self.soft_epoch, (self.log, self.soft_durable, self.soft_epoch)
        assert self.dirty is None or self.dirty, self.log
        assert self.held_release == 0 or self.held_release > self.last_released, (self.log, self.held_release)
