"""Applications of a run: writers, readers, and those who ask for the tail."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from client.read.items import RecordBatch
from client.receipt import Receipts
from client.write.write_streams import WriteStreams
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from server.sim_cluster import SimClient, SimCluster, SimPromise, SimReader
from tests.simulation.history import Attempt, AttemptFate, LogHistory, Observation, Position
from tests.simulation.scenario import Scenario

WAITING_MAX = 40
"""Appends of one application that may be without an answer."""


class Application:
    """A client process that does something again and again until it is stopped."""

    def __init__(self, run: Applications, name: str) -> None:
        self.run = run
        self.name = name
        self.rng = random.Random(run.rng.getrandbits(64))
        self.client: SimClient = run.cluster.client()
        self.alive = True
        self.cluster.note(self.client.name, "is", name)
        self.floor: dict[LogId, Position] = dict.fromkeys(run.histories, (0, 0))

    @property
    def cluster(self) -> SimCluster:
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

    def die(self) -> None:
        """Its process is killed: what it waits for stays unknown."""
        self.alive = False
        self.client.kill()

    def pick_log(self) -> LogId:
        return self.rng.choice(self.run.scenario.logs)

    def payload(self, number: int) -> bytes:
        size = self.rng.choice([0, 10, 10, 100, 100, 1000, 5000])
        return f"{self.name}-{number}-".encode() + bytes(size)

    def reading(self) -> dict[str, Any]:
        """How to read."""
        return {"single_copy": self.rng.random() < 0.7, "records_max": self.rng.choice([1, 7, 1000])}

    def acknowledged(self, log: LogId, attempt: Attempt, lsn: int, offset: int) -> None:
        """A receipt came."""
        self.run.histories[log].acknowledge(attempt, lsn, offset)
        self.floor[log] = max(self.floor[log], (int(lsn), offset))


class StreamWriter(Application):
    """Appends through a BufferedWriter."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.settings = run.scenario.writer_settings(self.rng)
        self.streams: WriteStreams = self.client.writer(self.settings)
        self.sequence = 0
        self.waiting = 0

    def act(self, now: Micros) -> None:
        if self.waiting >= WAITING_MAX:
            return
        log = self.pick_log()
        history = self.run.histories[log]
        payloads: list[bytes] = []
        for _ in range(self.rng.choice([1, 1, 1, 3, 10])):
            self.sequence += 1
            payloads.append(self.payload(self.sequence))
        first = self.sequence - len(payloads) + 1
        attempts = [
            history.attempt(payload, self.floor[log], self.name, first + index)
            for index, payload in enumerate(payloads)
        ]

        def done(promise: SimPromise) -> None:
            self.run.pending -= 1
            self.waiting -= 1
            if not self.alive:
                return
            if isinstance(promise.error, LogDeviceError):
                self.cluster.note(self.client.name, "stream failed", promise.error)
                self.run.failures[promise.error.status] = self.run.failures.get(promise.error.status, 0) + 1
                for attempt in attempts:
                    # some of the records may have been acknowledged
                    history.give_up(attempt, maybe_applied=promise.error.maybe_applied or len(attempts) > 1)
                return
            assert promise.error is None, promise.error
            receipts: Receipts = promise.result
            assert len(receipts) == len(attempts)
            for attempt, receipt in zip(attempts, receipts, strict=True):
                self.acknowledged(log, attempt, receipt.lsn, receipt.batch_offset)

        self.run.pending += 1
        self.waiting += 1
        try:
            self.streams.append_many(log, payloads, SimPromise(done), now)
        except LogDeviceError as error:
            if error.status is not Status.NOBUFS:
                raise
            self.run.pending -= 1
            self.waiting -= 1
            for attempt in attempts:
                history.give_up(attempt, maybe_applied=False)


class PlainWriter(Application):
    """Appends directly; some wait for each answer before the next record."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.number = 0
        self.one_by_one = self.rng.random() < 0.4
        self.waiting = 0

    def act(self, now: Micros) -> None:
        if self.waiting >= (1 if self.one_by_one else WAITING_MAX):
            return
        log = self.pick_log()
        for _ in range(1 if self.one_by_one else self.rng.choice([1, 1, 4])):
            self._append(log, now)

    def _append(self, log: LogId, now: Micros) -> None:
        history = self.run.histories[log]
        self.number += 1
        attempt = history.attempt(self.payload(self.number), self.floor[log])

        def done(promise: SimPromise) -> None:
            self.run.pending -= 1
            self.waiting -= 1
            if not self.alive:
                return
            if isinstance(promise.error, LogDeviceError):
                self.run.failures[promise.error.status] = self.run.failures.get(promise.error.status, 0) + 1
                history.give_up(attempt, maybe_applied=promise.error.maybe_applied)
                return
            assert promise.error is None, promise.error
            self.acknowledged(log, attempt, promise.result.lsn, promise.result.batch_offset)

        self.run.pending += 1
        self.waiting += 1
        timeout = self.rng.choice([300 * MILLISECOND, 2 * SECOND, 10 * SECOND])
        self.client.session.append(log, attempt.payload, SimPromise(done), now, timeout)


class TailReader(Application):
    """Follows a log, and begins anew now and then."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.log = self.pick_log()
        self.reader: SimReader | None = None
        self.seen: Observation | None = None
        self.readers = 0

    def act(self, now: Micros) -> None:
        if self.reader is not None:
            if self.rng.random() < 0.9:
                return
            self.reader.stop(now)
        first = LSN_OLDEST
        if self.seen is not None and self.rng.random() < 0.7:
            first = (
                self.seen.last + 1
                if self.rng.random() < 0.5
                else max(LSN_OLDEST, self.seen.last - self.rng.randrange(10))
            )
        self.readers += 1
        self.reader, self.seen = self.run.reader(
            self.client, self.log, first, LSN_MAX, f"{self.name}.{self.readers}", **self.reading()
        )
        self.reader.start(now)


class TailAsker(Application):
    """Asks for the tail, and sometimes reads the log up to it."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.number = 0

    def act(self, now: Micros) -> None:
        log = self.pick_log()
        history = self.run.histories[log]
        before = history.acknowledged_max
        self.number += 1
        name = f"{self.name}.{self.number}"

        def done(promise: SimPromise) -> None:
            if promise.error is not None:
                assert isinstance(promise.error, LogDeviceError), promise.error
                return
            tail = int(promise.result)
            history.check_tail(tail, before)
            if self.alive and tail >= LSN_OLDEST and self.rng.random() < 0.3:
                reader, _ = self.run.reader(self.client, log, LSN_OLDEST, tail, name, **self.reading())
                self.client.later(reader.start)

        self.client.session.tail_lsn(log, SimPromise(done), now)


class Applications:
    """All applications of a run."""

    def __init__(self, scenario: Scenario, cluster: SimCluster, rng: random.Random) -> None:
        self.scenario = scenario
        self.cluster = cluster
        self.rng = rng
        self.histories = {log: LogHistory(log) for log in scenario.logs}
        self.pending = 0
        """Appends without an answer, those of killed clients included."""
        self.failures: dict[Status, int] = {}
        self.stopping = False
        self.apps: list[Application] = []
        self.born = 0

    def start(self) -> None:
        """Begin."""
        scenario = self.scenario
        for _ in range(scenario.stream_writers):
            self.add(StreamWriter, "w", scenario.write_interval)
        for _ in range(scenario.appenders):
            self.add(PlainWriter, "a", scenario.write_interval)
        for _ in range(scenario.readers):
            self.add(TailReader, "r", 500 * MILLISECOND)
        self.add(TailAsker, "t", SECOND)

    def add(self, kind: Callable[[Applications, str], Application], letter: str, interval: int) -> Application:
        """Start one more."""
        self.born += 1
        made = kind(self, f"{letter}{self.born}")
        self.apps.append(made)
        made.begin(interval)
        return made

    def kill_one(self) -> None:
        """Kill a client process and start another one like it."""
        living = [app for app in self.apps if app.alive]
        victim = self.rng.choice(living)
        self.cluster.note(victim.client.name, "is killed")
        victim.die()
        if isinstance(victim, StreamWriter):
            self.add(StreamWriter, "w", self.scenario.write_interval)
        elif isinstance(victim, PlainWriter):
            self.add(PlainWriter, "a", self.scenario.write_interval)
        elif isinstance(victim, TailReader):
            self.add(TailReader, "r", 500 * MILLISECOND)
        else:
            self.add(TailAsker, "t", SECOND)

    def reader(
        self,
        client: SimClient,
        log: LogId,
        first: int,
        until: int,
        name: str,
        *,
        single_copy: bool,
        records_max: int = 1000,
    ) -> tuple[SimReader, Observation]:
        """A reader whose batches are checked."""
        history = self.histories[log]
        seen = Observation(name, int(first))
        history.observations.append(seen)

        def on_batch(batch: RecordBatch) -> None:
            history.observe(seen, batch)

        reader = SimReader(client, log, first, until, on_batch, single_copy=single_copy, records_max=records_max)
        self.cluster.note(client.name, "reads", (name, log, first, until))
        return reader, seen

    def unanswered(self) -> int:
        """Appends of living clients without an answer."""
        alive = {app.name for app in self.apps if app.alive}
        return sum(
            1
            for history in self.histories.values()
            for attempt in history.attempts.values()
            if attempt.fate is AttemptFate.PENDING and attempt.payload.split(b"-")[0].decode() in alive
        )

    def tailing(self) -> list[tuple[TailReader, Any]]:
        """Readers that follow their log."""
        return [(app, app.reader) for app in self.apps if app.alive and isinstance(app, TailReader) and app.reader]
