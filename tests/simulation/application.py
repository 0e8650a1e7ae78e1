"""A client process of a run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Micros
from server.simulation.machines import SimClient, SimMachines
from tests.simulation.history import Attempt, Position

if TYPE_CHECKING:
    from tests.simulation.workload import Applications


class Application:
    """A client process that does something again and again until it is stopped."""

    def __init__(self, run: Applications, name: str) -> None:
        self.run = run
        self.name = name
        self.rng = random.Random(run.rng.getrandbits(64))
        self.client: SimClient = self.make_client()
        self.alive = True
        self.cluster.note(self.client.name, "is", name)
        self.floor: dict[LogId, Position] = dict.fromkeys(run.histories, (0, 0))

    def make_client(self) -> SimClient:
        """The process."""
        return self.cluster.client()

    @property
    def cluster(self) -> SimMachines:
        return self.run.cluster

    def begin(self, interval: int) -> None:
        """Call `act` now and then."""

        def tick() -> None:
            if self.alive and not self.run.stopping:
                self.client.event(self.act)
                self.cluster.scheduler.after(1 + self.rng.randrange(2 * interval), tick)

        self.cluster.scheduler.after(self.rng.randrange(interval), tick)

    def act(self, now: Micros) -> None:
        """Do what this application does."""
        raise NotImplementedError

    def calm(self) -> None:
        """The part of the run with faults is over."""

    def close(self) -> None:
        """The end of the run: whatever it waits for gets an outcome."""
        self.client.session.close()

    def die(self) -> None:
        """Its process is killed: what it waits for stays unknown."""
        self.alive = False
        self.client.kill()

    def pick_log(self) -> LogId:
        """One that is in use, and in the cluster file as this client has it."""
        scenario, now, config = self.run.scenario, self.cluster.scheduler.now, self.client.session.config
        starts, ends = scenario.log_starts, scenario.log_ends
        used = [log for log in scenario.logs if starts.get(log, 0) <= now < ends.get(log, now + 1)]
        return self.rng.choice([log for log in used if config.log(log) is not None])

    def reading(self) -> dict[str, Any]:
        """How to read."""
        manner = {"single_copy": self.rng.random() < 0.7, "records_max": self.rng.choice([1, 7, 1000])}
        if self.run.scenario.hedged:
            # nobody else can be asked where all send all that they have
            manner["hedged"] = manner["single_copy"] and self.rng.random() < 0.8
        return manner

    def acknowledged(self, log: LogId, attempt: Attempt, lsn: int, offset: int, timestamp: int) -> None:
        """A receipt came."""
        self.run.histories[log].acknowledge(attempt, lsn, offset, timestamp)
        self.floor[log] = max(self.floor[log], (int(lsn), offset))
