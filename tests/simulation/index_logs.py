"""An index log on clusters that break: writers, dealers, optimizers, collectors, readers and operators, all of which are killed, stopped and late.

What must hold stands in `index_log_history.py`. Half of the dealers and optimizers are those of Spark, with the same functions as tasks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import cast
from unittest.mock import patch

from client.client import Client
from client.receipt import Receipt
from indexlog import paging, stored
from indexlog.index_log import IndexLog, make_index_log
from indexlog.jobs import collect_job, deal_job
from indexlog.paging import IndexPage, PageExpired, PageToken
from indexlog.places import raw_group
from indexlog.planning import ALL_AT_ONCE, MergePolicy
from indexlog.records import LogRecord, Modification, decode_record, document, merge
from indexlog.stores import MemoryStore
from indexlog.writer import IndexWriter
from logdevice_py import LogDeviceError, Record, SimCluster, Status
from logdevice_py.core.status import CorruptEntryError
from tests.simulation.index_log_history import (
    ExpiredToken,
    IndexDrop,
    IndexLogHistory,
    RawPlace,
    ReadIndex,
    WrittenStep,
)
from tests.simulation.index_log_processes import (
    LOOKED_FOR_TAILS,
    Fate,
    IndexProcess,
    OnSimulatedSpark,
    ProcessKilledError,
)

PATH = "/indexlog"
INDEXES = ("books", "songs", "maps")
DOCIDS = tuple(f"doc-{number}" for number in range(6))
POLICY = MergePolicy(3, 1500, 2, 2.0)
OWN_FILES = replace(ALL_AT_ONCE, own_file_bytes=300, task_bytes=700)
"""Small indexes share a file, others have their own, or several."""
PAGE_BYTES = 250
"""In place of 5 MB: pages of a few documents."""
SECONDS = 14.0
"""For which processes are troubled."""
FUTURE = 1 << 62
"""Microseconds since 1970: behind whatever a clock says that jumped."""
EXPECTED = frozenset({Status.TIMEDOUT, Status.SHUTDOWN, Status.PREEMPTED, Status.STALE, Status.BADPAYLOAD})
"""What processes are told beside errors that can be tried again; the last one when a command was damaged on its way."""

Work = Callable[[IndexProcess], Awaitable[None]]


class TroubledIndexLog:
    """All processes, and what they do in each of their lives."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.rng = cluster.rng
        self.history = IndexLogHistory()
        self.files = MemoryStore()
        self.stragglers: set[asyncio.Task[None]] = set()
        self.writers = 0

    # Lives

    async def lives(self, work: Work) -> None:
        """One process after the other, until the time of trouble is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SECONDS
        while loop.time() < until:
            await self.live(work, self.rng.uniform(2, SECONDS))
            await asyncio.sleep(self.rng.uniform(0, 1))

    async def live(self, work: Work, seconds: float) -> None:
        """A process that ends somehow."""
        fate = Fate.drawn(random.Random(self.rng.getrandbits(64)))
        async with self.cluster.client() as client:
            try:
                async with asyncio.timeout(seconds), self.process(client, fate) as log:
                    await work(log)
            except (ProcessKilledError, TimeoutError):
                self.history.told["killed"] += 1
            except OSError:  # the store's, or one that was collected before a task read it
                self.history.told["store failed"] += 1
            except LogDeviceError as error:
                self.check_expected(error)

    def process(self, client: Client, fate: Fate) -> IndexProcess:
        """One that is opened with ``async with``."""
        return IndexProcess(client, PATH, self.history, self.files, fate)

    def check_expected(self, error: LogDeviceError) -> None:
        """A failed job is one that the next one does again, never a loss."""
        if not error.retriable and error.status not in EXPECTED:
            raise AssertionError(f"a process is told {error}") from error
        self.history.told[error.status.name] += 1

    # Writing

    async def write(self, log: IndexProcess) -> None:
        """Modifications one by one and several at a time."""
        self.writers += 1
        own = self.writers
        rng = log.fate.rng
        async with log.writer() as writer:
            while True:
                waiting = [await self.send(log, writer, own, rng) for _ in range(rng.choice((1, 1, 1, 4)))]
                for each in waiting:
                    try:
                        await each
                    except LogDeviceError as error:
                        self.check_expected(error)
                log.fate.step()
                await asyncio.sleep(rng.uniform(0, 0.3))

    async def send(self, log: IndexProcess, writer: IndexWriter, own: int, rng: random.Random) -> Awaitable[Receipt]:
        number = len(self.history.written) + 1
        record = LogRecord(rng.choice(INDEXES), rng.choice(DOCIDS), modification(rng, number))
        step = WrittenStep(own, record, self.history.event())
        self.history.written[number] = step
        log.number = number
        outcome = await writer.append(record)

        def on_outcome(future: asyncio.Future[Receipt]) -> None:
            if not future.cancelled() and future.exception() is None:
                step.acknowledged = self.history.event()

        cast("asyncio.Future[Receipt]", outcome).add_done_callback(on_outcome)
        return outcome

    # Jobs

    async def deal(self, log: IndexProcess) -> None:
        rng = log.fate.rng
        while True:
            size = rng.choice((100, 1000, 100_000))
            if rng.random() < 0.5:
                await self.on_spark(log).deal(log, bytes_max=size)
            else:
                await log.run(deal_job(lambda: log.state, log.store, bytes_max=size))
            await asyncio.sleep(rng.uniform(0, 1))

    async def optimize(self, log: IndexProcess) -> None:
        rng = log.fate.rng
        while True:
            policy = rng.choice((POLICY, POLICY, ALL_AT_ONCE, OWN_FILES))
            if rng.random() < 0.5:
                await self.on_spark(log).optimize(log, policy)
            else:
                await log.optimize(policy, index=rng.choice((None, *INDEXES)))
            await asyncio.sleep(rng.uniform(0, 1))

    def on_spark(self, log: IndexProcess) -> OnSimulatedSpark:
        return OnSimulatedSpark(None, "", process=log, stragglers=self.stragglers)  # type: ignore[arg-type]

    async def collect(self, log: IndexProcess) -> None:
        rng = log.fate.rng
        while True:
            retired = log.state.retired
            before = rng.choice(retired).time + 1 if retired and rng.random() < 0.5 else 0
            await log.run(collect_job(lambda: log.state, log.store, before))
            await asyncio.sleep(rng.uniform(0, 2))

    async def operate(self, log: IndexProcess) -> None:
        """End jobs, dead or alive; drop indexes; change the raw logs."""
        rng = log.fate.rng
        while True:
            await asyncio.sleep(rng.uniform(0, 3))
            what = rng.random()
            if what < 0.5:
                await log.manifest.current(timeout=20)
                for token in sorted(log.state.jobs):
                    if rng.random() < 0.3:
                        await self.end_job(log, token)
            elif what < 0.8:
                index = rng.choice(INDEXES)
                await asyncio.gather(*(self.drop(log, index) for _ in range(rng.choice((1, 2)))))
            else:
                await log.change_routing(rng.randint(1, 3))

    async def end_job(self, log: IndexProcess, token: int) -> None:
        try:
            await log.end_job(token)
        except LogDeviceError as error:
            if error.status is not Status.PREEMPTED:  # it has ended by itself
                raise

    async def drop(self, log: IndexProcess, index: str) -> None:
        began = self.history.event()
        await log.drop(index)
        self.history.drops.append(IndexDrop(index, began, self.history.event()))

    # Reading

    async def read(self, log: IndexProcess) -> None:
        """Read whole indexes, from two servers in turn."""
        log.fate.steps *= 20
        rng = log.fate.rng
        async with self.cluster.client() as client, self.process(client, log.fate) as other:
            while True:
                several = (self.read_index((log, other), index, rng, rng.choice((0, 2, 5))) for index in INDEXES)
                await asyncio.gather(*several)
                await asyncio.sleep(rng.uniform(0, 0.3))

    async def read_index(
        self, servers: tuple[IndexProcess, ...], index: str, rng: random.Random, rounds: int = 0
    ) -> None:
        """All that there is at a moment, and, `rounds` times, what was written since."""
        found: dict[str, Modification] = {}
        began = self.history.event()
        page = await rng.choice(servers).read_page(index)
        for round_ in range(rounds + 1):
            moment = LOOKED_FOR_TAILS.get()
            while True:
                self.add(found, page)
                if (token := page.next_token) is None:
                    break
                await asyncio.sleep(rng.choice((0, 0, 0, 0.1, 2)))
                try:
                    page = await self.next_page(servers, index, token, rng)
                except PageExpired:
                    self.history.expired.append(self.expired_token(token))
                    return
            there = {docid: left for docid, change in found.items() if (left := document(change)) is not None}
            self.history.reads.append(ReadIndex(index, began, moment.serial, moment.boundary(), there))
            if round_ == rounds:
                return
            await asyncio.sleep(rng.choice((0, 0.5)))
            began = self.history.event()
            self.history.told["followed"] += 1
            try:
                page = await rng.choice(servers).read_page(index, page.token)
            except PageExpired:  # it was dropped, or raw logs were changed twice
                self.history.told["lost track"] += 1
                return

    def expired_token(self, token: str) -> ExpiredToken:
        """One that was not served at this moment."""
        at = PageToken.decode(token)
        return ExpiredToken(at.serial, tuple(log for log, _, _ in at.tail), self.history.undealt)

    def add(self, found: dict[str, Modification], page: IndexPage) -> None:
        """To what was read before."""
        for docid, change in page.rows():
            older = found.get(docid)
            found[docid] = change if older is None else merge(older, change)
        self.history.told["pages"] += 1

    async def next_page(
        self, servers: tuple[IndexProcess, ...], index: str, token: str, rng: random.Random
    ) -> IndexPage:
        """Asked for again now and then."""
        page = await rng.choice(servers).read_page(index, token)
        if rng.random() < 0.2:
            again = await rng.choice(servers).read_page(index, token)
            assert page.source == again.source, "rule 3: a token is for two pages"
            if not page.source.startswith("log "):  # of raw logs, whatever has come is a page
                assert page.table.equals(again.table), f"rule 3: two pages of {page.source}"
                assert page.next_token == again.next_token, f"rule 3: two tokens behind a page of {page.source}"
        return page

    # The end

    async def finish(self) -> None:
        """Faults have ended: everything is dealt, merged, read and collected, by one process that nobody disturbs."""
        await asyncio.gather(*self.stragglers)
        async with self.cluster.client() as client:
            log = self.process(client, Fate(random.Random(self.rng.getrandbits(64)), 1 << 60, 0.0, 0.0))
            async with log:
                for token in sorted(log.state.jobs):
                    await self.end_job(log, token)
                for raw, _ in log.state.undealt_logs():
                    # a node that was away may read the log tree for longer than a request waits
                    await log.client.tail_lsn(raw, timeout=60)
                await self.read_all(log)
                await log.change_routing(1)
                await log.deal()
                assert log.state.generation() in (None, log.state.generations[-1])
                await self.read_all(log)
                await log.optimize(ALL_AT_ONCE)
                for index, parts in log.state.indexes.items():
                    assert len({part.run for part in parts}) == 1, f"index {index} is not merged into one run: {parts}"
                await self.read_all(log)
                await log.run(collect_job(lambda: log.state, log.store, FUTURE))
                self.history.check_store(set(self.files.files), log.state)
                await self.read_all(log)
                self.history.check(await self.raw_records(log))

    async def read_all(self, log: IndexProcess) -> None:
        for index in INDEXES:
            await self.read_index((log,), index, log.fate.rng)

    async def raw_records(self, log: IndexLog) -> dict[RawPlace, LogRecord | None]:
        """All that the raw logs hold; None: no modification."""
        found: dict[RawPlace, LogRecord | None] = {}
        for generation in range(log.state.generations[-1].number + 1):
            group = await log.client.get_log_group(raw_group(PATH, generation), timeout=60)
            for raw in group.logs:
                async with log.client.reader(raw, until="tail") as reader:
                    async for item in reader:
                        if isinstance(item, Record):
                            found[RawPlace(generation, raw, item.lsn, item.batch_offset)] = decoded(item.payload)
        return found


def decoded(payload: bytes) -> LogRecord | None:
    """A modification, or what ends a raw log."""
    try:
        return decode_record(payload)
    except CorruptEntryError:
        assert payload == b"", payload
        return None


def modification(rng: random.Random, number: int) -> Modification:
    """Any step, told from all others by its number."""
    deleted = rng.random() < 0.3
    fields = {"n": str(number), "text": "x" * rng.choice((0, 0, 60))} if rng.random() < 0.5 else None
    variables = {rng.randint(0, 2): float(number)} if rng.random() < 0.5 else {}
    categories = {} if deleted or fields or variables else {rng.choice("xy"): str(number)}
    return Modification(deleted, fields, variables, categories)


async def made(cluster: SimCluster) -> None:
    """The index log is there; making it is tried again until it is."""
    async with cluster.client() as client:
        while True:
            try:
                await make_index_log(client, "file:///simulated", path=PATH, raw_logs=2)
                return
            except LogDeviceError as error:
                if error.status is Status.EXISTS:
                    return
                if not error.retriable and error.status is not Status.TIMEDOUT:
                    raise
                await asyncio.sleep(1)


async def troubled_index_log(cluster: SimCluster) -> IndexLogHistory:
    """Trouble, and then calm in which everything must be right."""
    troubled = TroubledIndexLog(cluster)
    kinds: list[Work] = [
        *(troubled.write, troubled.write, troubled.deal, troubled.deal, troubled.optimize, troubled.optimize),
        *(troubled.collect, troubled.collect, troubled.read, troubled.read, troubled.operate, troubled.operate),
    ]
    with ExitStack() as small:
        for module in (paging, stored):
            small.enter_context(patch.object(module, "PAGE_BYTES_MAX", PAGE_BYTES))
        await made(cluster)
        await asyncio.gather(*map(troubled.lives, kinds))
        await cluster.calm()
        await troubled.finish()
    return troubled.history
