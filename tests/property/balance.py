"""``python -m tests.property.balance``: how load follows capacity in clusters of 3 to 60 nodes, in racks of all sizes, with nodesets of 8 to 20.

Over choices alone: nodesets of many logs as nodes choose them, and the shares of the shards in the copysets of each. A node's share is compared with the one
that it would get if every nodeset had all shards, which is by capacity as far as the replication property lets it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from logdevice_py.core.ids import LogId, NodeId, node_of
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.copyset import CopysetSelector
from logdevice_py.placement.failure_domains import FailureDomains
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

NODES_OF_RACKS: Final = (("a", 2), ("b", 7), ("c", 7), ("d", 8))
LEAST, MOST = 0.85, 1.15


def even(nodes: int) -> list[float]:
    """Capacities 4 and 1 in turn."""
    return [4.0 if node % 2 else 1.0 for node in range(nodes)]


def ratios(places: Sequence[str], capacities: Sequence[float], replicate: str, size: int, logs: int) -> list[float]:
    """What each node stores, divided by its share."""
    config = cluster(places, nodes={node: {"storage_capacity": capacity} for node, capacity in enumerate(capacities)})
    placement, wanted, rng = ClusterPlacement(config), attributes(replicate, nodeset_size=size), random.Random(4)
    load: Counter[NodeId] = Counter()
    for log in range(1, logs + 1):
        nodeset = placement.select_nodeset(LogId(log), wanted)
        source = placement.copysets(FailureDomains.by_file(nodeset, wanted.replication, config.location), None, rng)
        assert isinstance(source, CopysetSelector)
        for shard, share in source.shares().items():
            load[node_of(shard)] += share  # type: ignore[assignment]
    everything = FailureDomains.by_file(config.storage_shards(), wanted.replication, config.location)
    shares = CopysetSelector(everything, weight=config.storage_capacity, rng=rng).shares()
    return [load[node_of(shard)] / (logs * share) for shard, share in sorted(shares.items())]


def cases(nodes_max: int) -> Iterator[tuple[str, Sequence[str], Sequence[float], str]]:
    """Name, places, capacities and property of each cluster."""
    racks = [rack for rack, nodes in NODES_OF_RACKS for _ in range(nodes)]
    for name, capacities in (("equal", [1.0] * 24), ("4 and 1", even(24)), ("large racks", [1.0] * 9 + [4.0] * 15)):
        for replicate in ("node:3", "rack:2,node:3", "rack:3,node:3"):
            yield f"racks of 2/7/7/8, {name}", racks, capacities, replicate
    for nodes in (3, 4, 5, 7, 10, 15, 24, 40, 60):
        if nodes <= nodes_max:
            yield f"{nodes} nodes", [""] * nodes, even(nodes), "node:3" if nodes > 3 else "node:2"


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Measure how load follows capacity, over choices alone.")
    parser.add_argument(
        "--logs", type=int, default=6_000, help="logs in each cluster of up to 24 nodes; more in larger ones"
    )
    parser.add_argument("--nodes", type=int, default=60, help="largest cluster without racks")
    args = parser.parse_args()
    worst = [1.0, 1.0]
    for name, places, capacities, replicate in cases(args.nodes):
        for size in (8, 10, 13, 16, 20):
            found = ratios(places, capacities, replicate, size, args.logs * max(24, len(places)) // 24)
            worst = [min(worst[0], *found), max(worst[1], *found)]
            print(f"{name}, {replicate}, nodesets of {size}: {min(found):.3f} to {max(found):.3f}", flush=True)
    print(f"all: {worst[0]:.3f} to {worst[1]:.3f}")
    return 0 if worst[0] >= LEAST and worst[1] <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
