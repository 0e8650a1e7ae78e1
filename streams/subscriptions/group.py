"""Groups of readers, on asyncio: members share streams, each of which one member reads at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from client.arguments import count_argument, log_argument, timeout_argument
from client.guards import START, Position
from client.public_names import PublicNames
from client.read.batch import RecordBatch
from client.read.items import GapKind, Item
from client.replica.commands import OFFSET_MAX
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.status import LogDeviceError, Status
from streams.subscriptions.commands import (
    STREAMS_PER_OPERATION_MAX,
    TTL_US_MAX,
    AddStreams,
    Operation,
    RemoveStreams,
)
from streams.subscriptions.member import CloseStream, MemberMachine, MemberStage, OpenStream, ProposeOperation
from streams.subscriptions.positions import behind, last_position
from streams.subscriptions.subscriptions import Subscriptions, name_argument, position_argument

TTL_SECONDS: Final = 1.2
HANDOVER_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.5
LEAVE_SECONDS: Final = 2.0
_STARTS: Final = ("oldest", "newest")
_TOLD: Final = frozenset({GapKind.TRIM, GapKind.DATALOSS})
"""Gaps that are handed out also when no record is with them: others never had any."""

StoredPosition = Callable[[str, int], Awaitable[Position | None]]
"""Called with the name of a stream and the token of its assignment: the last record that is handled; None: none is."""


@dataclass(frozen=True, slots=True)
class GroupStreamEntry:
    """A stream of a group, and who has it."""

    stream: str
    log: LogId
    owner: str | None
    token: int
    """Of its assignment; each is greater than all before it."""
    heir: str | None
    """The member that gets it next."""


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """A member of a group."""

    member: str
    streams: int
    """That it has."""
    beats: int
    """Heartbeats since it joined."""
    ttl_us: int
    handover_us: int


class Group(PublicNames):
    """The group of a subscription: its streams, and the members that share them.

    ``Group(subscriptions, "billing")`` makes nothing: a group is there from when it has a stream or a member.
    """

    def __init__(self, subscriptions: Subscriptions, name: str) -> None:
        """
        Args:
            subscriptions: open ones.
            name: of the subscription.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        self.name = name_argument("group", name)
        self._subscriptions = subscriptions

    def __repr__(self) -> str:
        return f"<Group {self.name}>"

    async def add_streams(self, streams: Mapping[str, int | str], *, timeout: float | None = None) -> None:
        """Share these streams too, from here on. Those that the group has stay as they are.

        Args:
            streams: logs, by id or path, by the names of streams.
            timeout: seconds.

        Raises:
            LogDeviceError: NOTFOUND: there is no log at a path; EXISTS: the group has one of them with another log; NOSPC; as `Subscriptions.commit`. Of more than 1,000 streams a part may
                have been added.
        """
        rows = [(name_argument("stream", stream), await self._log_id(log, timeout)) for stream, log in streams.items()]
        for start in range(0, len(rows), STREAMS_PER_OPERATION_MAX):
            part = rows[start : start + STREAMS_PER_OPERATION_MAX]
            await self._subscriptions.change(AddStreams(self.name, part), f"group {self.name}", timeout)

    async def _log_id(self, log: int | str, timeout: float | None) -> int:
        named = log_argument(log)
        return await self._subscriptions.client.known_log(named, timeout) if isinstance(named, str) else named

    async def remove_streams(self, streams: Iterable[str], *, timeout: float | None = None) -> None:
        """Share these streams no more: members that handle them find themselves fenced at once. Checkpoints stay.

        Raises:
            LogDeviceError: NOTFOUND: the group has none of them; as `Subscriptions.commit`.
        """
        names = [name_argument("stream", stream) for stream in streams]
        for start in range(0, len(names), STREAMS_PER_OPERATION_MAX):
            part = names[start : start + STREAMS_PER_OPERATION_MAX]
            await self._subscriptions.change(RemoveStreams(self.name, part), f"group {self.name}", timeout)

    async def streams(self, *, timeout: float | None = None) -> list[GroupStreamEntry]:
        """The streams and their owners as they are at this moment, in order of names."""
        await self._subscriptions.current(timeout=timeout)
        found = self._subscriptions.state_of(self.name)
        return [
            GroupStreamEntry(stream, shared.log, shared.owner, shared.token, shared.heir)
            for stream, shared in sorted(found.streams.items() if found is not None else ())
        ]

    async def members(self, *, timeout: float | None = None) -> list[MemberEntry]:
        """The members as they are at this moment, in order of names."""
        await self._subscriptions.current(timeout=timeout)
        found = self._subscriptions.state_of(self.name)
        if found is None:
            return []
        counts = dict.fromkeys(found.members, 0)
        for shared in found.streams.values():
            if shared.owner is not None:
                counts[shared.owner] += 1
        return [
            MemberEntry(name, counts[name], member.beat, member.ttl_us, member.handover_us)
            for name, member in sorted(found.members.items())
        ]

    def member(
        self,
        name: str,
        *,
        start: str = "oldest",
        stored: StoredPosition | None = None,
        ttl: float = TTL_SECONDS,
        handover: float = HANDOVER_SECONDS,
        max_records: int = 1000,
        not_before: Callable[[str], Position] | None = None,
    ) -> GroupReader:
        """A member that is to join: ``async with group.member("host1") as member``, then ``async for batch in member``.

        Args:
            name: of the member. A second one of the same name takes over from the first.
            start: where to begin with a stream without a checkpoint: "oldest"; or "newest": behind what is there now, which is committed first.
            stored: for applications that store positions themselves, with what they make of the records: asked whenever the member gets a stream, in
                place of the checkpoint.
            ttl: seconds without a heartbeat after which others may take over. Heartbeats need the event loop: do not block it for long.
            handover: seconds that the member may take to finish a stream that another one is to get.
            max_records: in a batch.
            not_before: asked whenever the member gets a stream: everything up to this position counts as handled, for it is truncated.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        name_argument("member", name)
        if start not in _STARTS:
            raise LogDeviceError(Status.INVALID_PARAM, f"start is {start!r}; it is one of {', '.join(_STARTS)}")
        count_argument("max_records", max_records)
        times = [timeout_argument(ttl), timeout_argument(handover)]
        if any(each is None or each > TTL_US_MAX for each in times):
            raise LogDeviceError(Status.INVALID_PARAM, "ttl and handover are seconds, an hour at most")
        rng = self._subscriptions.client.session.rng
        machine = MemberMachine(self.name, name, ttl_us=times[0] or 0, handover_us=times[1] or 0, rng=rng)
        return GroupReader(
            self._subscriptions, machine, start=start, stored=stored, max_records=max_records, not_before=not_before
        )


class GroupBatch:
    """Records of one stream, and gaps between them, in order."""

    __slots__ = ("last", "records", "stream", "token")

    def __init__(self, stream: str, token: int, records: RecordBatch) -> None:
        self.stream = stream
        self.token = token
        """Of the assignment. Whoever writes what he makes of the records elsewhere keeps the greatest token with it, and takes nothing with a lower one."""
        self.records = records
        self.last = last_position(records)
        """What is committed with the batch."""

    def __repr__(self) -> str:
        return f"<GroupBatch of stream {self.stream}, token {self.token}, up to {self.last}: {self.records!r}>"

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.records)


class _StreamReading:
    """One stream that is read, and the batch that waits for the application."""

    def __init__(self, opened: OpenStream) -> None:
        self.opened = opened
        self.task: asyncio.Task[None] | None = None
        self.batch: GroupBatch | None = None
        self.taken = asyncio.Event()


class GroupReader(PublicNames):
    """A member of a group: hands out batches of the streams that it has at present.

    A batch is handled when `commit`, or `done`, was called for it; a stream moves to another member only then, or after `handover`. What was handed out and not
    committed when a member dies is handed out again, by another one. A member that was paused for longer than its ttl goes on as a new one: its
    earlier batches can no longer be committed (FENCED).
    """

    def __init__(
        self,
        subscriptions: Subscriptions,
        machine: MemberMachine,
        *,
        start: str,
        stored: StoredPosition | None,
        max_records: int,
        not_before: Callable[[str], Position] | None,
    ) -> None:
        self._subscriptions = subscriptions
        self._client = subscriptions.client
        self._machine = machine
        self._start = start
        self._stored = stored
        self._max_records = max_records
        self._not_before = not_before
        self._tasks: set[asyncio.Task[None]] = set()
        self._readings: dict[str, _StreamReading] = {}
        """In the order in which they are asked next."""
        self._handed_out: dict[str, GroupBatch] = {}
        """The last batch of each stream that is not committed."""
        self._waits_for: dict[str, str] = {}
        """Streams that cannot be read yet, and why."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        held = len(self._machine.held)
        return f"<GroupReader: member {self.name} of group {self._machine.group}, {self._machine.stage.name}, {held} streams>"

    @property
    def name(self) -> str:
        """Of the member."""
        return self._machine.name

    @property
    def streams(self) -> dict[str, int]:
        """The streams that it has at present, and the tokens of their assignments."""
        return self._machine.held

    @property
    def joins(self) -> int:
        """How often it joined: more than once, as others took it for dead."""
        return self._machine.joins

    # Life

    async def __aenter__(self) -> GroupReader:
        if self._ended is not None:
            raise LogDeviceError(Status.INVALID_PARAM, "a member is entered once")
        await self._subscriptions.caught_up()
        self._ended = self._client.future()
        self._subscriptions.watch(self._on_state)
        self._machine.start(self._client.now())
        self._on_state()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave: others get the streams at once. Harmless when called again."""
        if self._ended is None:
            return
        self._machine.leave(self._client.now())
        self._settle()
        try:
            await asyncio.wait(
                [self._ended], timeout=LEAVE_SECONDS
            )  # others see after its time to live that it is gone
        finally:
            self._subscriptions.unwatch(self._on_state)
            if self._timer is not None:
                self._timer.cancel()
            for reading in list(self._readings.values()):
                self._close_stream(reading.opened.stream, reading.opened.token)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # Events of the machine

    def _on_state(self) -> None:
        self._machine.on_state(self._subscriptions.state_of(self._machine.group), self._client.now())
        self._settle()

    def _on_timer(self) -> None:
        self._machine.on_state(self._subscriptions.state_of(self._machine.group), self._client.now())
        self._machine.on_timer(self._client.now())
        self._settle()

    def _settle(self) -> None:
        """Do what the machine asks for after an event."""
        for effect in self._machine.take_effects():
            match effect:
                case ProposeOperation(operation):
                    self._begin(self._propose(operation))
                case OpenStream():
                    reading = self._readings[effect.stream] = _StreamReading(effect)
                    reading.task = self._begin(self._read(reading))
                case CloseStream(stream, token):
                    self._close_stream(stream, token)
        if self._timer is not None:
            self._timer.cancel()
        now = self._client.now()
        if self._machine.has_ended:
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)
        else:
            delay = max(0, self._machine.next_timer() - now) / 1e6
            self._timer = self._client.loop.call_later(delay, self._on_timer)
        self._wake()

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task = self._client.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _close_stream(self, stream: str, token: int) -> None:
        reading = self._readings.get(stream)
        if reading is not None and reading.opened.token == token:
            del self._readings[stream]
            if reading.task is not None:
                reading.task.cancel()

    async def _propose(self, operation: Operation) -> None:
        try:
            judged = await self._subscriptions.operate(operation)
        except LogDeviceError as error:
            self._machine.on_failure(operation, self._client.now())
            if error.status is Status.SHUTDOWN and not error.retriable:
                self._fail(error)
        else:
            self._machine.on_state(self._subscriptions.state_of(self._machine.group), self._client.now())
            self._machine.on_answer(operation, judged.answer, self._client.now())
        self._settle()

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._wake()

    # Reading

    async def _read(self, reading: _StreamReading) -> None:
        opened = reading.opened
        try:
            position, log = await self._begin_at(opened)
            async with self._client.reader(log, max(position.lsn, LSN_OLDEST)) as reader:
                while batch := await reader.read(self._max_records):  # an empty one: the log was ended
                    records = behind(batch, position)
                    if len(records) or any(gap.kind in _TOLD for gap in records.gaps):
                        reading.taken.clear()
                        reading.batch = GroupBatch(opened.stream, opened.token, records)
                        self._wake()
                        await reading.taken.wait()
        except Exception as error:  # noqa: BLE001 - of the application's function too: it comes out of the loop over batches
            if self._readings.get(opened.stream) is reading:
                self._fail(error)

    async def _begin_at(self, opened: OpenStream) -> tuple[Position, LogId]:
        """The last record that is handled, and the log; asks until it is told, as readers do."""
        while True:
            try:
                position, log = await self._position(opened), await self._client.known_log(opened.log)
                return position if self._not_before is None else max(position, self._not_before(opened.stream)), log
            except LogDeviceError as error:
                if error.status is Status.FENCED:  # another member has the stream; the state will say so
                    await asyncio.Event().wait()
                if not error.retriable:
                    raise
                self._waits_for[opened.stream] = f"the position of {opened.stream}: {error}"
            try:
                await asyncio.sleep(_AGAIN_SECONDS)
            finally:
                del self._waits_for[opened.stream]

    async def _position(self, opened: OpenStream) -> Position:
        if self._stored is not None:
            stored = await self._stored(opened.stream, opened.token)
            return START if stored is None else position_argument(stored)
        if opened.checkpoint is not None:
            return opened.checkpoint
        if self._start == "oldest":
            return START
        group, stream = self._machine.group, opened.stream
        entry = await self._subscriptions.get(group, stream)
        if entry is not None:  # from an earlier try of what follows
            return entry.position
        newest = Position(await self._client.tail_lsn(opened.log), OFFSET_MAX)
        # whoever gets the stream next goes on from here, also when nothing was committed until then
        await self._subscriptions.commit(group, stream, newest, token=opened.token)
        return newest

    def __aiter__(self) -> GroupReader:
        return self

    async def __anext__(self) -> GroupBatch:
        while True:
            if self._machine.stage is MemberStage.REPLACED:
                text = f"another member {self.name} of group {self._machine.group} joined and took over"
                raise LogDeviceError(Status.FENCED, text)
            if self._error is not None:
                raise self._error
            if self._ended is None or self._machine.stage in (MemberStage.LEAVING, MemberStage.ENDED):
                raise StopAsyncIteration
            batch = self._next_batch()
            if batch is not None:
                return batch
            await self._wait()

    def _next_batch(self) -> GroupBatch | None:
        now = self._client.now()
        for stream, reading in self._readings.items():
            batch = reading.batch
            if batch is not None and self._machine.may_hand_out(stream, batch.token, now):
                self._readings[stream] = self._readings.pop(stream)  # others come first the next time
                reading.batch = None
                reading.taken.set()
                self._handed_out[stream] = batch
                self._machine.on_handed_out(stream, batch.token, batch.last)
                return batch
        return None

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise LogDeviceError(Status.INVALID_PARAM, "another task reads from this member")
        self._waiter = self._client.future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # What the application is done with

    async def commit(self, batch: GroupBatch | None = None, *, timeout: float | None = None) -> None:
        """Commit the position of a batch and of all before it of its stream; None: of everything that was handed out.

        Raises:
            LogDeviceError: FENCED: another member has a stream by now, and gets the records again; what was committed of others holds. As
                `Subscriptions.commit`.
        """
        batches = [*self._handed_out.values()] if batch is None else [batch]
        outcomes = await asyncio.gather(*(self._commit(each, timeout) for each in batches), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _commit(self, batch: GroupBatch, timeout: float | None) -> None:
        group, stream = self._machine.group, batch.stream
        try:
            await self._subscriptions.commit(group, stream, batch.last, token=batch.token, timeout=timeout)
        except LogDeviceError as error:
            if error.status is Status.FENCED:
                self._forget(batch)
            raise
        self.done(batch)

    def done(self, batch: GroupBatch) -> None:
        """The application has handled a batch and all before it of its stream, and stored its position itself."""
        self._forget(batch)
        self._machine.on_done(batch.stream, batch.token, batch.last, self._client.now())
        self._settle()

    def _forget(self, batch: GroupBatch) -> None:
        last = self._handed_out.get(batch.stream)
        if last is not None and (last.token, last.last) <= (batch.token, batch.last):
            del self._handed_out[batch.stream]

    def waiting_for(self) -> str:
        """What holds the member up at this moment, for people."""
        stage = self._machine.stage
        if stage is not MemberStage.JOINED:
            return f"the group: {stage.name.lower()}; {self._subscriptions.waiting_for()}"
        if self._client.now() >= self._machine.lease_until:
            return f"a heartbeat to be applied; {self._subscriptions.waiting_for()}"
        if self._waits_for:
            return next(iter(self._waits_for.values()))
        return "records" if self._machine.held else "a stream: other members have all"
