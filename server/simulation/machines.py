"""A whole cluster in one process under virtual time: the production roots of nodes and clients on simulated machines.

Nodes crash with their process (the disk keeps what was written) or with their machine (the disk keeps what was synced, and perhaps some
of the rest), and come back with a later instance id. Everything that happens follows from the seed.
"""

from __future__ import annotations

from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.lsn import Lsn
from server.simulation.client import SimClient as SimClient
from server.simulation.client import SimPromise as SimPromise
from server.simulation.client import SimReader as SimReader
from server.simulation.node import SimNode as SimNode
from server.simulation.node import SimNodeState as SimNodeState
from server.simulation.world import SimWorld
from storage_node.log_store.memory import MemoryDisk

CLIENT_ADDRESS = -1000
"""The first client's; later ones count down."""


class SimMachines(SimWorld):
    """Nodes, clients, network and epoch store of one run."""

    def _populate(self) -> None:
        config = self.config
        self.nodes = {node: SimNode(self, node) for node in sorted(config.nodes)}
        """Those in the cluster file."""
        self._retired: dict[NodeId, SimNode] = {}
        self.clients: list[SimClient] = []
        self._client_address = CLIENT_ADDRESS

    def client(self) -> SimClient:
        """A further client process."""
        client = SimClient(self, f"C{CLIENT_ADDRESS - self._client_address}", self._client_address)
        self._client_address -= 1
        self.clients.append(client)
        return client

    def machine(self, node: int) -> SimNode:
        """A node that is in the cluster file or was."""
        return self.nodes.get(NodeId(node)) or self._retired[NodeId(node)]

    def retire(self, node: NodeId) -> SimNode:
        """A node is not in the cluster file any more: it is not started again; its process lives until it is ended."""
        retired = self._retired[node] = self.nodes.pop(node)
        retired.retired = True
        return retired

    def put_back(self, node: NodeId) -> SimNode | None:
        """A node that is down is in the cluster file again, with its disks; None if it never was."""
        found = self._retired.pop(node, None)
        if found is not None:
            assert found.state is SimNodeState.DOWN, found.state
            found.retired = False
            self.nodes[node] = found
        return found

    # What faults destroyed

    def destroyed_entries(self) -> dict[tuple[LogId, Lsn], set[ShardId]]:
        """For each log and LSN, on which shards a copy that was durable was lost or damaged by a fault, at any time. Such an entry may have been
        re-replicated since."""
        destroyed: dict[tuple[LogId, Lsn], set[ShardId]] = {}
        for shard, disk in self._disks():
            for log, lsn in sorted(disk.destroyed):
                destroyed.setdefault((LogId(log), Lsn(lsn)), set()).add(shard)
        return destroyed

    def intact_copies(self, log: LogId, lsn: Lsn) -> int:
        """On how many shards a sound copy of the entry lies at this moment, computed from the disks themselves.

        A copy counts when it is the one that its shard would answer with: the copy of highest rank at the LSN, with its body and right
        checksums, and no hole. Whether the shard runs, can be reached or is up to date does not matter: such a copy may be late, but it is not
        lost. 0 for an acknowledged record means that no reader can ever get it.
        """
        return sum(disk.holds(log, lsn) for _, disk in self._disks())

    def _disks(self) -> list[tuple[ShardId, MemoryDisk]]:
        return [each for node in self.nodes.values() for each in node.disks.items()]

    def calm(self) -> None:
        """End all faults: partitions, bad links, pauses, bad disks, slow clocks, the epoch store's; start what is down."""
        self.note("run", "calm")
        self.weather.clear()
        self.network.restore()
        for node in self.nodes.values():
            node.calm()
