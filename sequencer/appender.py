"""Replication of one entry: waves of STOREs until every shard of one wave's copyset has answered OK.

An appender never ends by itself. It ends when a wave is complete, when a seal preempts it, or when its owner aborts it; a client
that stops waiting does not end it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from logdevice_py.core import marks
from logdevice_py.core.entry import (
    EntryFlags,
    EntryHeader,
    body_of,
    check_body,
    encode_entry,
    encode_header,
    parse_header,
)
from logdevice_py.core.epoch_summary import EpochCounts
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, node_of
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, Esn, Lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import Store, Stored, StoredFlags, StoreFlags
from sequencer.context import SequencerContext
from sequencer.frames import NO_NODE, Frame
from sequencer.store_availability import Reason

_OK = Status.OK
_AMEND = int(EntryFlags.AMEND)
_OVERLOADED = int(StoredFlags.OVERLOADED)
_AWAITED = int(StoredFlags.AWAITED)
_SOFT_PREEMPTED = int(StoredFlags.SOFT_PREEMPTED)
_DRAINING = int(StoreFlags.DRAINING)
_SYNC = int(StoreFlags.SYNC)
UNKNOWN_OUTCOME = frozenset({Status.FAILED, Status.SHUTDOWN, Status.INTERNAL})
"""Refusals after which a copy may exist all the same: the write may have come before the failure."""


class AppenderState(enum.Enum):
    """Where an appender is."""

    STORING = enum.auto()  # a wave is out
    BLOCKED = enum.auto()  # no copyset could be made; it is tried again when the timer fires
    REPLICATED = enum.auto()  # every shard of one wave has it; waits for the entries before it to be reaped
    PREEMPTED = enum.auto()  # a later sequencer or recovery sealed the epoch
    ABORTED = enum.auto()  # its owner ended it


_HURRY: Final = 4
"""A wave gets this part of its time once one of its shards is known to be slow: about the p99 of STOREs, as timeouts are four of those."""
RUNNING = (AppenderState.STORING, AppenderState.BLOCKED)
_STORING = AppenderState.STORING
_REPLICATED = AppenderState.REPLICATED
_NO_EPOCH = EPOCH_INVALID


class AppenderOwner(Protocol):
    """What an appender asks of the epoch that it belongs to."""

    context: SequencerContext
    log: LogId
    generations: Mapping[ShardId, Generation]
    """By shard, as the epoch's metadata lists them."""
    store_flags: int
    """StoreFlags of every STORE of every entry."""

    @property
    def lng(self) -> Esn:
        """To be written into the entry."""

    @property
    def released(self) -> Lsn:
        """Everything of the log up to here may be read; 0: nothing is known."""

    def pick_copyset(self, size: int, tried: tuple[ShardId, ...] | None, now: Micros) -> tuple[ShardId, ...] | None:
        """For a wave of an entry of that size whose last wave went to `tried`; None: there is none at present."""

    def on_replicated(self, appender: Appender, now: Micros) -> None:
        """Every shard of the wave has the entry."""

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard refused a STORE because of a seal."""

    def on_shard_lost(self, shard: ShardId) -> None:
        """A shard is of another generation than the epoch lists: it takes nothing of this epoch any more."""

    def on_aborted(self, appender: Appender, now: Micros) -> None:
        """The appender came to a state other than REPLICATED."""


class Appender:
    """One entry on its way. `lsn`, `timestamp`, `records` and the body are fixed; copyset, LNG and wave are those of the latest wave."""

    __slots__ = (
        "_amendable",
        "_expected",
        "_hurried",
        "_late",
        "_maybe_stored",
        "_missing",
        "_restarted",
        "_sent_at",
        "context",
        "copyset",
        "counts",
        "deadline",
        "extensions",
        "flags",
        "frames",
        "image",
        "lsn",
        "owner",
        "preempted_by",
        "records",
        "size",
        "state",
        "store_flags",
        "stored",
        "synced",
        "timestamp",
        "wave",
    )

    def __init__(
        self,
        owner: AppenderOwner,
        lsn: Lsn,
        timestamp: Timestamp,
        frames: Sequence[Frame],
        records: int,
        flags: int,
        size: int,
        store_flags: int = 0,
        extensions: bytes = b"",
        counts: EpochCounts | None = None,
    ) -> None:
        self.owner = owner
        self.context = owner.context
        self.lsn = lsn
        self.timestamp = timestamp
        self.frames = frames
        self.records = records
        self.flags = flags
        self.extensions = extensions
        self.counts = counts
        """Of the epoch up to and with it; None: they are not counted."""
        self.size = size
        """Bytes that it counts for in windows."""
        self.store_flags = store_flags
        """StoreFlags of every STORE of this entry, beside the owner's."""
        self.state = AppenderState.STORING
        self.image = b""
        """Of the latest wave; empty when the appender came to its end."""
        self.wave = 0
        self.copyset: tuple[ShardId, ...] = ()
        self.deadline = 0
        self.stored = False
        """Some shard has a copy."""
        self.synced = False
        """The latest wave asked its shards to answer after a sync."""
        self.preempted_by = NO_NODE
        self._sent_at = 0
        self._missing = 0
        # Bit i stands for copyset[i]: shards that have not stored the wave, and shards that have not answered it.
        self._expected = 0
        self._restarted = 0
        """Bits of shards of the wave whose node was lost: what they stored without a sync they may have forgotten."""
        self._hurried = False
        """The wave ends before its time because a shard of it is known to be slow; the other shards are not late."""
        self._late = 0
        """STOREs of earlier waves without an answer."""
        self._maybe_stored = False
        """A STORE was lost on the way, or failed in a way that may have left a copy."""
        self._amendable: set[ShardId] | None = None
        """Shards that hold the body because they answered an earlier wave."""

    @property
    def running(self) -> bool:
        """It may still be replicated."""
        return self.state in RUNNING

    @property
    def not_replicated(self) -> bool:
        """No shard holds a copy, or will."""
        return not (self.stored or self._maybe_stored or self._late or self._expected)

    def age(self, now: Micros) -> int:
        """Microseconds since it got its LSN. Of one that needed several waves by the wall clock."""
        return now - self._sent_at if self.wave == 1 else max(0, self.context.wall() - self.timestamp)

    @property
    def unanswered(self) -> tuple[ShardId, ...]:
        """The shards that have not answered the wave, to look at."""
        return tuple(shard for at, shard in enumerate(self.copyset) if self._expected >> at & 1)

    @property
    def missing(self) -> tuple[ShardId, ...]:
        """The shards that are not known to have stored the wave, to look at."""
        return tuple(shard for at, shard in enumerate(self.copyset) if self._missing >> at & 1)

    def start(self, copyset: tuple[ShardId, ...], body: bytes, crc: int, now: Micros) -> None:
        """Send the first wave."""
        self._send(copyset, body, len(body), crc, now)

    def on_stored(self, message: Stored, now: Micros) -> None:
        """A shard answered a STORE of this entry."""
        shard = message.shard
        if message.flags:
            if message.flags & _OVERLOADED:
                self.context.availability.block(shard, Reason.OVERLOADED, now)
            if message.flags & _AWAITED:
                self.context.releases.waited_for(message.log, shard)
        if self.state is not _STORING or message.wave != self.wave:
            self._on_late(message, now)
            return
        if shard not in self.copyset:
            return
        bit = 1 << self.copyset.index(shard)
        if not self._expected & bit:
            return
        self._expected &= ~bit
        if message.status is not _OK:
            self._on_refused(message, now)
            return
        self.stored = True
        self.context.store_timeouts.note(shard, now - self._sent_at, now)
        self._missing &= ~bit
        if not self._missing:
            self.state = _REPLICATED
            self.deadline = 0
            self.image = b""
            self.owner.on_replicated(self, now)
        elif self.preempted_by != NO_NODE:
            self._abort(AppenderState.PREEMPTED, now)

    def on_timeout(self, now: Micros) -> None:
        """The wave took too long, or it is time to look for a copyset again."""
        if self.state not in RUNNING:
            return
        if self.preempted_by != NO_NODE:
            self._abort(AppenderState.PREEMPTED, now)
            return
        context = self.context
        if self.state is AppenderState.STORING and not self._hurried:
            context.metrics.stores_timed_out += 1
            silent = [shard for at, shard in enumerate(self.copyset) if self._expected >> at & 1]
            for shard in silent:
                context.store_timeouts.note(shard, now - self._sent_at, now)
            if len(silent) < len(self.copyset):
                for shard in silent:
                    context.graylist(shard, now)
        self._next_wave(now)

    def on_shard_slow(self, shard: ShardId) -> None:
        """A shard is on the graylist: what the first wave still expects of it comes soon or not at all.

        Later waves keep their time: where no copyset can do without the shard, they would chase one another.
        """
        if self.state is not _STORING or self.wave != 1 or shard not in self.copyset:
            return
        if self._expected >> self.copyset.index(shard) & 1 and not self._hurried:
            marks.hit("wave_hurried")
            self._hurried = True
            self._arm(self._sent_at + (self.deadline - self._sent_at) // _HURRY)

    def on_peer_down(self, node: NodeId, now: Micros) -> None:
        """STOREs to a node, or their answers, may have been lost."""
        if self.state not in RUNNING:
            return
        if self._late:
            self._maybe_stored = True
        if self._amendable is not None:
            # The process may have been restarted, and without a sync it may have forgotten the body.
            self._amendable = {shard for shard in self._amendable if node_of(shard) != node}
        lost = 0
        for at, shard in enumerate(self.copyset):
            if node_of(shard) == node:
                lost |= 1 << at
        self._restarted |= lost
        if self._expected & lost:
            marks.hit("recipient_lost")
            self._expected &= ~lost
            self._maybe_stored = True
            self._recipient_failed(now)

    def abort(self, now: Micros) -> None:
        """The owner ends it."""
        if self.state in RUNNING:
            self._abort(AppenderState.ABORTED, now)

    def _on_late(self, message: Stored, now: Micros) -> None:
        if message.wave < self.wave or self.state is AppenderState.BLOCKED:
            self._late = max(0, self._late - 1)
        if message.status is _OK:
            self.stored = True
            if self._amendable is None:
                self._amendable = set()
            self._amendable.add(message.shard)
        elif message.status in UNKNOWN_OUTCOME:
            self._maybe_stored = True
        elif message.status is Status.BADPAYLOAD:
            self._lacks_body(message.shard)
        if self.state is not AppenderState.STORING and self.state is not AppenderState.BLOCKED:
            return
        if message.status is Status.PREEMPTED and not self._refused_softly(message):
            self._on_preempted(message, now)
        if self.preempted_by != NO_NODE and (self.stored or not self._expected):
            self._abort(AppenderState.PREEMPTED, now)

    def _refused_softly(self, message: Stored) -> bool:
        """A soft seal stopped it, but the epoch drains: the next wave says so and is taken."""
        return bool(message.flags & _SOFT_PREEMPTED and self.owner.store_flags & _DRAINING)

    def _on_refused(self, message: Stored, now: Micros) -> None:
        status, availability = message.status, self.context.availability
        if status is Status.PREEMPTED:
            if not self._refused_softly(message):
                self._on_preempted(message, now)
        elif status is Status.BADPAYLOAD:
            marks.hit("store_checksum_mismatch")
            check_body(self.image, parse_header(self.image))  # a damaged copy here must not be spread any further
            self._lacks_body(message.shard)
            availability.block(message.shard, Reason.SLOW, now)
        elif status is Status.REBUILDING:
            marks.hit("shard_lost_its_data")
            self.owner.on_shard_lost(message.shard)
        else:
            if status in UNKNOWN_OUTCOME:
                self._maybe_stored = True
            availability.note_status(message.shard, status, now)
        self._recipient_failed(now)

    def _lacks_body(self, shard: ShardId) -> None:
        """An AMEND would not do for the shard, as after it lost unsynced writes."""
        if self._amendable is not None:
            self._amendable.discard(shard)

    def _on_preempted(self, message: Stored, now: Micros) -> None:
        marks.hit("appender_preempted")
        self.preempted_by = message.seal_node if message.seal_node != NO_NODE else self.context.node
        self.owner.on_sealed(message.seal_epoch, message.seal_node, now)

    def _recipient_failed(self, now: Micros) -> None:
        if self.state not in RUNNING:
            return
        if self.preempted_by != NO_NODE:
            if self.stored or not self._expected:
                self._abort(AppenderState.PREEMPTED, now)
        elif self.wave <= self.context.settings.immediate_waves:
            self._next_wave(now)

    def _next_wave(self, now: Micros) -> None:
        self._late += self._expected.bit_count()
        if self.state is AppenderState.STORING:
            for at, shard in enumerate(self.copyset):
                if not (self._missing | self._restarted) >> at & 1:
                    if self._amendable is None:
                        self._amendable = set()
                    self._amendable.add(shard)
        self._expected = 0
        copyset = self._choose(now)
        context = self.context
        context.metrics.waves_repeated += 1
        if copyset is None:
            marks.hit("no_copyset")
            self.state = AppenderState.BLOCKED
            self._missing = 0
            self._arm(now + context.store_timeouts.timeout(self.copyset, self.wave + 1))
            return
        header = parse_header(self.image)
        self._send(copyset, body_of(self.image), header.body_length, header.body_crc, now)

    def _choose(self, now: Micros) -> tuple[ShardId, ...] | None:
        """The copyset of the next wave; None: there is none at present."""
        return self.owner.pick_copyset(self.size, self.copyset, now)

    def _send(self, copyset: tuple[ShardId, ...], body: bytes, length: int, crc: int, now: Micros) -> None:
        owner = self.owner
        context, log, lsn = self.context, owner.log, self.lsn
        flags = owner.store_flags | self.store_flags
        wave = self.wave = self.wave + 1
        self.state = _STORING
        self.copyset = copyset
        self.synced = bool(flags & _SYNC)
        self._missing = self._expected = (1 << len(copyset)) - 1
        self._restarted = 0
        self._hurried = False
        self._sent_at = now
        header = EntryHeader(
            log, lsn, self.timestamp, wave, copyset, owner.lng, self.records, self.flags, length, crc, self.extensions
        )
        self.image = image = encode_header(header) + body
        amendable, amend = self._amendable, b""
        if amendable:
            header.flags |= _AMEND
            amend = encode_entry(header, b"")
        effects, generations, released = context.outbox.effects, owner.generations, owner.released
        for shard in copyset:
            effects.append(
                Send(
                    shard >> 8,  # type: ignore[arg-type]  # a call of the NewType would cost 40 ns a copy
                    Store(
                        log=log,
                        lsn=lsn,
                        shard=shard,
                        generation=generations[shard],
                        wave=wave,
                        flags=flags,
                        seal_epoch=_NO_EPOCH,
                        recovery_id=0,
                        released=released,
                        image=amend if amendable and shard in amendable else image,
                    ),
                )
            )
        self.deadline = now + context.store_timeouts.timeout(copyset, wave)
        context.store_timers.add(self)

    def _arm(self, deadline: int) -> None:
        self.deadline = deadline
        self.context.store_timers.add(self)

    def _abort(self, state: AppenderState, now: Micros) -> None:
        self.state = state
        self.deadline = 0
        self.image = b""
        self.context.metrics.entries_aborted += 1
        self.owner.on_aborted(self, now)
