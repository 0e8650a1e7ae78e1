"""The janitor of a namespace: whoever holds its role copies segments, trims what is old or truncated, and deletes old copies."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgpack

from client.look_up.segments import LogSegment
from client.public_names import PublicNames
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from streams.attributes import StreamAttributes, TransactionIds, duration_argument
from streams.cold.copier import copy_range
from streams.cold.errors import ColdCopyError
from streams.cold.restoring import sweep
from streams.cold.store import ColdStore
from streams.fields import LEASE_US_MAX, OWNER_BYTES_MAX, is_owner
from streams.lease_holder import LeaseHolder
from streams.leases import Lease
from streams.state import StreamEntry, StreamPhase
from streams.upkeep.commands import (
    AcquireUpkeep,
    BeginCopy,
    BeginTrim,
    CommitCopy,
    EndCopy,
    ReleaseUpkeep,
    RemoveCopies,
    RenewUpkeep,
    TrimCause,
    UpkeepCommand,
)
from streams.upkeep.planning import FinishedSegment, copies_to_remove, finished_segments, next_to_copy, next_trim
from streams.upkeep.segment_copy import SegmentCopy
from streams.upkeep.state import attempt_token

if TYPE_CHECKING:
    from streams.namespace import Namespace

_LATER: Final = frozenset({Status.CONFLICT, Status.VERSION_MISMATCH, Status.NOTFOUND})
"""Of commands and logs: something changed since it was looked at, and the next round sees it. Of cold copies they tell what is wrong with the store."""
log_ = logging.getLogger("logdevice.streams")


def default_owner() -> str:
    """How a janitor calls itself: by machine and process."""
    return f"{socket.gethostname()}:{os.getpid()}"[:OWNER_BYTES_MAX]


class JanitorRole:
    """What the lease of a namespace's janitor is for."""

    def __init__(self, namespace: Namespace, owner: str) -> None:
        self._namespace = namespace
        self._owner = owner

    def look(self) -> Lease | None:
        """The janitor's, as far as this process has heard."""
        return self._namespace.state.role.lease

    def acquire(self, lease_us: int, token: int, beats: int) -> AcquireUpkeep:
        """Become the janitor."""
        return AcquireUpkeep(self._owner, lease_us, token, beats)

    def renew(self, token: int) -> RenewUpkeep:
        """A sign of life."""
        return RenewUpkeep(token)

    def release(self, token: int) -> ReleaseUpkeep:
        """Trim and copy no more."""
        return ReleaseUpkeep(token)


class Janitor(PublicNames):
    """Keeps the streams of a namespace as their attributes say. Of any number that run only one, who holds the role, does anything.

    Use it as an async context manager and call `round`, or call `run` alone.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        owner: str | None = None,
        lease: str | float | timedelta = "10s",
        every: str | float | timedelta = "5s",
        accept_loss: bool = False,
        on_step: Callable[[str, str], None] = lambda step, stream: None,
    ) -> None:
        """
        Args:
            namespace: open.
            owner: how it calls itself, for others to see; by default machine and process.
            lease: how long others wait for a sign of life before they take over.
            every: how long it rests between two rounds.
            accept_loss: copy also segments of which records are lost.
            on_step: called with what was just done, and of which stream.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        self._namespace = namespace
        self._client = namespace.client
        self._owner = default_owner() if owner is None else owner
        if not is_owner(self._owner):
            text = f"owner is {owner!r}; it must be a text of 1 to {OWNER_BYTES_MAX} bytes"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        lease_us = min(duration_argument("lease", lease), LEASE_US_MAX)
        self._role = LeaseHolder(
            namespace, JanitorRole(namespace, self._owner), lease_us, f"janitor of {namespace.path}"
        )
        self._every = duration_argument("every", every) / 1e6
        self._accept_loss = accept_loss
        self._on_step = on_step
        self._trimmed: dict[int, LSN] = {}
        """By stream: up to where this holder has trimmed its log."""
        self._swept: set[int] = set()
        """Streams whose leftovers of others this holder has deleted."""
        self._told = ""
        self.failures: dict[str, LogDeviceError] = {}
        """What went wrong in the last round, by stream; it is tried again in the next."""

    @property
    def token(self) -> int:
        """0: it does not hold the role, as far as it has heard."""
        return 0 if self._role.lost is not None else self._role.token

    def __repr__(self) -> str:
        return f"<Janitor {self._owner} of {self._namespace.path}: token {self.token}>"

    # The role

    async def acquire(self, *, wait: bool = True) -> bool:
        """Take the role once nobody holds it, or its holder showed no life for as long as it said. Returns whether it is held; always, with `wait`."""
        if await self._role.acquire(None if wait else 0) is not None:
            return False
        self._trimmed.clear()
        self._swept.clear()
        self._on_step("acquired", "")
        return True

    async def release(self) -> None:
        """Let the next one in at once."""
        if (error := await self._role.release()) is not None:
            log_.info("%s: the janitor's role is not released: %s", self._namespace.path, error)

    async def __aenter__(self) -> Janitor:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    async def run(self) -> None:
        """Hold the role and do its work, and wait for it when another has taken it over, until this is cancelled."""
        try:
            while True:
                try:
                    if not self.token:
                        await self.acquire()
                    await self.round()
                except LogDeviceError as error:
                    if error.status is Status.FENCED:
                        self._role.lost = error
                    elif error.status is Status.SHUTDOWN:
                        return
                    log_.warning("%s: the janitor begins again: %s", self._namespace.path, error)
                await asyncio.sleep(self._every)
        finally:
            await self.release()

    # Its work

    async def round(self) -> int:
        """Everything that is to be done now; how many steps that were.

        Raises:
            LogDeviceError: FENCED: another one holds the role; TIMEDOUT, SHUTDOWN. What fails for one stream is in `failures`.
        """
        await self._propose(RenewUpkeep(self.token))  # tells the time
        self.failures = {}
        steps = 0
        for number in list(self._namespace.state.streams):
            steps += await self.keep(number)
        return steps

    async def keep(self, number: int) -> int:
        """Everything that is to be done now for one stream; how many steps that were.

        Raises:
            LogDeviceError: as `round`.
        """
        entry = self._namespace.state.streams.get(number)
        if entry is None or entry.phase is not StreamPhase.LIVE:
            return 0
        try:
            return await self._keep(entry)
        except ImportError as missing:
            error = LogDeviceError(Status.NOTSUPPORTED, str(missing), retriable=False)
        except LogDeviceError as raised:
            error = raised
            if error.status in (Status.FENCED, Status.SHUTDOWN):
                raise
        except Exception as unexpected:  # noqa: BLE001 - what is wrong with one stream is not to stop the others
            error = self._failure(unexpected)
        if error.status not in _LATER or isinstance(error, ColdCopyError):
            self.failures[entry.name] = error
            log_.warning("%s/%s: not kept up: %s", self._namespace.path, entry.name, error)
            await self._tell(f"{entry.name}: failed: {error}")
        return 0

    def _failure(self, unexpected: Exception) -> LogDeviceError:
        """What is told of an error that no step of a stream should raise."""
        log_.error("%s: the janitor failed", self._namespace.path, exc_info=unexpected)
        return LogDeviceError(Status.INTERNAL, f"{type(unexpected).__name__}: {unexpected}", retriable=True)

    async def _keep(self, entry: StreamEntry) -> int:
        attributes = StreamAttributes.from_mapping(entry.attributes)
        await self._trim(entry)
        is_retained = attributes.truncated_retention_us is None or not entry.truncations
        if attributes.ttl_us is None and attributes.cold is None and is_retained:
            return 0
        segments = await self._client.segments(entry.log)
        steps = await self._copy_all(entry, segments)
        planned = next_trim(entry, attributes, segments, self._namespace.state.role.at)
        if planned is not None:
            await self._begin_trim(entry, *planned)
            await self._trim(entry)
            steps += 1
        last = copies_to_remove(entry, attributes, self._namespace.state.role.at)
        if last is not None:
            await self._propose(RemoveCopies(self.token, entry.number, last))
            self._on_step("removed copies", entry.name)
            await self._sweep(entry, await _store_of(entry))
            await self._tell(f"{entry.name}: deleted copies up to {last}")
            steps += 1
        return steps

    async def copy(self, number: int) -> int:
        """Copy all segments of a stream that are completed and not copied; how many.

        Raises:
            LogDeviceError: FENCED: another one holds the role; DATALOSS: records are lost, and `accept_loss` is not given; as `copy_range`.
            ImportError: pyarrow is not installed.
        """
        entry = self._namespace.stream_entry(number)
        return await self._copy_all(entry, await self._client.segments(entry.log))

    async def _copy_all(self, entry: StreamEntry, segments: Sequence[LogSegment]) -> int:
        attributes = StreamAttributes.from_mapping(entry.attributes)
        if attributes.cold is None:
            return 0
        store = await _store_of(entry)
        await self._sweep_once(entry, store)
        copied = 0
        finished = finished_segments(segments, entry.ended)
        while (segment := next_to_copy(entry, finished)) is not None:
            await self._copy(entry, store, segment, attributes)
            copied += 1
        return copied

    async def _begin_trim(self, entry: StreamEntry, lsn: LSN, cause: TrimCause) -> None:
        """From here on nobody takes a truncation back below it."""
        await self._propose(BeginTrim(self.token, entry.number, lsn, cause, entry.version))
        self._on_step("began to trim", entry.name)

    async def _trim(self, entry: StreamEntry) -> None:
        """Trim what was committed, by whomever: harmless as often as anybody likes."""
        lsn = entry.upkeep.trimming_to
        if lsn <= self._trimmed.get(entry.number, 0):
            return
        await self._client.trim(entry.log, lsn)
        self._on_step("trimmed", entry.name)
        is_new = entry.number in self._trimmed
        self._trimmed[entry.number] = lsn
        await self._tell(f"{entry.name}: trimmed up to {lsn}" if is_new else f"{entry.name}: is trimmed up to {lsn}")

    async def _copy(
        self, entry: StreamEntry, store: ColdStore, segment: FinishedSegment, attributes: StreamAttributes
    ) -> None:
        first = entry.upkeep.next_first
        outcome = await self._propose(BeginCopy(self.token, entry.number, first, segment.last))
        attempt: int = msgpack.unpackb(outcome)  # the number that the command gave
        self._on_step("began to copy", entry.name)
        try:
            copy = await copy_range(
                self._client,
                store,
                entry.log,
                first,
                segment.last,
                token=attempt_token(attempt),
                stream=entry.name,
                transaction_ids=attributes.txid is TransactionIds.WRITER,
                accept_loss=self._accept_loss,
            )
            self._on_step("copied", entry.name)
            found = segment.segment
            assert segment.completed is not None
            made = SegmentCopy(
                copy,
                segment.completed,
                found.first_timestamp,
                found.last_timestamp,
                found.first_txid,
                found.last_txid,
            )
            await self._propose(CommitCopy(self.token, entry.number, attempt, made))
        except Exception:
            self._swept.discard(entry.number)
            await self._propose(EndCopy(self.token, entry.number, attempt))
            raise
        self._on_step("committed a copy", entry.name)
        await self._tell(f"{entry.name}: copied segment {segment.first.epoch}")

    async def _sweep_once(self, entry: StreamEntry, store: ColdStore) -> None:
        """Delete what attempts left that are over, and end the one of whoever held the role before."""
        if entry.number in self._swept:
            return
        if entry.upkeep.copying is not None:
            await self._propose(EndCopy(self.token, entry.number, entry.upkeep.attempts))
        if entry.upkeep.attempts:
            await self._sweep(entry, store)
        self._swept.add(entry.number)

    async def _sweep(self, entry: StreamEntry, store: ColdStore) -> None:
        upkeep, uuid = entry.upkeep, self._client.config.uuid
        committed = [each.copy for each in upkeep.copies]
        # the thread goes on when this is cancelled, and may list the store when another holder has committed what is not known here
        await asyncio.to_thread(sweep, store, uuid, entry.log, committed, over=upkeep.over)
        self._on_step("swept", entry.name)

    async def _tell(self, did: str) -> None:
        """Say what was done, for all to see."""
        if did != self._told:
            self._told = did
            text = did.encode()[:256].decode(errors="ignore")
            await self._propose(RenewUpkeep(self.token, text))

    async def _propose(self, command: UpkeepCommand) -> bytes:
        if not self.token:
            raise LogDeviceError(Status.FENCED, "another janitor holds the role", retriable=False)
        return (await self._namespace.propose(command)).result


async def _store_of(entry: StreamEntry) -> ColdStore:
    """Where the copies of a stream are."""
    url = StreamAttributes.from_mapping(entry.attributes).cold
    assert url is not None
    return await asyncio.to_thread(ColdStore, url)


async def copy_now(namespace: Namespace, number: int, *, owner: str | None = None, accept_loss: bool = False) -> int:
    """Wait until all segments of a stream that are completed now are copied, by the janitor where there is one, otherwise by the caller; how many the caller copied.

    Raises:
        LogDeviceError: INVALID_PARAM: the stream has no `cold`; as `Janitor.copy`.
    """
    entry = namespace.stream_entry(number)
    if StreamAttributes.from_mapping(entry.attributes).cold is None:
        raise LogDeviceError(Status.INVALID_PARAM, f"stream {entry.name} was created without cold: there is no store")
    finished = finished_segments(await namespace.client.segments(entry.log), entry.ended)
    janitor = Janitor(namespace, owner=owner, accept_loss=accept_loss)
    acquiring = asyncio.ensure_future(janitor.acquire())
    try:
        while not acquiring.done():
            if next_to_copy(namespace.stream_entry(number), finished) is None:
                return 0
            change = asyncio.ensure_future(namespace.wait_for_change(None))
            try:
                await asyncio.wait({acquiring, change}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()
        acquiring.result()
        return await janitor.copy(number)
    finally:
        acquiring.cancel()
        await asyncio.gather(acquiring, return_exceptions=True)
        await janitor.release()
