"""All applications of a run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from client.read.batch import RecordBatch
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND
from server.simulation.machines import SimClient, SimMachines, SimReader
from tests.simulation import exclusive_writer
from tests.simulation.application import Application as Application
from tests.simulation.asyncio_clients import AsyncioApplication
from tests.simulation.exclusive_writer import ExclusiveStreamWriter
from tests.simulation.history import LogHistory, Observation, Violation
from tests.simulation.invariants import Invariants
from tests.simulation.operators import Configurator, EpochMover, LogRemover, NodeMover, Trimmer
from tests.simulation.readers import SlowSimReader, TailAsker, TailReader, tailing
from tests.simulation.scenario import Scenario
from tests.simulation.succession_writer import SuccessionWriter
from tests.simulation.time_finder import TimeFinder
from tests.simulation.writers import PlainWriter
from tests.simulation.writers import StreamWriter as StreamWriter


class Applications:
    """All applications of a run."""

    def __init__(
        self,
        scenario: Scenario,
        cluster: SimMachines,
        rng: random.Random,
        invariants: Invariants,
        *,
        loses: bool = False,
    ) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.rng = rng
        self.invariants = invariants
        self.plan = scenario.plan
        """Of the newest cluster file."""
        self.histories = {log: LogHistory(log, loses=loses) for log in scenario.logs}
        for log, history in self.histories.items():
            model = invariants.logs[log]
            history.released = lambda model=model: model.released  # type: ignore[misc]
            model.expired = lambda lsn, history=history: history.expire(lsn)  # type: ignore[misc]
            if loses:
                history.forgotten = partial(invariants.is_forgotten, log)
        self.take_out: Callable[[Iterable[ShardId]], bool] = lambda shards: False
        """Whether these shards may leave the cluster file; if so, what they hold counts as lost."""
        self.move: Callable[[Iterable[ShardId]], bool] = lambda shards: False
        """Whether these shards may be moved to other racks."""
        self.departed: Callable[[], Iterable[ShardId]] = tuple
        """Shards that are lost for good or drained, and still in the cluster file."""
        self.operated: Counter[str] = Counter()
        """What operators tried, by kind in `OPERATIONS`."""
        self.pending = 0
        """Appends without an answer, those of killed clients included."""
        self.failures: dict[Status, int] = {}
        self.trims = 0
        """Trims that every shard made durable."""
        self.stopping = False
        self.apps: list[Application] = []
        self.born = 0
        self._intervals: dict[str, tuple[type[Application], int]] = {
            "w": (StreamWriter, scenario.write_interval),
            "a": (PlainWriter, scenario.write_interval),
            "r": (TailReader, 500 * MILLISECOND),
            "t": (TailAsker, scenario.tail_interval),
            "x": (Trimmer, scenario.trim_interval),
            "e": (EpochMover, scenario.epoch_interval),
            "c": (Configurator, scenario.config_interval),
            "l": (LogRemover, scenario.removal_interval),
            "m": (NodeMover, scenario.move_interval),
            "f": (TimeFinder, scenario.find_interval),
            "h": (SuccessionWriter, scenario.succession_interval),
            exclusive_writer.LETTER: (ExclusiveStreamWriter, scenario.exclusive_interval),
        }

    def start(self) -> None:
        """Begin."""
        scenario = self.scenario
        for _ in range(scenario.stream_writers):
            self.add("w")
        for _ in range(scenario.appenders):
            self.add("a")
        for _ in range(scenario.readers):
            self.add("r")
        self.add("t")
        for letter in ("x", "e", "c", "l", "m", "f", "h", *(2 * exclusive_writer.LETTER)):
            if self._intervals[letter][1]:
                self.add(letter)

    def add(self, letter: str) -> Application:
        """Start one more of a kind."""
        self.born += 1
        kind, interval = self._intervals[letter]
        made = kind(self, f"{letter}{self.born}")
        self.apps.append(made)
        made.begin(interval)
        return made

    def kill_one(self) -> None:
        """Kill a client process and start another one like it."""
        victim = self.rng.choice([app for app in self.apps if app.alive])
        self.cluster.note(victim.client.name, "is killed")
        victim.die()
        self.add(victim.name[0])

    def calm(self) -> None:
        """Nobody rests any more, and everybody has the newest cluster file."""
        operators = [app for app in self.apps if isinstance(app, Configurator)]
        for app in self.apps:
            if app not in operators[:-1]:
                app.calm()

    def close(self) -> None:
        """Close every client: whatever an application waits for gets an outcome."""
        for app in self.apps:
            if app.alive:
                app.close()
        if self.unanswered():
            raise Violation(f"{self.unanswered()} appends have no outcome after their clients were closed")

    def reader(
        self,
        client: SimClient,
        log: LogId,
        first: int,
        until: int,
        name: str,
        *,
        single_copy: bool,
        hedged: bool = False,
        records_max: int = 1000,
        pause: int = 0,
    ) -> tuple[SimReader, Observation]:
        """A reader whose batches are checked. `pause`: microseconds between two batches."""
        history = self.histories[log]
        seen = Observation(name, int(first))
        history.observations.append(seen)

        def on_batch(batch: RecordBatch) -> None:
            history.observe(seen, batch)

        self.cluster.note(client.name, "reads", (name, log, first, until))
        manner: dict[str, Any] = {"single_copy": single_copy, "hedged": hedged, "records_max": records_max}
        if pause:
            return SlowSimReader(client, log, first, until, on_batch, pause=pause, **manner), seen
        return SimReader(client, log, first, until, on_batch, **manner), seen

    def unanswered(self) -> int:
        """Appends of living clients without an answer."""
        return sum(
            history.unanswered[app.name.encode()]
            for history in self.histories.values()
            for app in self.apps
            if app.alive
        )

    def progress(self) -> tuple[int, int]:
        """Changes whenever one of these appends has its answer, or some records of it have: a call has its answer only when the last of its frames is
        stored, and an epoch may have room for one frame."""
        writers = [app for app in self.apps if app.alive and isinstance(app, StreamWriter)]
        return self.unanswered(), sum(
            streams.owner.records for writer in writers for streams in (*writer.earlier, writer.streams)
        )

    def running(self) -> list[str]:
        """Names of living applications whose code has not ended."""
        return [app.name for app in self.apps if isinstance(app, AsyncioApplication) and not app.ended]

    def tailing(self) -> list[tuple[TailReader, Any]]:
        """Readers that follow their log."""
        return tailing(self.apps)
