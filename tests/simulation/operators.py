"""Applications that operate the cluster: trim, move logs to other epochs, change the cluster file."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from server.simulation.machines import SimMachines, SimNode, SimNodeState, SimPromise
from tests.simulation.application import Application
from tests.simulation.cluster_plan import ClusterPlan

if TYPE_CHECKING:
    pass


class Trimmer(Application):
    """Trims a log to an entry that was acknowledged."""

    def act(self, now: Micros) -> None:
        log = self.pick_log()
        history = self.run.histories[log]
        known = [position for position, payload in history.at.items() if position[0] <= self.floors(log)]
        if not known:
            return
        lsn = self.rng.choice(known)[0]

        def shards(intervals: tuple[EpochInterval, ...], at: Micros, certain: Epoch) -> None:
            wanted: set[ShardId] = {shard for interval in intervals for shard in interval.shards}
            present = sorted(wanted & set(self.client.session.config.storage_shards()))
            if not self.alive or not present:
                return
            history.trim_asked = max(history.trim_asked, lsn)
            model = self.run.invariants.logs[log]
            model.trim_asked = max(model.trim_asked, lsn)
            self.client.session.trim(log, lsn, present, SimPromise(done), at, 2 * SECOND)

        def done(promise: SimPromise) -> None:
            assert promise.error is None or isinstance(promise.error, LogDeviceError), promise.error
            if promise.error is None:
                self.run.trims += 1

        self.client.session.read_history(log, now, shards)

    def floors(self, log: LogId) -> int:
        """Up to here everything is released: no more than a part of that is trimmed."""
        return self.run.invariants.logs[log].released


class EpochMover(Application):
    """Asks for a sequencer of a later epoch than the one in use, at times for one that was never given."""

    def act(self, now: Micros) -> None:
        log = self.pick_log()
        session = self.client.session
        wanted = Epoch(max(self.run.invariants.logs[log].epochs, default=0) + (5 if self.rng.random() < 0.02 else 1))
        session.questions.ask(log, now, lambda answer, at: None, min_epoch=wanted, deadline=now + SECOND)


class Configurator(Application):
    """Changes the cluster file; every process gets the new version in its own time."""

    def act(self, now: Micros) -> None:
        plan = copy.deepcopy(self.run.plan)
        if not self._remove(plan):
            self.rng.choice(plan.changes())(self.rng)
        self.publish(plan, self.rng.choice([0, SECOND, 5 * SECOND]))

    def _remove(self, plan: ClusterPlan) -> bool:
        """Take out a node that was drained, or one that is down: a copy less of what it holds, which has to be tolerable. Drain one to be taken out
        next time, if none is."""
        if self.rng.random() < 0.4:
            return False
        down = [number for number, node in self.cluster.nodes.items() if node.state is SimNodeState.DOWN]
        for number in down:
            if number in plan.nodes and self.rng.random() < 0.2:
                plan.nodes[number].state = "disabled"
        removable = plan.removable()
        if not removable:
            plan.drain(self.rng)
            return True
        number = self.rng.choice(removable)
        if not self.run.take_out(self.cluster.nodes[NodeId(number)].disks):
            return False
        self.cluster.note("run", "a node is taken out", number)
        plan.remove_node(number)
        return True

    def calm(self) -> None:
        """All nodes take records again, and everybody has the newest file."""
        plan = copy.deepcopy(self.run.plan)
        plan.undrain(self.rng)
        plan.absent.clear()
        self.publish(plan, 0)

    def publish(self, plan: ClusterPlan, most: int) -> None:
        """Make it the cluster file, which everybody has within so many microseconds."""
        plan.version += 1
        self.run.plan = plan
        config = load_cluster(plan.render())
        self.cluster.note("run", "cluster file", config.version)
        self.cluster.config = config
        for number in list(self.cluster.nodes):
            if number not in config.nodes:
                self._end(self.cluster.retire(number), most)
        for number in config.nodes:
            if number not in self.cluster.nodes:
                self.cluster.nodes[number] = SimNode(self.cluster, NodeId(number))
                self.cluster.nodes[number].start()
        for node in self.cluster.nodes.values():
            self.cluster.scheduler.after(
                self.rng.randrange(most + 1), lambda node=node: give_to_node(self.cluster, node, config)
            )
        for client in self.cluster.clients:
            self.cluster.scheduler.after(
                self.rng.randrange(most + 1),
                lambda client=client: client.event(lambda now: client.session.set_config(config, now)),
            )

    def _end(self, node: SimNode, most: int) -> None:
        """End a process that nobody needs any more; it may learn before that it is not in the file."""
        if self.rng.random() < 0.5:
            self.cluster.scheduler.after(
                self.rng.randrange(most + 1), lambda: give_to_node(self.cluster, node, self.cluster.config)
            )
        self.cluster.scheduler.after(most, lambda: node.crash(machine=True))


class LogRemover(Configurator):
    """Takes logs out of the cluster file, and puts them back. The first log stays."""

    def act(self, now: Micros) -> None:
        plan = copy.deepcopy(self.run.plan)
        if plan.absent and self.rng.random() < 0.6:
            plan.absent.remove(self.rng.choice(sorted(plan.absent)))
        else:
            plan.absent.add(self.rng.choice(self.run.scenario.logs[1:]))
        self.publish(plan, self.rng.choice([0, SECOND // 10, SECOND]))


def give_to_node(cluster: SimMachines, node: SimNode, config: ClusterConfig) -> None:
    """Hand a cluster file to a node that runs; one that starts later, or stands still, takes the newest by itself."""
    root, paused = node.root, node.state is SimNodeState.PAUSED
    if node.process is not None and root is not None:
        node.process.event(lambda now: root.on_config(cluster.config if paused else config, now))
