"""Namespaces: streams by name, created, renamed and deleted while the cluster runs."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import msgpack

from client.client import Client
from client.log_tree.client_log_tree import checked
from client.log_tree.state import TreeDirectory
from client.public_names import PublicNames
from client.replica.commands import CommandOutcome, CommandRefused, StateVersion, refusal
from client.replica.replica import Replica
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import StreamAttributes
from streams.commands import (
    CreateStream,
    DeleteStream,
    NamespaceCommand,
    RenameStream,
    StreamCreated,
    StreamDeleted,
    encode,
)
from streams.names import checked_name, checked_new_name, is_below
from streams.own_logs import METADATA_GROUP, find_namespace_logs, make_own_logs
from streams.state import NAMESPACE, NamespaceState, StreamEntry, StreamPhase
from streams.stream import Stream
from streams.stream_group import StreamGroup
from streams.stream_subscriptions import StreamSubscription, StreamSubscriptions
from streams.upkeep.janitor import Janitor

DATA_DIRECTORY: Final = ".data"
"""Holds the groups of the streams' logs, one log each, named by the streams' numbers."""
_METADATA_ATTRIBUTES: Final = {"backlog": "0us", "durability": "sync"}
"""What directories above say of other logs would lose streams."""
log_ = logging.getLogger("logdevice.streams")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What a namespace knows of a stream, as of one moment."""

    name: str
    number: int
    """Given once: a stream that is created under the name of a deleted one has another."""
    state: str
    """``creating``: its creator has not finished; ``live``; ``ended``."""
    version: StateVersion
    """Of its last change of name, truncation or end, for `expect`."""
    attributes: StreamAttributes
    log: LogId
    """That holds the records; 0: it is not made yet."""


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A stream was created, changed or deleted."""

    number: int
    info: StreamInfo | None
    """How it is now; None: it was deleted."""


class Namespace(PublicNames):
    """Streams by name. Use it as ``async with Namespace(client, "/streams") as namespace``.

    What is done here is known to all who use the namespace when the call returns; `open` and `list` know all that returned to anybody
    before they were called. `timeout` is in seconds everywhere, in place of the client's append timeout.
    """

    INTERNAL_NAMES = frozenset(
        {
            "client",
            "how_to_open",
            "name_of",
            "propose",
            "state",
            "stream_entry",
            "stream_subscriptions",
            "wait_for_change",
        }
    )

    def __init__(
        self,
        client: Client,
        path: str = "/streams",
        *,
        log_attributes: Mapping[str, Any] | None = None,
        janitor: bool = False,
        create: bool = True,
    ) -> None:
        """
        Args:
            client: an open client of a cluster with a log tree. Close the namespace before it.
            path: a directory of the log tree, which belongs to the namespace. Whoever opens it first makes it, for good, but with `create=False`.
            log_attributes: of the logs in which the namespace keeps its state, where it is made, such as ``{"replicate": "node:3"}``; what is
                not set here holds as directories above say.
            janitor: do also what `ldstream janitor` does, while the namespace is open: copy, trim and delete as streams' attributes say, unless
                another process holds that role.
            create: make the namespace when there is none. False: opening one that does not exist raises NOTFOUND, which names the nearest one.
        """
        self.client = client
        self._janitor: asyncio.Task[None] | None = None
        self._has_janitor = janitor
        self._creates = create
        self.path = path.rstrip("/")
        self._log_attributes = {**_METADATA_ATTRIBUTES, **(log_attributes or {})}
        self.stream_subscriptions = StreamSubscriptions(self, self._log_attributes)
        self._opened: Replica[NamespaceState] | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._watchers: dict[int, dict[int, None]] = {}
        """Numbers of streams that each of those who watch has to look at again, by its id: two of them may be equal."""
        self._follower: asyncio.Task[None] | None = None
        self._finisher: asyncio.Task[None] | None = None
        self._closed = False
        self.how_to_open = (
            f'use "async with Namespace(client, {self.path!r}) as namespace", or call "await namespace.start()"'
        )
        """What an error says to whoever forgot it."""

    def __repr__(self) -> str:
        if self._opened is None:
            return f"<Namespace {self.path}: not open>"
        closed = ", closed" if self._closed else ""
        return f"<Namespace {self.path}: {len(self._opened.state.streams)} streams, version {self._opened.version}{closed}>"

    # Life

    async def __aenter__(self) -> Namespace:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self, *, timeout: float | None = None) -> None:
        """Read the namespace; make it when there is none, unless `create=False`.

        Raises:
            LogDeviceError: NOTSUPPORTED: the cluster has no log tree; NOTFOUND: there is no such namespace, with `create=False`; INVALID_PARAM: there is
                something else at the path; TIMEDOUT, which says what is waited for.
        """
        if self._opened is not None:
            return
        if self._creates:
            logs = await make_own_logs(self.client, f"{self.path}/{METADATA_GROUP}", self._log_attributes, timeout)
        else:
            logs = await find_namespace_logs(self.client, self.path, timeout)
        replica = Replica(self.client, NAMESPACE, logs.commands, logs.snapshots)
        await replica.__aenter__()
        try:
            await replica.caught_up(
                timeout=timeout if timeout is not None else self.client.settings.append_timeout_us / 1e6
            )
        except BaseException:
            await replica.close()
            raise
        self._opened = replica
        create_task = self.client.loop.create_task
        self._follower = create_task(self._follow(replica, replica.state), name=f"changes of {self.path}")
        self._finisher = create_task(self._finish_deletions(), name=f"deletions of {self.path}")
        if self._has_janitor:
            self._janitor = create_task(Janitor(self).run(), name=f"janitor of {self.path}")

    async def close(self) -> None:
        """Stop following changes. StreamWriters and readers should be closed before. Harmless when called again."""
        if self._janitor is not None:
            self._janitor.cancel()
            await asyncio.gather(self._janitor, return_exceptions=True)
            self._janitor = None
        self._closed = True
        self._wake()
        tasks = [task for task in (self._follower, self._finisher) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.stream_subscriptions.close()
        if self._opened is not None:
            await self._opened.close()

    # The state

    @property
    def _replica(self) -> Replica[NamespaceState]:
        if self._closed:
            raise LogDeviceError(
                Status.SHUTDOWN, f"namespace {self.path} was closed: open another one", retriable=False
            )
        if self._opened is None:
            text = f"namespace {self.path} is not open: {self.how_to_open}"
            raise LogDeviceError(Status.SHUTDOWN, text, retriable=False)
        return self._opened

    @property
    def state(self) -> NamespaceState:
        """As far as it is known here."""
        return self._replica.state

    async def current(self, *, timeout: float | None = None) -> None:
        """Wait until everything is known that returned to anybody before this call.

        Raises:
            LogDeviceError: TIMEDOUT, which says what is waited for; SHUTDOWN.
        """
        await self._replica.current(timeout=timeout)

    def stream_entry(self, number: int) -> StreamEntry:
        """What is known here of a stream.

        Raises:
            LogDeviceError: NOTFOUND: it was deleted.
        """
        entry = self.state.streams.get(number)
        if entry is None or entry.phase is StreamPhase.DELETING:
            raise LogDeviceError(Status.NOTFOUND, "the stream was deleted")
        return entry

    def name_of(self, number: int) -> str:
        """What people call a stream, also when it is deleted or the namespace is closed."""
        entry = None if self._opened is None else self._opened.state.streams.get(number)
        return f"{number} (deleted)" if entry is None else entry.name

    async def propose(self, command: NamespaceCommand, timeout: float | None = None) -> CommandOutcome:
        """What a command came to that was applied.

        Raises:
            LogDeviceError: the command was refused; TIMEDOUT, SHUTDOWN, DATALOSS with `maybe_applied` where it may be applied.
        """
        outcome = await self._replica.propose(encode(command), timeout=timeout)
        if not outcome.applied:
            status, text = refusal(outcome.reason)
            raise LogDeviceError(status, text, retriable=False, maybe_applied=False)
        return outcome

    async def _follow(self, replica: Replica[NamespaceState], state: NamespaceState) -> None:
        """Tell whoever waits for changes to this state, and to those that take its place."""
        try:
            async for _ in replica.changes():
                changed = replica.state.changes.streams
                if replica.state is not state:  # a snapshot, which does not say what is new in it
                    changed.update(dict.fromkeys((*state.streams, *replica.state.streams)))
                    state = replica.state
                for pending in self._watchers.values():
                    pending.update(changed)
                changed.clear()
                self._wake()
        except LogDeviceError as error:
            log_.warning("%s: changes are not followed any more: %s", self.path, error)  # the client was closed before

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait_for_change(self, timeout: float | None) -> None:
        """Until the state has another version, the namespace is closed, or the time is up."""
        if self._closed:
            return
        future = self.client.future()
        self._waiting[future] = None
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            self._waiting.pop(future, None)

    def _info(self, entry: StreamEntry) -> StreamInfo:
        state = "creating" if entry.phase is StreamPhase.CREATING else "live" if entry.ended is None else "ended"
        attributes = StreamAttributes.from_mapping(entry.attributes)
        return StreamInfo(entry.name, entry.number, state, entry.version, attributes, entry.log)

    # Looking

    async def list(self, directory: str = "", *, timeout: float | None = None) -> list[StreamInfo]:
        """Streams in a directory and below it, in order of names; all of them without one."""
        if directory:
            _check_name(directory)
        await self.current(timeout=timeout)
        return sorted((self._info(entry) for entry in self.state.below(directory)), key=lambda info: info.name)

    async def open(self, name: str, *, timeout: float | None = None) -> Stream:
        """A stream that exists.

        Raises:
            LogDeviceError: NOTFOUND; TIMEDOUT.
        """
        _check_name(name)
        await self.current(timeout=timeout)
        entry = self.state.find(name)
        if entry is None:
            raise LogDeviceError(Status.NOTFOUND, f"there is no stream {name} in {self.path}")
        await self._finish_creation(entry.number, timeout)
        stream = Stream(self, entry.number)
        await self.client.known_log(stream.log, timeout)  # the namespace may know of it before the log tree does
        return stream

    async def watch(self, directory: str = "") -> AsyncIterator[StreamChange]:
        """All streams in a directory and below it, as if they were created now, and then what changes, until the namespace is closed. Of changes that
        follow each other quickly only the last may be told."""
        if directory:
            _check_name(directory)
        await self.current()
        pending = dict.fromkeys(entry.number for entry in self.state.below(directory))
        told: set[int] = set()
        self._watchers[id(pending)] = pending
        try:
            while not self._closed:
                while pending and not self._closed:
                    number = next(iter(pending))
                    del pending[number]
                    entry = self.state.streams.get(number)
                    if (
                        entry is not None
                        and entry.phase is not StreamPhase.DELETING
                        and is_below(entry.name, directory)
                    ):
                        told.add(number)
                        yield StreamChange(number, self._info(entry))
                    elif number in told:
                        told.discard(number)
                        yield StreamChange(number, None)
                await self.wait_for_change(None)
        finally:
            del self._watchers[id(pending)]

    async def subscriptions(
        self, subscription: str | None = None, *, timeout: float | None = None
    ) -> builtins.list[StreamSubscription]:
        """How far each subscription is in each stream, with the age of its last commit, as it is at this moment, in order of names.

        Args:
            subscription: of this one; None: of all.
            timeout: seconds.

        Raises:
            LogDeviceError: TIMEDOUT, SHUTDOWN.
        """
        return await self.stream_subscriptions.entries(subscription, None, timeout)

    def group(self, subscription: str) -> StreamGroup:
        """The group of readers of a subscription, who share streams; see `StreamGroup`.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        return StreamGroup(self, subscription)

    # Changes

    async def delete_subscription(self, subscription: str, *, timeout: float | None = None) -> None:
        """Forget how far a subscription is, in all streams, and its group.

        Raises:
            LogDeviceError: NOTFOUND; NOTEMPTY: its group has members; TIMEDOUT with `maybe_applied`.
        """
        await self.stream_subscriptions.delete(subscription, None, timeout)

    async def create(
        self,
        name: str,
        *,
        txid: str = "time",
        writers: str = "shared",
        ttl: Any = None,
        truncated_retention: Any = None,
        roll: Any = None,
        cold: str | None = None,
        cold_ttl: Any = None,
        log_attributes: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Stream:
        """Create a stream, which can be used from here on by everybody.

        Args:
            name: like ``orders``, or ``team/orders`` in a directory: 1024 characters at most, and 255 between slashes.
            txid: who numbers records. "writer": each record is written with a transaction id, none below one before; "time": nobody, and the time
                at which a record was sequenced is its transaction id. It never falls: a sequencer whose clock is behind goes on from the last record.
            writers: "shared": any number at a time; "exclusive": one owner at a time.
            ttl: how long a segment is kept after it is completed, like ``"3d"``. This and the next take effect while a janitor runs, as `cold` and
                `cold_ttl` do: ``ldstream janitor``, or a namespace that somebody has open with `janitor=True`.
            truncated_retention: how long records are kept after they were truncated.
            roll: a `Roll`: when another segment begins. None: as directories above say, which by default is with another sequencer only.
            cold: URL of the store to which segments are copied.
            cold_ttl: how long copies are kept there.
            log_attributes: of its log, as in the cluster file: ``{"replicate": "node:3"}``.
            timeout: seconds.

        Raises:
            LogDeviceError: EXISTS; INVALID_PARAM; NOSPC; TIMEDOUT with `maybe_applied`: the stream may exist, and `open` finishes what was begun.
        """
        _check_new_name(name)
        attributes = StreamAttributes.of(
            txid=txid,
            writers=writers,
            ttl=ttl,
            truncated_retention=truncated_retention,
            roll=roll,
            cold=cold,
            cold_ttl=cold_ttl,
        )
        needed = attributes.own_log_attributes()
        if twice := sorted(set(needed) & set(log_attributes or ())):
            text = f"{twice[0]} of the log follows from txid and roll: leave it out of log_attributes"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        own = checked({"backlog": "0us", **needed, **(log_attributes or {})}, self.client.config)
        outcome = await self.propose(CreateStream(name, attributes.mapping(), own), timeout)
        number: int = msgpack.unpackb(outcome.result)
        try:
            await self._finish_creation(number, timeout)
        except LogDeviceError as error:
            if error.retriable or error.maybe_applied:
                raise LogDeviceError(error.status, error.detail, maybe_applied=True) from None
            # the log tree does not take its log, and never will; another stream may have its name by now
            with _unless(Status.NOTFOUND, Status.VERSION_MISMATCH):
                await self.delete(name, expect=outcome.version, timeout=timeout)
            raise
        return Stream(self, number)

    async def rename(
        self, name: str, to: str, *, expect: StateVersion | None = None, timeout: float | None = None
    ) -> None:
        """Give a stream a name that is free. Whoever has opened it keeps it.

        Raises:
            LogDeviceError: NOTFOUND, EXISTS; VERSION_MISMATCH: it has another version than `expect`; TIMEDOUT with `maybe_applied`.
        """
        _check_name(name)
        _check_new_name(to)
        await self.propose(RenameStream(name, to, expect), timeout)

    async def delete(self, name: str, *, expect: StateVersion | None = None, timeout: float | None = None) -> None:
        """Delete a stream with its records; its name is free. A write that begins after this returned is never acknowledged.

        Raises:
            LogDeviceError: NOTFOUND; VERSION_MISMATCH; TIMEDOUT with `maybe_applied`: whoever opens the namespace goes on with it.
        """
        _check_name(name)
        outcome = await self.propose(DeleteStream(name, expect), timeout)
        number: int = msgpack.unpackb(outcome.result)
        try:
            await self._finish_deletion(number, timeout)
        except LogDeviceError as error:
            raise LogDeviceError(error.status, error.detail, retriable=error.retriable, maybe_applied=True) from None

    async def deletions_finished(self) -> None:
        """Wait until this namespace has gone on with what others had begun to delete when it was opened; what it could not finish is logged."""
        if self._finisher is not None:
            await asyncio.shield(self._finisher)

    # What takes more than one step

    def _data_path(self, number: int) -> str:
        return f"{self.path}/{DATA_DIRECTORY}/s{number}"

    async def _finish_creation(self, number: int, timeout: float | None) -> None:
        """Make the log of a stream, unless it has one. Anybody may, at any time."""
        entry = self.stream_entry(number)
        if entry.phase is StreamPhase.LIVE:
            return
        path = self._data_path(number)
        try:
            made = await self.client.make_log_group(path, 1, entry.log_attributes, parents=True, timeout=timeout)
        except LogDeviceError as error:
            if error.status is not Status.EXISTS:
                raise
            made = await self.client.get_log_group(path, timeout=timeout)
        try:
            await self.propose(StreamCreated(number, LogId(made.logs[0])), timeout)
        except LogDeviceError as error:
            if error.status is not Status.NOTFOUND:
                raise
            await self._remove_group(path, timeout)  # it was deleted meanwhile, perhaps before this log was made
            raise

    async def _finish_deletion(self, number: int, timeout: float | None) -> None:
        await self.stream_subscriptions.forget(number, timeout)
        await self._remove_group(self._data_path(number), timeout)
        with _unless(Status.NOTFOUND):
            await self.propose(StreamDeleted(number), timeout)

    async def _remove_group(self, path: str, timeout: float | None) -> None:
        with _unless(Status.NOTFOUND):
            await self.client.remove(path, timeout=timeout)

    async def _finish_deletions(self) -> None:
        """Go on with what was begun by those who died: deletions, and logs of streams that were deleted before their creator made them."""
        for number in [*self.state.deleting(), *self._orphans()]:
            try:
                await self._finish_deletion(number, None)
            except LogDeviceError as error:
                log_.warning("%s: the log of a deleted stream (%d) is not removed: %s", self.path, number, error)

    def _orphans(self) -> Sequence[int]:
        """Numbers of groups that belong to no stream, and never will: theirs were given and deleted, and no number is given twice."""
        tree = self.client.log_tree
        directory = None if tree is None else tree.find(f"{self.path}/{DATA_DIRECTORY}")
        if not isinstance(directory, TreeDirectory):
            return []
        numbers = [int(name[1:]) for name in directory.children if name[:1] == "s" and name[1:].isdecimal()]
        state = self.state
        return [number for number in numbers if number < state.next_number and number not in state.streams]


def _check_name(name: Any) -> None:
    try:
        checked_name(name)
    except CommandRefused as error:
        raise LogDeviceError(*refusal(str(error))) from None


def _check_new_name(name: Any) -> None:
    try:
        checked_new_name(name)
    except CommandRefused as error:
        raise LogDeviceError(*refusal(str(error))) from None


@contextlib.contextmanager
def _unless(*statuses: Status) -> Iterator[None]:
    """An error of one of these statuses means that nothing is left to do."""
    try:
        yield
    except LogDeviceError as error:
        if error.status not in statuses:
            raise
