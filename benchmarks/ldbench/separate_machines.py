"""Machines of their own for the nodes of a cluster, on this machine, so that a node can be cut off from the network."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Self

from benchmarks.ldbench.engine import EngineError
from logdevice_py.config.cluster import ClusterConfig
from server.dev.virtual_network import VirtualNetwork, may_make_networks
from server.dev.zookeeper_server import ZooKeeperServer, ZooKeeperUnavailableError, why_no_zookeeper


def why_no_machines() -> str | None:
    """Why nodes cannot run on machines of their own here, for people; None when they can."""
    if not may_make_networks():
        return "network namespaces cannot be made here, which takes root and `ip`"
    return why_no_zookeeper()


class SeparateMachines:
    """A network namespace for each node, and ZooKeeper on their network: an epoch store in a file would be within reach of a node that is cut off."""

    def __init__(self, network: VirtualNetwork, zookeeper: ZooKeeperServer) -> None:
        self.network = network
        self.zookeeper = zookeeper

    @classmethod
    async def open(cls, directory: Path, nodes: int) -> Self:
        """Make everything; ZooKeeper's data go into the directory.

        Raises:
            EngineError: ZooKeeper did not start.
        """
        network = VirtualNetwork(range(nodes))
        try:
            await asyncio.to_thread(network.open)
            zookeeper = ZooKeeperServer(directory / "zookeeper", host=network.address(-1))
            await zookeeper.start_async()
        except (OSError, subprocess.CalledProcessError, ZooKeeperUnavailableError) as error:
            network.close()
            raise EngineError(f"the nodes' machines: {error}") from error
        return cls(network, zookeeper)

    def close(self) -> None:
        """Take everything away."""
        self.zookeeper.kill()
        self.network.close()

    def place(self, config: ClusterConfig) -> ClusterConfig:
        """A cluster file with the nodes' addresses on this network."""
        members = {node: replace(each, host=self.network.address(node)) for node, each in config.nodes.items()}
        return replace(config, nodes=members, epoch_store=self.zookeeper.url)
