"""Recovery of one epoch: learns what the shards hold, decides what the epoch holds for ever, and makes the shards agree."""

from __future__ import annotations

from typing import Protocol

from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_of, node_peer
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval, TailRecord
from logdevice_py.protocol.messages import CleanedLog, Mutated
from sequencer.recovery.attempt import EpochRecoveryState, RecoveryAttempt
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.findings import EpochFindings
from sequencer.recovery.phase_watch import PhaseWatch
from sequencer.recovery.recovery_shard import RecoveryShard, RecoveryShards, RecoveryShardState, SealedEpoch
from sequencer.recovery.result import EpochContents


class EpochRecoveryOwner(AnswerSink, Protocol):
    """The recovery of the log."""

    def reseal(self, shard: ShardId, now: Micros) -> None:
        """Seal the shard again after a while: it does not do what it should."""

    def on_enough_sealed(self, epoch: Epoch, now: Micros) -> None:
        """Nothing more can be stored whole in the epoch; perhaps told more than once."""

    def on_epoch_recovered(self, recovered: EpochContents, tail: TailRecord | None, now: Micros) -> None:
        """The epoch is clean. `tail`: the last entry of it and all earlier ones."""

    def on_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard was sealed by a later sequencer."""


class EpochRecovery:
    """Makes one epoch final: one attempt after the other, until one succeeds.

    Whatever it is told of shards, it never restarts what it decided (`EpochFindings`); a restart only learns anew where copies are (`RecoveryAttempt`).
    A shard takes part from its SEALED and full DIGESTED on; one that comes after the mutation set was fixed does not take part in this
    attempt and learns the outcome by purging.
    """

    def __init__(
        self,
        log: LogId,
        epoch: Epoch,
        interval: EpochInterval,
        seal_epoch: Epoch,
        context: RecoveryContext,
        owner: EpochRecoveryOwner,
        previous_tail: TailRecord | None,
        *,
        guarded: bool = False,
    ) -> None:
        """`guarded`: entries of the epoch carry a tail state."""
        self.epoch = epoch
        self._context = context
        self._owner = owner
        self.on_preempted = owner.on_preempted
        self.shards = RecoveryShards(log, interval, context.cluster)
        """The nodeset."""
        self.findings = EpochFindings(log, epoch, seal_epoch, previous_tail, context.metrics, guarded=guarded)
        self._watch = PhaseWatch(context, self._on_stuck)
        self.attempt = self._new_attempt(context.rng.getrandbits(63))
        """The present one."""
        self._heard_at = Micros(0)

    def _new_attempt(self, recovery_id: int) -> RecoveryAttempt:
        return RecoveryAttempt(recovery_id, self.findings, self.shards, self._context, self._watch, self, self._owner)

    @property
    def state(self) -> EpochRecoveryState:
        """Of the present attempt."""
        return self.attempt.state

    # --- what the shards say -----------------------------------------------------------------------------------------------

    def generation(self, shard: ShardId) -> Generation | None:
        """Which generation of the shard takes part; None: the shard does not."""
        member = self.shards.members.get(shard)
        return member.generation if member is not None else None

    def on_sealed(self, sealed: SealedEpoch, shard: ShardId, now: Micros) -> None:
        """A shard was sealed and told of the epoch; status REBUILDING: it lost all or some of what it had of it."""
        member = self.shards.members.get(shard)
        if member is None or self.state is EpochRecoveryState.DONE:
            return
        if sealed.status is not Status.OK and sealed.generation != member.generation:
            self._exclude(member, now)
            return
        if member.state is not RecoveryShardState.SEALING:
            return
        if sealed.status is Status.OK:
            self.shards.rebuilding.discard(shard)
        else:
            hit("recovery_shard_lacks_entries")
            self.shards.rebuilding.add(shard)
        member.state = RecoveryShardState.SEALED
        self._heard_at = now
        self.findings.learn(sealed)
        self.shards.refresh_authority()
        self.attempt.on_sealed(member, now)
        self.attempt.advance(now)

    def _exclude(self, member: RecoveryShard, now: Micros) -> None:
        """The shard is another one than the epoch knew."""
        hit("recovery_shard_rebuilding")
        taking_part = member.state >= RecoveryShardState.SEALED
        self.shards.rebuilding.add(member.shard)
        self._lose(member)
        self._go_on(now, restart=taking_part)

    def on_digested(
        self, shard: ShardId, status: Status, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros
    ) -> None:
        """A part of what the shard holds, up to `covered`."""
        member = self.shards.members.get(shard)
        if (
            member is None
            or member.state is not RecoveryShardState.DIGESTING
            or self.state is not EpochRecoveryState.DIGEST
        ):
            hit("recovery_digest_stale")
            return
        if status is Status.REBUILDING:
            # What it shows was stored; what it does not show proves nothing.
            self.shards.rebuilding.add(shard)
            self.shards.refresh_authority()
        elif status is not Status.OK:
            hit("recovery_digest_refused")
            return  # asked again when the timer fires
        asked = member.digest_next
        told_everything = self.attempt.on_digested(member, covered, images, now)
        if told_everything or member.digest_next > asked:
            self._heard_at = now
        if told_everything:
            self.attempt.advance(now)

    def on_mutated(self, message: Mutated, now: Micros) -> None:
        """Answer to a STORE."""
        self.attempt.on_mutated(message, now)

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        """Answer to CLEAN."""
        self.attempt.on_cleaned(shard, row, now)

    # --- what happens to the shards ----------------------------------------------------------------------------------------

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Messages may be lost, and the shard may be another one when it returns."""
        hurt = False
        for shard, member in self.shards.members.items():
            if node_peer(shard) == peer and member.state not in (RecoveryShardState.SEALING, RecoveryShardState.CLEAN):
                hurt = hurt or member.state >= RecoveryShardState.MUTATABLE
                self._lose(member)
        if hurt and self.attempt.has_mutation_set:
            hit("recovery_member_died")
        self._go_on(now, restart=hurt)  # a shard that is lost counts for what it said until then

    def on_cluster_changed(self, now: Micros) -> None:
        """Nodes died, were removed or changed their status."""
        cluster = self._context.cluster
        gone: list[RecoveryShard] = []
        if self.attempt.has_mutation_set:
            gone = [
                member
                for shard, member in self.shards.members.items()
                if member.state in (RecoveryShardState.MUTATABLE, RecoveryShardState.CLEANING)
                and not (cluster.in_cluster(shard) and cluster.is_alive(node_of(shard)))
            ]
        for member in gone:
            hit("recovery_member_left")
            self._lose(member)
            self._owner.reseal(member.shard, now)
        self._go_on(now, restart=bool(gone))

    def on_shard_refused(self, shard: ShardId, status: Status, now: Micros) -> None:
        """A member of the mutation set does not do what it must."""
        member = self.shards.members[shard]
        self._owner.reseal(shard, now)
        if status is Status.REBUILDING:
            self._exclude(member, now)
        else:
            hit("recovery_member_refused")
            self.shards.note_failing((shard,))
            self._lose(member)
            self._go_on(now, restart=True)

    def _lose(self, member: RecoveryShard) -> None:
        """What the shard told does not count any more."""
        if member.state >= RecoveryShardState.DIGESTING:
            self.attempt.drop_shard(member.shard)
        member.fall_back(RecoveryShardState.SEALING)

    # --- progress ----------------------------------------------------------------------------------------------------------

    def start(self, now: Micros) -> None:
        """It is the epoch's turn."""
        self._heard_at = now
        self.attempt.advance(now)

    @property
    def waits_since(self) -> Micros | None:
        """Since when it has heard from none of the shards without which it cannot go on; None: it goes on."""
        return self._heard_at if self.attempt.waits else None

    def rest(self) -> None:
        """Hold nothing, and ask nobody, until `resume`. What was decided stays decided; what the shards told is asked anew."""
        assert self.attempt.waits
        for member in self.shards.members.values():
            self._lose(member)
        self.attempt.cancel()
        self.attempt = self._new_attempt(self.attempt.recovery_id)  # nothing was stored under it

    def resume(self, now: Micros) -> None:
        """Go on. The shards are sealed again."""
        self.shards.refresh_authority()
        self.start(now)

    def cancel(self) -> None:
        """Stop without a result."""
        self.attempt.cancel()

    def on_enough_sealed(self, now: Micros) -> None:
        """Nothing more can be stored whole in the epoch."""
        self._owner.on_enough_sealed(self.epoch, now)

    def on_clean(self, now: Micros) -> None:
        """The present attempt has succeeded."""
        plan = self.findings.decided
        self._owner.on_epoch_recovered(plan.contents(), plan.tail_record, now)

    def _on_stuck(self, now: Micros) -> None:
        hit("recovery_phase_timed_out")
        self.shards.note_failing([*self.attempt.unanswered_stores(), *self.shards.cleaning()])
        self._restart(now)

    def _go_on(self, now: Micros, *, restart: bool) -> None:
        """Shards have changed. `restart`: the mutation set, if it is fixed, cannot come to agree any more."""
        if restart and self.attempt.has_mutation_set:
            self._restart(now)
        else:
            self.shards.refresh_authority()
            self.attempt.advance(now)

    def _restart(self, now: Micros) -> None:
        """Learn anew what the sealed shards hold."""
        assert self.attempt.has_mutation_set, self.state
        if self.state is EpochRecoveryState.MUTATION:
            hit("recovery_restart_in_mutation")
        else:
            hit("recovery_restart_in_clean")
        self._context.metrics.epoch_restarts += 1
        self.attempt.cancel()
        for member in self.shards.members.values():
            if member.state > RecoveryShardState.SEALED:
                member.fall_back(RecoveryShardState.SEALED)
        self.shards.refresh_authority()  # one whose answers do not count any more may be lost
        self.attempt = self._new_attempt(self._context.rng.getrandbits(63))
        self.start(now)

    def explain(self) -> str:
        """What is waited for, for people."""
        return f"e{self.epoch} {self.attempt.explain()}"
