"""Breaks things, and undoes it.

Everything that goes wrong in a run is planned from one seed before the run begins: which kind of fault happens when. Each fault has an
index and draws the rest from a generator of its own, so a run can be repeated without some of them, and the others stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from logdevice_py.config.attributes import Durability
from logdevice_py.core.ids import LogId
from server.simulation.damage import DamageBudget
from server.simulation.faults.catalog import CATALOG as CATALOG
from server.simulation.faults.catalog import FaultInstance
from server.simulation.machines import SimMachines


@dataclass(frozen=True, slots=True)
class FaultSchedule:
    """What is to go wrong, and how often."""

    kinds: Sequence[str]
    """Names in `CATALOG`."""
    interval: int
    """Microseconds between two faults, on average."""
    duration: int
    """Microseconds of true time after which there are no more."""
    logs: Sequence[LogId]
    """Those in use: no more is destroyed than what their replication makes up for."""
    burst: int = 0
    """Microseconds of faults, after which there are none for `rest`; 0: they never rest. Faults that were caused before go on in a rest, but those
    that wait for a moment lapse when it begins."""
    rest: int = 0

    def is_rest(self, at: int, began: int) -> bool:
        """Whether no fault happens at a time."""
        return self.next_fault(at, began) != at

    def next_fault(self, at: int, began: int) -> int:
        """A time, or the end of the rest that it falls into."""
        if not self.burst:
            return at
        within = (at - began) % (self.burst + self.rest)
        return at if within < self.burst else at + self.burst + self.rest - within


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
    """Causes the faults of a schedule until `stop`."""

    def __init__(
        self,
        schedule: FaultSchedule,
        cluster: SimMachines,
        kill_client: Callable[[], None],
        rng: random.Random,
        *,
        disabled: Collection[int] = (),
        bounded: bool = True,
    ) -> None:
        """
        Args:
            kill_client: kill a client process of the applications, and let another one begin.
            rng: gives one number, from which all faults follow.
            disabled: indexes of faults that are left out; see `plan`.
            bounded: destroy no more than the replication property makes up for. Without that, `SimMachines.destroyed_entries` and
                `intact_copies` tell what was lost.
        """
        self._seed = rng.getrandbits(64)
        self._schedule = schedule
        self._cluster = cluster
        self._kill_client = kill_client
        self._disabled = frozenset(disabled)
        self._stopped = False
        properties = [cluster.config.metadata_log.replication]
        unsynced = False
        for log in schedule.logs:
            attributes = cluster.config.log(log)
            assert attributes is not None, log
            properties.append(attributes.replication)
            unsynced = unsynced or attributes.durability is Durability.ASYNC
        self.budget = DamageBudget(cluster.config, properties, enforced=bounded, unsynced=unsynced)
        self.plan: list[PlannedFault] = self._make_plan()
        """All faults in order of time, also disabled ones."""
        self.past: list[PlannedFault] = []
        """Those that were caused, in order."""
        self.caused: dict[str, int] = {}
        """How many of each kind were caused; `SimMachines.fault_effects` tells what came of it."""

    def start(self) -> None:
        """Begin."""
        for planned in self.plan:
            if planned.index not in self._disabled:
                self._cluster.scheduler.post(planned.at, self._cause, planned)

    def stop(self) -> None:
        """Cause no more, and undo everything."""
        self._stopped = True
        self._cluster.calm()
        settings = self._cluster.network.settings
        settings.slow_probability = min(settings.slow_probability, 0.01)

    def _generator(self, index: int) -> random.Random:
        return random.Random(f"{self._seed} {index}")

    def _make_plan(self) -> list[PlannedFault]:
        schedule = self._schedule
        at = began = self._began = self._cluster.scheduler.now
        planned: list[PlannedFault] = []
        while schedule.kinds:
            rng = self._generator(len(planned))
            at = schedule.next_fault(at + 1 + rng.randrange(2 * schedule.interval), began)
            if at >= schedule.duration:
                break
            planned.append(PlannedFault(len(planned), at, rng.choice(schedule.kinds)))
        return planned

    def _cause(self, planned: PlannedFault) -> None:
        if self._stopped:
            return
        self.past.append(planned)
        self.caused[planned.kind] = self.caused.get(planned.kind, 0) + 1
        self._cluster.note("fault", planned.kind, planned.index)
        instance = FaultInstance(
            planned.index,
            planned.at,
            planned.kind,
            self._generator(-1 - planned.index),
            self._cluster,
            self._kill_client,
            self.budget,
            self._schedule.logs,
            lambda: self._stopped,
            lambda: self._schedule.is_rest(self._cluster.scheduler.now, self._began),
        )
        CATALOG[planned.kind].cause(instance)
