"""Waits until a cluster takes appends, and does so with all its nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from client.admin_access import AdminAccess
from client.client import Client
from client.node_tables import NodeAsker, as_dicts
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING

_CONCURRENT: Final = 200
_PAUSE: Final = 0.05
"""Seconds between two looks."""


async def wait_until_acquainted(
    config: ClusterConfig, running: Callable[[], Collection[NodeId]], *, timeout: float, access: AdminAccess
) -> None:
    """Return when each running node has heard of the shards of all running ones: epochs that begin from then on have them in their nodesets.
    An epoch that begins earlier does without those that are slow to start, and its recovery may need each of the few that it has. Nodes
    without an admin API are not asked.

    Args:
        access: to the admin API.

    Raises:
        LogDeviceError: TIMEDOUT, naming a node that has not heard of another one.
    """
    asker, end = NodeAsker(config, access), time.monotonic() + timeout
    try:
        while True:
            nodes = sorted(node for node in running() if admin_endpoint(config, config.nodes[node]) is not None)
            stranger = await _stranger(asker, nodes, min(5.0, timeout))
            if stranger is None:
                return
            if time.monotonic() > end:
                raise LogDeviceError(Status.TIMEDOUT, f"{stranger} after {timeout:.0f} s")
            await asyncio.sleep(_PAUSE)
    finally:
        await asker.close()


async def _stranger(asker: NodeAsker, nodes: list[NodeId], seconds: float) -> str | None:
    """Who has not heard of whom; None: everybody of everybody."""
    table = TABLES["cluster_state"]
    rows, failures = await asker.ask_each(table, nodes, EVERYTHING, None, seconds)
    if failures:
        return str(failures[0])
    heard = {
        (row["node_id"], row["observed_node_id"])
        for row in as_dicts(table, rows)
        if row["state"] == "ALIVE" and "?" not in str(row["generations"])
    }
    for node in nodes:
        for other in nodes:
            if (node, other) not in heard:
                return f"N{node} has not heard of N{other}"
    return None


async def wait_until_serving(
    config: ClusterConfig, node: NodeId, *, alone: bool, timeout: float, access: AdminAccess
) -> None:
    """Return when a node says that it takes requests. One without an admin API is not asked.

    Args:
        alone: too few others run for that; it is enough when it says so.
        access: to the admin API.

    Raises:
        LogDeviceError: TIMEDOUT, with what the node said last.
    """
    if admin_endpoint(config, config.nodes[node]) is None:
        return
    asker, end = NodeAsker(config, access), time.monotonic() + timeout
    table = TABLES["info"]
    try:
        while True:
            rows, failures = await asker.ask_each(table, [node], EVERYTHING, None, min(5.0, timeout))
            said = str(failures[0]) if failures else str(as_dicts(table, rows)[0]["readiness"])
            if said == Status.OK.name or (alone and said == Status.ISOLATED.name):
                return
            if time.monotonic() > end:
                raise LogDeviceError(Status.TIMEDOUT, f"N{node} does not serve after {timeout:.0f} s: {said}")
            await asyncio.sleep(_PAUSE)
    finally:
        await asker.close()


async def wait_until_departures_handled(
    config: ClusterConfig, running: Callable[[], Collection[NodeId]], *, timeout: float, access: AdminAccess
) -> None:
    """Return when no log relies on shards that departed before: a further node may be taken out of the cluster file then. Nodes without an admin API
    are not asked.

    Args:
        access: to the admin API.

    Raises:
        LogDeviceError: TIMEDOUT, naming a node and what it still has to do.
    """
    asker, end = NodeAsker(config, access), time.monotonic() + timeout
    try:
        while True:
            nodes = sorted(node for node in running() if admin_endpoint(config, config.nodes[node]) is not None)
            unhandled = await _unhandled(asker, nodes, config.version, min(5.0, timeout))
            if unhandled is None:
                return
            if time.monotonic() > end:
                raise LogDeviceError(Status.TIMEDOUT, f"{unhandled} after {timeout:.0f} s")
            await asyncio.sleep(_PAUSE)
    finally:
        await asker.close()


async def _unhandled(asker: NodeAsker, nodes: list[NodeId], version: int, seconds: float) -> str | None:
    """Which node has something to do, and what."""
    table = TABLES["info"]
    rows, failures = await asker.ask_each(table, nodes, EVERYTHING, None, seconds)
    if failures:
        return str(failures[0])
    for row in as_dicts(table, rows):
        if int(row["config_version"] or 0) < version:
            return (
                f"N{row['node_id']} uses version {row['config_version']} of the cluster file, the latest is {version},"
            )
        if row["departures_handled"] == 0:
            return (
                f"N{row['node_id']} looks at the logs located at it, or moves them to epochs without shards that departed "
                f"({row['logs_leaving_departed_shards']} logs; table waits of ldquery says what their recovery waits for),"
            )
    return None


async def wait_until_writable(cluster_file: Path, *, timeout: float) -> None:
    """Return when every log of the cluster has an active sequencer whose earlier epochs are recovered.

    Raises:
        LogDeviceError: TIMEDOUT, naming a log that is not writable.
    """
    waiting: set[LogId] = set()
    async with Client(str(cluster_file)) as client:
        limit = asyncio.Semaphore(_CONCURRENT)

        async def one(log: LogId) -> None:
            async with limit:
                while True:
                    try:
                        await client.tail_lsn(log)
                        break
                    except LogDeviceError as error:
                        if not error.retriable:
                            raise
            waiting.discard(log)

        waiting.update(client.config.logs.ids())
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(one(log) for log in sorted(waiting)))
        except TimeoutError:
            raise LogDeviceError(
                Status.TIMEDOUT,
                f"{len(waiting)} logs are not writable after {timeout:.0f} s, for example {min(waiting)}",
            ) from None
