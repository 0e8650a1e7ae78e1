"""Which node sequences a log: weighted consistent hashing, the same answer on every node and client with the same view."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId, data_log_of
from logdevice_py.core.marks import hit
from logdevice_py.placement.hashing import jump_hash, mix64, unit_interval

_TRIES: Final = 16
"""After these few nodes may sequence, or few of them have weight, and looking at each costs less than going on."""
_WEIGHT_SALT: Final = 0x5E90E4CE8A11C0DE


def locate_sequencer(log: LogId, config: ClusterConfig, may_sequence: Callable[[NodeId], bool]) -> NodeId | None:
    """The node that sequences `log` among those for which `may_sequence`; None when there is none.

    A metadata log is sequenced where its data log is. When a node falls out, only its own logs move. The places of the log's sequencer affinity
    come first, in their order; if no node there may, all others do.
    """
    log = data_log_of(log)
    attributes = config.log(log)
    if attributes is not None and attributes.sequencer_affinity.ordered:
        for area in attributes.sequencer_affinity.ordered:
            # Few of the nodes may be near, so trying all of them at random would mostly fail.
            node = _by_priority(log, config.sequencer_weights, config.sequencer_nodes_within(area), may_sequence)
            if node is not None:
                return node
        hit("sequencer_affinity_not_met")
    return _locate(log, config, may_sequence)


def _locate(log: LogId, config: ClusterConfig, may_sequence: Callable[[NodeId], bool]) -> NodeId | None:
    """Try a sequence of nodes that depends on the log alone, and take each with the probability of its weight."""
    weights = config.sequencer_weights
    if not weights:
        return None
    nodes = len(weights)
    key = mix64(log)
    for _ in range(_TRIES):
        node = NodeId(jump_hash(key, nodes))
        weight = weights[node]
        # Weights are compared with a hash of their own: the bits that chose the node say nothing about whether to take it.
        if weight > 0 and (weight >= 1 or unit_interval(mix64(key ^ _WEIGHT_SALT)) <= weight) and may_sequence(node):
            return node
        key = mix64(key)
    hit("sequencer_located_by_priority")
    return _by_priority(log, weights, config.sequencer_nodes(), may_sequence)


def _by_priority(
    log: LogId, weights: Sequence[float], nodes: Sequence[NodeId], may_sequence: Callable[[NodeId], bool]
) -> NodeId | None:
    """Rendezvous hashing: as balanced and as stable, but its cost grows with the number of nodes."""
    key = mix64(log)
    best: tuple[float, NodeId] | None = None
    for node in nodes:
        weight = weights[node]
        if weight > 0 and may_sequence(node):
            priority = -math.log(unit_interval(mix64(key ^ mix64(node)))) / weight
            if best is None or (priority, node) < best:
                best = (priority, node)
    return None if best is None else best[1]
