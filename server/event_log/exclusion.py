"""Which shards new epochs are to do without."""

from __future__ import annotations

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import EVENT_LOG_DELTAS, ShardId, node_of
from logdevice_py.core.marks import hit
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.placement.failure_domains import FailureDomains


def excluded_shards(config: ClusterConfig, state: RebuildingSet, view: ClusterView) -> frozenset[ShardId]:
    """Those that are lost or drained, until they come back with a later generation.

    Where the event log could not be written without them, the ones of living nodes take records all the same: they may be back, and can only say so
    there. So do drained ones: without them nobody could even say that they shall be used again. They are drained once more then.

    Args:
        config: the cluster file, of a cluster that keeps an event log.
    """
    listed = [shard for shard, entry in state.shards.items() if view.generation(shard) <= entry.generation]
    excluded = frozenset(listed)
    attributes = config.log(EVENT_LOG_DELTAS)
    if listed and attributes is not None:
        left = [shard for shard in config.writable_shards() if shard not in excluded and view.is_alive(node_of(shard))]
        if not FailureDomains.by_file(left, attributes.replication, config.location).can_replicate(left):
            excluded = frozenset(shard for shard in listed if not view.is_alive(node_of(shard)))
            if any(state.shards[shard].mode is RebuildMode.RELOCATE for shard in listed if shard not in excluded):
                hit("drained_shard_takes_records")
    return excluded
