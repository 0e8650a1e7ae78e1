"""Rows of the tables of the event log."""

from __future__ import annotations

from collections.abc import Iterator

from logdevice_py.core.ids import format_shard, shard_index_of
from logdevice_py.tables.rebuilding import LogRebuildingsRow, ShardRebuildingsRow
from server.node import Node


def shard_rebuildings_rows(node: Node) -> Iterator[ShardRebuildingsRow]:
    """Table `shard_rebuildings`."""
    if node.rebuilding is None:
        return
    state = node.rebuilding.set
    paces = node.rebuilding.paces()
    left = ", ".join(format_shard(donor) for donor in state.donors if state.awaits(donor))
    for shard, entry in sorted(state.shards.items()):
        yield ShardRebuildingsRow(
            rebuilding_shard=format_shard(shard),
            generation=entry.generation,
            mode=entry.mode.name,
            status=entry.status,
            authoritative_status=entry.authority.name,
            recoverable=int(entry.recoverable),
            since_version=entry.since,
            donors_left="" if entry.rebuilt else left,
            rate=0 if entry.rebuilt else sum(pace.rate for pace in paces),
            pace="" if entry.rebuilt else "; ".join(dict.fromkeys(pace.explain() for pace in paces)),
            source=entry.source,
            version=state.version,
        )


def log_rebuildings_rows(node: Node) -> Iterator[LogRebuildingsRow]:
    """Table `log_rebuildings`."""
    for shard, machines in ({} if node.storage is None else node.storage.shards).items():
        donor = machines.donor
        if donor is None:
            continue
        for log, each in sorted(donor.running.items()):
            yield LogRebuildingsRow(
                shard=shard_index_of(shard),
                log_id=log,
                round=donor.round,
                status=each.explain(),
                logs_left=donor.logs_left,
            )
        for log in donor.lacking_space:
            yield LogRebuildingsRow(
                shard=shard_index_of(shard),
                log_id=log,
                round=donor.round,
                status="waiting until shards have space",
                logs_left=donor.logs_left,
            )
