"""One epoch of one log: gives LSNs, replicates the entries, and knows up to where all of them are replicated."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from google_crc32c import value as crc32c

from logdevice_py.config.attributes import Durability, LogAttributes
from logdevice_py.core import marks
from logdevice_py.core.entry import ConstituentFlags, EntryFlags, encode_body, pack_body
from logdevice_py.core.epoch_summary import EpochCounts
from logdevice_py.core.extensions import encode_counts
from logdevice_py.core.ids import USER_LOG_ID_MAX, Generation, LogId, NodeId, ShardId
from logdevice_py.core.lsn import ESN_INVALID, ESN_MAX, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.extra_copies import ExtraCopies
from logdevice_py.placement.policy import CopysetSource
from logdevice_py.protocol.messages import StoreFlags
from sequencer.appender import Appender, AppenderState
from sequencer.batching import compression_of, is_worth_packing
from sequencer.context import SequencerContext
from sequencer.copyset_sticky import StickyCopyset
from sequencer.frames import NO_NODE, Answers, Frame
from sequencer.guard import transaction_ids
from sequencer.sliding_window import SlidingWindow
from sequencer.withheld_answers import WithheldAnswers
from sequencer.write_streams import KnownWriters

_STREAM_ENTRY = int(EntryFlags.WRITE_STREAM)
_CONDITIONAL = int(EntryFlags.CONDITIONAL)
_ORDERED = _STREAM_ENTRY | _CONDITIONAL
_CONTROL = int(EntryFlags.CONTROL)
_EPOCH_BEGIN = int(EntryFlags.EPOCH_BEGIN)
_KEYED = int(EntryFlags.KEYED)
_KEYS = int(ConstituentFlags.KEYS)
_REPLICATED = AppenderState.REPLICATED
_OK = Status.OK
_NO_SHARDS: frozenset[ShardId] = frozenset()
"""One for all epochs: each call makes another empty set, of 200 bytes."""
_ENTRY_OVERHEAD = 256
"""Bytes that an entry counts for beside its payloads."""


class EpochSequencerState(enum.IntEnum):
    """Life of an epoch; it only moves upward."""

    ACTIVE = 0  # gives LSNs
    DRAINING = 1  # gives none; its entries are still stored, past soft seals of later epochs
    DYING = 2  # its entries are being aborted
    QUIESCENT = 3  # no entry is on its way


_ACTIVE = EpochSequencerState.ACTIVE


class EpochOwner(Protocol):
    """What an epoch tells its sequencer, and asks of it."""

    last_released: Lsn
    """Everything of the log up to here may be read."""
    withheld: WithheldAnswers
    """Of entries that are stored."""

    def on_lng_moved(self, epoch: EpochSequencer, copyset: tuple[ShardId, ...], now: Micros) -> None:
        """Everything up to the LNG of the epoch is fully replicated; the shards of `copyset` have the entry at it."""

    def on_entry(self, epoch: EpochSequencer, now: Micros) -> None:
        """The epoch, of a log that rolls, gave an LSN."""

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard holds a seal of that epoch, set by that node."""

    def on_quiescent(self, epoch: EpochSequencer, now: Micros) -> None:
        """A draining or dying epoch has no entry on its way any more."""


class EpochSequencer:
    """One epoch while this node sequences it. Nodeset and replication never change within it."""

    _appender_type: ClassVar[type[Appender]] = Appender

    __slots__ = (
        "_answers",
        "_compression",
        "_extras",
        "_selector",
        "_selector_version",
        "_sticky",
        "_window",
        "acknowledged",
        "attributes",
        "context",
        "counts",
        "durability",
        "epoch",
        "generations",
        "interval",
        "lng",
        "lng_counts",
        "lng_timestamp",
        "log",
        "lost",
        "owner",
        "preempted_by",
        "rolls",
        "state",
        "store_flags",
        "streams",
        "withholds",
    )

    def __init__(
        self,
        owner: EpochOwner,
        context: SequencerContext,
        answers: Answers,
        log: LogId,
        epoch: Epoch,
        interval: EpochInterval,
        attributes: LogAttributes,
        *,
        counted: bool = False,
    ) -> None:
        """`counted`: entries say what the epoch has up to them."""
        self.owner = owner
        self.context = context
        self.log = log
        self.epoch = epoch
        self.interval = interval
        self.attributes = attributes
        self.generations: Mapping[ShardId, Generation] = context.generations(interval)
        self.store_flags = 0
        self.state = EpochSequencerState.ACTIVE
        self.lng = ESN_INVALID
        self.lng_timestamp = Timestamp(0)
        """Of the entry at the LNG."""
        self.counts: EpochCounts | None = (
            EpochCounts() if counted or (attributes.rolls and log <= USER_LOG_ID_MAX) else None
        )
        """Of what got LSNs; None: nothing is counted."""
        self.lng_counts = self.counts
        """Of what there is up to the LNG."""
        self.acknowledged = ESN_INVALID
        """Greatest ESN that a client was told of."""
        self.preempted_by = NO_NODE
        self.streams: KnownWriters | None = None
        self.withholds = False
        """Nobody is told that an entry is stored before the epochs before are sealed."""
        self.lost = _NO_SHARDS
        """Shards of another generation than the epoch lists."""
        self._answers = answers
        self._window: SlidingWindow | None = None
        self._sticky: StickyCopyset | None = None
        self._selector: CopysetSource | None = None
        self._selector_version = 0
        self._extras: ExtraCopies | None = None
        self.set_attributes(attributes)

    def set_attributes(self, attributes: LogAttributes) -> None:
        """Take the attributes that may change within an epoch."""
        self.attributes = attributes
        self._compression = compression_of(self.log, attributes)
        self.rolls = attributes.rolls and self.log <= USER_LOG_ID_MAX
        """The owner is told of entries."""
        self.durability = Durability.SYNC if self.log > USER_LOG_ID_MAX else attributes.durability
        draining = self.store_flags & int(StoreFlags.DRAINING)
        self.store_flags = draining | (int(StoreFlags.SYNC) if self.durability is Durability.SYNC else 0)

    @property
    def next_lsn(self) -> Lsn:
        """What the next entry would get; that of the last possible entry when the ESNs are used up."""
        return compose_lsn(self.epoch, min(self.next_esn, ESN_MAX))

    @property
    def next_esn(self) -> int:
        """What the next entry would get."""
        return self._window.next_esn if self._window is not None else 1

    @property
    def released(self) -> Lsn:
        """Everything of the log up to here may be read."""
        return self.owner.last_released

    @property
    def is_whole(self) -> bool:
        """Everything that has an LSN is fully replicated: recovery, whoever does it, finds exactly that."""
        return self.lng == self.next_esn - 1

    @property
    def in_flight(self) -> int:
        """Entries that are not reaped."""
        return len(self._window) if self._window is not None else 0

    @property
    def window_bytes(self) -> int:
        """Bytes of entries that are not reaped."""
        return self._window.bytes if self._window is not None else 0

    @property
    def bytes_taken(self) -> int:
        """Bytes of payloads of all entries that got an LSN."""
        return 0 if self._window is None else self._window.bytes_in - _ENTRY_OVERHEAD * (self._window.next_esn - 1)

    def room(self, entries: int, size: int) -> Status:
        """Whether that many entries can get LSNs: OK, SEQNOBUFS, TOOBIG (ESNs are exhausted), or why no copyset can be made."""
        window = self._window
        if window is None:
            window = self._window = SlidingWindow()
        attributes, settings = self.attributes, self.context.settings
        if self.context.metrics.bytes_in_flight + size > settings.appender_bytes and self.log <= USER_LOG_ID_MAX:
            marks.hit("appender_bytes_exhausted")
            return Status.SEQNOBUFS
        if self.withholds and self.owner.withheld.entries + entries > attributes.max_writes_in_flight:
            marks.hit("too_many_answers_withheld")
            return Status.SEQNOBUFS
        return window.room(entries, size, attributes.max_writes_in_flight, attributes.window_bytes, settings.esn_max)

    def append(
        self,
        frames: Sequence[Frame],
        records: int,
        size: int,
        stream: bool,
        timestamp: Timestamp,
        now: Micros,
        *,
        room_checked: bool = False,
        extensions: bytes = b"",
    ) -> Status:
        """Make the frames one entry, with batch offsets in their order, and start to replicate it.

        `extensions`: of the entry's header. Statuses: OK; SEQNOBUFS, the window is full; TOOBIG, the epoch has no LSN left; otherwise why no copyset can be made. Unless OK nothing
        has happened.
        """
        assert self.state is _ACTIVE, self.state
        size += _ENTRY_OVERHEAD
        status = _OK if room_checked else self.room(1, size)
        if status is not _OK:
            return status
        copyset = self.pick_copyset(size, None, now)
        if copyset is None:
            return Status.DISABLED if self.lost else self.context.availability.refusal(self.interval.shards)
        window = self._window
        assert window is not None
        esn = window.next_esn
        lsn = Lsn(self.epoch << 32 | esn)
        offset = kinds = wanted = 0
        for frame in frames:
            frame.offset = offset
            offset += frame.records
            kinds |= frame.flags
            wanted |= frame.store_flags
            if stream:
                frame.lsn = lsn
        body = encode_body(frames if records else ())
        if self._compression and is_worth_packing(frames):
            body = pack_body(body, self._compression)
        for frame in frames:
            frame.payload = b""
        flags = (_STREAM_ENTRY if stream else 0) | (_EPOCH_BEGIN if esn == 1 else 0) | (_KEYED if kinds & _KEYS else 0)
        if extensions:
            guard = frames[0].guard
            flags |= (_CONDITIONAL if guard is not None and guard.alone else 0) | (0 if records else _CONTROL)
        counts = self.counts
        if counts is not None:
            first, last = transaction_ids(frames)
            counts = self.counts = counts.with_entry(records, len(body), timestamp, first, last)
            extensions += encode_counts(counts)
        appender = self._appender_type(self, lsn, timestamp, frames, records, flags, size, wanted, extensions, counts)
        if not len(window):
            self.context.busy[self] = None
        window.grow(appender)
        metrics = self.context.metrics
        metrics.entries_started += 1
        metrics.bytes_in_flight += size
        appender.start(copyset, body, crc32c(body), now)
        if self.rolls:
            self.owner.on_entry(self, now)
        return status

    def appender(self, esn: int) -> Appender | None:
        """The appender of an ESN, unless it was reaped or never began."""
        window = self._window
        return window.appenders.get(esn) if window is not None else None

    def entries(self) -> list[Appender]:
        """Those that are not reaped, in order, to look at."""
        return [] if self._window is None else list(self._window)

    def pick_copyset(self, size: int, tried: tuple[ShardId, ...] | None, now: Micros) -> tuple[ShardId, ...] | None:
        """The copyset for a wave."""
        context = self.context
        selector = self._selector
        if selector is None or self._selector_version != context.placement_version:
            selector = self._copyset_source()
        sticky = self._sticky
        if sticky is None:
            sticky = self._sticky = StickyCopyset()
        return sticky.pick(size, tried, self.attributes, selector, context.availability, self.lost, now, self._extras)

    def _copyset_source(self) -> CopysetSource:
        """Who chooses copysets, as of the cluster's present configuration."""
        context = self.context
        if self._selector is None or self._selector_version != context.placement_version:
            domains = self.interval.domains(context.config.location)
            self._selector = context.selector(domains)
            if self.interval.extra_copies:
                self._extras = context.placement.extra_copies(domains, self.interval.extra_copies, context.rng)
            self._selector_version = context.placement_version
        return self._selector

    def on_replicated(self, appender: Appender, now: Micros) -> None:
        """An entry is fully replicated: acknowledge it, and reap what can be reaped."""
        metrics = self.context.metrics
        metrics.entries_replicated += 1
        if appender.lsn & 7 == 1:
            metrics.append_latency.note(appender.age(now))
        if not appender.flags & _ORDERED:
            self._acknowledge(appender)
        if appender.lsn & 0xFFFFFFFF == self._window.tail:  # type: ignore[union-attr]
            self._reap(now)

    def on_aborted(self, appender: Appender, now: Micros) -> None:
        """An entry was preempted or aborted: the LNG stops before it for ever."""
        self._refuse(appender)
        if appender.lsn & 0xFFFFFFFF == self._window.tail:  # type: ignore[union-attr]
            self._reap(now)

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard holds a seal."""
        self.preempted_by = node
        self.owner.on_sealed(epoch, node, now)

    def on_shard_lost(self, shard: ShardId) -> None:
        """A shard has lost what it had of this epoch and takes nothing of it any more; other epochs may use it."""
        self.lost |= {shard}
        if self._sticky is not None:
            self._sticky.end_block()

    def on_peer_down(self, node: NodeId, now: Micros) -> None:
        """The connection to a node broke."""
        if self._window is not None:
            for appender in self._window:
                appender.on_peer_down(node, now)

    def on_shard_slow(self, shard: ShardId, now: Micros) -> None:
        """A shard came onto the graylist."""
        if self._window is not None:
            for appender in self._window:
                appender.on_shard_slow(shard)

    def start_draining(self, now: Micros) -> None:
        """Give no more LSNs. Tells the owner when nothing is on its way, perhaps at once."""
        assert self.state is EpochSequencerState.ACTIVE, self.state
        self.state = EpochSequencerState.DRAINING
        self.store_flags |= int(StoreFlags.DRAINING)
        self._check_quiescent(now)

    def destroy(self, successor: NodeId, now: Micros) -> None:
        """Abort everything that is on its way. `successor`: the node whose recovery of the epoch knows what became of it; -1 if none."""
        if self.state is EpochSequencerState.QUIESCENT:
            return
        self.preempted_by = successor
        self.state = EpochSequencerState.DYING
        if self._window is not None:
            for appender in self._window:
                appender.abort(now)
        self._check_quiescent(now)

    def check(self) -> None:
        """Invariants; the simulator calls it."""
        window = self._window
        if window is not None:
            assert self.lng < window.tail <= window.next_esn, (self.lng, window.tail, window.next_esn)
            assert len(window.appenders) == len(window)
            oldest = window.appenders.get(window.tail)
            assert oldest is None or oldest.running
        assert self.state is not EpochSequencerState.QUIESCENT or self.in_flight == 0

    def _reap(self, now: Micros) -> None:
        window = self._window
        assert window is not None
        last: Appender | None = None
        metrics = self.context.metrics
        while (appender := window.reap()) is not None:
            metrics.bytes_in_flight -= appender.size
            esn = appender.lsn & 0xFFFFFFFF
            if appender.state is _REPLICATED:
                if self.lng == esn - 1:
                    self.lng = Esn(esn)
                    last = appender
                    if appender.flags & _ORDERED:
                        self._acknowledge(appender)
                elif appender.flags & _ORDERED:
                    # Recovery turns it into a hole if the entry before it is one: nobody may be told that it was stored.
                    marks.hit("write_stream_after_hole")
                    self._refuse(appender)
        if last is not None:
            self.lng_timestamp = last.timestamp
            self.lng_counts = last.counts
            self.owner.on_lng_moved(self, last.copyset, now)
        if not len(window):
            self.context.busy.pop(self, None)
        if self.state is not _ACTIVE:
            self._check_quiescent(now)

    def _acknowledge(self, appender: Appender) -> None:
        if self.withholds:
            self.owner.withheld.add(self, appender)
            return
        self._tell(appender, list(appender.copyset))

    def _tell(self, appender: Appender, holders: list[ShardId]) -> None:
        """Tell clients that an entry is stored, and where."""
        esn = appender.lsn & 0xFFFFFFFF
        if esn > self.acknowledged:
            self.acknowledged = Esn(esn)
        # As it was stored: the log's durability may have changed since, and a frame may have asked for more.
        durability = Durability.SYNC if appender.synced else Durability.ASYNC
        acknowledge = self._answers.acknowledge
        for frame in appender.frames:
            acknowledge(frame, self.log, appender.lsn, appender.timestamp, durability, holders)

    def acknowledge_withheld(self, appender: Appender) -> None:
        """The epochs before are sealed: tell that an entry is stored."""
        marks.hit("withheld_answer_given")
        self._acknowledge(appender)

    def refuse_withheld(self, appender: Appender, successor: NodeId) -> None:
        """The log is sequenced elsewhere, whose recovery finds the entry."""
        self.preempted_by = successor
        self._refuse(appender)

    def _refuse(self, appender: Appender) -> None:
        redirect = appender.preempted_by if appender.preempted_by != NO_NODE else self.preempted_by
        preempted = appender.state is not AppenderState.ABORTED or redirect != NO_NODE
        for frame in appender.frames:
            self._answers.fail(
                frame,
                self.log,
                Status.PREEMPTED if preempted else Status.ABORTED,
                lsn=appender.lsn,
                not_replicated=appender.not_replicated,
                redirect=redirect if preempted else NO_NODE,
            )

    def _check_quiescent(self, now: Micros) -> None:
        if self.in_flight == 0 and self.state in (EpochSequencerState.DRAINING, EpochSequencerState.DYING):
            self.state = EpochSequencerState.QUIESCENT
            self.owner.on_quiescent(self, now)
