"""Questions of BookKeeper's cases, in our terms: nodes have one shard each, and are told apart by their numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.policy import CopysetSource
from tests.unit.logdevice_py.placement.clusters import attributes
from tests.unit.logdevice_py.placement.test_policies import placed

DRAWS = 100


def shards(nodes: Iterable[int]) -> tuple[ShardId, ...]:
    return tuple(shard_id(NodeId(node)) for node in nodes)


def numbers(found: Iterable[ShardId]) -> list[int]:
    return [int(node_of(shard)) for shard in found]


def up(*nodes: int) -> Callable[[ShardId], bool]:
    """These nodes are available, all others are not."""
    return frozenset(shards(nodes)).__contains__


def everyone(shard: ShardId) -> bool:
    return True


@dataclass
class Chooser:
    """The copysets of one nodeset, for a sequencer that stands where a node does."""

    source: CopysetSource
    domains: FailureDomains

    def pick(self, available: Callable[[ShardId], bool] = everyone) -> frozenset[int] | None:
        chosen = self.source.pick(available)
        return None if chosen is None else frozenset(numbers(chosen))

    def drawn(self, available: Callable[[ShardId], bool] = everyone, draws: int = DRAWS) -> Counter[frozenset[int]]:
        """Copysets, and how often each was chosen."""
        found = Counter(self.pick(available) for _ in range(draws))
        assert found[None] == 0
        return Counter({nodes: count for nodes, count in found.items() if nodes is not None})

    def replaced(
        self, kept: Iterable[int], available: Callable[[ShardId], bool] = everyone, draws: int = DRAWS
    ) -> Counter[frozenset[int] | None]:
        """The nodes that copies were added on, and how often; None: the kept ones cannot be completed."""
        before = shards(kept)
        chosen = (self.source.replace(before, available) for _ in range(draws))
        return Counter(None if each is None else frozenset(numbers(each[len(before) :])) for each in chosen)

    def shares(self) -> dict[int, float]:
        """Of policies without wishes: how many copies of an entry each node gets on average."""
        assert isinstance(self.source, CopysetSelector)
        return {int(node_of(shard)): share for shard, share in self.source.shares().items()}

    def can_replicate(self, nodes: Iterable[int]) -> bool:
        return self.domains.can_replicate(shards(nodes))


def chooser(
    policy: str,
    places: Sequence[str],
    replicate: str,
    *,
    at: int = 0,
    nodes: Mapping[int, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> Chooser:
    """All nodes are in the nodeset."""
    config, placement = placed(policy, places, nodes, **settings)
    return chooser_of(config, placement, replicate, at=at)


def chooser_of(
    config: ClusterConfig,
    placement: ClusterPlacement,
    replicate: str,
    nodeset: Sequence[ShardId] | None = None,
    *,
    at: int = 0,
) -> Chooser:
    members = config.storage_shards() if nodeset is None else nodeset
    domains = FailureDomains.by_file(members, attributes(replicate).replication, config.location)
    here = config.nodes[NodeId(at)].location
    return Chooser(placement.copysets(domains, here, random.Random(5)), domains)


def capacities(*each: float) -> dict[int, dict[str, float]]:
    return {node: {"storage_capacity": capacity} for node, capacity in enumerate(each)}


def spread(places: Sequence[str], nodes: Iterable[int]) -> Counter[str]:
    """How many of the nodes stand at each place."""
    return Counter(places[node] for node in nodes)


def regions_of(places: Sequence[str], nodes: Iterable[int]) -> Counter[str]:
    return Counter(places[node].partition(".")[0] for node in nodes)


def only(*nodes: int) -> set[frozenset[int] | None]:
    """What `replaced` and `drawn` find when there is one way."""
    return {frozenset(nodes)}


def each_of(*nodes: int) -> set[frozenset[int] | None]:
    """What they find when any one of these nodes will do."""
    return {frozenset({node}) for node in nodes}
