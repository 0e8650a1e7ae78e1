"""What the sequencers of a node wait for, as the states of their machines tell it. Each function yields rows as they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Protocol

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId, ShardId, format_shard, node_of
from logdevice_py.core.lsn import Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FMajority, Labels
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.waits import WaitCause, WaitKind, WaitsRow
from sequencer.activation import ActivationState, wanted_placement
from sequencer.appender import Appender, AppenderState
from sequencer.context import SequencerContext
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.extra_copies import AppenderWithExtras
from sequencer.metadata_log import MetadataLogState, MetadataLogWrite
from sequencer.metadata_log_reading import MetadataLogReading
from sequencer.recovery.attempt import EpochRecoveryState
from sequencer.recovery.epoch_recovery import EpochRecovery
from sequencer.recovery.log_recovery import LogRecovery, LogRecoveryState
from sequencer.recovery.node_recoveries import NodeRecoveries
from sequencer.recovery.recovery_shard import RecoveryShardState
from sequencer.seq_state import SeqStateService
from sequencer.sequencer import Sequencer, SequencerPhase
from sequencer.store_availability import Reason

_CAUSE_OF: Final = {
    Reason.OVERLOADED: WaitCause.OVERLOADED,
    Reason.NO_SPACE: WaitCause.NO_SPACE,
    Reason.DISABLED: WaitCause.DISABLED,
    Reason.UNROUTABLE: WaitCause.NODE_DEAD,
    Reason.SLOW: WaitCause.GRAYLIST,
    Reason.PROBING: WaitCause.GRAYLIST,
}
Explanation = tuple[WaitCause, tuple[ShardId, ...], str]
"""The cause, the shards that are waited for or are the reason, and more for people."""


class SequencerView(Protocol):
    """A node's sequencers and what they are waiting for."""

    sequencers: dict[LogId, Sequencer]
    context: SequencerContext
    recoveries: NodeRecoveries

    @property
    def metadata_logs(self) -> MetadataLogReading:
        """Readings of metadata logs."""

    @property
    def seq_states(self) -> SeqStateService:
        """Who asked for the states of sequencers."""


def waits_rows(node: SequencerView, constraints: Constraints, now: Micros) -> Iterator[WaitsRow]:
    """Table `waits`, as far as sequencers are concerned."""
    explainer = _Explainer(node, now)
    logs: Iterable[LogId]
    if constraints.log_id is not None:
        logs = [constraints.log_id]
    else:
        logs = list(node.sequencers)
    for log in logs:
        sequencer = node.sequencers.get(log)
        if sequencer is not None:
            yield from explainer.of_log(sequencer)
    for log in node.recoveries.logs() if constraints.log_id is None else [constraints.log_id]:
        recovery = node.recoveries.find(log)
        if recovery is not None:
            yield explainer.of_recovery(recovery)


class _Explainer:
    """Explains one log after the other. What logs have in common is worked out once."""

    def __init__(self, node: SequencerView, now: Micros) -> None:
        self._node = node
        self._context: SequencerContext = node.context
        self._now = now
        self._refusals: dict[tuple[tuple[ShardId, ...], ReplicationProperty, Labels | None], Explanation | None] = {}

    def of_log(self, sequencer: Sequencer) -> Iterator[WaitsRow]:
        """What a sequencer waits for, but for its recovery."""
        yield from self._of_frames(sequencer)
        yield from self._of_entries(sequencer)
        yield from self._of_activation(sequencer)
        if sequencer.metadata_write is not None:
            yield self._of_metadata(sequencer, sequencer.metadata_write)
        yield from self._of_release(sequencer)
        yield from self._of_requests(sequencer)

    def _row(
        self,
        kind: WaitKind,
        log: LogId,
        explanation: Explanation,
        *,
        lsn: Lsn | None = None,
        waiting: int = 1,
        began: int | None = None,
        waited: float | None = None,
    ) -> WaitsRow:
        """`began`: by the monotonic clock; `waited`: seconds, where it is not known by that."""
        cause, shards, detail = explanation
        if began is not None:
            waited = (self._now - began) / 1e6
        return WaitsRow(
            kind=kind.name,
            log_id=log,
            cause=cause.name,
            shards=", ".join(map(format_shard, shards)),
            lsn=lsn,
            waiting=waiting,
            waited_seconds=None if waited is None else max(0.0, round(waited, 6)),
            shard=None,
            detail=detail,
        )

    # Appends

    def _of_frames(self, sequencer: Sequencer) -> Iterator[WaitsRow]:
        log, activation = sequencer.log, sequencer.activation
        if sequencer.buffer:
            began = None if activation is None else activation.began
            yield self._row(WaitKind.APPEND, log, (WaitCause.EPOCH, (), ""), waiting=len(sequencer.buffer), began=began)
        if sequencer.held:
            recovery = self._node.recoveries.find(log)
            began = None if recovery is None else recovery.began
            yield self._row(
                WaitKind.APPEND, log, (WaitCause.RECOVERY, (), ""), waiting=len(sequencer.held), began=began
            )
        if sequencer.open_batch is not None:
            waiting = len(sequencer.open_batch.frames)
            yield self._row(WaitKind.APPEND, log, (WaitCause.BATCH, (), ""), waiting=waiting)

    def _of_entries(self, sequencer: Sequencer) -> Iterator[WaitsRow]:
        for epoch in (sequencer.draining, sequencer.current):
            if epoch is not None and epoch.in_flight:
                yield from self._of_window(epoch)
        current, attributes = sequencer.current, sequencer.attributes
        if current is None or sequencer.state is not SequencerPhase.ACTIVE:
            return
        refused = self._refusal(current)
        if refused is not None:
            yield self._row(WaitKind.APPEND, sequencer.log, refused, waiting=0)
        if current.in_flight and (
            current.in_flight >= attributes.max_writes_in_flight or current.window_bytes >= attributes.window_bytes
        ):
            detail = (
                f"{current.in_flight} of {attributes.max_writes_in_flight} entries, "
                f"{current.window_bytes} of {attributes.window_bytes} bytes"
            )
            lsn = Lsn(current.next_lsn - current.in_flight)
            yield self._row(WaitKind.APPEND, sequencer.log, (WaitCause.WINDOW_FULL, (), detail), lsn=lsn, waiting=0)
        elif current.in_flight and self._context.metrics.bytes_in_flight >= self._context.settings.appender_bytes:
            detail = f"{self._context.metrics.bytes_in_flight} of {self._context.settings.appender_bytes} bytes"
            yield self._row(WaitKind.APPEND, sequencer.log, (WaitCause.MEMORY_FULL, (), detail), waiting=0)

    def _of_window(self, epoch: EpochSequencer) -> Iterator[WaitsRow]:
        """Entries that wait for the same make one row, at the place of the first of them."""
        found: dict[tuple[WaitKind, WaitCause, tuple[ShardId, ...]], tuple[Appender, Explanation, list[int]]] = {}
        for appender in epoch.entries():
            is_told = isinstance(appender, AppenderWithExtras) and appender.is_told
            explanation = self._of_appender(appender, epoch)
            kind = WaitKind.RELEASE if is_told else WaitKind.APPEND
            first = found.setdefault((kind, *explanation[:2]), (appender, explanation, [0]))
            first[2][0] += 1
        wall = self._context.wall()
        for (kind, *_), (appender, explanation, (waiting,)) in found.items():
            waited = (wall - appender.timestamp) / 1e6
            yield self._row(kind, epoch.log, explanation, lsn=appender.lsn, waiting=waiting, waited=waited)

    def _of_appender(self, appender: Appender, epoch: EpochSequencer | None) -> Explanation:
        """`epoch`: that of a data log; None for the entry of a metadata log."""
        if appender.state is AppenderState.BLOCKED:
            return self._no_copyset(epoch) if epoch is not None else self._no_metadata_copyset()
        if appender.state is not AppenderState.STORING:
            return WaitCause.EARLIER_ENTRY, (), ""
        unanswered = appender.unanswered
        detail = f"wave {appender.wave}{self._what_is_known_of(unanswered)}"
        if not unanswered:
            return WaitCause.STORE_REFUSED, appender.missing, f"wave {appender.wave}"
        return WaitCause.STORES if appender.wave == 1 else WaitCause.STORES_AGAIN, unanswered, detail

    def _what_is_known_of(self, shards: Iterable[ShardId]) -> str:
        known = []
        for shard in shards:
            reason = self._context.availability.reason(shard)
            if not self._context.cluster.is_alive(node_of(shard)):
                known.append(f"{format_shard(shard)} is DEAD")
            elif reason is not None:
                known.append(f"{format_shard(shard)} is {reason.name}")
        return "".join(f"; {each}" for each in known)

    def _refusal(self, epoch: EpochSequencer) -> Explanation | None:
        """Why an append would find no copyset; None when there is one. Shards on the graylist are taken when nothing else is left."""
        if epoch.lost:
            return self._judged(epoch)
        interval = epoch.interval
        key = (interval.shards, interval.replication, interval.labels)
        if key not in self._refusals:
            self._refusals[key] = self._judged(epoch)
        return self._refusals[key]

    def _judged(self, epoch: EpochSequencer) -> Explanation | None:
        slow = (Reason.SLOW, Reason.PROBING)
        availability = self._context.availability
        usable = [
            shard
            for shard in epoch.interval.shards
            if shard not in epoch.lost and (availability.is_available(shard) or self._is_only(shard, slow))
        ]
        interval = epoch.interval
        domains = interval.domains(self._context.config.location)
        return None if domains.can_replicate(usable) else self._no_copyset(epoch)

    def _is_only(self, shard: ShardId, reasons: Collection[Reason]) -> bool:
        """Nothing but that is known against the shard."""
        return (
            self._context.availability.reason(shard) in reasons
            and self._context.cluster.is_alive(node_of(shard))
            and self._context.config.is_writable(shard)
        )

    def _no_copyset(self, epoch: EpochSequencer) -> Explanation:
        return self._unusable(epoch.interval.shards, epoch.lost)

    def _no_metadata_copyset(self) -> Explanation:
        return self._unusable(self._context.config.metadata_log.nodeset, frozenset())

    def _unusable(self, shards: Iterable[ShardId], lost: Collection[ShardId]) -> Explanation:
        """The most common reason against shards; the detail has all of them. The graylist is no reason while there is another one: its
        shards are taken when nothing else is left.
        """
        against: dict[ShardId, WaitCause] = {}
        for shard in shards:
            cause = self._against(shard, lost)
            if cause is not None:
                against[shard] = cause
        if not against:
            return WaitCause.STORES_AGAIN, (), "a copyset can be made when the next wave begins"
        firm = [cause for cause in against.values() if cause is not WaitCause.GRAYLIST]
        counts = Counter(firm or against.values())
        cause = max(WaitCause, key=lambda each: counts[each])
        detail = ", ".join(f"{format_shard(shard)}: {each.name}" for shard, each in against.items())
        return cause, tuple(shard for shard, each in against.items() if each is cause), detail

    def _against(self, shard: ShardId, lost: Collection[ShardId]) -> WaitCause | None:
        context = self._context
        if not context.cluster.is_alive(node_of(shard)):
            return WaitCause.NODE_DEAD
        if shard in lost:
            return WaitCause.SHARD_LOST
        reason = context.availability.reason(shard)
        if reason is not None:
            return _CAUSE_OF[reason]
        return None if context.config.is_writable(shard) else WaitCause.DISABLED

    # Epochs

    def _of_activation(self, sequencer: Sequencer) -> Iterator[WaitsRow]:
        log, activation = sequencer.log, sequencer.activation
        if sequencer.state is SequencerPhase.REFUSED:
            yield self._row(WaitKind.ACTIVATION, log, (WaitCause.OPERATOR, (), ""))
        if activation is None:
            return
        failure = activation.failure
        shards: tuple[ShardId, ...] = ()
        detail = "" if failure is Status.OK else f"it answered {failure.name}"
        if activation.state is ActivationState.READING_METADATA_LOG:
            cause, detail = WaitCause.METADATA_LOG, "the epoch store does not know the log"
            shards = tuple(self._node.metadata_logs.unanswered(log))
        elif activation.state is ActivationState.ASKING:
            cause = WaitCause.EPOCH_STORE
        elif activation.state is ActivationState.AWAITING_SHARDS:
            cause, detail = WaitCause.NO_NODESET, "its first nodeset should list all shards"
            shards = self._unheard()
        elif activation.state is ActivationState.AWAITING_EVENT_LOG:
            cause, detail = WaitCause.EVENT_LOG, "its first nodeset must not list drained shards"
        elif failure is Status.OK:
            cause = WaitCause.ACTIVATION_LIMIT
        elif sequencer.metadata is None and self._has_no_nodeset(sequencer):
            cause, detail = WaitCause.NO_NODESET, ""
            shards = self._unheard()
        elif failure is Status.REBUILDING:
            cause, detail = WaitCause.NON_AUTHORITATIVE, "the metadata log cannot be shown to be empty"
        else:
            cause = WaitCause.EPOCH_STORE
        yield self._row(WaitKind.ACTIVATION, log, (cause, shards, detail), began=activation.began)

    def _has_no_nodeset(self, sequencer: Sequencer) -> bool:
        placement = wanted_placement(sequencer.log, sequencer.attributes, self._context)
        return placement is None or placement.interval(None) is None

    def _unheard(self) -> tuple[ShardId, ...]:
        """Writable shards of which no generation is known."""
        cluster = self._context.cluster
        return tuple(shard for shard in self._context.config.writable_shards() if not cluster.generation(shard))

    def _of_metadata(self, sequencer: Sequencer, write: MetadataLogWrite) -> WaitsRow:
        if write.state is MetadataLogState.NOTING:
            explanation: Explanation = (WaitCause.EPOCH_STORE, (), "the entry is stored, and it is told so")
        elif write.state is MetadataLogState.CONFIRMING:
            explanation = (
                WaitCause.STORES,
                write.unconfirmed,
                "the entry is stored; they are asked whether they still have it",
            )
        elif write.appender is None:
            explanation = self._no_metadata_copyset()
        else:
            explanation = self._of_appender(write.appender, None)
        lsn = compose_lsn(sequencer.epoch, 0)
        return self._row(WaitKind.METADATA, sequencer.log, explanation, lsn=lsn, began=write.began)

    def _of_release(self, sequencer: Sequencer) -> Iterator[WaitsRow]:
        current, metadata = sequencer.current, sequencer.metadata
        if current is None or metadata is None or sequencer.state is not SequencerPhase.ACTIVE or sequencer.is_released:
            return
        waited = (self._context.wall() - metadata.epoch_given_at) / 1e6 if metadata.epoch_given_at else None
        lsn = compose_lsn(current.epoch, 0)
        causes = []
        if sequencer.is_draining:
            in_flight = 0 if sequencer.draining is None else sequencer.draining.in_flight
            causes.append((WaitCause.DRAINING, f"{in_flight} entries"))
        elif sequencer.recovered is None:
            causes.append((WaitCause.RECOVERY, ""))
        if not metadata.written:
            causes.append((WaitCause.METADATA, ""))
        for cause, detail in causes:
            yield self._row(WaitKind.RELEASE, sequencer.log, (cause, (), detail), lsn=lsn, waited=waited)

    def _of_requests(self, sequencer: Sequencer) -> Iterator[WaitsRow]:
        waiting, asking = self._node.seq_states.waiting(sequencer.log)
        if not waiting:
            return
        if sequencer.activation is not None:
            cause = WaitCause.EPOCH
        elif asking:
            cause = WaitCause.EPOCH_STORE
        else:
            cause = WaitCause.RELEASE
        yield self._row(WaitKind.TAIL, sequencer.log, (cause, (), ""), waiting=waiting)

    # Recovery

    def of_recovery(self, recovery: LogRecovery) -> WaitsRow:
        """What the recovery of a log waits for."""
        epoch = recovery.current
        lsn = None if epoch is None else compose_lsn(epoch.epoch, 0)
        return self._row(WaitKind.RECOVERY, recovery.log, self._explained(recovery), lsn=lsn, began=recovery.began)

    def _explained(self, recovery: LogRecovery) -> Explanation:
        state, epoch = recovery.state, recovery.current
        if state is LogRecoveryState.IDLE:
            return WaitCause.TURN, (), f"{len(self._node.recoveries.running())} recoveries are at work"
        if recovery.is_resting:
            return WaitCause.TURN, (), "too few of its shards were heard of in its last one"
        if state is LogRecoveryState.READING_LAST_CLEAN_EPOCH:
            return WaitCause.EPOCH_STORE, (), "where to begin"
        if state is LogRecoveryState.NO_SHARDS:
            return WaitCause.NO_SHARDS, (), ""
        if epoch is None:
            return WaitCause.TURN, (), "between two epochs"
        cause, shards = wait_of_epoch(epoch)
        return cause, shards, f"{epoch.state.name}{self._dead(shards)}"

    def _dead(self, shards: Iterable[ShardId]) -> str:
        dead = [format_shard(shard) for shard in shards if not self._context.cluster.is_alive(node_of(shard))]
        return f"; dead: {', '.join(dead)}" if dead else ""


def wait_of_epoch(epoch: EpochRecovery) -> tuple[WaitCause, tuple[ShardId, ...]]:
    """What the recovery of one epoch waits for, and of which shards."""
    shards = epoch.shards

    def below(state: RecoveryShardState) -> tuple[ShardId, ...]:
        return tuple(shard for shard, member in shards.members.items() if member.state < state)

    if epoch.state is EpochRecoveryState.SEAL_OR_INACTIVE:
        return WaitCause.F_MAJORITY, below(RecoveryShardState.SEALED)
    if epoch.state is EpochRecoveryState.DIGEST:
        proven = shards.enough(RecoveryShardState.DIGESTED)
        missing = below(RecoveryShardState.DIGESTED)
        if proven is FMajority.NONE:
            return WaitCause.F_MAJORITY, missing
        if proven is FMajority.NON_AUTHORITATIVE:
            return WaitCause.NON_AUTHORITATIVE, tuple(sorted({*missing, *shards.rebuilding}))
        if epoch.attempt.waits_for_good_copy:
            return WaitCause.DAMAGED, missing
        return WaitCause.STRAGGLERS, missing
    if epoch.state is EpochRecoveryState.MUTATION:
        return WaitCause.RECOVERY_STORES, tuple(sorted(epoch.attempt.unanswered_stores()))
    if epoch.state is EpochRecoveryState.CLEAN:
        return WaitCause.CLEAN, tuple(shards.cleaning())
    return WaitCause.EPOCH_STORE, ()
