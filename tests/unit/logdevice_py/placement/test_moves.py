"""Edits of the cluster file that move nodes to other racks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.moves import check_moves


def cluster(racks: str, *, replicate: str = "rack:2", keepers: str = "", version: int = 1) -> ClusterConfig:
    """A node a letter, in the rack of that letter; metadata logs are kept by the nodes of `keepers`, or by all."""
    nodes = {
        NodeId(at): NodeConfig(
            node=NodeId(at), host="127.0.0.1", port=4000 + at, location=Location.parse(f"rack-{rack}")
        )
        for at, rack in enumerate(racks)
    }
    kept_by = tuple(shard_id(NodeId(int(at))) for at in keepers) or tuple(shard_id(node) for node in nodes)
    replication = ReplicationProperty.parse(replicate)
    return ClusterConfig(
        name="test",
        uuid=bytes(16),
        version=version,
        nodes=nodes,
        logs=LogTree.build(groups=[("/logs", 1, 9, {"replication": replication})]),
        metadata_log=MetadataLogConfig(kept_by, replication),
        epoch_store="memory:",
    )


def test_a_node_that_keeps_metadata_logs_stays_in_its_rack() -> None:
    with pytest.raises(LogDeviceError, match=r"N1 from .*rack-a to .*rack-b") as caught:
        check_moves(cluster("aabbc"), cluster("abbbc", version=2))
    assert caught.value.status is Status.INVALID_CONFIG
    assert "leave these nodes out of [metadata_log] nodeset" in caught.value.detail


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (cluster("aabbc"), cluster("xxbbc")),
        (cluster("aabbc"), cluster("aabbcc")),
        (cluster("aabbc"), cluster("aabb")),
        (cluster("aabbc", replicate="node:2"), cluster("abbbc", replicate="node:2")),
        (cluster("aabbc", keepers="024"), cluster("abbbc", keepers="024")),
        (cluster("aabbc"), cluster("abbbc", keepers="0234")),
    ],
    ids=["renamed", "added", "removed", "over nodes only", "keeps none", "keeps none any more"],
)
def test_other_edits_are_fine(before: ClusterConfig, after: ClusterConfig) -> None:
    check_moves(before, replace(after, version=2))


def test_two_racks_that_change_their_names_are_the_racks_that_they_were() -> None:
    check_moves(cluster("aabb"), cluster("bbaa"))
    with pytest.raises(LogDeviceError):
        check_moves(cluster("aabb"), cluster("abab"))
