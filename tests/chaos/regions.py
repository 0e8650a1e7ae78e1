"""Chaos between regions: a cluster of real processes that stand in several, with a ZooKeeper server in each, and what happens to regions and to the routes between them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Final

from logdevice_py.config.location import Areas
from logdevice_py.config.logs import Durability, LogTree
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.region_cluster import PlayedRegions, RegionSupervisor, zookeeper_url
from server.dev.region_network import Distances
from server.dev.supervisor import write_cluster_file
from storage_node.log_store.settings import STORE_KINDS
from tests.chaos.cluster import ChaosCluster, small_disks, with_small_extents
from tests.chaos.machines import SmallDisk, off_loop
from tests.chaos.nemesis import ChaosNemesis, Fault
from tests.chaos.places import HERE, FarPlace

NODES_OF_A_REGION: Final = 2
RTT: Final = "40ms"
_SLOW: Final = ("5ms", "150ms", "400ms", "1s")
"""What a route may be for a while, there and back."""
_START_SECONDS: Final = 120.0


class RegionChaosCluster(ChaosCluster):
    """Nodes in regions. Somebody uses them from the first and from the second one."""

    supervisor: RegionSupervisor

    def __init__(
        self, supervisor: RegionSupervisor, disks: dict[int, SmallDisk], regions: Sequence[str], far: FarPlace
    ) -> None:
        super().__init__(supervisor, disks, [*supervisor.zookeeper_servers.values()], places=[HERE, far])
        self.regions = regions
        self.routes = supervisor.network


class RegionNemesis(ChaosNemesis):
    """Also takes regions away, and cuts and lengthens the routes between them."""

    _cluster: RegionChaosCluster

    def faults(self) -> dict[str, Fault]:
        faults = {**super().faults(), "kill a region": self._kill_region}
        if self._kills_only:
            return faults
        return faults | {
            "cut off a region": self._cut_off_region,
            "cut off a region one way": self._cut_off_one_way,
            "cut a route": self._cut_route,
            "cut a route one way": self._cut_route_one_way,
            "reconnect": self._reconnect,
            "slow route": self._slow_route,
        }

    async def _calm_network(self) -> None:
        await off_loop(self._cluster.routes.reconnect)
        await off_loop(self._cluster.routes.change_distances, Distances.parse(RTT))

    def _region(self) -> str:
        return self._rng.choice(self._cluster.regions)

    async def _kill_region(self) -> None:
        """Its nodes and its ZooKeeper server at once; they come back at once, too."""
        cluster, region = self._cluster, self._region()
        members = cluster.supervisor.config.nodes
        nodes = [node for node in cluster.nodes if members[node].location.region == region and cluster.runs(node)]  # type: ignore[index]
        server = cluster.supervisor.zookeeper_servers[region]
        self._note(region)
        server.kill()
        await asyncio.gather(*(cluster.supervisor.kill(node) for node in nodes))
        self.killed += len(nodes)

        async def repair() -> None:
            if not server.running:
                server.launch()
            for node in nodes:
                await self._start(node)

        self._later(repair, most=8)

    async def _cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        cut = list(pairs)
        await off_loop(self._cluster.routes.cut, cut)

        async def repair() -> None:
            await off_loop(self._cluster.routes.repair, cut)

        self._later(repair, most=10)

    async def _cut_off_region(self) -> None:
        region = self._region()
        self._note(region)
        await self._cut(pair for pair in permutations(self._cluster.regions, 2) if region in pair)

    async def _cut_off_one_way(self) -> None:
        """It is heard and hears nobody, or the other way round."""
        region, place = self._region(), self._rng.randrange(2)
        self._note(f"{region} {('is not heard', 'hears nobody')[place]}")
        await self._cut(pair for pair in permutations(self._cluster.regions, 2) if pair[place] == region)

    async def _cut_route(self) -> None:
        one, other = self._rng.sample(self._cluster.regions, 2)
        self._note(f"{one} and {other}")
        await self._cut([(one, other), (other, one)])

    async def _cut_route_one_way(self) -> None:
        one, other = self._rng.sample(self._cluster.regions, 2)
        self._note(f"{one} to {other}")
        await self._cut([(one, other)])

    async def _reconnect(self) -> None:
        region = self._region()
        self._note(region)
        await off_loop(self._cluster.routes.reconnect, region)

    async def _slow_route(self) -> None:
        one, other = self._rng.sample(self._cluster.regions, 2)
        rtt = self._rng.choice(_SLOW)
        self._note(f"{one} and {other}, {rtt}")
        await off_loop(self._cluster.routes.change_distances, Distances.parse(f"{RTT},{one}-{other}:{rtt}"))

        async def repair() -> None:
            await off_loop(self._cluster.routes.change_distances, Distances.parse(RTT))

        self._later(repair, most=8)


@asynccontextmanager
async def region_chaos_cluster(
    directory: Path, regions: Sequence[str], *, logs: int = 3, store: str = STORE_KINDS[0]
) -> AsyncIterator[RegionChaosCluster]:
    """A cluster whose logs are writable, each with its sequencers in another region. Everything is gone afterwards.

    Raises:
        CommandError: this process may not play regions, or there is no Java.
    """
    config = make_config(
        directory,
        nodes=NODES_OF_A_REGION * len(regions),
        logs=logs,
        replicate="region:2,node:3",
        racks=NODES_OF_A_REGION,
        epoch_store=zookeeper_url(directory, regions),
        durability=Durability.SYNC,
        store=store,
        regions=regions,
    )
    groups = [
        (f"/log{log}", log, log, {"sequencer_affinity": Areas.parse(f"{regions[log % len(regions)]}....")})
        for log in range(1, logs + 1)
    ]
    config = dataclasses.replace(config, logs=LogTree.build(defaults=config.logs.defaults, groups=groups))
    config = with_small_extents(config, store)
    async with small_disks(directory, config.nodes) as disks:
        supervisor = RegionSupervisor(directory, config, PlayedRegions(Distances.parse(RTT), tuple(regions)))
        write_cluster_file(directory, config)
        await supervisor.listen()
        far: FarPlace | None = None
        try:
            await supervisor.start_all()
            far = FarPlace(regions[1], await supervisor.add_guest(regions[1]), f"{regions[1]}....")
            far.open()
            access = supervisor.admin_access
            await wait_until_acquainted(config, supervisor.running, timeout=_START_SECONDS, access=access)
            await wait_until_writable(layout.cluster_file(directory), timeout=_START_SECONDS)
            yield RegionChaosCluster(supervisor, dict(disks), regions, far)
        finally:
            if far is not None:
                far.close()
            await asyncio.shield(supervisor.stop_all())
