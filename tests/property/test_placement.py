"""Placement held against its definitions, by enumeration on small clusters."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from logdevice_py.config.cluster import ShardState
from logdevice_py.config.location import Location, Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of, shard_id
from logdevice_py.core.status import LogDeviceError
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority
from tests.unit.logdevice_py.placement.clusters import attributes, cluster, select_nodeset

SCOPES = [Scope.NODE, Scope.RACK, Scope.ROW, Scope.REGION]


@dataclass(frozen=True)
class Cluster:
    """A small nodeset with its locations and a replication property."""

    places: dict[NodeId, Location]
    nodeset: tuple[ShardId, ...]
    replication: ReplicationProperty

    def location(self, shard: ShardId) -> Location | None:
        return self.places.get(node_of(shard))

    def satisfies(self, shards: tuple[ShardId, ...]) -> bool:
        """The definition: enough different domains at every scope."""
        return all(
            len({self.places[node_of(shard)].domain(scope, node_of(shard)) for shard in shards}) >= factor
            for scope, factor in self.replication.factors
        )

    def copysets(self, among: frozenset[ShardId]) -> Iterator[frozenset[ShardId]]:
        for shards in combinations(sorted(among), self.replication.copies):
            if self.satisfies(shards):
                yield frozenset(shards)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    labels = st.tuples(st.sampled_from("ab"), st.just(""), st.just(""), st.sampled_from("xy"), st.sampled_from("123"))
    nodes = draw(st.integers(1, 7))
    places = {NodeId(node): Location(draw(labels)) for node in range(nodes)}
    shards = [shard_id(NodeId(node), index) for node in range(nodes) for index in range(draw(st.integers(1, 2)))]
    nodeset = draw(st.lists(st.sampled_from(shards), min_size=1, max_size=8, unique=True))
    chosen = sorted(draw(st.lists(st.sampled_from(SCOPES), min_size=1, max_size=3, unique=True)), reverse=True)
    factors = sorted(draw(st.lists(st.integers(1, 4), min_size=len(chosen), max_size=len(chosen))))
    replication = ReplicationProperty.of(list(zip(chosen, factors, strict=True)))
    return Cluster(places, tuple(sorted(nodeset)), replication)


@st.composite
def clusters_and_subsets(draw: st.DrawFn) -> tuple[Cluster, frozenset[ShardId]]:
    cluster = draw(clusters())
    return cluster, draw(st.frozensets(st.sampled_from(cluster.nodeset)))


def domains_of(cluster: Cluster) -> FailureDomains:
    return FailureDomains.by_file(cluster.nodeset, cluster.replication, cluster.location)


def proves(result: FMajority) -> bool:
    return result in (FMajority.COMPLETE, FMajority.INCOMPLETE)


@given(clusters_and_subsets())
def test_an_f_majority_is_exactly_a_set_that_meets_every_copyset(case: tuple[Cluster, frozenset[ShardId]]) -> None:
    cluster, answered = case
    misses_one = any(True for _ in cluster.copysets(frozenset(cluster.nodeset) - answered))
    result = domains_of(cluster).f_majority(answered)
    if any(
        True for _ in cluster.copysets(frozenset(cluster.nodeset))
    ):  # otherwise scopes that cannot be satisfied prove nothing
        assert proves(result) == (not misses_one)
    assert (result is FMajority.COMPLETE) == (answered == frozenset(cluster.nodeset))


@given(clusters_and_subsets(), st.data())
def test_an_f_majority_meets_every_copyset_whatever_the_authority_of_shards(
    case: tuple[Cluster, frozenset[ShardId]], data: st.DataObject
) -> None:
    cluster, answered = case
    assume(any(True for _ in cluster.copysets(frozenset(cluster.nodeset))))
    domains = domains_of(cluster)
    authority = {shard: data.draw(st.sampled_from(Authority)) for shard in cluster.nodeset}
    for shard, value in authority.items():
        domains.set_authority(shard, value)
    lost = {shard for shard, value in authority.items() if value is Authority.UNDERREPLICATION}
    empty = {shard for shard, value in authority.items() if value is Authority.AUTHORITATIVE_EMPTY}
    silent = frozenset(cluster.nodeset) - empty - (answered - lost)
    met = not any(True for _ in cluster.copysets(silent))
    complete = silent <= lost
    expected = {
        (True, True): FMajority.COMPLETE,
        (True, False): FMajority.INCOMPLETE,
        (False, True): FMajority.NON_AUTHORITATIVE,
        (False, False): FMajority.NONE,
    }[met, complete]
    assert domains.f_majority(answered) is expected
    assert all(domains.authority(shard) is value for shard, value in authority.items())


@given(clusters_and_subsets(), st.data())
def test_more_answers_never_prove_less(case: tuple[Cluster, frozenset[ShardId]], data: st.DataObject) -> None:
    cluster, more = case
    less = data.draw(st.frozensets(st.sampled_from(sorted(more)))) if more else frozenset[ShardId]()
    domains = domains_of(cluster)
    if proves(domains.f_majority(less)):
        assert proves(domains.f_majority(more))
    if domains.can_replicate(less):
        assert domains.can_replicate(more)


@given(clusters_and_subsets(), st.data())
def test_nodes_of_unknown_location_never_make_an_f_majority(
    case: tuple[Cluster, frozenset[ShardId]], data: st.DataObject
) -> None:
    cluster, answered = case
    forgotten = data.draw(st.frozensets(st.sampled_from(sorted(cluster.places))))
    domains = FailureDomains.by_file(
        cluster.nodeset,
        cluster.replication,
        lambda shard: None if node_of(shard) in forgotten else cluster.location(shard),
    )
    if proves(domains.f_majority(answered)):
        assert proves(domains_of(cluster).f_majority(answered))


@given(clusters_and_subsets())
def test_shards_can_replicate_exactly_when_some_copyset_lies_within_them(
    case: tuple[Cluster, frozenset[ShardId]],
) -> None:
    cluster, shards = case
    exists = any(True for _ in cluster.copysets(shards))
    assert domains_of(cluster).can_replicate(shards) == exists
    assert domains_of(cluster).can_replicate(sorted(shards)) == exists


@given(st.data())
def test_a_nodeset_is_found_exactly_when_writable_shards_can_replicate_and_then_they_can_within_it(
    data: st.DataObject,
) -> None:
    case = data.draw(clusters())
    states = {int(node): data.draw(st.sampled_from(ShardState)) for node in case.places}
    config = cluster(
        {int(node): str(place) for node, place in case.places.items()},
        nodes={node: {"shard_state": state, "shards": 2} for node, state in states.items()},
    )
    size = data.draw(st.integers(0, 8))
    writable = {shard_id(NodeId(node)) for node, state in states.items() if state is ShardState.READ_WRITE}
    exists = any(True for _ in case.copysets(frozenset(writable)))
    try:
        nodeset = select_nodeset(
            LogId(data.draw(st.integers(1, 1000))), config, attributes(str(case.replication), nodeset_size=size)
        )
    except LogDeviceError:
        assert not exists
        return
    assert exists
    assert list(nodeset) == sorted(set(nodeset))
    assert len({node_of(shard) for shard in nodeset}) == len(nodeset)
    assert all(states[node_of(shard)] is not ShardState.DISABLED for shard in nodeset)
    assert any(True for _ in case.copysets(frozenset(nodeset) & frozenset(config.writable_shards())))
    assert len(nodeset) >= min(size, len(writable))


def selector_of(cluster: Cluster, data: st.DataObject) -> CopysetSelector:
    weights = {shard: data.draw(st.sampled_from([0.0, 0.1, 1.0, 50.0])) for shard in cluster.nodeset}
    local = data.draw(st.sampled_from([None, *cluster.places.values()]))
    return CopysetSelector(
        FailureDomains.by_file(cluster.nodeset, cluster.replication, cluster.location),
        weight=weights.__getitem__,
        is_near=None if local is None else lambda shard: cluster.location(shard) == local,
        rng=random.Random(data.draw(st.integers(0, 1000))),
    )


@given(clusters_and_subsets(), st.data())
def test_a_copyset_is_found_exactly_when_there_is_one_and_satisfies_the_property(
    case: tuple[Cluster, frozenset[ShardId]], data: st.DataObject
) -> None:
    cluster, available = case
    selector = selector_of(cluster, data)
    exists = any(True for _ in cluster.copysets(available))
    for _ in range(12):
        copyset = selector.pick(available.__contains__)
        assert (copyset is not None) == exists
        if copyset is not None:
            assert len(copyset) == len(set(copyset)) == cluster.replication.copies
            assert set(copyset) <= available
            assert cluster.satisfies(copyset)


@given(clusters_and_subsets(), st.data())
def test_augmenting_adds_as_few_shards_as_make_the_property_hold(
    case: tuple[Cluster, frozenset[ShardId]], data: st.DataObject
) -> None:
    cluster, available = case
    existing = data.draw(st.lists(st.sampled_from(cluster.nodeset), unique=True))
    whole = selector_of(cluster, data).replace(existing, available.__contains__)
    candidates = sorted(available - set(existing))
    needed = next(
        (
            count
            for count in range(len(candidates) + 1)
            if any(cluster.satisfies((*existing, *added)) for added in combinations(candidates, count))
        ),
        None,
    )
    if needed is None:
        assert whole is None
    else:
        assert whole is not None
        assert list(whole[: len(existing)]) == existing
        assert len(whole) == len(set(whole)) == len(existing) + needed
        assert set(whole[len(existing) :]) <= available
        assert cluster.satisfies(whole)
