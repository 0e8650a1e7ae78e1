"""One attempt to recover an epoch: learns what the shards hold, decides, makes them agree, and has it noted that the epoch is clean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from epoch_store.interface import Result, SetLastCleanEpoch
from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FMajority
from logdevice_py.protocol.messages import CleanedLog, Mutated
from sequencer.recovery.cleaner import Cleaner
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.digest import CopyKind
from sequencer.recovery.digest_phase import DigestPhase, DigestResult
from sequencer.recovery.epoch_store_call import EpochStoreCall
from sequencer.recovery.findings import EpochFindings
from sequencer.recovery.mutator import Mutation, Mutator, must_be_stored
from sequencer.recovery.phase_watch import PhaseWatch
from sequencer.recovery.plan import Decision
from sequencer.recovery.recovery_shard import RecoveryShard, RecoveryShards, RecoveryShardState


class EpochRecoveryState(MachineState):
    """How far an attempt to recover the epoch is. Each attempt begins in SEAL_OR_INACTIVE."""

    SEAL_OR_INACTIVE = 1  # waits until enough shards are sealed
    DIGEST = 2  # asks the sealed shards what they hold
    MUTATION = 3  # everything is decided; shards are brought to it
    CLEAN = 4  # the mutation set agrees; its members are told so
    ADVANCE_LCE = 5  # they have it on disk; the epoch store is told
    DONE = 6  # the epoch is recovered, or another attempt or sequencer recovers it


_S = EpochRecoveryState
EPOCH_RECOVERY_TRANSITIONS: Final = transitions(
    {
        _S.SEAL_OR_INACTIVE: (_S.DIGEST, _S.DONE),
        _S.DIGEST: (_S.MUTATION, _S.DONE),
        _S.MUTATION: (_S.CLEAN, _S.ADVANCE_LCE, _S.DONE),
        _S.CLEAN: (_S.ADVANCE_LCE, _S.DONE),
        _S.ADVANCE_LCE: (_S.DONE,),
        _S.DONE: (),
    }
)


class RecoveryAttemptOwner(Protocol):
    """The recovery of the epoch."""

    def on_shard_refused(self, shard: ShardId, status: Status, now: Micros) -> None:
        """A member of the mutation set does not do what it must."""

    def on_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard was sealed by a later sequencer."""

    def on_enough_sealed(self, now: Micros) -> None:
        """Nothing more can be stored whole in the epoch."""

    def on_clean(self, now: Micros) -> None:
        """The epoch is recovered."""


class RecoveryAttempt:
    """One attempt. A restart throws it away whole and begins another one; answers to what it asked do not count any more."""

    def __init__(
        self,
        recovery_id: int,
        findings: EpochFindings,
        shards: RecoveryShards,
        context: RecoveryContext,
        watch: PhaseWatch,
        owner: RecoveryAttemptOwner,
        sink: AnswerSink,
    ) -> None:
        """
        Args:
            recovery_id: tells its STOREs from those of other attempts.
            watch: notices when it gets stuck.
            sink: gets the answers of shards, but for MUTATED.
        """
        self.state = EpochRecoveryState.SEAL_OR_INACTIVE
        self.recovery_id = recovery_id
        self._findings = findings
        self._shards = shards
        self._context = context
        self._watch = watch
        self._owner = owner
        self.on_shard_refused = owner.on_shard_refused
        self.on_preempted = owner.on_preempted
        self._sink = sink
        self._digests = DigestPhase(findings, shards, context, sink, self._on_grace_over)
        self._work: DigestPhase | Mutator | Cleaner | EpochStoreCall = self._digests
        """What is under way."""
        self._bytes_held = 0
        self._hold(0 if findings.plan is None else findings.plan.images_held)

    def _become(self, state: EpochRecoveryState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    def cancel(self) -> None:
        """Nothing more comes of it."""
        self._become(EpochRecoveryState.DONE)
        self._watch.stop()
        self._work.cancel()
        for member in self._shards.members.values():
            member.cancel_timer()
        self._hold(0)

    @property
    def has_mutation_set(self) -> bool:
        """Which shards must agree is fixed, and they do not all know yet that they do."""
        return self.state in (EpochRecoveryState.MUTATION, EpochRecoveryState.CLEAN)

    @property
    def waits(self) -> bool:
        """It waits for shards without which it cannot go on."""
        digesting = self.state is EpochRecoveryState.DIGEST and not self._digests.in_grace
        return digesting or self.state is EpochRecoveryState.SEAL_OR_INACTIVE

    def advance(self, now: Micros) -> None:
        """Go on, if what is known of the shards is enough for the next state."""
        if (
            self.state is EpochRecoveryState.SEAL_OR_INACTIVE
            and self._shards.enough(RecoveryShardState.SEALED) is not FMajority.NONE
        ):
            self._become(EpochRecoveryState.DIGEST)
            self._owner.on_enough_sealed(now)
            self._digests.start(now)
        if self.state is EpochRecoveryState.DIGEST:
            self._check_digest(now)
        elif isinstance(self._work, Cleaner) and self._work.finished:
            self._set_last_clean_epoch()

    # --- what the shards hold ----------------------------------------------------------------------------------------------

    def on_sealed(self, member: RecoveryShard, now: Micros) -> None:
        """A shard was sealed."""
        if self.state is EpochRecoveryState.DIGEST:
            hit("recovery_late_sealer")
            self._digests.ask(member, now)

    def on_digested(self, member: RecoveryShard, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros) -> bool:
        """A part of what the shard holds, up to `covered`. True: it told everything."""
        told_everything = self._digests.take(member, covered, images, now)
        self._hold(self._digests.digest.bytes_held)
        return told_everything

    def drop_shard(self, shard: ShardId) -> None:
        """What the shard told does not count any more."""
        self._digests.digest.drop_shard(shard)

    def _on_grace_over(self, now: Micros) -> None:
        hit("recovery_grace_over")
        if self.state is EpochRecoveryState.DIGEST:
            self._check_digest(now)

    def _check_digest(self, now: Micros) -> None:
        result = self._digests.result(now)
        if result is not None:
            self._start_mutation(result, now)

    # --- making them agree -------------------------------------------------------------------------------------------------

    def _start_mutation(self, result: DigestResult, now: Micros) -> None:
        self._become(EpochRecoveryState.MUTATION)
        self._digests.cancel()
        shards, digest = self._shards, self._digests.digest
        for member in shards.members.values():
            if member.state is RecoveryShardState.DIGESTING:
                member.fall_back(RecoveryShardState.SEALED)  # too late for this attempt
        plan = self._findings.decide(
            digest, result.unreadable, self._context.wall(), authoritative=result.proven.is_authoritative
        )
        for entry in digest.entries.values():
            entry.image = b""
        self._hold(plan.images_held)
        generations = shards.fix_mutation_set(result.shards)
        if not generations:
            hit("recovery_nobody_left")
            self._set_last_clean_epoch()
            return
        self._watch.begin(now)
        mutations = self._mutations(frozenset(generations), complete=result.proven is FMajority.COMPLETE)
        mutator = Mutator(self._context, self, plan, self.recovery_id, shards.domains, generations, mutations)
        self._work = mutator
        mutator.start(now)

    def _mutations(self, members: frozenset[ShardId], *, complete: bool) -> Iterator[Mutation]:
        """What must be stored, ascending."""
        findings, entries = self._findings, self._digests.digest.entries
        plan = findings.decided
        for esn, decision in plan.positions(findings.tail_below):
            entry = entries.get(esn)
            copies = {} if entry is None else {s: copy for s, copy in entry.copies.items() if s in members}
            # What cannot be read may become readable again, so it is replaced like a copy that is known to differ.
            damaged = members.intersection(() if entry is None else entry.damaged)
            if not damaged and not must_be_stored(
                decision,
                copies,
                seal_epoch=plan.seal_epoch,
                complete=complete,
                can_replicate=self._shards.domains.can_replicate,
            ):
                self._drop_image(decision)
            elif decision.kind is CopyKind.ENTRY and not decision.image:
                hit("recovery_entry_gone")  # it was fully replicated when it was decided; more is gone than may be
                plan.lost.add(esn)
            else:
                yield Mutation(esn, decision, damaged.union(copies))

    def on_mutated(self, message: Mutated, now: Micros) -> None:
        """Answer to a STORE."""
        if isinstance(self._work, Mutator):
            self._work.on_mutated(message, now)

    def on_mutation_done(self, mutation: Mutation, replicated: bool, now: Micros) -> None:
        """An ESN is stored."""
        self._watch.progress(now)
        metrics = self._context.metrics
        kind = mutation.decision.kind
        if kind is CopyKind.ENTRY:
            metrics.entries_mutated += 1
            if replicated:
                self._drop_image(mutation.decision)
        elif kind is CopyKind.HOLE:
            metrics.holes_plugged += 1
        else:
            metrics.bridges_stored += 1
        if not replicated:
            metrics.entries_under_replicated += 1

    def _drop_image(self, decision: Decision) -> None:
        """Every f-majority holds it: it will be found again if it is needed again."""
        self._hold(self._bytes_held - len(decision.image))
        decision.image = b""

    def on_mutator_finished(self, now: Micros) -> None:
        """The members of the mutation set agree."""
        self._become(EpochRecoveryState.CLEAN)
        cleaner = Cleaner(self._context, self, self._sink, self._findings.decided, self._shards)
        self._work = cleaner
        cleaner.start(now)

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        """Answer to CLEAN."""
        if isinstance(self._work, Cleaner):
            self._work.on_cleaned(shard, row, now)

    def on_shard_cleaned(self, now: Micros) -> None:
        """A member of the mutation set knows that the epoch is final."""
        self._watch.progress(now)
        self.advance(now)

    # --- the end -----------------------------------------------------------------------------------------------------------

    def _set_last_clean_epoch(self) -> None:
        self._become(EpochRecoveryState.ADVANCE_LCE)
        self._watch.stop()
        self._work.cancel()
        plan = self._findings.decided
        self._work = EpochStoreCall(
            self._context,
            SetLastCleanEpoch(plan.log, plan.epoch, plan.tail_record),
            (Status.OK, Status.STALE),
            self._on_last_clean_epoch_set,
        )

    def _on_last_clean_epoch_set(self, result: Result, now: Micros) -> None:
        if result.status is Status.STALE:
            hit("recovery_last_clean_epoch_stale")  # another recovery came to the same result
        plan, metrics = self._findings.decided, self._context.metrics
        metrics.epochs_recovered += 1
        metrics.epochs_recovered_non_authoritatively += not plan.authoritative
        metrics.entries_lost += len(plan.lost)
        self.cancel()
        self._owner.on_clean(now)

    def _hold(self, held: int) -> None:
        """Account for the bytes of images that are kept."""
        self._context.metrics.digest_bytes += held - self._bytes_held
        self._bytes_held = held

    # --- to look at --------------------------------------------------------------------------------------------------------

    @property
    def waits_for_good_copy(self) -> bool:
        """Shards told enough, but of an entry nothing that can be read."""
        return self._digests.waits_for_good_copy

    def unanswered_stores(self) -> set[ShardId]:
        """The shards that have not answered a STORE."""
        return self._work.unanswered() if isinstance(self._work, Mutator) else set()

    def explain(self) -> str:
        """What is waited for, for people."""
        parts = [f"{self.state.name}: {self._shards.explain()}"]
        if isinstance(self._work, Mutator):
            parts += self._work.explain()
        return "; ".join(parts)
