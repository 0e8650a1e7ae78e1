"""A simulated epoch store: what a node sees of a coordination service over an unreliable path.

An operation that writes reads its cell first, perhaps from a server that lags behind, and then writes on condition of the version that it
read, as on a real one. Between the two others may write, and each step may be refused, lost, late, or have its answer lost. It is the process
of the node that decides what to write: a write that it sent may arrive after its end, but what is read after its end nobody decides on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from epoch_store.cells import (
    Cell,
    ConditionalWrite,
    WriteId,
    decide,
    decode_cell,
    decode_later,
    encode_cell,
    is_read,
    key_of,
    won_by,
)
from epoch_store.interface import EpochStoreMetrics, Operation, Result, WriterIdentity
from epoch_store.memory import MemoryCells
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.simulation.scheduler import Scheduler

DELAY_MAX: Final = 5 * MILLISECOND
"""Of one way to or from the store in good weather."""
LATE_WRITE_MAX: Final = 3 * SECOND
_TOOL: Final = WriterIdentity(NodeId(-1), InstanceId(1))


class EpochStoreWeather:
    """How well nodes reach the epoch store; faults change it."""

    def __init__(self) -> None:
        self.delay_max = DELAY_MAX
        self.refuse = 0.0
        """Probability that an operation is refused."""
        self.refuse_kind = "epoch_store_away"
        """Which fault refuses."""
        self.lose_answer = 0.0
        """Probability that a step is done and its answer lost."""
        self.expire = 0.0
        """Probability that a step is lost on the way and times out; a write may still be made later."""
        self.stale = 0.0
        """Probability that the first read of a write comes from a server that has not heard of the last change."""

    def clear(self) -> None:
        """Good weather."""
        self.delay_max = DELAY_MAX
        self.refuse = self.lose_answer = self.expire = self.stale = 0.0


class SimCells(MemoryCells):
    """The cells, and what each of them held before its last change."""

    __slots__ = ("_touches", "previous")

    def __init__(self) -> None:
        super().__init__()
        self.previous: dict[str, Cell | None] = {}
        self._touches = 0

    def put(self, key: str, cell: Cell) -> None:
        """Change a cell."""
        self.previous[key] = self.cells.get(key)
        self.cells[key] = cell

    def touch(self, key: str) -> None:
        """Somebody else writes the cell as it is: its version moves."""
        cell = self.cells[key]
        self._touches += 1
        payload, later = decode_cell(cell.content)[1], decode_later(cell.content)
        self.put(key, Cell(cell.version + 1, encode_cell(WriteId(_TOOL, self._touches), payload, later)))


@dataclass(slots=True)
class _EpochStoreCall:
    """One operation under way."""

    operation: Operation
    key: str
    done: Callable[[Result], None]
    attempts: dict[WriteId, ConditionalWrite] = field(default_factory=dict)
    """Writes of which it is not known whether they were made."""
    doubted: bool = False
    """What was read would have been the answer: it is read again, and not from a server that lags behind."""


class SimEpochStore:
    """One node's access to the cells, for one run of the node."""

    def __init__(
        self,
        cells: SimCells,
        writer: WriterIdentity,
        scheduler: Scheduler,
        rng: Rng,
        weather: EpochStoreWeather,
        effects: Counter[str],
    ) -> None:
        """
        Args:
            effects: counts what the weather did, by kind of fault.
        """
        self.metrics = EpochStoreMetrics()
        self._cells = cells
        self._writer = writer
        self._scheduler = scheduler
        self._rng = rng
        self._weather = weather
        self._effects = effects
        self._attempts = 0
        self._closed = False

    def submit(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """See `EpochStore.submit`."""
        results: list[Result | None] = [None] * len(operations)
        self.metrics.batches += 1
        self.metrics.operations += len(operations)

        def finish(index: int, result: Result) -> None:
            results[index] = result
            if None not in results:
                done([each for each in results if each is not None])

        for index, operation in enumerate(operations):
            call = _EpochStoreCall(operation, key_of(operation), lambda result, index=index: finish(index, result))  # type: ignore[misc]
            self._later(self._read, call)

    def close(self) -> None:
        """See `EpochStore.close`. Writes that are on their way still arrive."""
        self._closed = True

    def _later(self, step: Callable[[_EpochStoreCall], None], call: _EpochStoreCall) -> None:
        self._scheduler.post(self._scheduler.now + self._delay(), step, call)

    def _delay(self) -> int:
        return 100 + int(self._rng.random() * self._weather.delay_max)

    def _answer(self, call: _EpochStoreCall, result: Result) -> None:
        if self._closed:
            result = Result(Status.SHUTDOWN, maybe_applied=bool(call.attempts))
        self._scheduler.post(self._scheduler.now + self._delay(), call.done, result)

    def _lost(self, call: _EpochStoreCall) -> None:
        """Nothing more is heard of it."""
        self.metrics.unavailable += 1
        self._answer(call, Result(Status.TIMEDOUT, maybe_applied=True) if call.attempts else Result(Status.AGAIN))

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

    def _read(self, call: _EpochStoreCall) -> None:
        weather = self._weather
        if self._closed:
            self._answer(call, Result(Status.SHUTDOWN))
            return
        if self._chance(weather.refuse):
            self._effects[weather.refuse_kind] += 1
            self._lost(call)
            return
        if self._chance(weather.expire):
            self._effects["epoch_store_expiry"] += 1
            self._lost(call)
            return
        cell = self._cells.cells.get(call.key)
        if not call.doubted and not call.attempts and not is_read(call.operation) and self._chance(weather.stale):
            before = self._cells.previous.get(call.key, cell)
            if before != cell:
                self._effects["epoch_store_stale"] += 1
                cell = before
        won = won_by(cell, call.attempts)
        if won is not None:
            self._answer(call, won)
            return
        self._attempts += 1
        write = WriteId(self._writer, self._attempts)
        decision = decide(call.operation, cell, write)
        if isinstance(decision, Result):
            if call.doubted or call.attempts or is_read(call.operation):
                self._answer(call, decision)
            else:
                call.doubted = True
                self._read_again(call)
            return
        call.attempts[write] = decision
        self._scheduler.post(self._scheduler.now + self._delay(), self._write, (call, write))

    def _write(self, step: tuple[_EpochStoreCall, WriteId]) -> None:
        call, write = step
        weather, change = self._weather, call.attempts[write]
        if self._chance(weather.expire):
            self._effects["epoch_store_expiry"] += 1
            if self._rng.random() < 0.3:
                late = self._scheduler.now + int(self._rng.random() * LATE_WRITE_MAX)
                self._scheduler.post(late, self._write_late, (call.key, change))
            self._lost(call)
            return
        if not self._put(call.key, change):
            self.metrics.conflicts += 1
            self._effects["epoch_store_conflict"] += 1
            del call.attempts[write]
            self._read_again(call)
            return
        if self._chance(weather.lose_answer):
            self._effects["epoch_store_lost_answer"] += 1
            if self._rng.random() < 0.5:
                self._read_again(call)
            else:
                self._lost(call)
            return
        self._answer(call, change.result)

    def _read_again(self, call: _EpochStoreCall) -> None:
        self._later(self._read_current, call)

    def _read_current(self, call: _EpochStoreCall) -> None:
        """Reads that follow a write come after a sync of the session: they are not stale."""
        stale, self._weather.stale = self._weather.stale, 0.0
        self._read(call)
        self._weather.stale = stale

    def _write_late(self, step: tuple[str, ConditionalWrite]) -> None:
        """A write that timed out long ago arrives."""
        self._put(*step)

    def _put(self, key: str, change: ConditionalWrite) -> bool:
        cell = self._cells.cells.get(key)
        if (0 if cell is None else cell.version) != change.expected_version:
            return False
        self._cells.put(key, Cell(change.expected_version + 1, change.content))
        self.metrics.writes += 1
        return True
