"""Compares the copies of entries that all nodes have, for table `under_replicated`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, format_shard, node_of, parse_shard, shard_id
from logdevice_py.placement.failure_domains import FailureDomains, labelled_scopes
from logdevice_py.tables.storage import UnderReplicatedRow

Row = Mapping[str, Any]


def compare_copies(
    config: ClusterConfig,
    log: LogId,
    records: Iterable[Row],
    metadata: Sequence[Row],
    states: Iterable[Row],
    silent: Collection[NodeId],
) -> list[UnderReplicatedRow]:
    """The entries with too few sound copies.

    Args:
        records: rows of table `record`, of all nodes that answered.
        metadata: rows of `historical_metadata` of the log.
        states: rows of `log_storage_state` of the log.
        silent: nodes that did not answer: what they have is not known.
    """
    trimmed = max((row["trim_point"] for row in states), default=0)
    by_lsn: dict[int, list[Row]] = defaultdict(list)
    for row in records:
        if row["lsn"] > trimmed:
            by_lsn[row["lsn"]].append(row)
    found = []
    for lsn in sorted(by_lsn):
        interval = interval_of(metadata, lsn >> 32)
        if interval is not None:
            lacking = _compare(config, log, lsn, by_lsn[lsn], interval, silent)
            if lacking is not None:
                found.append(lacking)
    return found


def interval_of(metadata: Sequence[Row], epoch: int) -> Row | None:
    """The last nodeset that began at the epoch or before; None: the log has none that is known."""
    began = [row for row in metadata if row["since"] is not None and row["since"] <= epoch]
    return max(began, key=lambda row: int(row["since"])) if began else None


def _suffice(config: ClusterConfig, stored: Sequence[ShardId], replication: ReplicationProperty, interval: Row) -> bool:
    """Whether copies on these shards are enough, and far enough apart, by the failure domains of the epoch."""
    if interval["failure_domains"] is None:
        return FailureDomains.by_file(stored, replication, config.location).can_replicate(stored)
    return domains_of(config, interval).can_replicate(stored)


def listed_shards(interval: Row) -> list[tuple[ShardId, Generation]]:
    """The nodeset of a row of `historical_metadata`, and which generation of each shard it lists; 0: none is said."""
    listed = [text.partition("=") for text in interval["storage_set"].split(", ")]
    return [(parse_shard(name), Generation(int(generation or 0))) for name, _, generation in listed]


def domains_of(config: ClusterConfig, interval: Row) -> FailureDomains:
    """The failure domains of a row of `historical_metadata`.

    Args:
        config: says where nodes stand, for epochs of a version that kept no labels.
    """
    listed = [shard for shard, _ in listed_shards(interval)]
    replication = ReplicationProperty.parse(interval["replication"])
    if interval["failure_domains"] is None:
        return FailureDomains.by_file(listed, replication, config.location)
    domain_of = {
        (scope, parse_shard(text)): number
        for part in interval["failure_domains"].split(", ")
        for scope, _, domains in [part.partition("=")]
        for number, domain in enumerate(domains.split("|"))
        for text in domain.split()
    }
    scopes = [scope.name.lower() for scope in labelled_scopes(replication)]
    labels = tuple(tuple(domain_of[scope, shard] for shard in sorted(listed)) for scope in scopes)
    return FailureDomains(listed, replication, labels)


def _compare(
    config: ClusterConfig,
    log: LogId,
    lsn: int,
    copies: Sequence[Row],
    interval: Row,
    silent: Collection[NodeId],
) -> UnderReplicatedRow | None:
    """What recovery stored replaces all that sequencers stored; waves of a sequencer have the same content."""
    sound = [row for row in copies if row["status"] == "OK" and row["is_current"]]
    damaged = {_shard(row) for row in copies if row["status"] != "OK"}
    recovered = [row for row in sound if row["recovery_epoch"] is not None]
    counted = recovered or sound
    stored = sorted({_shard(row) for row in counted})
    replication = ReplicationProperty.parse(interval["replication"])
    if stored and _suffice(config, stored, replication, interval):
        return None
    best = max(counted, key=lambda row: int(row["recovery_epoch"] or row["wave"] or 0), default=None)
    copyset = [] if best is None else [parse_shard(text) for text in best["copyset"].split(", ")]
    others = [shard for shard in copyset if shard not in stored and shard not in damaged]
    return UnderReplicatedRow(
        log_id=log,
        lsn=lsn,
        replication=str(replication),
        copyset=_list(copyset),
        copies=len(stored),
        stored_on=_list(stored),
        missing_on=_list(shard for shard in others if node_of(shard) not in silent),
        damaged_on=_list(sorted(damaged)),
        unknown_on=_list(shard for shard in others if node_of(shard) in silent),
    )


def _shard(row: Row) -> ShardId:
    return shard_id(NodeId(row["node_id"]), row["shard"])


def _list(shards: Iterable[ShardId]) -> str:
    return ", ".join(map(format_shard, shards))
