"""What ``ldctl status`` says of shards that are lost, drained, or started a new generation; the nodes told it from memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, shard_id
from logdevice_py.core.some_names import name_some
from logdevice_py.event_log.changes import named, standing
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.placement.failure_domains import Authority, FailureDomains, FMajority, domain_labels

_PATHS_TOLD: Final = 3


def unfinished(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Shards that are not rebuilt, or not as they should be, and what is the matter with each.

    Args:
        rows: of table `shard_rebuildings`, of any nodes. Those of the node that is ahead count.
    """
    rows = list(rows)
    newest = max((row["version"] for row in rows), default=0)
    return {
        row["rebuilding_shard"]: _told(row) for row in rows if row["version"] == newest and row["status"] != "rebuilt"
    }


def uncertain(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Shards of which the rebuilding ended uncertain: so many were lost together that some record may have had all its copies there.

    Args:
        rows: as of `unfinished`.
    """
    return {row["rebuilding_shard"] for row in rows if row["status"] == "uncertain"}


def drains(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Shards that are being emptied as somebody asked: nothing is lost.

    Args:
        rows: as of `unfinished`.
    """
    return {
        row["rebuilding_shard"]
        for row in rows
        if row["mode"] == RebuildMode.RELOCATE.name and row["status"] == "rebuilding"
    }


def rebuilt(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Shards that were lost and of which the others have everything, and up to which generation.

    Args:
        rows: as of `unfinished`.
    """
    rows = list(rows)
    newest = max((row["version"] for row in rows), default=0)
    return {
        row["rebuilding_shard"]: row["generation"]
        for row in rows
        if row["version"] == newest and row["mode"] == RebuildMode.RESTORE.name and row["status"] == "rebuilt"
    }


def _told(row: Mapping[str, Any]) -> str:
    text = standing(RebuildMode[row["mode"]], row["status"])
    if row["status"] != "rebuilding":
        return f"{text}; its silence counts as {row['authoritative_status']}"
    left = row["donors_left"]
    return f"{text}; waits for {left}" if left else text


def without_a_place(config: ClusterConfig, lost: Collection[ShardId]) -> list[str]:
    """Groups of logs whose copies nothing restores while these shards are away, since too few others are left to hold so many, and what would help."""
    left = [shard for shard in config.writable_shards() if shard not in lost]
    paths: dict[ReplicationProperty, list[str]] = defaultdict(list)
    for group in config.groups():
        paths[group.attributes.replication].append(group.path)
    told = []
    for replication, of_property in paths.items():
        if not lost or FailureDomains.by_file(left, replication, config.location).can_replicate(left):
            continue
        places = {shard: domain_labels(shard, replication, config.location) for shard in left}
        counts = [
            f"{factor} {scope.name.lower()}{'s' * (factor != 1)} are needed and {have} {'is' if have == 1 else 'are'} left"
            for level, (scope, factor) in enumerate(replication.factors)
            if (have := len({labels[level] for labels in places.values()})) < factor
        ]
        told.append(
            f'{name_some(of_property, _PATHS_TOLD)}: "{replication}" cannot be restored without {named(sorted(lost))}: {", ".join(counts)}. '
            "Bring the node back, add a storage node, or lower replicate"
        )
    return told


def lacking_metadata(rows: Iterable[Mapping[str, Any]]) -> set[ShardId]:
    """Shards in a new generation that are not authoritative for what they held of metadata logs, until they have got it back.

    Args:
        rows: of table `shards`.
    """
    return {shard_id(NodeId(row["node_id"]), row["shard"]) for row in rows if row["metadata_awaited"] is not None}


def without_authority(config: ClusterConfig, lacking: Collection[ShardId]) -> tuple[list[ShardId], str]:
    """Shards that are not authoritative for metadata logs, when no more than those may be silent, and what follows from that. Empty: others may be away,
    or there are no such shards."""
    kept_by = config.metadata_log
    lost = [shard for shard in kept_by.nodeset if shard in lacking]
    domains = FailureDomains.by_file(kept_by.nodeset, kept_by.replication, config.location)
    for shard in lost:
        domains.set_authority(shard, Authority.UNDERREPLICATION)
    awaited = [
        shard
        for shard in kept_by.nodeset
        if shard not in lost
        and domains.f_majority([other for other in kept_by.nodeset if other != shard]) is FMajority.NONE
    ]
    if not lost or not awaited:
        return [], ""
    return lost, (
        "started a new generation and has not got back yet what it held of metadata logs: that, and who has to read one (readers, the event log, rebuilding), "
        f"waits while one of these is away: {named(awaited, 'others')}"
    )
