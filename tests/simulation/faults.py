"""Breaks things, and mends them.

Everything that goes wrong in a run is planned from one seed before the run begins: which kind of fault happens when. Each fault has an
index and draws the rest from a generator of its own, so a run can be repeated without some of them, and the others stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from server.sim_cluster import SimCluster
from server.sim_damage import DamageBudget
from tests.simulation import disk_faults, network_faults, process_faults
from tests.simulation.fault_catalog import CATALOG as CATALOG
from tests.simulation.fault_catalog import FaultInstance

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario
    from tests.simulation.workload import Applications

FAULT_MODULES = (process_faults, network_faults, disk_faults)
"""Where the kinds of `CATALOG` are."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault that will happen unless it is disabled."""

    index: int
    at: int
    """Microseconds of true time."""
    kind: str

    def __str__(self) -> str:
        return f"{self.index}: {self.kind} at {self.at / 1e6:.6f} s"


class Nemesis:
    """Causes the faults of a scenario until `stop`."""

    def __init__(
        self,
        scenario: Scenario,
        cluster: SimCluster,
        apps: Applications,
        rng: random.Random,
        *,
        disabled: Collection[int] = (),
        bounded: bool = True,
    ) -> None:
        """
        Args:
            rng: gives one number, from which all faults follow.
            disabled: indexes of faults that are left out; see `plan`.
            bounded: destroy no more than the replication property makes up for. Without that, `SimCluster.destroyed_entries` and
                `intact_copies` tell what was lost.
        """
        self._seed = rng.getrandbits(64)
        self._scenario = scenario
        self._cluster = cluster
        self._apps = apps
        self._disabled = frozenset(disabled)
        self._stopped = False
        properties = [cluster.config.metadata_log.replication]
        for log in scenario.logs:
            attributes = cluster.config.log(log)
            assert attributes is not None, log
            properties.append(attributes.replication)
        self.budget = DamageBudget(cluster.config, properties, enforced=bounded)
        self.plan: list[PlannedFault] = self._make_plan()
        """All faults in order of time, also disabled ones."""
        self.caused: dict[str, int] = {}
        """How many of each kind were caused; `SimCluster.fault_effects` tells what came of it."""

    def start(self) -> None:
        """Begin."""
        for planned in self.plan:
            if planned.index not in self._disabled:
                self._cluster.scheduler.post(planned.at, self._cause, planned)

    def stop(self) -> None:
        """Cause no more, and mend everything."""
        self._stopped = True
        self._cluster.calm()
        settings = self._cluster.network.settings
        settings.slow_probability = min(settings.slow_probability, 0.01)

    def _generator(self, index: int) -> random.Random:
        return random.Random(f"{self._seed} {index}")

    def _make_plan(self) -> list[PlannedFault]:
        scenario, at = self._scenario, self._cluster.scheduler.now
        planned: list[PlannedFault] = []
        while scenario.faults:
            rng = self._generator(len(planned))
            at += 1 + rng.randrange(2 * scenario.fault_interval)
            if at >= scenario.duration:
                break
            planned.append(PlannedFault(len(planned), at, rng.choice(scenario.faults)))
        return planned

    def _cause(self, planned: PlannedFault) -> None:
        if self._stopped:
            return
        self.caused[planned.kind] = self.caused.get(planned.kind, 0) + 1
        self._cluster.note("fault", planned.kind, planned.index)
        instance = FaultInstance(
            planned.index,
            planned.at,
            planned.kind,
            self._generator(-1 - planned.index),
            self._cluster,
            self._apps,
            self._scenario,
            self.budget,
            lambda: self._stopped,
        )
        CATALOG[planned.kind].cause(instance)
