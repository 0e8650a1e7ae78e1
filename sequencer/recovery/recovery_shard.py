"""The shards of an epoch's nodeset as its recovery sees them."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from logdevice_py.core.ids import Generation, LogId, ShardId, format_shard
from logdevice_py.core.lsn import LSN_INVALID, Epoch, Esn, Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, TailRecord, tail_record
from logdevice_py.placement.failure_domains import Authority, FMajority
from sequencer.recovery.context import RecoveryCluster


class RecoveryShardState(enum.IntEnum):
    """How far a shard is. It falls back to SEALING whenever it may have lost what it was told."""

    SEALING = 0  # no good answer to SEAL yet
    SEALED = 1  # takes no more entries of the epoch from sequencers
    DIGESTING = 2  # tells what it holds
    DIGESTED = 3  # told everything; takes no part in what follows, or its part is not yet decided
    MUTATABLE = 4  # member of the mutation set: is brought to what was decided
    CLEANING = 5  # holds what was decided; is told that this is final
    CLEAN = 6  # has it on disk that its part of the epoch is final


@dataclass(slots=True)
class SealedEpoch:
    """What a shard said of an epoch when it was sealed."""

    epoch: Epoch
    status: Status
    lng: Esn
    last: Esn
    last_timestamp: Timestamp
    tail_lsn: Lsn
    tail_timestamp: Timestamp
    generation: Generation
    """Of the shard; 0 when it did not tell."""
    tail_records: int = 0
    """0: it did not tell."""
    tail_extensions: bytes = b""

    def tail(self) -> TailRecord:
        """The last entry up to the LNG; LSN 0 if there is none."""
        return tail_record(self.tail_lsn, self.tail_timestamp, self.tail_records, self.tail_extensions)


@dataclass(slots=True)
class RecoveryShard:
    """A shard of the epoch's nodeset."""

    shard: ShardId
    generation: Generation
    state: RecoveryShardState = RecoveryShardState.SEALING
    digest_next: Lsn = LSN_INVALID
    """DIGESTING: the LSN to ask for."""
    delay: int = 0
    """How long the answer is waited for, in microseconds."""
    timer: Timer | None = None
    """Repeats the request of the state."""

    def cancel_timer(self) -> None:
        """Nothing is to be repeated."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def fall_back(self, state: RecoveryShardState) -> None:
        """Go back to an earlier state."""
        self.cancel_timer()
        self.state = state
        self.delay = 0


class RecoveryShards:
    """The nodeset of one epoch, with what the answers of its shards are worth."""

    def __init__(self, log: LogId, interval: EpochInterval, cluster: RecoveryCluster) -> None:
        self.members = {shard: RecoveryShard(shard, generation) for shard, generation in interval.nodeset}
        self.rebuilding: set[ShardId] = set()
        """Shards that said that they may lack entries of the epoch: what they hold is used, but that they hold nothing proves nothing."""
        self._places = {shard: cluster.location(shard) for shard in self.members}
        """By the cluster file; asked only of an interval without labels."""
        self.domains = interval.domains(self._places.get)
        self._has_labels = interval.labels is not None
        self._log = log
        self._cluster = cluster
        self._config_version = interval.config_version
        self.hopes = False
        """The data of some lost shard of which nothing is heard may come back."""
        self._failed = Counter[ShardId]()
        """How often members failed."""
        self.refresh_authority()

    def refresh_authority(self) -> None:
        """Work out anew what the silence of each shard proves."""
        self._find_places()
        self.hopes = False
        for shard, member in self.members.items():
            if shard in self.rebuilding or self._cluster.has_left(shard, self._config_version):
                authority = Authority.UNDERREPLICATION
            elif member.state >= RecoveryShardState.SEALED:
                authority = Authority.FULLY_AUTHORITATIVE  # it says so itself
            else:
                authority = self._cluster.authority(self._log, shard, member.generation)
                if authority is Authority.UNAVAILABLE:
                    # not waited for, unless nothing is certain without it
                    authority = Authority.UNDERREPLICATION
                    self.hopes = True
            self.domains.set_authority(shard, authority)

    def _find_places(self) -> None:
        """Of shards that an older cluster file than the nodeset was chosen from did not name."""
        if self._has_labels:
            return
        unknown = [shard for shard, place in self._places.items() if place is None]
        found = {shard: place for shard in unknown if (place := self._cluster.location(shard)) is not None}
        if found:
            hit("recovery_learns_where_shards_stand")
            self._places.update(found)
            self.domains.relocate(self._places.get)

    def cleaning(self) -> list[ShardId]:
        """Members of the mutation set that have not said yet that they know the end."""
        return [shard for shard, member in self.members.items() if member.state is RecoveryShardState.CLEANING]

    def at_least(self, state: RecoveryShardState) -> list[ShardId]:
        """The shards that came as far as `state`."""
        return [shard for shard, member in self.members.items() if member.state >= state]

    def staying(self, shards: list[ShardId]) -> list[ShardId]:
        """Without those that have left the cluster file: what they hold is used while they answer, but nothing is kept there any more. Where they
        stood is not known, so they would even count as domains of their own."""
        return [shard for shard in shards if self._cluster.in_cluster(shard)]

    def enough(self, state: RecoveryShardState) -> FMajority:
        """What the shards that came as far as `state` prove. NONE while it could be more with data that may come back. An INCOMPLETE set that could not also store an entry is as good as NONE: it might
        miss the mutation set of an earlier recovery."""
        shards = self.at_least(state)
        result = self.domains.f_majority(shards)
        if result is FMajority.INCOMPLETE and not self.domains.can_replicate(self.staying(shards)):
            return FMajority.NONE
        if result is FMajority.NON_AUTHORITATIVE and self.hopes:
            hit("recovery_waits_for_lost_shard")
            return FMajority.NONE
        return result

    def fix_mutation_set(self, digested: list[ShardId]) -> dict[ShardId, Generation]:
        """Choose who is brought to what was decided, of the shards that told everything. Empty: nobody is left.

        They are an f-majority themselves, where it was one that told: whoever asks shards later that can hold a copyset meets one that knows the end.
        """
        writable = [shard for shard in digested if self._cluster.is_writable(shard)]
        # Read-only shards take no new entries, but these are old ones, and nobody else may be able to keep them.
        chosen = everybody = self.staying(digested) or digested
        if self._suffice(writable):
            chosen = min(map(self._without_failing, (writable, everybody)), key=self._worst_failing)
        elif self._suffice(everybody):
            chosen = self._without_failing(everybody)
        if chosen and not self.domains.can_replicate(chosen):
            hit("recovery_best_effort")
        for shard in chosen:
            self.members[shard].state = RecoveryShardState.MUTATABLE
        return {shard: self.members[shard].generation for shard in chosen}

    def note_failing(self, shards: Iterable[ShardId]) -> None:
        """Members of the mutation set that refused what they had to store, or did not do it or say that they know the end in time: they may wait for others."""
        self._failed.update(shards)

    def _without_failing(self, shards: list[ShardId]) -> list[ShardId]:
        """Without those that failed in earlier attempts, as far as the others suffice."""
        failing = [shard for shard in shards if self._failed[shard]]
        for shard in sorted(failing, key=lambda shard: -self._failed[shard]):
            others = [other for other in shards if other != shard]
            if self._suffice(others):
                hit("recovery_without_failing_member")
                shards = others
        return shards

    def _worst_failing(self, shards: list[ShardId]) -> int:
        return max(self._failed[shard] for shard in shards)

    def _suffice(self, shards: list[ShardId]) -> bool:
        return self.domains.can_replicate(shards) and self.domains.f_majority(shards) is not FMajority.NONE

    def explain(self) -> str:
        """The state of each shard, for people."""
        return ", ".join(
            f"{format_shard(shard)} {'REBUILDING' if shard in self.rebuilding else member.state.name}"
            for shard, member in sorted(self.members.items())
        )
