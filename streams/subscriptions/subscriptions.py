"""The subscriptions of a process, on asyncio: positions that are committed, read and listed, and groups of members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

from client.arguments import flag_argument, is_integer, lsn_argument, timeout_argument
from client.client import Client
from client.guards import Position
from client.public_names import PublicNames
from client.replica.commands import OFFSET_MAX, StateVersion
from client.replica.replica import SNAPSHOT_EVERY, Replica
from logdevice_py.core.lsn import LSN, LSN_MAX
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import utc_datetime
from streams.subscriptions.commands import (
    NAME_BYTES_MAX,
    STATUS_OF,
    TOKEN_MAX,
    Commit,
    Delete,
    Operation,
    OperationAnswer,
)
from streams.subscriptions.operation_queue import Judged, OperationQueue
from streams.subscriptions.state import SUBSCRIPTIONS, Checkpoint, SubscriptionsState, SubscriptionState


@dataclass(frozen=True, slots=True)
class SubscriptionEntry:
    """How far a subscription is in a stream."""

    subscription: str
    stream: str
    position: Position
    """The last record that is handled, with all before it."""
    version: StateVersion
    """For `expect`."""
    committed: datetime
    """When, in UTC, by the clock of the node that sequences the commits."""
    commits: int
    """How often, as far as commits were not merged."""


class Subscriptions(PublicNames):
    """What processes remember of how far they read streams. Use it as ``async with Subscriptions(client, "/commands", "/snapshots") as subscriptions``.

    Streams are named by whoever uses it: any text of up to 255 bytes. Both logs belong to the subscriptions alone. Each process that opens them reads
    all commands, and sees every group and position without asking anybody.
    """

    INTERNAL_NAMES = frozenset({"change", "client", "operate", "queue", "state", "state_of", "watch", "unwatch"})

    def __init__(
        self, client: Client, commands: int | str, snapshots: int | str, *, snapshot_every: int = SNAPSHOT_EVERY
    ) -> None:
        """
        Args:
            client: an open client. Close the subscriptions before it.
            commands: the log of commands, by id or path.
            snapshots: the log of snapshots.
            snapshot_every: write a snapshot after so many commands; 0: others do.

        Entering raises:
            LogDeviceError: INVALID_PARAM; NOTFOUND: there are no such logs; TIMEDOUT: the log tree could not be asked for them.
        """
        self.client = client
        self.queue = OperationQueue()
        """What this process wants, and figures about it."""
        self._replica: Replica[SubscriptionsState] = Replica(
            client, SUBSCRIPTIONS, commands, snapshots, snapshot_every=snapshot_every
        )
        self._watchers: dict[Callable[[], None], None] = {}
        self._added = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<Subscriptions: {self._replica!r}, {len(self.queue)} operations wait>"

    # Life

    async def __aenter__(self) -> Subscriptions:
        await self._replica.__aenter__()
        self._tasks = [asyncio.create_task(self._propose()), asyncio.create_task(self._follow())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop; what is under way fails. Leave groups before. Harmless when called again."""
        await self._replica.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self.queue.fail_all(LogDeviceError(Status.SHUTDOWN, "the subscriptions were closed", retriable=False))

    async def _propose(self) -> None:
        """One command after another, each with all that came meanwhile."""
        while True:
            while not len(self.queue):
                self._added.clear()
                await self._added.wait()
            command = self.queue.next_command()
            try:
                outcome = await self._replica.propose(command)
            except LogDeviceError as error:
                self.queue.fail(error)
                continue
            assert outcome.applied, outcome.reason
            self.queue.settle(outcome)

    async def _follow(self) -> None:
        async for _ in self._replica.changes():
            for watcher in list(self._watchers):
                watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call it when the state has changed."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], None]) -> None:
        """Call it no more."""
        self._watchers.pop(watcher, None)

    async def operate(self, operation: Operation, timeout: float | None = None) -> Judged:
        """Propose an operation, together with others, and wait for what it came to.

        Raises:
            LogDeviceError: as `Replica.propose`.
        """
        timeout_us = timeout_argument(timeout)
        if not self._tasks:
            raise LogDeviceError(Status.SHUTDOWN, "the subscriptions are not open", retriable=False)
        future: asyncio.Future[Judged] = self.client.future()
        self.queue.add(operation, future)
        self._added.set()
        try:
            async with asyncio.timeout(None if timeout_us is None else timeout_us / 1e6):
                return await future
        except TimeoutError:
            text = f"no outcome after {timeout:g} s: the replica waits for {self._replica.waiting_for()}"
            raise LogDeviceError(Status.TIMEDOUT, text, maybe_applied=True) from None

    @property
    def state(self) -> SubscriptionsState:
        """What is known here; changes between two awaits only."""
        return self._replica.state

    def state_of(self, subscription: str) -> SubscriptionState | None:
        """What is known here of a subscription."""
        return self._replica.state.subscriptions.get(subscription)

    @property
    def is_caught_up(self) -> bool:
        """Everything is known that was there when they were opened."""
        return self._replica.is_caught_up

    async def caught_up(self, *, timeout: float | None = None) -> None:
        """Wait until `is_caught_up`.

        Raises:
            LogDeviceError: TIMEDOUT, which says what is waited for; SHUTDOWN.
        """
        await self._replica.caught_up(timeout=timeout)

    async def current(self, *, timeout: float | None = None) -> None:
        """Wait until everything is known that was acknowledged to anybody before this call.

        Raises:
            LogDeviceError: as `Replica.current`.
        """
        await self._replica.current(timeout=timeout)

    def waiting_for(self) -> str:
        """What holds this replica up at this moment, for people; "commands" when nothing does."""
        return self._replica.waiting_for()

    # Positions

    async def commit(
        self,
        subscription: str,
        stream: str,
        position: Position,
        *,
        expect: StateVersion | None = None,
        token: int = 0,
        reset: bool = False,
        timeout: float | None = None,
        shown: str | None = None,
    ) -> StateVersion:
        """Remember that all records of a stream up to a position are handled. Commits that wait at the same time become one command.

        Args:
            subscription: its name; it is made if need be.
            stream: the name of the stream.
            position: of the last record that is handled.
            expect: the version that the checkpoint has; `NOTHING`: there is none; None: any.
            token: of the stream's assignment to a member of the group of this name; 0: none.
            reset: the position may be below the committed one. Without a token a member that has the stream begins anew behind it.
            timeout: seconds; None: as long as the client's appends may take.
            shown: what errors call the stream; None: as it is.

        Returns:
            The version of the checkpoint.

        Raises:
            LogDeviceError: VERSION_MISMATCH: it has another version than expected; STALE: it is farther; FENCED: a member has the stream, with another
                token; NOSPC: the state is full; INVALID_PARAM. Nothing was changed. TIMEDOUT, SHUTDOWN, DATALOSS, with `maybe_applied`.
        """
        if expect is not None and not isinstance(expect, StateVersion):
            raise LogDeviceError(Status.INVALID_PARAM, f"expect is {expect!r}; it is a version that a commit returned")
        if not is_integer(token) or not 0 <= token <= TOKEN_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"token is {token!r}; it is that of a batch or assignment")
        wanted = Commit(
            name_argument("subscription", subscription),
            name_argument("stream", stream),
            position_argument(position),
            expect,
            token,
            flag_argument("reset", reset),
        )
        judged = await self.operate(wanted, timeout)
        if judged.answer is not OperationAnswer.OK:
            raise self._refused(wanted, judged.answer, shown or stream)
        return judged.version

    def _refused(self, wanted: Commit, answer: OperationAnswer, shown: str) -> LogDeviceError:
        found = self.state_of(wanted.subscription)
        before = None if found is None else found.checkpoints.get(wanted.stream)
        shared = None if found is None else found.streams.get(wanted.stream)
        there = "there is no checkpoint" if before is None else f"it is at {before.position}, version {before.version}"
        where = f"subscription {wanted.subscription}, stream {shown}"
        match answer:
            case OperationAnswer.VERSION_MISMATCH:
                text = f"version {wanted.expect} was expected; {there}"
            case OperationAnswer.FALLS:
                text = f"{wanted.position} is below what is committed; {there}. With reset=True a commit may go back"
            case OperationAnswer.FENCED:
                token = f"token {wanted.token}" if wanted.token else "no token"
                owner = "nobody" if shared is None or shared.owner is None else f"member {shared.owner}"
                text = f"{token} was given; {owner} has the stream"
                text += f", with token {shared.token}" if shared is not None and shared.owner is not None else ""
            case _:
                text = "the subscriptions are full: delete those that nobody uses"
        return LogDeviceError(STATUS_OF[answer], f"{where}: {text}", retriable=False, maybe_applied=False)

    async def get(self, subscription: str, stream: str, *, timeout: float | None = None) -> SubscriptionEntry | None:
        """The checkpoint of a stream as it is at this moment: commits that were acknowledged to anybody before this call are known. None: there is none.

        Raises:
            LogDeviceError: TIMEDOUT, SHUTDOWN, INVALID_PARAM.
        """
        name_argument("subscription", subscription)
        name_argument("stream", stream)
        await self.current(timeout=timeout)
        found = self.state_of(subscription)
        checkpoint = None if found is None else found.checkpoints.get(stream)
        return None if checkpoint is None else _entry(subscription, stream, checkpoint)

    async def entries(
        self, subscription: str | None = None, *, stream: str | None = None, timeout: float | None = None
    ) -> list[SubscriptionEntry]:
        """Checkpoints as they are at this moment, in order of names.

        Args:
            subscription: of this one; None: of all.
            stream: of this stream; None: of all.
            timeout: seconds.

        Raises:
            LogDeviceError: TIMEDOUT, SHUTDOWN.
        """
        await self.current(timeout=timeout)
        return [
            _entry(name, each, checkpoint)
            for name, found in sorted(self._replica.state.subscriptions.items())
            if subscription in (None, name)
            for each, checkpoint in sorted(found.checkpoints.items())
            if stream in (None, each)
        ]

    async def delete(
        self,
        subscription: str,
        stream: str | None = None,
        *,
        expect: StateVersion | None = None,
        timeout: float | None = None,
    ) -> None:
        """Forget a checkpoint, or a subscription with all its checkpoints and streams.

        Args:
            subscription: its name.
            stream: forget how far it is in this one; None: the whole subscription.
            expect: the version that the checkpoint has, so that one that somebody uses again is not deleted for its age; None: any.
            timeout: seconds.

        Raises:
            LogDeviceError: NOTFOUND; VERSION_MISMATCH; NOTEMPTY: the subscription has members, or the stream belongs to its group; as `commit`.
        """
        name_argument("subscription", subscription)
        wanted = Delete(subscription, None if stream is None else name_argument("stream", stream), expect)
        what = f"subscription {subscription}" + ("" if stream is None else f", stream {stream}")
        await self.change(wanted, what, timeout)

    async def change(self, wanted: Operation, what: str, timeout: float | None) -> None:
        """Propose an operation that is not refused.

        Raises:
            LogDeviceError: `what` says for whom; as `operate`.
        """
        judged = await self.operate(wanted, timeout)
        if judged.answer is not OperationAnswer.OK:
            text = f"{what}: {_MEANINGS[judged.answer]}"
            raise LogDeviceError(STATUS_OF[judged.answer], text, retriable=False, maybe_applied=False)


_MEANINGS = {
    OperationAnswer.NOTFOUND: "there is none",
    OperationAnswer.VERSION_MISMATCH: "the checkpoint has another version than expected",
    OperationAnswer.EXISTS: "it has one of the streams with another log: remove that first",
    OperationAnswer.NOTEMPTY: "it is in use: members have to leave, and streams to be removed from the group, before",
    OperationAnswer.NOSPC: "the subscriptions are full: delete those that nobody uses",
}


def _entry(subscription: str, stream: str, found: Checkpoint) -> SubscriptionEntry:
    committed = utc_datetime(found.time)
    return SubscriptionEntry(subscription, stream, found.position, found.version, committed, found.commits)


def name_argument(what: str, name: Any) -> str:
    """The name of a subscription, a stream or a member.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if not isinstance(name, str):
        raise LogDeviceError(Status.INVALID_PARAM, f"{what} is {name!r}; a name is a str")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise LogDeviceError(Status.INVALID_PARAM, f"{what} {name!r} has no form in UTF-8") from None
    if not 0 < size <= NAME_BYTES_MAX:
        raise LogDeviceError(Status.INVALID_PARAM, f"{what} has {size} bytes; a name has 1 to {NAME_BYTES_MAX}")
    return name


def position_argument(position: Any) -> Position:
    """The position of a record.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if not isinstance(position, tuple) or len(position) != 2:
        raise LogDeviceError(Status.INVALID_PARAM, f"position is {position!r}; it is Position(lsn, batch_offset)")
    lsn, offset = position
    if not is_integer(offset) or not 0 <= offset <= OFFSET_MAX or lsn_argument("lsn", lsn) >= LSN_MAX:
        raise LogDeviceError(Status.INVALID_PARAM, f"{position!r} is no position of a record")
    return Position(LSN(lsn), offset)
