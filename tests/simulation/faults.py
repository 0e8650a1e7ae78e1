"""Breaks things, and mends them."""

from __future__ import annotations

import random
from collections.abc import Callable

from logdevice_py.core.units import MILLISECOND, SECOND
from server.sim_cluster import SimCluster, SimNode, SimNodeState
from tests.simulation.scenario import Scenario
from tests.simulation.workload import Applications


class Nemesis:
    """Causes the faults of a scenario at random times until `stop`."""

    def __init__(self, scenario: Scenario, cluster: SimCluster, apps: Applications, rng: random.Random) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._apps = apps
        self._rng = rng
        self._wipes = 0
        self._stopped = False
        self.caused: dict[str, int] = {}

    def start(self) -> None:
        """Begin."""
        if self._scenario.faults:
            self._cluster.scheduler.after(self._interval(), self._cause)

    def stop(self) -> None:
        """Cause no more, and mend everything."""
        self._stopped = True
        self._cluster.network.settings.slow_probability = min(self._scenario.network.slow_probability, 0.01)
        self._cluster.calm()

    def _interval(self) -> int:
        return 1 + self._rng.randrange(2 * self._scenario.fault_interval)

    def _cause(self) -> None:
        if self._stopped:
            return
        kind = self._rng.choice(self._scenario.faults)
        self.caused[kind] = self.caused.get(kind, 0) + 1
        self._cluster.note("fault", kind)
        action: Callable[[], None] = getattr(self, "_" + kind)
        action()
        self._cluster.scheduler.after(self._interval(), self._cause)

    def _later(self, action: Callable[[], None], *, most: int = 5 * SECOND) -> None:
        """Mend something after a while, rather soon than late."""

        def run() -> None:
            if not self._stopped:
                action()

        delay = int(most * self._rng.random() ** 2) + self._rng.choice([0, 10, 1000]) * MILLISECOND
        self._cluster.scheduler.after(delay, run)

    def _node(self) -> SimNode:
        return self._rng.choice(list(self._cluster.nodes.values()))

    def _restart(self, node: SimNode) -> None:
        if node.state is SimNodeState.DOWN:
            node.start()

    # Processes

    def _crash_process(self) -> None:
        node = self._node()
        node.crash(machine=False)
        self._later(lambda: self._restart(node))

    def _crash_machine(self) -> None:
        node = self._node()
        node.crash(machine=True)
        self._later(lambda: self._restart(node))

    def _crash_all(self) -> None:
        machine = self._rng.random() < 0.5
        for node in self._cluster.nodes.values():
            node.crash(machine=machine)
            self._later(lambda node=node: self._restart(node), most=SECOND)  # type: ignore[misc]

    def _pause(self) -> None:
        node = self._node()
        node.pause()
        self._later(node.resume)

    def _wipe(self) -> None:
        if self._wipes >= self._scenario.wipes_max:
            return
        node = self._node()
        if node.lost_data:
            return
        self._wipes += 1
        node.crash(machine=True)
        node.wipe()
        self._later(lambda: self._restart(node))

    def _kill_client(self) -> None:
        self._apps.kill_one()

    def _wall_clock_jump(self) -> None:
        node = self._node()
        node.clock.skew += self._rng.randrange(20 * SECOND) - 10 * SECOND

    # Network

    def _block(self, pairs: list[tuple[int, int]]) -> None:
        network = self._cluster.network
        for source, target in pairs:
            network.block(source, target)

        def mend() -> None:
            for source, target in pairs:
                network.unblock(source, target)

        self._later(mend, most=self._rng.choice([2, 10, 40]) * SECOND)

    def _partition_node(self) -> None:
        """Cut one node off from the other nodes, and perhaps from clients."""
        node = self._node().id
        others: list[int] = [other for other in self._cluster.nodes if other != node]
        if self._rng.random() < 0.5:
            others += [client.address for client in self._cluster.clients]
        self._block([pair for other in others for pair in ((node, other), (other, node))])

    def _partition_one_way(self) -> None:
        one, two = self._rng.sample(list(self._cluster.nodes), 2)
        self._block([(one, two)])

    def _partition_client(self) -> None:
        client = self._rng.choice(self._cluster.clients).address
        node = self._node().id
        self._block([(client, node), (node, client)])

    def _break_connection(self) -> None:
        ends = self._cluster.network.open_ends()
        if ends:
            for _ in range(self._rng.choice([1, 1, 3])):
                self._cluster.network.break_connection(self._rng.choice(ends))

    def _slow_network(self) -> None:
        settings = self._cluster.network.settings
        before = settings.slow_probability
        settings.slow_probability = 0.5

        def mend() -> None:
            settings.slow_probability = before

        self._later(mend)

    # Disks and the epoch store

    def _slow_disk(self) -> None:
        node = self._node()
        node.disk_settings.sync_max = self._rng.choice([50 * MILLISECOND, SECOND, 5 * SECOND])

        def mend() -> None:
            node.disk_settings.sync_max = 2 * MILLISECOND

        self._later(mend)

    def _overloaded_disk(self) -> None:
        for disk in self._node().disks.values():
            disk.overloaded = True

            def mend(disk=disk) -> None:  # type: ignore[no-untyped-def]
                disk.overloaded = False

            self._later(mend)

    def _epoch_store_away(self) -> None:
        weather = self._cluster.weather
        weather.refuse = self._rng.choice([0.5, 1.0])

        def mend() -> None:
            weather.refuse = 0.0

        self._later(mend)

    def _epoch_store_forgetful(self) -> None:
        weather = self._cluster.weather
        weather.lose_answer, weather.expire = 0.3, 0.3
        weather.delay_max = self._rng.choice([5 * MILLISECOND, 500 * MILLISECOND])

        def mend() -> None:
            weather.lose_answer = weather.expire = 0.0
            weather.delay_max = 5 * MILLISECOND

        self._later(mend)
