"""What kinds of faults there are, and what a fault has in its hands."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from logdevice_py.core.ids import LogId
from logdevice_py.core.units import MILLISECOND, SECOND
from server.simulation.damage import DamageBudget
from server.simulation.machines import SimMachines, SimNode, SimNodeState


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One way in which things go wrong."""

    name: str
    text: str
    cause: Callable[[FaultInstance], None]
    destroys: bool
    """It destroys data, within the budget."""
    silent: bool
    """What it destroys is missed by nobody, the shard itself included."""
    counted_as: str
    """Under which name `SimMachines.fault_effects` counts what it did to somebody."""
    minutes: bool
    """It only means something in a run that lasts minutes."""
    hostile: bool
    """Somebody sends what no process of the cluster sends. Which runs have such a peer is drawn apart from all else."""
    regional: bool = False
    """It only means something where nodes stand in several regions."""


CATALOG: dict[str, FaultKind] = {}
"""All kinds, in a fixed order."""


def fault(
    text: str,
    *,
    destroys: bool = False,
    silent: bool = False,
    minutes: bool = False,
    hostile: bool = False,
    regional: bool = False,
    counted_as: str = "",
) -> Callable[[Callable[[FaultInstance], None]], Callable[[FaultInstance], None]]:
    """Make a function a kind of fault; its name is the kind's."""

    def register(cause: Callable[[FaultInstance], None]) -> Callable[[FaultInstance], None]:
        name = cause.__name__
        assert name not in CATALOG, name
        CATALOG[name] = FaultKind(name, text, cause, destroys, silent, counted_as or name, minutes, hostile, regional)
        return cause

    return register


@dataclass(slots=True, eq=False)
class FaultInstance:
    """One fault of a run. Whatever it draws comes from its own generator, so that leaving out others does not change it."""

    index: int
    at: int
    """When it happens, in microseconds of true time."""
    kind: str
    rng: random.Random
    cluster: SimMachines
    kill_client: Callable[[], None]
    """Kill a client process of the applications, and let another one begin."""
    budget: DamageBudget
    logs: Sequence[LogId]
    """Those in use."""
    is_over: Callable[[], bool]
    """The part of the run with faults has ended."""
    is_resting: Callable[[], bool] = lambda: False
    """Faults come in bursts, and this is a rest: what waits for its moment lapses."""

    def hit(self, count: int = 1) -> None:
        """It did something to somebody."""
        self.cluster.fault_effects[self.kind] += count

    def later(self, action: Callable[[], None], *, most: int = 5 * SECOND) -> None:
        """Undo something after a while, rather soon than late."""
        delay = int(most * self.rng.random() ** 2) + self.rng.choice([0, 10, 1000]) * MILLISECOND
        self.after(delay, action)

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Go on after some microseconds, unless the part of the run with faults is over."""

        def run() -> None:
            if not self.is_over():
                action()

        self.cluster.scheduler.after(delay, run)

    def nodes(self) -> list[SimNode]:
        """All of them."""
        return list(self.cluster.nodes.values())

    def regions(self) -> list[list[SimNode]]:
        """The nodes of each region."""
        found: dict[str, list[SimNode]] = {}
        for node in self.nodes():
            found.setdefault(self.cluster.config.nodes[node.id].location.region, []).append(node)
        return [found[region] for region in sorted(found)]

    def node(self) -> SimNode:
        """Any one."""
        return self.rng.choice(self.nodes())

    def restart(self, node: SimNode, delay: int = 0) -> None:
        """Start it if it is down."""
        node.start_if_down(delay)

    def crash(self, node: SimNode, *, machine: bool) -> None:
        """Crash it if it is not down.

        Args:
            machine: it loses what is not synced too, unless that would destroy more than is tolerated.
        """
        if node.state is not SimNodeState.DOWN:
            self.hit()
            node.crash(machine=machine and self.budget.take_unsynced(node.disks))
