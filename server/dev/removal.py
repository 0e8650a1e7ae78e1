"""Whether a node may be taken out of the cluster file: what its shards hold has no other copy, or could have been stored elsewhere first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from client.admin_access import AdminAccess
from client.node_tables import NodeAsker, as_dicts
from epoch_store.interface import ReadMetadata, Result, WriterIdentity
from epoch_store.opening import open_epoch_store
from epoch_store.zookeeper_access import zookeeper_access_of_tool
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from server.lost_copies import LossyEpochs, ShardsPresent, lossy_epochs
from server.node_settings import NodeSettings

_LOGS_AT_A_TIME: Final = 256
_WITHOUT: Final = "--without-drain takes it out all the same"


async def what_would_be_lost(
    config: ClusterConfig, node: NodeId, running: Collection[NodeId], *, access: AdminAccess, timeout: float
) -> str | None:
    """Why the node had better stay for now, and what to do about it; None: it may go.

    With rebuilding its shards can be drained first. Without, nobody stores elsewhere what they hold, so the node may go as long as each record has a copy on
    a node that stays. That is judged by the nodesets of logs: of what is trimmed it is not known.

    Args:
        access: to the admin API.

    Raises:
        LogDeviceError: it cannot be found out.
    """
    if not config.nodes[node].shard_ids():
        return None
    if NodeSettings.of(config.settings).rebuilding.enabled:
        return await _undrained(config, node, running, access, timeout)
    async with asyncio.timeout(timeout):
        return await _without_other_copy(config, node, access.cluster_file or Path())


async def _undrained(
    config: ClusterConfig, node: NodeId, running: Collection[NodeId], access: AdminAccess, timeout: float
) -> str | None:
    nodes = sorted(each for each in running if admin_endpoint(config, config.nodes[each]) is not None)
    table, asker = TABLES["shard_rebuildings"], NodeAsker(config, access)
    try:
        answers, failures = await asker.ask_each(table, nodes, EVERYTHING, None, timeout)
    finally:
        await asker.close()
    if len(failures) == len(nodes):
        raise LogDeviceError(
            Status.TIMEDOUT, f"nobody tells which shards are drained ({', '.join(map(str, failures))})"
        )
    rows = list(as_dicts(table, answers))
    newest = max((row["version"] for row in rows), default=0)
    status = {
        row["rebuilding_shard"]: str(row["status"])
        for row in rows
        if row["version"] == newest and row["mode"] == RebuildMode.RELOCATE.name
    }
    left = [shard for shard in map(format_shard, config.nodes[node].shard_ids()) if status.get(shard) != "rebuilt"]
    if not left:
        return None
    told = ", ".join(f"{shard} ({status.get(shard, 'not drained')})" for shard in left)
    commands = "; ".join(f"ldctl drain {shard} --wait" for shard in left)
    return f"it holds copies that are not stored elsewhere: {told}. Empty it first ({commands}); {_WITHOUT}"


async def _without_other_copy(config: ClusterConfig, node: NodeId, cluster_file: Path) -> str | None:
    found: list[tuple[LogId, LossyEpochs]] = []
    going = set(config.nodes[node].shard_ids())
    staying = [shard for shard in config.storage_shards() if shard not in going]
    async for log, metadata in _all_metadata(config, cluster_file):
        # A shard that has begun anew is in a nodeset with its present generation as soon as the log has another epoch.
        latest = {shard: each for interval in metadata.history for shard, each in sorted(interval.nodeset)}
        present = ShardsPresent(tuple((shard, latest.get(shard, Generation(0))) for shard in staying))
        found += [
            (log, each)
            for each in lossy_epochs(metadata, present, config.location)
            if each.may_be_gone and any(shard in going for shard, _ in each.lost)
        ]
    if not found:
        return None
    log, each = found[0]
    return (
        f"records of {len({log for log, _ in found})} logs may have all their copies on shards that are gone then, unless they are trimmed: "
        f"for example of log {log}, epochs {each.since} to {each.until}, on {', '.join(format_shard(s) for s, _ in each.lost)}. "
        f"Rebuilding is off, so nobody stores them elsewhere first; {_WITHOUT}"
    )


async def _all_metadata(config: ClusterConfig, cluster_file: Path) -> AsyncIterator[tuple[LogId, EpochMetaData]]:
    loop = asyncio.get_running_loop()
    store = open_epoch_store(
        config.epoch_store,
        config.name,
        WriterIdentity(NodeId(-1), InstanceId(time.time_ns())),
        loop,
        hosts=[each.host for each in config.nodes.values()],
        access=zookeeper_access_of_tool(cluster_file, config),
    )
    try:
        logs = config.logs.ids()
        while group := list(islice(logs, _LOGS_AT_A_TIME)):
            answer: asyncio.Future[list[Result]] = loop.create_future()
            store.submit([ReadMetadata(log) for log in group], partial(_resolve, answer))
            for log, result in zip(group, await answer, strict=True):
                if result.status not in (Status.OK, Status.EMPTY):
                    raise LogDeviceError(result.status, f"the epoch store does not tell of log {log}")
                if isinstance(result.value, EpochMetaData):
                    yield log, result.value
    finally:
        store.close()


def _resolve(answer: asyncio.Future[list[Result]], results: list[Result]) -> None:
    if not answer.done():
        answer.set_result(results)
