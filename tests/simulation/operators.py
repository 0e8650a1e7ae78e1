"""Applications that operate the cluster: trim, move logs to other epochs, change the cluster file."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Final

from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.moves import check_moves
from server.simulation.faults.catalog import CATALOG
from server.simulation.machines import SimMachines, SimNode, SimNodeState, SimPromise
from tests.simulation.application import Application
from tests.simulation.cluster_plan import ClusterPlan

if TYPE_CHECKING:
    from tests.simulation.workload import Applications

OPERATIONS: Final = {
    "move_nodes": "nodes are moved to other racks",
    "refused_move": "nodes that keep metadata logs are to be moved, which is refused",
    "remove_drained_nodes": "a node is drained and leaves the cluster file",
    "put_node_back": "a node that left is in the file again, or another one in its place",
    "first_epoch_alone": "the sequencer of a log that nobody uses ends as soon as the log has its first epoch",
}
"""What operators do to nodes in some runs. Each counts as a kind of fault."""


def kinds_of_faults() -> dict[str, str]:
    """All of them, those that operators bring about included, each with the name under which its effects are counted."""
    return {kind.name: kind.counted_as for kind in CATALOG.values()} | {name: name for name in OPERATIONS}


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

        self.client.session.histories.read(log, now, shards)

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
        publish(self.run, plan, self.rng.choice([0, SECOND, 5 * SECOND]), self.rng)

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
        publish(self.run, plan, 0, self.rng)


class LogRemover(Configurator):
    """Takes logs out of the cluster file, and puts them back. The first log stays."""

    def act(self, now: Micros) -> None:
        plan = copy.deepcopy(self.run.plan)
        if plan.absent and self.rng.random() < 0.6:
            plan.absent.remove(self.rng.choice(sorted(plan.absent)))
        else:
            plan.absent.add(self.rng.choice(self.run.scenario.logs[1:]))
        publish(self.run, plan, self.rng.choice([0, SECOND // 10, SECOND]), self.rng)


class NodeMover(Configurator):
    """Moves nodes to other racks, one alone or two that change places, whether they run or not."""

    def act(self, now: Micros) -> None:
        before, plan = self.cluster.config, copy.deepcopy(self.run.plan)
        moved = self.rng.sample(list(plan.nodes), self.rng.choice([1, 1, 2]))
        racks = [plan.nodes[number].rack for number in moved]
        becomes = racks[::-1] if len(racks) > 1 else [self.rng.randrange(plan.racks)]
        for number, rack in zip(moved, becomes, strict=True):
            plan.nodes[number].rack = rack
        if racks == becomes or not plan.holds_copies({node_of(shard) for shard in self.run.departed()}):
            return
        self.run.operated["move_nodes"] += 1
        try:
            check_moves(before, load_cluster(plan.render()))
        except LogDeviceError as refusal:
            self.cluster.note("run", "a move is refused", refusal)
            self.run.operated["refused_move"] += 1
            self.cluster.fault_effects["refused_move"] += 1
            return
        if self.run.move(shard for number in moved for shard in self.cluster.nodes[NodeId(number)].disks):
            self.cluster.note("run", "nodes are moved", list(zip(moved, becomes, strict=True)))
            self.cluster.fault_effects["move_nodes"] += 1
            publish(self.run, plan, self.rng.choice([0, SECOND, 5 * SECOND]), self.rng)


def publish(run: Applications, plan: ClusterPlan, most: int, rng: random.Random) -> None:
    """Make it the cluster file, which everybody has within so many microseconds."""
    cluster = run.cluster
    plan.version += 1
    run.plan = plan
    config = load_cluster(plan.render())
    cluster.note("run", "cluster file", config.version)
    cluster.config = config
    for number in list(cluster.nodes):
        if number not in config.nodes:
            _end(cluster, cluster.retire(number), most, rng)
    for number in config.nodes:
        if number not in cluster.nodes:
            if cluster.put_back(number) is None:
                cluster.nodes[number] = SimNode(cluster, NodeId(number))
            cluster.nodes[number].start()
    for node in cluster.nodes.values():
        cluster.scheduler.after(rng.randrange(most + 1), lambda node=node: node.take_config(config))
    for client in cluster.clients:
        cluster.scheduler.after(
            rng.randrange(most + 1),
            lambda client=client: client.take_config(config),
        )


def _end(cluster: SimMachines, node: SimNode, most: int, rng: random.Random) -> None:
    """End a process that nobody needs any more; it may learn before that it is not in the file."""
    if rng.random() < 0.5:
        cluster.scheduler.after(rng.randrange(most + 1), lambda: node.take_config(cluster.config))
    cluster.scheduler.after(most, lambda: node.crash(machine=True))
