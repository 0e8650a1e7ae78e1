"""Which shards store an epoch of a log: weighted consistent hashing per failure domain.

Deterministic in the log, the topology and the log's attributes, so that every node chooses the same, and stable: a node more or less
changes few nodesets, and those by few shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NODESET_SIZE_MAX, LogId, ShardId, data_log_of, node_of
from logdevice_py.core.marks import hit
from logdevice_py.placement.failure_domains import FailureDomains, domain_labels
from logdevice_py.placement.hashing import mix64, unit_interval
from logdevice_py.placement.topology import PlacedNode, Topology

_ANY_STATE_MAX: Final = 63
"""How many shards are chosen without regard to whether they are writable, so that room is left for writable ones."""
_SHARD_SALT: Final = 0x5A4D
_PRIORITY_SALT: Final = 0x0DE5E7


@dataclass(frozen=True, slots=True)
class NodesetSpread:
    """How a nodeset is spread over failure domains.

    Attributes:
        scopes: the scopes above NODE over which it is spread, large to small; at each, domains take turns.
        per_domain: how many shards each domain of the largest scope should have at least; without scopes, how many there should be.
        size: how many shards there should be at least.
    """

    scopes: tuple[Scope, ...]
    per_domain: int
    size: int

    @classmethod
    def of(cls, replication: ReplicationProperty, nodeset_size: int) -> NodesetSpread:
        """Over the scopes of a replication property.

        Each domain gets as many shards as one may have to take copies, and the nodeset so many that it survives what the copies allow.

        Args:
            nodeset_size: 0: all shards.
        """
        (biggest, factor), copies = replication.factors[0], replication.copies
        per_domain = copies if biggest is Scope.NODE else copies - factor + 1
        size = max(nodeset_size or NODESET_SIZE_MAX, 2 * copies - 1)
        return cls(tuple(scope for scope, _ in replication.factors if scope is not Scope.NODE), per_domain, size)


def select_nodeset(
    log: LogId, topology: Topology, replication: ReplicationProperty, spread: NodesetSpread
) -> tuple[ShardId, ...] | None:
    """The nodeset of new epochs of `log`, ascending; None when the writable shards cannot satisfy the replication property. One shard of a node at most.

    Read-only shards take part as if they were writable, then writable ones are added until there are enough of those alone: a shard that is
    read-only for a while changes no nodeset more than it must.
    """
    log = data_log_of(log)
    everything = _whole(topology, spread.size)
    if everything and _can_replicate(set(everything), topology, replication):
        return everything
    key = mix64(log)
    domains: dict[str, list[tuple[float, ShardId]]] = {}
    for node in topology.nodes:
        label = node.location.domain(spread.scopes[0], node.node) if spread.scopes else ""
        candidate = _candidate(key, node)
        if candidate[1] not in topology.excluded:
            domains.setdefault(label, []).append(candidate)
    domains = {label: _take_turns(candidates, spread.scopes[1:], topology) for label, candidates in domains.items()}
    picked: set[ShardId] = set()
    _pick(domains, picked, lambda _: True, spread, _ANY_STATE_MAX)
    _pick(domains, picked, topology.writable.__contains__, spread, NODESET_SIZE_MAX)
    if not _can_replicate(picked, topology, replication):
        _complete(domains, picked, topology, replication)
        if not _can_replicate(picked, topology, replication):
            return None
    return tuple(sorted(picked))


def _whole(topology: Topology, size: int) -> tuple[ShardId, ...]:
    """What every log gets where there are no more shards than are wanted: found quickly, for activations of many logs. Empty: each its own."""
    nodes = topology.nodes
    if len(nodes) > min(size, _ANY_STATE_MAX) or any(len(node.shards) != 1 for node in nodes):
        return ()
    return tuple(node.shards[0] for node in nodes if node.shards[0] not in topology.excluded)


def _can_replicate(picked: set[ShardId], topology: Topology, replication: ReplicationProperty) -> bool:
    writable = picked & topology.writable
    return FailureDomains.by_file(writable, replication, topology.location).can_replicate(writable)


def _candidate(key: int, node: PlacedNode) -> tuple[float, ShardId]:
    """The shard of a node that the log would use, with its priority: smallest first, small more often for big nodes."""
    shards = node.shards
    shard = shards[mix64(key ^ _SHARD_SALT) % len(shards)] if len(shards) > 1 else shards[0]
    hashed = mix64(mix64(key ^ _PRIORITY_SALT) ^ node.node)
    return -math.log(unit_interval(hashed)) / node.capacity, shard


def _take_turns(
    candidates: list[tuple[float, ShardId]], scopes: Sequence[Scope], topology: Topology
) -> list[tuple[float, ShardId]]:
    """Candidates in order of priority, but so that smaller domains take turns: the first n lie in as many of them as possible."""
    if not scopes:
        return sorted(candidates)
    groups: dict[str, list[tuple[float, ShardId]]] = {}
    for candidate in candidates:
        node = node_of(candidate[1])
        groups.setdefault(topology.locations[node].domain(scopes[0], node), []).append(candidate)
    turns = [turn for group in groups.values() for turn in enumerate(_take_turns(group, scopes[1:], topology))]
    return [candidate for _, candidate in sorted(turns)]


def _complete(
    domains: dict[str, list[tuple[float, ShardId]]],
    picked: set[ShardId],
    topology: Topology,
    replication: ReplicationProperty,
) -> None:
    """Add writable shards of domains that none is picked from, where the property needs them and counting alone did not see it."""
    writable = [shard for _, shard in sorted(chain(*domains.values())) if shard in topology.writable]
    labels = {shard: domain_labels(shard, replication, topology.location) for shard in writable}
    for level, (_, factor) in enumerate(replication.factors):
        touched = {labels[shard][level] for shard in writable if shard in picked}
        for shard in writable:
            if len(touched) >= factor or len(picked) >= NODESET_SIZE_MAX:
                break
            if labels[shard][level] not in touched:
                hit("nodeset_completed_domain_by_domain")
                touched.add(labels[shard][level])
                picked.add(shard)


def _pick(
    domains: dict[str, list[tuple[float, ShardId]]],
    picked: set[ShardId],
    counts: Callable[[ShardId], bool],
    spread: NodesetSpread,
    limit: int,
) -> None:
    """Add shards that count, each from the domain with the fewest of them so far, until there are enough in each domain and in all."""
    waiting: dict[str, list[tuple[float, ShardId]]] = {}
    have: dict[str, int] = {}
    for label, candidates in domains.items():
        counting = [candidate for candidate in candidates if counts(candidate[1])]
        have[label] = sum(candidate[1] in picked for candidate in counting)
        rest = [candidate for candidate in counting if candidate[1] not in picked]
        if rest:
            waiting[label] = rest[::-1]
    total = sum(have.values())
    while waiting and len(picked) < limit:
        label = min(waiting, key=lambda name: (have[name], waiting[name][-1]))
        if have[label] >= spread.per_domain and total >= spread.size:
            return
        picked.add(waiting[label].pop()[1])
        have[label] += 1
        total += 1
        if not waiting[label]:
            del waiting[label]
