"""Processes of an index log in the simulator: their files, how they die and dawdle, and Spark's tasks without Spark."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast
from unittest.mock import patch

import pyarrow as pa

from client.client import Client
from client.replica.replica import Replica
from indexlog.effects import FindTails, IndexEffect, ManifestOutcome
from indexlog.index_log import IndexLog
from indexlog.manifest.commands import ManifestCommand, OutputFile
from indexlog.merging import MergeTask
from indexlog.spark import tasks as spark_tasks
from indexlog.spark.jobs import OnSpark
from indexlog.spark.tasks import MadeContainer, MakeContainers, MergeOnExecutor
from indexlog.stores import MemoryStore, StoreUnavailable
from tests.simulation.index_log_history import Boundary, IndexLogHistory

SNAPSHOT_EVERY = 25
"""Commands: runs are short, and snapshots are to be met in them."""


class ProcessKilledError(BaseException):
    """The process is killed here: nobody cleans anything up."""


@dataclass(slots=True)
class Fate:
    """What becomes of a process."""

    rng: random.Random
    steps: int
    """It is killed after so many."""
    dawdles: float
    """The chance that a step is followed by a rest of seconds, in which others go on."""
    fails: float = 0.01
    """The chance that the store refuses to do something."""

    @classmethod
    def drawn(cls, rng: random.Random) -> Fate:
        """Of one life."""
        return cls(rng, rng.choice((5, 20, 60, 200, 1000)), rng.choice((0.0, 0.02, 0.15)))

    def step(self) -> None:
        """Killed, if it is time."""
        self.steps -= 1
        if self.steps < 0:
            raise ProcessKilledError


class FatefulStore:
    """The files of all processes, as one of them has them: it is killed within a write as well, and calls fail."""

    def __init__(self, shared: MemoryStore, fate: Fate) -> None:
        self._shared = shared
        self._fate = fate

    def _fail(self) -> None:
        if self._fate.rng.random() < self._fate.fails:
            raise StoreUnavailable("the store does not answer")

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Write a file; what is left of one that is killed meanwhile has another name."""
        self._fail()
        if self._fate.rng.random() < self._fate.fails:
            token, _, name = path.partition("/")
            self._shared.files[f"{token}/.unfinished-{name}"] = b""
            raise ProcessKilledError
        with self._shared.create(path) as file:
            yield file
            self._fail()

    def open(self, path: str) -> Any:
        """Read a file."""
        self._fail()
        return self._shared.open(path)

    def list(self) -> list[tuple[str, int]]:
        """All files."""
        self._fail()
        return self._shared.list()

    def delete(self, path: str) -> None:
        """Remove a file."""
        self._fail()
        self._shared.delete(path)


@dataclass(slots=True)
class Moment:
    """When somebody looked for the tails of raw logs, and what was known then."""

    serial: int
    dealt: dict[int, int]
    generation: int
    """The oldest that was not dealt whole."""
    ends: dict[int, int | None]
    """Of the raw logs that were not dealt whole."""
    tails: Mapping[int, int] = field(default_factory=dict)

    def boundary(self) -> Boundary:
        """What a reader that begins here is to read."""
        lsns = dict(self.dealt)
        for log, end in self.ends.items():
            lsns[log] = max(lsns[log], self.tails.get(log, 0) if end is None else end)
        return Boundary(self.generation, lsns)


LOOKED_FOR_TAILS: ContextVar[Moment] = ContextVar("LOOKED_FOR_TAILS")
"""When a task did so last."""


class IndexProcess(IndexLog):
    """A process that has the index log open."""

    def __init__(self, client: Client, path: str, history: IndexLogHistory, files: MemoryStore, fate: Fate) -> None:
        super().__init__(
            client, path, store=FatefulStore(files, fate), on_step=self._on_step, clock=lambda: self.number
        )
        self.manifest = Replica(
            client, history.kind(), f"{path}/commands", f"{path}/snapshots", snapshot_every=SNAPSHOT_EVERY
        )
        self.fate = fate
        self.number = 0
        """Of the modification that is written: its timestamp."""

    def _on_step(self, effect: IndexEffect) -> None:
        if isinstance(effect, FindTails):
            state = self.state
            ends = dict(state.undealt_logs())
            LOOKED_FOR_TAILS.set(Moment(state.serial, dict(state.dealt), state.generations[0].number, ends))
        self.fate.step()

    async def _do(self, effect: IndexEffect) -> Any:
        await self.dawdle()
        done = await super()._do(effect)
        if inspect.isawaitable(done):
            done = await done
        if isinstance(effect, FindTails):
            LOOKED_FOR_TAILS.get().tails = done
        self.fate.step()
        await self.dawdle()
        return done

    async def command(self, command: ManifestCommand) -> ManifestOutcome:
        """As any step."""
        outcome = await super().command(command)
        self.fate.step()
        await self.dawdle()
        return outcome

    async def _end_log(self, log: int) -> int:
        await asyncio.sleep(self.fate.rng.choice((0, 0.02, 1)))  # one raw log has ended, the other not
        end = await super()._end_log(log)
        self.fate.step()
        await self.dawdle()
        return end

    async def dawdle(self) -> None:
        """Take a while, or be stopped for seconds."""
        rng = self.fate.rng
        await asyncio.sleep(rng.uniform(0, 0.02))
        if rng.random() < self.fate.dawdles:
            process = cast("Any", self.client._network)._process
            process.pause()  # nothing comes and goes
            try:
                await asyncio.sleep(rng.uniform(0, 4))
            finally:
                process.resume()


@dataclass(frozen=True, slots=True)
class OnSimulatedSpark(OnSpark):
    """The driver, with tasks that run here: some twice, some fail, and some go on when the driver is dead."""

    process: IndexProcess = field(kw_only=True)
    stragglers: set[asyncio.Task[None]] = field(kw_only=True)

    def _make_containers(self, ranges: Mapping[int, tuple[int, int]], task: MakeContainers, bytes_max: int) -> Any:
        return self._deal_partitions(ranges, task, bytes_max)

    async def _deal_partitions(
        self, ranges: Mapping[int, tuple[int, int]], task: MakeContainers, bytes_max: int
    ) -> list[MadeContainer]:
        found: list[MadeContainer] = []
        for log, (start, end) in ranges.items():
            while start <= end:  # a partition of the source is a range of LSNs
                raw = await self.process._read(log, start, end, bytes_max)
                start = raw.until + 1
                batch = pa.RecordBatch.from_pylist(
                    [{"log_id": log, "lsn": int(lsn), "payload": payload} for lsn, payload in raw.records],
                    schema=pa.schema([("log_id", pa.int64()), ("lsn", pa.int64()), ("payload", pa.binary())]),
                )
                made = await self._attempts(lambda batch=batch: list(task([batch] if len(batch) else [])))  # type: ignore[misc]
                found += [MadeContainer(**row) for part in made for row in part.to_pylist()]
        return found

    def _merge(self, tasks: list[MergeTask], run: MergeOnExecutor) -> Any:
        return self._merge_each(tasks, run)

    async def _merge_each(
        self, tasks: list[MergeTask], run: MergeOnExecutor
    ) -> list[tuple[MergeTask, list[OutputFile | None]]]:
        return [await self._attempts(lambda task=task: run(task)) for task in tasks]  # type: ignore[misc]

    async def _attempts(self, run: Callable[[], Any]) -> Any:
        """What the attempt comes to that counts."""
        rng = self.process.fate.rng
        if rng.random() < 0.2:
            self._start(self._later(run, rng.uniform(0, 3)))  # speculative: it goes on, whatever becomes of the job
        await asyncio.sleep(rng.uniform(0, 0.2))
        self.process.fate.step()
        if rng.random() < 0.1:
            self._run(run)  # the executor dies when it is done, and the task is repeated
        return self._run(run)

    def _start(self, attempt: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(attempt)
        self.stragglers.add(task)

    async def _later(self, run: Callable[[], Any], seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            self._run(run)
        except (OSError, ProcessKilledError):
            return

    def _run(self, run: Callable[[], Any]) -> Any:
        """An attempt of a task, as an executor makes it."""
        number = self.process.fate.rng.getrandbits(60)
        with (
            patch.object(spark_tasks, "open_store", lambda url: self.process.store),
            patch.object(spark_tasks, "_attempt", lambda: number),
        ):
            return run()
