"""Clusters for the tests of placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig, default_metadata_nodeset
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogAttributes, LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.placement.cluster_placement import ClusterPlacement


def attributes(replicate: str, **overrides: Any) -> LogAttributes:
    return LogAttributes(path="/log", replication=ReplicationProperty.parse(replicate), **overrides)


def cluster(
    places: Sequence[str] | Mapping[int, str],
    *,
    replicate: str = "node:1",
    nodes: Mapping[int, Mapping[str, Any]] | None = None,
    **log: Any,
) -> ClusterConfig:
    """Nodes at `places`; `nodes` overrides what a node is, `log` the attributes of the only log group, 1 to 100,000."""
    located = places if isinstance(places, Mapping) else dict(enumerate(places))
    configs = {}
    for index, place in located.items():
        fields: dict[str, Any] = {"host": f"h{index}", "port": 1, "location": Location.parse(place)}
        configs[NodeId(index)] = NodeConfig(node=NodeId(index), **{**fields, **(nodes or {}).get(index, {})})
    replication = ReplicationProperty.parse(replicate)
    return ClusterConfig(
        name="test",
        uuid=bytes(16),
        version=1,
        nodes=configs,
        logs=LogTree.build(groups=[("/log", 1, 100_000, {"replication": replication, **log})]),
        metadata_log=MetadataLogConfig(default_metadata_nodeset(configs), replication),
        epoch_store="memory:",
    )


def select_nodeset(log: LogId, config: ClusterConfig, wanted: LogAttributes) -> tuple[ShardId, ...]:
    """The nodeset that nodes with this cluster file give new epochs of the log."""
    return ClusterPlacement(config).select_nodeset(log, wanted)
