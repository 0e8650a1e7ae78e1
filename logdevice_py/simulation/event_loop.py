"""An asyncio event loop under virtual time: applications run unchanged beside simulated machines, and as repeatably as these."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, NoReturn

from logdevice_py.simulation.scheduler import Scheduler

ITERATION_COST = 1
"""Microseconds of virtual time that an iteration of the loop takes, so that one which never rests cannot stop the clock."""
RESTLESS_ITERATIONS = 1000
RESTLESS_COST = 1000
"""After so many iterations without a rest each takes so many microseconds: an application that spins comes to its limit soon."""


class VirtualTimeExceeded(AssertionError):
    """The application was still running when the virtual time that it was given had passed."""


class SimEventLoop(asyncio.BaseEventLoop):
    """Sleeping costs no time: while the application waits, the machines of `scheduler` run and the clock jumps from event to event.

    There are no sockets, no subprocesses and no signals. A function given to a thread runs at once, on the loop: to the application that is a thread
    that was quick, and the only order of events that can be had again.
    """

    def __init__(self, scheduler: Scheduler, *, limit: int) -> None:
        """
        Args:
            scheduler: virtual time, and what else happens in it.
            limit: the time, in microseconds of the scheduler, at which the run ends with `VirtualTimeExceeded`.
        """
        super().__init__()
        self.scheduler = scheduler
        self.limit = limit
        """Microseconds."""
        self._selector = _VirtualSelector(self, scheduler)
        """Where `BaseEventLoop` waits for events."""

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self.scheduler.now / 1e6

    @property
    def has_work(self) -> bool:
        """A callback is ready to run, or the loop is to stop."""
        return bool(self._ready) or self._stopping  # type: ignore[attr-defined]

    def check_limit(self) -> None:
        """Raises `VirtualTimeExceeded` when the time that the run was given has passed."""
        if self.scheduler.now >= self.limit:
            limit, self.limit = self.limit, self.limit + 60_000_000  # for the application's cleaning up
            raise VirtualTimeExceeded(f"the application did not end within {limit / 1e6:.0f} s of virtual time")

    # What `BaseEventLoop` leaves to its subclasses

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing comes from outside."""

    def _write_to_self(self) -> None:
        """There is only one thread."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function at once."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits the future
            future.set_exception(error)
        return future

    async def create_connection(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refuse("connections")

    async def create_server(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refuse("servers")

    async def create_datagram_endpoint(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refuse("sockets")

    async def subprocess_exec(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refuse("subprocesses")

    async def subprocess_shell(self, *_: Any, **__: Any) -> NoReturn:
        """Refused."""
        refuse("subprocesses")


class _VirtualSelector:
    """Waits by running the simulation."""

    def __init__(self, loop: SimEventLoop, scheduler: Scheduler) -> None:
        self._loop = loop
        self._scheduler = scheduler
        self._restless = 0
        """Iterations since the loop last waited."""

    def select(self, timeout: float | None) -> list[Any]:
        """Let virtual time pass, until the loop has work or `timeout` seconds are over."""
        loop, scheduler = self._loop, self._scheduler
        loop.check_limit()
        if timeout is None:
            self._restless = 0
            while not loop.has_work:
                scheduler.run_until(scheduler.now + 1_000_000, lambda: loop.has_work)
                loop.check_limit()
        else:
            self._restless = 0 if timeout > 0 else self._restless + 1
            cost = ITERATION_COST if self._restless < RESTLESS_ITERATIONS else RESTLESS_COST
            pause = max(math.ceil(timeout * 1e6), cost)
            scheduler.run_until(scheduler.now + pause, (lambda: loop.has_work) if timeout > 0 else None)
        return []

    def close(self) -> None:
        """Nothing is held."""


def refuse(what: str) -> NoReturn:
    """Raises RuntimeError: an application does what is not simulated."""
    raise RuntimeError(f"{what} are not simulated: an application under simulation talks to its cluster only")
