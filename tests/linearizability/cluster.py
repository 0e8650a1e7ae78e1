"""Real processes on machines of their own, and what breaks them: SIGKILL, SIGSTOP, and cuts between two halves of the nodes that clients do not see."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from logdevice_py.config.logs import LogTree
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import write_cluster_file
from server.dev.virtual_network import VirtualNetwork, may_make_networks
from server.dev.zookeeper_server import ZooKeeperServer
from tests.chaos.cluster import MachineSupervisor
from tests.chaos.machines import off_loop

NODES = 5


class BrokenCluster:
    """The cluster, and its faults, one at a time."""

    def __init__(self, supervisor: MachineSupervisor, rng: random.Random) -> None:
        self.file = str(layout.cluster_file(supervisor.directory))
        self.caused: Counter[str] = Counter()
        self._supervisor = supervisor
        self._rng = rng

    async def break_for(self, seconds: float) -> None:
        """One fault after the other, each repaired before the next."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        faults = [self._kill, self._pause]
        if self._supervisor.network is not None:
            faults += [self._cut, self._cut]
        while loop.time() < end:
            await asyncio.sleep(self._rng.uniform(0.2, 1.5))
            await self._rng.choice(faults)()

    async def _kill(self) -> None:
        self.caused["SIGKILL"] += 1
        node = self._rng.randrange(NODES)
        await self._supervisor.kill(node)
        await asyncio.sleep(self._rng.uniform(0, 2))
        await self._supervisor.start(node)

    async def _pause(self) -> None:
        self.caused["SIGSTOP"] += 1
        node = self._rng.randrange(NODES)
        await self._supervisor.pause(node)
        await asyncio.sleep(self._rng.uniform(0.2, 4))
        await self._supervisor.resume(node)

    async def _cut(self) -> None:
        """Two nodes and the other three do not hear of each other; clients reach all of them."""
        network = self._supervisor.network
        assert network is not None
        self.caused["cut"] += 1
        few = self._rng.sample(range(NODES), 2)
        pairs = [(one, two) for one in few for two in range(NODES) if two not in few]
        pairs += [(two, one) for one, two in pairs]
        for source, target in pairs:
            await off_loop(network.block, source, target)
        await asyncio.sleep(self._rng.uniform(1, 6))
        for source, target in pairs:
            await off_loop(network.unblock, source, target)


@asynccontextmanager
async def broken_cluster(
    directory: Path, rng: random.Random, *, logs: int, strict: bool
) -> AsyncIterator[BrokenCluster]:
    """Five nodes whose logs have two copies, so that copysets need not meet. Where no network can be made, nothing is cut."""
    directory.mkdir(parents=True)
    network = VirtualNetwork(range(NODES)) if await off_loop(may_make_networks) else None
    zookeeper: ZooKeeperServer | None = None
    try:
        if network is not None:
            await off_loop(network.open)
        if network is not None:  # a file is no epoch store of several hosts
            zookeeper = ZooKeeperServer(directory / "zookeeper", host=network.address(-1))
            await zookeeper.start_async()
        store = None if zookeeper is None else zookeeper.url
        config = make_config(directory, nodes=NODES, logs=logs, replicate="node:2", racks=1, epoch_store=store)
        groups = [(group.path, group.lo, group.hi, group.overrides) for group in config.logs.groups]
        defaults = {**config.logs.defaults, "strict_order": strict}
        config = dataclasses.replace(config, logs=LogTree.build(defaults=defaults, groups=groups))
        if network is not None:
            members = {
                node: dataclasses.replace(each, host=network.address(node)) for node, each in config.nodes.items()
            }
            config = dataclasses.replace(config, nodes=members)
        supervisor = MachineSupervisor(directory, config)
        supervisor.network = network
        write_cluster_file(directory, config)
        await supervisor.listen()
        try:
            await supervisor.start_all()
            await wait_until_writable(layout.cluster_file(directory), timeout=60)
            yield BrokenCluster(supervisor, rng)
            for node, child in supervisor.children.items():
                printed = layout.node_log(directory, NodeId(node)).read_text()
                assert child.asked_to_stop or child.process.returncode is None, (
                    f"N{node} ended by itself: {printed[-3000:]}"
                )
                assert "Traceback" not in printed, printed[-5000:]
        finally:
            await supervisor.stop_all()
    finally:
        if zookeeper is not None:
            zookeeper.kill()
        if network is not None:
            await off_loop(network.close)
