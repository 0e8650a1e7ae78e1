"""Breaks real machines, and repairs them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from server.dev.zookeeper_server import ZooKeeperServer
from tests.chaos.cluster import ChaosCluster
from tests.chaos.machines import off_loop

Fault = Callable[[], Coroutine[Any, Any, None]]
WIPES_MAX = 1
"""Lost disks are not rebuilt, and the replication property allows for the loss of so many."""


class ChaosNemesis:
    """Causes one fault after the other, some of them on top of each other, until it is cancelled; then call `calm`."""

    def __init__(self, cluster: ChaosCluster, rng: random.Random, *, interval: float, kills_only: bool = False) -> None:
        """
        Args:
            interval: seconds between two faults, on average.
            kills_only: nodes are killed, and nothing else happens.
        """
        self._cluster = cluster
        self._rng = rng
        self._interval = interval
        self._kills_only = kills_only
        self.killed = 0
        """How often a node got SIGKILL."""
        self._wipes = 0
        self._printed: dict[int, int] = {}
        """How much each node had printed when it was started again."""
        self._causing: asyncio.Task[None] | None = None
        self._repairs: set[asyncio.Task[None]] = set()
        self.caused: Counter[str] = Counter()
        self.story: list[str] = []
        """What was done and when, a line each."""

    def faults(self) -> dict[str, Fault]:
        """What this machine allows."""
        faults: dict[str, Fault] = {"kill one": self._kill_one, "kill several": self._kill_several}
        if self._kills_only:
            return faults
        faults |= {
            "pause": self._pause,
            "wipe": self._wipe,
            "kill ZooKeeper": self._kill_zookeeper,
            "freeze ZooKeeper": self._freeze_zookeeper,
        }
        if self._cluster.network is not None:
            faults["cut off a node"] = self._cut_off
            faults["one way"] = self._one_way
            faults["cut off a rack"] = self._cut_off_rack
        if self._cluster.disks:
            faults["disk full"] = self._disk_full
        return faults

    async def run(self) -> None:
        """For ever."""
        faults = self.faults()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            await asyncio.sleep(self._rng.uniform(0.2, 1.8) * self._interval)
            name = self._rng.choice(sorted(faults))
            self.story.append(f"{loop.time() - began:7.2f} s  {name}")
            self.caused[name] += 1
            self._causing = asyncio.create_task(faults[name]())
            await asyncio.shield(self._causing)

    async def calm(self) -> None:
        """Repair everything, once the fault that was begun last is known to have happened."""
        if self._causing is not None:
            await self._causing
        for task in list(self._repairs):
            task.cancel()
        await asyncio.gather(*self._repairs, return_exceptions=True)
        cluster = self._cluster
        await self._calm_network()
        for server in cluster.zookeepers:
            self._start_zookeeper(server)
        for server in cluster.zookeepers:
            await server.until_serving()
        for disk in cluster.disks.values():
            disk.free()
        for node in cluster.nodes:
            if cluster.is_paused(node):
                await cluster.supervisor.resume(node)
            if not cluster.runs(node):
                await cluster.supervisor.start(node)

    async def _calm_network(self) -> None:
        network = self._cluster.network
        if network is not None:
            everybody = [*self._cluster.nodes, -1]
            for source in everybody:
                for target in everybody:
                    if source != target:
                        await off_loop(network.unblock, source, target)

    def _later(self, repair: Fault, *, most: float) -> None:
        async def run() -> None:
            await asyncio.sleep(most * self._rng.random() ** 2)
            await repair()

        task = asyncio.create_task(run())
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    def _running(self) -> list[int]:
        cluster = self._cluster
        return [node for node in cluster.nodes if cluster.runs(node) and not cluster.is_paused(node)]

    def _note(self, text: str) -> None:
        self.story[-1] += f": {text}"

    async def _start(self, node: int) -> None:
        """A node does not start without any room: whoever starts it makes some."""
        if not self._cluster.runs(node):
            if node in self._cluster.disks:
                self._cluster.disks[node].free()
            self._printed[node] = len(self._cluster.printed(node))
            await self._cluster.supervisor.start(node)

    def _serves(self, node: int) -> bool:
        return "INFO serving at" in self._cluster.printed(node)[self._printed.get(node, 0) :]

    async def _kill(self, nodes: list[int]) -> None:
        self._note(", ".join(f"N{node}" for node in nodes))
        await asyncio.gather(*(self._cluster.supervisor.kill(node) for node in nodes))
        self.killed += len(nodes)
        for node in nodes:
            self._later(lambda node=node: self._start(node), most=3)  # type: ignore[misc]

    async def _kill_one(self) -> None:
        if running := self._running():
            await self._kill([self._rng.choice(running)])

    async def _kill_several(self) -> None:
        if running := self._running():
            await self._kill(self._rng.sample(running, self._rng.randint(1, len(running))))

    async def _pause(self) -> None:
        if running := self._running():
            node = self._rng.choice(running)
            self._note(f"N{node}")
            await self._cluster.supervisor.pause(node)

            async def resume() -> None:
                if self._cluster.runs(node):
                    await self._cluster.supervisor.resume(node)

            self._later(resume, most=6)

    async def _wipe(self) -> None:
        running = self._running()
        if self._wipes >= WIPES_MAX or not running:
            return
        self._wipes += 1
        node = self._rng.choice(running)
        self._note(f"N{node}")
        await self._cluster.supervisor.kill(node)
        await self._cluster.wipe(node)
        self._later(lambda: self._start(node), most=3)

    def _start_zookeeper(self, server: ZooKeeperServer) -> None:
        """Whether it serves shows later: one of several does once most of them run."""
        if server.running:
            server.thaw()
        else:
            server.launch()

    async def _break_zookeeper(self, how: Callable[[ZooKeeperServer], None]) -> None:
        running = [server for server in self._cluster.zookeepers if server.running]
        if not running:
            return
        server = self._rng.choice(running)
        self._note(server.address)
        how(server)

        async def repair() -> None:
            self._start_zookeeper(server)

        self._later(repair, most=8)

    async def _kill_zookeeper(self) -> None:
        await self._break_zookeeper(ZooKeeperServer.kill)

    async def _freeze_zookeeper(self) -> None:
        await self._break_zookeeper(ZooKeeperServer.freeze)

    async def _block(self, pairs: list[tuple[int, int]]) -> None:
        network = self._cluster.network
        assert network is not None
        for source, target in pairs:
            await off_loop(network.block, source, target)

        async def repair() -> None:
            for source, target in pairs:
                await off_loop(network.unblock, source, target)

        self._later(repair, most=8)

    async def _cut_off(self) -> None:
        node = self._rng.choice(self._cluster.nodes)
        others = [other for other in self._cluster.nodes if other != node]
        if self._rng.random() < 0.5:
            others.append(-1)
        self._note(f"N{node}{' and from clients' if -1 in others else ''}")
        await self._block([pair for other in others for pair in ((node, other), (other, node))])

    async def _cut_off_rack(self) -> None:
        nodes = self._cluster.supervisor.config.nodes
        rack = self._rng.choice(sorted({str(each.location) for each in nodes.values()}))
        inside = [node for node, each in sorted(nodes.items()) if str(each.location) == rack]
        outside = [node for node in self._cluster.nodes if node not in inside]
        self._note(rack)
        await self._block([pair for one in inside for two in outside for pair in ((one, two), (two, one))])

    async def _one_way(self) -> None:
        source, target = self._rng.sample([*self._cluster.nodes, -1], 2)
        self._note(f"{source} to {target}")
        await self._block([(source, target)])

    async def _disk_full(self) -> None:
        serving = [node for node in self._running() if self._serves(node)]
        if not serving:
            return
        node = self._rng.choice(serving)
        disk = self._cluster.disks[node]
        self._note(f"N{node}")
        await off_loop(disk.fill)

        async def repair() -> None:
            disk.free()

        self._later(repair, most=6)
