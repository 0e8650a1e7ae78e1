"""Nodes that are drained and leave the cluster file one after the other while a run goes on; some come back."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Final

from epoch_store.cells import decode_cell
from logdevice_py.core.ids import EVENT_LOG_DELTAS, LogId, ShardId
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from server.simulation.damage import DamageBudget
from server.simulation.machines import SimClient, SimNode, SimNodeState, SimPromise
from tests.simulation.operators import publish

if TYPE_CHECKING:
    from tests.simulation.departures import Departures
    from tests.simulation.workload import Applications

_LOOK_US: Final = 100 * MILLISECOND
_DRAIN_TIMEOUT_US: Final = 15 * SECOND
"""So long a drain is waited for: it may be that a record finds no other place, or that the node is lost for good meanwhile."""
_FIRST_EPOCH_US: Final = 5 * SECOND


class NodeRemovals:
    """Drains nodes as long as the others can do without them, takes out those that are empty, and puts some back."""

    def __init__(self, apps: Applications, departures: Departures, budget: DamageBudget) -> None:
        self._apps = apps
        self._budget = budget
        self._cluster = apps.cluster
        self._departures = departures
        self._rng = rng = random.Random(apps.cluster.rng.getrandbits(64))
        self._at_once = rng.choice([1, 1, 2, 4])
        """How many leave together."""
        self._awaits_settled = rng.random() < 0.5
        """Whether nobody leaves before all nodes are settled. An empty node may leave earlier, too."""
        self._draining: SimNode | None = None
        self._since = 0
        self._leaving: list[SimNode] = []
        """Drained."""
        self._client: SimClient | None = None
        self._is_asking = False
        """Where the event log ends."""

    def start(self) -> None:
        """Begin soon."""
        self._cluster.scheduler.after(self._rng.randrange(5 * SECOND), self._look)
        for log in self._apps.scenario.unused_logs:
            self._cluster.scheduler.after(self._rng.randrange(3 * SECOND), lambda log=log: self._give_first_epoch(log))

    def _is_over(self) -> bool:
        return self._cluster.scheduler.now >= self._apps.scenario.duration

    def _look(self) -> None:
        if not self._is_over():
            self._go_on()
            self._cluster.scheduler.after(_LOOK_US, self._look)

    def _go_on(self) -> None:
        if self._draining is not None and not self._has_drained(self._draining):
            return
        self._leaving = [node for node in self._leaving if not node.retired]
        if len(self._leaving) < self._at_once and (nodes := self._departures.drainable()):
            self._draining, self._since = self._rng.choice(nodes), self._cluster.scheduler.now
            self._departures.drain(self._draining)
            self._apps.operated["remove_drained_nodes"] += 1
        elif self._leaving and not self._is_asking and self._may_leave():
            self._ask_event_log()

    def _ask_event_log(self) -> None:
        """Nodes may not have heard what it says by now: that a shard took records after it was drained, above all. As the product's own operations, this waits for its end."""
        client = self._client = self._client or self._cluster.client()

        def done(promise: SimPromise) -> None:
            self._is_asking = False
            if promise.error is None and not self._is_over() and self._departures.has_heard(promise.result):
                self._leaving = [node for node in self._leaving if not node.retired]
                if self._leaving and self._may_leave():
                    self._take_out(self._leaving)
                    self._leaving = []

        self._is_asking = True
        client.event(lambda now: client.session.sequencers.tail_lsn(EVENT_LOG_DELTAS, SimPromise(done), now))

    def _has_drained(self, node: SimNode) -> bool:
        """Whether it has, or nobody waits for it any more."""
        if self._departures.is_empty(node):
            self._leaving.append(node)
        elif not node.retired and self._cluster.scheduler.now < self._since + _DRAIN_TIMEOUT_US:
            return False
        self._draining = None
        return True

    def _may_leave(self) -> bool:
        if not all(map(self._departures.is_empty, self._leaving)):
            return False
        return not self._awaits_settled or all(map(self._is_settled, self._cluster.nodes.values()))

    def _is_settled(self, node: SimNode) -> bool:
        """What the tables of the node say: it has the cluster file, and no log relies on shards that departed before."""
        if node.retired:
            return True
        root = node.root
        return (
            node.state is SimNodeState.RUNNING
            and root is not None
            and root.config.version == self._cluster.config.version
            and (root.sequencer is None or root.sequencer.idle_logs.departures_handled)
        )

    def _take_out(self, nodes: list[SimNode]) -> None:
        plan, most = copy.deepcopy(self._apps.plan), self._rng.choice([0, SECOND, 5 * SECOND])
        for node in nodes:
            self._cluster.note("run", "a drained node is taken out", node.name)
            plan.remove_node(node.id)
            self._cluster.fault_effects["remove_drained_nodes"] += 1
        publish(self._apps, plan, most, self._rng)
        if self._rng.random() < 0.4:
            self._cluster.scheduler.after(most + self._rng.randrange(1, 5) * SECOND, lambda: self._put_back(nodes[0]))

    def _put_back(self, node: SimNode) -> None:
        """With what it held, with empty disks, or another machine in its place."""
        if self._is_over():
            return
        self._apps.operated["put_node_back"] += 1
        self._cluster.fault_effects["put_node_back"] += 1
        plan, how = copy.deepcopy(self._apps.plan), self._rng.choice(["as it was", "with empty disks", "another one"])
        lent = self._budget.lend(node.disks) if how == "with empty disks" else None
        if how == "with empty disks" and lent is None:
            how = "as it was"  # the metadata logs cannot do without one more shard, not even until it has got back what it held
        self._cluster.note("run", f"a node is put back, {how}", node.name)
        if how == "another one":
            plan.add_node(self._rng)
        else:
            plan.put_back(node.id)
            if lent is not None:
                node.wipe()
                self._await_authority(node, lent)
        publish(self._apps, plan, self._rng.choice([0, SECOND]), self._rng)
        if how == "as it was" and self._rng.random() < 0.7:
            self._cluster.scheduler.after(self._rng.randrange(3 * SECOND), lambda: self._departures.undrain(node))

    def _await_authority(self, node: SimNode, lent: tuple[ShardId, ...]) -> None:
        """The metadata logs have one shard less until the node has got back what it held of them."""
        storage = None if node.root is None else node.root.storage
        if storage and all(machines.shard.metadata_authoritative for machines in storage.shards.values()):
            self._budget.give_back(lent)
            return
        self._cluster.scheduler.after(_LOOK_US, lambda: self._await_authority(node, lent))

    def _give_first_epoch(self, log: LogId) -> None:
        """A client asks for the tail of a log that nobody uses; client and sequencer die as soon as the log has its first epoch."""
        client, until = self._cluster.client(), self._cluster.scheduler.now + _FIRST_EPOCH_US
        client.event(lambda now: client.session.sequencers.tail_lsn(log, SimPromise(lambda promise: None), now))
        self._apps.operated["first_epoch_alone"] += 1
        self._await_first_epoch(log, client, until)

    def _await_first_epoch(self, log: LogId, client: SimClient, until: int) -> None:
        cell = self._cluster.cells.cells.get(f"logs/{log}/sequencer")
        if cell is None and self._cluster.scheduler.now < until:
            self._cluster.scheduler.after(MILLISECOND, lambda: self._await_first_epoch(log, client, until))
            return
        client.kill()
        if cell is None:
            return
        node = self._cluster.machine(EpochMetaData.decode(decode_cell(cell.content)[1]).writer)
        node.crash(machine=False)
        self._cluster.fault_effects["first_epoch_alone"] += 1
        self._cluster.scheduler.after(self._rng.choice([1, 10, 30]) * SECOND // 10, node.start_if_down)
