"""Proofs against edits of the cluster file: whatever set of shards stored an entry, whatever f-majority is silent about it later, and wherever the
file says that nodes stand by then, no proof misses the entry.

Every case of small clusters is looked at. A case is a replication property, where nodes stood when the epoch began, where they stand when the proof is
made, a set of shards that stored an acknowledged entry, and an f-majority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, NodeId, ShardId, node_of, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.metadata.widening import extended_labels
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority
from tests.simulation.deliberate import FAULTS

Places = tuple[tuple[int, int], ...]
"""Row and rack of each node."""
MakeDomains = Callable[[EpochInterval, Places], FailureDomains]

PROPERTIES = (
    "node:2",
    "node:3",
    "rack:2",
    "rack:2,node:3",
    "row:2",
    "row:2,node:3",
    "row:2,rack:3",
    "row:1,rack:2,node:3",
)


def partitions(count: int) -> Iterator[tuple[int, ...]]:
    """Every way to split things into groups, as the group of each."""

    def grow(groups: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(groups) == count:
            yield groups
            return
        for group in range(max(groups, default=-1) + 2):
            yield from grow((*groups, group))

    return grow(())


def all_places(nodes: int) -> list[Places]:
    """Every way in which nodes can stand in racks, and racks in rows."""
    found = []
    for racks in partitions(nodes):
        for rows in partitions(max(racks) + 1):
            found.append(tuple((rows[rack], rack) for rack in racks))
    return found


def location(places: Places, shard: ShardId) -> Location:
    row, rack = places[node_of(shard)]
    return Location(("", "", "", f"row{row}", f"rack{rack}"))


def begun(nodes: int, replication: ReplicationProperty, places: Places) -> EpochInterval:
    """The interval of an epoch that begins while nodes stand so, as it is read from the metadata log later."""
    nodeset = tuple((shard_id(NodeId(node)), Generation(1)) for node in range(nodes))
    interval = EpochInterval(Epoch(1), nodeset, replication).labelled(partial(location, places))
    metadata = EpochMetaData(Epoch(2), (interval,), True, False, NodeId(0))
    return EpochMetaData.decode(metadata.encode()).current


def by_labels(interval: EpochInterval, places: Places) -> FailureDomains:
    return interval.domains(partial(location, places))


def by_present_file(interval: EpochInterval, places: Places) -> FailureDomains:
    """The fault: what the file says when the proof is made."""
    return FailureDomains.by_file(interval.shards, interval.replication, partial(location, places))


def stored_sets(replication: ReplicationProperty, places: Places) -> list[int]:
    """Every set of nodes that holds enough copies, as bits: what an acknowledged entry can be on."""

    def suffices(members: list[int]) -> bool:
        domains = {
            "node": {(node,) for node in members},
            "rack": {places[node] for node in members},
            "row": {places[node][:1] for node in members},
        }
        return all(len(domains[scope.name.lower()]) >= factor for scope, factor in replication.factors)

    count = len(places)
    return [bits for bits in range(1 << count) if suffices([node for node in range(count) if bits >> node & 1])]


class Search:
    """Counts the cases, and those in which a proof misses an entry."""

    def __init__(self, make_domains: MakeDomains) -> None:
        self.cases = self.missed = 0
        self._make_domains = make_domains
        self._majorities: dict[object, list[int]] = {}

    def majorities(self, interval: EpochInterval, places: Places) -> list[int]:
        """The sets of shards whose silence proves something."""
        domains = self._make_domains(interval, places)
        found = self._majorities.get(domains.key)
        if found is None:
            shards = domains.shards
            found = self._majorities[domains.key] = [
                bits
                for bits in range(1 << len(shards))
                if domains.f_majority([each for at, each in enumerate(shards) if bits >> at & 1]) is not FMajority.NONE
            ]
        return found

    def look(self, nodes: int, text: str) -> None:
        replication = ReplicationProperty.parse(text)
        everywhere = all_places(nodes)
        for before in everywhere:
            interval, stored = begun(nodes, replication, before), stored_sets(replication, before)
            for after in everywhere:
                for majority in self.majorities(interval, after):
                    self.cases += len(stored)
                    self.missed += sum([not held & majority for held in stored])


def test_no_f_majority_misses_an_entry_wherever_nodes_are_moved() -> None:
    search = Search(by_labels)
    for nodes, text in product(range(1, 5), PROPERTIES):
        search.look(nodes, text)
    assert (search.cases, search.missed) == (1_406_790, 0)


@pytest.mark.parametrize("text", ["rack:2", "rack:2,node:3", "row:2", "row:2,node:3", "row:2,rack:3"])
def test_by_the_present_file_entries_are_missed(text: str) -> None:
    search = Search(by_present_file)
    search.look(4, text)
    assert search.missed > 0


def test_the_deliberate_fault_of_the_simulator_is_noticed() -> None:
    search = Search(by_labels)
    with FAULTS["labels_of_the_present"].planted():
        search.look(4, "rack:2")
    assert search.missed > 0


def widened_by(joins: int, interval: EpochInterval, places: Places) -> FailureDomains:
    """The domains of an interval when the last nodes of a file have joined it."""
    where = partial(location, places)
    added = [shard_id(NodeId(node)) for node in range(len(places) - joins, len(places))]
    nodeset = (*interval.nodeset, *((shard, Generation(1)) for shard in added))
    labels = extended_labels(interval.domains(where), added, where)
    return FailureDomains([shard for shard, _ in nodeset], interval.replication, labels)


@pytest.mark.parametrize("joins", [1, 2])
def test_no_f_majority_of_a_wider_nodeset_misses_an_entry_of_the_narrower_one_or_of_its_own(joins: int) -> None:
    """Wherever nodes stood when the epoch began, and wherever they and those that join stand when they do."""
    cases = 0
    for nodes, text in product(range(2, 4 if joins == 2 else 5), PROPERTIES):
        replication = ReplicationProperty.parse(text)
        seen: set[object] = set()
        for before in all_places(nodes):
            interval, stored = begun(nodes, replication, before), stored_sets(replication, before)
            narrow = by_labels(interval, before)
            if not narrow.can_replicate(narrow.shards):
                continue  # such a nodeset is not widened
            for after in all_places(nodes + joins):
                wide = widened_by(joins, interval, after)
                if (before, wide.key) in seen:
                    continue
                seen.add((before, wide.key))
                shards = wide.shards
                for bits in range(1 << len(shards)):
                    chosen = [each for at, each in enumerate(shards) if bits >> at & 1]
                    if wide.f_majority(chosen) is FMajority.NONE:
                        continue
                    cases += len(stored)
                    assert all(held & bits for held in stored), (before, after, text, chosen)
                    for held in range(1 << len(shards)):
                        members = [each for at, each in enumerate(shards) if held >> at & 1]
                        assert held & bits or not wide.can_replicate(members)
    assert cases > 10_000


@pytest.mark.parametrize(("make_domains", "missed"), [(by_present_file, 4), (by_labels, 0)])
def test_one_of_nine_nodes_is_moved(make_domains: MakeDomains, missed: int) -> None:
    """Three racks of three, rack:2,node:3: an entry can be on any of 463 sets."""
    replication = ReplicationProperty.parse("rack:2,node:3")
    before: Places = tuple((0, node // 3) for node in range(9))
    after = (*before[:8], (0, 0))
    stored = stored_sets(replication, before)
    majorities = Search(make_domains).majorities(begun(9, replication, before), after)
    assert len(stored) == 463
    assert max(sum([not held & majority for held in stored]) for majority in majorities) == missed


@pytest.mark.parametrize("text", ["region:2,node:3", "region:2"])
def test_the_silence_of_one_shard_of_a_single_region_proves_nothing(text: str) -> None:
    shards = [shard_id(NodeId(node)) for node in range(5)]
    domains = FailureDomains.by_file(shards, ReplicationProperty.parse(text), lambda _: Location())
    for shard in shards[1:]:
        domains.set_authority(shard, Authority.UNAVAILABLE)
    assert domains.f_majority(shards[:1]) is FMajority.NONE


def moves(count: int) -> Iterator[tuple[Places, ...]]:
    """Where nodes stand when an entry is stored, when its epoch is sealed, when it is digested, and when it is read."""
    racks = [tuple((0, rack) for rack in groups) for groups in partitions(count)]
    return product(racks, repeat=4)


@pytest.mark.parametrize("text", ["rack:2", "rack:2,node:2", "rack:2,node:3"])
def test_a_recovered_entry_is_read_wherever_nodes_are_moved_meanwhile(text: str) -> None:
    """An entry is stored, its epoch is sealed, digested and recovered, and it is read; nodes are moved between any two of these. Recovery finds the entry,
    and whoever reads meets a copy of what recovery stored."""
    replication = ReplicationProperty.parse(text)
    search = Search(by_labels)
    for stored_at, sealed_at, digested_at, read_at in moves(3):
        interval = begun(3, replication, stored_at)
        stored = stored_sets(replication, stored_at)
        by_recovery = by_labels(interval, digested_at)
        for seal, digest in product(search.majorities(interval, sealed_at), search.majorities(interval, digested_at)):
            asked = digest & seal  # only who is sealed is digested
            shards = [each for at, each in enumerate(by_recovery.shards) if asked >> at & 1]
            if by_recovery.f_majority(shards) is FMajority.NONE or not by_recovery.can_replicate(shards):
                continue
            assert all(held & asked for held in stored)
            recovered = [held for held in stored if held & ~asked == 0]
            readers = search.majorities(interval, read_at)
            assert recovered
            assert all(held & reader for held in recovered for reader in readers)
