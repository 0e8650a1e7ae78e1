"""Nodes that are lost for good, of which the disks fail for good, or that are emptied, while a run goes on; and when what they held has been stored again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import EVENT_LOG_DELTAS, Generation, ShardId, format_shard, node_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.event_log.events import (
    DonorFlags,
    Event,
    RebuildMode,
    ShardAbortRebuild,
    ShardNeedsRebuild,
    encode_event,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.placement.failure_domains import FailureDomains
from server.simulation.damage import DamageBudget
from server.simulation.machines import SimMachines, SimNode, SimNodeState, SimPromise
from tests.simulation.history import Violation
from tests.simulation.scenario import Scenario

_WATCH_US: Final = 50_000
"""Shorter than it takes to declare a loss and its end: the shard says that it is back once a second."""


@dataclass(frozen=True, slots=True)
class CopiesOfDeparted:
    """What became of the copies that lost and drained shards held."""

    rebuilt: Mapping[ShardId, Generation]
    """Shards whose losses were re-replicated, up to these generations."""
    emptied: frozenset[ShardId]
    """Those that are empty, though they serve."""
    once_lost: frozenset[ShardId]
    """Those that some node took for lost at some time: what recovery stored then may have done without them."""


class Departures:
    """One node or two leave each run: as far as the damage done before allows."""

    def __init__(self, scenario: Scenario, cluster: SimMachines, budget: DamageBudget) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._budget = budget
        self._rng = random.Random(cluster.rng.getrandbits(64))
        self._gone: set[ShardId] = set()
        self._drained: set[ShardId] = set()
        self._used_again: set[ShardId] = set()
        """Drained ones that are to be used again, which some node has not heard yet."""
        self._once_lost: set[ShardId] = set()
        self._again: set[tuple[ShardId, Lsn]] = set()
        """Shards that are to be rebuilt once more, and since when they were of which that is said."""

    def start(self) -> None:
        """Plan who leaves when."""
        for _ in range(self._rng.choice([1, 1, 2])):
            # rather early than late: what is stored again meets more faults
            within = max(2 * SECOND, self._scenario.duration // self._rng.choice([1, 4, 4]))
            at = self._rng.randrange(SECOND, within)
            self._try(at, self._rng.choices((self._lose, self._break, self._drain), (4, 3, 3))[0])
        if self._rng.random() < 0.5:
            self._cluster.scheduler.after(self._rng.randrange(SECOND, self._scenario.duration), self._desert)
        self._watch()

    def _watch(self) -> None:
        for state in self._sets():
            self._once_lost.update(each.shard for each in state.shards.values() if each.mode is RebuildMode.RESTORE)
        heard = {shard for shard in self._used_again if all(shard not in each.shards for each in self._sets())}
        self._used_again -= heard
        self._drained -= heard
        self._cluster.scheduler.after(_WATCH_US, self._watch)

    def _try(self, after: int, leave: Callable[[], bool]) -> None:
        """Until it can be, or the faults are over."""

        def attempt() -> None:
            if self._cluster.scheduler.now < self._scenario.duration and not leave():
                self._try(SECOND // 2, leave)

        self._cluster.scheduler.after(after, attempt)

    def _desert(self) -> None:
        """So many are away at once that nobody can tell who is lost, or write the event log without drained shards."""
        nodes = [node for node in self._running() if self._drained.isdisjoint(node.disks)]
        away = self._rng.sample(nodes, max(0, len(nodes) - self._rng.choice([1, 2])))
        until = self._rng.choice([3, 8]) * SECOND
        for node in away:
            self._cluster.note("run", "a node is away with others", node.name)
            node.crash(machine=False)
            self._cluster.scheduler.after(until, node.start_if_down)

    @property
    def shards(self) -> frozenset[ShardId]:
        """Those that are lost for good or drained, whether they are in the cluster file or not."""
        return frozenset(self._gone | self._drained)

    @property
    def _is_small(self) -> bool:
        """The cluster has not grown to its size yet."""
        config = self._cluster.config
        return bool(self._scenario.grows_at) and len(config.writable_shards()) < len(config.storage_shards())

    def _running(self) -> list[SimNode]:
        return [
            node
            for node in self._cluster.nodes.values()
            if node.state is SimNodeState.RUNNING and node.disks and not (node.retired or node.disks_broken)
        ]

    def _suffices_without(self, node: SimNode) -> bool:
        """Whether those that stay can hold all copies, and sequence."""
        config = self._cluster.config
        left = set(config.storage_shards()) - self._gone - self._drained - set(node.disks)
        replication = self._scenario.plan.replicate
        domains = FailureDomains.by_file(left, ReplicationProperty.parse(replication), config.location)
        kept_by = left & set(config.metadata_log.nodeset)
        metadata = FailureDomains.by_file(kept_by, config.metadata_log.replication, config.location)
        sequencers = {each for each in config.sequencer_nodes() if not self._cluster.nodes[each].retired} - {node.id}
        return domains.can_replicate(left) and metadata.can_replicate(kept_by) and bool(sequencers)

    def _one_to_lose(self) -> SimNode | None:
        """Whose shards may go for good; None: nobody's."""
        nodes = [node for node in self._running() if self._suffices_without(node)]
        if len(nodes) < 4 or self._is_small:
            return None
        node = self._rng.choice(nodes)
        return node if self._budget.take_shards(node.disks) else None

    def _lose(self) -> bool:
        node = self._one_to_lose()
        if node is None:
            return False
        self._cluster.note("run", "a node is lost for good", node.name)
        generations = {shard: each.contents.marker.generation for shard, each in node.shards.items()}
        node.crash(machine=True)
        node.wipe()
        node.retired = True
        self._gone.update(node.disks)
        self._decide(node, generations)
        return True

    def _break(self) -> bool:
        """The process of the node goes on, and sequences."""
        node = self._one_to_lose()
        if node is None:
            return False
        self._cluster.note("run", "the disks of a node fail for good", node.name)
        generations = {shard: each.contents.marker.generation for shard, each in node.shards.items()}
        node.break_disks()
        self._gone.update(node.disks)
        self._decide(node, generations)
        return True

    def _decide(self, node: SimNode, generations: Mapping[ShardId, Generation]) -> None:
        """A region that is gone as a whole, of several, nobody rebuilds by himself: a person says that its last node is lost."""
        config = self._cluster.config
        regions = {shard: config.nodes[node_of(shard)].location.region for shard in config.storage_shards()}
        region = config.nodes[node.id].location.region
        if len(set(regions.values())) < 2 or any(
            regions[shard] == region and shard not in self._gone for shard in regions
        ):
            return
        self._cluster.note("run", "a region is lost for good", node.name)
        heard = next((each.root.gossip.generation for each in self._running() if each.root is not None), None)
        candidates = tuple((shard, Generation(0) if heard is None else heard(shard)) for shard in regions)
        for shard, generation in generations.items():
            self._append(ShardNeedsRebuild(shard, generation, RebuildMode.RESTORE, candidates, True, "run"))

    def _drain(self) -> bool:
        nodes = [node for node in self._running() if self._suffices_without(node)]
        if len(nodes) < 5 or self._is_small:
            return False
        self.drain(self._rng.choice(nodes))
        return True

    def drainable(self) -> list[SimNode]:
        """Nodes without which the others can do, and that nobody drains yet."""
        return [
            node for node in self._running() if self._drained.isdisjoint(node.disks) and self._suffices_without(node)
        ]

    def drain(self, node: SimNode) -> None:
        """As a person would: the event is appended until it is in the log, whatever becomes of the node meanwhile."""
        [shard] = node.disks
        assert node.root is not None
        generation = node.root.gossip.generation(shard)
        candidates = tuple((each, node.root.gossip.generation(each)) for each in self._cluster.config.storage_shards())
        self._cluster.note("run", "a node is drained", node.name)
        self._drained.add(shard)
        self._append(ShardNeedsRebuild(shard, generation, RebuildMode.RELOCATE, candidates, True, "run"))

    def undrain(self, node: SimNode) -> None:
        """The node is used again."""
        [shard] = node.disks
        entries = [entry for each in self._sets() if (entry := each.shards.get(shard)) is not None]
        if not entries:
            return  # whoever runs has not read so far
        entry = entries[0]
        self._cluster.note("run", "a node is used again", node.name)
        self._used_again.add(shard)
        self._append(ShardAbortRebuild(shard, entry.generation, RebuildMode.RELOCATE))

    def is_empty(self, node: SimNode) -> bool:
        """Whether every node that runs, and at least one does, knows that all that the node held is stored elsewhere."""
        [shard] = node.disks
        entries = [each.shards.get(shard) for each in self._sets()]
        return bool(entries) and all(
            entry is not None and entry.mode is RebuildMode.RELOCATE and entry.rebuilt and not entry.flags
            for entry in entries
        )

    def has_heard(self, lsn: Lsn) -> bool:
        """Whether all nodes that run have read the event log up to there."""
        return all(state.version >= lsn for state in self._sets())

    def _append(self, event: Event) -> None:
        client = self._cluster.client()

        def attempt(now: Micros) -> None:
            client.session.append(EVENT_LOG_DELTAS, encode_event(event), SimPromise(done))

        def done(promise: SimPromise) -> None:
            if promise.error is not None:
                self._cluster.scheduler.after(SECOND, lambda: client.event(attempt))

        client.event(attempt)

    # What came of it

    def _sets(self) -> list[RebuildingSet]:
        return [
            node.root.rebuilding.set
            for node in self._cluster.nodes.values()
            if node.state is SimNodeState.RUNNING and node.root is not None and node.root.rebuilding is not None
        ]

    def done(self) -> bool:
        """Every node knows the same, and nothing is left to rebuild."""
        sets = self._sets()
        expected = self._gone | self._drained
        return (
            bool(sets)
            and len({each.version for each in sets}) == 1
            and not sets[0].open_shards
            and all(self._is_begun_again(sets[0], shard, since) for shard, since in self._again)
            and expected <= set(sets[0].shards)
            and all(self._knows_replacements(each) for each in sets)
        )

    @staticmethod
    def _is_begun_again(state: RebuildingSet, shard: ShardId, since: Lsn) -> bool:
        entry = state.shards.get(shard)
        return entry is None or entry.since > since

    def _knows_replacements(self, state: RebuildingSet) -> bool:
        """Generations that shards had before are in the set."""
        for node in self._cluster.nodes.values():
            for shard, each in node.shards.items():
                generation = each.contents.marker.generation
                if generation > 1 and state.find(shard, Generation(generation - 1)) is None:
                    return False
        return True

    def progress(self) -> object:
        """Changes while something goes on. Who waited in vain for a place waits a little for each further record, which takes its time too."""
        return [
            (rebuilding.set.version, rebuilding.metrics.bytes_rebuilt, rebuilding.metrics.records_unplaced)
            for node in self._cluster.nodes.values()
            if node.root is not None and (rebuilding := node.root.rebuilding) is not None
        ]

    def waits_for(self) -> str:
        """For failures."""
        lines = []
        for node in self._cluster.nodes.values():
            root = node.root
            if root is None or root.rebuilding is None or root.storage is None:
                continue
            state = root.rebuilding.set
            donors = [
                f"{format_shard(shard)} round {donor.round} result {donor.result} logs "
                f"{ {log: each.explain() for log, each in donor.running.items()} } left {donor.logs_left}"
                for shard, machines in root.storage.shards.items()
                if (donor := machines.donor) is not None
            ]
            lines.append(
                f"{node.name} {root.rebuilding.replica.stage.name} caught up {root.rebuilding.replica.caught_up} "
                f"version {state.version} round {state.round} open {[format_shard(each.shard) for each in state.open_shards]} "
                f"of {[format_shard(each) for each in state.shards]} donors {state.donors}; {donors}"
            )
        return f"gone {self._gone}, drained {self._drained}; " + "\n".join(lines)

    def rebuild_again(self) -> bool:
        """As a person would where records were left without a place while nodes were away: the event that began it is appended again. Whether there are such."""
        [state] = self._sets()[:1]
        short = [entry for _, entry in sorted(state.shards.items()) if entry.rebuilt and entry.flags]
        candidates = tuple(sorted(state.candidates.items()))
        for entry in short:
            self._cluster.note("run", "is rebuilt once more", format_shard(entry.shard))
            self._again.add((entry.shard, entry.since))
            self._append(ShardNeedsRebuild(entry.shard, entry.generation, entry.mode, candidates, True, "run"))
        return bool(short)

    def check_places(self) -> None:
        """Without faults every record finds its places, as long as the cluster has them.

        Raises:
            Violation: a round has left records without one.
        """
        damaged = self._budget.damaged.union(*self._cluster.destroyed_entries().values())
        if damaged - self._gone:
            return  # what cannot be read, and what a crash took, nobody gives
        [state] = self._sets()[:1]
        short = [
            format_shard(shard) for shard, entry in sorted(state.shards.items()) if entry.flags & DonorFlags.UNPLACED
        ]
        if short:
            raise Violation(f"records that {short} held have no place: {self.waits_for()}")

    def came_to(self) -> CopiesOfDeparted:
        """What became of the copies of those that left."""
        state = self._sets()[0]
        whole = [entry for entry in state.shards.values() if entry.rebuilt and not entry.flags]
        emptied = frozenset(entry.shard for entry in whole if entry.mode is RebuildMode.RELOCATE)
        return CopiesOfDeparted({entry.shard: entry.generation for entry in whole}, emptied, frozenset(self._once_lost))
