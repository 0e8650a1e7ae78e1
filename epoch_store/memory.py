"""An epoch store in memory: for the simulator and for tests. Deterministic; it can lose answers and refuse work on demand."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

from epoch_store.cells import Cell, ConditionalWrite, WriteId, decide, is_read, key_of
from epoch_store.interface import EpochStoreMetrics, Operation, Result, WriterIdentity
from logdevice_py.core.status import Status


class Fault(enum.Enum):
    """What goes wrong with one operation."""

    NONE = enum.auto()  # nothing
    REFUSED = enum.auto()  # the store cannot be reached: not applied, AGAIN
    ANSWER_LOST = enum.auto()  # applied, but the caller hears TIMEDOUT
    EXPIRED = enum.auto()  # lost on the way: not applied, and the caller hears TIMEDOUT


class MemoryCells:
    """What all nodes of a cluster share: the cells by key. It survives their crashes."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}


def no_fault(operation: Operation) -> Fault:
    """Nothing goes wrong."""
    return Fault.NONE


class MemoryEpochStore:
    """One node's access to `MemoryCells`.

    Both ways are given to `schedule`: first the request, which takes effect when `schedule` calls it, then the answer. A driver that
    keeps and reorders these calls decides when operations of several nodes take effect; ``loop.call_soon`` does for a real loop.
    """

    def __init__(
        self,
        cells: MemoryCells,
        writer: WriterIdentity,
        schedule: Callable[[Callable[[], None]], object],
        fault: Callable[[Operation], Fault] = no_fault,
    ) -> None:
        self.metrics = EpochStoreMetrics()
        self._cells = cells.cells
        self._writer = writer
        self._schedule = schedule
        self._fault = fault
        self._attempts = 0
        self._closed = False

    def submit(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """See `EpochStore.submit`."""
        batch = tuple(operations)
        self.metrics.batches += 1
        self.metrics.operations += len(batch)
        self._schedule(lambda: self._run(batch, done))

    def close(self) -> None:
        """See `EpochStore.close`."""
        self._closed = True

    def _run(self, batch: tuple[Operation, ...], done: Callable[[list[Result]], None]) -> None:
        if self._closed:
            results = [Result(Status.SHUTDOWN) for _ in batch]
        else:
            results = [self._apply(operation) for operation in batch]
        self._schedule(lambda: self._answer(batch, results, done))

    def _answer(
        self, batch: tuple[Operation, ...], results: list[Result], done: Callable[[list[Result]], None]
    ) -> None:
        if self._closed:
            results = [Result(Status.SHUTDOWN, maybe_applied=not is_read(operation)) for operation in batch]
        done(results)

    def _apply(self, operation: Operation) -> Result:
        fault = self._fault(operation)
        lost = Result(Status.AGAIN) if is_read(operation) else Result(Status.TIMEDOUT, maybe_applied=True)
        if fault is Fault.REFUSED:
            self.metrics.unavailable += 1
            return Result(Status.AGAIN)
        if fault is Fault.EXPIRED:
            self.metrics.unavailable += 1
            return lost
        key = key_of(operation)
        self._attempts += 1
        decision = decide(operation, self._cells.get(key), WriteId(self._writer, self._attempts))
        if isinstance(decision, ConditionalWrite):
            self._cells[key] = Cell(decision.expected_version + 1, decision.content)
            self.metrics.writes += 1
            decision = decision.result
        if fault is Fault.ANSWER_LOST:
            self.metrics.unavailable += 1
            return lost
        return decision
