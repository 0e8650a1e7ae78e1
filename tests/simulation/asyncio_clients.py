"""Client processes of a run whose code is asyncio: the `Client` that applications use, beside machines that know no event loop."""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from client.client import Client
from client.session import ClientSession
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.simulation.scheduler import Scheduler
from server.simulation.cluster import SimClientNetwork
from server.simulation.machines import SimMachines
from tests.simulation.application import Application
from tests.simulation.history import Attempt

if TYPE_CHECKING:
    from tests.simulation.workload import Applications

ASYNCIO_ADDRESS = -200_000
"""In the network, of the first such client; later ones count down."""


class SchedulerLoop(asyncio.AbstractEventLoop):
    """Runs every callback as an event of a scheduler. It has no loop of its own: whoever runs the scheduler runs it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time(self) -> float:
        """Virtual seconds since the run began."""
        return self._scheduler.now / 1e6

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """As long as somebody runs the scheduler."""
        return True

    def is_closed(self) -> bool:
        """Never."""
        return False

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """At this time, after what was scheduled for it before."""
        handle = asyncio.Handle(callback, args, self, context)
        self._scheduler.post(self._scheduler.now, self._run, handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """At a time of this loop's clock."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._scheduler.post(math.ceil(when * 1e6), self._run, handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """After so many virtual seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """Of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """Begin at this time, after what was scheduled for it before."""
        return asyncio.Task(coro, loop=self, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What leaves a callback ends the run."""
        if "handle" in context:
            raise context["exception"]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is found cancelled when its time comes."""

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(before)


class AsyncioClient:
    """A client process in which one coroutine runs; to the rest of a run it looks like a `SimClient`."""

    def __init__(self, cluster: SimMachines, number: int) -> None:
        """
        Args:
            number: nobody else's among the clients of this kind.
        """
        self.name = f"A{number}"
        self._cluster = cluster
        self._address = ASYNCIO_ADDRESS - number
        self.client = Client(
            cluster.config,
            name=self.name,
            seed=cluster.rng.getrandbits(64),
            settings=cluster.client_settings,
            network=self._make_network,
        )
        self.client.read_settings = cluster.read_settings
        self._loop = SchedulerLoop(cluster.scheduler)
        self._task: asyncio.Task[None] | None = None

    def _make_network(self, machines: Any) -> SimClientNetwork:
        self._network = SimClientNetwork(self._cluster, machines, self._address)
        return self._network

    @property
    def session(self) -> ClientSession:
        """The machines."""
        return self.client.session

    def start(self, code: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the client and run the coroutine."""

        async def run() -> None:
            async with self.client:
                await code()

        self._task = self._loop.create_task(run(), name=self.name)
        self._task.add_done_callback(_raise)

    @property
    def done(self) -> bool:
        """The coroutine has ended."""
        return self._task is not None and self._task.done()

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Something that happens to the machines."""
        self._network.event(handler)

    def take_config(self, config: ClusterConfig) -> None:
        """A newer cluster file."""
        self._network.set_config_version(config.version)
        self.event(lambda now: self.session.set_config(config, now))

    def kill(self) -> None:
        """The process dies: nothing that it does any more reaches anybody."""
        self._network.stop()
        if self._task is not None:
            self._task.cancel()


def _raise(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


class AsyncioApplication(Application):
    """A client process whose code is a coroutine."""

    client: Any  # an `AsyncioClient`

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.is_calm = asyncio.Event()
        """Set when the part of the run with faults is over."""

    def make_client(self) -> Any:
        """The process."""
        client = AsyncioClient(self.cluster, self.run.born)
        self.cluster.clients.append(client)  # type: ignore[arg-type]
        return client

    def begin(self, interval: int) -> None:
        """Start the process."""
        self.client.start(lambda: self.live(interval))

    def live(self, interval: int) -> Coroutine[Any, Any, None]:
        """What the process does. `interval`: microseconds between two of its actions, on average."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Its code has ended, or it is dead."""
        return not self.alive or bool(self.client.done)

    async def outcome(self, log: LogId, attempt: Attempt, answer: Any) -> Any:
        """The receipt of an append; the history learns what came of the attempt, unless the process dies before."""
        self.run.pending += 1
        try:
            receipt = await answer
        except LogDeviceError as error:
            self.run.pending -= 1
            self.run.failures[error.status] = self.run.failures.get(error.status, 0) + 1
            if self.alive:
                self.run.histories[log].note_failure(attempt, maybe_applied=error.maybe_applied)
            raise
        self.run.pending -= 1
        if self.alive:
            self.acknowledged(log, attempt, receipt.lsn, receipt.batch_offset, receipt.timestamp)
        return receipt

    async def rest(self, microseconds: int) -> None:
        """Sleep so long, less when the run becomes calm."""
        try:
            async with asyncio.timeout(microseconds / SECOND):
                await self.is_calm.wait()
        except TimeoutError:
            pass

    def calm(self) -> None:
        """End soon."""
        self.is_calm.set()
