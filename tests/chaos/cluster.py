"""A cluster of real processes on machines of their own, for chaos."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ldquery.session import LDQuery
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.logs import Durability
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file
from server.dev.virtual_network import VirtualNetwork, may_make_networks
from server.dev.zookeeper_server import ZooKeeperServer
from storage_node.log_store.settings import STORE_KINDS
from tests.chaos.machines import SmallDisk, off_loop
from tests.chaos.places import HERE, ClientPlace

RACKS = 3
_SMALL_EXTENTS = {"extent_bytes": "256KiB", "checkpoint_bytes": "64KiB"}
"""Extents are closed, get their indexes and become free within a minute."""


class MachineSupervisor(Supervisor):
    """Starts each node in its machine's namespace."""

    network: VirtualNetwork | None = None

    def command(self, node: NodeId) -> list[str]:
        command = super().command(node)
        return command if self.network is None else ["ip", "netns", "exec", self.network.namespace(node), *command]


class ChaosCluster:
    """Real nodes, and what can be done to them."""

    def __init__(
        self,
        supervisor: Supervisor,
        disks: Mapping[int, SmallDisk],
        zookeepers: Sequence[ZooKeeperServer],
        network: VirtualNetwork | None = None,
        places: Sequence[ClientPlace] = (HERE,),
    ) -> None:
        """
        Args:
            network: of which nodes are cut off one by one; None: they are not.
            places: from where clients use it.
        """
        self.supervisor = supervisor
        self.zookeepers = zookeepers
        self.network = network
        self.disks = disks
        self.places = places
        self.file = str(layout.cluster_file(supervisor.directory))

    @property
    def nodes(self) -> list[int]:
        """All of them."""
        return sorted(self.supervisor.config.nodes)

    def runs(self, node: int) -> bool:
        """Whether it has a process."""
        child = self.supervisor.children.get(NodeId(node))
        return child is not None and child.process.returncode is None

    def is_paused(self, node: int) -> bool:
        """Whether its process is stopped."""
        child = self.supervisor.children.get(NodeId(node))
        return child is not None and child.paused

    async def wipe(self, node: int) -> None:
        """Delete what a node that is down has on its disk."""
        directory = layout.node_directory(self.supervisor.directory, NodeId(node))
        for path in sorted(directory.iterdir()):
            await off_loop(shutil.rmtree if path.is_dir() else os.unlink, path)

    def exits(self) -> list[str]:
        """Nodes that ended without being asked to."""
        return [
            f"N{node} ended by itself ({child.process.returncode}):\n{self.printed(node)[-3000:]}"
            for node, child in sorted(self.supervisor.children.items())
            if child.process.returncode is not None and not child.asked_to_stop
        ]

    def look(self) -> list[str]:
        """For who looks for the reason of a stall: what nodes wait for, and what they wrote last."""
        with LDQuery(self.file, deadline=20) as session:
            found = [str(row) for row in session.query("SELECT * FROM waits").to_dicts()]
        return found + [self.printed(node)[-1500:] for node in self.nodes]

    def printed(self, node: int) -> str:
        """What a node wrote on its terminal."""
        return layout.node_log(self.supervisor.directory, NodeId(node)).read_text()


def with_small_extents(config: ClusterConfig, store: str) -> ClusterConfig:
    """The same, with stores that do within a minute what they do at all."""
    return dataclasses.replace(config, settings={**config.settings, "storage": {"store": store, **_SMALL_EXTENTS}})


@asynccontextmanager
async def small_disks(directory: Path, nodes: Iterable[int]) -> AsyncIterator[Mapping[int, SmallDisk]]:
    """A small disk for each node of a cluster; none where that is not allowed."""
    disks = {node: SmallDisk(layout.node_directory(directory, NodeId(node))) for node in nodes}
    try:
        opened = True
        try:
            for disk in disks.values():
                await off_loop(disk.open)
        except (OSError, subprocess.CalledProcessError):
            opened = False
        yield disks if opened else {}
    finally:
        for disk in disks.values():
            disk.close()


@asynccontextmanager
async def chaos_cluster(
    directory: Path, *, nodes: int = 5, logs: int = 3, store: str = STORE_KINDS[0]
) -> AsyncIterator[ChaosCluster]:
    """A cluster whose logs are writable; processes, namespaces and mounts are gone afterwards."""
    network = VirtualNetwork(range(nodes)) if await off_loop(may_make_networks) else None
    zookeeper: ZooKeeperServer | None = None
    try:
        if network is not None:
            await off_loop(network.open)
        host = {} if network is None else {"host": network.address(-1)}
        zookeeper = ZooKeeperServer(directory / "zookeeper", **host)
        await zookeeper.start_async()
        config = make_config(
            directory,
            nodes=nodes,
            logs=logs,
            replicate="rack:2,node:3",
            racks=RACKS,
            epoch_store=zookeeper.url,
            durability=Durability.SYNC,
            store=store,
        )
        config = with_small_extents(config, store)
        if network is not None:
            members = {
                node: dataclasses.replace(each, host=network.address(node)) for node, each in config.nodes.items()
            }
            config = dataclasses.replace(config, nodes=members)
        async with small_disks(directory, config.nodes) as disks:
            supervisor = MachineSupervisor(directory, config)
            supervisor.network = network
            write_cluster_file(directory, config)
            await supervisor.listen()
            try:
                await supervisor.start_all()
                await wait_until_writable(layout.cluster_file(directory), timeout=60)
                yield ChaosCluster(supervisor, disks, [zookeeper], network)
            finally:
                await asyncio.shield(supervisor.stop_all())
    finally:
        if zookeeper is not None:
            zookeeper.kill()
        if network is not None:
            network.close()
