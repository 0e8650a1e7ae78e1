"""Which nodes of the cluster a client reaches, in words: what people want to know while nothing happens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import TRAITS, LogDeviceError, Status


@dataclass(frozen=True, slots=True)
class Connectivity:
    """Of one client at one moment."""

    file: str
    """How the cluster file is called."""
    nodes: Collection[NodeId]
    """All nodes of the file."""
    connected: Collection[NodeId]
    troubles: Mapping[NodeId, LogDeviceError]
    """What came of the last try to reach each other node; nodes that were not tried are not in it."""

    def __str__(self) -> str:
        if not self.connected:
            if not self.troubles:
                return f"no node of {self.file} has answered yet"
            tried = f"{len(self.troubles)} of {len(self.nodes)} addresses tried"
            return f"no node of {self.file} answers ({tried}: {self._grouped()})"
        text = f"connected to {_names(self.connected)} of {len(self.nodes)} nodes"
        return f"{text} ({self._grouped()})" if self.troubles else text

    def _grouped(self) -> str:
        nodes: dict[str, list[NodeId]] = {}
        for node, error in sorted(self.troubles.items()):
            nodes.setdefault(error.detail, []).append(node)
        return "; ".join(f"{_names(group)}: {detail}" for detail, group in nodes.items())

    def explain(self, error: LogDeviceError) -> str:
        """The detail of the error, with what its status means unless that is in it, and whom the client reaches."""
        if not self.connected and all(node in self.troubles for node in self.nodes):
            # then what became of each try, which the rest of the detail tells, is the same again
            return f"{error.detail.partition('; ')[0]}: {self}" if error.detail else str(self)
        meaning = TRAITS[error.status].meaning
        why = f"{meaning}; {self}" if self.connected and meaning not in error.detail else str(self)
        return f"{error.detail}: {why}" if error.detail else why

    def wrong_cluster(self) -> LogDeviceError | None:
        """No node can be reached, and one that answers belongs to another cluster, does not let this client in, or speaks no version of the protocol that
        this program speaks: waiting is of no use.

        None while any node is connected or was not tried: one wrong address in the file is not the whole cluster.
        """
        if self.connected or any(node not in self.troubles for node in self.nodes):
            return None
        for node, error in sorted(self.troubles.items()):
            if error.status is Status.PROTO:
                return LogDeviceError(
                    error.status, f"no node of {self.file} speaks with this program: N{node}: {error.detail}"
                )
            if error.status is Status.ACCESS:
                return LogDeviceError(
                    error.status, f"no node of {self.file} lets this client in: N{node}: {error.detail}"
                )
            if error.status is Status.INVALID_CLUSTER:
                return LogDeviceError(
                    error.status, f"{self.file} is not the file of the cluster that answers: N{node}: {error.detail}"
                )
        return None


def _names(nodes: Collection[NodeId]) -> str:
    return ", ".join(f"N{node}" for node in sorted(nodes))
