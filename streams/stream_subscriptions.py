"""The subscriptions of a namespace: how far somebody has read each stream, by streams' numbers, so that renames change nothing.

Rules:

1. Numbers: a stream stands in the subscriptions under its number, which no other stream ever has; people see names.
2. Two logs of their own, beside those of the namespace's state: made when somebody subscribes first, by one command of the log tree.
3. Deletion: before the log of a deleted stream is removed, the stream is taken out of all groups and its positions are deleted. Whoever goes on with the
   deletion does that too.
4. Late additions: whoever adds a stream to a group looks afterwards whether the stream is still there. One who dies before that leaves a row which goes when
   somebody opens the subscriptions next.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from client.guards import Position
from client.replica.commands import StateVersion
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import utc_datetime
from streams.own_logs import OwnLogs, find_own_logs, make_own_logs
from streams.state import StreamPhase
from streams.subscriptions.commands import Delete, Operation, RemoveStreams
from streams.subscriptions.group import Group
from streams.subscriptions.state import SubscriptionsState
from streams.subscriptions.subscriptions import Subscriptions, name_argument

if TYPE_CHECKING:
    from streams.namespace import Namespace

SUBSCRIPTIONS_GROUP: Final = ".subscriptions"
"""The group of the two logs below a namespace's path: commands and snapshots."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as a place to begin: behind what is committed. ``stream.reader(Subscription("billing"))``."""

    name: str
    start: Any = None
    """Where to begin when nothing was committed: a position, `TxId` or datetime; None: with the first record."""


@dataclass(frozen=True, slots=True)
class StreamSubscription:
    """How far a subscription is in a stream, as of one moment."""

    subscription: str
    stream: str
    """The stream's name."""
    number: int
    """The stream's number, which stays when it is renamed."""
    position: Position | None
    """The last record that is handled, with all before it; None: nothing was committed."""
    version: StateVersion | None
    """For `expect`; None: nothing was committed."""
    committed: datetime | None
    """When, in UTC, by the clock of the node that sequences the commits."""
    commits: int
    """How often, as far as commits were not merged."""
    is_shared: bool
    """The stream belongs to the group of this name."""
    owner: str | None
    """The group's member that has the stream."""
    token: int
    """Of its assignment to the owner; 0: it had none."""

    @property
    def age(self) -> timedelta | None:
        """Since the last commit, by this machine's clock; None: nothing was committed."""
        return None if self.committed is None else max(timedelta(), datetime.now(UTC) - self.committed)


def subscription_rows(state: SubscriptionsState, name_of: dict[int, str]) -> list[StreamSubscription]:
    """What a state says of the streams that have these names, in order of the names of subscriptions and streams."""
    rows = []
    for subscription, found in state.subscriptions.items():
        for key in {*found.checkpoints, *found.streams}:
            name = name_of.get(int(key)) if key.isdecimal() else None
            if name is None:
                continue
            checkpoint, shared = found.checkpoints.get(key), found.streams.get(key)
            rows.append(
                StreamSubscription(
                    subscription,
                    name,
                    int(key),
                    None if checkpoint is None else checkpoint.position,
                    None if checkpoint is None else checkpoint.version,
                    None if checkpoint is None else utc_datetime(checkpoint.time),
                    0 if checkpoint is None else checkpoint.commits,
                    shared is not None,
                    None if shared is None else shared.owner,
                    0 if shared is None else shared.token,
                )
            )
    return sorted(rows, key=lambda row: (row.subscription, row.stream, row.number))


class StreamSubscriptions:
    """Opens the subscriptions of one open namespace when they are used first."""

    def __init__(self, namespace: Namespace, log_attributes: dict[str, Any]) -> None:
        self._namespace = namespace
        self._log_attributes = log_attributes
        self._opening = asyncio.Lock()
        self._opened: Subscriptions | None = None

    @property
    def _path(self) -> str:
        return f"{self._namespace.path}/{SUBSCRIPTIONS_GROUP}"

    async def close(self) -> None:
        """Commits under way fail. Harmless when called again."""
        if self._opened is not None:
            await self._opened.close()

    async def opened(self, timeout: float | None) -> Subscriptions:
        """The subscriptions; their logs are made if need be.

        Raises:
            LogDeviceError: as `Client.make_log_group`; TIMEDOUT, which says what is waited for; SHUTDOWN.
        """
        async with self._opening:
            if self._opened is None:
                client = self._namespace.client
                await self._open(await make_own_logs(client, self._path, self._log_attributes, timeout), timeout)
            assert self._opened is not None
            return self._opened

    async def found(self, timeout: float | None) -> Subscriptions | None:
        """The subscriptions; None: nobody has ever subscribed to anything.

        Raises:
            LogDeviceError: as `opened`.
        """
        async with self._opening:
            if self._opened is None:
                logs = await find_own_logs(self._namespace.client, self._path, timeout)
                if logs is None:
                    return None
                await self._open(logs, timeout)
            return self._opened

    async def _open(self, logs: OwnLogs, timeout: float | None) -> None:
        client = self._namespace.client
        subscriptions = Subscriptions(client, logs.commands, logs.snapshots)
        await subscriptions.__aenter__()
        try:
            limit = timeout if timeout is not None else client.settings.append_timeout_us / 1e6
            await subscriptions.caught_up(timeout=limit)
            await self._forget_deleted(subscriptions, timeout)
        except BaseException:
            await subscriptions.close()
            raise
        self._opened = subscriptions

    # Streams that are deleted

    async def _forget_deleted(self, subscriptions: Subscriptions, timeout: float | None) -> None:
        """What was added to groups as the stream was deleted, by processes that died before they looked."""
        keys = {
            key
            for found in subscriptions.state.subscriptions.values()
            for key in (*found.streams, *found.checkpoints)
            if key.isdecimal()
        }
        await self._namespace.current(
            timeout=timeout
        )  # whoever added a stream had seen it: the state here knows its number
        state = self._namespace.state
        for key in sorted(keys, key=int):
            if int(key) < state.next_number and int(key) not in state.streams:
                hit("subscription_of_a_deleted_stream_goes")
                await forget(subscriptions, key, timeout)

    async def forget(self, number: int, timeout: float | None) -> None:
        """Take a stream that is deleted out of all groups, and delete its positions. Anybody may, at any time."""
        subscriptions = await self.found(timeout)
        if subscriptions is not None:
            await subscriptions.current(timeout=timeout)
            await forget(subscriptions, str(number), timeout)

    # What applications ask

    async def entries(
        self, subscription: str | None, number: int | None, timeout: float | None
    ) -> list[StreamSubscription]:
        """As they are at this moment, of one subscription and of one stream, or of all."""
        subscriptions = await self.found(timeout)
        if subscriptions is None:
            return []
        await subscriptions.current(timeout=timeout)
        await self._namespace.current(timeout=timeout)
        names = {
            entry.number: entry.name
            for entry in self._namespace.state.streams.values()
            if entry.phase is not StreamPhase.DELETING and number in (None, entry.number)
        }
        rows = subscription_rows(subscriptions.state, names)
        return [row for row in rows if subscription in (None, row.subscription)]

    async def commit(
        self,
        subscription: str,
        number: int,
        position: Position,
        *,
        expect: StateVersion | None,
        token: int = 0,
        reset: bool,
        timeout: float | None,
    ) -> StateVersion:
        """As `Subscriptions.commit`; errors call the stream by its name."""
        self._namespace.stream_entry(number)
        subscriptions = await self.opened(timeout)
        return await subscriptions.commit(
            subscription,
            str(number),
            position,
            expect=expect,
            token=token,
            reset=reset,
            timeout=timeout,
            shown=self._namespace.name_of(number),
        )

    async def delete(self, subscription: str, number: int | None, timeout: float | None) -> None:
        """Forget a subscription, or how far it is in one stream."""
        name_argument("subscription", subscription)
        subscriptions = await self.found(timeout)
        where = "" if number is None else f", stream {self._namespace.name_of(number)}"
        what = f"subscription {subscription}{where}"
        if subscriptions is None:
            raise LogDeviceError(Status.NOTFOUND, f"{what}: there is none", retriable=False)
        await subscriptions.change(Delete(subscription, None if number is None else str(number)), what, timeout)

    async def group(self, name: str, timeout: float | None) -> Group:
        """The group of a subscription, whose streams are numbers."""
        return Group(await self.opened(timeout), name)


async def forget(subscriptions: Subscriptions, key: str, timeout: float | None) -> None:
    """Take a stream out of all subscriptions."""
    for name, found in sorted(subscriptions.state.subscriptions.items()):
        operations: list[Operation] = [RemoveStreams(name, [key])] if key in found.streams else []
        if key in found.checkpoints:
            operations.append(Delete(name, key))
        for operation in operations:
            try:
                await subscriptions.change(operation, f"subscription {name}", timeout)
            except LogDeviceError as error:
                if error.status is not Status.NOTFOUND:  # else somebody else does the same
                    raise
