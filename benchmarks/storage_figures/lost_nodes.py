"""Nodes of five that are lost or drained under load: how much is sent, how fast, what appends feel of it, and whether every record keeps its copies."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.storage_figures.appends import Latencies, PacedAppends
from benchmarks.storage_figures.filled_cluster import GRACE, LOGS, FilledCluster
from benchmarks.storage_figures.processes import load, lose, say
from client.client import Client
from ldquery.ctl.event_log import read_rebuilding_set, start_rebuilding, wait_until_rebuilt
from logdevice_py.core.ids import LogId, NodeId, ShardId, format_shard, shard_id
from logdevice_py.event_log.events import RebuildMode
from server.dev.supervisor import Supervisor, write_cluster_file

_SETTLE: Final = 10.0
_CONTROL: Final = 60.0
_TELL: Final = 10.0
_LOOK: Final = 5.0
_LOOKED_AT: Final = 100
SENT_MAX: Final = 1.2
"""Bytes sent, beside those lost."""
P99_MAX: Final = 2.0
"""Of appends meanwhile, beside the control."""


@dataclass(slots=True)
class Rebuilt:
    """What became of lost or drained nodes."""

    step: str
    control: Latencies
    """The better one of before and afterwards."""
    meanwhile: Latencies
    lost_bytes: int
    sent_bytes: int
    seconds: float
    left_undone: dict[str, str]
    short_of_copies: int

    def judge(self) -> str:
        """The figures, each beside what it should be."""
        sent = self.sent_bytes / self.lost_bytes
        before, during = self.control.percentile(0.99), self.meanwhile.percentile(0.99)
        undone = ", ".join(f"{shard} {flags}" for shard, flags in self.left_undone.items() if flags != "NONE")
        failed = self.control.failed + self.meanwhile.failed
        return "\n    ".join(
            (
                f"{self.step}:",
                f"{self.lost_bytes / 1e9:.2f} GB lost, {self.sent_bytes / 1e9:.2f} GB sent: {sent:.2f} times; "
                f"{_verdict(sent < SENT_MAX, f'below {SENT_MAX}')}",
                f"{self.seconds:.1f} s, {self.sent_bytes / 1e6 / self.seconds:.1f} MB/s; {load()}",
                f"p99 of appends {before:.1f} ms in the control, {during:.1f} ms meanwhile: {during / before:.2f} times; "
                f"{_verdict(during <= P99_MAX * before, f'at most {P99_MAX:g}')}",
                f"{failed} appends failed; {_verdict(not failed, 'none')}",
                f"{self.short_of_copies} records are under-replicated; {_verdict(not self.short_of_copies, 'none')}",
                f"left undone: {undone or 'nothing'}; {_verdict(not undone, 'nothing')}",
            )
        )


def _verdict(is_met: bool, goal: str) -> str:
    return f"goal {goal}: {'met' if is_met else 'MISSED'}"


class LostNodes:
    """Each method begins with the same filled cluster."""

    def __init__(self, directory: Path, size: int, per_second: int, sync_delay: str) -> None:
        """
        Args:
            size: bytes of entries that each node holds.
            per_second: small appends while it goes.
            sync_delay: every sync takes this much longer, like 2ms.
        """
        self._cluster = FilledCluster(directory, size, sync_delay)
        self._per_second = per_second

    async def discard(self) -> None:
        """Delete what the cluster was filled with."""
        await self._cluster.discard()

    async def _control(self, appends: PacedAppends, what: str) -> Latencies:
        latencies = await appends.during(_CONTROL)
        say(f"{what}: {latencies}; {load()}")
        return latencies

    @asynccontextmanager
    async def _under_appends(self, client: Client) -> AsyncIterator[tuple[PacedAppends, Latencies]]:
        """Appends go on; comes with the control."""
        async with PacedAppends(client, [LogId(LOGS + 1)], self._per_second) as appends:
            await appends.during(_SETTLE)
            yield appends, await self._control(appends, "control")

    async def lose_one(self) -> None:
        """A node is lost for good."""
        cluster = self._cluster
        async with cluster.run() as supervisor, cluster.client() as client:
            async with self._under_appends(client) as (appends, control):
                await lose(supervisor, 4)
                await self._until_noticed(client, shard_id(NodeId(4)))
                rebuilt = await self._until_rebuilt("lose", client, appends, [4], control, cluster.held[4])
            await self._finish(rebuilt)

    async def lose_two(self) -> None:
        """A second node is lost while the first is rebuilt."""
        cluster = self._cluster
        async with cluster.run() as supervisor, cluster.client() as client:
            async with self._under_appends(client) as (appends, control):
                await lose(supervisor, 4)
                await self._until_noticed(client, shard_id(NodeId(4)))
                appends.take()
                began = time.monotonic()
                while True:
                    if await cluster.stat("bytes_rebuilt") >= cluster.size // 4:
                        break
                    await asyncio.sleep(0.2)
                say(f"sent so far: {await cluster.stat('bytes_rebuilt') / 1e9:.2f} GB; the second node is lost")
                meanwhile, took = appends.take(), time.monotonic() - began
                sent, taken = await cluster.stat("bytes_rebuilt", 3), await cluster.stat("bytes_taken", 3)
                await lose(supervisor, 3)
                await self._until_noticed(client, shard_id(NodeId(3)))
                lost = cluster.held[4] + cluster.held[3] + taken
                rebuilt = await self._until_rebuilt("lose-two", client, appends, [3, 4], control, lost)
            rebuilt.meanwhile.add(meanwhile)
            rebuilt.sent_bytes += sent
            rebuilt.seconds += took
            await self._finish(rebuilt)

    async def drain(self) -> None:
        """A node is emptied and taken out, and all the while it is looked whether records have too few copies."""
        cluster = self._cluster
        async with cluster.run() as supervisor, cluster.client() as client:
            async with self._under_appends(client) as (appends, control):
                await start_rebuilding(client, shard_id(NodeId(4)), RebuildMode.RELOCATE)
                looking = asyncio.create_task(self._look_for_records_short_of_copies())
                rebuilt = await self._until_rebuilt("drain", client, appends, [4], control, cluster.held[4])
                looking.cancel()
                await self._take_out(supervisor, 4)
            await self._finish(rebuilt)

    async def _until_noticed(self, client: Client, shard: ShardId) -> None:
        began = time.monotonic()
        while True:
            if shard in (await read_rebuilding_set(client)).shards:
                break
            await asyncio.sleep(0.2)
        took = time.monotonic() - began
        say(f"{format_shard(shard)} is taken for lost after {took:.1f} s, of which the grace period is {GRACE} s")

    async def _until_rebuilt(
        self, step: str, client: Client, appends: PacedAppends, nodes: list[int], control: Latencies, lost: int
    ) -> Rebuilt:
        appends.take()
        began = time.monotonic()
        telling = asyncio.create_task(self._tell_progress())
        shards = [shard_id(NodeId(node)) for node in nodes]
        try:
            for shard in shards:
                await wait_until_rebuilt(client, shard, pause=0.2)
        finally:
            telling.cancel()
        took, meanwhile = time.monotonic() - began, appends.take()
        say(f"meanwhile: {meanwhile}; {load()}")
        # both count: a machine that others slow down for a while does so before, meanwhile or afterwards
        control.add(await self._control(appends, "control afterwards"))
        state = await read_rebuilding_set(client)
        undone = {format_shard(shard): str(state.shards[shard].flags.name) for shard in shards}
        return Rebuilt(step, control, meanwhile, lost, await self._cluster.stat("bytes_rebuilt"), took, undone, 0)

    async def _finish(self, rebuilt: Rebuilt) -> None:
        began = time.monotonic()
        rebuilt.short_of_copies = await self._cluster.count_short_of_copies()
        say(f"all records were counted in {time.monotonic() - began:.0f} s")
        say(rebuilt.judge())

    async def _tell_progress(self) -> None:
        while True:
            await asyncio.sleep(_TELL)
            sent = await self._cluster.stat("bytes_rebuilt")
            paces = await self._cluster.query(
                "SELECT DISTINCT node_id, rate, pace FROM shard_rebuildings WHERE rate > 0"
            )
            told = "; ".join(f"N{node} {rate / 1e6:.1f} MB/s, {pace}" for node, rate, pace in sorted(paces))
            say(f"sent so far: {sent / 1e9:.2f} GB; {told}")

    async def _look_for_records_short_of_copies(self) -> None:
        """Some records of a log every now and then: to read all of them takes longer than the draining."""
        rng = random.Random(1)
        looked, found = 0, 0
        while True:
            await asyncio.sleep(_LOOK)
            log, end = rng.choice(list(self._cluster.ends.items()))
            first = max(1, end - rng.randrange(end & 0xFFFFFFFF))
            last = min(end, first + _LOOKED_AT - 1)
            found += await self._cluster.short_of_copies(log, first, last)
            looked += last - first + 1
            say(f"of {looked} records looked at while the node is drained, {found} had too few copies")

    async def _take_out(self, supervisor: Supervisor, node: int) -> None:
        config = supervisor.config
        nodes = {each: rest for each, rest in config.nodes.items() if each != node}
        nodeset = tuple(shard for shard in config.metadata_log.nodeset if shard != shard_id(NodeId(node)))
        metadata = replace(config.metadata_log, nodeset=nodeset)
        await supervisor.stop(node)
        write_cluster_file(
            self._cluster.directory, replace(config, version=config.version + 1, nodes=nodes, metadata_log=metadata)
        )
