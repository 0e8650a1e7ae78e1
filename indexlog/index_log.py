"""An index log on asyncio: its manifest, its raw logs and its files, and the jobs that are done on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar

import msgpack

from client.client import Client
from client.public_names import PublicNames
from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind
from client.reader import Reader
from client.replica.commands import refusal
from client.replica.replica import Replica
from indexlog.backlog import Backlog
from indexlog.effects import (
    ConfirmView,
    DoWork,
    FindTails,
    IndexEffect,
    ManifestOutcome,
    ProposeCommand,
    RawRange,
    ReadRange,
    Steps,
    TrimmedRange,
)
from indexlog.jobs import (
    AddedReport,
    CollectReport,
    DealReport,
    MergeReport,
    collect_job,
    deal_job,
    drop_index,
    merge_job,
    refused,
)
from indexlog.local_store import open_store
from indexlog.manifest.commands import (
    AddGeneration,
    EndGeneration,
    EndJob,
    Initialize,
    ManifestCommand,
    encode_manifest_command,
)
from indexlog.manifest.parts import RoutingGeneration
from indexlog.manifest.state import MANIFEST, ManifestState
from indexlog.paging import IndexPage, PageToken, read_page
from indexlog.places import commands_group, raw_group, snapshots_group
from indexlog.planning import STANDARD_POLICY, MergePolicy
from indexlog.records import Modification, document, merge
from indexlog.stores import FileStore
from indexlog.tailing import TAIL_BYTES, RawTailer
from indexlog.writer import IndexWriter, wall_clock
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp, utc_datetime

DEFAULT_PATH: Final = "/indexlog"
PROPOSE_SECONDS: Final = 60.0
READ_SECONDS: Final = 60.0
"""Nothing came of a raw log for so long: the job fails."""
_LOOK_SECONDS: Final = 1.0
"""Nothing came of a raw log for so long: it is looked whether there is more."""
FOLLOW_SECONDS: Final = 60.0
"""So long a reader that follows waits until it looks whether it still can."""
GRACE_SECONDS: Final = 1800.0
_READ_AT_ONCE: Final = 5000
T = TypeVar("T")
R = TypeVar("R", bound=AddedReport)


async def make_index_log(
    client: Client,
    store: str,
    *,
    path: str = DEFAULT_PATH,
    raw_logs: int = 4,
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Make an index log; again, if an earlier call was interrupted.

    Args:
        client: an open client of a cluster with a log tree.
        store: the URL of an empty directory or bucket that all processes see: ``file:///srv/index``.
        path: a directory of the log tree; the logs of the index log are made in it.
        raw_logs: how many.
        attributes: of all these logs.

    Raises:
        LogDeviceError: EXISTS; INVALID_PARAM; as `Client.make_log_group`.
    """
    open_store(store)
    await _log_group(client, commands_group(path), 1, attributes)
    await _log_group(client, snapshots_group(path), 1, attributes)
    logs = await _log_group(client, raw_group(path, 0), raw_logs, attributes)
    async with IndexLog(client, path, must_exist=False) as log:
        await log.command(Initialize(store, logs))


async def _log_group(client: Client, path: str, logs: int, attributes: Mapping[str, Any] | None) -> list[int]:
    try:
        entry = await client.make_log_group(path, logs, attributes, parents=True)
    except LogDeviceError as error:
        if error.status is not Status.EXISTS:
            raise
        entry = await client.get_log_group(path)
    return list(entry.logs)


class IndexLog(PublicNames):
    """One index log. Use it as ``async with IndexLog(client) as log``; close its writers before it."""

    def __init__(
        self,
        client: Client,
        path: str = DEFAULT_PATH,
        *,
        store: FileStore | None = None,
        must_exist: bool = True,
        on_step: Callable[[IndexEffect], None] = lambda effect: None,
        clock: Callable[[], int] = wall_clock,
    ) -> None:
        """
        Args:
            client: an open client.
            path: its directory in the log tree.
            store: in place of the manifest's store.
            must_exist: entering fails when it is not initialized.
            on_step: is called before each step of a job.
            clock: the time, for modifications and for the age of files, of raw records and of jobs: milliseconds since 1970. How long something
                waits goes by the client's loop.

        Entering raises:
            LogDeviceError: NOTFOUND: there are no such logs, or it is not initialized; TIMEDOUT: the log tree, or the manifest, could not be asked.
        """
        self.client = client
        self.path = path
        self._must_exist = must_exist
        self._on_step = on_step
        self._clock = clock
        self._store = store
        self._tailer: RawTailer | None = None
        self.manifest: Replica[ManifestState] = Replica(client, MANIFEST, commands_group(path), snapshots_group(path))

    def __repr__(self) -> str:
        return f"<IndexLog {self.path}: {self.manifest!r}>"

    async def __aenter__(self) -> IndexLog:
        await self.manifest.__aenter__()
        try:
            await self.manifest.caught_up(timeout=PROPOSE_SECONDS)
            if self._must_exist and not self.state.store:
                raise LogDeviceError(Status.NOTFOUND, f"{self.path} is not initialized", retriable=False)
        except BaseException:
            await self.manifest.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tailer is not None:
            await self._tailer.close()
        await self.manifest.close()

    @property
    def state(self) -> ManifestState:
        """The manifest as it is known here."""
        return self.manifest.state

    @property
    def store(self) -> FileStore:
        """Where the files are."""
        if self._store is None:
            self._store = open_store(self.state.store)
        return self._store

    def now(self) -> Timestamp:
        """The time by its clock."""
        return Timestamp(self._clock() * 1000)

    async def describe(self) -> dict[str, Any]:
        """How far dealing is, and what there is, for people and monitoring; numbers and texts."""
        await self.manifest.current(timeout=PROPOSE_SECONDS)
        state = self.state
        logs = [(each.number, log, state.dealt[log]) for each in state.generations for log in each.logs]
        tails = await asyncio.gather(*(self.client.tail_lsn(log) for _, log, _ in logs))
        parts = [part for of_index in state.indexes.values() for part in of_index]
        return {
            "store": state.store,
            "state": state.serial,
            "indexes": len(state.indexes),
            "parts": len(parts),
            "records": sum(part.records for part in parts),
            "bytes": sum(part.bytes for part in parts),
            "retired_parts": len(state.retired),
            "forgotten": state.forgotten,
            "unreadable": state.unreadable,
            "raw_logs": [
                {"log": log, "generation": number, "dealt": str(LSN(dealt)), "tail": str(tail)}
                for (number, log, dealt), tail in zip(logs, tails, strict=True)
            ],
            "jobs": [
                {"token": token, "began": str(utc_datetime(Timestamp(time)))}
                for token, time in sorted(state.jobs.items())
            ],
        }

    # Steps

    async def run(self, steps: Steps[T]) -> T:
        """Do the steps of a job or of a reader."""
        sent: Any = None
        error: Exception | None = None
        try:
            while True:
                effect = steps.send(sent) if error is None else steps.throw(error)
                self._on_step(effect)
                sent, error = None, None
                try:
                    sent = await self._do(effect)
                except Exception as problem:  # noqa: BLE001 - the job decides
                    error = problem
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            steps.close()

    async def _do(self, effect: IndexEffect) -> Any:
        match effect:
            case ProposeCommand(command):
                return await self._propose(command)
            case ConfirmView():
                return await self.manifest.current(timeout=PROPOSE_SECONDS)
            case FindTails(logs):
                tails = await asyncio.gather(*(self.client.tail_lsn(log) for log in logs))
                return dict(zip(logs, map(int, tails), strict=True))
            case ReadRange(log, start, until, bytes_max, index):
                if self._tailer is not None and index is not None:
                    found = await self._tailer.range(index, log, start, until, bytes_max)
                    if found is not None:
                        return found
                return await self._read(log, start, until, bytes_max)
            case DoWork(work):
                return await asyncio.to_thread(work)

    async def _propose(self, command: ManifestCommand) -> ManifestOutcome:
        outcome = await self.manifest.propose(encode_manifest_command(command), timeout=PROPOSE_SECONDS)
        if outcome.applied:
            return ManifestOutcome(msgpack.unpackb(outcome.result))
        return ManifestOutcome(0, *refusal(outcome.reason))

    async def command(self, command: ManifestCommand) -> ManifestOutcome:
        """Propose a command to the manifest.

        Raises:
            LogDeviceError: it was refused; as `Replica.propose`.
        """
        outcome = await self._propose(command)
        if outcome.refused is not None:
            raise refused(outcome)
        return outcome

    async def _read(self, log: int, start: int, until: int, bytes_max: int) -> RawRange:
        """A range, as whole entries."""
        records: list[tuple[int, bytes | None]] = []
        size = 0
        async with self.client.reader(log, start, until) as reader:
            while batch := await self._next_batch(reader, log, until):
                for gap in batch.gaps:
                    _check_gap(log, gap)
                records += zip(batch.lsns, batch.payloads, strict=True)
                size += sum(len(payload or b"") for payload in batch.payloads)
                if size > bytes_max and records and records[0][0] < (last := records[-1][0]):
                    while records[-1][0] == last:  # others of this entry may be missing
                        records.pop()
                    return RawRange(int(last) - 1, records)
        return RawRange(until, records)

    async def _next_batch(self, reader: Reader, log: int, until: int) -> RecordBatch:
        """Who reads pages says in a token how far: whoever makes one up must not wait for what nobody wrote, and have others wait for his place."""
        try:
            return await reader.read(_READ_AT_ONCE, timeout=_LOOK_SECONDS)
        except LogDeviceError as error:
            if error.status is not Status.TIMEDOUT:
                raise
        if until > (tail := await self.client.tail_lsn(log)):
            raise LogDeviceError(
                Status.INVALID_PARAM, f"raw log {log} ends at {tail}, there is nothing up to {LSN(until)}"
            )
        return await reader.read(_READ_AT_ONCE, timeout=READ_SECONDS)

    # Jobs

    def writer(self, **options: Any) -> IndexWriter:
        """A writer; the options are those of `Client.buffered_writer`."""
        return IndexWriter(self.client, self.manifest, clock=self._clock, **options)

    async def deal(self, *, jobs: int = 1) -> DealReport:
        """Deal what the raw logs hold at this moment.

        Args:
            jobs: so many at once, each of a share of the raw logs.

        Raises:
            LogDeviceError: DATALOSS: records are lost, nothing behind them in that log is dealt; PREEMPTED: somebody ended this job; others.
                Of several jobs the others end first.
        """
        found = DealReport()
        if jobs > 1:
            await self._together(found, [deal_job(self._view, self.store, share=(n, jobs)) for n in range(jobs)])
        found.add(await self.run(deal_job(self._view, self.store)))  # of further generations
        return found

    def _view(self) -> ManifestState:
        return self.state

    async def _together(self, found: R, steps: Sequence[Steps[R]]) -> R:
        """Several jobs at once; all of them end before one that fails is told."""
        ended = await asyncio.gather(*map(self.run, steps), return_exceptions=True)
        for each in ended:
            if isinstance(each, BaseException):
                raise each
            found.add(each)
        return found

    async def optimize(
        self, policy: MergePolicy = STANDARD_POLICY, *, index: str | None = None, jobs: int = 1
    ) -> MergeReport:
        """Sort and optimize as far as the policy asks for it.

        Args:
            policy: what is merged.
            index: only this one.
            jobs: so many at once, each of a share of the indexes: where there are many small ones, the disk's syncs take most of the time.

        Raises:
            LogDeviceError: as `deal`; of several jobs the others end first.
        """
        shares = [(number, jobs) for number in range(jobs)] if index is None else [(0, 1)]
        return await self._together(
            MergeReport(),
            [merge_job(self._view, self.store, policy, index=index, share=share) for share in shares],
        )

    async def collect(self, *, grace: float = GRACE_SECONDS) -> CollectReport:
        """Delete files that were replaced more than `grace` seconds ago, and what jobs left that have ended."""
        before = int(self.now() - grace * 1e6)
        return await self.run(collect_job(lambda: self.state, self.store, before))

    async def end_job(self, token: int) -> None:
        """End a job that nobody does any more; if somebody does, it commits nothing from here on."""
        await self.command(EndJob(token))

    async def drop(self, index: str) -> None:
        """Drop an index: what was acknowledged before is gone; what is written later is kept."""
        await self.run(drop_index(lambda: self.state, index))

    async def change_routing(self, raw_logs: int, *, attributes: Mapping[str, Any] | None = None) -> None:
        """Go on with other raw logs. Writers wait for some hundred milliseconds. Go on with a change that was interrupted by calling it again."""
        await self.manifest.current(timeout=PROPOSE_SECONDS)
        if self.state.writable() is not None:
            number = self.state.generations[-1].number + 1
            logs = await _log_group(self.client, raw_group(self.path, number), raw_logs, attributes)
            await self.command(AddGeneration(logs))
        for generation in self.state.generations[:-1]:
            if generation.ends is None:
                await self.end_generation(generation)

    async def end_generation(self, generation: RoutingGeneration) -> None:
        """End the raw logs of a generation, and tell the manifest where; looks for the ends again when somebody dealt up to a later tail."""
        while True:
            ends = await asyncio.gather(*map(self._end_log, generation.logs))
            outcome = await self._propose(EndGeneration(generation.number, ends))
            if outcome.refused in (None, Status.STALE):  # it ends once, whoever is first
                return
            if outcome.refused is not Status.AGAIN:
                raise refused(outcome)

    async def _end_log(self, log: int) -> int:
        try:
            await self.client.mark_end(log)
        except LogDeviceError as error:
            if error.status is not Status.ENDED:
                raise
        return int(await self.client.tail_lsn(log))

    # Reading

    async def keep_tail(self, *, bytes_max: int = TAIL_BYTES) -> RawTailer:
        """Follow the raw logs from now on, so that readers of this object find the newest modifications in memory; the same as before when called again.

        Args:
            bytes_max: that they take at most, about.
        """
        if self._tailer is None:
            self._tailer = RawTailer(self.client, self.manifest, bytes_max=bytes_max)
            await self._tailer.__aenter__()
        return self._tailer

    def backlogs(self) -> list[Backlog]:
        """What of each raw log is not dealt, as far as `keep_tail` has read; empty without it."""
        return [] if self._tailer is None else self._tailer.backlogs()

    async def read_page(self, index: str, token: str | None = None, *, wait: float = 0) -> IndexPage:
        """A page of an index: the first one, or, with a token, the page behind it.

        Args:
            index: its code.
            token: of the page before. That of the last page (`IndexPage.tail_token`) gives what was written since.
            wait: seconds to wait for something to be written when there is nothing; then the page is empty.

        Raises:
            PageExpired: begin again without a token.
            LogDeviceError: INVALID_PARAM, DATALOSS, others.
        """
        page = await self.run(read_page(lambda: self.state, self.store, index, token))
        if wait <= 0:
            return page
        deadline = self.client.loop.time() + wait
        while page.tail_token is not None and not len(page.table):
            if not await self.news(page.tail_token, deadline - self.client.loop.time()):
                return page
            page = await self.run(read_page(lambda: self.state, self.store, index, page.tail_token))
        return page

    async def news(self, token: str, seconds: float) -> bool:
        """Wait until there may be something behind the last page.

        Args:
            token: that of the last page (`IndexPage.tail_token`).
            seconds: to wait at most.

        Returns:
            False: the time is up.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        at = PageToken.decode(token)
        return await (await self.keep_tail()).news(at, seconds)

    async def pages(self, index: str) -> AsyncIterator[IndexPage]:
        """All pages of an index, as of this moment.

        Raises:
            LogDeviceError: as `read_page`.
        """
        token: str | None = None
        while True:
            page = await self.read_page(index, token)
            yield page
            if (token := page.next_token) is None:
                return

    async def follow(self, index: str, token: str | None = None) -> AsyncIterator[IndexPage]:
        """The pages of an index, and then what is written, soon after it is acknowledged, for ever. Keep `IndexPage.token` of the last page that you have
        handled, and go on with it after a restart.

        Raises:
            LogDeviceError: as `read_page`.
        """
        while True:
            page = await self.read_page(index, token, wait=0 if token is None else FOLLOW_SECONDS)
            token = page.token
            if len(page.table) or page.tail_token is not None:
                yield page

    async def documents(self, index: str) -> dict[str, Modification]:
        """The documents of an index, all in memory."""
        found: dict[str, Modification] = {}
        async for page in self.pages(index):
            for docid, change in page.rows():
                older = found.get(docid)
                found[docid] = change if older is None else merge(older, change)
        return {docid: left for docid, change in found.items() if (left := document(change)) is not None}


def _check_gap(log: int, gap: Gap) -> None:
    if gap.kind is GapKind.TRIM:
        raise TrimmedRange(log, gap.lo, gap.hi)
    if gap.kind is GapKind.DATALOSS:
        text = f"raw log {log}: {LSN(gap.lo)} to {LSN(gap.hi)} are lost"
        raise LogDeviceError(Status.DATALOSS, text, retriable=False, maybe_applied=False)
