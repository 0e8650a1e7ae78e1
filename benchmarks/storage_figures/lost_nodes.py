"""Nodes of five that are lost or drained under load: how much is sent, how fast, what appends feel of it, and whether every record keeps its copies."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.storage_figures.appends import PacedAppends, fill
from benchmarks.storage_figures.processes import load, lose, node_processes, say
from client.cli.query.session import LDQuery
from client.cli.rebuilding import read_rebuilding_set, start_rebuilding, wait_until_rebuilt
from client.client import Client
from logdevice_py.core.ids import LogId, NodeId, ShardId, format_shard, shard_id
from logdevice_py.event_log.events import RebuildMode
from server import layout
from server.supervisor import Supervisor, write_cluster_file

NODES, COPIES, LOGS = 5, 3, 16
"""Log 17 takes the appends whose latency is measured."""
_PAYLOAD = 64 << 10
_GRACE = 5
_CONTROL = 20.0
_QUERY_WITHIN = 60.0
_TELL = 10.0


class LostNodes:
    """Five nodes, three copies; a node that is lost is taken for lost after five seconds, all else is as by default."""

    def __init__(self, directory: Path, size: int, per_second: int) -> None:
        """
        Args:
            size: bytes of entries that each node holds.
            per_second: small appends while it goes.
        """
        self._per_second = per_second
        self.directory = directory
        self._size = size
        self._load = [LogId(LOGS + 1)]
        self._logs = [LogId(log) for log in range(1, LOGS + 1)]
        self._nodes = {
            "nodes": NODES,
            "logs": LOGS + 1,
            "replicate": f"node:{COPIES}",
            "settings": {"rebuilding": {"enabled": True, "self_initiated_grace_period_us": f"{_GRACE}s"}},
        }

    def _client(self) -> Client:
        return Client(str(layout.cluster_file(self.directory)))

    async def _fill(self, client: Client, supervisor: Supervisor) -> None:
        began = time.monotonic()
        await fill(client, self._logs, self._size * NODES // COPIES, _PAYLOAD)
        held = [await self._stat("stored_bytes", node) for node in range(NODES)]
        say(
            f"filled in {time.monotonic() - began:.0f} s; nodes hold {', '.join(f'{each / 1e9:.2f}' for each in held)} GB"
        )

    async def _stat(self, name: str, node: int | None = None) -> int:
        """A counter of one node, or of all that answer."""
        of = "" if node is None else f" AND node_id = {node}"
        rows = await self._query(f"SELECT sum(value) FROM stats WHERE name = '{name}'{of}")
        return int(rows[0][0] or 0)

    async def _query(self, sql: str) -> list[tuple[Any, ...]]:
        def ask() -> list[tuple[Any, ...]]:
            with LDQuery(layout.cluster_file(self.directory), deadline=_QUERY_WITHIN, full=True) as session:
                return list(session.query(sql).rows)

        return await asyncio.to_thread(ask)

    async def lose_one(self) -> None:
        """A node is lost for good."""
        async with node_processes(self.directory, **self._nodes) as supervisor, self._client() as client:  # type: ignore[arg-type]
            await self._fill(client, supervisor)
            async with PacedAppends(client, self._load, self._per_second) as appends:
                await appends.during(3)
                say(f"control: {await appends.during(_CONTROL)}; {load()}")
                held = await self._stat("stored_bytes", 4)
                await lose(supervisor, 4)
                await self._until_noticed(client, shard_id(NodeId(4)))
                await self._report(client, appends, [4], held)
                say(f"control afterwards: {await appends.during(_CONTROL)}; {load()}")

    async def lose_two(self) -> None:
        """A second node is lost while the first is rebuilt."""
        async with node_processes(self.directory, **self._nodes) as supervisor, self._client() as client:  # type: ignore[arg-type]
            await self._fill(client, supervisor)
            async with PacedAppends(client, self._load, self._per_second) as appends:
                await appends.during(3)
                say(f"control: {await appends.during(_CONTROL)}; {load()}")
                held = await self._stat("stored_bytes", 4) + await self._stat("stored_bytes", 3)
                await lose(supervisor, 4)
                await self._until_noticed(client, shard_id(NodeId(4)))
                while True:
                    if await self._stat("bytes_rebuilt") >= self._size // 4:
                        break
                    await asyncio.sleep(0.5)
                say(f"the second node is lost; sent so far: {await self._stat('bytes_rebuilt') / 1e9:.2f} GB")
                await lose(supervisor, 3)
                await self._until_noticed(client, shard_id(NodeId(3)))
                await self._report(client, appends, [3, 4], held)

    async def _until_noticed(self, client: Client, shard: ShardId) -> None:
        began = time.monotonic()
        while True:
            if shard in (await read_rebuilding_set(client)).shards:
                break
            await asyncio.sleep(0.2)
        say(
            f"{format_shard(shard)} is taken for lost after {time.monotonic() - began:.1f} s, of which the grace period is {_GRACE} s"
        )

    async def _report(self, client: Client, appends: PacedAppends, nodes: list[int], held: int) -> None:
        """Wait until the nodes are rebuilt."""
        appends.take()
        began = time.monotonic()
        telling = asyncio.create_task(self._tell_progress())
        for node in nodes:
            await wait_until_rebuilt(client, shard_id(NodeId(node)), pause=0.2)
        telling.cancel()
        took, meanwhile = time.monotonic() - began, appends.take()
        sent = await self._stat("bytes_rebuilt")
        state = await read_rebuilding_set(client)
        flags = {
            format_shard(shard_id(NodeId(node))): state.shards[shard_id(NodeId(node))].flags.name for node in nodes
        }
        say(
            f"rebuilt in {took:.1f} s: {sent / 1e9:.2f} GB sent for {held / 1e9:.2f} GB lost ({sent / held:.2f} times), "
            f"{sent / 1e6 / took:.0f} MB/s; left undone: {flags}; {load()}"
        )
        say(f"meanwhile: {meanwhile}")

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(_TELL)
            say(f"sent so far: {await self._stat('bytes_rebuilt') / 1e9:.2f} GB")

    async def drain(self) -> None:
        """A node is emptied and taken out, and all the while records are counted that have too few copies."""
        async with node_processes(self.directory, **self._nodes) as supervisor, self._client() as client:  # type: ignore[arg-type]
            await self._fill(client, supervisor)
            ends = {log: int(await client.tail_lsn(log)) for log in self._logs}
            async with PacedAppends(client, self._load, self._per_second):
                shard = shard_id(NodeId(4))
                began = time.monotonic()
                await start_rebuilding(client, shard, RebuildMode.RELOCATE)
                done = asyncio.create_task(wait_until_rebuilt(client, shard))
                counts = []
                while not done.done():
                    counts.append(await self._short_of_copies(ends))
                say(
                    f"drained in {time.monotonic() - began:.1f} s; records short of copies, as counted meanwhile: {counts}"
                )
                await self._take_out(supervisor, 4)
                counts = [await self._short_of_copies(ends) for _ in range(5)]
                say(f"taken out; records short of copies: {counts}")

    async def _short_of_copies(self, ends: dict[LogId, int]) -> int:
        return sum(
            [
                len(
                    await self._query(
                        f"SELECT lsn FROM under_replicated WHERE log_id = {log} AND lsn BETWEEN 1 AND {end}"
                    )
                )
                for log, end in ends.items()
            ]
        )

    async def _take_out(self, supervisor: Supervisor, node: int) -> None:
        config = supervisor.config
        nodes = {each: rest for each, rest in config.nodes.items() if each != node}
        nodeset = tuple(shard for shard in config.metadata_log.nodeset if shard != shard_id(NodeId(node)))
        metadata = replace(config.metadata_log, nodeset=nodeset)
        await supervisor.stop(node)
        write_cluster_file(
            self.directory, replace(config, version=config.version + 1, nodes=nodes, metadata_log=metadata)
        )
