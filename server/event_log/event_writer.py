"""Who writes which event: the leader declares losses, donors say when they are done, shards that are back say so.

Nothing is remembered between ticks but since when shards are gone: what should be in the event log is compared with what is. A shard is gone when its node
is dead, or says that the shard's disk failed. The leader alone declares either lost: several that declare at once would not see how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, InstanceId, NodeId, ShardId, format_shard, node_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.some_names import name_some
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import (
    DONORS_MAX,
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardsNeverUsed,
    ShardTookRecords,
    ShardUnrecoverable,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet, RebuildingShard
from logdevice_py.event_log.settings import RebuildingSettings
from server.event_log.participation import ParticipantView, absentees, takes_part

_LOOKED_UP_AT_ONCE: Final = 256
"""Shards that are not in the cluster file, in a tick: whoever invents thousands does not keep the epoch store busy."""
_FINISHED_AT_ONCE: Final = 64
"""Donors that left, in a tick."""
_NAMED: Final = 6


@dataclass(frozen=True, slots=True)
class _Gone:
    """A shard that serves nobody."""

    since: Micros
    instance: InstanceId
    """The run of its node that was heard of last."""


class RebuildingSupervisor:
    """Looks now and then at one node's view of the cluster and at the event log.

    Args:
        look_up: has the generation of a shard that is gone looked up; `note_generation` gets it.
        append: writes an event.
    """

    def __init__(
        self,
        node: NodeId,
        settings: RebuildingSettings,
        view: ParticipantView,
        own: Mapping[ShardId, Generation],
        look_up: Callable[[ShardId, Micros], None],
        append: Callable[[Event, Micros], None],
    ) -> None:
        self._node = node
        self._settings = settings
        self._view = view
        self._own = own
        self._look_up = look_up
        self._append = append
        self._gone: dict[ShardId, _Gone] = {}
        self._regions_gone: dict[str, Micros] = {}
        """When all shards of a region were last gone, one of several regions."""
        self._generations: dict[ShardId, Generation] = {}

    def note_generation(self, shard: ShardId, generation: Generation) -> None:
        """What the epoch store says of a shard; 0: it was never registered."""
        self._generations[shard] = generation

    def is_leader(self, config: ClusterConfig) -> bool:
        """Whether this node looks after the shards of all."""
        view = self._view
        living = (node for node in config.sequencer_nodes() if view.may_sequence(node))
        return next((node for node in living if takes_part(node, config, view)), None) == self._node

    def tick(
        self,
        config: ClusterConfig,
        state: RebuildingSet,
        results: Mapping[ShardId, tuple[int, DonorFlags]],
        failed: frozenset[ShardId],
        drains: Mapping[ShardId, Lsn],
        needed: frozenset[ShardId],
        now: Micros,
    ) -> None:
        """Write what is missing in the event log, all of which was read.

        Args:
            results: the rounds that donors of this node have done, and how.
            failed: own shards whose disk failed: they are not back.
            drains: the drain that each own shard has done its part of, and since which it took no record; 0: none.
            needed: shards that epochs of this node's logs list although they are lost or drained. Whatever they take, nobody could tell without them how
                such an epoch ended: a drained one is not to leave.
        """
        for donor, (round_, flags) in sorted(results.items()):
            generation = self._own[donor]
            if round_ == state.round and state.awaits(donor) and state.speaks_for(donor, generation):
                self._append(ShardIsRebuilt(donor, generation, state.round, flags), now)
        for shard in sorted(needed):
            if _is_emptied(listed := state.shards[shard]):
                hit("drained_shard_is_needed")
                self._append(ShardTookRecords(shard, listed.generation, listed.since), now)
        for shard, generation in sorted(self._own.items()):
            entry = state.shards.get(shard)
            back = entry is not None and entry.mode is RebuildMode.RESTORE and entry.generation == generation
            if back and shard not in failed:
                hit("lost_shard_is_back")
                self._append(ShardAbortRebuild(shard, generation, RebuildMode.RESTORE), now)
            if entry is not None and shard not in failed and self._took_records(entry, generation, drains):
                hit("drained_shard_took_records")
                self._append(ShardTookRecords(shard, generation, entry.since), now)
        # Candidates, and who left, are those of the cluster file: with an older one living donors would be left out.
        if self.is_leader(config) and self._view.config_version <= config.version:
            if absentees(config, self._view):
                hit("losses_await_all_nodes")
                self._call_off_for_absentees(config, state, now)
            else:
                self._declare_replaced(config, state, now)
                self._declare_gone(config, state, now)
            self._finish_for_removed(config, state, now)
            self._forget_inventions(config, state, now)

    @staticmethod
    def _took_records(entry: RebuildingShard, generation: Generation, drains: Mapping[ShardId, Lsn]) -> bool:
        """Whether an own shard that counts as empty may not be."""
        return entry.generation == generation and _is_emptied(entry) and drains[entry.shard] != entry.since

    def presumed_lost(self, now: Micros) -> frozenset[ShardId]:
        """Shards that were gone for the grace period, as far as this node sees."""
        grace = self._settings.self_initiated_grace_period_us
        return frozenset(shard for shard, gone in self._gone.items() if grace and now - gone.since >= grace)

    def explain(self, config: ClusterConfig, state: RebuildingSet, now: Micros) -> list[str]:
        """What the losses wait for that this node is to declare, a sentence each. None: nothing is gone that the event log does not know of, or another node leads."""
        if not self.is_leader(config):
            return []
        if others := absentees(config, self._view):
            names = name_some((f"N{node}" for node in others), _NAMED)
            return [
                f"nothing is re-replicated by itself until all nodes take part in rebuilding; of an earlier version, or with enabled = false, "
                f"{'is' if len(others) == 1 else 'are'} {names}"
            ]
        found: dict[str, list[ShardId]] = {}
        for shard in sorted(self._gone):
            entry, generation = state.shards.get(shard), self._generations.get(shard)
            known = Generation(0) if entry is None else max(entry.lost, entry.restored)
            if generation == 0 or (known and known >= (generation or self._view.generation(shard))):
                continue
            found.setdefault(self._explain_gone(shard, config, state, now), []).append(shard)
        return [f"{name_some(map(format_shard, shards), _NAMED)}: {text}" for text, shards in found.items()]

    def _explain_gone(self, shard: ShardId, config: ClusterConfig, state: RebuildingSet, now: Micros) -> str:
        grace, gone_for = self._settings.self_initiated_grace_period_us, now - self._gone[shard].since
        if not grace:
            return "gone, and rebuilt by command only (ldctl rebuild), as self_initiated_grace_period_us is 0"
        if self._is_left_to_a_person(shard, config, now):
            region = _region(shard, config) or "without a name"
            return f"the whole region {region} is gone, so a person decides: bring it back, or ldctl rebuild if it is lost for good"
        if self._are_too_many(config, state):
            return "too many shards are gone at once, so a person decides: bring them back, or ldctl rebuild what is lost for good"
        if gone_for < grace:
            return f"gone, and taken for lost when that has lasted for {grace // SECOND} s"
        return "to be taken for lost, which the event log does not take yet: too few nodes are left for it, or it is not read"

    def note_gone(self, config: ClusterConfig, now: Micros) -> None:
        """Look which shards are gone; to be called before each `tick`."""
        gone: dict[ShardId, _Gone] = {}
        for shard in config.storage_shards():
            before, instance = self._gone.get(shard), self._view.instance(node_of(shard))
            if not self._view.serves(shard):
                # a node that was started meanwhile was not there, or whole, for a moment that nobody saw
                same = before is not None and before.instance == instance
                gone[shard] = before if before is not None and same else _Gone(now, instance)
            if before is not None and gone.get(shard) is not before:
                self._generations.pop(shard, None)  # it may get another one
        self._gone = gone
        self._note_regions(config, now)

    def _note_regions(self, config: ClusterConfig, now: Micros) -> None:
        regions = {_region(shard, config) for shard in config.storage_shards()}
        left = {_region(shard, config) for shard in config.storage_shards() if shard not in self._gone}
        if len(regions) > 1:
            self._regions_gone.update(dict.fromkeys(regions - left, now))

    def _is_left_to_a_person(self, shard: ShardId, config: ClusterConfig, now: Micros) -> bool:
        """Whether its whole region is gone, or was a moment ago: the region comes back, or a person decides. The nodes of one that comes back do not start in
        the same instant; each has the grace period from there on."""
        gone = self._regions_gone.get(_region(shard, config))
        return gone is not None and now - gone < self._settings.self_initiated_grace_period_us

    def _needs_rebuild(
        self,
        config: ClusterConfig,
        shard: ShardId,
        generation: int,
        source: str,
        now: Micros,
        *,
        mode: RebuildMode = RebuildMode.RESTORE,
        recoverable: bool = True,
    ) -> None:
        candidates = tuple((each, self._view.generation(each)) for each in config.storage_shards())
        self._append(ShardNeedsRebuild(shard, Generation(generation), mode, candidates, recoverable, source), now)

    def _declare_replaced(self, config: ClusterConfig, state: RebuildingSet, now: Micros) -> None:
        """A shard that has a later generation lost the earlier ones for certain. One that was to be emptied still is, which says so too."""
        for shard in config.storage_shards():
            generation = self._view.generation(shard)
            if generation <= 1:
                continue
            entry = state.shards.get(shard)
            text = f"{format_shard(shard)} has generation {generation}"
            if entry is not None and entry.generation < generation and entry.is_to_be_emptied:
                self._needs_rebuild(config, shard, generation, text, now, mode=RebuildMode.RELOCATE)
            elif entry is None or entry.generation < generation - 1:
                hit("replaced_shard_is_rebuilt")
                self._needs_rebuild(config, shard, generation - 1, text, now, recoverable=False)
            elif entry.generation < generation and entry.mode is RebuildMode.RESTORE and entry.recoverable:
                self._append(ShardUnrecoverable(shard, entry.generation), now)

    def _declare_gone(self, config: ClusterConfig, state: RebuildingSet, now: Micros) -> None:
        settings, too_many = self._settings, self._are_too_many(config, state)
        for shard in sorted(self.presumed_lost(now)):
            # What is heard of it may be of an earlier generation: its node may have died before others knew of the last one.
            if shard not in self._generations:
                self._look_up(shard, now)
            generation = self._generations.get(shard)
            if generation is None:
                continue
            entry = state.shards.get(shard)
            after, time = settings.unrecoverable_after_us, now - self._gone[shard].since
            if entry is not None and generation <= entry.lost:
                if entry.recoverable and after and time >= after:
                    self._append(ShardUnrecoverable(shard, entry.generation), now)
            elif not generation or (entry is not None and generation <= entry.restored):
                # It holds nothing that anybody misses.
                if state.awaits(shard):
                    self._append(ShardIsRebuilt(shard, Generation(0), state.round, DonorFlags.NONE), now)
            elif too_many:
                hit("too_many_lost_to_rebuild")
            elif self._is_left_to_a_person(shard, config, now):
                hit("region_is_not_rebuilt")
            elif self._view.is_alive(node_of(shard)):
                hit("failed_shard_is_rebuilt")
                text = f"the disk of {format_shard(shard)} failed {time // 1_000_000} s ago"
                self._needs_rebuild(config, shard, generation, text, now)
            else:
                hit("dead_node_is_rebuilt")
                text = f"N{node_of(shard)} was dead for {time // 1_000_000} s"
                self._needs_rebuild(config, shard, generation, text, now)

    def _call_off_for_absentees(self, config: ClusterConfig, state: RebuildingSet, now: Micros) -> None:
        """A lost shard whose node came back, and takes no part, does not say itself that it is back. The sequencers of its node and of others like it use it
        as before: its silence must not count for nothing."""
        for node in absentees(config, self._view):
            for shard in config.nodes[node].shard_ids():
                entry = state.shards.get(shard)
                if entry is None or entry.mode is not RebuildMode.RESTORE or not self._view.serves(shard):
                    continue
                if entry.generation == self._view.generation(shard):
                    hit("lost_shard_of_an_absentee_is_back")
                    self._append(ShardAbortRebuild(shard, entry.generation, RebuildMode.RESTORE), now)

    def _are_too_many(self, config: ClusterConfig, state: RebuildingSet) -> bool:
        """Also those count that went a moment ago: where one cause takes many, it does not take them in the same instant."""
        rebuilt = sum(self._is_rebuilt(shard, state) for shard in self._gone)
        missing, others = len(self._gone) - rebuilt, len(config.storage_shards()) - rebuilt
        return 100 * missing > self._settings.max_lost_percent * others

    def _is_rebuilt(self, shard: ShardId, state: RebuildingSet) -> bool:
        """Whether a shard that is gone was rebuilt, in the generation that it has."""
        entry, generation = state.shards.get(shard), self._generations.get(shard)
        return entry is not None and generation is not None and generation <= entry.restored

    def _finish_for_removed(self, config: ClusterConfig, state: RebuildingSet, now: Micros) -> None:
        """Nobody waits for donors that are not in the cluster file any more."""
        present = set(config.storage_shards())
        left = [donor for donor in state.donors if donor not in present and state.awaits(donor)]
        for donor in left[:_FINISHED_AT_ONCE]:
            if self._generations.get(donor) != 0:
                hit("donor_was_removed")
                entry = state.shards.get(donor)
                generation = max(state.candidates.get(donor, 0), self._view.generation(donor))
                emptied = entry is not None and max(generation, entry.generation) <= entry.restored
                flags = DonorFlags.NONE if emptied else DonorFlags.UNPLACED
                self._append(ShardIsRebuilt(donor, Generation(0), state.round, flags), now)

    def _forget_inventions(self, config: ClusterConfig, state: RebuildingSet, now: Micros) -> None:
        """Anybody may say that a shard is lost. One that is in no cluster file any more, and was never registered, nobody ever had: as long as it
        counts as lost, every other rebuild ends uncertain."""
        present = set(config.storage_shards())
        strangers = [shard for shard in {**state.shards, **state.candidates} if shard not in present]
        for shard in [shard for shard in strangers if shard not in self._generations][:_LOOKED_UP_AT_ONCE]:
            self._look_up(shard, now)
        invented = tuple(sorted(shard for shard in strangers if self._generations.get(shard) == 0))
        if invented:
            hit("invented_shards_are_refuted")
            self._append(ShardsNeverUsed(invented[:DONORS_MAX]), now)
        elif len(self._generations) > len(strangers) + len(present):
            known = {*strangers, *present}
            self._generations = {each: found for each, found in self._generations.items() if each in known}


def _region(shard: ShardId, config: ClusterConfig) -> str:
    """Where the shard stands; "" where nothing is known."""
    return config.nodes[node_of(shard)].location.region


def _is_emptied(entry: RebuildingShard) -> bool:
    return entry.mode is RebuildMode.RELOCATE and entry.generation == entry.restored
