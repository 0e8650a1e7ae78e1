"""A development cluster whose regions are played: as far from each other as it was told, and cut off from each other when somebody says so."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.region_network import Distances, ForwardedNetwork, PlayedMachine, RegionNetwork, why_no_regions
from server.dev.supervisor import CommandError, NothingThereError, Supervisor
from server.dev.zookeeper_server import Ensemble, ZooKeeperServer, ZooKeeperUnavailableError

_HERE: Final = 253
"""The number of this machine's own address."""
_GUESTS: Final = 252
"""That of the first machine of somebody who uses the cluster from a region; further ones count down."""
_ZOOKEEPER: Final = layout.REGION_NODES_MAX
"""That of the first region's ZooKeeper server."""
_ZOOKEEPER_RETRANSMISSIONS: Final = 3
"""Of a server of ZooKeeper: it notices within three seconds that another one is cut off. On a connection that stays, TCP tries again only after as long as nothing
passed, and the server is away for twice as long as its region."""
REGIONS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class PlayedRegions:
    """What is played, besides what the cluster file tells."""

    distances: Distances
    servers: tuple[str, ...] = ()
    """The regions in which ZooKeeper's servers stand that the cluster brings along; none: it uses others."""
    forwarded: bool = False
    """Connections are forwarded, not packets: there are no namespaces, and ZooKeeper's servers stand nowhere."""

    def host_of(self, directory: Path, node: NodeId) -> str:
        """The address of a node."""
        return (layout.node_host if self.forwarded else layout.region_host)(directory, node)

    def write(self, directory: Path) -> None:
        """For the next start."""
        told = {
            "rtt": str(self.distances),
            "bandwidth": self.distances.bandwidth_text,
            "zookeeper": list(self.servers),
            "forwarded": self.forwarded,
        }
        layout.regions_file(directory).write_text(json.dumps(told) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Of the cluster in a directory; None: its regions are not played.

        Raises:
            ValueError: somebody made the file unreadable.
        """
        path = layout.regions_file(directory)
        if not path.exists():
            return None
        try:
            told = json.loads(path.read_text())
            distances = Distances.parse(told["rtt"], told["bandwidth"])
            return cls(distances, tuple(told["zookeeper"]), bool(told.get("forwarded")))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} does not tell what regions are played: {error}") from None


def zookeeper_url(directory: Path, regions: Sequence[str]) -> str:
    """Of an ensemble with a server in each region."""
    return "zookeeper://" + ",".join(f"{host}:{layout.ZOOKEEPER_PORT}" for host in _server_hosts(directory, regions))


def _server_hosts(directory: Path, regions: Sequence[str]) -> list[str]:
    return [layout.region_host(directory, _ZOOKEEPER + number) for number in range(len(regions))]


def regions_of(config: ClusterConfig) -> list[str]:
    """In the order of their first nodes."""
    return list(dict.fromkeys(config.nodes[node].location.region for node in sorted(config.nodes)))


class RegionSupervisor(Supervisor):
    """Starts each node in a namespace of its own, and obeys commands about regions."""

    def __init__(
        self, directory: Path, config: ClusterConfig, played: PlayedRegions, *, here: str | None = None
    ) -> None:
        """
        Args:
            here: the region of whoever is on this machine itself; None: the first one.
        """
        super().__init__(directory, config)
        self._played = played
        self.network = (ForwardedNetwork if played.forwarded else RegionNetwork)(played.distances)
        self._here = here
        self._server_regions = played.servers
        self._servers: dict[str, ZooKeeperServer] = {}
        """Of ZooKeeper, by region."""
        self._guests = 0

    @property
    def zookeeper_servers(self) -> dict[str, ZooKeeperServer]:
        """Those of the cluster's own, by region."""
        return dict(self._servers)

    def host_of(self, node: NodeId) -> str:
        return self._played.host_of(self.directory, node)

    def command(self, node: NodeId) -> list[str]:
        if self._played.forwarded:
            return [*super().command(node), "--stand-at", layout.standing_host(self.directory, node)]
        return ["ip", "netns", "exec", self._machine_name(f"n{node}"), *super().command(node)]

    def _machine_name(self, machine: str) -> str:
        return layout.machine_name(self.directory, machine)

    def _machine(self, node: NodeId) -> PlayedMachine:
        member = self.config.nodes[node]
        stands_at = layout.standing_host(self.directory, node) if self._played.forwarded else ""
        return PlayedMachine(self._machine_name(f"n{node}"), member.host, member.location.region, stands_at=stands_at)

    async def start_all(self) -> None:
        """Start every node of the cluster, and ZooKeeper's servers if they are of its own.

        Raises:
            CommandError: regions cannot be played here, or ZooKeeper not be started.
        """
        here = layout.region_host(self.directory, _HERE)
        machines = [
            PlayedMachine(self._machine_name("here"), here, self._here or regions_of(self.config)[0], is_here=True)
        ]
        machines += [self._machine(node) for node in sorted(self.config.nodes)]
        hosts = _server_hosts(self.directory, self._server_regions)
        machines += [
            PlayedMachine(
                self._machine_name(f"z{number}"), hosts[number], region, retransmissions=_ZOOKEEPER_RETRANSMISSIONS
            )
            for number, region in enumerate(self._server_regions)
        ]
        try:
            await asyncio.to_thread(self.network.open, machines)
        except (OSError, subprocess.CalledProcessError) as error:
            told = None if self._played.forwarded else await asyncio.to_thread(why_no_regions)
            raise CommandError(told or f"the network of regions cannot be made: {error}") from None
        await self._start_servers(hosts)
        await super().start_all()

    async def _start_servers(self, hosts: Sequence[str]) -> None:
        try:
            for number, region in enumerate(self._server_regions):
                server = self._servers[region] = ZooKeeperServer(
                    layout.zookeeper_directory(self.directory) / region,
                    host=hosts[number],
                    port=layout.ZOOKEEPER_PORT,
                    ensemble=Ensemble(hosts, number),
                    namespace=self._machine_name(f"z{number}"),
                )
                server.launch()
            await self.until_servers_serve()
        except ZooKeeperUnavailableError as error:
            raise CommandError(str(error)) from None

    def server_addresses(self) -> dict[str, tuple[str, int]]:
        """Where ZooKeeper's servers listen, by region."""
        return {region: (server.host, server.port) for region, server in self._servers.items()}

    async def restart_server(self, region: str) -> None:
        """Kill a region's ZooKeeper server and start it again; if it was the leader, another one is then."""
        server = self._servers[region]
        await asyncio.to_thread(server.kill)
        server.launch()
        await self.until_servers_serve()

    async def until_servers_serve(self) -> None:
        """Wait until all of ZooKeeper's servers stand in for each other: one that was cut off is back a while after the packets are.

        Raises:
            ZooKeeperUnavailableError: one does not serve.
        """
        for server in self._servers.values():
            await server.until_serving()

    async def stop_all(self) -> None:
        """Stop every node in order, and take the network away."""
        try:
            await super().stop_all()
        finally:
            for server in self._servers.values():
                server.kill()
            await asyncio.to_thread(self.network.close)

    async def start(self, node: int) -> str:
        """Start a node's process, on a machine of its own."""
        known = NodeId(node)
        if known in self.config.nodes and not self.network.has(self._machine_name(f"n{node}")):
            await asyncio.to_thread(self.network.add, self._machine(known))
        return await super().start(node)

    async def add_guest(self, region: str) -> str:
        """A further machine in a region, without a node, for who uses the cluster from there; the name of its namespace."""
        name = self._machine_name(f"g{self._guests}")
        host = layout.region_host(self.directory, _GUESTS - self._guests)
        self._guests += 1
        await asyncio.to_thread(self.network.add, PlayedMachine(name, host, region))
        return name

    async def in_region(self, command: str, region: str) -> str:
        """Also to the region's ZooKeeper server."""
        server = self._servers.get(region)
        if server is not None and command in ("kill", "stop"):
            await asyncio.to_thread(server.kill)
        elif server is not None and command == "start" and not server.running:
            server.launch()
        elif server is not None and command == "pause":
            server.freeze()
        elif server is not None and command == "resume":
            server.thaw()
        return await super().in_region(command, region)

    async def cut_off(self, region: str, target: str | None = None) -> str:
        """Nothing passes between a region and the others; or from it to another one, while the other way it does."""
        try:
            if target is None:
                await asyncio.to_thread(self.network.cut_off, region)
                return f"{region} is cut off"
            await asyncio.to_thread(self.network.cut, [(region, target)])
            return f"nothing passes from {region} to {target}"
        except ValueError as error:
            raise NothingThereError(str(error)) from None

    async def reconnect(self, region: str) -> str:
        """Everything passes again between a region and the others."""
        try:
            await asyncio.to_thread(self.network.reconnect, region)
        except ValueError as error:
            raise NothingThereError(str(error)) from None
        return f"{region} is reachable again"
