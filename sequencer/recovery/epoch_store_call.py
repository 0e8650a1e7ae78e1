"""One operation of the epoch store, repeated until it has a definite outcome."""

from __future__ import annotations

from collections.abc import Callable, Collection

from epoch_store.interface import Operation, Result
from logdevice_py.core.machine import Timer, backoff
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from sequencer.recovery.context import RecoveryContext


class EpochStoreCall:
    """Asks until the status is one of `final`; then calls `done` once. The operation must be harmless when it is applied twice."""

    def __init__(
        self,
        context: RecoveryContext,
        operation: Operation,
        final: Collection[Status],
        done: Callable[[Result, Micros], None],
    ) -> None:
        self._context = context
        self._operation = operation
        self._final = final
        self._done = done
        self._timer: Timer | None = None
        settings = context.settings
        self._delays = backoff(
            context.rng, initial_us=settings.epoch_store_retry_initial_us, max_us=settings.epoch_store_retry_max_us
        )
        self._token = context.ask_epoch_store(operation, self._on_result)

    def cancel(self) -> None:
        """Forget it. The operation may still be applied."""
        self._context.forget_epoch_store(self._token)
        if self._timer is not None:
            self._timer.cancel()

    def _on_result(self, result: Result, now: Micros) -> None:
        if result.status in self._final:
            self._done(result, now)
            return
        hit("recovery_epoch_store_retry")
        self._timer = self._context.timers.at(now + next(self._delays), self._again)

    def _again(self, now: Micros) -> None:
        self._token = self._context.ask_epoch_store(self._operation, self._on_result)
