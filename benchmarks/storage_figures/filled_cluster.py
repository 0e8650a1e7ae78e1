"""A cluster that is filled once and begun with again and again, as it was."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.storage_figures.appends import fill
from benchmarks.storage_figures.processes import node_processes, say
from client.client import Client
from ldquery.session import LDQuery
from logdevice_py.core.ids import LogId
from server.dev import layout
from server.dev.supervisor import Supervisor

NODES, COPIES, LOGS = 5, 3, 16
"""Log 17 takes the appends whose latency is measured."""
GRACE = 5
"""Seconds after which a dead node is taken for lost."""
_PAYLOAD = 64 << 10
_QUERY_WITHIN = 60.0
_TELL = 10.0
_NEVER_CHANGED = (".sst", ".blob")


class FilledCluster:
    """Five nodes, three copies; a node that is lost is taken for lost after five seconds, all else is as by default."""

    def __init__(self, directory: Path, size: int, sync_delay: str) -> None:
        """
        Args:
            directory: of the cluster; what it holds when it is filled is kept beside it.
            size: bytes of entries that each node holds.
            sync_delay: every sync takes this much longer, like 2ms.
        """
        self.directory = directory
        self.size = size
        self.logs = [LogId(log) for log in range(1, LOGS + 1)]
        self.held: list[int] = []
        """What each node holds."""
        self.ends: dict[LogId, int] = {}
        """The last LSN of each log."""
        self._filled = directory.with_name(directory.name + "-filled")
        self._settings: dict[str, dict[str, Any]] = {
            "rebuilding": {"enabled": True, "self_initiated_grace_period_us": f"{GRACE}s"},
            "storage": {"sync_delay_us": sync_delay},
        }

    def client(self) -> Client:
        """One of the cluster."""
        return Client(str(layout.cluster_file(self.directory)))

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Supervisor]:
        """The nodes, on what they were filled with."""
        if not self._filled.exists():
            await self._fill()
        await asyncio.to_thread(self._restore)
        try:
            async with self._processes() as supervisor:
                yield supervisor
        finally:
            await asyncio.to_thread(shutil.rmtree, self.directory)

    async def discard(self) -> None:
        """Delete what it was filled with."""
        await asyncio.to_thread(shutil.rmtree, self._filled, ignore_errors=True)

    def _processes(self) -> Any:
        return node_processes(
            self.directory, nodes=NODES, logs=LOGS + 1, replicate=f"node:{COPIES}", settings=self._settings
        )

    async def _fill(self) -> None:
        began = time.monotonic()
        self.directory.mkdir(parents=True)
        async with self._processes(), self.client() as client:
            telling = asyncio.create_task(self._tell_progress())
            try:
                await fill(client, self.logs, self.size * NODES // COPIES, _PAYLOAD)
            finally:
                telling.cancel()
            self.held = [await self.stat("stored_bytes", node) for node in range(NODES)]
            self.ends = {log: int(await client.tail_lsn(log)) for log in self.logs}
        await asyncio.to_thread(self.directory.rename, self._filled)
        each = ", ".join(f"{held / 1e9:.2f}" for held in self.held)
        say(f"filled in {time.monotonic() - began:.0f} s; nodes hold {each} GB")

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(_TELL)
            say(f"filled so far: {await self.stat('stored_bytes') / NODES / 1e9:.2f} GB a node")

    def _restore(self) -> None:
        """Files that RocksDB never changes are linked."""

        def copy(source: str, target: str) -> None:
            if source.endswith(_NEVER_CHANGED):
                os.link(source, target)
            else:
                shutil.copy2(source, target)

        shutil.copytree(self._filled, self.directory, copy_function=copy)

    # Looking

    async def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of tables, of the nodes that answer."""

        def ask() -> list[tuple[Any, ...]]:
            with LDQuery(layout.cluster_file(self.directory), deadline=_QUERY_WITHIN, full=True) as session:
                return list(session.query(sql).rows)

        return await asyncio.to_thread(ask)

    async def stat(self, name: str, node: int | None = None) -> int:
        """A counter of one node, or of all that answer."""
        of = "" if node is None else f" AND node_id = {node}"
        rows = await self.query(f"SELECT sum(value) FROM stats WHERE name = '{name}'{of}")
        return int(rows[0][0] or 0)

    async def count_short_of_copies(self) -> int:
        """Of all records that it was filled with."""
        return sum([await self.short_of_copies(log, 1, end) for log, end in self.ends.items()])

    async def short_of_copies(self, log: LogId, first: int, last: int) -> int:
        """How many records of a range have too few copies."""
        rows = await self.query(
            f"SELECT count(*) FROM under_replicated WHERE log_id = {log} AND lsn BETWEEN {first} AND {last}"
        )
        return int(rows[0][0])
