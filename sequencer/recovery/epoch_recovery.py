"""Recovery of one epoch: learns what the shards hold, decides what the epoch holds for ever, and makes the shards agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from epoch_store.interface import Result, SetLastCleanEpoch
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, node_of, node_peer
from logdevice_py.core.lsn import ESN_MAX, ESN_MIN, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.states import MachineState, transitions
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval, TailRecord
from logdevice_py.placement.failure_domains import FMajority
from logdevice_py.protocol.messages import CleanedLog, Mutated
from sequencer.recovery.cleaner import Cleaner
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.digest import CopyKind, EpochDigest
from sequencer.recovery.digest_requests import DigestRequests
from sequencer.recovery.epoch_store_call import EpochStoreCall
from sequencer.recovery.grace import Grace
from sequencer.recovery.mutator import Mutation, Mutator, must_be_stored
from sequencer.recovery.phase_watch import PhaseWatch
from sequencer.recovery.plan import Decision, Plan, latest
from sequencer.recovery.recovery_shard import RecoveryShard, RecoveryShards, RecoveryShardState, SealedEpoch
from sequencer.recovery.result import EpochContents


class EpochRecoveryState(MachineState):
    """How far the recovery of an epoch is. A restart leads back to SEAL_OR_INACTIVE."""

    SEAL_OR_INACTIVE = 1  # waits until enough shards are sealed
    DIGEST = 2  # asks the sealed shards what they hold
    MUTATION = 3  # everything is decided; shards are brought to it
    CLEAN = 4  # the mutation set agrees; its members are told so
    ADVANCE_LCE = 5  # they have it on disk; the epoch store is told
    DONE = 6  # the epoch is recovered, or somebody else recovers it


_S = EpochRecoveryState
EPOCH_RECOVERY_TRANSITIONS: Final = transitions(
    {
        _S.SEAL_OR_INACTIVE: (_S.SEAL_OR_INACTIVE, _S.DIGEST, _S.DONE),
        _S.DIGEST: (_S.SEAL_OR_INACTIVE, _S.MUTATION, _S.DONE),
        _S.MUTATION: (_S.SEAL_OR_INACTIVE, _S.CLEAN, _S.ADVANCE_LCE, _S.DONE),
        _S.CLEAN: (_S.SEAL_OR_INACTIVE, _S.ADVANCE_LCE, _S.DONE),
        _S.ADVANCE_LCE: (_S.DONE,),
        _S.DONE: (_S.DONE,),
    }
)


class EpochRecoveryOwner(AnswerSink, Protocol):
    """The recovery of the log."""

    def reseal(self, shard: ShardId, now: Micros) -> None:
        """Seal the shard again after a while: it does not do what it should."""

    def on_epoch_recovered(self, recovered: EpochContents, tail: TailRecord | None, now: Micros) -> None:
        """The epoch is clean. `tail`: the last entry of it and all earlier ones."""

    def on_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard was sealed by a later sequencer."""


class EpochRecovery:
    """Makes one epoch final.

    Whatever it is told of shards, it never restarts what it decided (`Plan`); a restart only learns anew where copies are. A shard takes part
    from its SEALED and full DIGESTED on; one that comes after the mutation set was fixed does not take part in this attempt and learns the outcome
    by purging.
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
    ) -> None:
        self.state = EpochRecoveryState.SEAL_OR_INACTIVE
        self.log = log
        self.epoch = epoch
        self.seal_epoch = seal_epoch
        self.recovery_id = context.rng.getrandbits(63)
        self._context = context
        self._owner = owner
        self.on_preempted = owner.on_preempted
        self._previous_tail = previous_tail
        self._shards = RecoveryShards(log, interval, context.cluster)
        self._members = self._shards.members
        self._domains = self._shards.domains
        self._digest = EpochDigest(log, epoch)
        self._requests = DigestRequests(log, epoch, context, owner)
        # True for ever, even if the shard that said so is lost.
        self._lng = Esn(0)
        self._sealed_tail: TailRecord | None = None
        self._plan: Plan | None = None
        self._complete = False
        self._mutator: Mutator | None = None
        self._cleaner: Cleaner | None = None
        self._grace = Grace(context, self._on_grace_over)
        self._phase = PhaseWatch(context, self._on_stuck)
        self._store_call: EpochStoreCall | None = None
        self._bytes_accounted = 0
        self._heard_at = Micros(0)

    def _become(self, state: EpochRecoveryState) -> None:
        assert state in self.state.followed_by, (self.state, state)
        self.state = state

    # --- what the shards say -----------------------------------------------------------------------------------------------

    def generation(self, shard: ShardId) -> Generation | None:
        """Which generation of the shard takes part; None: the shard does not."""
        member = self._members.get(shard)
        return member.generation if member is not None else None

    def on_sealed(self, sealed: SealedEpoch, shard: ShardId, now: Micros) -> None:
        """A shard was sealed and told of the epoch; status REBUILDING: it lost all or some of what it had of it."""
        member = self._members.get(shard)
        if member is None or self.state is EpochRecoveryState.DONE:
            return
        if sealed.status is not Status.OK and sealed.generation != member.generation:
            self._exclude(member, now)
            return
        if member.state is not RecoveryShardState.SEALING:
            return
        if sealed.status is Status.OK:
            self._shards.rebuilding.discard(shard)
        else:
            hit("recovery_shard_lacks_entries")
            self._shards.rebuilding.add(shard)
        member.state = RecoveryShardState.SEALED
        self._heard_at = now
        self._learn(sealed)
        self._shards.refresh_authority()
        if self.state is EpochRecoveryState.DIGEST:
            hit("recovery_late_sealer")
            self._requests.ask(member, now)
        self._advance(now)

    def _exclude(self, member: RecoveryShard, now: Micros) -> None:
        """The shard is another one than the epoch knew."""
        hit("recovery_shard_rebuilding")
        taking_part = member.state >= RecoveryShardState.SEALED
        self._shards.rebuilding.add(member.shard)
        self._lose(member)
        self._shards.refresh_authority()
        if taking_part and self.state in (EpochRecoveryState.MUTATION, EpochRecoveryState.CLEAN):
            self._restart(now)
        else:
            self._advance(now)

    def on_digested(
        self, shard: ShardId, status: Status, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros
    ) -> None:
        """A part of what the shard holds, up to `covered`."""
        member = self._members.get(shard)
        if (
            member is None
            or member.state is not RecoveryShardState.DIGESTING
            or self.state is not EpochRecoveryState.DIGEST
        ):
            hit("recovery_digest_stale")
            return
        if status is Status.REBUILDING:
            # What it shows was stored; what it does not show proves nothing.
            self._shards.rebuilding.add(shard)
            self._shards.refresh_authority()
        elif status is not Status.OK:
            hit("recovery_digest_refused")
            return  # asked again when the timer fires
        asked = member.digest_next
        told_everything = self._requests.take(member, covered, images, self._digest, now)
        if told_everything or member.digest_next > asked:
            self._heard_at = now
        self._account(self._digest.bytes_held)
        if told_everything:
            self._advance(now)

    def on_mutated(self, message: Mutated, now: Micros) -> None:
        """Answer to a STORE."""
        if self._mutator is not None:
            self._mutator.on_mutated(message, now)

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        """Answer to CLEAN."""
        if self._cleaner is not None:
            self._cleaner.on_cleaned(shard, row, now)

    def on_shard_cleaned(self, now: Micros) -> None:
        """A member of the mutation set knows that the epoch is final."""
        self._phase.progress(now)
        self._advance(now)

    # --- what happens to the shards ----------------------------------------------------------------------------------------

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Messages may be lost, and the shard may be another one when it returns."""
        hurt = False
        for shard, member in self._members.items():
            if node_peer(shard) == peer and member.state not in (RecoveryShardState.SEALING, RecoveryShardState.CLEAN):
                hurt = hurt or member.state >= RecoveryShardState.MUTATABLE
                self._lose(member)
        self._shards.refresh_authority()
        if hurt and self.state in (EpochRecoveryState.MUTATION, EpochRecoveryState.CLEAN):
            hit("recovery_member_died")
            self._restart(now)
        else:
            self._advance(now)  # a shard that is lost counts for what it said until then

    def on_cluster_changed(self, now: Micros) -> None:
        """Nodes died, were removed or changed their status."""
        cluster = self._context.cluster
        self._shards.refresh_authority()
        if self.state in (EpochRecoveryState.MUTATION, EpochRecoveryState.CLEAN):
            gone = [
                member
                for shard, member in self._members.items()
                if member.state in (RecoveryShardState.MUTATABLE, RecoveryShardState.CLEANING)
                and not (cluster.in_cluster(shard) and cluster.is_alive(node_of(shard)))
            ]
            for member in gone:
                hit("recovery_member_left")
                self._lose(member)
                self._owner.reseal(member.shard, now)
            if gone:
                self._restart(now)
                return
        self._advance(now)

    def on_shard_refused(self, shard: ShardId, status: Status, now: Micros) -> None:
        """A member of the mutation set does not store what it must."""
        member = self._members[shard]
        if status is Status.REBUILDING:
            self._owner.reseal(shard, now)
            self._exclude(member, now)
        else:
            hit("recovery_member_refused")
            self._fail(member, now)

    def _fail(self, member: RecoveryShard, now: Micros) -> None:
        self._lose(member)
        self._owner.reseal(member.shard, now)
        self._restart(now)

    def _lose(self, member: RecoveryShard) -> None:
        """What the shard told does not count any more."""
        if member.state >= RecoveryShardState.DIGESTING:
            self._digest.drop_shard(member.shard)
        member.fall_back(RecoveryShardState.SEALING)

    # --- progress ----------------------------------------------------------------------------------------------------------

    def start(self, now: Micros) -> None:
        """It is the epoch's turn."""
        self._heard_at = now
        self._advance(now)

    @property
    def waits_since(self) -> Micros | None:
        """Since when it has heard from none of the shards without which it cannot go on; None: it goes on."""
        digesting = self.state is EpochRecoveryState.DIGEST and not self._grace.runs
        return self._heard_at if digesting or self.state is EpochRecoveryState.SEAL_OR_INACTIVE else None

    def rest(self) -> None:
        """Hold nothing, and ask nobody, until `resume`. What was decided stays decided; what the shards told is asked anew."""
        assert self.waits_since is not None
        for member in self._members.values():
            self._lose(member)
        self._begin_anew()

    def resume(self, now: Micros) -> None:
        """Go on. The shards are sealed again."""
        self._shards.refresh_authority()
        self.start(now)

    def cancel(self) -> None:
        """Stop without a result."""
        self._become(EpochRecoveryState.DONE)
        self._stop_phase()
        for member in self._members.values():
            member.cancel_timer()
        if self._store_call is not None:
            self._store_call.cancel()
        self._account(0)

    def _advance(self, now: Micros) -> None:
        if (
            self.state is EpochRecoveryState.SEAL_OR_INACTIVE
            and self._shards.enough(RecoveryShardState.SEALED) is not FMajority.NONE
        ):
            self._start_digest(now)
        if self.state is EpochRecoveryState.DIGEST:
            self._check_digest(now)
        elif self.state is EpochRecoveryState.CLEAN and self._cleaner is not None and self._cleaner.finished:
            self._stop_phase()
            self._set_last_clean_epoch()

    def _start_digest(self, now: Micros) -> None:
        self._become(EpochRecoveryState.DIGEST)
        lng = self._agreed_lng
        # The entry at the LNG is read once more when nobody knows its timestamp.
        tail = self._sealed_tail
        known = self._plan is not None or (tail is not None and tail.lsn == compose_lsn(self.epoch, lng))
        self._requests.start = ESN_MIN if lng == 0 else Esn(lng + 1 if known and lng < ESN_MAX else lng)
        for member in self._members.values():
            if member.state is RecoveryShardState.SEALED:
                self._requests.ask(member, now)

    @property
    def _agreed_lng(self) -> Esn:
        """What an attempt decided above its LNG is on its mutation set only, even if a shard tells of a higher LNG later."""
        return self._lng if self._plan is None else self._plan.lng

    def _learn(self, sealed: SealedEpoch) -> None:
        if self._plan is not None and sealed.lng > self._plan.lng:
            hit("recovery_lng_after_decision")
        self._lng = max(self._lng, sealed.lng)
        if sealed.tail_lsn >> 32 == self.epoch:
            self._sealed_tail = latest(self._sealed_tail, TailRecord(sealed.tail_lsn, sealed.tail_timestamp))

    def _check_digest(self, now: Micros) -> None:
        result = self._shards.enough(RecoveryShardState.DIGESTED)
        if result is FMajority.NONE:
            return
        digested = self._shards.at_least(RecoveryShardState.DIGESTED)
        unreadable = self._unreadable(digested)
        if unreadable and self._may_be_read_elsewhere(result):
            hit("recovery_damage_waits")
            return
        if self._stragglers(result) and not self._grace.is_over(result, now):
            return
        self._start_mutation(digested, result, unreadable, now)

    def _unreadable(self, digested: list[ShardId]) -> set[Esn]:
        """ESNs of which so many copies are damaged that the rest does not prove what they hold."""
        return {
            esn
            for esn, damaged in self._digest.damaged_shards(self._agreed_lng).items()
            if not self._domains.f_majority([shard for shard in digested if shard not in damaged]).is_authoritative
        }

    def _may_be_read_elsewhere(self, result: FMajority) -> bool:
        return result is FMajority.INCOMPLETE or self._shards.hopes

    def _stragglers(self, result: FMajority) -> bool:
        """Whether waiting may bring more: shards not heard, or shards that lack entries but may still show some."""
        if result is FMajority.INCOMPLETE:
            return True
        return any(
            member.state in (RecoveryShardState.SEALED, RecoveryShardState.DIGESTING)
            for member in self._members.values()
        )

    def _on_grace_over(self, now: Micros) -> None:
        hit("recovery_grace_over")
        if self.state is EpochRecoveryState.DIGEST:
            self._check_digest(now)

    def _start_mutation(self, digested: list[ShardId], result: FMajority, unreadable: set[Esn], now: Micros) -> None:
        self._become(EpochRecoveryState.MUTATION)
        self._grace.cancel()
        for member in self._members.values():
            if member.state is RecoveryShardState.DIGESTING:
                member.fall_back(RecoveryShardState.SEALED)  # too late for this attempt
        first = self._plan is None
        if self._plan is None:
            self._plan = Plan(self.log, self.epoch, self.seal_epoch, self._lng, authoritative=result.is_authoritative)
        plan = self._plan
        late = plan.late
        plan.decide(
            self._digest,
            first=first,
            unreadable=unreadable,
            sealed_tail=self._sealed_tail,
            previous_tail=self._previous_tail,
        )
        self._context.metrics.late_entries_dropped += plan.late - late
        for entry in self._digest.entries.values():
            entry.image = b""
        self._account(plan.images_held)
        self._complete = result is FMajority.COMPLETE
        members = [shard for shard in digested if self._context.cluster.is_writable(shard)]
        if not self._domains.can_replicate(members):
            # Read-only shards take no new entries, but these are old ones, and nobody else can keep them.
            members = self._shards.staying(digested) or digested
        if not members:
            hit("recovery_nobody_left")
            self._stop_phase()
            self._set_last_clean_epoch()
            return
        generations: dict[ShardId, Generation] = {}
        for shard in members:
            member = self._members[shard]
            member.state = RecoveryShardState.MUTATABLE
            generations[shard] = member.generation
        if not self._domains.can_replicate(members):
            hit("recovery_best_effort")
        self._phase.begin(now)
        self._mutator = Mutator(
            self._context, self, plan, self.recovery_id, self._domains, generations, self._mutations(frozenset(members))
        )
        self._mutator.start(now)

    def _mutations(self, members: frozenset[ShardId]) -> Iterator[Mutation]:
        """What must be stored, ascending."""
        plan = self._plan
        assert plan is not None
        for esn, decision in plan.positions(latest(self._sealed_tail, self._previous_tail)):
            entry = self._digest.entries.get(esn)
            copies = {} if entry is None else {s: copy for s, copy in entry.copies.items() if s in members}
            # What cannot be read may become readable again, so it is replaced like a copy that is known to differ.
            damaged = members.intersection(() if entry is None else entry.damaged)
            if not damaged and not must_be_stored(
                decision,
                copies,
                seal_epoch=self.seal_epoch,
                complete=self._complete,
                can_replicate=self._domains.can_replicate,
            ):
                self._drop_image(decision)
            elif decision.kind is CopyKind.ENTRY and not decision.image:
                hit("recovery_entry_gone")  # it was fully replicated when it was decided; more is gone than may be
                plan.lost.add(esn)
            else:
                yield Mutation(esn, decision, damaged.union(copies))

    def on_mutation_done(self, mutation: Mutation, replicated: bool, now: Micros) -> None:
        """An ESN is stored."""
        self._phase.progress(now)
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
        self._account(self._bytes_accounted - len(decision.image))
        decision.image = b""

    def on_mutator_finished(self, now: Micros) -> None:
        """The members of the mutation set agree."""
        self._mutator = None
        self._become(EpochRecoveryState.CLEAN)
        assert self._plan is not None
        self._cleaner = Cleaner(self._context, self, self._owner, self._plan, self._shards)
        self._cleaner.start(now)

    def _set_last_clean_epoch(self) -> None:
        self._become(EpochRecoveryState.ADVANCE_LCE)
        plan = self._plan
        assert plan is not None
        self._store_call = EpochStoreCall(
            self._context,
            SetLastCleanEpoch(self.log, self.epoch, plan.tail_record),
            (Status.OK, Status.STALE),
            self._on_last_clean_epoch_set,
        )

    def _on_last_clean_epoch_set(self, result: Result, now: Micros) -> None:
        if result.status is Status.STALE:
            hit("recovery_last_clean_epoch_stale")  # another recovery came to the same result
        plan = self._plan
        assert plan is not None
        metrics = self._context.metrics
        metrics.epochs_recovered += 1
        metrics.epochs_recovered_non_authoritatively += not plan.authoritative
        metrics.entries_lost += len(plan.lost)
        self.cancel()
        self._owner.on_epoch_recovered(plan.contents(), plan.tail_record, now)

    def _on_stuck(self, now: Micros) -> None:
        hit("recovery_phase_timed_out")
        self._restart(now)

    def _restart(self, now: Micros) -> None:
        """Learn anew what the sealed shards hold. Answers to what was asked before do not count any more."""
        assert self.state in (EpochRecoveryState.MUTATION, EpochRecoveryState.CLEAN), self.state
        if self.state is EpochRecoveryState.MUTATION:
            hit("recovery_restart_in_mutation")
        else:
            hit("recovery_restart_in_clean")
        self._context.metrics.epoch_restarts += 1
        self.recovery_id = self._context.rng.getrandbits(63)
        self._stop_phase()
        for member in self._members.values():
            if member.state > RecoveryShardState.SEALED:
                member.fall_back(RecoveryShardState.SEALED)
        self._shards.refresh_authority()  # one whose answers do not count any more may be lost
        self._begin_anew()
        self._heard_at = now
        self._advance(now)

    def _begin_anew(self) -> None:
        self._grace.cancel()
        self._digest = EpochDigest(self.log, self.epoch)
        self._account(self._plan.images_held if self._plan is not None else 0)
        self._become(EpochRecoveryState.SEAL_OR_INACTIVE)

    def _stop_phase(self) -> None:
        self._grace.cancel()
        self._phase.stop()
        if self._mutator is not None:
            self._mutator.cancel()
            self._mutator = None
        if self._cleaner is not None:
            self._cleaner.cancel()
            self._cleaner = None

    def _account(self, held: int) -> None:
        self._context.metrics.digest_bytes += held - self._bytes_accounted
        self._bytes_accounted = held

    @property
    def shards(self) -> RecoveryShards:
        """The nodeset, to look at."""
        return self._shards

    @property
    def waits_for_good_copy(self) -> bool:
        """Shards told enough, but of an entry nothing that can be read; to look at."""
        result = self._shards.enough(RecoveryShardState.DIGESTED)
        unreadable = self._unreadable(self._shards.at_least(RecoveryShardState.DIGESTED))
        return result is not FMajority.NONE and bool(unreadable) and self._may_be_read_elsewhere(result)

    def unanswered_stores(self) -> set[ShardId]:
        """The shards that have not answered a STORE of this attempt, to look at."""
        return set() if self._mutator is None else self._mutator.unanswered()

    def explain(self) -> str:
        """What is waited for, for people."""
        text = f"e{self.epoch} {self.state.name}: {self._shards.explain()}"
        return text if self._mutator is None else "; ".join([text, *self._mutator.explain()])
