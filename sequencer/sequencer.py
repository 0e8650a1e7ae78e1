"""The sequencer of one log at this node: its epochs, its release pointer, and who took it over."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from epoch_store.updaters import needed_history
from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core import marks
from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId, NodeId, PeerId, ShardId
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MIN, LSN_INVALID, Epoch, Lsn, compose_lsn, epoch_of
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import Status
from logdevice_py.core.token_bucket import Meter, metered
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import HISTORY_LONG, HISTORY_MAX, JOINED_MAX, EpochMetaData
from logdevice_py.metadata.widening import Widening, widened
from logdevice_py.protocol.messages import Append, GuardedAppend, Stored
from sequencer.activation import Activation, wanted_placement
from sequencer.activation_limit import ActivationLimit
from sequencer.appender import Appender
from sequencer.batching import OpenEntry
from sequencer.context import SequencerContext
from sequencer.effects import LogNotice
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.extra_copies import EpochWithExtras
from sequencer.frames import NO_NODE
from sequencer.history_trim import HistoryTrim
from sequencer.metadata_log import MetadataLogWrite
from sequencer.metadata_upkeep import MetadataUpkeep
from sequencer.recovery.result import EpochContents, RecoveryOutcome, RecoveryResult
from sequencer.redirection import Standing
from sequencer.rolling import Rolling, RollState
from sequencer.tail import Tail
from sequencer.withheld_answers import NOTHING_WITHHELD, WithheldAnswers


class SequencerPhase(MachineState):
    """Whether the log can be sequenced here. An activation may be under way in any state but REFUSED."""

    UNAVAILABLE = enum.auto()  # there is no epoch: nobody asked for one, or what there was is over
    ACTIVE = enum.auto()  # the current epoch gives LSNs
    PREEMPTED = enum.auto()  # another sequencer has a later epoch
    REFUSED = enum.auto()  # the epoch store gives no epoch until an operator has helped


_P = SequencerPhase
SEQUENCER_TRANSITIONS: Final = transitions(
    {
        _P.UNAVAILABLE: (_P.UNAVAILABLE, _P.ACTIVE, _P.REFUSED),
        _P.ACTIVE: (_P.ACTIVE, _P.PREEMPTED, _P.UNAVAILABLE),
        _P.PREEMPTED: (_P.ACTIVE, _P.UNAVAILABLE),
        _P.REFUSED: (_P.UNAVAILABLE,),
    }
)
_ACTIVE = SequencerPhase.ACTIVE


def _rolls(log: LogId, attributes: LogAttributes) -> bool:
    return attributes.rolls and log <= USER_LOG_ID_MAX


def _meter(log: LogId, attributes: LogAttributes) -> Meter | None:
    """A meter that begins empty. Internal logs have no quota."""
    rates = attributes.appends
    return Meter(rates) if rates and log <= USER_LOG_ID_MAX else None


class SequencerHooks(Protocol):
    """What the rest of the node does when a log's sequencer changes."""

    def before_new_epoch(self, sequencer: Sequencer, now: Micros) -> None:
        """The current epoch, if there is one, is about to end: use it for what is still open."""

    def on_active(self, sequencer: Sequencer, token: int, now: Micros) -> None:
        """There is a current epoch that was not there before. `token`: of the request to the epoch store that took it."""

    def on_tail_known(self, sequencer: Sequencer, now: Micros) -> None:
        """The end of a guarded log is known before the earlier epochs are recovered."""

    def on_recovered(self, sequencer: Sequencer, now: Micros) -> None:
        """All earlier epochs are recovered."""

    def on_unavailable(self, sequencer: Sequencer, status: Status, now: Micros) -> None:
        """What waits here waits in vain: PREEMPTED (see `preempted_by`), or why there will be no epoch."""

    def on_changed(self, sequencer: Sequencer, now: Micros) -> None:
        """Epoch or state changed, or the current epoch is released from here on."""

    def on_more_released(self, sequencer: Sequencer, now: Micros) -> None:
        """The release pointer went on within the current epoch; told only while the sequencer is watched."""

    def read_metadata_log(self, log: LogId, done: Callable[[bool | None, Micros], None], now: Micros) -> None:
        """Find out whether the metadata log of a data log is empty."""


class Sequencer:
    """One log. Kept small: a node has one of these for every log that it ever sequenced, most of them idle."""

    __slots__ = (
        "_activation_limit",
        "_drained",
        "_hooks",
        "_tail_of_draining",
        "activation",
        "attributes",
        "buffer",
        "context",
        "current",
        "draining",
        "guarded",
        "held",
        "history_trim",
        "home_version",
        "last_released",
        "last_timestamp",
        "log",
        "metadata",
        "metadata_upkeep",
        "meter",
        "no_redirect_until",
        "open_batch",
        "preempted_at",
        "preempted_by",
        "recovered",
        "release_copyset",
        "release_shards",
        "rolling",
        "state",
        "tail",
        "tail_lsn",
        "tail_timestamp",
        "wants_guards",
        "watched",
        "widenings",
        "withheld",
    )

    def __init__(self, log: LogId, attributes: LogAttributes, context: SequencerContext, hooks: SequencerHooks) -> None:
        self.log = log
        self.attributes = attributes
        self.context = context
        self._hooks = hooks
        self.state = SequencerPhase.UNAVAILABLE
        self.metadata: EpochMetaData | None = None
        """Of the current epoch."""
        self.current: EpochSequencer | None = None
        self.draining: EpochSequencer | None = None
        self.activation: Activation | None = None
        self.recovered: tuple[EpochContents, ...] | None = None
        """The epochs below the current one that recovery has looked at, ascending; None: it is not done. Epoch 1 has nothing to recover."""
        self.last_released: Lsn = LSN_INVALID
        self.release_shards: tuple[ShardId, ...] = ()
        self.release_copyset: tuple[ShardId, ...] = ()
        self.tail_lsn: Lsn = LSN_INVALID
        """The last entry that is released; 0 if none, or if it is not known before recovery is done."""
        self.tail_timestamp = Timestamp(0)
        self.last_timestamp = Timestamp(0)
        self.preempted_by: NodeId = NO_NODE
        self.preempted_at = Micros(0)
        self.home_version = 0
        """`placement_version` under which every request for the log is served here; 0: each must be looked at."""
        self.no_redirect_until = 0
        self.open_batch: OpenEntry | None = None
        self.buffer: list[tuple[PeerId, Append | GuardedAppend]] | None = None
        """Frames that wait for an epoch."""
        self.held: list[tuple[PeerId, Append | GuardedAppend]] | None = None
        """Frames with a previous LSN, and all of a guarded log, that wait for recovery."""
        self.wants_guards = False
        """Somebody wants to guard an append to the log."""
        self.guarded = False
        """The entries of the current epoch carry a tail state."""
        self.tail: Tail | None = None
        """The end of a guarded log; None: it is not known yet."""
        self._tail_of_draining: Tail | None = None
        """The end as the draining epoch leaves it, if all that has an LSN there is stored, and no other node had an epoch since."""
        self.withheld = NOTHING_WITHHELD
        """Of a log with strict order."""
        self.watched = False
        """Somebody waits for changes."""
        self.metadata_upkeep = MetadataUpkeep(log, context, self)
        self.history_trim = HistoryTrim()
        self.widenings: tuple[Widening, ...] = ()
        """Nodesets of earlier epochs that the next epoch is to make wider."""
        self.rolling: Rolling | None = Rolling(self, context.roll_turns) if _rolls(log, attributes) else None
        """None: epochs of the log are not ended because of their age or size."""
        self.meter: Meter | None = _meter(log, attributes)
        """The quota of its appends; None: there is none."""
        self._drained = True
        """Recovery may start: the epoch before is quiescent, or had its time."""
        self._activation_limit = ActivationLimit()

    def _become(self, state: SequencerPhase) -> None:
        assert state in self.state.followed_by, (self.log, self.state, state)
        self.state = state

    @property
    def epoch(self) -> Epoch:
        """The current epoch; 0 if none."""
        return self.current.epoch if self.current is not None else EPOCH_INVALID

    @property
    def is_released(self) -> bool:
        """The current epoch is released up to its LNG: all earlier ones are recovered, and its metadata are written."""
        return self.current is not None and epoch_of(self.last_released) == self.current.epoch

    @property
    def is_draining(self) -> bool:
        """Recovery has not begun, because entries of the epoch before are still being stored."""
        return not self._drained

    @property
    def metadata_write(self) -> MetadataLogWrite | None:
        """The metadata on their way into the metadata log, to look at."""
        return self.metadata_upkeep.write

    @property
    def may_roll(self) -> bool:
        """Something of the current epoch is released, and no other epoch is being got."""
        current = self.current
        return (
            self.state is _ACTIVE
            and self.activation is None
            and current is not None
            and current.lng > 0
            and self.is_released
        )

    def standing(self) -> Standing:
        """For routing."""
        preempted = self.state is SequencerPhase.PREEMPTED
        accepts = self.current is not None or self.activation is not None
        return Standing(accepts, preempted, self.preempted_by, self.no_redirect_until, self.preempted_at)

    # Activation

    def activate(self, now: Micros) -> None:
        """Get another epoch. Nothing happens when an activation is under way; the current epoch goes on until there is the next."""
        if self.activation is not None or self.state is SequencerPhase.REFUSED:
            return
        acceptable = None
        if self.state is SequencerPhase.ACTIVE:
            assert self.current is not None
            acceptable = Epoch(self.current.epoch + 1)
        self.activation = Activation(self, acceptable, self.context)
        self.activation.start(self._activation_limit.next(self.context.settings, now), now)

    def stop_activation(self, now: Micros) -> None:
        """Nobody wants the epoch any more."""
        if self.activation is not None:
            self._end_activation()
            self._hooks.on_changed(self, now)

    def _end_activation(self) -> None:
        """Without telling: whoever waits for an epoch would ask for another one at once."""
        if self.activation is not None:
            self.activation.stop()
            self.activation = None

    def read_metadata_log(self, done: Callable[[bool | None, Micros], None], now: Micros) -> None:
        """Find out whether the metadata log is empty."""
        self._hooks.read_metadata_log(self.log, done, now)

    def on_epoch_taken(self, metadata: EpochMetaData, token: int, now: Micros) -> None:
        """The epoch store gave an epoch: it becomes the current one at once."""
        epoch = metadata.given_epoch
        assert epoch > self.epoch, (epoch, self.epoch)
        self._hooks.before_new_epoch(self, now)
        self.activation = None
        self.widenings = ()
        old, oldest = self.current, self.draining
        if len(metadata.history) >= HISTORY_LONG > (0 if self.metadata is None else len(self.metadata.history)):
            text = f"log {self.log} had {len(metadata.history)} nodesets in epochs of which something is not trimmed: after {HISTORY_MAX} it keeps the one that it has, whatever becomes of its shards"
            self.context.outbox.emit(LogNotice(self.log, "many nodesets", text))
        self.metadata = metadata = self.context.interned(metadata)
        interval = metadata.interval(epoch)
        assert interval is not None
        self.release_shards = self.context.all_shards(metadata)
        self.guarded = bool(metadata.guarded_since)
        make = EpochWithExtras if interval.extra_copies else EpochSequencer
        self.current = make(
            self,
            self.context,
            self.context.answers,
            self.log,
            epoch,
            interval,
            self.attributes,
            counted=self.guarded,
        )
        if metadata.strict_since and epoch > EPOCH_MIN:
            if self.withheld is NOTHING_WITHHELD:
                self.withheld = WithheldAnswers()
            self.current.withholds = True
        self.draining = old
        self._become(SequencerPhase.ACTIVE)
        self.preempted_by = NO_NODE
        self.recovered = None
        follows = old is not None and epoch == old.epoch + 1
        if self.meter is not None and not follows:
            self.meter.empty(now)  # another node may have had the log meanwhile, with a bucket of its own
        self._tail_of_draining = self.tail if self.guarded and follows else None
        self.tail = None
        self.metadata_upkeep.stop(now)
        self.context.recoveries.supersede(self.log, now)
        if oldest is not None:
            oldest.destroy(self.context.node, now)
        if not metadata.written:
            self.metadata_upkeep.start(metadata, now)
        if self.rolling is not None:
            self.rolling.on_epoch(now)
        self._drained = False
        if old is None:
            self._start_recovery(now)
        else:
            self.context.timers.at(
                now + self.context.settings.epoch_draining_timeout_us, partial(self._on_drain_timeout, epoch)
            )
            old.start_draining(now)
        self._hooks.on_active(self, token, now)
        self._hooks.on_changed(self, now)
        self.reconsider(now)  # what changed while the epoch was being got is not in it

    def on_epoch_refused(self, status: Status, metadata: EpochMetaData | None, now: Micros) -> None:
        """The epoch store refused for good."""
        self.activation = None
        if status is Status.ABORTED:
            assert metadata is not None
            self.on_sealed(Epoch(metadata.given_epoch - 1), metadata.writer, now)
            return
        if self.rolling is not None:
            self.rolling.on_refused(now)
        if self.current is None:
            self._become(SequencerPhase.UNAVAILABLE if status is Status.DISABLED else SequencerPhase.REFUSED)
        self._hooks.on_unavailable(self, status, now)
        self._hooks.on_changed(self, now)

    def reconsider(self, now: Micros) -> None:
        """Cluster state or configuration changed: take another epoch if its nodeset, generations or replication would differ."""
        metadata = self.metadata
        if (
            self.state is not SequencerPhase.ACTIVE
            or metadata is None
            or not metadata.written
            or self.activation is not None
        ):
            return
        if len(needed_history(metadata.history, self.history_trim.trimmed_before)) >= HISTORY_MAX:
            marks.hit("nodeset_history_is_full")  # no epoch would have another nodeset
            if self.is_released:
                self.history_trim.look(self.context, self.log, metadata.history, self.reconsider, now)
            return
        placement = wanted_placement(self.log, self.attributes, self.context)
        wanted = placement.interval(metadata.current) if placement is not None else None
        attributes = self.attributes
        if (attributes.strict_order and not metadata.strict_since) or (
            attributes.ordered_time and not metadata.guarded_since
        ):
            self.activate(now)
        elif wanted is not None and not wanted.same_placement(metadata.current):
            marks.hit("nodeset_changes")
            self.activate(now)
        else:
            self.metadata_upkeep.follow_moves(metadata, now)

    def widen(self, now: Micros) -> bool:
        """Rebuilding finds no place for copies of earlier epochs: get an epoch that makes their nodesets wider. False: none is short of shards, or none would help.

        Only when the current epoch is released: then all earlier ones are clean.
        """
        metadata, context = self.metadata, self.context
        if not self.is_released or metadata is None or self.activation is not None:
            return False
        wanted = context.nodeset(self.log, self.attributes) or ()
        found = [widened(each, wanted, context.config, context.cluster) for each in metadata.history[:-1]]
        wider = tuple(each for each in found if each is not None)
        joining = sum(len(each.wide.joined) - len(each.narrow.joined) for each in wider)
        if sum(len(each.joined) for each in metadata.history) + joining > JOINED_MAX:
            marks.hit("nodesets_stay_narrow")
            return False
        self.widenings = wider
        if self.widenings:
            marks.hit("earlier_nodesets_are_short_of_shards")
            self.activate(now)
        return bool(self.widenings)

    def on_attributes(self, attributes: LogAttributes, now: Micros) -> None:
        """The configuration gives the log other attributes. Nodeset and replication follow by `reconsider`."""
        self.attributes = attributes
        if self.log <= USER_LOG_ID_MAX:
            self.meter = metered(self.meter, attributes.appends, now)
        if self.state is SequencerPhase.REFUSED:
            self._become(SequencerPhase.UNAVAILABLE)  # perhaps that is how an operator helped
        for epoch in (self.current, self.draining):
            if epoch is not None:
                epoch.set_attributes(attributes)
        if not _rolls(self.log, attributes):
            self._stop_rolling(now)
            self.rolling = None
            return
        if self.rolling is None:
            self.rolling = Rolling(self, self.context.roll_turns)
        if self.state is _ACTIVE and self.current is not None and self.current.next_esn > 1:
            self.rolling.on_attributes(self.current.bytes_taken, now)

    def deactivate(self, now: Micros) -> bool:
        """Stop until somebody asks for the log. False, and nothing happens: entries are on their way, or another epoch is."""
        current = self.current
        if self.open_batch is not None or self.draining is not None or self.activation is not None:
            return False
        if current is None or current.in_flight or self.withheld.entries:
            return False
        self.home_version = 0
        self.context.recoveries.abort(self.log, now)
        self.metadata_upkeep.stop(now)
        self._become(SequencerPhase.UNAVAILABLE)
        self._stop_rolling(now)
        current.destroy(NO_NODE, now)
        self.current = self.metadata = self.recovered = self.tail = self._tail_of_draining = None
        self._drained = True
        self._hooks.on_unavailable(self, Status.NOSEQUENCER, now)
        self._hooks.on_changed(self, now)
        return True

    def remove(self, now: Micros) -> None:
        """The log is not in the configuration any more: abort everything."""
        self.home_version = 0
        self._end_activation()
        self.context.recoveries.abort(self.log, now)
        self.metadata_upkeep.stop(now)
        self._become(SequencerPhase.UNAVAILABLE)
        self._stop_rolling(now)
        for epoch in (self.draining, self.current):
            if epoch is not None:
                epoch.destroy(NO_NODE, now)
        self.withheld.refuse(NO_NODE)
        self._hooks.on_unavailable(self, Status.NOTFOUND, now)
        self._hooks.on_changed(self, now)

    def _stop_rolling(self, now: Micros) -> None:
        if self.rolling is not None:
            self.rolling.stop(now)

    # Recovery and release

    def on_quiescent(self, epoch: EpochSequencer, now: Micros) -> None:
        """The epoch before has nothing on its way any more."""
        if epoch is self.draining:
            self.draining = None
            self._start_recovery(now)
            self._go_on_behind(epoch, now)

    def _go_on_behind(self, epoch: EpochSequencer, now: Micros) -> None:
        """A guarded log goes on at once behind an epoch of this node of which everything is stored: recovery cannot find another end."""
        tail, self._tail_of_draining = self._tail_of_draining, None
        if tail is None or self.tail is not None or self.state is not _ACTIVE or not epoch.is_whole:
            return
        marks.hit("tail_goes_on")
        self.tail = tail
        self._hooks.on_tail_known(self, now)

    def _on_drain_timeout(self, epoch: Epoch, now: Micros) -> None:
        if self.epoch == epoch and not self._drained:
            marks.hit("drain_timeout")
            self._tail_of_draining = None
            self._start_recovery(now)

    def _start_recovery(self, now: Micros) -> None:
        if self._drained or self.state is not SequencerPhase.ACTIVE:
            return
        assert self.metadata is not None
        self._drained = True
        epoch = self.epoch
        if epoch == EPOCH_MIN:
            self.on_recovery_done(RecoveryResult(self.log, epoch, RecoveryOutcome.OK), now)
        else:
            self.context.recoveries.start(
                self.log, epoch, self.metadata, self.on_recovery_done, now, on_sealed=self.on_earlier_sealed
            )

    def on_earlier_sealed(self, next_epoch: Epoch, now: Micros) -> None:
        """Nothing more can be stored whole in the epochs below `next_epoch`."""
        if next_epoch != self.epoch or self.state is not SequencerPhase.ACTIVE:
            return
        for epoch in (self.draining, self.current):
            if epoch is not None:
                epoch.withholds = False
        self.withheld.give()

    def on_recovery_done(self, result: RecoveryResult, now: Micros) -> None:
        """All epochs below the current one are clean, or somebody took the log over."""
        if result.next_epoch != self.epoch or self.state is not SequencerPhase.ACTIVE:
            return
        if result.outcome is RecoveryOutcome.PREEMPTED:
            self.on_sealed(result.preempted_by_epoch, result.preempted_by_node, now)
            return
        self.context.metrics.recoveries_completed += 1
        self.on_earlier_sealed(result.next_epoch, now)
        self.recovered = self.context.interned_contents(result.epochs)
        if result.tail is not None:
            self.tail_lsn, self.tail_timestamp = result.tail.lsn, result.tail.timestamp
            self.last_timestamp = max(self.last_timestamp, result.tail.timestamp)
        if self.guarded and self.tail is None:
            self.tail = Tail(result.tail)
        if self.draining is not None:
            self.draining.destroy(self.context.node, now)
        self._try_release(now)
        self._hooks.on_recovered(self, now)

    def on_metadata_written(self, now: Micros) -> None:
        """The metadata of the current epoch are in the metadata log."""
        assert self.metadata is not None
        self.metadata_upkeep.on_written()
        self.metadata = replace(self.metadata, written=True)
        if self.state is SequencerPhase.ACTIVE:
            self._try_release(now)
            self.reconsider(now)

    def store_metadata_again(self, now: Micros) -> None:
        """Somebody cannot read the metadata log for certain."""
        if self.state is SequencerPhase.ACTIVE and self.metadata is not None:
            self.metadata_upkeep.repair(self.metadata, now)

    def _try_release(self, now: Micros) -> None:
        """Release the current epoch up to its LNG once nothing stands in the way."""
        current, metadata = self.current, self.metadata
        assert current is not None
        assert metadata is not None
        if (
            self.recovered is None
            or not metadata.written
            or self.state is not SequencerPhase.ACTIVE
            or self.is_released
        ):
            return
        self.last_released = compose_lsn(current.epoch, current.lng)
        releases = self.context.releases
        if current.lng:
            self.tail_lsn, self.tail_timestamp = self.last_released, current.lng_timestamp
            # Records were acknowledged before this: whoever wants to read them has waited long enough.
            self.release_copyset = releases.reachable(self.release_shards)
        else:
            self.release_copyset = ()
        releases.moved(self, self.release_copyset, now)
        self._hooks.on_changed(self, now)
        if self.rolling is not None:
            self.rolling.on_released(now)
        self.history_trim.look(self.context, self.log, metadata.history, self.reconsider, now)

    def on_lng_moved(self, epoch: EpochSequencer, copyset: tuple[ShardId, ...], now: Micros) -> None:
        """More of an epoch is fully replicated."""
        if self.last_released >> 32 != epoch.epoch or self.state is not _ACTIVE:
            return
        self.last_released = self.tail_lsn = Lsn(epoch.epoch << 32 | epoch.lng)
        self.tail_timestamp = epoch.lng_timestamp
        self.release_copyset = copyset
        self.context.releases.moved(self, copyset, now)
        if self.watched:
            self._hooks.on_more_released(self, now)
        if self.rolling is not None and self.rolling.state is RollState.DUE:
            self.rolling.on_released(now)

    def on_entry(self, epoch: EpochSequencer, now: Micros) -> None:
        """The epoch, of a log that rolls, gave an LSN."""
        if self.rolling is not None and epoch is self.current:
            self.rolling.on_entry(epoch.bytes_taken, now)

    # Preemption

    def on_sealed(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """Somebody sealed everything up to `epoch`. If that includes the current one, another sequencer has the log."""
        if self.current is None or epoch < self.current.epoch or self.state is not SequencerPhase.ACTIVE:
            return
        marks.hit("sequencer_preempted")
        self.context.metrics.preemptions += 1
        self._become(SequencerPhase.PREEMPTED)
        self.preempted_by, self.preempted_at = node, now
        self.home_version = 0
        self.context.recoveries.abort(self.log, now)
        self.metadata_upkeep.stop(now)
        self._end_activation()
        self.withheld.refuse(node)
        self._stop_rolling(now)
        self._hooks.on_unavailable(self, Status.PREEMPTED, now)
        self._hooks.on_changed(self, now)

    # Storage

    def appender(self, lsn: Lsn) -> Appender | None:
        """The appender of an LSN, unless it came to its end."""
        epoch = self.current
        if epoch is None or epoch.epoch != lsn >> 32:
            epoch = self.draining
            if epoch is None or epoch.epoch != lsn >> 32:
                return None
        return epoch.appender(lsn & 0xFFFFFFFF)

    def on_metadata_stored(self, message: Stored, now: Micros) -> None:
        """A shard answered a STORE of the metadata log."""
        self.metadata_upkeep.on_stored(message, now)

    def timestamp(self) -> Timestamp:
        """For the next entry: never below that of an earlier one, even if the clock was set back."""
        stamp = self.context.wall()
        if stamp < self.last_timestamp:
            stamp = self.last_timestamp
        self.last_timestamp = stamp
        return stamp

    def check(self) -> None:
        """Invariants; the simulator calls it."""
        current = self.current
        assert (self.state is SequencerPhase.ACTIVE) <= (current is not None)
        if current is not None:
            current.check()
            assert epoch_of(self.last_released) <= current.epoch
            if self.is_released:
                assert self.last_released <= compose_lsn(current.epoch, current.lng)
                assert self.state is not SequencerPhase.ACTIVE or self.recovered is not None
        if self.draining is not None:
            self.draining.check()
            assert current is not None
            assert self.draining.epoch < current.epoch
