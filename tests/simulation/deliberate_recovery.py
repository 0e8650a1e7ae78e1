"""Deliberate faults of recovery."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import ESN_INVALID, Esn, Lsn
from logdevice_py.core.status import Status
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import FailureDomains, FMajority
from sequencer.recovery import attempt
from sequencer.recovery.cleaner import Cleaner
from sequencer.recovery.digest import EpochDigest
from sequencer.recovery.digest_phase import DigestPhase
from sequencer.recovery.epoch_recovery import EpochRecovery
from sequencer.recovery.findings import EpochFindings
from sequencer.recovery.mutator import Mutator
from sequencer.recovery.plan import Plan
from sequencer.recovery.recovery_shard import RecoveryShards, RecoveryShardState
from tests.simulation.deliberate_fault import deliberate

Change = Callable[..., Any]


@deliberate("recovery writes no bridge", (Plan, "decide"))
def bridge_forgotten(original: Change) -> Change:
    def decide(self: Plan, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.bridge = ESN_INVALID
        self.last = Esn(max([self.lng, *self.decisions, *self.lost]))

    return decide


@deliberate("recovery takes the copy that came last, whatever its rank", (EpochDigest, "add"), likely="handovers")
def rank_ignored(original: Change) -> Change:
    def add(self: EpochDigest, shard: ShardId, lsn: Lsn, image: bytes) -> bool:
        entry = self.entries.get(Esn(lsn & 0xFFFFFFFF))
        before = (None, b"") if entry is None else (entry.header, entry.image)
        if entry is not None:
            entry.header = None
        taken: bool = original(self, shard, lsn, image)
        if entry is not None and entry.header is None:
            entry.header, entry.image = before
        return taken

    return add


@deliberate("recovery does not look at what one of the shards holds", (EpochRecovery, "on_digested"))
def one_digest_ignored(original: Change) -> Change:
    def on_digested(self: EpochRecovery, shard: ShardId, status: Status, covered: Lsn, images: Any, now: Any) -> None:
        original(self, shard, status, covered, [] if shard == min(self.shards.members) else images, now)

    return on_digested


@deliberate("recovery is content with one shard less than an f-majority", (RecoveryShards, "enough"))
def f_majority_one_short(original: Change) -> Change:
    def enough(self: RecoveryShards, state: RecoveryShardState) -> FMajority:
        result = original(self, state)
        if result is not FMajority.NONE:
            return result
        shards = self.at_least(state)
        missing = [shard for shard in self.members if shard not in shards]
        return self.domains.f_majority([*shards, *missing[:1]]) if shards else result

    return enough


@deliberate("those who are told how an epoch ended need not be an f-majority", (RecoveryShards, "fix_mutation_set"))
def mutation_set_of_a_copyset(original: Change) -> Change:
    def fix(self: RecoveryShards, digested: list[ShardId]) -> Any:
        writable = [shard for shard in digested if self._cluster.is_writable(shard)]
        return original(self, writable if self.domains.can_replicate(writable) else digested)

    return fix


@deliberate("recovery begins above the greatest LNG plus one", (EpochFindings, "learn"))
def lng_off_by_one(original: Change) -> Change:
    def learn(self: EpochFindings, sealed: Any) -> None:
        original(self, sealed)
        if sealed.last > self.lng:
            self.lng = Esn(self.lng + 1)

    return learn


@deliberate("recovery stores entries again on one shard only", (Mutator, "_select"))
def one_copy_is_enough(original: Change) -> Change:
    return lambda self, mutation: frozenset(sorted(original(self, mutation))[:1])


@deliberate("recovery leaves entries as they are, whatever their copies", (attempt, "must_be_stored"))
def nothing_stored_again(original: Change) -> Change:
    return lambda decision, copies, **named: not copies


@deliberate("recovery takes damaged copies for absent ones", (DigestPhase, "_unreadable"))
def damage_taken_for_absence(original: Change) -> Change:
    return lambda self, digested: set()


@deliberate("an epoch counts as clean when the first shard says so", (Cleaner, "finished"))
def one_clean_is_enough(original: Change) -> Any:
    def finished(self: Cleaner) -> bool:
        return any(member.state is RecoveryShardState.CLEAN for member in self._shards.members.values())

    return property(finished)


@deliberate("recovery never believes that all shards have on disk that an epoch is clean", (Cleaner, "finished"))
def never_clean(original: Change) -> Any:
    """Each attempt gets stuck, and the next one stores the same entries."""
    return property(lambda self: False)


@deliberate("entries that recovery finds behind a bridge are kept", (Plan, "_walk"), likely="handovers")
def entries_behind_bridge_kept(original: Change) -> Change:
    def walk(self: Plan, digest: EpochDigest, **named: Any) -> None:
        for entry in digest.entries.values():
            if entry.header is not None and entry.header.is_bridge:
                entry.header = None
        original(self, digest, **named)

    return walk


@deliberate(
    "proofs about an epoch go by where nodes stand now, not by its labels", (EpochInterval, "domains"), likely="moves"
)
def labels_of_the_present(original: Change) -> Change:
    return lambda self, location: FailureDomains.by_file(self.shards, self.replication, location)
