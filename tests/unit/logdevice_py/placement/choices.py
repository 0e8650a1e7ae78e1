"""Choices of placement for a handful of clusters, as text that can be recorded and compared: ``python -m tests.unit.logdevice_py.placement.choices``
records them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from logdevice_py.config.cluster import ClusterConfig, ShardState
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogAttributes
from logdevice_py.core.ids import LogId, NodeId, ShardId, format_shard, node_of
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.failure_domains import FailureDomains
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

RECORDED: Final = Path(__file__).with_name("choices.txt")
LOGS: Final = 40
COPYSETS: Final = 60

_UNEVEN: Final = [rack for rack, nodes in (("a", 2), ("b", 7), ("c", 7), ("d", 8)) for _ in range(nodes)]
_REGIONS: Final = [f"{region}.d.c.r.{rack}" for region in ("us", "eu", "ap") for rack in "xyz" for _ in range(2)]


def cases() -> Iterator[tuple[str, ClusterConfig, LogAttributes]]:
    """Name, cluster and attributes of each case."""
    big = {node: {"storage_capacity": 4.0} for node in range(0, 24, 3)}
    yield "five nodes", cluster([""] * 5), attributes("node:3")
    yield "five nodes, small nodeset", cluster([""] * 5), attributes("node:2", nodeset_size=3)
    yield "forty nodes, nodeset of ten", cluster([""] * 40), attributes("node:3", nodeset_size=10)
    yield "seventy nodes, all", cluster([""] * 70), attributes("node:3", nodeset_size=70)
    yield "uneven racks", cluster(_UNEVEN), attributes("rack:2,node:3", nodeset_size=9)
    yield "uneven racks and capacities", cluster(_UNEVEN, nodes=big), attributes("rack:2,node:3", nodeset_size=12)
    yield "regions", cluster(_REGIONS), attributes("region:2,rack:3,node:4", nodeset_size=9)
    yield "regions, every shard", cluster(_REGIONS), attributes("region:3,node:5")
    yield (
        "read-only and disabled",
        cluster(_UNEVEN, nodes={3: {"shard_state": ShardState.READ_ONLY}, 12: {"shard_state": ShardState.DISABLED}}),
        attributes("rack:2,node:3", nodeset_size=8),
    )
    yield "several shards a node", cluster([""] * 8, nodes={n: {"shards": 3} for n in range(8)}), attributes("node:2")


def choices() -> Iterator[str]:
    """A line for each nodeset, and for the copysets of a log: the first ones, and a hash of all."""
    for name, config, wanted in cases():
        yield f"# {name}: {wanted.replication}"
        placement = ClusterPlacement(config)
        for log in range(1, LOGS + 1):
            nodeset = placement.select_nodeset(LogId(log), wanted)
            yield f"log {log} nodeset {' '.join(str(node_of(shard)) for shard in nodeset)}"
            if log <= 6:
                here = config.nodes[NodeId(log % 3)] if log % 2 else None
                yield f"log {log} copysets {_copysets(placement, config, wanted, nodeset, None if here is None else here.location)}"


def _copysets(
    placement: ClusterPlacement,
    config: ClusterConfig,
    wanted: LogAttributes,
    nodeset: tuple[ShardId, ...],
    near: Location | None,
) -> str:
    domains = FailureDomains.by_file(nodeset, wanted.replication, config.location)
    source = placement.copysets(domains, near, random.Random(len(nodeset)))
    drawn = []
    for turn in range(COPYSETS):
        away = nodeset[turn % len(nodeset)] if turn % 4 == 3 else None
        drawn.append(source.pick(lambda shard, away=away: shard != away))  # type: ignore[misc]
    kept = [copyset[:1] for copyset in drawn[:10] if copyset is not None]
    drawn += [source.replace(each, lambda shard: shard != nodeset[0]) for each in kept]
    told = ["-" if copyset is None else ",".join(map(format_shard, copyset)) for copyset in drawn]
    return f"{' '.join(told[:4])} {hashlib.sha256(' '.join(told).encode()).hexdigest()[:16]}"


if __name__ == "__main__":
    RECORDED.write_text("\n".join(choices()) + "\n")
