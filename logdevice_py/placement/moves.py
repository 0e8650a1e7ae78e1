"""Which edits of a cluster file would make proofs wrong that go by it: nodes that keep metadata logs stay where they are."""

from __future__ import annotations

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import node_of
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.failure_domains import FailureDomains


def check_moves(before: ClusterConfig, after: ClusterConfig) -> None:
    """Refuse an edit that changes the failure domains of shards that keep metadata logs.

    Epochs of data logs have labels of their own, and do not care. A metadata log has none: an f-majority of its shards is judged by where the file says
    that they stand now, its copies are where they were stored. Renaming a rack as a whole changes nothing; neither does a move where metadata
    logs are replicated over nodes only.

    Args:
        before: the version in force.
        after: the version that is to follow it.

    Raises:
        LogDeviceError: INVALID_CONFIG, with the nodes that moved and what to do.
    """
    keep = sorted(set(before.metadata_log.nodeset) & set(after.metadata_log.nodeset))
    replication = after.metadata_log.replication
    was, becomes = (FailureDomains.by_file(keep, replication, each.location) for each in (before, after))
    if was.key == becomes.key:
        return
    nodes = dict.fromkeys(map(node_of, keep))
    moved = [
        f"N{node} from {before.nodes[node].location} to {after.nodes[node].location}"
        for node in nodes
        if before.nodes[node].location != after.nodes[node].location
    ]
    raise LogDeviceError(
        Status.INVALID_CONFIG,
        f"it moves nodes that keep metadata logs ({', '.join(moved)}): whether their copies are complete is judged by where the file says that nodes "
        "stand. Put the locations back; or leave these nodes out of [metadata_log] nodeset for good; or take them out and add the machines under numbers "
        "that were never used",
    )
