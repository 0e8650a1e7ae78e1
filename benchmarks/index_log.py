"""``python -m benchmarks.index_log WHAT``: how fast an index log is, and how often it writes what was written once.

``files`` deals and sorts modifications that are in memory, as raw logs give them, into files of a directory: dealing alone, sorting alone, both in increments
and for a backlog, beside a MERGE of `deltalake` and a plain sort and merge of pyarrow with the same modifications. ``backlog`` deals and sorts what raw logs
in files hold, and tells what memory that took. ``day`` counts what a day of updates
writes, with the standard policy, on a clock that is simulated. ``serve`` asks an ``ldindexd`` on a cluster of processes for pages. Each prints JSON, a line
for each figure. Readers while nodes die and files are rewritten: `benchmarks.index_log_readers`. On Spark: `benchmarks.index_log_on_spark`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from array import array
from bisect import bisect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import aiohttp
import deltalake
import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.percentiles import percentile
from client.client import Client
from client.replica.commands import CommandRefused, StateVersion, refusal
from indexlog.columns import SCHEMA
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
)
from indexlog.index_log import IndexLog, make_index_log
from indexlog.jobs import collect_job, deal_job, merge_job
from indexlog.local_store import LocalStore
from indexlog.manifest.commands import Initialize, ManifestCommand, encode_manifest_command
from indexlog.manifest.state import ManifestState
from indexlog.paging import read_page
from indexlog.planning import ALL_AT_ONCE, STANDARD_POLICY, MergePolicy
from indexlog.records import LogRecord, Modification, encode_record, pack_contents
from indexlog.routing import raw_log_of
from indexlog.serving.api import ARROW
from indexlog.stores import FileStore, MemoryStore
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp, parse_size
from logdevice_py.programs import own_program
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.free_ports import free_ports
from server.dev.readiness import wait_until_acquainted
from server.dev.supervisor import Supervisor, write_cluster_file

T = TypeVar("T")
SORT_ALL = MergePolicy(0, 0, 1 << 30)
"""Slices become sorted files, and these stay."""
_WORDS = [f"{word}{number}" for word in ("lorem", "ipsum", "dolor", "amet", "magna", "quis") for number in range(60)]
_ROWS = pa.schema([pa.field("index", pa.string()), *SCHEMA])


def tell(figure: str, **values: object) -> None:
    """A line of the output."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    print(json.dumps({"figure": figure, **rounded}), flush=True)


class Modifications:
    """Puts and deletes of documents of a size: indexes by Zipf's law, documents of an index all alike."""

    def __init__(self, indexes: int, documents: int, size: int, deletes: float, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._weights = list(accumulate(1 / rank for rank in range(1, indexes + 1)))
        self._documents = documents
        self._deletes = deletes
        # bodies of words pack to a third or so
        self._bodies = [self._body(size) for _ in range(500)]

    def _body(self, size: int) -> str:
        text = ""
        while len(text) < size:
            text += self._rng.choice(_WORDS) + f" {self._rng.randrange(10_000)} "
        return text[:size]

    def __iter__(self) -> Iterator[LogRecord]:
        rng, weights = self._rng, self._weights
        while True:
            rank = bisect(weights, rng.random() * weights[-1]) + 1
            share = max(1, round(self._documents / rank / weights[-1]))
            docid = f"document-{rng.randrange(share):08}"
            if rng.random() < self._deletes:
                change = Modification(True, timestamp=1_700_000_000_000)
            else:
                body = rng.choice(self._bodies)
                place = rng.randrange(len(body))
                change = Modification(True, {"body": body[place:] + body[:place]}, timestamp=1_700_000_000_000)
            yield LogRecord(f"index-{rank:05}", docid, change)

    def take(self, count: int) -> list[LogRecord]:
        """The next ones."""
        return list(islice(self, count))


Increments = Callable[[], Iterator[list[LogRecord]]]
"""The same ones each time, made when they are asked for."""


class MemoryIndexLog:
    """Raw logs as lists, and the manifest of one process: the jobs and their files alone, without a cluster."""

    def __init__(self, store: FileStore, raw_logs: int) -> None:
        self.store = store
        self.state = ManifestState()
        self.now = 0
        """Microseconds, for the manifest."""
        self.payload_bytes = 0
        self._raw: dict[int, list[bytes]] = {log: [] for log in range(1, raw_logs + 1)}
        self._before: dict[int, int] = dict.fromkeys(self._raw, 0)
        """Of each raw log, how many were trimmed."""
        self._commands = 0
        self._lock = threading.Lock()
        self.propose(Initialize("memory", list(self._raw)))

    def propose(self, command: ManifestCommand) -> ManifestOutcome:
        """Apply a command."""
        body = encode_manifest_command(command)
        with self._lock:
            self._commands += 1
            try:
                result = self.state.apply(body, StateVersion(Lsn(self._commands), 0), Timestamp(self.now))
            except CommandRefused as error:
                return ManifestOutcome(0, *refusal(str(error)))
        return ManifestOutcome(msgpack.unpackb(result))

    def write(self, records: Sequence[LogRecord]) -> None:
        """As writers do."""
        for record in records:
            payload = encode_record(record)
            self.payload_bytes += len(payload)
            self._raw[raw_log_of(record.index, record.docid, list(self._raw))].append(payload)

    def trim(self) -> None:
        """Forget what is dealt."""
        for log, payloads in self._raw.items():
            del payloads[: self.state.dealt[log] - self._before[log]]
            self._before[log] = self.state.dealt[log]

    def run(self, steps: Steps[T]) -> T:
        """Do a job, or read a page."""
        sent: Any = None
        while True:
            try:
                effect = steps.send(sent)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            sent = self._do(effect)

    def _do(self, effect: IndexEffect) -> Any:
        match effect:
            case ProposeCommand(command):
                return self.propose(command)
            case ConfirmView():
                return None
            case FindTails(logs):
                return {log: self._tail(log) for log in logs}
            case ReadRange(log, start, until, bytes_max):
                return self._read(log, start, until, bytes_max)
            case DoWork(work):
                return work()

    def _tail(self, log: int) -> int:
        return self._before[log] + len(self._raw[log])

    def _read(self, log: int, start: int, until: int, bytes_max: int) -> RawRange:
        before, size = self._before[log], 0
        records: list[tuple[int, bytes | None]] = []
        for lsn in range(start, until + 1):
            payload = self._raw[log][lsn - before - 1]
            records.append((lsn, payload))
            size += len(payload)
            if size > bytes_max:
                return RawRange(lsn, records)
        return RawRange(until, records)

    def deal(self, jobs: int = 2) -> int:
        """How many were dealt, by several jobs at once as `IndexLog.deal`."""

        def share(number: int) -> int:
            return self.run(deal_job(lambda: self.state, self.store, share=(number, jobs))).records

        with ThreadPoolExecutor(jobs) as threads:
            return sum(threads.map(share, range(jobs)))

    def optimize(self, policy: MergePolicy, jobs: int = 4) -> int:
        """How many rows were written, by several jobs at once as `IndexLog.optimize`."""

        def share(number: int) -> int:
            return self.run(merge_job(lambda: self.state, self.store, policy, share=(number, jobs))).records

        with ThreadPoolExecutor(jobs) as threads:
            return sum(threads.map(share, range(jobs)))


@dataclass(slots=True)
class Spent:
    """Seconds that passed, and that this process computed, in all its threads."""

    seconds: float = 0.0
    processor: float = 0.0

    def on(self, work: Callable[[], T]) -> T:
        """Do it, and add what it took."""
        gc.collect()
        gc.freeze()  # modifications that are kept as objects are the benchmark's own
        began, computed = time.perf_counter(), time.process_time()
        found = work()
        self.seconds += time.perf_counter() - began
        self.processor += time.process_time() - computed
        return found

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.seconds + other.seconds, self.processor + other.processor)

    def rates(self, modifications: int) -> dict[str, object]:
        """For `tell`."""
        return {
            "per_second": round(modifications / max(self.seconds, 1e-9)),
            "per_processor_second": round(modifications / max(self.processor, 1e-9)),
            "seconds": self.seconds,
        }


# Files


def files(given: argparse.Namespace, directory: Path) -> None:
    """Dealing and sorting beside others."""

    def made(increment: int, increments: int) -> Increments:
        def make() -> Iterator[list[LogRecord]]:
            stream = Modifications(given.indexes, given.documents, given.size, given.deletes)
            return (stream.take(increment) for _ in range(increments))

        return make

    with redirect_stdout(StringIO()):  # what is imported at first use is imported now
        few = made(50, 1)
        _in_increments(directory / "first", few, 1)
        _backlog(directory / "second", few, 1)
        _delta_merge(directory / "third", few)
    total = given.increment * given.increments
    increments = made(given.increment, given.increments)
    ours = _in_increments(directory / "ours", increments, given.raw_logs)
    merge = _delta_merge(directory / "delta", increments)
    plain, sorting = _backlog(directory / "backlog", increments, given.raw_logs)
    tell(
        "ratios",
        modifications=total,
        increments_to_delta_merge=merge.seconds / ours.seconds,
        the_same_of_processor_time=merge.processor / ours.processor,
        sorting_to_plain_pyarrow=plain.seconds / sorting.seconds,
        the_same_of_its_processor_time=plain.processor / sorting.processor,
    )


def _in_increments(directory: Path, increments: Increments, raw_logs: int) -> Spent:
    log = MemoryIndexLog(LocalStore(directory), raw_logs)
    dealing, sorting = Spent(), Spent()
    slowest, total = 0.0, 0
    for each in increments():
        total += len(each)
        before = dealing.seconds + sorting.seconds
        log.write(each)
        dealing.on(log.deal)
        sorting.on(lambda: log.optimize(STANDARD_POLICY))
        slowest = max(slowest, dealing.seconds + sorting.seconds - before)
        log.trim()
    tell("dealing, in increments", **dealing.rates(total))
    tell("sorting by the policy, in increments", **sorting.rates(total))
    both = dealing + sorting
    tell("dealing and sorting, in increments", **both.rates(total), slowest_increment=slowest)
    return both


def _backlog(directory: Path, increments: Increments, raw_logs: int) -> tuple[Spent, Spent]:
    """All at once; what plain pyarrow and what sorting took."""
    log, total = MemoryIndexLog(LocalStore(directory), raw_logs), 0
    for each in increments():
        total += len(each)
        log.write(each)
    dealing, sorting, plain = Spent(), Spent(), Spent()
    dealing.on(log.deal)
    plain.on(lambda: _plain_pyarrow(log, directory))
    sorting.on(lambda: log.optimize(SORT_ALL))
    tell("dealing, a backlog", **dealing.rates(total), payload_mb=log.payload_bytes // 10**6)
    tell("sorting, a backlog", **sorting.rates(total), indexes=len(log.state.indexes))
    tell("dealing and sorting, a backlog", **(dealing + sorting).rates(total))
    tell("plain sort and merge of pyarrow, a backlog", **plain.rates(total))
    return plain, sorting


def _plain_pyarrow(log: MemoryIndexLog, directory: Path) -> None:
    """The same containers as one sorted file, in which each document is once, compressed as ours, with pyarrow alone."""
    slices: dict[str, list[tuple[int, int, str]]] = {}
    for index, parts in log.state.indexes.items():
        for part in parts:
            slices.setdefault(part.path, []).append((part.place, part.records, index))
    tables = []
    for path, places in slices.items():
        places.sort()
        ends = pa.array(accumulate(records for _, records, _ in places), pa.int32())
        codes = pa.RunEndEncodedArray.from_arrays(ends, pa.array([index for _, _, index in places]))
        with log.store.open(path) as file:
            tables.append(pa.ipc.open_file(file).read_all().add_column(0, "index", pc.run_end_decode(codes)))
    table = pa.concat_tables(tables).combine_chunks()
    order = pc.sort_indices(table, sort_keys=[("index", "ascending"), ("docid", "ascending")])
    table = _newest(table.take(order))
    table = table.filter(pc.invert(pc.and_(table["deleted"], pc.is_null(table["contents"]))))
    pq.write_table(table, directory / "plain.parquet", compression="lz4", use_dictionary=["index"])


def _newest(table: pa.Table) -> pa.Table:
    """Of each document the last row, from a table that is sorted by index and document."""
    count = len(table)
    differs = [
        pc.not_equal(table[name].slice(1), table[name].slice(0, count - 1)).combine_chunks()
        for name in ("index", "docid")
    ]
    return table.filter(pa.concat_arrays([pc.or_(*differs), pa.array([True])]))


def _delta_merge(directory: Path, increments: Increments) -> Spent:
    """A MERGE for each increment, whose rows are there as Arrow; of a document's modifications the last one is chosen, as all of them replace it."""
    url = str(directory)
    deltalake.DeltaTable.create(url, schema=_ROWS)
    spent, total = Spent(), 0
    for each in increments():
        total += len(each)
        table = pa.table(
            [
                [record.index for record in each],
                [record.docid for record in each],
                [record.change.deleted and record.change.is_empty for record in each],
                [record.change.timestamp for record in each],
                [pack_contents(record.change) for record in each],
            ],
            schema=_ROWS,
        )
        spent.on(lambda: _merge_increment(url, table))  # noqa: B023
    tell("MERGE of deltalake, in increments", **spent.rates(total))
    return spent


def _merge_increment(url: str, table: pa.Table) -> None:
    order = pc.sort_indices(table, sort_keys=[("index", "ascending"), ("docid", "ascending")])
    (
        deltalake.DeltaTable(url)
        .merge(
            _newest(table.take(order)), "t.index = s.index AND t.docid = s.docid", source_alias="s", target_alias="t"
        )
        .when_matched_delete("s.deleted")
        .when_matched_update_all()
        .when_not_matched_insert_all("NOT s.deleted")
        .execute()
    )


# A backlog


class RawLogsInFiles(MemoryIndexLog):
    """Raw logs in files of a directory: however much they hold, it takes no memory but 8 bytes a record."""

    def __init__(self, store: FileStore, raw_logs: int, directory: Path) -> None:
        super().__init__(store, raw_logs)
        directory.mkdir()
        self._files = {log: (directory / str(log)).open("w+b") for log in self._raw}
        self._ends = {log: array("q", [0]) for log in self._raw}
        """Of each raw log, where records end, from that of LSN 0 on, which there is none of."""

    def write(self, records: Sequence[LogRecord]) -> None:
        """As writers do."""
        logs = list(self._files)
        for record in records:
            payload = encode_record(record)
            log = raw_log_of(record.index, record.docid, logs)
            self._files[log].write(payload)
            self._ends[log].append(self._ends[log][-1] + len(payload))
            self.payload_bytes += len(payload)
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _tail(self, log: int) -> int:
        return len(self._ends[log]) - 1

    def _read(self, log: int, start: int, until: int, bytes_max: int) -> RawRange:
        ends = self._ends[log]
        begin = ends[start - 1]
        until = min(until, bisect(ends, begin + bytes_max, start))
        data = os.pread(self._files[log].fileno(), ends[until] - begin, begin)
        return RawRange(
            until, [(lsn, data[ends[lsn - 1] - begin : ends[lsn] - begin]) for lsn in range(start, until + 1)]
        )


def backlog(given: argparse.Namespace, directory: Path) -> None:
    """More than memory holds. Each time that the manifest is full slices are sorted, and what that replaced goes."""
    log = RawLogsInFiles(LocalStore(directory / "store"), given.raw_logs, directory / "raw")
    made = Modifications(given.indexes, given.documents, given.size, given.deletes)
    for begin in range(0, given.modifications, 10_000):
        log.write(made.take(min(10_000, given.modifications - begin)))
    before, spent, rounds, ended = _private_memory(), Spent(), 0, threading.Event()
    most = [before]

    def look() -> None:
        while not ended.wait(0.02):
            most.append(max(most.pop(), _private_memory()))

    def work() -> None:
        nonlocal rounds
        is_dealt = False
        while not is_dealt:
            rounds += 1
            try:
                log.deal()
                is_dealt = True
            except LogDeviceError as error:
                if error.status is not Status.NOSPC:
                    raise
            log.optimize(SORT_ALL)
            log.run(collect_job(lambda: log.state, log.store, log.now + 1))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        spent.on(work)
    finally:
        ended.set()
        looking.join()
        log.close()
    tell(
        "a backlog in files",
        **spent.rates(given.modifications),
        payload_mb=log.payload_bytes // 10**6,
        rounds=rounds,
        memory_before_mb=before // 10**6,
        memory_at_most_mb=most[0] // 10**6,
        live_mb=sum(size for _, size in log.store.list()) // 10**6,
    )


def _private_memory() -> int:
    """Bytes of this process that are not pages of files."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


# Writing again


class CountingStore(MemoryStore):
    """Counts what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, int] = {}

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        """Write a file: as `FileStore`."""
        with super().create(path) as file:
            yield file
        kind = "containers" if path.endswith(".arrow") else "files"
        self.written[kind] = self.written.get(kind, 0) + len(self.files[path])


def day(given: argparse.Namespace, directory: Path) -> None:
    """What a day of updates writes."""
    store = CountingStore()
    log = MemoryIndexLog(store, given.raw_logs)
    made = Modifications(given.indexes, given.documents, given.size, given.deletes)
    per_deal = max(1, given.modifications // given.deals)
    rows = {"dealt": 0, "sorted and optimized": 0}
    most = 0
    for number in range(given.deals):
        log.now = number * 86_400_000_000 // given.deals
        log.write(made.take(per_deal))
        rows["dealt"] += log.deal()
        rows["sorted and optimized"] += log.optimize(STANDARD_POLICY)
        log.trim()
        most = max(most, *(len(parts) for parts in log.state.indexes.values()))
        if number % 100 == 99:
            log.run(collect_job(lambda: log.state, store, log.now + 1))
    total = per_deal * given.deals
    written = log.payload_bytes + sum(store.written.values())
    tell(
        "a day of updates",
        modifications=total,
        deals=given.deals,
        policy=str(STANDARD_POLICY),
        payload_mb=log.payload_bytes // 10**6,
        containers_mb=store.written.get("containers", 0) // 10**6,
        files_mb=store.written.get("files", 0) // 10**6,
        bytes_written_to_payload=written / log.payload_bytes,
        times_a_modification_is_written=1 + sum(rows.values()) / total,
        parts_of_an_index_at_most=most,
    )
    live = sum(part.bytes for parts in log.state.indexes.values() for part in parts)
    reading = Spent()
    pages = reading.on(lambda: _read_index(log, "index-00001"))
    tell("after it", live_mb=live // 10**6, pages_of_the_largest_index=pages, read_seconds=reading.seconds)


def _read_index(log: MemoryIndexLog, index: str) -> int:
    token, pages = None, 0
    while pages == 0 or token is not None:
        page = log.run(read_page(lambda: log.state, log.store, index, token))
        token, pages = page.next_token, pages + 1
    return pages


# Serving


class PageAsker:
    """Asks an ``ldindexd``."""

    def __init__(self, session: aiohttp.ClientSession, port: int, token: str | None) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}/v1"
        self._headers = {"Accept": ARROW} | ({} if token is None else {"Authorization": f"Bearer {token}"})

    async def ready(self) -> None:
        """Returns when it answers."""
        while True:
            try:
                async with self._session.get(f"{self._url}/health") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)

    async def page(self, index: str, token: str | None = None, wait_ms: int = 0) -> tuple[pa.Table, str, bool]:
        """A page, the token behind it, and whether it is the last one."""
        query: dict[str, Any] = {"wait_ms": wait_ms} | ({} if token is None else {"token": token})
        async with self._session.get(
            f"{self._url}/indexes/{index}/pages", params=query, headers=self._headers
        ) as answer:
            body = await answer.read()
            assert answer.status == 200, body
        table = pa.ipc.open_stream(body).read_all()
        told = {name.decode(): text.decode() for name, text in table.schema.metadata.items()}
        return table, told.get("next_token") or told["tail_token"], "next_token" not in told


def percentiles(seconds: list[float]) -> dict[str, float]:
    """In milliseconds."""
    return {
        f"{name}_ms": 1000 * percentile(seconds, share) for name, share in (("median", 0.5), ("p99", 0.99), ("most", 1))
    }


@dataclass(frozen=True, slots=True)
class IndexLogCluster:
    """An index log on a cluster of three processes; everything is on this machine."""

    supervisor: Supervisor
    file: str
    """The cluster file."""
    client: Client
    log: IndexLog


@asynccontextmanager
async def index_log_cluster(directory: Path, raw_logs: int) -> AsyncIterator[IndexLogCluster]:
    """Two copies of each record. All processes are gone afterwards."""
    home = directory / "cluster"
    home.mkdir()
    config = make_config(home, nodes=3, logs=1, replicate="node:2", racks=1, epoch_store=None, log_tree=True)
    supervisor = Supervisor(home, config)
    write_cluster_file(home, supervisor.config)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await all_acquainted(supervisor)
        cluster = str(layout.cluster_file(home))
        async with Client(cluster) as client:
            await make_index_log(client, f"file://{directory}/store", raw_logs=raw_logs)
            async with IndexLog(client) as log:
                yield IndexLogCluster(supervisor, cluster, client, log)
    finally:
        await supervisor.stop_all()


async def all_acquainted(supervisor: Supervisor) -> None:
    """Wait until all nodes have heard of each other."""
    nodes = list(map(NodeId, range(3)))
    await wait_until_acquainted(supervisor.config, lambda: nodes, timeout=60, access=supervisor.admin_access)


@asynccontextmanager
async def served(cluster: IndexLogCluster, *options: str) -> AsyncIterator[PageAsker]:
    """With an ``ldindexd`` that is asked for pages."""
    (port,) = free_ports(1, "127.0.0.1")
    command = own_program("indexlog.serving.ldindexd", "-c", cluster.file, "--listen", f"127.0.0.1:{port}", *options)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with aiohttp.ClientSession() as session:
            asker = PageAsker(session, port, cluster.supervisor.admin_token)
            await asker.ready()
            yield asker
    finally:
        process.terminate()
        await process.wait()


async def serve(given: argparse.Namespace, directory: Path) -> None:
    """Pages over HTTP."""
    async with index_log_cluster(directory, given.raw_logs) as cluster:
        await _fill(cluster.log, given)
        async with served(cluster, "--deal-every", "5s", "--optimize-every", "30s") as asker:
            await _ask(cluster.log, asker, given)


async def _fill(log: IndexLog, given: argparse.Namespace) -> None:
    made = Modifications(given.indexes, given.documents, given.size, 0.0)
    records = made.take(given.modifications)
    records += [
        LogRecord(f"index-{number:05}", "first", Modification(True, {})) for number in range(1, given.indexes + 1)
    ]
    async with log.writer() as writer:
        began = time.perf_counter()
        await writer.bulk(records)
        tell("written", per_second=round(len(records) / (time.perf_counter() - began)), modifications=len(records))
    for name, work in (("dealt", log.deal), ("sorted", lambda: log.optimize(ALL_AT_ONCE, jobs=4))):
        began = time.perf_counter()
        await work()
        tell(f"{name}, from a cluster", per_second=round(len(records) / (time.perf_counter() - began)))


async def _ask(log: IndexLog, asker: PageAsker, given: argparse.Namespace) -> None:
    rng = random.Random(2)
    first = []
    for _ in range(given.asks):
        began = time.perf_counter()
        await asker.page(f"index-{rng.randint(1, given.indexes):05}")
        first.append(time.perf_counter() - began)
    tell("first page", indexes=given.indexes, asks=given.asks, **percentiles(first))

    pages, size, is_last, token = 0, 0, False, None
    began = time.perf_counter()
    while not is_last:
        table, token, is_last = await asker.page("index-00001", token)
        pages, size = pages + 1, size + table.nbytes
    seconds = time.perf_counter() - began
    tell(
        "pages of the largest index",
        pages=pages,
        mb=size // 10**6,
        per_second=pages / seconds,
        mb_s=size / seconds / 1e6,
    )

    times: list[float] = []
    async with log.writer() as writer:
        for number in range(given.asks):
            seen = asyncio.create_task(_until_seen(asker, token, f"new-{number}"))
            await asyncio.sleep(rng.random() * 0.02)
            await writer.put("index-00001", f"new-{number}", {"body": "x" * given.size})
            acknowledged = time.perf_counter()
            at, token = await seen
            times.append(max(0.0, at - acknowledged))
    tell("from acknowledgement to a reader that waits", writes=given.asks, **percentiles(times))


async def _until_seen(asker: PageAsker, token: str | None, docid: str) -> tuple[float, str]:
    while True:
        table, token, _ = await asker.page("index-00001", token, 30_000)
        if docid in table.column("docid").to_pylist():
            return time.perf_counter(), token


def _count(text: str) -> int:
    return int(text.replace("_", "").replace(",", ""))


def main() -> int:
    """Entry point."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.index_log", description=__doc__)
    whats = options.add_subparsers(dest="what", required=True)
    for name, chosen in (
        ("files", {"increments": 10, "increment": 200_000}),
        ("backlog", {"modifications": 5_000_000}),
        ("day", {"deals": 1440, "modifications": 2_000_000}),
        ("serve", {"asks": 1000, "modifications": 200_000}),
    ):
        own = whats.add_parser(name)
        for option, value in {**chosen, "indexes": 10_000, "documents": 1_000_000, "raw-logs": 4}.items():
            own.add_argument(f"--{option}", type=_count, default=value, metavar="N", help=f"(default: {value:,})")
        own.add_argument("--size", type=parse_size, default=1000, help="bytes of a document's text (default: 1000)")
        own.add_argument(
            "--deletes", type=float, default=0.05, help="share of modifications that delete (default: 0.05)"
        )
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ld-index-log-") as name:
        directory = Path(name)
        if given.what == "serve":
            asyncio.run(serve(given, directory))
        else:
            {"files": files, "backlog": backlog, "day": day}[given.what](given, directory)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
