"""A replica on asyncio: the state at hand, proposals that are awaited, and changes to follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Generic, TypeVar

from client.arguments import payload_argument, timeout_argument
from client.client import Client
from client.promise import break_, keep
from client.public_names import PublicNames
from client.replica.applied_state import StateKind, StateMachine
from client.replica.command_replica import CommandReplica
from client.replica.commands import CommandOutcome, RequestId, StateVersion
from client.replica.metrics import ReplicaMetrics
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros

SNAPSHOT_EVERY: Final = 1000
T = TypeVar("T", bound=StateMachine)


class Replica(PublicNames, Generic[T]):
    """One process's copy of a state that several change. Use it as ``async with Replica(client, KIND, "/commands", "/snapshots") as replica``.

    Both logs belong to this state alone, and nothing but replicas trims them. What is read from `state` is as of `version`; it changes between two
    awaits only. No replica stops waiting: `waiting_for` says what holds it up.
    """

    def __init__(
        self,
        client: Client,
        kind: StateKind[T],
        commands: int | str,
        snapshots: int | str,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        """
        Args:
            client: an open client. Close the replica before it.
            kind: of the state: the same for all replicas.
            commands: the log of commands, by id or path.
            snapshots: the log of snapshots.
            snapshot_every: write a snapshot after so many commands, if the last of them was proposed here; 0: others do.

        Entering raises:
            LogDeviceError: INVALID_PARAM; NOTFOUND: there are no such logs; TIMEDOUT: the log tree could not be asked for them; SHUTDOWN: it was closed meanwhile.
        """
        self._client = client
        self._kind = kind
        self._commands = commands
        self._snapshots = snapshots
        self._snapshot_every = snapshot_every
        self._waiters: set[asyncio.Future[None]] = set()
        self._closed = False
        self._entered: CommandReplica[T] | None = None

    def __repr__(self) -> str:
        if self._entered is None:
            return f"<Replica of {self._commands}: not entered>"
        return f"<Replica: version {self.version}, waits for {self.waiting_for()}>"

    # Life

    async def __aenter__(self) -> Replica[T]:
        client = self._client
        client.future().cancel()  # refuses when the client is not open
        commands, snapshots = await client.known_log(self._commands), await client.known_log(self._snapshots)
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the replica was closed", retriable=False)
        self._entered = CommandReplica(
            client.session,
            self._kind,
            commands,
            snapshots,
            self._on_change,
            snapshot_every=self._snapshot_every,
            read_settings=client.read_settings,
        )
        self._entered.start(client.now())
        client.wake()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop; proposals under way fail. Harmless when called again."""
        self._closed = True
        if self._entered is not None:
            self._entered.stop()
        self._client.wake()
        self._wake_waiters()

    @property
    def _machine(self) -> CommandReplica[T]:
        if self._entered is None:
            raise LogDeviceError(Status.INVALID_PARAM, f"{self!r}: use it as ``async with``", retriable=False)
        return self._entered

    # The state

    @property
    def state(self) -> T:
        """As of `version`; not to be changed but by proposals."""
        return self._machine.state.value

    @property
    def version(self) -> StateVersion:
        """Of the state. Replicas of the same version have the same state."""
        return self._machine.version

    @property
    def is_caught_up(self) -> bool:
        """The state has everything that was applied anywhere before the replica was opened."""
        return self._machine.caught_up

    @property
    def metrics(self) -> ReplicaMetrics:
        """What it met and did."""
        return self._machine.metrics

    def waiting_for(self) -> str:
        """What holds the replica up at this moment, for people; "commands" when nothing does."""
        return self._machine.waiting_for()

    async def caught_up(self, *, timeout: float | None = None) -> None:
        """Wait until `is_caught_up`.

        Raises:
            LogDeviceError: TIMEDOUT, which says what is waited for; ACCESS: the client may not read the logs; SHUTDOWN.
        """
        await self._until(lambda: self.is_caught_up, timeout)

    async def current(self, *, timeout: float | None = None) -> None:
        """Wait until the state has everything that was applied anywhere before this call.

        Raises:
            LogDeviceError: TIMEDOUT; ACCESS; SHUTDOWN.
        """
        await self.caught_up(timeout=timeout)
        timeout_us = timeout_argument(timeout)
        if timeout_us is None:
            timeout_us = self._client.settings.append_timeout_us
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the replica was closed", retriable=False)
        future = self._client.future()

        def confirmed(error: BaseException | None, now: Micros) -> None:
            if not future.done():
                keep(future, None) if error is None else break_(future, error)

        self._machine.confirm(confirmed, self._client.now(), timeout_us)
        self._client.wake()
        try:
            async with asyncio.timeout(timeout_us / 1e6):
                await self._client._outcome(future)
        except TimeoutError:
            text = f"the newest commands did not come within {timeout_us / 1e6:g} s: the replica waits for {self.waiting_for()}"
            raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False) from None

    async def reached(self, version: StateVersion, *, timeout: float | None = None) -> None:
        """Wait until the state is of this version or a later one: one that another replica has told.

        Raises:
            LogDeviceError: as `caught_up`.
        """
        await self._until(lambda: self.version >= version, timeout)

    async def changes(self) -> AsyncIterator[StateVersion]:
        """The version at this moment, and then each later one that is found when the caller comes back: ``async for version in replica.changes()``. Ends
        when the replica is closed."""
        seen: StateVersion | None = None
        while not self._closed:
            if self.version != seen:
                seen = self.version
                yield seen
            else:
                await self._wait(None)

    async def _until(self, holds: Callable[[], bool], timeout: float | None) -> None:
        timeout_us = timeout_argument(timeout)
        deadline = None if timeout_us is None else self._client.now() + timeout_us
        self._machine.refused = None  # it may be permitted meanwhile
        while not holds():
            if self._machine.refused is not None:
                raise self._machine.refused
            if self._closed:
                raise LogDeviceError(Status.SHUTDOWN, "the replica was closed", retriable=False)
            if not await self._wait(deadline):
                text = f"version {self.version} after {timeout:g} s: the replica waits for {self.waiting_for()}"
                raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=False)

    async def _wait(self, deadline: int | None) -> bool:
        """Until there may be something; False: the time is up."""
        left = None if deadline is None else max(0, deadline - self._client.now()) / 1e6
        waiter = self._client.future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait_for(self._client._outcome(waiter), left)
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    def _on_change(self, now: Micros) -> None:
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Changes

    def new_request(self) -> RequestId:
        """An id for `propose`, for whoever wants to ask again what came of it, also after a restart.

        Raises:
            LogDeviceError: AGAIN before the replica is caught up.
        """
        return self._machine.new_request()

    async def propose(
        self, command: bytes, *, request: RequestId | None = None, timeout: float | None = None
    ) -> CommandOutcome:
        """Append a command, and wait until this replica applies it. It is applied at most once, however often it is appended.

        Args:
            command: what `StateMachine.apply` gets.
            request: from `new_request`. Proposing again with the same one does not apply the command again; it tells what came of it.
            timeout: seconds, in place of the client's append timeout.

        Raises:
            LogDeviceError: TIMEDOUT, SHUTDOWN, DATALOSS (the replica stands before a loss), each with `maybe_applied` where the command may have been
                applied or may be later; STALE: too many others were applied since the request was made; TOOBIG, NOBUFS, NOTFOUND, INVALID_PARAM: nothing was
                appended.
        """
        body = payload_argument(command)
        future = self._client.future()
        timeout_us = timeout_argument(timeout)
        if timeout_us is None:
            timeout_us = self._client.settings.append_timeout_us
        self._machine.propose(body, future, self._client.now(), timeout_us, request)
        self._client.wake()
        outcome = await self._client._outcome(future)
        assert isinstance(outcome, CommandOutcome)
        return outcome
