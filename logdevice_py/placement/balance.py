"""How often a node is in a nodeset, so that those that seldom are get more copies where they are: load then follows capacity.

Nodesets take as many shards from small domains as from large ones, and one that is in every nodeset would get far more than its share of the records
if copysets went by capacity alone. The weight of a shard in copysets is therefore its capacity divided by the probability that a nodeset has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from logdevice_py.config.location import Scope
from logdevice_py.core.ids import NodeId
from logdevice_py.placement.nodeset import NodesetSpread
from logdevice_py.placement.topology import PlacedNode, Topology

_STEPS: Final = 60
"""Of the search for a time: each halves the interval."""


def copyset_weights(topology: Topology, spread: NodesetSpread) -> Mapping[NodeId, float]:
    """The weight in copysets of a shard of each writable node, for nodesets that `select_nodeset` spreads so."""
    nodes = [node for node in topology.nodes if topology.writable.intersection(node.shards)]
    chances = inclusion(nodes, spread)
    return {
        node.node: node.capacity * len(node.shards) / chance
        for node, chance in zip(nodes, chances, strict=True)
        if chance > 0
    }


def inclusion(nodes: Sequence[PlacedNode], spread: NodesetSpread) -> list[float]:
    """For each node the probability, over all logs, that a nodeset has a shard of it: what `select_nodeset` does, on average."""
    if not nodes:
        return []
    if not spread.scopes:
        return _first(nodes, (), min(len(nodes), max(spread.size, spread.per_domain)))
    groups = _groups(nodes, spread.scopes[0])
    sizes = [len(group) for group in groups]
    level = spread.per_domain
    while sum(min(size, level + 1) for size in sizes) <= spread.size and level < max(sizes):
        level += 1
    remainder = max(0, spread.size - sum(min(size, level) for size in sizes))
    return _of_groups(nodes, groups, spread.scopes[1:], level, remainder)


def _first(nodes: Sequence[PlacedNode], scopes: Sequence[Scope], count: int) -> list[float]:
    """The probability of each to be among the first so many of a domain, where smaller domains take turns."""
    if count >= len(nodes):
        return [1.0] * len(nodes)
    if not scopes:
        return _race([node.capacity for node in nodes], count)
    groups = _groups(nodes, scopes[0])
    level = 0
    while sum(min(len(group), level + 1) for group in groups) <= count:
        level += 1
    remainder = count - sum(min(len(group), level) for group in groups)
    return _of_groups(nodes, groups, scopes[1:], level, remainder)


def _of_groups(
    nodes: Sequence[PlacedNode],
    groups: Sequence[Sequence[PlacedNode]],
    scopes: Sequence[Scope],
    level: int,
    remainder: int,
) -> list[float]:
    """Each group gives `level` nodes; of those that have more, `remainder` give another one, those with the greater capacity more often."""
    larger = [group for group in groups if len(group) > level]
    one_more = iter(_race([sum(node.capacity for node in group) for group in larger], remainder))
    found: dict[NodeId, float] = {}
    for group in groups:
        chances = _first(group, scopes, level)
        if len(group) > level:
            chance = next(one_more)
            more = _first(group, scopes, level + 1)
            chances = [(1 - chance) * less + chance * greater for less, greater in zip(chances, more, strict=True)]
        found.update(zip([node.node for node in group], chances, strict=True))
    return [found[node.node] for node in nodes]


def _race(rates: Sequence[float], count: int) -> list[float]:
    """The probability of each to be among the first `count` when times are exponentially distributed with these rates: that it comes before the
    time by which `count` have come on average."""
    if count <= 0:
        return [0.0] * len(rates)
    if count >= len(rates):
        return [1.0] * len(rates)
    low, high = 0.0, 1.0
    while sum(-math.expm1(-rate * high) for rate in rates) < count:
        high *= 2
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if sum(-math.expm1(-rate * middle) for rate in rates) < count:
            low = middle
        else:
            high = middle
    return [-math.expm1(-rate * high) for rate in rates]


def _groups(nodes: Sequence[PlacedNode], scope: Scope) -> list[list[PlacedNode]]:
    groups: dict[str, list[PlacedNode]] = {}
    for node in nodes:
        groups.setdefault(node.location.domain(scope, node.node), []).append(node)
    return list(groups.values())
