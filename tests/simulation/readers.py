"""Applications that read, and those that ask for the tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from client.read.batch import RecordBatch
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import MILLISECOND, Micros
from server.simulation.machines import SimClient, SimPromise, SimReader
from tests.simulation.application import Application
from tests.simulation.history import Observation

if TYPE_CHECKING:
    from tests.simulation.workload import Applications


class SlowSimReader(SimReader):
    """Takes one batch, and rests before the next: what it does not take has to wait at the shards."""

    def __init__(
        self,
        client: SimClient,
        log: LogId,
        first: int,
        until: int,
        on_batch: Callable[[RecordBatch], None],
        *,
        single_copy: bool,
        hedged: bool,
        records_max: int,
        pause: int,
    ) -> None:
        super().__init__(
            client, log, first, until, on_batch, single_copy=single_copy, hedged=hedged, records_max=records_max
        )
        self.pause = pause
        """Microseconds between two batches; a run that is calm sets it to 0."""

    def _take(self, now: Micros) -> None:
        self._taking = False
        if self.stream.ready and not self.stream.finished:
            self._on_batch(self.stream.take(self._records_max, now))
            if self.stream.ready and not self.stream.finished:
                self._taking = True
                self.client._scheduler.after(self.pause, lambda: self.client.process.event(self._take))


class TailReader(Application):
    """Follows a log, and begins anew now and then, where it was, further back, or with another way to read."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.log = self.pick_log()
        self.reader: SimReader | None = None
        self.seen: Observation | None = None
        self.readers = 0
        self.pause = self.rng.choice([0, 0, 0, 20, 300]) * MILLISECOND

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
            self.client, self.log, first, LSN_MAX, f"{self.name}.{self.readers}", pause=self.pause, **self.reading()
        )
        self.reader.start(now)

    def calm(self) -> None:
        """Hurry up."""
        if isinstance(self.reader, SlowSimReader):
            self.reader.pause = 0


class TailAsker(Application):
    """Asks for the tail, and sometimes reads the log, or a part, up to it."""

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
                first, until = LSN_OLDEST, tail
                if history.at and self.rng.random() < 0.6:
                    ends = sorted(self.rng.choice(list(history.at))[0] for _ in range(2))
                    first, until = max(1, ends[0] - self.rng.randrange(3)), min(tail, ends[1] + self.rng.randrange(3))
                if first <= until:
                    reader, _ = self.run.reader(self.client, log, first, until, name, **self.reading())
                    self.client.later(reader.start)

        self.client.session.sequencers.tail_lsn(log, SimPromise(done), now)


def tailing(apps: list[Application]) -> list[tuple[TailReader, Any]]:
    """Readers that follow their log."""
    return [(app, app.reader) for app in apps if app.alive and isinstance(app, TailReader) and app.reader]
