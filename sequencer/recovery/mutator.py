"""Brings the shards of the mutation set to what was decided: stores entries, plugs and the bridge, many at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from logdevice_py.core.ids import Generation, NodeId, ShardId, format_shard, node_peer
from logdevice_py.core.lsn import Epoch, Esn, compose_lsn, epoch_of, esn_of
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import Mutated, Store, StoreFlags
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.digest import Copy
from sequencer.recovery.plan import Decision, Plan

_STORE_FLAGS = int(StoreFlags.RECOVERY | StoreFlags.SYNC)
_GONE = frozenset({Status.NOSPC, Status.DISABLED, Status.FAILED, Status.NOTSTORAGE, Status.SHUTDOWN})
"""A shard that answers so will not do better in a moment."""


@dataclass(slots=True)
class Mutation:
    """One ESN that must be stored. Waves are strict: it is done when all recipients of one wave stored it, with that wave's copyset."""

    esn: Esn
    decision: Decision
    holders: frozenset[ShardId]
    """Members of the mutation set that hold any copy: each of them must get this one."""
    wave: int = 0
    recipients: tuple[ShardId, ...] = ()
    waiting: set[ShardId] = field(default_factory=set)
    stored: set[ShardId] = field(default_factory=set)
    """Shards that confirmed some wave."""
    deadline: int = 0
    """When the wave times out."""
    size: int = 0


class MutatorOwner(Protocol):
    """What the mutator tells the recovery of the epoch."""

    def on_mutation_done(self, mutation: Mutation, replicated: bool, now: Micros) -> None:
        """All recipients stored it; `replicated`: they satisfy the replication property."""

    def on_mutator_finished(self, now: Micros) -> None:
        """Everything is stored."""

    def on_shard_refused(self, shard: ShardId, status: Status, now: Micros) -> None:
        """A shard that must store something cannot."""

    def on_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard was sealed by a later sequencer."""


class Mutator:
    """Stores the mutations of one attempt to recover an epoch.

    Entries in flight are bounded by count and bytes. Within one attempt only answers to the current wave of an ESN count. A wave that failed
    is repeated with other shards in place of those that did not answer, except that holders stay: two shards of the mutation set must never end up
    with different contents.
    """

    def __init__(
        self,
        context: RecoveryContext,
        owner: MutatorOwner,
        plan: Plan,
        recovery_id: int,
        domains: FailureDomains,
        members: dict[ShardId, Generation],
        mutations: Iterator[Mutation],
    ) -> None:
        self._context = context
        self._owner = owner
        self._plan = plan
        self._recovery_id = recovery_id
        self._domains = domains
        self._members = members
        self._mutations = mutations
        self._order = sorted(members)
        context.rng.shuffle(self._order)
        self._flight: dict[Esn, Mutation] = {}
        self._bytes = 0
        self._slow: set[ShardId] = set()
        self._refused: set[ShardId] = set()
        self._selections: dict[frozenset[ShardId], tuple[ShardId, ...]] = {}
        self._exhausted = False
        self._cancelled = False
        self._timer: Timer | None = None

    def start(self, now: Micros) -> None:
        """Send the first waves."""
        self._fill(now)

    def cancel(self) -> None:
        """Stop: nothing more is sent or reported."""
        self._cancelled = True
        self._flight.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_mutated(self, message: Mutated, now: Micros) -> None:
        """A shard's answer."""
        if self._cancelled or message.recovery_id != self._recovery_id or epoch_of(message.lsn) != self._plan.epoch:
            hit("recovery_mutated_stale")
            return
        status = message.status
        if status is Status.PREEMPTED and message.seal_epoch > self._plan.seal_epoch:
            self._owner.on_preempted(message.seal_epoch, message.seal_node, now)
            return
        mutation = self._flight.get(esn_of(message.lsn))
        if mutation is None:
            return
        shard = message.shard
        if status is Status.OK:
            mutation.stored.add(shard)
        if message.wave != mutation.wave or shard not in mutation.waiting:
            hit("recovery_mutated_other_wave")
            return
        if status is not Status.OK:
            self._refuse(mutation, shard, status, now)
            return
        mutation.waiting.discard(shard)
        if not mutation.waiting:
            del self._flight[mutation.esn]
            self._bytes -= mutation.size
            self._owner.on_mutation_done(mutation, self._domains.can_replicate(mutation.recipients), now)
            self._fill(now)

    def _refuse(self, mutation: Mutation, shard: ShardId, status: Status, now: Micros) -> None:
        self._context.metrics.mutation_waves_failed += 1
        if status is Status.REBUILDING or (status in _GONE and self._must_have(mutation, shard)):
            self._owner.on_shard_refused(shard, status, now)
            return
        hit("recovery_mutation_refused")
        if shard not in self._refused:
            self._refused.add(shard)
            self._selections.clear()
        if self._select(mutation) & self._refused:
            return  # nobody else can take it: try again when the wave times out
        self._send_wave(mutation, now)

    def _must_have(self, mutation: Mutation, shard: ShardId) -> bool:
        return (
            shard in mutation.holders
            or shard in mutation.stored
            or not self._domains.can_replicate(
                [member for member in self._order if member != shard and member not in self._refused]
            )
        )

    def _fill(self, now: Micros) -> None:
        settings = self._context.settings
        while (
            not self._exhausted
            and len(self._flight) < settings.mutations_in_flight_max
            and (not self._flight or self._bytes < settings.mutation_bytes_in_flight_max)
        ):
            mutation = next(self._mutations, None)
            if mutation is None:
                self._exhausted = True
                break
            self._flight[mutation.esn] = mutation
            self._send_wave(mutation, now)
            self._bytes += mutation.size
        if self._exhausted and not self._flight and not self._cancelled:
            self.cancel()
            self._owner.on_mutator_finished(now)

    def _send_wave(self, mutation: Mutation, now: Micros) -> None:
        if mutation.wave:
            hit("recovery_second_wave")
        mutation.wave += 1
        recipients = tuple(self._ordered(self._select(mutation)))
        assert recipients, "a mutation set is never empty"
        mutation.recipients = recipients
        mutation.waiting = set(recipients)
        settings = self._context.settings
        delay = min(
            settings.mutation_timeout_initial_us << min(mutation.wave - 1, 16), settings.mutation_timeout_max_us
        )
        mutation.deadline = now + delay
        plan = self._plan
        image = plan.encode(mutation.esn, mutation.decision, recipients)
        mutation.size = len(image)
        lsn = compose_lsn(plan.epoch, mutation.esn)
        for shard in recipients:
            self._context.outbox.send(
                node_peer(shard),
                Store(
                    log=plan.log,
                    lsn=lsn,
                    shard=shard,
                    generation=self._members[shard],
                    wave=mutation.wave,
                    flags=_STORE_FLAGS,
                    seal_epoch=plan.seal_epoch,
                    recovery_id=self._recovery_id,
                    image=image,
                ),
            )
        self._set_timer(mutation.deadline)

    def _set_timer(self, deadline: int) -> None:
        if self._timer is None or not self._timer.pending or self._timer.deadline > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._context.timers.at(deadline, self._on_deadline)

    def _on_deadline(self, now: Micros) -> None:
        late = [mutation for mutation in self._flight.values() if mutation.deadline <= now]
        for mutation in late:
            self._context.metrics.mutation_waves_failed += 1
            self._slow |= mutation.waiting
        self._refused.clear()
        self._selections.clear()
        for mutation in late:
            hit("recovery_wave_timed_out")
            self._send_wave(mutation, now)
        if self._flight:
            self._set_timer(min(mutation.deadline for mutation in self._flight.values()))

    def _ordered(self, shards: frozenset[ShardId]) -> Iterator[ShardId]:
        return (shard for shard in self._order if shard in shards)

    def _select(self, mutation: Mutation) -> frozenset[ShardId]:
        """Recipients of the next wave: the holders, and as few others as the replication property needs."""
        required = mutation.holders | mutation.stored
        cached = self._selections.get(required)
        if cached is not None:
            return frozenset(cached)
        others = [shard for shard in self._order if shard not in required]
        is_writable = self._context.cluster.is_writable
        others.sort(key=lambda shard: (shard in self._refused, not is_writable(shard), shard in self._slow))
        chosen = list(required)
        added: list[ShardId] = []
        for shard in others:
            if self._domains.can_replicate(chosen):
                break
            chosen.append(shard)
            added.append(shard)
        if self._domains.can_replicate(chosen):
            for shard in reversed(added[:-1]):
                rest = [other for other in chosen if other != shard]
                if self._domains.can_replicate(rest):
                    chosen = rest
        self._selections[required] = tuple(chosen)
        return frozenset(chosen)

    def unanswered(self) -> set[ShardId]:
        """The shards that have not answered a STORE, to look at."""
        return set().union(*(mutation.waiting for mutation in self._flight.values()))

    def explain(self) -> list[str]:
        """What is waited for, for people."""
        return [
            f"n{mutation.esn} wave {mutation.wave}: "
            + ", ".join(format_shard(shard) for shard in sorted(mutation.waiting))
            for mutation in self._flight.values()
        ]


def must_be_stored(
    decision: Decision,
    copies: dict[ShardId, Copy],
    *,
    seal_epoch: Epoch,
    complete: bool,
    can_replicate: Callable[[Collection[ShardId]], bool],
) -> bool:
    """Whether an ESN must be stored again. It need not be when enough members of the mutation set hold what was decided, with one copyset, and no
    shard that was not heard can hold a copy of higher rank.

    Args:
        decision: what it holds.
        copies: what the members of the mutation set hold of it.
        seal_epoch: of this recovery.
        complete: every shard that may hold a copy was heard.
        can_replicate: whether shards satisfy the replication property.
    """
    if not copies or any(copy.kind is not decision.kind for copy in copies.values()):
        return True
    best = max(copy.rank for copy in copies.values())
    if not complete and any(copy.rank != (1, seal_epoch) for copy in copies.values()):
        return True
    eligible = {shard: copy.copyset for shard, copy in copies.items() if copy.rank == best}
    if len(set(eligible.values())) > 1:
        return True  # several waves of an earlier attempt
    return not eligible.keys() >= set(next(iter(eligible.values()))) or not can_replicate(eligible)
