"""Which shards store an epoch of a log: weighted consistent hashing per failure domain.

Deterministic in the log, the cluster file and the log's attributes, so that every node chooses the same, and stable: a node more or less
changes few nodesets, and those by few shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

from logdevice_py.config.cluster import ClusterConfig, NodeConfig
from logdevice_py.config.location import Scope
from logdevice_py.config.logs import LogAttributes
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NODESET_SIZE_MAX, LogId, ShardId, data_log_of, node_of, shard_id
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.failure_domains import FailureDomains, domain_labels
from logdevice_py.placement.hashing import mix64, unit_interval

_ANY_STATE_MAX: Final = 63
"""How many shards are chosen without regard to whether they are writable, so that room is left for writable ones."""
_SHARD_SALT: Final = 0x5A4D
_PRIORITY_SALT: Final = 0x0DE5E7


def select_nodeset(log: LogId, config: ClusterConfig, attributes: LogAttributes) -> tuple[ShardId, ...]:
    """The nodeset of new epochs of `log`, ascending. One shard of a node at most.

    Read-only shards take part as if they were writable, then writable ones are added until there are enough of those alone: a shard that is
    read-only for a while changes no nodeset more than it must.

    Raises:
        LogDeviceError: INVALID_CONFIG when the writable shards cannot satisfy the replication property.
    """
    log = data_log_of(log)
    replication = attributes.replication
    biggest, smallest_count = replication.factors[0][0], replication.factors[-1][1]
    per_domain = smallest_count if biggest is Scope.NODE else smallest_count - replication.factors[0][1] + 1
    target = max(attributes.nodeset_size or NODESET_SIZE_MAX, 2 * smallest_count - 1)
    everything = _whole(config, target)
    if everything and _can_replicate(set(everything), config, replication):
        return everything
    inner = [scope for scope, _ in replication.factors[1:] if scope is not Scope.NODE]
    key = mix64(log)
    domains: dict[str, list[tuple[float, ShardId]]] = {}
    for node in config.enabled_storage_nodes:
        label = "" if biggest is Scope.NODE else node.location.domain(biggest, node.node)
        candidate = _candidate(key, node)
        if candidate[1] not in config.excluded:
            domains.setdefault(label, []).append(candidate)
    domains = {label: _spread(candidates, inner, config) for label, candidates in domains.items()}
    picked: set[ShardId] = set()
    _pick(domains, picked, lambda _: True, per_domain, target, _ANY_STATE_MAX)
    _pick(domains, picked, config.is_writable, per_domain, target, NODESET_SIZE_MAX)
    if not _can_replicate(picked, config, replication):
        _complete(domains, picked, config, replication)
        if not _can_replicate(picked, config, replication):
            raise LogDeviceError(
                Status.INVALID_CONFIG,
                f"{attributes.path}: the {len(picked.intersection(config.writable_shards()))} writable shards that can be "
                f'chosen do not satisfy "{replication}"; make more storage nodes read-write, or lower the replication property',
            )
    return tuple(sorted(picked))


def _whole(config: ClusterConfig, target: int) -> tuple[ShardId, ...]:
    """What every log gets where there are no more shards than are wanted: found quickly, for activations of many logs. Empty: each its own."""
    nodes = config.enabled_storage_nodes
    if len(nodes) > min(target, _ANY_STATE_MAX) or any(node.shards != 1 for node in nodes):
        return ()
    return tuple(shard for node in nodes if (shard := shard_id(node.node)) not in config.excluded)


def _can_replicate(picked: set[ShardId], config: ClusterConfig, replication: ReplicationProperty) -> bool:
    writable = [shard for shard in picked if config.is_writable(shard)]
    return FailureDomains.by_file(writable, replication, config.location).can_replicate(writable)


def _candidate(key: int, node: NodeConfig) -> tuple[float, ShardId]:
    """The shard of a node that the log would use, with its priority: smallest first, small more often for big nodes."""
    shard = shard_id(node.node, mix64(key ^ _SHARD_SALT) % node.shards if node.shards > 1 else 0)
    hashed = mix64(mix64(key ^ _PRIORITY_SALT) ^ node.node)
    return -math.log(unit_interval(hashed)) / node.storage_capacity, shard


def _spread(
    candidates: list[tuple[float, ShardId]], scopes: Sequence[Scope], config: ClusterConfig
) -> list[tuple[float, ShardId]]:
    """Candidates in order of priority, but so that smaller domains take turns: the first n lie in as many of them as possible."""
    if not scopes:
        return sorted(candidates)
    groups: dict[str, list[tuple[float, ShardId]]] = {}
    for candidate in candidates:
        node = node_of(candidate[1])
        groups.setdefault(config.nodes[node].location.domain(scopes[0], node), []).append(candidate)
    turns = [turn for group in groups.values() for turn in enumerate(_spread(group, scopes[1:], config))]
    return [candidate for _, candidate in sorted(turns)]


def _complete(
    domains: dict[str, list[tuple[float, ShardId]]],
    picked: set[ShardId],
    config: ClusterConfig,
    replication: ReplicationProperty,
) -> None:
    """Add writable shards of domains that none is picked from, where the property needs them and counting alone did not see it."""
    writable = [shard for _, shard in sorted(chain(*domains.values())) if config.is_writable(shard)]
    labels = {shard: domain_labels(shard, replication, config.location) for shard in writable}
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
    per_domain: int,
    target: int,
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
        if have[label] >= per_domain and total >= target:
            return
        picked.add(waiting[label].pop()[1])
        have[label] += 1
        total += 1
        if not waiting[label]:
            del waiting[label]
