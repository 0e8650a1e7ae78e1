"""A real cluster inside this process: RocksDB, sockets, recovery, all on the caller's event loop. For notebooks and tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Final

from client.admin_access import AdminAccess
from client.client import Client
from logdevice_py.config.admin import admin_settings
from logdevice_py.config.logs import Durability
from logdevice_py.core.ids import NodeId
from logdevice_py.runtime.admin_token import make_token, node_token
from server.admin.start import open_admin
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.identities import make_identities
from server.dev.readiness import wait_until_acquainted
from server.dev.scratch import ScratchDirectory
from server.dev.supervisor import write_cluster_file
from server.host import NodeHost
from storage_node.log_store.identity import AcceptedLoss
from storage_node.log_store.settings import STORE_KINDS

_ACQUAINTED_SECONDS: Final = 60.0
_PREFIX: Final = "logdevice-"


def durability_argument(durability: str) -> Durability:
    """ "sync" or "async".

    Raises:
        ValueError: it is neither.
    """
    for each in Durability:
        if durability == each.name.lower():
            return each
    raise ValueError(f"durability is one of {', '.join(each.name.lower() for each in Durability)}, not {durability!r}")


class LocalCluster:
    """``async with LocalCluster(nodes=3) as cluster`` starts nodes in a temporary directory and stops them at the end. They have heard of
    one another before the block is entered, so that each log has its home from the first append on.

    ``cluster.client()`` gives a client; ``cluster.config_file`` is what other processes need to connect.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        logs: int = 8,
        replicate: str | None = None,
        racks: int = 1,
        durability: str = "sync",
        log_tree: bool = False,
        store: str = STORE_KINDS[0],
        secure: bool = False,
        directory: str | Path | None = None,
    ) -> None:
        """
        Args:
            nodes: how many nodes.
            logs: logs 1 to `logs` exist.
            replicate: replication property; by default ``node:3``, or as many copies as there are nodes.
            racks: nodes are spread over so many racks.
            durability: "sync" or "async".
            log_tree: logs can be made at run time.
            store: what shards are stored in: "rocksdb" or "extents".
            secure: TLS, certificates from an authority of its own in ``identity`` of the directory, and permissions; its clients are those of principal
                operator, who may do everything. Needs ``logdevice-py[security]``.
            directory: where the data goes and stays; by default a temporary directory that is deleted at the end, also when this
                process is killed.
        """
        self._scratch: ScratchDirectory | None = None
        if directory is None:
            self._scratch = ScratchDirectory(_PREFIX)
            while not layout.is_free(self._scratch.path):
                self._scratch.remove()
                self._scratch = ScratchDirectory(_PREFIX)
            directory = self._scratch.path
        self.directory = Path(directory)
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = layout.cluster_file(self.directory)
        if not path.exists():
            config = make_config(
                self.directory,
                nodes=nodes,
                logs=logs,
                replicate=replicate or f"node:{min(3, nodes)}",
                racks=racks,
                epoch_store=None,
                durability=durability_argument(durability),
                log_tree=log_tree,
                store=store,
                secure=secure,
            )
            make_identities(self.directory, config)
            write_cluster_file(self.directory, config)
            make_token(path)
        self.config_file = str(path)
        self._nodes = nodes
        self.hosts: dict[int, NodeHost] = {}

    def __repr__(self) -> str:
        running = ", ".join(f"N{node}" for node in sorted(self.hosts)) or "none"
        return f"<LocalCluster {self.config_file}: nodes that run: {running} of {self._nodes}>"

    async def start_node(self, node: int) -> None:
        """Start one node.

        Raises:
            ValueError: it runs already.
        """
        if node in self.hosts:
            raise ValueError(f"node {node} runs already")
        self.hosts[node] = await NodeHost.open(
            Path(self.config_file),
            NodeId(node),
            layout.node_directory(self.directory, NodeId(node)),
            AcceptedLoss(everything=True),  # who deletes a directory of a cluster for trying things means it
            open_admin,
        )

    async def stop_node(self, node: int) -> None:
        """Stop one node in order.

        Raises:
            ValueError: it does not run.
        """
        if node not in self.hosts:
            raise ValueError(f"node {node} does not run; those that do: {sorted(self.hosts)}")
        await self.hosts.pop(node).close()

    def client(self) -> Client:
        """A client of this cluster; use it as an async context manager."""
        return Client(self.config_file)

    async def __aenter__(self) -> LocalCluster:
        try:
            await asyncio.gather(*(self.start_node(node) for node in range(self._nodes)))
            config = self.hosts[0].config
            path = Path(self.config_file)
            access = AdminAccess(node_token(path, admin_settings(config).token_file), path)
            nodes = self.hosts
            await wait_until_acquainted(
                config, lambda: list(map(NodeId, nodes)), timeout=_ACQUAINTED_SECONDS, access=access
            )
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        await asyncio.gather(*(host.close() for host in self.hosts.values()), return_exceptions=True)
        self.hosts.clear()
        if self._scratch is not None:
            await asyncio.to_thread(self._scratch.remove)
