"""What drivers hand to the harness for a list of records: one awaitable that is done when each record of the list is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchmarks.ldbench.engine import AppendError


class ListReceipt:
    """Counts the acknowledgements of one list of records. All calls are made on the loop's thread."""

    __slots__ = ("_missing", "_timer", "done")

    def __init__(self, records: int, timeout: float, on_timeout: Callable[[], None] | None = None) -> None:
        """
        Args:
            records: how many acknowledgements are awaited.
            timeout: seconds after which it fails.
            on_timeout: called after it failed by the timeout: release what still waits for the acknowledgements.
        """
        loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = loop.create_future()
        """What `Producer.append_many` returns."""
        self._missing = records
        self._timer = loop.call_later(timeout, self._time_out, timeout, on_timeout)
        if records == 0:
            self.acknowledge(0)

    def acknowledge(self, records: int) -> None:
        """So many more are acknowledged."""
        self._missing -= records
        if self._missing <= 0 and not self.done.done():
            self._timer.cancel()
            self.done.set_result(None)

    def finish(self) -> None:
        """All are acknowledged."""
        self.acknowledge(self._missing)

    def fail(self, why: str) -> None:
        """At least one was not; the first reason counts."""
        self._timer.cancel()
        if not self.done.done():
            self.done.set_exception(AppendError(why))

    def _time_out(self, timeout: float, on_timeout: Callable[[], None] | None) -> None:
        self.fail(f"no acknowledgement within {timeout:g} s")
        if on_timeout is not None:
            on_timeout()
