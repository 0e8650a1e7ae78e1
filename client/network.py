"""What runs the machines of a client: sockets in production, simulated connections under virtual time elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from client.links import Links
from client.session import ClientSession
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId
from logdevice_py.core.machine import Rng, TimerQueue
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMachines:
    """The machines of one client, and whom to tell what concerns all of them."""

    session: ClientSession
    links: Links
    timers: TimerQueue
    rng: Rng
    config: ClusterConfig
    """The first version of the cluster file."""
    name: str
    """How nodes call the client in their logs."""
    on_crash: Callable[[BaseException], None]
    """An exception left a machine: our own bug."""
    on_config_version: Callable[[int], None]
    """A node has this version of the cluster file."""
    identity: Any = None
    """How the client proves who it is; what connects it knows its kind."""
    cluster_file: Path | None = None
    """Where the cluster file is, if there is one."""


class ClientNetwork(Protocol):
    """Hands events to a client's machines, runs their effects, and connects them with nodes."""

    def now(self) -> Micros:
        """The monotonic clock of the machines."""

    def start(self) -> None:
        """Bind to the running loop. Connections are made when they are needed."""

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Hand one event to the machines: ``handler(now)`` calls one of their methods, then a turn ends."""

    def set_config_version(self, version: int) -> None:
        """The version of the cluster file that nodes are told of."""

    def troubles(self) -> Mapping[NodeId, LogDeviceError]:
        """Nodes that the last try did not reach, and why."""

    def stop(self) -> None:
        """No event reaches the machines any more."""

    async def close(self) -> None:
        """Disconnect; call `stop` before."""


MakeNetwork = Callable[[ClientMachines], ClientNetwork]
